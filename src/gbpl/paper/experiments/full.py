"""Full feedback: GBPLNet at every zeta and the methods it is compared with, all trials of a block as one stack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import member_outputs
from gbpl.fitting.losses import GapSquare, OneOf, OutcomeSquare, RowLoss, SurrogateLoss, WeightedLogit
from gbpl.fitting.members import Member
from gbpl.fitting.stack import StackFit, StackProblem
from gbpl.paper.experiments.protocol import ZETAS, Settings, Trial, cross_validated, measures, outcome_scale, rule
from gbpl.paper.experiments.records import Record
from gbpl.surrogates import Binary, FullVector, NegativeWelfare
from gbpl.value.welfare import welfare

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["full_records", "losses_of", "member_policies_of", "scaled_tables"]


def losses_of(methods: Sequence[str], n_actions: int) -> dict[str, RowLoss]:
    """Each method's loss, by name."""
    surrogate = Binary() if n_actions == 2 else FullVector(n_actions)
    known: dict[str, RowLoss] = {
        "GBPLNet": SurrogateLoss(surrogate),
        "DirectWelfare": SurrogateLoss(NegativeWelfare(n_actions)),
        "DiffReg": GapSquare(),
        "PluginReg": OutcomeSquare(n_actions),
        "WeightedLogistic": WeightedLogit(),
    }
    return {name: known[name] for name in methods}


def scaled_tables(
    objective: OneOf, tables: Sequence[tuple[int, Float[np.ndarray, "row action"]]], scales: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """Tables of outcomes one below the other, each for the loss its code names, in units of its scale."""
    level = np.mean(tables[0][1])
    parts = [
        objective.target((outcomes - level) / scale, code)
        for (code, outcomes), scale in zip(tables, scales, strict=True)
    ]
    values, codes = zip(*parts, strict=True)
    return np.concatenate(values).astype(np.float32), np.concatenate(codes)


def member_policies_of(
    objective: OneOf, codes: Sequence[int], settings: Settings, stack: StackFit, x: Float[np.ndarray, "row feature"]
) -> list[Float[np.ndarray, "row action"]]:
    """The policy of each member on rows, by the loss its code names."""
    outputs = member_outputs(settings.network, stack.params, x)
    return [np.asarray(objective.policy(raw, code)) for raw, code in zip(outputs, codes, strict=True)]


def full_records(case: str, trials: Sequence[Trial], methods: Sequence[str], settings: Settings) -> list[Record]:
    """Lines of every method; with two actions of the deterministic rule, with more of the randomized policy."""
    count = trials[0].n_actions
    losses = losses_of(methods, count)
    objective = OneOf(tuple(losses.values()))
    problems, standardizers = [], []
    for trial in trials:
        train, stop = trial.rows
        scale = outcome_scale(trial.sample.outcomes)
        standardizer = Standardizer.fit(trial.sample.x, train)
        tables = [(code, trial.sample.outcomes) for code in range(len(losses))]
        members = [
            Member(train, stop, zeta=zeta / scale, eta=scale, seed=trial.number, table=code)
            for code, name in enumerate(losses)
            for zeta in (ZETAS if name == "GBPLNet" else (1.0,))
        ]
        target = scaled_tables(objective, tables, [scale] * len(tables))
        problems.append(StackProblem(standardizer.apply(trial.sample.x), target, members))
        standardizers.append(standardizer)
    codes = [member.table for member in problems[0].members]
    lines: list[Record] = []
    for trial, standardizer, stack in zip(trials, standardizers, settings.fit(problems, objective), strict=True):
        _, stop = trial.rows
        rows = np.concatenate([trial.sample.x[stop], trial.test.x])
        policies = member_policies_of(objective, codes, settings, stack, standardizer.apply(rows))
        if count == 2:
            policies = [rule(policy) for policy in policies]
        for code, name in enumerate(losses):
            mine = [policy for policy, own in zip(policies, codes, strict=True) if own == code]
            measured = [measures(trial, policy[len(stop) :]) for policy in mine]
            if name == "GBPLNet":
                validation_welfare = [welfare(policy[: len(stop)], trial.sample.outcomes[stop]) for policy in mine]
                lines += cross_validated(case, name, trial, validation_welfare, measured)
            else:
                lines.append(Record(case, name, "", trial.number, measured[0]))
    return lines
