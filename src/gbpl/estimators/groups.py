"""Who gets what, by group, on the rows of a fit (`value.by_group`), and what a bound between groups costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.estimators.training import LEARNED, Training
from gbpl.tables.frames import column as column_of
from gbpl.tables.frames import require_columns
from gbpl.tables.parts import Parts
from gbpl.value.by_group import GroupTable, group_table
from gbpl.value.dependence import fold_dependence
from gbpl.value.estimate import Value
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["price_of", "training_table"]


def training_table(
    training: Training,
    column: Any,
    *,
    name: str,
    names: Sequence[str],
    policy: Any,
    given: Any,
    default: Any,
    estimator: str,
    smallest: int,
) -> GroupTable:
    """The groups of the rows of a fit under a policy made of what is held out; shares are of the actions `given`."""
    evaluator, rows = training.evaluator(estimator), len(training.feedback)
    if isinstance(column, str):
        require_columns([column], [str(one) for one in names], "the fit")
        name, column = column, training.feedback.x[:, [str(one) for one in names].index(column)]
    values = column_of({name: column}, name)
    if len(values) != rows:
        raise ValueError(f"column must have one value for each of the {rows} rows of the fit, got {len(values)}")
    labels = evaluator.actions.tolist()
    if default is not None and default not in labels:
        raise ValueError(f"default must be one of the actions {labels}, got {default!r}")
    rule, number = "deterministic", 0 if default is None else labels.index(default)
    table = evaluator.table(training.untouched if policy is None else policy, rule)
    value = training.value(table, estimator=estimator, rule=rule)
    parts = Parts.of(values, smallest)
    return group_table(
        name, parts.names, parts.place(values), value=value, usual=evaluator.value(labels[number]),
        given=np.eye(len(labels))[training.decided] if given is None else evaluator.table(given, rule),
        actions=labels, default=number, more=value.influence - evaluator.value_of(table).influence,
    )  # fmt: skip


def price_of(
    training: Training,
    free: Int[np.ndarray, " row"],
    decided: Int[np.ndarray, " row"],
    prices: Float[np.ndarray, "row action"],
) -> Value:
    """What prices cost: the value of held-out decisions without them less that of those at them, per row.

    `free` and `decided` are the actions, `prices` those of each row in units of held-out gains. The error counts that
    folds depend on each other, by the difference of the two rules (`value.dependence`), and what was learned from the
    same rows, as in `Training.learned`.
    """
    evaluator, held = training.evaluator("dr"), training.held_out
    count = len(evaluator.actions)
    actions = np.eye(count)
    price = evaluator.value_of(actions[free]) - evaluator.value_of(actions[decided])
    single = [evaluator.value_of(np.broadcast_to(row, (evaluator.n, count))).influence for row in actions]

    def play(scores: np.ndarray, rows: slice) -> np.ndarray:
        return actions[deterministic(scores)] - actions[deterministic(scores - prices[rows])]

    dependence = fold_dependence(held.gain, held.covariance, np.stack(single, axis=1), play)
    return replace(price, dependence=dependence, inflation=LEARNED, what="price of the bound")
