"""Several policies fitted to their own data at once: outcome models as one stack, paths as another."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.estimators.training import Training
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback
from gbpl.nuisance.confounding import Confounding
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.nuisances import Nuisances
from gbpl.nuisance.plan import fit_plans
from gbpl.path.grid import auto_path
from gbpl.path.path import fit_paths
from gbpl.path.plan import PathProblem, PathSettings, Table
from gbpl.runtime.progress import stage

if TYPE_CHECKING:
    from jaxtyping import Int

    from gbpl.feedback.read import Feedback

__all__ = ["Request", "fit_nuisances", "fit_together"]


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A complete description of one fit: rows, folds and settings; those after them are for logged feedback.

    With `gamma` above 1 the tables are bounds under hidden confounding; of gains over `baseline`, if there is one.
    """

    feedback: Feedback
    folds: list[Int[np.ndarray, " row"]]
    settings: PathSettings
    cross_fit: CrossFit
    construction: str
    corrections: tuple[float, ...]
    gamma: float = 1.0
    baseline: int | None = None


def fit_together(requests: Sequence[Request], nuisances: Sequence[Nuisances | None] | None = None) -> list[Training]:
    """Fit each request to its own rows; those that share their settings are fitted as one stack.

    `nuisances` are those of each request, if they have been made already.
    """
    if nuisances is None:
        nuisances = fit_nuisances(requests)
    stage("policies")
    made = [partial(_problem, request, known) for request, known in zip(requests, nuisances, strict=True)]
    problems = [problem() for problem in made]
    return [
        Training(fit, problem.feedback, known, again)
        for fit, problem, known, again in zip(fit_paths(problems), problems, nuisances, made, strict=True)
    ]


def fit_nuisances(requests: Sequence[Request]) -> list[Nuisances | None]:
    """Models of each log, cross-fitted on the folds of its committee; None for full feedback."""
    stage("models of the outcomes")
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
    several = bool(request.settings.beside)
    if nuisances is None:
        assert isinstance(feedback, FullFeedback)
        tables = [Table([feedback.outcomes], feedback.scale, path=auto_path(1.0, several=several))]
        return PathProblem(feedback, tables, request.folds, request.settings)
    scores = _scores(request, nuisances)
    weighing = FullFeedback(
        feedback.x, scores(correction=shares[0]), feedback.weights, feedback.actions, feedback.groups
    )
    paths = [auto_path(share, several=several, logged=len(feedback)) for share in shares]
    tables = [_table(nuisances, weighing, scores, *each) for each in zip(shares, paths, strict=True)]
    modelled: Any = None
    if several and construction == "dr" and len(tables) > 1:
        modelled = scores(correction=0.0)
    return PathProblem(weighing, tables, request.folds, request.settings, modelled)


def _scores(request: Request, nuisances: Nuisances) -> Callable[..., Any]:
    """Tables to learn from, by share of the correction and by fold."""
    if request.gamma == 1.0:
        return partial(nuisances.pseudo_outcomes, request.construction)
    bounded = partial(Confounding(nuisances, request.settings.seed).scores, request.gamma, baseline=request.baseline)
    if request.construction == "dr":
        return bounded
    return lambda correction=0.0, fold=None: bounded(correction=0.0, fold=fold)


def _table(
    nuisances: Nuisances, feedback: FullFeedback, scores: Callable[..., Any], correction: float, path: Sequence[float]
) -> Table:
    """What members learn from: where possible, for each fold scores that do not depend on its rows."""
    scale = replace(feedback, outcomes=scores(correction=correction)).scale
    if nuisances.fold_means is None:
        return Table([scores(correction=correction)], scale, correction, path)
    each = [scores(correction=correction, fold=fold) for fold in range(len(nuisances.fold_means))]
    return Table(each, scale, correction, path)
