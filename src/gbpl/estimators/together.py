"""Several policies fitted to their own data at once: outcome models as one stack, paths as another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.estimators.training import Training
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.nuisances import Nuisances
from gbpl.nuisance.plan import fit_plans
from gbpl.path.grid import auto_path
from gbpl.path.path import fit_paths
from gbpl.path.plan import PathProblem, PathSettings, Table

if TYPE_CHECKING:
    from jaxtyping import Int

    from gbpl.feedback.read import Feedback

__all__ = ["Request", "fit_together"]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A complete description of one fit: rows, folds and settings; the last three are for logged feedback."""

    feedback: Feedback
    folds: list[Int[np.ndarray, " row"]]
    settings: PathSettings
    cross_fit: CrossFit
    construction: str
    corrections: tuple[float, ...]


def fit_together(requests: Sequence[Request]) -> list[Training]:
    """Fit each request to its own rows; those that share their settings are fitted as one stack."""
    nuisances = _nuisances(requests)
    problems = [_problem(request, known) for request, known in zip(requests, nuisances, strict=True)]
    return [
        Training(fit, problem.feedback, known)
        for fit, problem, known in zip(fit_paths(problems), problems, nuisances, strict=True)
    ]


def _nuisances(requests: Sequence[Request]) -> list[Nuisances | None]:
    """Models of each log, cross-fitted on the folds of its committee; None for full feedback."""
    plans = {
        number: request.cross_fit.plan(
            request.feedback, request.construction, outer=request.folds if request.settings.committee else None
        )
        for number, request in enumerate(requests)
        if isinstance(request.feedback, LoggedFeedback)
    }
    done = dict(zip(plans, fit_plans(list(plans.values())), strict=True))
    return [done.get(number) for number in range(len(requests))]


def _problem(request: Request, nuisances: Nuisances | None) -> PathProblem:
    feedback, shares, construction = request.feedback, request.corrections, request.construction
    if nuisances is None:
        assert isinstance(feedback, FullFeedback)
        tables = [Table([feedback.outcomes], feedback.scale)]
        return PathProblem(feedback, tables, request.folds, request.settings)
    scores = nuisances.pseudo_outcomes(construction, correction=shares[0])
    weighing = FullFeedback(feedback.x, scores, feedback.weights, feedback.actions, feedback.groups)
    tables = [_table(nuisances, weighing, construction, share) for share in shares]
    modelled: Any = None
    if request.settings.beside and construction == "dr" and len(tables) > 1:
        modelled = nuisances.pseudo_outcomes("dr", correction=0.0)
    return PathProblem(weighing, tables, request.folds, request.settings, modelled)


def _table(nuisances: Nuisances, feedback: FullFeedback, construction: str, correction: float) -> Table:
    """What members learn from: where possible, for each fold scores that do not depend on its rows."""
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
