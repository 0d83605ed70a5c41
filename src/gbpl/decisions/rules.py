"""Rules that turn a posterior into actions, and what they cost (appendix: action disagreement, threshold rules).

A rule takes arrays and gives a `Decision`: a column number a row, or -1 where it hands the row to a person.
`action_probability` (p_D) holds, a row each, the share of posterior draws whose rule takes each action.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "DEFERRED", "Assessment", "Decision", "apply_costs", "assess", "capacity_rule", "defer_rule", "disagreement",
    "map_rule", "posterior_mean_rule", "threshold_rule",
]  # fmt: skip

DEFERRED = -1
ROUNDING = 1e-6  # probabilities are counts over draws, often in float32: 0.8 there is above 1 - 0.2 here
ASSUMED = {
    "best": "deferred rows get their best action in the given outcomes: an upper bound on what a person can do",
    "reference": "deferred rows get the reference rule's action",
}


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """One action a row (-1: handed to a person), and what the rule knew of the row.

    `probability` is that of the action taken, in the table the rule was given; `disagreement` is u_D;
    `expected_gain` is the posterior expected net gain of the action taken over the default one; `action_share` is,
    under limited capacity, the share of draws that would give the row each action if each draw ruled alone, and
    `inclusion` the share that would give it any other than the default one. None where a rule has no such number.
    """

    action: Int[np.ndarray, " row"]
    probability: Float[np.ndarray, " row"] | None = None
    disagreement: Float[np.ndarray, " row"] | None = None
    expected_gain: Float[np.ndarray, " row"] | None = None
    inclusion: Float[np.ndarray, " row"] | None = None
    action_share: Float[np.ndarray, "row action"] | None = None

    @property
    def deferred(self) -> np.ndarray:
        """True where the row is handed to a person."""
        return self.action == DEFERRED

    def to_dict(self) -> dict[str, np.ndarray]:
        """Columns by name, as `pandas.DataFrame` or `polars.DataFrame` take them; only those that are known."""
        columns = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "action_share"}
        return {name: column for name, column in columns.items() if column is not None}


@dataclass(frozen=True, slots=True)
class Assessment:
    """What a rule is worth beside a reference rule, on one table of outcomes.

    `difference` is welfare less the reference's (below zero: the rule's price), `difference_se` its standard error
    over rows; `change_rate` is the share of rows given another action than the reference's, `deferred_share` the
    share handed to a person (not counted as changed); `uncertain_rate` the share in the uncertain region;
    `assumed` says what the welfare takes deferred rows to be worth.
    """

    welfare: float
    reference_welfare: float
    difference: float
    difference_se: float
    change_rate: float
    deferred_share: float
    uncertain_rate: float | None
    assumed: str


def _probabilities(values: Float[np.ndarray, "row action"], name: str) -> Float[np.ndarray, "row action"]:
    table = np.asarray(values, np.float64)
    if table.ndim != 2 or table.shape[1] < 2:
        raise ValueError(
            f"{name} must be (row, action) with two actions or more, got shape {table.shape}; "
            "with two actions give np.column_stack([1 - p, p])"
        )
    if not (np.all(table >= -1e-4) and np.all(np.abs(table.sum(axis=1) - 1.0) <= 1e-4)):  # false for NaN too
        raise ValueError(f"each row of {name} must be >= 0 and sum to 1; divide the rows by their sums")
    return table


def _column(default: int, count: int) -> int:
    if isinstance(default, bool) or not isinstance(default, numbers.Integral) or not 0 <= default < count:
        raise ValueError(f"default must be a column number from 0 to {count - 1}, got {default!r}")
    return int(default)


def _alpha(alpha: float) -> float:
    if not 0.0 < alpha <= 0.5:
        raise ValueError(f"alpha must be in (0, 0.5], got {alpha}; try 0.05, or make the other action the default")
    return float(alpha)


def _actions(values: Decision | Int[np.ndarray, " row"], name: str) -> Int[np.ndarray, " row"]:
    action = np.asarray(values.action if isinstance(values, Decision) else values)
    if action.ndim != 1 or not np.issubdtype(action.dtype, np.integer):
        raise ValueError(f"{name} must be one whole column number a row, got {action.dtype} of shape {action.shape}")
    return action


def _take(table: Float[np.ndarray, "row action"], action: Int[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
    return np.take_along_axis(table, action[:, None], axis=1)[:, 0]


def _leaving(probability: Float[np.ndarray, "row action"], default: int) -> Float[np.ndarray, " row"]:
    """1 - p_default, as a sum over the other actions: with two of them exactly the other's probability."""
    return np.delete(probability, default, axis=1).sum(axis=1)


