"""Rules that turn a posterior into actions (appendix: action disagreement, threshold rules).

A rule takes arrays and gives `Decisions` by column number. `action_probability` (p_D) holds, for each row, the share of
posterior draws whose rule takes each action.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.decisions.decisions import DEFER, Decisions
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = [
    "DEFERRED", "ROUNDING", "apply_costs", "check_alpha", "check_column_number", "check_probabilities",
    "column_numbers", "defer_rule", "disagreement", "largest", "leaving_probability", "map_rule", "threshold_rule",
]  # fmt: skip

DEFERRED = -1  # in an array of column numbers: handed to a person
ROUNDING = 1e-6  # probabilities are counts over draws, often in float32: 0.8 there is above 1 - 0.2 here


def check_probabilities(values: Float[np.ndarray, "row action"], name: str) -> Float[np.ndarray, "row action"]:
    """Refuse anything but a table of probabilities."""
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(
            f"{name} must be (row, action) with two actions or more, got shape {table.shape}; "
            "with two actions give np.column_stack([1 - p, p])"
        )
    if not (np.all(table >= -1e-4) and np.all(np.abs(table.sum(axis=1) - 1.0) <= 1e-4)):  # false for NaN too
        raise ValueError(f"each row of {name} must be >= 0 and sum to 1; divide the rows by their sums")
    return table


def check_column_number(default: int, count: int) -> int:
    """Refuse anything but the column number of an action."""
    if isinstance(default, bool) or not isinstance(default, numbers.Integral) or not 0 <= default < count:
        raise ValueError(f"default must be a column number from 0 to {count - 1}, got {default!r}")
    return int(default)


def check_alpha(alpha: float) -> float:
    """Refuse a level outside (0, 0.5]."""
    if not 0.0 < alpha <= 0.5:
        raise ValueError(f"alpha must be in (0, 0.5], got {alpha}; try 0.05, or make the other action the default")
    return float(alpha)


def column_numbers(values: Decisions | Int[np.ndarray, " row"], name: str) -> Int[np.ndarray, " row"]:
    """Column numbers, `DEFERRED` for rows that are handed to a person."""
    action = np.asarray(values.action if isinstance(values, Decisions) else values)
    if action.ndim != 1 or not np.issubdtype(action.dtype, np.integer):
        raise ValueError(f"{name} must be one whole column number per row, got {action.dtype} of shape {action.shape}")
    if isinstance(values, Decisions) and values.deferred is not None:
        return np.where(values.deferred, DEFERRED, action)
    return action


def leaving_probability(probability: Float[np.ndarray, "row action"], default: int) -> Float[np.ndarray, " row"]:
    """1 - p_default, as a sum over the other actions: with two of them exactly the other's probability."""
    return np.delete(probability, default, axis=1).sum(axis=1)


def map_rule(policy: Float[np.ndarray, "row action"]) -> Decisions:
    """The most probable action of a policy, MAP or averaged over draws; with two actions 1[f >= 0].

    >>> map_rule(np.array([[0.9, 0.1], [0.5, 0.5]])).action.tolist()
    [0, 1]
    """
    table = check_probabilities(policy, "policy")
    return Decisions.of_columns(deterministic(table), table.shape[1], probability=table)


def disagreement(action_probability: Float[np.ndarray, "row action"]) -> Float[np.ndarray, " row"]:
    """u = K / (K - 1) (1 - max_a p_a): 0 where all draws agree, 1 where they are split evenly; K = 2: 2 min(p, 1 - p).

    >>> disagreement(np.array([[0.75, 0.25], [0.0, 1.0]])).tolist()
    [0.5, 0.0]
    """
    table = check_probabilities(action_probability, "action_probability")
    count = table.shape[1]
    return np.clip(count / (count - 1.0) * (1.0 - table.max(axis=1)), 0.0, 1.0)


def threshold_rule(action_probability: Float[np.ndarray, "row action"], *, alpha: float, default: int = 0) -> Decisions:
    """Leaves the default action only where draws leave it with probability 1 - p_default > 1 - alpha.

    It then takes the most probable other action. With two actions and default 0 this is the paper's rule: action 1
    when p_D > 1 - alpha, else action 0. With more, draws may agree that the default is beaten but not by which
    action: look at `disagreement` too.

    >>> threshold_rule(np.array([[0.02, 0.98], [0.4, 0.6]]), alpha=0.05).action.tolist()
    [1, 0]
    """
    table, alpha = check_probabilities(action_probability, "action_probability"), check_alpha(alpha)
    default = check_column_number(default, table.shape[1])
    others = table.copy()
    others[:, default] = -np.inf
    leaves = leaving_probability(table, default) > 1.0 - alpha + ROUNDING
    action = np.where(leaves, np.argmax(others, axis=1), default)
    return Decisions.of_columns(action, table.shape[1], draw_share=table, disagreement=disagreement(table))


def defer_rule(
    action: Decisions | Int[np.ndarray, " row"], disagreement: Float[np.ndarray, " row"], *, level: float = DEFER
) -> Decisions:
    """Hands rows with disagreement above `level` to a person; their `action` is kept.

    >>> decided = defer_rule(np.array([1, 0]), np.array([0.1, 0.9]), level=0.5)
    >>> decided.action.tolist(), decided.deferred.tolist()
    ([1, 0], [False, True])
    """
    if not 0.0 <= level <= 1.0:
        raise ValueError(
            f"level must be in [0, 1], got {level}; try {DEFER} (two actions: 0.4 <= p <= 0.6 is deferred)"
        )
    before, split = column_numbers(action, "action"), np.asarray(disagreement, np.float64)
    if split.shape != before.shape or not np.all(np.isfinite(split)):
        raise ValueError(f"disagreement must be one finite number per row of action, got shape {split.shape}")
    decided = action if isinstance(action, Decisions) else Decisions.of_columns(before, int(before.max(initial=0)) + 1)
    away = (split > level) | (before == DEFERRED)
    return replace(decided, deferred=away, disagreement=split)


def largest(values: Float[np.ndarray, " row"], count: int) -> Bool[np.ndarray, " row"]:
    """True for the `count` rows of largest value, those of equal value by their order; rows worth nothing are left out.

    >>> largest(np.array([0.2, 0.0, 0.5, 0.2]), 2).tolist()
    [True, False, True, False]
    """
    if isinstance(count, bool) or not isinstance(count, numbers.Integral) or count < 0:
        raise ValueError(f"review must be a number of rows, 0 or more, got {count!r}; try 200")
    chosen = np.zeros(len(values), bool)
    chosen[np.argsort(-values, kind="stable")[: int(count)]] = True
    return chosen & (values > 0.0)


def apply_costs(
    outcomes: Float[np.ndarray, "*batch action"], costs: Sequence[float] | Float[np.ndarray, " action"]
) -> Float[np.ndarray, "*batch action"]:
    """Outcomes net of what each action costs, in units of the outcome.

    >>> apply_costs(np.array([[1.0, 3.0]]), [0.0, 0.5]).tolist()
    [[1.0, 2.5]]
    """
    table, cost = np.asarray(outcomes, np.float64), np.asarray(costs, np.float64)
    if table.ndim == 0 or cost.shape != table.shape[-1:] or not np.all(np.isfinite(cost)):
        raise ValueError(
            f"costs must be one finite number per action, got {np.asarray(costs).tolist()} for outcomes of shape "
            f"{table.shape}; an action without a cost has 0"
        )
    return table - cost
