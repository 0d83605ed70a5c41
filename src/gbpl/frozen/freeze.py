"""From what a fit leaves behind to a policy that decides with numpy alone."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.decisions.gain import GainSlope
from gbpl.fitting.apply import Mixed, Mixture
from gbpl.frozen.committee import Forests, Networks, Part
from gbpl.frozen.file import SavedPolicy
from gbpl.models.adapters import as_model
from gbpl.models.base import ScoreModel
from gbpl.models.networks import MLP, Linear, RandomFeatures
from gbpl.models.splines import Splines
from gbpl.posterior.last_layer import last_layer
from gbpl.posterior.posterior import Posterior
from gbpl.surrogates import Binary, FullVector, Surrogate
from gbpl.trees.forest import ForestFeatures

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from gbpl.feedback.standardize import Standardizer

__all__ = ["check_frozen", "freeze"]


def _squashing(surrogate: Surrogate) -> str:
    if isinstance(surrogate, Binary):
        return "tanh" if surrogate.squash else "clip"
    if isinstance(surrogate, FullVector) and not surrogate.squash:
        return "project"
    return "softmax"


def _holds_code(model: ScoreModel) -> ValueError:
    return ValueError(
        f"a policy of {type(model).__name__} holds code, which is not saved; save one of MLP, Linear, RandomFeatures, "
        "Splines or ForestFeatures, or use pickle where you trust the file"
    )


def check_frozen(model: Any) -> None:
    """Refuse a model of which nothing can be saved, before it is fitted; None and "auto" are gbpl's own."""
    if model is None or (isinstance(model, str) and model == "auto"):
        return
    if not isinstance(as_model(model), MLP | Linear | RandomFeatures | Splines | ForestFeatures):
        raise _holds_code(as_model(model))


def _scores(model: ScoreModel, squashing: str, params: Any, n_features: int) -> Networks | Forests:
    if not isinstance(model, MLP | Linear | RandomFeatures | Splines | ForestFeatures):
        raise _holds_code(model)
    last = np.asarray(last_layer(params), np.float32)
    match model:
        case MLP():
            hidden = tuple(np.asarray(last_layer([layer]), np.float32) for layer in params[:-1])
            return Networks(hidden, last, model.activation, squashing)
        case RandomFeatures():
            frequency, phase = model.waves(n_features)
            layer = np.concatenate([frequency, phase[None]])[None]
            layer = np.broadcast_to(layer, (len(last), *layer.shape[1:]))
            return Networks((layer,), last, "cos", squashing, gain=math.sqrt(2.0 / model.n_features))
        case ForestFeatures():
            return _forests(params[0], last, squashing)
    return Networks((), last, "tanh", squashing, knots=model.knots if isinstance(model, Splines) else 0)


def _forests(trees: Any, last: Float[np.ndarray, "member basis raw"], squashing: str) -> Forests:
    """Every forest once: members that learned from the same rows have the same one."""
    kinds = {"feature": np.int32, "threshold": np.float32, "value": np.float32}
    arrays = {name: np.asarray(trees[name], kind) for name, kind in kinds.items()}
    distinct: dict[bytes, int] = {}  # and where it was first seen
    forest = []
    for member in range(len(last)):
        digest = hashlib.sha256(b"".join(array[member].tobytes() for array in arrays.values())).digest()
        forest.append(distinct.setdefault(digest, member))
    seen = np.array(list(distinct.values()))
    return Forests(
        **{name: array[seen] for name, array in arrays.items()},
        forest=np.searchsorted(seen, forest).astype(np.int32),
        last=last,
        squashing=squashing,
    )


def _by_model(
    model: ScoreModel | Mixture, params: Any, count: int
) -> list[tuple[ScoreModel, Any, Int[np.ndarray, " member"]]]:
    """Model, parameters and numbers of the members of each model that has any."""
    if not isinstance(model, Mixture):
        return [(model, params, np.arange(count))]
    assert isinstance(params, Mixed)
    owned = [(one, params.parts[place], params.members_of(place)) for place, one in enumerate(model.models)]
    return [(one, own, numbers) for one, own, numbers in owned if len(numbers)]


def _drawn(posterior: Posterior | None, draws: int) -> dict[int, Float[np.ndarray, "draw basis raw"]]:
    """Draws of the last layer of each member that has any."""
    found: dict[int, list[np.ndarray]] = {}
    if posterior is not None and draws:
        for member, _, params in posterior.member_draws(draws, seed=0):
            found.setdefault(member, []).append(last_layer(params))
    return {member: np.concatenate(drawn).astype(np.float32) for member, drawn in found.items()}


def freeze(
    model: ScoreModel | Mixture,
    surrogate: Surrogate,
    params: Any,
    weights: Float[np.ndarray, " member"],
    standardizer: Standardizer,
    actions: np.ndarray,
    *,
    feature_names: list[str] | None,
    posterior: Posterior | None,
    draws: int,
    gain: GainSlope | None,
) -> SavedPolicy:
    """A `SavedPolicy` from the parts of a fitted one; `draws` of the posterior's last layers go with it."""
    squashing, width = _squashing(surrogate), len(standardizer.mean)
    each = [
        (_scores(one, squashing, own, width), numbers) for one, own, numbers in _by_model(model, params, len(weights))
    ]
    counted = np.asarray(np.asarray(weights, np.float32), np.float64)  # as JAX rounds them
    drawn = _drawn(posterior, draws)
    parts = []
    for scores, numbers in each:
        own = {place: drawn[member] for place, member in enumerate(numbers.tolist()) if member in drawn}
        parts.append(
            Part(
                scores,
                counted[numbers],
                np.concatenate(list(own.values())) if own else None,
                np.repeat(list(own), [len(part) for part in own.values()]).astype(np.int32) if own else None,
            )
        )
    first, *beside = parts
    return SavedPolicy(
        first.scores,
        weights=first.weights,
        mean=standardizer.mean,
        scale=standardizer.scale,
        actions=actions,
        feature_names=feature_names,
        draws=first.draws,
        draw_member=first.draw_member,
        gain=gain,
        beside=beside,
    )
