"""Features that nothing learns are computed once: members then learn a last layer on a table of them (section 6).

The curves of a spline are the same at every step of every member. The fit is that of the model itself, up to float32
rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from gbpl.fitting.apply import row_blocks
from gbpl.fitting.newton import learns_last_layer
from gbpl.models.base import LastLayerModel, ScoreModel
from gbpl.models.networks import Linear
from gbpl.runtime.devices import aligned_empty, placed, quick_jit

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = ["LastLayer", "computed_once"]

MOST = 1 << 25  # values of a table of features: more are computed at each step, for the rows of the step


@dataclass(frozen=True, slots=True)
class LastLayer:
    """The last layer of a model of rows with `n_features`, on the model's features."""

    model: LastLayerModel
    n_features: int

    def init(self, key: Array, n_features: int, n_raw: int) -> Any:
        return self.model.init(key, self.n_features, n_raw)

    def apply(self, params: Any, x: Float[Array, "row hidden"]) -> Float[Array, "row raw"]:
        return x @ params[-1]["weight"] + params[-1]["bias"]


@partial(quick_jit, static_argnames="model")
def _features(params: Any, x: Float[Array, "row feature"], *, model: LastLayerModel) -> Float[Array, "row hidden"]:
    return model.features(params, x)


def computed_once(
    model: ScoreModel, x: Float[np.ndarray, "row feature"], n_raw: int
) -> tuple[ScoreModel, Float[np.ndarray, "row input"]]:
    """A model and its inputs: the last layer and the features where that is all that is learned, or both as given."""
    if isinstance(model, Linear) or not isinstance(model, LastLayerModel):
        return model, x
    if not learns_last_layer(model, n_raw, x.shape[1]):
        return model, x
    shapes = jax.eval_shape(lambda: model.init(jax.random.key(0), x.shape[1], n_raw))
    width = shapes[-1]["weight"].shape[0]
    if len(x) * width > MOST:
        return model, x
    table = aligned_empty((len(x), width))
    with jax.default_device(placed(len(x) * width)):
        params = model.init(jax.random.key(0), x.shape[1], n_raw)
        for rows, block in row_blocks(x):
            table[rows] = np.asarray(_features(params, block, model=model))[: rows.stop - rows.start]
    return LastLayer(model, x.shape[1]), table
