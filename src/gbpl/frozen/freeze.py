"""From what a fit leaves behind to a policy that decides with numpy alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.frozen.committee import Effects, Part
from gbpl.frozen.file import SavedPolicy
from gbpl.models.base import FrozenModel, ScaledFeatures, ScoreModel
from gbpl.models.basis import rough_functions
from gbpl.models.mixture import Mixture, by_model
from gbpl.models.numpy_form import Forests, Networks, NumpyForm, layer_matrix, with_bias
from gbpl.squashing import squashings

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.decisions.gain import GainSlope
    from gbpl.feedback.fingerprint import Fingerprint
    from gbpl.feedback.standardize import Standardizer
    from gbpl.frozen.seen import Seen
    from gbpl.posterior.effect import Effect
    from gbpl.posterior.posterior import Posterior
    from gbpl.surrogates import Surrogate
    from gbpl.tables.encoder import Encoder

__all__ = ["check_model", "freeze"]

COMMITTEE = "committee"  # the method of a posterior whose draws are of the whole committee


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
    effect: Effect | None = None,
    encoder: Encoder | None = None,
    fingerprint: Fingerprint | None = None,
    seen: Seen | None = None,
) -> SavedPolicy:
    """A `SavedPolicy` from the parts of a fitted one; `draws` of the posterior go with it."""
    squashing, width = _squashing(surrogate), standardizer.width
    every, rounded = np.arange(len(weights)), np.asarray(np.asarray(weights, np.float32), np.float64)  # as JAX has them
    forms = [(_form(one, own, width), every[numbers]) for one, own, numbers in by_model(model, params)]
    of_members = posterior is None or posterior.method != COMMITTEE
    drawn = _draws_by_member(posterior, draws) if of_members else {}
    parts = []
    for (form, numbers), (one, _, _) in zip(forms, by_model(model, params), strict=True):
        scales = with_bias(one.feature_scales(width)) if isinstance(one, ScaledFeatures) else np.float32(1.0)
        own = {place: drawn[member] * scales for place, member in enumerate(numbers.tolist()) if member in drawn}
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
        columns=standardizer.columns,
        actions=actions,
        feature_names=feature_names,
        gain=gain,
        encoder=encoder,
        fingerprint=fingerprint,
        seen=seen,
        effects=None if effect is None else _effects(effect, posterior, draws, [numbers for _, numbers in forms]),
    )


def _effects(effect: Effect, posterior: Any, draws: int, order: list[np.ndarray]) -> Effects:
    """Expected effects as they are played, and draws of a committee's posterior, its members in the order of parts."""
    played = Effects(effect.slope / effect.unit, 0, effect.level / effect.unit)
    if posterior is None or posterior.method != COMMITTEE or not draws:
        return played
    drawn = posterior.sample(draws, seed=0)
    return replace(
        played,
        knots=posterior.effect.knots,
        functions=rough_functions(posterior.standardizer.width, drawn["rough"].shape[1]),
        draw_weight=np.ascontiguousarray(drawn["weight"][:, np.concatenate(order)]),
        draw_coefficient=np.concatenate([drawn["coefficient"], drawn["rough"]], axis=1),
        freedom=posterior.freedom,
    )
