"""From what a fit leaves behind to a policy that decides with numpy alone."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.gain import GainSlope
from gbpl.models import MLP, Linear, RandomFeatures, ScoreModel, as_model
from gbpl.networks import Networks
from gbpl.persistence import SavedPolicy
from gbpl.posterior import Posterior
from gbpl.posteriors.last_layer import last_layer
from gbpl.surrogates import Binary, FullVector, Surrogate

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.feedback import Standardizer

__all__ = ["check_frozen", "freeze"]


def _squashing(surrogate: Surrogate) -> str:
    if isinstance(surrogate, Binary):
        return "tanh" if surrogate.squash else "clip"
    if isinstance(surrogate, FullVector) and not surrogate.squash:
        return "project"
    return "softmax"


def _holds_code(model: ScoreModel) -> ValueError:
    return ValueError(
        f"a policy of {type(model).__name__} holds code, which is not saved; save one of MLP, Linear or "
        "RandomFeatures, or use pickle where you trust the file"
    )


def check_frozen(model: Any) -> None:
    """Refuse a model of which nothing can be saved, before it is fitted; None is the default one."""
    if model is not None and not isinstance(as_model(model), MLP | Linear | RandomFeatures):
        raise _holds_code(as_model(model))


def _networks(model: ScoreModel, surrogate: Surrogate, params: Any, n_features: int) -> Networks:
    squashing = _squashing(surrogate)
    if isinstance(model, MLP):
        hidden = tuple(np.asarray(last_layer([layer]), np.float32) for layer in params[:-1])
        return Networks(hidden, np.asarray(last_layer(params), np.float32), model.activation, squashing)
    if isinstance(model, Linear):
        return Networks((), np.asarray(last_layer(params), np.float32), "tanh", squashing)
    if isinstance(model, RandomFeatures):
        frequency, phase = model.waves(n_features)
        layer = np.concatenate([frequency, phase[None]])[None]
        last = np.asarray(last_layer(params), np.float32)
        layer = np.broadcast_to(layer, (len(last), *layer.shape[1:]))
        return Networks((layer,), last, "cos", squashing, gain=math.sqrt(2.0 / model.n_features))
    raise _holds_code(model)


def freeze(
    model: ScoreModel,
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
    networks = _networks(model, surrogate, params, len(standardizer.mean))
    drawn: list[np.ndarray] = []
    members: list[int] = []
    if posterior is not None and draws:
        for member, _, drawn_params in posterior.member_draws(draws, seed=0):
            drawn.append(last_layer(drawn_params))
            members += [member] * len(drawn[-1])
    return SavedPolicy(
        networks,
        weights=np.asarray(np.asarray(weights, np.float32), np.float64),  # as JAX rounds them
        mean=standardizer.mean,
        scale=standardizer.scale,
        actions=actions,
        feature_names=feature_names,
        draws=np.concatenate(drawn).astype(np.float32) if drawn else None,
        draw_member=np.array(members, np.int32) if drawn else None,
        gain=gain,
    )