def map_rule(policy: Float[np.ndarray, "row action"]) -> Decision:
    """The most probable action of the MAP policy; with two actions 1[f >= 0].

    >>> map_rule(np.array([[0.9, 0.1], [0.5, 0.5]])).action.tolist()
    [0, 1]
    """
    table = _probabilities(policy, "policy")
    action = deterministic(table)
    return Decision(action, probability=_take(table, action))


def posterior_mean_rule(mean_policy: Float[np.ndarray, "row action"]) -> Decision:
    """The most probable action of the policy averaged over draws, which maximises posterior expected scores."""
    table = _probabilities(mean_policy, "mean_policy")
    action = deterministic(table)
    return Decision(action, probability=_take(table, action))


def disagreement(action_probability: Float[np.ndarray, "row action"]) -> Float[np.ndarray, " row"]:
    """u = K / (K - 1) (1 - max_a p_a): 0 where all draws agree, 1 where they are split evenly; K = 2: 2 min(p, 1 - p).

    >>> disagreement(np.array([[0.75, 0.25], [0.0, 1.0]])).tolist()
    [0.5, 0.0]
    """
    table = _probabilities(action_probability, "action_probability")
    count = table.shape[1]
    return np.clip(count / (count - 1.0) * (1.0 - table.max(axis=1)), 0.0, 1.0)


def threshold_rule(action_probability: Float[np.ndarray, "row action"], *, alpha: float, default: int = 0) -> Decision:
    """Leaves the default action only where draws leave it with probability 1 - p_default > 1 - alpha.

    It then takes the most probable other action. With two actions and default 0 this is the paper's rule: action 1
    when p_D > 1 - alpha, else action 0. With more, draws may agree that the default is beaten and not by which
    action: read `disagreement` beside it.

    >>> threshold_rule(np.array([[0.02, 0.98], [0.4, 0.6]]), alpha=0.05).action.tolist()
    [1, 0]
    """
    table, alpha = _probabilities(action_probability, "action_probability"), _alpha(alpha)
    default = _column(default, table.shape[1])
    others = table.copy()
    others[:, default] = -np.inf
    leaves = _leaving(table, default) > 1.0 - alpha + ROUNDING
    action = np.where(leaves, np.argmax(others, axis=1), default)
    return Decision(action, probability=_take(table, action), disagreement=disagreement(table))


def defer_rule(
    action: Decision | Int[np.ndarray, " row"], disagreement: Float[np.ndarray, " row"], *, level: float
) -> Decision:
    """Hands rows with disagreement above `level` to a person, and leaves the others as they are.

    >>> defer_rule(np.array([1, 0]), np.array([0.1, 0.8]), level=0.5).action.tolist()
    [1, -1]
    """
    if not 0.0 <= level <= 1.0:
        raise ValueError(f"level must be in [0, 1], got {level}; try 0.5 (two actions: 0.25 <= p <= 0.75 is deferred)")
    before, split = _actions(action, "action"), np.asarray(disagreement, np.float64)
    if split.shape != before.shape or not np.all(np.isfinite(split)):
        raise ValueError(f"disagreement must be one finite number a row of action, got shape {split.shape}")
    decision = action if isinstance(action, Decision) else Decision(before)
    return replace(decision, action=np.where(split > level, DEFERRED, before), disagreement=split)


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
            f"costs must be one finite number an action, got {np.asarray(costs).tolist()} for outcomes of shape "
            f"{table.shape}; an action without a cost has 0"
        )
    return table - cost


def _places(capacity: Mapping[int, float], rows: int, count: int, default: int) -> dict[int, int]:
    """Capacity of each limited action as a number of rows; a share is rounded down."""
    places: dict[int, int] = {}
    for action, limit in capacity.items():
        if _column(action, count) == default:
            raise ValueError(f"capacity names the default action {default}, which takes whoever is left; leave it out")
        if isinstance(limit, numbers.Integral) and not isinstance(limit, bool) and limit >= 0:
            places[int(action)] = min(int(limit), rows)
        elif isinstance(limit, numbers.Real) and not isinstance(limit, numbers.Integral) and 0.0 < limit <= 1.0:
            places[int(action)] = math.floor(limit * rows + 1e-9)  # 0.29 * 100 is a little below 29
        else:
            raise ValueError(
                f"capacity of action {action} must be a share in (0, 1] or a whole number >= 0, got {limit!r}; "
                "1.0 is every row, 1 is one row"
            )
    return places


