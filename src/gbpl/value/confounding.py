"""Hidden confounding: how values change if the log's actions depended on something that was not recorded.

The marginal sensitivity model (Tan 2006) says how far the propensity can be off: for each action a, an unobserved U
moves the odds of A = a by a factor of at most Gamma,

    1/Gamma <= odds P(A = a | x, u) / odds P(A = a | x) <= Gamma.

Those who took a have been seen. For those who did not, Y(a) has the distribution of the outcomes seen under a,
reweighted by some r(y) in [1/Gamma, Gamma] with mean 1: writing e for P(A = a | x),

    E[Y(a) | x] = e E[Y | x, a] + (1 - e) E[r Y | x, a].

The smallest E[r Y] has r = Gamma below and 1/Gamma above the quantile Q of order 1 / (1 + Gamma), because the mean of r
must be 1. So the sharp lower bound (Dorn and Guo 2022) has in place of E[r Y] the mean of

    H(Y, Q) = Q + (Y - Q)_+ / Gamma - Gamma (Q - Y)_+ ,

which is E[Y] / Gamma + (1 - 1/Gamma) CVaR, CVaR the mean below Q. Any other number q in place of Q gives a lower mean:
q + r (Y - q) >= H(Y, q) for each r allowed. A wrong quantile makes the bound wider, and never wrong. The upper bound is
minus the lower bound of -Y; its quantile is of order Gamma / (1 + Gamma).

With rho(x) = E[H(Y, q) | x, a], the doubly robust score of the bound (Dorn, Guo and Kallus 2024) is

    1[A = a] Y + 1[A != a] rho(x) + 1[A = a] (1 - e) / e (H(Y, q) - rho(x)),

right on average if either e or rho is. At Gamma = 1, H is Y and it is the doubly robust score. What is added to
that score is computed by itself here, as H - Y and its mean, so that it is exactly zero at Gamma = 1.

For two actions the bounds of both hold at once for one U, and those of values and gains are sharp. For more they are
valid: each action's is sharp by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from gbpl.value.estimate import Value

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    Table = Float[np.ndarray, "row action"]

__all__ = ["Curves", "LogBounds", "OutcomeShape", "TwoValues", "check_gamma", "excess"]


def check_gamma(gamma: Any, name: str = "gamma") -> float:
    """A finite number of at least 1."""
    number = isinstance(gamma, int | float | np.number) and not isinstance(gamma, bool)
    if not (number and 1.0 <= float(gamma) < np.inf):
        raise ValueError(
            f"{name} must be a finite number >= 1, got {gamma!r}; 1 is no hidden confounding, 1.5 lets it change the "
            "odds of an action by half"
        )
    return float(gamma)


def excess(distance: Float[np.ndarray, "..."], gamma: float, *, upper: bool) -> Float[np.ndarray, "..."]:
    """H(Y, q) - Y at the distance Y - q: zero at Gamma = 1.

    >>> excess(np.array([-1.0, 2.0]), 2.0, upper=False), excess(np.array([-1.0, 2.0]), 2.0, upper=True)
    (array([-1., -1.]), array([0.5, 2. ]))
    """
    inner, outer = 1.0 - 1.0 / gamma, gamma - 1.0 / gamma
    tail = np.maximum(distance, 0.0) if upper else -np.maximum(-distance, 0.0)
    return outer * tail - inner * distance


class OutcomeShape(Protocol):
    """What is known of the distribution of the outcome, given the features and the action."""

    def worst(self, gamma: float, *, upper: bool) -> tuple[Table, Table]:
        """The number q of each row and action, and the mean of H(Y, q) - Y there."""


@dataclass(frozen=True, slots=True, eq=False)
class TwoValues:
    """Outcomes that are `low` or `high`: their mean is all there is to know.

    With p the probability of the high one (low 0, high 1), rho = max(p / Gamma, 1 - Gamma (1 - p)), with q = 0 or 1.
    """

    mean: Table
    low: float
    high: float

    def worst(self, gamma: float, *, upper: bool) -> tuple[Table, Table]:
        width = self.high - self.low
        p = np.clip((self.mean - self.low) / (width or 1.0), 0.0, 1.0)
        each = [
            p * excess(np.array(1.0 - q), gamma, upper=upper) + (1.0 - p) * excess(np.array(-q), gamma, upper=upper)
            for q in (0.0, 1.0)
        ]
        first = each[0] <= each[1] if upper else each[0] >= each[1]
        return np.where(first, self.low, self.high), width * np.where(first, each[0], each[1])


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Outcomes as a predicted mean plus a residual, of which E[(t - residual)_+ | x, a] is known at several cuts t.

    One table serves every Gamma, because the sharp bound is the greatest over q of E[H(Y, q)], and with the residual R

        E[H(Y, q) - Y] = -(1 - 1/Gamma) E[R - t] - (Gamma - 1/Gamma) E[(t - R)_+] at q = mean + t.

    `centre` is E[R] by the same estimate.
    """

    mean: Table
    cuts: Float[np.ndarray, "action cut"]
    shortfall: Float[np.ndarray, "row action cut"]
    centre: Table

    def worst(self, gamma: float, *, upper: bool) -> tuple[Table, Table]:
        """The cut with the greatest mean of H - Y (for the upper bound the least), which is the quantile's."""
        inner, outer = 1.0 - 1.0 / gamma, gamma - 1.0 / gamma
        below = self.centre[..., None] - self.cuts  # mean of residual - t, which is surplus less shortfall
        tail = self.shortfall + below if upper else -self.shortfall
        means = outer * tail - inner * below
        best = np.argmin(means, axis=2) if upper else np.argmax(means, axis=2)
        chosen = np.take_along_axis(means, best[..., None], axis=2)[..., 0]
        return self.mean + self.cuts[np.arange(len(self.cuts)), best], chosen


