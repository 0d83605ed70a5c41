"""Bounds on a mean by betting, valid at all times at once (Waudby-Smith and Ramdas, JRSS B 2023).

Values with a known lower end, `value >= low`, and no upper end need be known. A gambler who thinks that their mean is
above m stakes a share of the wealth at every row. With y = value - low and a bet c >= 0, fixed in advance,

    W_n(m) = prod_i (1 + c y_i) / (1 + c (m - low))

is never negative and expected to stay at one if every value has mean m given the past. By Ville's inequality it reaches
1 / failure_probability with no more than that probability, ever: every m at which it does is ruled out. W falls in m,
so the means ruled out are those below a bound. Two consequences of this form of the bet:

- sum_i log(1 + c y_i) per bet and a count are the whole state, and the bound follows from them exactly.
- Means need not be equal. log(1 + c m) is concave in m, so W_n at the average of the conditional means of the first n
  values is at most the martingale prod_i (1 + c y_i) / (1 + c (m_i - low)). The bound holds, at every n at once, for
  that running average, whatever the past does to the next value: drift, adaptive policies, changing propensities.

Several bets share the wealth (a mixture), for nobody knows the right one. An upper bound of values in [low, high] is
the lower bound of `low + high - value`, turned round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Bets", "Wealth", "interval", "lower_bound", "plug_in_lower_bound"]

BISECTIONS = 60  # of a bracket no wider than the mean of the values above their lower end
BLOCK = 1 << 22  # numbers held at once: rows x bets x streams


@dataclass(frozen=True, slots=True)
class Bets:
    """A mixture of bets: sizes c in units of one over a value, and their shares of the wealth, which sum to one.

    Both are fixed before the data. The best size for n values with standard deviation s is about
    sqrt(2 log(1 / failure_probability) / n) / s, so a geometric grid serves many n and s at once.
    """

    sizes: tuple[float, ...]
    shares: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.sizes or len(self.sizes) != len(self.shares):
            raise ValueError(f"every bet needs a share, got {len(self.sizes)} bets and {len(self.shares)} shares")
        if not all(0.0 <= size < math.inf for size in self.sizes):
            raise ValueError(f"bets must be >= 0 and finite, got {self.sizes}")
        if min(self.shares) <= 0.0 or not math.isclose(math.fsum(self.shares), 1.0, rel_tol=1e-9):
            raise ValueError(f"the shares of the wealth must be > 0 and sum to 1, got {self.shares}")

    @classmethod
    def grid(cls, scale: float = 1.0, *, smallest: float = 1e-5, largest: float = 10.0, count: int = 24) -> Self:
        """Equal shares on a geometric grid of bets from `smallest / scale` to `largest / scale`.

        `scale` is a typical size of a value above its lower end, such as the width of the outcomes. The default
        serves from ten values to some 10^8: at 200 to 20,000 values its bound lies about 3.5 standard errors below
        their mean (failure probability 0.025), where one bet of the best size, which nobody knows, lies at 2.7.
        """
        if not (0.0 < scale < math.inf and 0.0 < smallest <= largest < math.inf and count >= 1):
            raise ValueError(
                f"a grid of bets needs scale > 0, 0 < smallest <= largest and count >= 1, got scale={scale}, "
                f"smallest={smallest}, largest={largest}, count={count}"
            )
        return cls(tuple((np.geomspace(smallest, largest, count) / scale).tolist()), (1.0 / count,) * count)


@dataclass(frozen=True, slots=True, eq=False)
class Wealth:
    """What one or many streams of values have made of each bet: all that a bound needs, and all that must be kept.

    `log_stakes[..., bet]` is sum_i log(1 + c (value_i - low)), `total` the sum of value_i - low, `n` the number of
    values. Sums run from left to right, so values added in pieces give the same numbers, to the last bit, as at once.
    """

    bets: Bets
    low: float
    n: int
    total: Float[np.ndarray, "..."]
    log_stakes: Float[np.ndarray, "... bet"]

    @classmethod
    def start(cls, bets: Bets | None = None, *, low: float = 0.0, streams: tuple[int, ...] = ()) -> Self:
        """No value yet, of one stream or of an array of them with the shape `streams`."""
        bets = Bets.grid() if bets is None else bets
        if not math.isfinite(low):
            raise ValueError(f"the lower end of the values must be finite, got low={low}")
        return cls(bets, float(low), 0, np.zeros(streams), np.zeros((*streams, len(bets.sizes))))

    def add(self, values: Float[np.ndarray, "... row"]) -> Self:
        """The wealth after more values, in the order of the last axis."""
        above = _above(values, self.low)
        if above.shape[:-1] != self.total.shape:
            raise ValueError(
                f"values must have one row of numbers per stream, streams {self.total.shape}, got shape {above.shape}"
            )
        sizes = np.array(self.bets.sizes)
        step = max(1, BLOCK // max(1, self.log_stakes.size))
        total, stakes = self.total, self.log_stakes
        for first in range(0, above.shape[-1], step):
            part = above[..., first : first + step]
            total = np.add.accumulate(np.concatenate([total[..., None], part], axis=-1), axis=-1)[..., -1]
            logs = np.log1p(part[..., None] * sizes)
            stakes = np.add.accumulate(np.concatenate([stakes[..., None, :], logs], axis=-2), axis=-2)[..., -1, :]
        return replace(self, n=self.n + above.shape[-1], total=total, log_stakes=stakes)

    @property
    def mean(self) -> Float[np.ndarray, "..."]:
        """The mean of the values so far; the lower end before the first."""
        return self.low + self.total / max(1, self.n)

    def log_wealth(self, mean: float | Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """log W(mean): evidence that the mean is above `mean`. At log(1 / p) or more, ever, `mean` is ruled out at p.

        `mean` may be an array that broadcasts with the streams; at or below `low` the values cannot have it.
        """
        above = np.asarray(mean, np.float64) - self.low
        if (above < 0.0).any():
            raise ValueError(f"a mean below the lower end of the values, {self.low:g}, is impossible, got {mean}")
        return self._log_wealth(above)

    def _log_wealth(self, above: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        terms = self.log_stakes - self.n * np.log1p(above[..., None] * np.array(self.bets.sizes))
        return np.logaddexp.reduce(terms + np.log(self.bets.shares), axis=-1)

    def lower(self, failure_probability: float | Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """A lower bound of the running average of conditional means; it holds at every n at once.

        The root m of log W(m) = log(1 / failure_probability), to the last digits and rounded down; `low` where there is
        none. Bounds of earlier n may be combined (their maximum) only where the mean is known not to change. Streams
        may have failure probabilities of their own.
        """
        threshold = _threshold(failure_probability)
        under, over = np.zeros_like(self.total), self.total / max(1, self.n)  # W(mean of the values) <= 1, by Jensen
        for _ in range(BISECTIONS):
            middle = 0.5 * (under + over)
            out = self._log_wealth(middle) >= threshold
            under, over = np.where(out, middle, under), np.where(out, over, middle)
        return self.low + under

    def crossing(
        self, values: Float[np.ndarray, "... row"], mean: float | Float[np.ndarray, "..."],
        failure_probability: float | Float[np.ndarray, "..."],
    ) -> Int[np.ndarray, "..."]:  # fmt: skip
        """How many of these values it takes until `mean` is ruled out, looking after each of them; 0 if all do not."""
        threshold, above = _threshold(failure_probability), _above(values, self.low)
        sizes, lifted = np.array(self.bets.sizes), np.asarray(mean, np.float64) - self.low
        price = np.log1p(lifted[..., None, None] * sizes)
        found, state = np.zeros(self.total.shape, np.int64), self
        step = max(1, BLOCK // max(1, self.log_stakes.size))
        for first in range(0, above.shape[-1], step):
            part = above[..., first : first + step]
            logs = np.concatenate([state.log_stakes[..., None, :], np.log1p(part[..., None] * sizes)], axis=-2)
            stakes = np.add.accumulate(logs, axis=-2)[..., 1:, :]
            counts = state.n + np.arange(1, part.shape[-1] + 1)[:, None]
            wealth = np.logaddexp.reduce(stakes - counts * price + np.log(self.bets.shares), axis=-1)
            out = wealth >= np.asarray(threshold)[..., None]
            here = np.where(out.any(axis=-1), first + 1 + out.argmax(axis=-1), 0)
            found = np.where(found == 0, here, found)
            state = replace(state, n=state.n + part.shape[-1], log_stakes=stakes[..., -1, :])
        return found

    def to_json(self) -> dict[str, Any]:
        """The state as plain numbers, which `from_json` takes back to the last bit."""
        return {
            "sizes": list(self.bets.sizes), "shares": list(self.bets.shares), "low": self.low, "n": self.n,
            "total": self.total.tolist(), "log_stakes": self.log_stakes.tolist(),
        }  # fmt: skip

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """The wealth that `to_json` wrote; numbers that cannot be one are refused."""
        bets = Bets(tuple(map(float, state["sizes"])), tuple(map(float, state["shares"])))
        total, stakes = np.array(state["total"], np.float64), np.array(state["log_stakes"], np.float64)
        n, low = state["n"], float(state["low"])
        whole = isinstance(n, int) and n >= 0 and stakes.shape == (*total.shape, len(bets.sizes))
        if not (whole and math.isfinite(low) and np.isfinite(total).all() and np.isfinite(stakes).all()):
            raise ValueError("these numbers are no state of a wealth: one count, one total and one sum per bet")
        return cls(bets, low, n, total, stakes)


def lower_bound(
    values: Float[np.ndarray, "... row"], failure_probability: float, *, low: float, bets: Bets | None = None
) -> Float[np.ndarray, "..."]:
    """A lower bound of the mean of values >= `low`, per stream.

    >>> round(float(lower_bound(np.tile([0.0, 1.0], 500), 0.05, low=0.0)), 2)
    0.45
    """
    above = np.asarray(values, np.float64)
    return Wealth.start(bets, low=low, streams=above.shape[:-1]).add(above).lower(failure_probability)


def interval(
    values: Float[np.ndarray, "... row"], failure_probability: float, *, low: float, high: float,
    bets: Bets | None = None,
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:  # fmt: skip
    """Lower and upper bound of the mean of values in [`low`, `high`], both with half the failure probability."""
    given = np.asarray(values, np.float64)
    if not (given <= high).all():
        raise ValueError(f"values must be at most high={high:g}, got {np.max(given):g}; widen the range")
    below = lower_bound(given, failure_probability / 2.0, low=low, bets=bets)
    return below, high - lower_bound(high - given, failure_probability / 2.0, low=0.0, bets=bets)


def plug_in_lower_bound(
    values: Float[np.ndarray, "... row"], failure_probability: float, *, low: float, scale: float,
    horizon: int | None = None,
) -> Float[np.ndarray, "..."]:  # fmt: skip
    """A lower bound with one bet per row that the rows before it choose (predictable plug-in, their equation 26).

    Row t stakes sqrt(2 log(1 / failure_probability) / (n s_t^2)) with s_t the standard deviation of the values before
    it, and n = `horizon` (all rows, by default). Tighter than a mixture at that n, and wider at others. The values must
    have one common mean given the past: unlike `Wealth.lower`, it says nothing of an average of changing means.
    `scale`, a typical size of a value above `low`, is the guess before the first row.
    """
    above = _above(values, low)
    horizon = max(1, above.shape[-1]) if horizon is None else horizon
    if not (0.0 < scale < math.inf and horizon >= 1):
        raise ValueError(f"scale must be > 0 and horizon >= 1, got scale={scale}, horizon={horizon}")
    threshold = _threshold(failure_probability)
    mean = _before(above, 0.5 * scale)
    variance = _before((above - mean) ** 2, 0.25 * scale**2)
    stake = np.sqrt(2.0 * threshold / (horizon * variance))
    size = stake / (1.0 - np.minimum(stake * mean, 0.75))  # the factor is 1 + stake (y - m) where m is `mean`
    logs = np.log1p(size * above).sum(axis=-1)
    under, over = np.zeros(above.shape[:-1]), np.max(above, axis=-1, initial=0.0)
    for _ in range(BISECTIONS):
        middle = 0.5 * (under + over)
        out = logs - np.log1p(size * middle[..., None]).sum(axis=-1) >= threshold
        under, over = np.where(out, middle, under), np.where(out, over, middle)
    return low + under


def _before(values: Float[np.ndarray, "... row"], guess: float) -> Float[np.ndarray, "... row"]:
    """The mean of the values before each row, with a guess as one more of them."""
    sums = np.cumsum(values, axis=-1) - values
    return (guess + sums) / np.arange(1, values.shape[-1] + 1)


def _above(values: Float[np.ndarray, "... row"], low: float) -> Float[np.ndarray, "... row"]:
    given = np.asarray(values, np.float64)
    if given.ndim == 0:
        raise ValueError(f"values must be an array with the rows on its last axis, got one number, {given}")
    if not np.isfinite(given).all():
        raise ValueError("values must be finite; leave out or mend missing and infinite ones first")
    if (given < low).any():
        raise ValueError(f"values must be at least low={low:g}, got {np.min(given):g}; the bound would not hold")
    return given - low


def _threshold(failure_probability: float | Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    given = np.asarray(failure_probability, np.float64)
    if not ((given > 0.0) & (given < 1.0)).all():
        raise ValueError(f"failure_probability must be in (0, 1), got {failure_probability}; try 0.05")
    return -np.log(given)
