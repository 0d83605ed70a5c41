"""Whether features still look as they did when the policy learned: an anytime-valid test per feature.

z = (x - mean) / scale, by the means and scales in the policy. What is tested is that over the rows so far the average
of E z is within `SHIFT` of zero and that of E z^2 at most `SPREAD`: not whether anything has changed at all, which many
rows always show. Three wealths share the evidence, by betting (`certificates.betting`) on values that need no upper
end: max(z, -10) and max(-z, -10), whose means exceed those of z and -z by at most E z^2 / 40, since
(t - 10)+ <= t^2 / 40, and z^2. Their mean is a wealth too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gbpl.certificates.betting import Bets, Wealth

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["SHIFT", "SPREAD", "Drift"]

SHIFT, SPREAD = 0.2, 2.0
DEEPEST = 10.0
BETS = Bets.grid(smallest=1e-3, largest=1.0, count=8)
NULL = np.array([DEEPEST + SHIFT + SPREAD / (4.0 * DEEPEST)] * 2 + [SPREAD])[:, None]


@dataclass(slots=True, eq=False)
class Drift:
    """Evidence against every feature, and the row at which a feature was found to have moved."""

    wealth: Wealth
    total: Float[np.ndarray, " feature"]
    moved: dict[int, int] = field(default_factory=dict)

    @classmethod
    def start(cls, features: int) -> Self:
        return cls(Wealth.start(BETS, streams=(3, features)), np.zeros(features))

    def add(self, z: Float[np.ndarray, "row feature"]) -> None:
        """More rows, standardized as in the fit."""
        values = np.stack([np.maximum(z, -DEEPEST) + DEEPEST, np.maximum(-z, -DEEPEST) + DEEPEST, z**2])
        self.wealth = self.wealth.add(values.transpose(0, 2, 1))
        self.total = np.add.accumulate(np.concatenate([self.total[None], z]), axis=0)[-1]

    def look(self, failure_probability: float) -> None:
        """Note the features whose evidence has passed its threshold by now; all of them share the probability."""
        features = len(self.total)
        evidence = np.logaddexp.reduce(self.wealth.log_wealth(NULL), axis=0) - np.log(3.0)
        for feature in np.flatnonzero(evidence >= np.log(max(1, features) / failure_probability)).tolist():
            self.moved.setdefault(feature, self.wealth.n)

    def shifts(self) -> Float[np.ndarray, " feature"]:
        """Mean of each feature so far, in standard deviations of the fit from its mean there; no test."""
        return self.total / max(1, self.wealth.n)

    def to_json(self) -> dict[str, Any]:
        return {
            "wealth": self.wealth.to_json(), "total": self.total.tolist(),
            "moved": {str(feature): row for feature, row in self.moved.items()},
        }  # fmt: skip

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        moved = {int(feature): int(row) for feature, row in state["moved"].items()}
        return cls(Wealth.from_json(state["wealth"]), np.array(state["total"], np.float64), moved)
