"""Bounds of the value of one policy, and of its gains, on rows that it has not learned from (section 8).

Everything that a bound may choose is chosen on the rows that were learned from: the bets, how far a model of the
outcomes is trusted, the smallest propensity. So the certifying rows are used once, and no union is paid for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.certificates import means
from gbpl.certificates.means import Units
from gbpl.certificates.scores import Evidence, Limits, Scored, check_within, scored

if TYPE_CHECKING:
    from jaxtyping import Float

    Table = Float[np.ndarray, "row action"]

__all__ = ["Bound", "Certifier"]

SHARES = (0.0, 0.5, 1.0)  # of what a model expects


@dataclass(frozen=True, slots=True)
class Bound:
    """`lower` holds with probability at least 1 - failure_probability, and so does `upper`, each by itself.

    `estimate` is the mean on the certifying rows; `forms` are lower bounds by other forms, and what a normal
    approximation would say; `upper` is None where outcomes have no upper end. `share` is how far a model was trusted.
    """

    estimate: float
    lower: float
    upper: float | None
    failure_probability: float
    n: int
    forms: Mapping[str, float]
    share: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers."""
        return {
            "estimate": self.estimate, "lower": self.lower, "upper": self.upper, "n": self.n,
            "failure_probability": self.failure_probability, "forms": dict(self.forms), "share": self.share,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Certifier:
    """A policy on the certifying `rows`, and on rows that were `learned` from; tables of action probabilities."""

    rows: Evidence
    policy: Table
    limits: Limits
    learned: Evidence | None = None
    learned_policy: Table | None = None

    def bound(
        self, failure_probability: float, other: Table | str | None = None, learned_other: Table | str | None = None
    ) -> Bound | None:
        """Bounds of the policy's value, or of its gain over another policy; None where no range bounds a gain.

        `other` has one row per certifying row, or is "logging"; `learned_other` the same on the rows learned from,
        without which bets are spread over a grid.
        """
        below = self._lower(failure_probability, other, learned_other)
        if below is None:
            return None
        above = self._reflected()._lower(failure_probability, other, learned_other, beside=False)
        return below if above is None else replace(below, upper=-above.lower)

    def outcome(
        self, y: Float[np.ndarray, " row"], outcome_range: tuple[float, float], failure_probability: float,
        learned: Float[np.ndarray, " row"] | None = None,
    ) -> Bound:  # fmt: skip
        """Bounds of what the policy makes of another outcome of the same rows, such as a cost or a side effect.

        With the outcomes of the rows `learned` from, their mean for each action stands in for a model.
        """
        check_within(y, outcome_range, "the outcome")
        rows, before, count = replace(self.rows, outcome=y, expected=None, cost=None), None, self.policy.shape[1]
        if learned is not None and self.learned is not None:
            check_within(learned, outcome_range, "the outcome")
            before = replace(self.learned, outcome=learned, expected=None, cost=None)
            assert before.action is not None
            level = [float(np.mean(learned[before.action == a])) for a in range(count)]
            rows, before = (replace(part, expected=np.tile(level, (len(part), 1))) for part in (rows, before))
        least = np.full(count, outcome_range[0]) if rows.expected is None else rows.expected[0]
        limits = replace(
            self.limits, low=outcome_range[0], high=outcome_range[1], least=least, most=least, cheapest=0.0, dearest=0.0
        )
        made = replace(self, rows=rows, limits=limits, learned=before).bound(failure_probability)
        assert made is not None
        return made

    def _reflected(self) -> Certifier:
        learned = None if self.learned is None else self.learned.reflected()
        return replace(self, rows=self.rows.reflected(), limits=self.limits.reflected(), learned=learned)

    def _lower(
        self, p: float, other: Table | str | None, learned_other: Table | str | None, *, beside: bool = True
    ) -> Bound | None:
        """The lower bound, and those of other forms `beside` it."""
        if math.isinf(self.limits.low):
            return None
        count = len(self.rows) if self.rows.groups is None else len(np.unique(self.rows.groups))
        chosen = self._choice(p, other, learned_other, count)
        share, size, largest = (SHARES[-1] if self.rows.modelled else 0.0, None, None) if chosen is None else chosen
        values = scored(self.rows, self.limits, self.policy, other, share)
        if values is None:
            return None
        units = self._units(self.rows, values)
        largest = units.largest if largest is None else largest
        units = units.within(largest)
        width = self.limits.high - self.limits.low
        scale = width if math.isfinite(width) else max(1.0, abs(self.limits.low))
        bets = None if size is None else means.learned_bets(size)
        guess = scale * math.sqrt(self.policy.shape[1])  # the root mean square weight of a uniform log
        lower = means.betting(units, p, low=values.low, bets=bets, largest=largest, scale=guess)
        forms = {means.BETTING: lower} | (self._beside(units, values, p, other) if beside else {})
        return Bound(units.mean, min(lower, units.mean), None, p, len(units), forms, share)

    def _beside(self, units: Units, values: Scored, p: float, other: Table | str | None) -> dict[str, float]:
        """Other forms, each at the same probability; those that a model does not enter as published, without one."""
        forms, width = {}, self.limits.high - self.limits.low
        plain = scored(self.rows, self.limits, self.policy, other)
        if units.weight is None and plain is not None and math.isfinite(width):
            inverse = self._units(self.rows, plain).value
            forms[means.BERNSTEIN] = means.empirical_bernstein(units.value, p, low=values.low, high=values.high)
            forms[means.SMOOTHING] = means.logarithmic_smoothing(inverse, p, low=plain.low, scale=width)
            forms[means.KL] = means.inverse_kl(inverse, p, low=plain.low, high=plain.high)
        return forms | {means.NORMAL: means.normal(units, p)}

    def _choice(self, p: float, other: Any, learned_other: Any, count: int) -> tuple[float, float, float | None] | None:
        """How far to trust the model, the bet and the largest weight: those that suit the rows learned from best.

        `count` is that of the certifying rows, or groups of rows.
        """
        if self.learned is None or self.learned_policy is None or (other is not None and learned_other is None):
            return None
        best: tuple[float, float, float] | None = None
        largest: float | None = None
        for share in SHARES if self.rows.modelled and self.learned.modelled else SHARES[:1]:
            values = scored(self.learned, self.limits, self.learned_policy, learned_other, share)
            if values is None:
                return None
            units = self._units(self.learned, values)
            largest = None if units.weight is None else units.largest
            gap, size = means.anticipated(units, p, low=values.low, n=count)
            if best is None or gap < best[0]:
                best = gap, share, size
        assert best is not None
        return best[1], best[2], largest

    @staticmethod
    def _units(evidence: Evidence, values: Scored) -> Units:
        return Units.of(np.maximum(values.values, values.low), evidence.weights, evidence.groups)  # below by rounding
