"""What a score model is: typed protocols, from the least a fit needs to what posteriors and files can use (section 6).

A model is a frozen object without parameters, so one object serves every member of a stack. Raw outputs are unbounded;
the surrogate squashes them. What a model can do is a method of one of these protocols, and whoever needs more than it
has refuses it by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    from gbpl.fitting.stack import StackFit, StackProblem
    from gbpl.models.numpy_form import NumpyForm

__all__ = [
    "DenseModel", "FixedFeatures", "FrozenModel", "GrownModel", "LastLayerModel", "ScaledFeatures", "ScoreModel",
    "check_whole",
]  # fmt: skip


@runtime_checkable
class ScoreModel(Protocol):
    """A model is any hashable object with these two pure functions."""

    def init(self, key: Array, n_features: int, n_raw: int) -> Any:
        """Parameters (any tree of float arrays) drawn from `key`."""
        ...

    def apply(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "row raw"]:
        """Raw outputs of each row."""
        ...


@runtime_checkable
class LastLayerModel(ScoreModel, Protocol):
    """Raw outputs are linear in `features`: the last of the parameters has their `weight` and `bias`."""

    def features(self, params: Any, x: Float[Array, "row feature"]) -> Float[Array, "row hidden"]:
        """Last hidden layer."""
        ...


@runtime_checkable
class FixedFeatures(LastLayerModel, Protocol):
    """Features that are grown once and then fixed: the last layer is all that the fit learns."""

    def training_features(
        self, params: Any, x: Float[np.ndarray, "row feature"], seed: int
    ) -> Float[np.ndarray, "row hidden"]:
        """Features of a member's training rows as its last layer learned from them."""
        ...


@runtime_checkable
class DenseModel(LastLayerModel, Protocol):
    """Parameters are dense layers one after the other, each with a `weight` and a `bias`."""

    def layer_inputs(self, params: Any, x: Float[Array, "row feature"]) -> list[Float[Array, "row input"]]:
        """Inputs of each layer; those of the last one are `features`."""
        ...


@runtime_checkable
class GrownModel(ScoreModel, Protocol):
    """A model with a part that no gradient learns: it fits its own members."""

    def fit_stacks(self, problems: Sequence[StackProblem], objective: Any, **options: Any) -> list[StackFit]:
        """What `fitting.stack.fit_stacks` gives for other models, with the same options."""
        ...


@runtime_checkable
class FrozenModel(ScoreModel, Protocol):
    """A model whose fitted members can be written without code, hence saved."""

    def frozen(self, params: Any, n_features: int) -> NumpyForm:
        """Members in numpy; `params` have a leading member axis, and rows have `n_features` features."""
        ...


@runtime_checkable
class ScaledFeatures(FrozenModel, Protocol):
    """A model whose features are those of its form in numpy, each times a number."""

    def feature_scales(self, n_features: int) -> Float[np.ndarray, " hidden"]:
        """These numbers; weights of the form are the model's times them."""
        ...


def check_whole(name: str, value: Any, least: int) -> None:
    """Refuse anything but a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number >= {least}, got {value!r}")
