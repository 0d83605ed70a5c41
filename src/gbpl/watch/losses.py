"""Whether a promoted policy has begun to lose: a wealth that begins anew every hundred rows.

A policy that gained for long and then loses is even on average for as long again, so averages say so late. Here many
gamblers, each with a share of one wealth, begin to bet that the mean is above m at rows 1, 101, 201, ... If at every
row the mean given the past is at most m, all their wealth together is expected not to grow, so that it reaches
1 / failure_probability with no more than that probability, ever (Ville's inequality). Gambler j has the share
1 / log2(j + 1) - 1 / log2(j + 2), which sum to one. The sum over gamblers of what they have is kept per bet:

    R_n = exp(G_n) sum_j share_j exp(-G_(start of j)),   G_n = sum_(i <= n) log((1 + c y_i) / (1 + c m)).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gbpl.certificates.betting import Bets

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Losses"]

EVERY = 100  # rows between two beginnings
BETS = Bets.grid()


@dataclass(frozen=True, slots=True, eq=False)
class Losses:
    """Evidence that values, none negative, have had a mean above `mean` since some row; `n` rows are counted."""

    mean: float
    n: int
    log_growth: Float[np.ndarray, " bet"]
    log_pool: Float[np.ndarray, " bet"]

    @classmethod
    def start(cls, mean: float) -> Self:
        return cls(mean, 0, np.zeros(len(BETS.sizes)), np.full(len(BETS.sizes), -np.inf))

    def add(self, values: Float[np.ndarray, " row"], failure_probability: float) -> tuple[Self, int]:
        """With more values, and how many of them it took until the evidence was enough; 0 if they did not do."""
        if not len(values):
            return self, 0
        sizes, rows = np.array(BETS.sizes), np.arange(self.n, self.n + len(values))
        steps = np.log1p(values[:, None] * sizes) - np.log1p(self.mean * sizes)
        growth = np.add.accumulate(np.concatenate([self.log_growth[None], steps]))
        begins = np.where(rows % EVERY == 0, _log_share(rows // EVERY + 1), -np.inf)[:, None] - growth[:-1]
        pool = np.logaddexp.accumulate(np.concatenate([self.log_pool[None], begins]))[1:]
        evidence = np.logaddexp.reduce(growth[1:] + pool + np.log(BETS.shares), axis=1)
        enough = evidence >= -math.log(failure_probability)
        found = int(enough.argmax()) + 1 if enough.any() else 0
        return type(self)(self.mean, self.n + len(values), growth[-1], pool[-1]), found

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; the pool is finite from the first value on."""
        pool = self.log_pool.tolist() if self.n else None
        return {"mean": self.mean, "n": self.n, "log_growth": self.log_growth.tolist(), "log_pool": pool}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        if not state["n"]:
            return cls.start(float(state["mean"]))
        growth, pool = (np.array(state[name], np.float64) for name in ("log_growth", "log_pool"))
        return cls(float(state["mean"]), int(state["n"]), growth, pool)


def _log_share(number: np.ndarray) -> Float[np.ndarray, " row"]:
    share: np.ndarray = 1.0 / np.log2(number + 1.0) - 1.0 / np.log2(number + 2.0)
    return np.log(share)
