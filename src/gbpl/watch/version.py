"""All that is kept of the rows that one version of a policy was watched on."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gbpl.certificates.betting import Wealth
from gbpl.watch.budget import CALIBRATION, DRIFT, GAIN, LATER, VALUE
from gbpl.watch.drift import Drift
from gbpl.watch.losses import Losses

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["KEEP_WATCHING", "PROMOTE", "ROLL_BACK", "Rows", "Version"]

PROMOTE, KEEP_WATCHING, ROLL_BACK = "promote", "keep watching", "roll back"
PER_DECADE = 16  # rows at which bounds are noted for the chart and drift is looked at: each 15 % beyond the last
LEVELS = np.array([*VALUE, *GAIN, *CALIBRATION])
GAINS, CALIBRATED = slice(2, 4), slice(4, 6)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows as a version takes them, in units of the range of the outcomes; `values` has one line per bound.

    The lines are value, 1 - value, 1 + gain, 1 - gain and, where the policy expects gains, how far the gain is above
    and below the expected one; each has had its lower end taken off.
    """

    values: Float[np.ndarray, "bound row"]
    outcome: Float[np.ndarray, " row"]
    z: Float[np.ndarray, "row feature"]
    given: Int[np.ndarray, " row"]
    taken: Int[np.ndarray, " row"]
    gain: Float[np.ndarray, " row"]
    expected: Float[np.ndarray, " row"] | None


