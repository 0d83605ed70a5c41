"""From what a fit leaves behind to a policy that decides with numpy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.frozen.committee import Part
from gbpl.frozen.file import SavedPolicy
from gbpl.models.base import FrozenModel, ScoreModel
from gbpl.models.mixture import Mixture, by_model
from gbpl.models.numpy_form import Forests, Networks, NumpyForm, layer_matrix
from gbpl.squashing import squashings

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.decisions.gain import GainSlope
    from gbpl.feedback.standardize import Standardizer
    from gbpl.posterior.posterior import Posterior
    from gbpl.surrogates import Surrogate

__all__ = ["check_model", "freeze"]


def check_model(model: ScoreModel) -> FrozenModel:
    """The model; refuses one that has no numpy form, of which nothing can be saved."""
    if not isinstance(model, FrozenModel):
        raise ValueError(
            f"a policy of {type(model).__name__} holds code, which is neither saved nor exported; fit with one of MLP, "
            "Linear, RandomFeatures, Splines or ForestFeatures, give the model a method frozen(params, n_features), or "
            "use pickle where you trust the file"
        )
    return model


def _squashing(surrogate: Surrogate) -> str:
    name, known = surrogate.squashing, squashings(surrogate.n_actions)
    if name not in known:
        raise ValueError(
            f"a policy of the surrogate {type(surrogate).__name__} is not saved: its squashing is {name!r}, and files "
            f"hold one of {', '.join(known)}; fit with Binary, BaselineGap or FullVector, or use pickle where you "
            "trust the file"
        )
    return name


def _form(model: ScoreModel, params: Any, n_features: int) -> NumpyForm:
    form = check_model(model).frozen(params, n_features)
    if not isinstance(form, Networks | Forests):
        raise ValueError(
            f"{type(model).__name__}.frozen gave {type(form).__name__}, which files do not hold; return Networks or "
            "Forests of gbpl.models.numpy_form"
        )
    return form


def _draws_by_member(posterior: Posterior | None, draws: int) -> dict[int, Float[np.ndarray, "draw basis raw"]]:
    """Draws of the last layer of each member that has any."""
    chunks: dict[int, list[np.ndarray]] = {}
    if posterior is not None and draws:
        for member, _, params in posterior.member_draws(draws, seed=0):
            chunks.setdefault(member, []).append(layer_matrix(params[-1]))
    return {member: np.concatenate(own).astype(np.float32) for member, own in chunks.items()}


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
    every, rounded = np.arange(len(weights)), np.asarray(np.asarray(weights, np.float32), np.float64)  # as JAX has them
    forms = [(_form(one, own, width), every[numbers]) for one, own, numbers in by_model(model, params)]
    drawn = _draws_by_member(posterior, draws)
    parts = []
    for form, numbers in forms:
        own = {place: drawn[member] for place, member in enumerate(numbers.tolist()) if member in drawn}
        parts.append(
            Part(
                form,
                rounded[numbers],
                np.concatenate(list(own.values())) if own else None,
                np.repeat(list(own), [len(part) for part in own.values()]).astype(np.int32) if own else None,
            )
        )
    return SavedPolicy(
        parts,
        squashing=squashing,
        mean=standardizer.mean,
        scale=standardizer.scale,
        actions=actions,
        feature_names=feature_names,
        gain=gain,
    )