def _assign(gain: Float[np.ndarray, "row action"], places: Mapping[int, int], default: int) -> Int[np.ndarray, " row"]:
    """Best (row, action) pairs first, while there are places; ties go to the earlier row, then the lower action.

    A round gives rows, in order of their best open gain, that action until one is full; the order of all pairs
    gives the same, since a row's first open pair is its best open one. There is a round for each limited action.
    """
    rows = np.arange(len(gain))
    free = [a for a in range(gain.shape[1]) if a != default and a not in places]
    unlimited = np.array([default, *free])  # the default first: it keeps rows that gain nothing
    action = unlimited[np.argmax(gain[:, unlimited], axis=1)]
    over = np.full(gain.shape, -np.inf)  # gain over what the row has without a limited place
    limited = list(places)
    over[:, limited] = gain[:, limited] - gain[rows, action][:, None]
    left = {a: n for a, n in places.items() if n > 0}
    over[:, [a for a in places if a not in left]] = -np.inf
    while left:
        best = np.argmax(over, axis=1)
        value = over[rows, best]
        order = np.argsort(-value, kind="stable")
        order = order[: np.count_nonzero(value > 0.0)]
        chosen = best[order]
        full = {a: np.flatnonzero(chosen == a)[n - 1] for a, n in left.items() if np.count_nonzero(chosen == a) >= n}
        end = min(full.values()) + 1 if full else len(order)
        given, chosen = order[:end], chosen[:end]
        action[given] = chosen
        over[given] = -np.inf
        if not full:
            break
        left = {a: n - int(np.count_nonzero(chosen == a)) for a, n in left.items()}
        over[:, [a for a, n in left.items() if n == 0]] = -np.inf
        left = {a: n for a, n in left.items() if n > 0}
    return action


def capacity_rule(
    gains: Float[np.ndarray, "draw row action"] | Float[np.ndarray, "row action"],
    *,
    capacity: Mapping[int, float],
    default: int = 0,
    costs: Sequence[float] | Float[np.ndarray, " action"] | None = None,
) -> Decision:
    """Who gets an action that only so many rows may get: the rows with most to gain by it.

    `gains` are values of the actions, posterior draws or their mean; only differences from the default action's
    column count. `capacity` limits actions by their column: a float in (0, 1] is a share of the rows (rounded
    down), a whole number is that many rows; actions not named are unlimited. `costs` are taken off per action.

    Each row falls back on its best unlimited action (the default one, if all others are limited). Limited places
    go greedily to the (row, action) pairs with the largest positive expected gain over that. For one limited
    action this maximises total expected gain; for several it is greedy and has at least half of the largest gain
    over the fallbacks. With draws, `action_share` and `inclusion` tell how sure each row's place is: the same rule
    applied to every draw on its own.

    Bounded scores are no gains where they saturate: zeta f is the gap cut off at -zeta and zeta, and rows at the
    bound are ranked by rounding, then by row number.

    >>> capacity_rule(np.array([[0.0, 3.0], [0.0, 5.0], [0.0, -1.0]]), capacity={1: 1}).action.tolist()
    [0, 1, 0]
    """
    table = np.asarray(gains, np.float64)
    if table.ndim not in (2, 3) or table.shape[-1] < 2 or 0 in table.shape:
        raise ValueError(
            f"gains must be (draw, row, action) or (row, action), with two actions or more, got shape {table.shape}"
        )
    if not np.all(np.isfinite(table)):
        raise ValueError("gains must be finite; drop rows with missing values")
    rows, count = table.shape[-2:]
    default = _column(default, count)
    places = _places(capacity, rows, count, default)
    table = table if costs is None else apply_costs(table, costs)
    table = table - table[..., default : default + 1]
    expected = table if table.ndim == 2 else table.mean(axis=0)
    action = _assign(expected, places, default)
    gained = _take(expected, action)
    if table.ndim == 2:
        return Decision(action, expected_gain=gained)
    times = np.zeros((rows, count))
    for draw in table:
        times[np.arange(rows), _assign(draw, places, default)] += 1.0
    share = times / len(table)
    return Decision(
        action,
        probability=_take(share, action),
        disagreement=disagreement(share),
        expected_gain=gained,
        inclusion=_leaving(share, default),
        action_share=share,
    )


