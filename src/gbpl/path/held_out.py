"""What a policy would have done on rows that nothing of it has seen: the whole path fitted again without each fold.

Out of fold, a row is decided by members that did not train on it. But they stopped on it, and zetas, models and levels
were weighed by all folds, with members that had trained on it. Where there is little to find, that is enough to make
a policy look better than it is. Here, for each fold, the path is fitted again to the other rows alone: two of the
other folds stop and weigh its members, the outcome models of its scores have seen nothing of the fold, and what comes
out decides the fold. All folds are one stack. What it shares with the fold is units alone: networks of outcomes learn
the outcome less its mean, over its standard deviation, of all rows.

Where members learned in passes, the rows are a sample that nothing learned from: there the out-of-fold policy is as
good (`out_of_fold`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.fitting.apply import combined_deviation, taken
from gbpl.fitting.members import fold_rows
from gbpl.path.path import PathFit, fit_paths
from gbpl.path.plan import PathProblem, Table
from gbpl.runtime.progress import stage

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["HeldOut", "hold_out", "out_of_fold"]

INNER = 2  # of the other folds stop and weigh the members; all of them would take twice as long
SPREAD_ROWS = 1_000  # on which the policies of the folds are compared


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """The policy of each row by a fit without its fold: deviations from uniform, and how such fits vary.

    `gain` is `deviation` times the `unit` of its fit: expected effects in outcome units where those are played, else
    the deviation itself. `covariance` is that of a row's gains over samples, averaged over rows: the jackknife over F
    folds, (F - 1) / F sum_k (g_k - mean g)(g_k - mean g)' with g_k by the fit without fold k.
    """

    deviation: Float[np.ndarray, "row action"]
    unit: Float[np.ndarray, " row"]
    covariance: Float[np.ndarray, "action action"]
    folds: tuple[Int[np.ndarray, " row"], ...]

    @property
    def gain(self) -> Float[np.ndarray, "row action"]:
        return self.deviation * self.unit[:, None]


def hold_out(problems: Sequence[PathProblem]) -> list[HeldOut]:
    """Fit each problem again without each of its folds, all as one stack, and decide the rows of the fold."""
    stage("policies without a part of the rows")
    parts = [_without(problem, number) for problem in problems for number in range(len(problem.folds))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit to all rows has warned
        fits = iter(fit_paths(parts))
    return [_decided(problem, [next(fits) for _ in problem.folds]) for problem in problems]


def _without(problem: PathProblem, number: int) -> PathProblem:
    """The problem of the rows outside one fold, with scores by models that saw nothing of it."""
    feedback, folds = problem.feedback, problem.folds
    count = len(folds)
    rows = np.concatenate([folds[(number + step) % count] for step in range(1, count)])
    place = np.empty(len(feedback), np.int32)
    place[rows] = np.arange(len(rows), dtype=np.int32)
    scores = [table.outcomes[number if len(table.outcomes) > 1 else 0][rows] for table in problem.tables]
    groups = None if feedback.groups is None else feedback.groups[rows]
    rest = replace(
        feedback,
        x=feedback.x[rows],
        outcomes=scores[0],
        weights=None if feedback.weights is None else feedback.weights[rows],
        groups=groups,
        source=None,
    )
    others = [place[folds[(number + step) % count]] for step in range(1, count)]
    inner = (
        others[:INNER] if len(others) > 1 else fold_rows(len(rows), INNER, seed=problem.settings.seed, groups=groups)
    )
    tables = [
        Table([own], replace(rest, outcomes=own).scale, table.correction, table.path)
        for own, table in zip(scores, problem.tables, strict=True)
    ]
    modelled = None
    if problem.modelled is not None:
        modelled = next(own for own, table in zip(scores, tables, strict=True) if table.correction == 0.0)
    return PathProblem(rest, tables, inner, replace(problem.settings, progress=False), modelled)


def out_of_fold(fit: PathFit) -> HeldOut:
    """The policies of the folds of a fit whose members learned from other rows."""
    assert fit.deviation is not None
    assert fit.fold_weights is not None
    folds = {member.fold or 0: member.validation for member in fit.every}
    rows = np.random.default_rng(0).permutation(len(fit.x))[:SPREAD_ROWS]
    each, unit = [], np.ones(len(fit.x))
    for number, fold in sorted(folds.items()):
        chosen = [place for place, member in enumerate(fit.members) if member.fold == number]
        weights = np.array([fit.fold_weights[number, fit.members[place].entry] for place in chosen])
        deviation = combined_deviation(
            fit.model, fit.settings.surrogate, taken(fit.params, chosen), weights, fit.x[rows]
        )
        if fit.outside:
            own = fit.outside[number]
            deviation, unit[fold] = own.deviation(deviation) * own.unit, own.unit
        each.append(deviation)
    return HeldOut(fit.deviation, unit, _jackknife(np.stack(each)), tuple(folds[number] for number in sorted(folds)))


def _jackknife(each: Float[np.ndarray, "fold row action"]) -> Float[np.ndarray, "action action"]:
    count, rows = each.shape[:2]
    apart = (each - each.mean(axis=0)).astype(np.float64)
    return np.einsum("fra,frb->ab", apart, apart) * (count - 1) / (count * rows)


def _decided(problem: PathProblem, fits: Sequence[PathFit]) -> HeldOut:
    feedback = problem.feedback
    deviation, unit = np.empty(feedback.outcomes.shape, np.float32), np.empty(len(feedback))
    for fold, fit in zip(problem.folds, fits, strict=True):
        deviation[fold], unit[fold] = _deviation(fit, feedback.x[fold]), _unit(fit)
    rows = np.random.default_rng(0).permutation(np.concatenate(problem.folds))[:SPREAD_ROWS]
    each = np.stack([_deviation(fit, feedback.x[rows]) * _unit(fit) for fit in fits])
    return HeldOut(deviation, unit, _jackknife(each), tuple(problem.folds))


def _unit(fit: PathFit) -> float:
    return 1.0 if fit.effect is None else fit.effect.mean.unit


def _deviation(fit: PathFit, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
    rows = fit.standardizer.apply(x)
    deviation = combined_deviation(fit.model, fit.settings.surrogate, fit.params, fit.policy_weights, rows)
    return deviation if fit.effect is None else fit.effect.mean.deviation(deviation)
