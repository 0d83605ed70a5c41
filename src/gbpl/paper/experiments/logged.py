"""Logged feedback: pseudo-outcomes from two-fold cross-fitted networks, and the methods that learn from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import member_outputs
from gbpl.fitting.losses import OneOf
from gbpl.fitting.members import Member
from gbpl.fitting.stack import StackProblem
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.learners import MaskedSquare
from gbpl.nuisance.nuisances import Nuisances
from gbpl.nuisance.plan import fit_plans
from gbpl.paper.experiments.full import losses_of, member_policies_of, scaled_tables
from gbpl.paper.experiments.protocol import ZETAS, Settings, Trial, cross_validated, measures, outcome_scale, rule
from gbpl.paper.experiments.records import Record
from gbpl.value.overlap import overlap_report
from gbpl.value.welfare import welfare

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["logged_records"]

CONSTRUCTIONS = {"DR": "dr", "IPW": "ipw"}


@dataclass(frozen=True, slots=True)
class _Row:
    """Members of one method: a clip level's case, a construction, and whether it maximises pseudo-welfare directly."""

    case: str
    clip: float
    name: str
    direct: bool

    @property
    def method(self) -> str:
        return f"Direct{self.name}Welfare" if self.direct else f"GBPLNet-{self.name}"

    @property
    def zetas(self) -> tuple[float, ...]:
        """Those of its members; direct maximisation has none, and one member."""
        return (1.0,) if self.direct else ZETAS


def logged_records(
    cases: Sequence[tuple[str, float]],
    trials: Sequence[Trial],
    settings: Settings,
    *,
    direct: bool = False,
    plugin: str = "PluginReg",
    overlap: bool = False,
    cross_fitted: bool = True,
) -> list[Record]:
    """Lines of GBPLNet with both constructions, of the plug-in rule, and of direct maximisation if asked for.

    `cases` are names with the clip level of each: those of one table differ in nothing else. Selection of zeta is by
    pseudo-welfare on the rows to stop on. Without `cross_fitted` the outcome network is that of the plug-in rule.
    """
    plugged, nuisances = _plugged(trials, settings)
    if cross_fitted:
        nuisances = _nuisances(trials, settings)
    count = trials[0].n_actions
    kinds = (False, True) if direct else (False,)
    losses = losses_of(["DirectWelfare" if kind else "GBPLNet" for kind in kinds], count)
    objective = OneOf(tuple(losses.values()))
    rows = [_Row(case, clip, name, kind) for case, clip in cases for name in CONSTRUCTIONS for kind in kinds]
    problems, standardizers, scores = [], [], []
    for trial, known in zip(trials, nuisances, strict=True):
        train, stop = trial.rows
        tables = [replace(known, clip=row.clip).pseudo_outcomes(CONSTRUCTIONS[row.name]) for row in rows]
        scales = [outcome_scale(table) for table in tables]
        standardizer = Standardizer.fit(trial.sample.x, train)
        members = [
            Member(train, stop, zeta=zeta / scale, eta=scale, seed=trial.number, table=place)
            for place, (row, scale) in enumerate(zip(rows, scales, strict=True))
            for zeta in row.zetas
        ]
        coded = [(int(row.direct), table) for row, table in zip(rows, tables, strict=True)]
        target = scaled_tables(objective, coded, scales)
        problems.append(StackProblem(standardizer.apply(trial.sample.x), target, members))
        standardizers.append(standardizer)
        scores.append(tables)
    stacks = settings.fit(problems, objective)
    codes = [int(rows[member.table].direct) for member in problems[0].members]
    lines: list[Record] = []
    for number, (trial, known) in enumerate(zip(trials, nuisances, strict=True)):
        _, stop = trial.rows
        x = standardizers[number].apply(np.concatenate([trial.sample.x[stop], trial.test.x]))
        policies = member_policies_of(objective, codes, settings, stacks[number], x)
        if count == 2:
            policies = [rule(policy) for policy in policies]
        waiting = iter(policies)
        for row, table in zip(rows, scores[number], strict=True):
            mine = [next(waiting) for _ in row.zetas]
            overlap_numbers = _overlap(trial, known, row.clip, table) if overlap else {}
            measured = [measures(trial, policy[len(stop) :]) | overlap_numbers for policy in mine]
            if row.direct:
                lines.append(Record(row.case, row.method, "", trial.number, measured[0]))
            else:
                validation_welfare = [welfare(policy[: len(stop)], table[stop]) for policy in mine]
                lines += cross_validated(row.case, row.method, trial, validation_welfare, measured)
        for case, clip in cases:
            overlap_numbers = _overlap(trial, known, clip, None) if overlap else {}
            lines.append(Record(case, plugin, "", trial.number, measures(trial, plugged[number]) | overlap_numbers))
    return lines


