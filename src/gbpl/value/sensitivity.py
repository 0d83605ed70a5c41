"""How sure a value is under hidden confounding: bounds by Gamma, and the Gamma at which a gain breaks down.

The bounds and the model behind them are those of `value.confounding`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.value.confounding import LogBounds
from gbpl.value.estimate import Value

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    Table = Float[np.ndarray, "row action"]

__all__ = ["GAMMAS", "MOST", "Sensitivity", "breakdown_of", "row_breakdown", "sensitivity_of"]

GAMMAS = (1.0, 1.25, 1.5, 2.0, 3.0, 5.0)
MOST = 20.0  # the largest Gamma that is tried
STEPS = 30  # of Gamma from 1 to the largest, equal ratios
HALVINGS = 10  # of a step: to 1e-4 of Gamma


def row_breakdown(bounds: LogBounds, policy: Table, baseline: Table | None) -> Float[np.ndarray, " row"]:
    """The largest Gamma at which a row's gain is still above zero by the models' bounds; NaN without a difference.

    1 where it is not above zero even without confounding, infinite beyond `MOST`. With None as baseline it is the
    log's own policy, whose mean outcome is sum_a e_a gamma_a, whatever is hidden.
    """
    logged = np.average(bounds.conditional(1.0, upper=False), axis=1, weights=1.0 - bounds.others)
    more = policy if baseline is None else np.maximum(policy - baseline, 0.0)
    less = None if baseline is None else np.maximum(baseline - policy, 0.0)
    found, before = np.full(len(policy), np.inf), np.full(len(policy), np.nan)
    gammas = np.geomspace(1.0, MOST, STEPS + 1).tolist()
    for place, gamma in enumerate(gammas):
        gain = np.sum(more * bounds.conditional(gamma, upper=False), axis=1)
        gain -= logged if less is None else np.sum(less * bounds.conditional(gamma, upper=True), axis=1)
        new = np.isinf(found) & (gain <= 0.0)
        if place == 0:
            found[new] = 1.0
        else:
            share = before[new] / (before[new] - gain[new])
            found[new] = gammas[place - 1] + share * (gamma - gammas[place - 1])
        before = gain
    if baseline is not None:
        found[np.all(np.abs(policy - baseline) < 1e-12, axis=1)] = np.nan
    return found


def breakdown_of(limit: Callable[[float], float]) -> float:
    """The smallest Gamma at which a limit is no longer above zero; 1 if it never is, infinite if it is up to `MOST`.

    >>> round(breakdown_of(lambda gamma: 2.0 - gamma), 4)
    2.0
    """
    low = 1.0
    if not limit(low) > 0.0:
        return low
    for high in np.geomspace(1.0, MOST, STEPS + 1)[1:].tolist():
        if not limit(high) > 0.0:
            break
        low = high
    else:
        return float("inf")
    for _ in range(HALVINGS):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if limit(middle) > 0.0 else (low, middle)
    return float((low * high) ** 0.5)


@dataclass(frozen=True, slots=True, eq=False)
class Sensitivity:
    """Bounds of a policy's value, and of its gain over a baseline, at each Gamma, and where the gain breaks down.

    `lower`, `upper`, `gain_lower` and `gain_upper` have one `Value` per Gamma, with its standard error. `breakdown` is
    the Gamma at which the lower bound of the gain reaches zero, `breakdown_limit` that at which the lower end of the
    `level` interval of that bound does: a gain cannot be told from zero if confounding could be that strong. Both are
    1 where there is no gain to begin with, and infinite where it is left at Gamma = 20. `row_breakdown` is the
    largest Gamma for which a row's own gain, by the models of the outcomes, is above zero (NaN where policy and
    baseline agree).
    """

    gammas: tuple[float, ...]
    lower: tuple[Value, ...]
    upper: tuple[Value, ...]
    gain_lower: tuple[Value, ...]
    gain_upper: tuple[Value, ...]
    baseline: str
    breakdown: float
    breakdown_limit: float
    row_breakdown: Float[np.ndarray, " row"]
    level: float

    def interval(self, place: int, *, gain: bool = False) -> tuple[float, float]:
        """Low end of the lower bound's interval and high end of the upper bound's, at one of the Gammas.

        It contains the value of every model with that Gamma with a probability of at least `level`, in large samples.
        """
        low, high = (self.gain_lower, self.gain_upper) if gain else (self.lower, self.upper)
        return low[place].interval(self.level)[0], high[place].interval(self.level)[1]

    @property
    def differ(self) -> Bool[np.ndarray, " row"]:
        """Rows on which policy and baseline do not do the same."""
        return ~np.isnan(self.row_breakdown)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for a table or JSON; of the rows, the shares whose gain outlasts each Gamma."""
        differ = self.row_breakdown[self.differ]
        rows = []
        for place, gamma in enumerate(self.gammas):
            rows.append(
                {
                    "gamma": gamma,
                    **_ends(self.lower[place], self.upper[place], self.interval(place)),
                    "gain": _ends(self.gain_lower[place], self.gain_upper[place], self.interval(place, gain=True)),
                    "rows_left": float(np.mean(differ > gamma)) if len(differ) else None,
                }
            )
        return {
            "baseline": self.baseline,
            "level": self.level,
            "breakdown": self.breakdown,
            "breakdown_limit": self.breakdown_limit,
            "most": MOST,
            "differ": float(np.mean(self.differ)),
            "row_breakdown_median": float(np.median(differ)) if len(differ) else None,
            "gammas": rows,
        }

    def __str__(self) -> str:
        over, limits = f"gain over {self.baseline}", f"{100 * self.level:g} % limits of the gain"
        lines = [f"{'Gamma':>6}  {'value':>21}  {over:>21}  {limits}"]
        for place, gamma in enumerate(self.gammas):
            value = f"{self.lower[place].estimate:.4g} to {self.upper[place].estimate:.4g}"
            gain = f"{self.gain_lower[place].estimate:.4g} to {self.gain_upper[place].estimate:.4g}"
            low, high = self.interval(place, gain=True)
            lines.append(f"{gamma:6.3g}  {value:>21}  {gain:>21}  {low:.4g} to {high:.4g}")
        told = ", ".join(
            f"{what} {_told(gamma)}"
            for what, gamma in (
                ("breakdown at", self.breakdown),
                (f"{100 * self.level:g} % limit at", self.breakdown_limit),
            )
        )
        return "\n".join([*lines, told])

    __repr__ = __str__