def _deferred_values(
    value: Float[np.ndarray, " row"] | Literal["best", "reference"] | None,
    outcomes: Float[np.ndarray, "row action"],
    reference: Int[np.ndarray, " row"],
) -> tuple[Float[np.ndarray, " row"], str]:
    if value is None:
        raise ValueError(
            "deferred_value is needed for rows handed to a person: give 'reference', 'best', or one number a row"
        )
    if isinstance(value, str):
        if value not in ASSUMED:
            raise ValueError(f"deferred_value must be 'best', 'reference' or one number a row, got {value!r}")
        return (outcomes.max(axis=1) if value == "best" else _take(outcomes, reference)), ASSUMED[value]
    given = np.asarray(value, np.float64)
    if given.shape not in ((), (len(outcomes),)):
        raise ValueError(f"deferred_value must be one number a row ({len(outcomes)}), got shape {given.shape}")
    return np.broadcast_to(given, len(outcomes)), "deferred rows are worth the values given for them"


def _uncertain(
    action_probability: Float[np.ndarray, "row action"] | None, alpha: float | None, default: int, rows: int
) -> np.ndarray | None:
    """True where alpha <= 1 - p_default <= 1 - alpha; with two actions alpha <= p_D <= 1 - alpha."""
    if (action_probability is None) != (alpha is None):
        raise ValueError("the uncertain region needs both action_probability and alpha; give both or neither")
    if action_probability is None or alpha is None:
        return None
    table = _probabilities(action_probability, "action_probability")
    if len(table) != rows:
        raise ValueError(f"action_probability has {len(table)} rows, outcomes {rows}; give the same rows")
    leaving, alpha = _leaving(table, _column(default, table.shape[1])), _alpha(alpha)
    return (leaving >= alpha - ROUNDING) & (leaving <= 1.0 - alpha + ROUNDING)


def assess(
    decision: Decision | Int[np.ndarray, " row"],
    outcomes: Float[np.ndarray, "row action"],
    *,
    reference: Decision | Int[np.ndarray, " row"],
    action_probability: Float[np.ndarray, "row action"] | None = None,
    alpha: float | None = None,
    default: int = 0,
    deferred_value: Float[np.ndarray, " row"] | Literal["best", "reference"] | None = None,
    sample_weight: Float[np.ndarray, " row"] | None = None,
) -> Assessment:
    """Welfare of a rule and its price against a reference rule, on outcomes, pseudo-outcomes or known means.

    `deferred_value` says what rows handed to a person are worth: one number a row, 'reference' (the person does
    what the reference does) or 'best' (the best action in hindsight). Outcomes should already be net of costs.

    >>> assess(np.array([0, 0]), np.array([[0.0, 1.0], [2.0, 1.0]]), reference=np.array([1, 0])).difference
    -0.5
    """
    table = np.asarray(outcomes, np.float64)
    if table.ndim != 2 or 0 in table.shape or not np.all(np.isfinite(table)):
        raise ValueError(f"outcomes must be a finite (row, action) table, got shape {table.shape}")
    action, other = _actions(decision, "decision"), _actions(reference, "reference")
    for name, values, lowest in (("decision", action, DEFERRED), ("reference", other, 0)):
        if len(values) != len(table) or values.min() < lowest or values.max() >= table.shape[1]:
            raise ValueError(
                f"{name} must have {len(table)} column numbers from {lowest} to {table.shape[1] - 1}, got "
                f"{len(values)} numbers up to {max(values, default=None)}; they speak of the rows of outcomes"
            )
    away, assumed = action == DEFERRED, "no row is deferred"
    value = _take(table, np.where(away, 0, action))
    if np.any(away):
        person, assumed = _deferred_values(deferred_value, table, other)
        value = np.where(away, person, value)
    uncertain = _uncertain(action_probability, alpha, default, len(table))
    weight = np.ones(len(table)) if sample_weight is None else np.asarray(sample_weight, np.float64)
    if weight.shape != (len(table),) or not np.all(weight >= 0.0) or not 0.0 < weight.sum() < np.inf:
        raise ValueError(f"sample_weight must be one number >= 0 a row and not all 0, got shape {weight.shape}")
    weight = weight / weight.sum()
    price = value - _take(table, other)
    return Assessment(
        welfare=float(value @ weight),
        reference_welfare=float(_take(table, other) @ weight),
        difference=float(price @ weight),
        difference_se=float(np.sqrt(weight**2 @ (price - price @ weight) ** 2)),
        change_rate=float(weight @ (~away & (action != other))),
        deferred_share=float(weight @ away),
        uncertain_rate=None if uncertain is None else float(weight @ uncertain),
        assumed=assumed,
    )