def _log(trial: Trial) -> LoggedFeedback:
    data = trial.data()
    return LoggedFeedback.of(data["X"], data["y"], data["action"], propensity=data["propensity"])


def _nuisances(trials: Sequence[Trial], settings: Settings) -> list[Nuisances]:
    """Two-fold cross-fitted outcome networks of each trial, with a masked loss."""
    plans = []
    for trial in trials:
        cross = CrossFit(
            folds=2, committee=None, outcome_model=settings.network, seed=trial.number, fit_config=settings.config,
            device=settings.device, progress=False, clip=0.0,  # type: ignore[arg-type]
        )  # fmt: skip
        plans.append(cross.plan(_log(trial), "dr"))
    return fit_plans(plans)


def _plugged(
    trials: Sequence[Trial], settings: Settings
) -> tuple[list[Float[np.ndarray, "row action"]], list[Nuisances]]:
    """One masked network per trial, on the rows to train on: its rule on the test rows, and its means of the log."""
    problems, standardizers = [], []
    for trial in trials:
        data, (train, stop) = trial.data(), trial.rows
        standardizer = Standardizer.fit(data["X"], train)
        outcome = (data["y"] - data["y"].mean()) / data["y"].std()
        target = outcome.astype(np.float32), data["action"].astype(np.float32)
        member = Member(train, stop, seed=trial.number)
        problems.append(StackProblem(standardizer.apply(data["X"]), target, [member]))
        standardizers.append(standardizer)
    stacks = settings.fit(problems, MaskedSquare(trials[0].n_actions))
    policies, nuisances = [], []
    for trial, standardizer, stack in zip(trials, standardizers, stacks, strict=True):
        log, rows = _log(trial), np.concatenate([trial.sample.x, trial.test.x])
        outputs = member_outputs(settings.network, stack.params, standardizer.apply(rows))[0].astype(np.float64)
        policies.append(rule(outputs[len(trial) :]))
        means = log.outcome.mean() + log.outcome.std() * outputs[: len(trial)]
        assert log.propensity is not None
        nuisances.append(Nuisances(log, log.propensity, 0.0, False, means))
    return policies, nuisances


def _overlap(
    trial: Trial, known: Nuisances, clip: float, table: Float[np.ndarray, "row action"] | None
) -> dict[str, float]:
    """Clipped fraction, effective size and tail of the pseudo-difference, of the rows to train on."""
    train, clipped = trial.rows[0], replace(known, clip=clip)
    scores = np.zeros((len(trial), trial.n_actions)) if table is None else table
    report = overlap_report(
        known.feedback.action[train], np.asarray(known.propensity)[train], clipped.logged_propensity[train],
        scores[train], actions=known.feedback.actions, clip=clip,
    )  # fmt: skip
    numbers = {"clipped_fraction": report.clipped_fraction, "ess": report.effective_size}
    if table is not None:
        numbers["q99_abs_pseudo_difference"] = report.quantile_99
        numbers["max_abs_pseudo_difference"] = float(np.max(np.ptp(table[train], axis=1)))
    return numbers