@dataclass(frozen=True, slots=True, eq=False)
class LogBounds:
    """A log with what bounds need: for any Gamma a table of lower or upper scores, and values of policies by it.

    `propensity` is that of the action taken, `others` the probability that an action is not taken, `robust` the doubly
    robust table before costs, `mean` the outcome model's. What was computed for a Gamma is `kept`.
    """

    outcome: Float[np.ndarray, " row"]
    action: Int[np.ndarray, " row"]
    propensity: Float[np.ndarray, " row"]
    others: Table
    robust: Table
    mean: Table
    shape: OutcomeShape
    cost: Table | None = None
    weights: Float[np.ndarray, " row"] | None = None
    groups: Int[np.ndarray, " row"] | None = None
    kept: dict[tuple[float, bool], Any] = field(default_factory=dict, repr=False)

    def _shifts(self, gamma: float, upper: bool) -> tuple[Table, Table]:
        """What Gamma adds to the means of those who did not take an action, and to the doubly robust scores."""
        if (gamma, upper) not in self.kept:
            cut, shift = self.shape.worst(gamma, upper=upper)
            rows, taken = np.arange(len(self.action)), self.action
            added, own = np.array(shift), shift[rows, taken]
            odds = (1.0 - self.propensity) / self.propensity
            added[rows, taken] = odds * (excess(self.outcome - cut[rows, taken], gamma, upper=upper) - own)
            self.kept[gamma, upper] = shift, added
        shift, added = self.kept[gamma, upper]
        return shift, added

    def scores(self, gamma: float, *, upper: bool, correction: float = 1.0) -> Table:
        """Scores whose mean given x is the bound of each action's; `correction` shrinks them to those of the models.

        Before costs. With `correction` 0 they are mean + (1 - e) (rho - mean).
        """
        shift, added = self._shifts(gamma, upper)
        modelled = self.mean + self.others * shift
        if correction == 0.0:
            return modelled
        table: Table = self.robust + added
        return table if correction == 1.0 else modelled + correction * (table - modelled)

    def conditional(self, gamma: float, *, upper: bool) -> Table:
        """Bounds of the mean outcome of each row and action by the models, net of costs."""
        table = self.scores(gamma, upper=upper, correction=0.0)
        return table if self.cost is None else table - self.cost

    def value(self, policy: Table, gamma: float, *, upper: bool) -> Value:
        """The bound of a policy's value, with its error."""
        return Value(self._rows(policy, self.scores(gamma, upper=upper)), "dr", self.weights, self.groups)

    def gain(self, policy: Table, baseline: Table | Value, gamma: float, *, upper: bool) -> Value:
        """The bound of the gain over a baseline: zero where both do the same, else a lower bound less an upper one.

        A `Value` as baseline is what the log's own policy is worth, which no confounding can hide.
        """
        if isinstance(baseline, Value):
            return self.value(policy, gamma, upper=upper) - baseline
        more, less = np.maximum(policy - baseline, 0.0), np.maximum(baseline - policy, 0.0)
        ours = self._rows(more, self.scores(gamma, upper=upper))
        theirs = self._rows(less, self.scores(gamma, upper=not upper))
        return Value(ours - theirs, "dr", self.weights, self.groups, "difference")

    def _rows(self, policy: Table, table: Table) -> Float[np.ndarray, " row"]:
        rows: Float[np.ndarray, " row"] = np.sum(policy * table, axis=1)
        return rows if self.cost is None else rows - np.sum(policy * self.cost, axis=1)