def _ends(lower: Value, upper: Value, ends: tuple[float, float]) -> dict[str, float]:
    return {
        "lower": lower.estimate, "lower_se": lower.se, "upper": upper.estimate, "upper_se": upper.se,
        "low": ends[0], "high": ends[1],
    }  # fmt: skip


def _told(gamma: float) -> str:
    return f"more than {MOST:g}" if np.isinf(gamma) else f"{gamma:.3g}"


def sensitivity_of(
    bounds: LogBounds,
    policy: Table,
    baseline: Table | Value,
    name: str,
    *,
    gammas: tuple[float, ...] = GAMMAS,
    level: float = 0.95,
    learned: Callable[[Value], Value] = lambda value: value,
) -> Sensitivity:
    """Bounds of a policy's value, and of its gain over a baseline as in `LogBounds.gain`, at each Gamma.

    `learned` adds to a value what learning the policy from the same rows adds to its error.
    """

    @cache
    def least(gamma: float) -> Value:
        return learned(bounds.gain(policy, baseline, gamma, upper=False))

    return Sensitivity(
        gammas=tuple(gammas),
        lower=tuple(learned(bounds.value(policy, gamma, upper=False)) for gamma in gammas),
        upper=tuple(learned(bounds.value(policy, gamma, upper=True)) for gamma in gammas),
        gain_lower=tuple(map(least, gammas)),
        gain_upper=tuple(learned(bounds.gain(policy, baseline, gamma, upper=True)) for gamma in gammas),
        baseline=name,
        breakdown=breakdown_of(lambda gamma: least(gamma).estimate),
        breakdown_limit=breakdown_of(lambda gamma: least(gamma).interval(level)[0]),
        row_breakdown=row_breakdown(bounds, policy, None if isinstance(baseline, Value) else baseline),
        level=level,
    )
