"""Several policies fitted to their own data at once: outcome models as one stack, paths as another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import validate_data

from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback
from gbpl.nuisance.nuisances import Nuisances
from gbpl.nuisance.plan import fit_plans
from gbpl.path.grid import auto_path
from gbpl.path.path import fit_paths
from gbpl.path.plan import PathProblem, PathSettings, Table

if TYPE_CHECKING:
    from jaxtyping import Int

    from gbpl.estimators.gbplnet import GBPLNet
    from gbpl.feedback.read import Feedback

__all__ = ["fit_together"]


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A fit that is about to begin, with all that is random in it."""

    policy: GBPLNet
    feedback: Feedback
    folds: list[Int[np.ndarray, " row"]]
    settings: PathSettings


def fit_together(policies: Sequence[GBPLNet], feedback: Sequence[Feedback]) -> None:
    """Fit each policy to its own rows; those that share their settings are fitted as one stack."""
    prepared = [_prepared(policy, own) for policy, own in zip(policies, feedback, strict=True)]
    nuisances = _nuisances(prepared)
    problems = [_problem(p, known) for p, known in zip(prepared, nuisances, strict=True)]
    for p, problem, known, fit in zip(prepared, problems, nuisances, fit_paths(problems), strict=True):
        validate_data(p.policy, p.feedback.source, skip_check_array=True)  # n_features_in_, feature_names_in_
        p.policy.remember(fit, problem.feedback, known)


def _prepared(policy: GBPLNet, feedback: Feedback) -> _Prepared:
    seed = policy.drawn_seed()
    settings = policy.path_settings(len(feedback.actions), seed)
    return _Prepared(policy, feedback, policy.stopping_folds(feedback, seed), settings)


def _nuisances(prepared: Sequence[_Prepared]) -> list[Nuisances | None]:
    """Models of each log, cross-fitted on the folds of its committee; None for full feedback."""
    plans = {
        number: p.policy.cross_fit_settings(p.settings.seed).plan(
            p.feedback, p.policy.pseudo_outcome, outer=p.folds if p.settings.committee else None
        )
        for number, p in enumerate(prepared)
        if isinstance(p.feedback, LoggedFeedback)
    }
    done = dict(zip(plans, fit_plans(list(plans.values())), strict=True))
    return [done.get(number) for number in range(len(prepared))]


def _problem(prepared: _Prepared, nuisances: Nuisances | None) -> PathProblem:
    policy, feedback = prepared.policy, prepared.feedback
    if nuisances is None:
        assert isinstance(feedback, FullFeedback)
        tables = [Table([feedback.outcomes], feedback.scale)]
        return PathProblem(feedback, tables, prepared.folds, prepared.settings)
    shares, construction = policy.corrections(), policy.pseudo_outcome
    scores = nuisances.pseudo_outcomes(construction, correction=shares[0])
    weighing = FullFeedback(feedback.x, scores, feedback.weights, feedback.actions, feedback.groups)
    tables = [_table(nuisances, weighing, construction, share) for share in shares]
    modelled: Any = None
    if policy.averages_models and construction == "dr" and len(tables) > 1:
        modelled = nuisances.pseudo_outcomes("dr", correction=0.0)
    return PathProblem(weighing, tables, prepared.folds, prepared.settings, modelled)


def _table(nuisances: Nuisances, feedback: FullFeedback, construction: str, correction: float) -> Table:
    """What members learn from: for each fold scores that have seen nothing of it, where there are any."""
    whole = nuisances.pseudo_outcomes(construction, correction=correction)
    scale = replace(feedback, outcomes=whole).scale
    path = auto_path(correction)
    if nuisances.fold_means is None:
        return Table([whole], scale, correction, path)
    each = [
        nuisances.pseudo_outcomes(construction, correction=correction, fold=fold)
        for fold in range(len(nuisances.fold_means))
    ]
    return Table(each, scale, correction, path)
