"""Off-policy value: the value of a policy from rows on which another policy chose, with its error (section 7).

An estimate is the mean of one number per row (its influence value), so its standard error, the difference of two
policies and the error of that difference all follow from those numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import t

from gbpl.feedback.pseudo_outcomes import doubly_robust, ipw, of_logged_action
from gbpl.report.numbers import ascii_number, decimal_places

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "ESTIMATORS", "Value", "check_estimator_name", "logged_value", "mean_value", "needs_outcome_model",
    "off_policy_value", "value_covariance",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """An estimated mean outcome under a policy, or a difference of two.

    `influence` holds one number per row: the estimate is their (weighted) mean, and its standard error
    sqrt(sum_g (sum_{i in g} w_i (influence_i - estimate))^2 G / (G - 1)) / sum w over groups g, which are the rows
    where none are given. A cross-fitted value has a `dependence` too, from folds that decide each other
    (`value.dependence`), whose squares, summed over groups likewise, are added to the variance, an `inflation` of the
    variance of the rows, and an `allowance`, a standard deviation, for what is in the estimate by extrapolation. Where
    events are rare, `unseen` is what those of each action that did not happen would add (`value.rare`). Subtracting two
    values of the same rows gives the difference with its own error:

    >>> rows = np.array([1.0, 3.0])
    >>> (Value(rows, "dr") - Value(rows - 1, "dr")).se
    0.0
    """

    influence: Float[np.ndarray, " row"]
    estimator: str
    weights: Float[np.ndarray, " row"] | None = None
    groups: Int[np.ndarray, " row"] | None = None
    what: str = "value"
    dependence: Float[np.ndarray, "row direction"] | None = None
    allowance: float = 0.0
    inflation: float = 0.0
    unseen: Float[np.ndarray, " action"] | None = None

    @property
    def estimate(self) -> float:
        """The (weighted) mean of the influence values."""
        return float(np.average(self.influence, weights=self.weights))

    def _summed(self, rows: Float[np.ndarray, "row *column"]) -> Float[np.ndarray, "group *column"]:
        """Sums over groups of rows times their share of the weight; groups without rows do not count."""
        share = np.full(len(rows), 1.0 / len(rows)) if self.weights is None else self.weights / self.weights.sum()
        weighted = rows * share.reshape(-1, *[1] * (rows.ndim - 1))
        if self.groups is None:
            return weighted
        numbers, place = np.unique(self.groups, return_inverse=True)
        total = np.zeros((len(numbers), *rows.shape[1:]))
        np.add.at(total, place, weighted)
        return total

    @property
    def freedom(self) -> float:
        """Degrees of freedom of the error: groups less one; infinite where rows are their own."""
        return np.inf if self.groups is None else len(np.unique(self.groups)) - 1

    @property
    def se(self) -> float:
        """Standard error, clustered by groups where there are any."""
        return float(np.sqrt(value_covariance([self])[0, 0]))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Two-sided interval: normal for rows, Student's t with G - 1 degrees of freedom for G groups."""
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level}; try 0.95")
        reach = t.ppf(0.5 + level / 2, self.freedom)
        return self.estimate - reach * self.se, self.estimate + reach * self.se

    @property
    def probability_positive(self) -> float:
        """Chance that the true value (or difference) is above zero, by the distribution of `interval`."""
        if self.se == 0.0:
            return float(self.estimate > 0)
        ratio = self.estimate / self.se  # NaN for a single row, and so is the answer
        return float(t.cdf(ratio, self.freedom))

    def __sub__(self, other: Value) -> Value:
        if not isinstance(other, Value):
            return NotImplemented
        if len(other.influence) != len(self.influence):
            raise ValueError(
                f"values of {len(self.influence)} and {len(other.influence)} rows cannot be subtracted; "
                "estimate both on the same rows"
            )
        for mine, yours, what in ((self.weights, other.weights, "weights"), (self.groups, other.groups, "groups")):
            if mine is not yours and (mine is None or yours is None or not np.array_equal(mine, yours)):
                raise ValueError(f"the two values have different {what}; estimate both on the same rows")
        name = self.estimator if self.estimator == other.estimator else f"{self.estimator} - {other.estimator}"
        both = [part for part in (self.dependence, other.dependence) if part is not None]
        return Value(
            self.influence - other.influence, name, self.weights, self.groups, "difference",
            np.hstack(both) if both else None, float(np.hypot(self.allowance, other.allowance)),
            max(self.inflation, other.inflation), _less(self.unseen, other.unseen),
        )  # fmt: skip

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Plain numbers, for a table or JSON."""
        low, high = self.interval(level)
        return {
            "what": self.what, "estimate": self.estimate, "se": self.se, "low": low, "high": high, "level": level,
            "estimator": self.estimator, "rows": len(self.influence),
        }  # fmt: skip

    def __str__(self) -> str:
        places = decimal_places(self.se)
        places = places and places + 1  # an end near zero must show its side
        estimate, se, low, high = (ascii_number(x, places) for x in (self.estimate, self.se, *self.interval()))
        rows = f"{len(self.influence):,} rows"
        return f"{self.what} {estimate} (se {se}, 95 % interval {low} to {high}, {self.estimator}, {rows})"

    __repr__ = __str__


def _less(mine: Any, yours: Any) -> Any:
    """Difference of what unseen events add; None stands for nothing."""
    return mine if yours is None else -yours if mine is None else mine - yours


def value_covariance(values: Sequence[Value]) -> Float[np.ndarray, "value value"]:
    """Covariance of values of the same rows, by which any contrast of them has its variance; NaN for a single group.

    The rows' part has the largest inflation among the values, so that a difference has that of `Value.__sub__`.
    """
    first = values[0]
    terms = np.stack([value._summed(value.influence - value.estimate) for value in values])
    count = terms.shape[1]
    if count < 2:
        return np.full((len(values), len(values)), np.nan)
    covariance = terms @ terms.T * (1.0 + max(value.inflation for value in values))
    learned = [number for number, value in enumerate(values) if value.dependence is not None]
    if learned:
        parts = [first._summed(values[number].dependence).ravel() for number in learned]  # type: ignore[arg-type]
        if len({len(part) for part in parts}) > 1:
            raise ValueError("values of policies that were learned in different ways have no common covariance")
        covariance[np.ix_(learned, learned)] += np.stack(parts) @ np.stack(parts).T
    allowance = np.array([value.allowance for value in values])
    covariance = covariance * (count / (count - 1)) + np.outer(allowance, allowance)
    rare = [number for number, value in enumerate(values) if value.unseen is not None]
    if rare:
        more = np.stack([np.asarray(values[number].unseen) for number in rare])
        covariance[np.ix_(rare, rare)] += more @ more.T
    return covariance


def check_estimator_name(estimator: str) -> None:
    """Refuse the name of an unknown estimator."""
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}")


def needs_outcome_model(estimator: str) -> bool:
    """Whether an estimator needs the predicted mean outcome of each action."""
    check_estimator_name(estimator)
    return ESTIMATORS[estimator].needs_model


def mean_value(
    policy: Float[np.ndarray, "row action"],
    table: Float[np.ndarray, "row action"],
    *,
    estimator: str = "mean",
    weights: Float[np.ndarray, " row"] | None = None,
    groups: Int[np.ndarray, " row"] | None = None,
) -> Value:
    """Mean of sum_a delta_a(x) Y(a) over a table of outcomes, pseudo-outcomes or predicted means."""
    return Value(np.sum(np.asarray(policy, np.float64) * table, axis=1), estimator, weights, groups)


def logged_value(
    outcome: Float[np.ndarray, " row"],
    *,
    weights: Float[np.ndarray, " row"] | None = None,
    groups: Int[np.ndarray, " row"] | None = None,
) -> Value:
    """Value of the policy that wrote the log: the mean outcome."""
    return Value(np.asarray(outcome, np.float64), "mean", weights, groups)


class _Log(NamedTuple):
    """What an estimator sees: a policy's action probabilities beside the log and its models."""

    policy: Float[np.ndarray, "row action"]
    outcome: Float[np.ndarray, " row"]
    action: Int[np.ndarray, " row"]
    propensity: Float[np.ndarray, " row"]
    outcome_mean: Any
    weights: Float[np.ndarray, " row"] | None


