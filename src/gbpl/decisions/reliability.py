"""Whether rows of which a policy is sure gain what they should, by outcomes that it has not seen.

No row shows which action was best for it. But a probability goes with an expected gain, and outcomes show what groups
of rows gain. Where the policy is sure, the most probable action must gain on the second most probable one what the
posterior expects; where it is not, about nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.value.estimate import Value

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Reliability", "reliability"]


@dataclass(frozen=True, slots=True, eq=False)
class Reliability:
    """Rows in groups by the probability `said` that their most probable action is the best, one entry per group.

    `expected` is the mean gain of that action over the second most probable one as the posterior expects it, `estimate`
    what outcomes say, with its standard error `se`; `rows` are the numbers of rows.
    """

    said: Float[np.ndarray, " group"]
    expected: Float[np.ndarray, " group"]
    estimate: Float[np.ndarray, " group"]
    se: Float[np.ndarray, " group"]
    rows: Int[np.ndarray, " group"]

    def to_dict(self) -> dict[str, list[float]]:
        """Columns by name, as `pandas.DataFrame` or `polars.DataFrame` take them."""
        return {name: getattr(self, name).tolist() for name in ("said", "expected", "estimate", "se", "rows")}

    def __str__(self) -> str:
        lines = [f"{'said':>8}{'expected':>12}{'estimate':>12}{'se':>10}{'rows':>8}"]
        for said, expected, estimate, se, rows in zip(*self.to_dict().values(), strict=True):
            lines.append(f"{said:8.3f}{expected:12.4g}{estimate:12.4g}{se:10.2g}{rows:8d}")
        return "\n".join(lines)


def reliability(
    probability: Float[np.ndarray, "row action"],
    gain: Float[np.ndarray, "row action"],
    outcomes: Float[np.ndarray, "row action"],
    *,
    weights: Float[np.ndarray, " row"] | None = None,
    groups: Any = None,
    count: int = 5,
) -> Reliability:
    """Compare expected with estimated gains in `count` groups of rows, of equal size, by their largest probability.

    `outcomes` are those of every action, or doubly robust ones; `probability` and `gain` must not have seen them.

    >>> p, y = np.array([[0.1, 0.9], [0.4, 0.6]]), np.array([[0.0, 2.0], [0.0, 1.0]])
    >>> reliability(p, y, y, count=2).estimate.tolist()
    [1.0, 2.0]
    """
    if count < 1 or count > len(probability):
        raise ValueError(f"count must be from 1 to the number of rows, {len(probability)}, got {count}; try 5")
    rows = np.arange(len(probability))
    second, first = np.argsort(probability, axis=1, kind="stable")[:, -2:].T
    said, expected = probability[rows, first], gain[rows, first] - gain[rows, second]
    done = outcomes[rows, first] - outcomes[rows, second]
    parts: list[tuple[float, float, float, float, int]] = []
    for own in np.array_split(np.argsort(said, kind="stable"), count):
        weight = None if weights is None else weights[own]
        value = Value(done[own], "gain", weight, None if groups is None else groups[own])
        means = (float(np.average(part[own], weights=weight)) for part in (said, expected))
        parts.append((*means, value.estimate, value.se, len(own)))  # type: ignore[arg-type]
    return Reliability(*(np.array(column) for column in zip(*parts, strict=True)))
