"""`policy.check()`: all refuters on the rows of a fit, refits as one stack.

Refits repeat the entry of the path with the largest weight (its model, zeta and table), on the folds of the fit and
with its models of the log, and are compared with the same entry fitted to the table as it is. Forests are refitted
with fewer trees and without squashing, where they are solved and not trained. A column is taken out by making it
constant, and a common cause put in as one column more, so that all refits have one shape.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.checks.balance import COLUMNS, check_balance
from gbpl.checks.finding import CheckReport, Finding
from gbpl.checks.leak import LEAK, check_leak
from gbpl.checks.placebo import check_placebo
from gbpl.checks.refits import COMMON_CAUSE, SEEDS, SUBSETS, Change, on_columns, on_noise, on_stability
from gbpl.estimators.training import Training
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.pseudo_outcomes import ipw
from gbpl.fitting.newton import is_solved
from gbpl.path.held_out import hold_out
from gbpl.path.path import PathFit, fit_paths
from gbpl.path.plan import PathProblem, PathSettings, Table
from gbpl.report.numbers import percent
from gbpl.runtime.progress import Progress
from gbpl.runtime.warn import collected
from gbpl.trees.forest import ForestFeatures
from gbpl.value.estimate import Value, mean_value
from gbpl.value.evaluate import one_hot_rule

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["check_training"]

MOST_ROWS = 6_000  # of the refits
MOST_COLUMNS = 20  # left out one by one
NOISE_DRAWS, CAUSES, SEEDS_TRIED, SUBSETS_TRIED = 6, 2, 2, 3
TREES = 20  # of the forests that are refitted
KEPT_SHARE = 0.8
AT_ONCE = 8  # refits in one stack, after which progress is shown


def check_training(
    training: Training, names: Sequence[str], *, construction: str, seed: int = 0, progress: bool | None = None
) -> CheckReport:
    """Run all refuters; `names` has one name per feature, the same for features that are left out together."""
    started = time.perf_counter()
    refits = _Refits(training, construction, seed)
    groups = refits.columns(names)
    bar = Progress("checking", 3 + refits.count(len(groups)), show=progress)
    log = training.nuisances
    tests = 1 if log is None else 2 if log.estimated else 3  # noise, and balance of propensities and columns
    data = training.feedback if log is None else log.feedback
    named = [*names, *(f"control {j}" for j in range(0 if log is None else log.feedback.context.shape[1] - len(names)))]
    findings: list[Finding] = []
    try:
        if log is not None:
            bar.update(0, "balance")
            findings += check_balance(
                log.feedback, log.propensity, named, estimated=log.estimated, tests=tests, seed=seed
            )
        bar.update(1, "leaks")
        findings.append(check_leak(data, named, seed=seed))
        bar.update(2, "placebo")
        estimated = log is not None and log.estimated
        findings.append(check_placebo(data, None if log is None else log.propensity, estimated=estimated, seed=seed))
        with collected([]):  # refits that warn are no news
            findings += refits.findings(groups, findings, tests, lambda done: bar.update(3 + done, "refits"))
    finally:
        bar.close()
    return CheckReport(tuple(findings), time.perf_counter() - started)


@dataclass(frozen=True, slots=True, eq=False)
class _Refits:
    """The entry that is refitted: its settings, and rows, folds and tables of the fit or a sample of them."""

    training: Training
    construction: str
    seed: int

    def count(self, columns: int) -> int:
        return 1 + SEEDS_TRIED + CAUSES + SUBSETS_TRIED + columns + NOISE_DRAWS

    def columns(self, names: Sequence[str]) -> dict[str, list[int]]:
        """Features by name, those that go with the decisions most first where there are too many; none if only one."""
        groups: dict[str, list[int]] = {}
        for place, name in enumerate(names):
            groups.setdefault(name, []).append(place)
        if len(groups) < 2:
            return {}
        if len(groups) <= MOST_COLUMNS:
            return groups
        policy = self.training.fit.deviation
        assert policy is not None
        both = np.corrcoef(self.training.fit.x.T, policy.T)[: len(names), len(names) :]
        size = np.nan_to_num(np.abs(both)).max(axis=1)
        order = sorted(groups, key=lambda name: -max(size[j] for j in groups[name]))
        return {name: groups[name] for name in order[:MOST_COLUMNS]}

    def findings(
        self, groups: dict[str, list[int]], before: Sequence[Finding], tests: int, report: Callable[[int], None]
    ) -> list[Finding]:
        """All refits, and what they say; `before` are the findings that need none."""
        rng = np.random.default_rng([self.seed, 31])
        base = self._problem(rng)
        n = len(base.feedback)
        seeds = [replace(base, settings=replace(base.settings, seed=base.settings.seed + 1 + i)) for i in range(2)]
        causes = [_with_x(base, _changed(base.feedback.x, [-1], rng.standard_normal(n))) for _ in range(CAUSES)]
        picked = [np.sort(rng.permutation(n)[: round(KEPT_SHARE * n)]) for _ in range(SUBSETS_TRIED)]
        fewer = [_taken(base, rows) for rows in picked]
        without = [_with_x(base, _changed(base.feedback.x, places, 0.0)) for places in groups.values()]
        noise = [self._noise(base, rng) for _ in range(NOISE_DRAWS)]
        solved = base.settings.solved  # what is solved does not stop on its fold, and is held out as it is
        fits = _fitted([base, *seeds, *causes, *fewer, *without, *(noise if solved else ())], report)
        policies = iter([_decided(fit) for fit in fits])
        own = next(policies)
        rows = np.arange(n)
        value = _value(own, base.feedback)

        def changes(count: int, subsets: Sequence[Int[np.ndarray, " row"]] | None = None) -> list[Change]:
            taken = subsets or [rows] * count
            return [_change(own[some], next(policies), base.feedback.take(some)) for some in taken]

        count = own.shape[1]
        stable = [
            on_stability(SEEDS, "With another seed", value, changes(SEEDS_TRIED), count),
            on_stability(COMMON_CAUSE, "With a column of random numbers added", value, changes(CAUSES), count),
            on_stability(
                SUBSETS, f"With {percent(KEPT_SHARE)} of the rows", value, changes(SUBSETS_TRIED, picked), count
            ),
        ]
        left = changes(len(without))
        report(len(fits))
        on_held_out = list(policies) if solved else [one_hot_rule(held.deviation) for held in hold_out(noise)]
        gains = [_gain_over_chance(table, one.feedback) for table, one in zip(on_held_out, noise, strict=True)]
        suspects = {str(one.details["column"]) for one in before if one.name == LEAK and one.verdict != "passed"}
        suspects |= {c for one in before if one.name == COLUMNS for c in one.details.get("columns", ())}
        findings = [on_noise(gains, tests), *stable]
        return [*findings, on_columns(list(groups), left, value, suspects)] if groups else findings

    def _entry(self) -> tuple[PathSettings, float]:
        """Settings of the entry with the largest weight, and its share of the doubly robust correction."""
        fit = self.training.fit
        model = {member.entry: member.model or 0 for member in fit.every}
        entry = max(model, key=lambda i: fit.path.weight[i])
        chosen = fit.settings.models[model[entry]]
        surrogate = fit.settings.surrogate
        if isinstance(chosen, ForestFeatures):
            chosen = replace(chosen, trees=min(chosen.trees, TREES))
        with suppress(ValueError):  # of a surrogate that cannot do without squashing
            plain = replace(surrogate, squash=False)
            surrogate = plain if is_solved(plain, chosen) else surrogate  # at once, where training takes minutes
        settings = replace(
            fit.settings, model=chosen, surrogate=surrogate, beside=(), optional=(),
            zetas=[float(fit.path.zeta[entry])], progress=False,
        )  # fmt: skip
        return settings, float(fit.path.correction[entry])

    def _problem(self, rng: np.random.Generator) -> PathProblem:
        """The entry on the rows of the fit, or a sample of them, with one constant column more."""
        training = self.training
        settings, correction = self._entry()
        folds = [fold for _, fold in sorted({m.fold or 0: m.validation for m in training.fit.every}.items())]
        log = training.nuisances
        if log is None:
            tables = [training.feedback.outcomes]
        elif log.fold_means is None:
            tables = [log.pseudo_outcomes(self.construction, correction=correction)]
        else:
            tables = [
                log.pseudo_outcomes(self.construction, correction=correction, fold=fold)
                for fold in range(len(log.fold_means))
            ]
        x = np.hstack([training.feedback.x, np.zeros((len(training.feedback), 1))])
        scale = replace(training.feedback, outcomes=tables[0]).scale
        whole = PathProblem(
            replace(training.feedback, x=x, source=None), [Table(tables, scale, correction)], folds, settings
        )
        if len(x) <= MOST_ROWS:
            return whole
        return _taken(whole, np.sort(rng.permutation(len(x))[:MOST_ROWS]))

    def _noise(self, base: PathProblem, rng: np.random.Generator) -> PathProblem:
        """Outcomes drawn from those of all rows, whatever their features and actions: no policy gains anything.

        With logged feedback scores are centred inverse propensity ones, which need no model.
        """
        log, n = self.training.nuisances, len(base.feedback)
        if log is None:
            outcomes = base.feedback.outcomes[rng.integers(n, size=n)] - base.feedback.outcomes.mean(axis=0)
        else:
            drawn = log.feedback.outcome[rng.integers(len(log.feedback), size=n)]
            rows = rng.permutation(len(log.feedback))[:n] if n < len(log.feedback) else np.arange(n)
            count = len(log.feedback.actions)
            centre = float(log.feedback.outcome.mean())
            outcomes = ipw(drawn, log.feedback.action[rows], log.logged_propensity[rows], count, center=centre)
        feedback = replace(base.feedback, outcomes=outcomes)
        return replace(base, feedback=feedback, tables=[Table([outcomes], feedback.scale)])


# -- changed problems -------------------------------------------------------------------------------------------------


def _changed(x: Float[np.ndarray, "row feature"], places: Sequence[int], to: Any) -> Float[np.ndarray, "row feature"]:
    made = x.copy()
    for place in places:
        made[:, place] = to
    return made


def _with_x(problem: PathProblem, x: Float[np.ndarray, "row feature"]) -> PathProblem:
    return replace(problem, feedback=replace(problem.feedback, x=x))


def _taken(problem: PathProblem, rows: Int[np.ndarray, " row"]) -> PathProblem:
    """Some of the rows, each in the fold it was in."""
    place = np.full(len(problem.feedback), -1)
    place[rows] = np.arange(len(rows))
    folds = [place[fold][place[fold] >= 0].astype(np.int32) for fold in problem.folds]
    tables = [replace(table, outcomes=[part[rows] for part in table.outcomes]) for table in problem.tables]
    return replace(problem, feedback=problem.feedback.take(rows), tables=tables, folds=folds)


def _fitted(problems: Sequence[PathProblem], report: Callable[[int], None]) -> list[PathFit]:
    fits: list[PathFit] = []
    for start in range(0, len(problems), AT_ONCE):
        report(start)
        fits += fit_paths(problems[start : start + AT_ONCE])
    return fits


# -- what came of them ------------------------------------------------------------------------------------------------


def _decided(fit: PathFit) -> Float[np.ndarray, "row action"]:
    """The action of each row, by members that did not train on it."""
    policy = fit.out_of_fold
    assert policy is not None
    return one_hot_rule(policy)


def _value(table: Float[np.ndarray, "row action"], feedback: FullFeedback) -> Value:
    return mean_value(table, feedback.outcomes, weights=feedback.weights, groups=feedback.groups)


def _change(
    before: Float[np.ndarray, "row action"], after: Float[np.ndarray, "row action"], feedback: FullFeedback
) -> Change:
    share = float(np.mean(np.any(before != after, axis=1)))
    return Change(share, _value(after, feedback) - _value(before, feedback))


def _gain_over_chance(decided: Float[np.ndarray, "row action"], feedback: FullFeedback) -> float:
    """Value of the policy on rows that nothing saw, less that of choosing at random."""
    return (_value(decided, feedback) - _value(np.full_like(decided, 1.0 / decided.shape[1]), feedback)).estimate
