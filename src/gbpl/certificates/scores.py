"""What a row says of each action: scores with a known lower end whose mean is at most that of the outcomes (section 8).

With a log, the score of action a is b_a + 1[A = a] (Y - b_a) / max(e_a, smallest_a), where

    b_a(x) = low + share (m_a(x) - low) if e_a(x) >= smallest_a, else low,

and m is a model of the outcomes that has not seen the row. A `share` of zero is inverse propensity weighting, of one
doubly robust. Where the weight is not clipped its mean given x is that of the outcome, whatever the model; where it is,
b_a = low, and clipping can only lower a score. `low`, `smallest` and the ends of m are fixed before the rows
(`Limits`), and with them the lowest score. Turned round (`reflected`), the same bounds outcomes from above.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbpl.feedback.pseudo_outcomes import of_logged_action
from gbpl.tables.frames import TableError
from gbpl.value.evaluate import LOGGING

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    Table = Float[np.ndarray, "row action"]

__all__ = ["Evidence", "Limits", "Scored", "check_within", "scored", "scores"]


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Rows that value a policy: a table of outcomes, or the outcome of the `action` taken and its propensity.

    `propensity` has one column per action, or one number per row; `expected` is what a model that has not seen the row
    expects of each action; `cost` is taken off the outcomes.
    """

    outcome: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"]
    action: Int[np.ndarray, " row"] | None = None
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"] | None = None
    expected: Float[np.ndarray, "row action"] | None = None
    cost: Float[np.ndarray, "row action"] | None = None
    weights: Float[np.ndarray, " row"] | None = None
    groups: Int[np.ndarray, " row"] | None = None

    def __len__(self) -> int:
        return len(self.outcome)

    @property
    def taken(self) -> Float[np.ndarray, " row"]:
        """Propensity of the action taken."""
        assert self.propensity is not None
        assert self.action is not None
        return self.propensity if self.propensity.ndim == 1 else of_logged_action(self.propensity, self.action)

    @property
    def modelled(self) -> bool:
        """Whether a model can take part: it needs the propensity of every action."""
        return self.expected is not None and self.propensity is not None and self.propensity.ndim == 2

    def reflected(self) -> Evidence:
        """Outcomes, models and costs with the other sign."""
        return replace(
            self, outcome=-self.outcome, expected=None if self.expected is None else -self.expected,
            cost=None if self.cost is None else -self.cost,
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Limits:
    """Fixed before the rows: ends of outcomes, of costs and of what a model may expect; the smallest propensity used.

    `high` may be infinite: a lower bound of a value does not need it.
    """

    low: float
    high: float
    smallest: Float[np.ndarray, " action"]
    least: Float[np.ndarray, " action"]
    most: Float[np.ndarray, " action"]
    cheapest: float = 0.0
    dearest: float = 0.0

    @classmethod
    def of(cls, outcome_range: tuple[float, float], evidence: Evidence, count: int, *, clip: float) -> Limits:
        """From the rows that were learned from; `clip` is the smallest propensity that is used, if that is larger."""
        low, high = outcome_range
        smallest, least, most = np.ones(count), np.full(count, low), np.full(count, low)
        if evidence.action is not None:
            assert evidence.propensity is not None
            each = evidence.propensity.min(axis=0) if evidence.propensity.ndim == 2 else evidence.propensity.min()
            smallest = np.maximum(np.broadcast_to(each, count), clip)
        if evidence.expected is not None:
            inside = np.clip(evidence.expected, low, high)
            least, most = inside.min(axis=0), inside.max(axis=0)
        cost = evidence.cost
        ends = (0.0, 0.0) if cost is None else (float(cost.min()), float(cost.max()))
        return cls(low, high, smallest, least, most, *ends)

    def with_costs(self, cost: Float[np.ndarray, "row action"] | None) -> Limits:
        """Wide enough for these costs too."""
        if cost is None:
            return self
        return replace(
            self, cheapest=min(self.cheapest, float(cost.min())), dearest=max(self.dearest, float(cost.max()))
        )

    def reflected(self) -> Limits:
        """The limits of reflected evidence."""
        return replace(
            self, low=-self.high, high=-self.low, least=-self.most, most=-self.least, cheapest=-self.dearest,
            dearest=-self.cheapest,
        )  # fmt: skip

    def lowest(self, share: float) -> Float[np.ndarray, " action"]:
        """The lowest score of each action."""
        return self.low - share * (self.most - self.low) * (1.0 / self.smallest - 1.0)

    @property
    def highest(self) -> Float[np.ndarray, " action"]:
        """The highest score of each action."""
        return self.low + (self.high - self.low) / self.smallest


def scores(evidence: Evidence, limits: Limits, share: float) -> Table:
    """One score per row and action, before costs."""
    if evidence.action is None:
        return evidence.outcome
    rows, count = np.arange(len(evidence)), len(limits.smallest)
    base = np.full((len(evidence), count), limits.low)
    if share > 0.0 and evidence.modelled:  # without a model: inverse propensities alone
        assert evidence.expected is not None
        assert evidence.propensity is not None
        model = np.clip(evidence.expected, limits.least, limits.most)
        trusted = evidence.propensity >= limits.smallest * (1.0 - 1e-9)
        base = np.where(trusted, limits.low + share * (model - limits.low), limits.low)
    mine = base[rows, evidence.action]
    weight = 1.0 / np.maximum(evidence.taken, limits.smallest[evidence.action])
    base[rows, evidence.action] += weight * (evidence.outcome - mine)
    return base


class Scored(NamedTuple):
    """A value per row whose mean is at most that of the policy, or its gain, and the ends of such values."""

    values: Float[np.ndarray, " row"]
    low: float
    high: float


def scored(
    evidence: Evidence, limits: Limits, policy: Table, other: Table | str | None = None, share: float = 0.0
) -> Scored | None:
    """The values of a policy, or of its gain over another one or over the logging policy; None for no known lower end.

    A gain takes what speaks for the policy from below and what speaks for the other from above. Only the action taken
    has more in its score than b, so the lowest gain is that of one such score.
    """
    mine, paid = scores(evidence, limits, share), evidence.cost
    spent = np.zeros(len(evidence)) if paid is None else np.sum(policy * paid, axis=1)
    bottom, top = limits.lowest(share), limits.highest
    if other is None:
        net = np.sum(policy * mine, axis=1) - spent
        return Scored(net, float(bottom.min()) - limits.dearest, float(top.max()) - limits.cheapest)
    if math.isinf(limits.high) or math.isinf(limits.low):
        return None
    apart = limits.dearest - limits.cheapest
    if isinstance(other, str):
        assert other == LOGGING
        assert evidence.action is not None
        saved = 0.0 if paid is None else paid[np.arange(len(evidence)), evidence.action]
        net = np.sum(policy * mine, axis=1) - evidence.outcome - spent + saved
        least = min(float(bottom.min()) - limits.low, limits.low - limits.high)
        return Scored(net, least - apart, float(top.max()) - limits.low + apart)
    back, ends = evidence.reflected(), limits.reflected()
    theirs, change = scores(back, ends, share), policy - other
    net = np.sum(np.maximum(change, 0.0) * mine + np.maximum(-change, 0.0) * theirs, axis=1)
    net -= 0.0 if paid is None else np.sum(change * paid, axis=1)
    least = min(float(bottom.min()) - limits.high, limits.low + float(ends.lowest(share).min()), 0.0)
    most = max(float(top.max()) - limits.low, limits.high + float(ends.highest.max()), 0.0)
    return Scored(net, least - apart, most + apart)


# -- refusals -------------------------------------------------------------------------------------------------------


def check_within(values: Float[np.ndarray, "..."], outcome_range: tuple[float, float], what: str) -> None:
    """Refuse outcomes outside the stated range."""
    low, high = outcome_range
    wrong = (values < low) | (values > high)
    if wrong.any():
        place = tuple(int(index[0]) for index in np.nonzero(wrong))
        raise TableError(
            f"{what} is {values[place]:g} in row {place[0]} ({int(wrong.sum())} such value(s)), outside "
            f"outcome_range=({low:g}, {high:g}); state the range outcomes can take, or cut them to it first (cut from "
            "above, what is certified of the cut outcomes holds for the whole ones)"
        )