@dataclass(slots=True, eq=False)
class Version:
    """Wealth of every bound, tallies by action, and what has been decided when; rows are counted from one.

    `slack` is the room below zero of a row's values (`values`). `later` is the evidence that the policy has begun to
    lose after it was promoted. `tallies` are, per action that the policy gives, its rows and the sums of their gains
    and expected gains, and the rows in which the log took it.
    """

    number: int
    policy: str
    budget: float
    slack: float
    wealth: Wealth
    drift: Drift
    tallies: Float[np.ndarray, "tally action"]
    guess: tuple[float, float] = (1.0, 0.5)  # rows, and sum of their outcomes: half a range, before the first
    later: Losses | None = None
    promoted: int | None = None
    rolled_back: int | None = None
    miscalibrated: int | None = None
    history: list[list[float]] = field(default_factory=list)

    @classmethod
    def start(
        cls, number: int, policy: str, budget: float, slack: float, features: int, actions: int, *, expects: bool
    ) -> Self:
        wealth = Wealth.start(streams=(6 if expects else 4,))
        return cls(number, policy, budget, slack, wealth, Drift.start(features), np.zeros((4, actions)))

    @property
    def rows(self) -> int:
        return self.wealth.n

    @property
    def verdict(self) -> str:
        if self.rolled_back is not None:
            return ROLL_BACK
        return KEEP_WATCHING if self.promoted is None else PROMOTE

    @property
    def lifted(self) -> Float[np.ndarray, " bound"]:
        """What has been taken off each line of values, so that none is negative; the mean of the last two is theirs."""
        return np.array([self.slack] * 4 + [self.slack + 2.0] * 2)[: len(self.wealth.total)]

    def guesses(self, outcome: Float[np.ndarray, " row"]) -> Float[np.ndarray, " row"]:
        """The mean outcome before each row."""
        count, total = self.guess
        sums = np.add.accumulate(np.concatenate([[total], outcome]))[:-1]
        return sums / (count + np.arange(len(outcome)))

    def add(self, rows: Rows) -> None:
        """More rows. In pieces or at once, the numbers are the same."""
        self._judge(rows.values)
        count, total = self.guess
        sums = np.add.accumulate(np.concatenate([[total], rows.outcome]))
        self.guess = (count + len(rows.outcome), float(sums[-1]))
        self._tally(rows)
        before = self.wealth.n
        noted = [n - before for n in _noted(before, before + len(rows.outcome))]
        for first, last in pairwise(dict.fromkeys([0, *noted, len(rows.outcome)])):
            self.wealth = self.wealth.add(rows.values[:, first:last])
            self.drift.add(rows.z[first:last])
            if last in noted:
                value, gain = self.bounds()
                self.history.append([float(self.wealth.n), *value, *gain])
                self.drift.look(DRIFT * self.budget)

    def _judge(self, values: Float[np.ndarray, "bound row"]) -> None:
        """The rows, if any, at which the policy is promoted, rolled back, or found to expect wrong gains."""
        before, levels = self.wealth.n, self.budget * LEVELS
        if self.miscalibrated is None and len(values) == len(LEVELS):
            found = self._part(CALIBRATED).crossing(values[CALIBRATED], self.lifted[-1], levels[CALIBRATED])
            self.miscalibrated = min((before + int(row) for row in found if row), default=None)
        after = values[3]
        if self.promoted is None and self.rolled_back is None:
            up, down = self._part(GAINS).crossing(values[GAINS], 1.0 + self.slack, levels[GAINS]).tolist()
            if down and not 0 < up <= down:
                self.rolled_back = before + down
            elif up:
                self.promoted, self.later, after = before + up, Losses.start(1.0 + self.slack), values[3, up:]
        if self.later is not None and self.rolled_back is None:
            self.later, down = self.later.add(after, LATER * self.budget)
            if down:
                self.rolled_back = before + values.shape[1] - len(after) + down

    def _part(self, lines: slice) -> Wealth:
        return replace(self.wealth, total=self.wealth.total[lines], log_stakes=self.wealth.log_stakes[lines])

    def _tally(self, rows: Rows) -> None:
        expected = np.zeros(len(rows.gain)) if rows.expected is None else rows.expected
        for line, (action, weight) in enumerate(
            [(rows.given, None), (rows.given, rows.gain), (rows.given, expected), (rows.taken, None)]
        ):
            np.add.at(self.tallies[line], action, 1.0 if weight is None else weight)

    def bounds(self) -> tuple[tuple[float, float, float], tuple[float, float, float]]:
        """Lower bound, estimate and upper bound of the value, and of the gain, at this row."""
        lower = self.wealth.lower(self.budget * LEVELS[: len(self.wealth.total)]) - self.lifted
        mean = self.wealth.mean - self.lifted
        if not self.rows:
            return (0.0, math.nan, 1.0), (-1.0, math.nan, 1.0)
        value = (max(lower[0], 0.0), (mean[0] + 1.0 - mean[1]) / 2.0, 1.0 - max(lower[1], 0.0))
        gain = (max(lower[2], 0.0) - 1.0, (mean[2] - mean[3]) / 2.0, 1.0 - max(lower[3], 0.0))
        return tuple(map(float, value)), tuple(map(float, gain))  # type: ignore[return-value]

    def calibration(self) -> tuple[float, float, float] | None:
        """Bounds and estimate of how much more the policy gains than it expects; None where it expects nothing."""
        if len(self.wealth.total) < len(LEVELS) or not self.rows:
            return None
        part = self._part(CALIBRATED)
        lower, mean = part.lower(self.budget * LEVELS[CALIBRATED]) - self.lifted[-1], part.mean - self.lifted[-1]
        return float(lower[0]), float(mean[0] - mean[1]) / 2.0, -float(lower[1])

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, which `from_json` takes back to the last bit."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return plain | {
            "guess": list(self.guess), "tallies": self.tallies.tolist(), "wealth": self.wealth.to_json(),
            "drift": self.drift.to_json(), "later": None if self.later is None else self.later.to_json(),
        }  # fmt: skip

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        later = state["later"]
        return cls(
            **{name: state[name] for name in _PLAIN},
            guess=(float(state["guess"][0]), float(state["guess"][1])),
            tallies=np.array(state["tallies"], np.float64),
            wealth=Wealth.from_json(state["wealth"]),
            drift=Drift.from_json(state["drift"]),
            later=None if later is None else Losses.from_json(later),
        )


_PLAIN = ("number", "policy", "budget", "slack", "promoted", "rolled_back", "miscalibrated", "history")


def _noted(before: int, after: int) -> list[int]:
    """Row counts in (before, after] at which bounds are noted."""
    if after < 1:
        return []
    first, last = (math.floor(PER_DECADE * math.log10(n)) for n in (max(before, 1), after))
    powers = range(first, last + 2)
    return sorted({n for power in powers if before < (n := round(10.0 ** (power / PER_DECADE))) <= after})