def _ipw(log: _Log) -> Float[np.ndarray, " row"]:
    """Mean of r Y."""
    return np.sum(log.policy * ipw(log.outcome, log.action, log.propensity, log.policy.shape[1]), axis=1)


def _snipw(log: _Log) -> Float[np.ndarray, " row"]:
    """sum r Y / sum r; influence values V + r (Y - V) / mean(r)."""
    ratio = of_logged_action(log.policy, log.action) / log.propensity
    total = np.average(ratio, weights=log.weights)
    if not total > 0:
        raise ValueError("no row took an action this policy would take: its value cannot be estimated from this log")
    mean = np.average(ratio * log.outcome, weights=log.weights) / total
    return mean + ratio * (log.outcome - mean) / total


def _dr(log: _Log) -> Float[np.ndarray, " row"]:
    """Mean of sum_a delta_a gamma_a(x) + r (Y - gamma_A(x))."""
    return np.sum(log.policy * doubly_robust(log.outcome, log.action, log.propensity, log.outcome_mean), axis=1)


def _dm(log: _Log) -> Float[np.ndarray, " row"]:
    """Mean of sum_a delta_a gamma_a(x), with the spread of the doubly robust terms."""
    rows, model = _dr(log), np.sum(log.policy * log.outcome_mean, axis=1)
    return rows + np.average(model - rows, weights=log.weights)


class Estimator(NamedTuple):
    """One influence value per row, whose mean is the estimate; whether it needs a model of the outcomes."""

    influence: Callable[[_Log], Float[np.ndarray, " row"]]
    needs_model: bool


ESTIMATORS = {
    "dr": Estimator(_dr, True),
    "ipw": Estimator(_ipw, False),
    "snipw": Estimator(_snipw, False),
    "dm": Estimator(_dm, True),
}


def off_policy_value(
    policy: Float[np.ndarray, "row action"],
    outcome: Float[np.ndarray, " row"],
    action: Int[np.ndarray, " row"],
    *,
    propensity: Float[np.ndarray, " row"] | None = None,
    outcome_mean: Float[np.ndarray, "row action"] | None = None,
    estimator: str = "dr",
    cost: Float[np.ndarray, "row action"] | None = None,
    weights: Float[np.ndarray, " row"] | None = None,
    groups: Int[np.ndarray, " row"] | None = None,
) -> Value:
    """Value of any policy (action probabilities of each row; zeros and a one for a deterministic rule).

    With r = delta_A(x) / e_A(x), the ratio of the policy's and the log's probability of the action taken:

    - `"ipw"`: mean of r Y.
    - `"snipw"`: sum r Y / sum r. Its influence value is V + r (Y - V) / mean(r): the normaliser is as random as
      the sum above it, and the error allows for that.
    - `"dr"`: mean of sum_a delta_a gamma_a(x) + r (Y - gamma_A(x)).
    - `"dm"`: mean of sum_a delta_a gamma_a(x). Its error uses the spread of the doubly robust terms, which
      are the influence values of the outcome model's mean where it has any; it leaves out the bias of the model.

    `propensity` is that of the action taken, `cost` what each action costs, which is taken as known.
    """
    check_estimator_name(estimator)
    if propensity is None:
        raise ValueError(f"the estimator {estimator!r} needs the propensity of the action taken, one number per row")
    if np.shape(propensity) != np.shape(action):
        raise ValueError(
            f"propensity must be one number per row, of the action taken, got shape {np.shape(propensity)}"
        )
    if needs_outcome_model(estimator) and outcome_mean is None:
        raise ValueError(f"the estimator {estimator!r} needs outcome_mean, the predicted mean outcome of each action")
    log = _Log(np.asarray(policy, np.float64), outcome, action, propensity, outcome_mean, weights)
    rows = ESTIMATORS[estimator].influence(log)
    if cost is not None:
        rows = rows - np.sum(log.policy * cost, axis=1)
    return Value(rows, estimator, weights, groups)
