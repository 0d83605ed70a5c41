"""Weighted means over rows of many draws at once, with errors clustered by groups, in bounded memory (section 6).

The mean of v is m = sum_i w_i v_i / sum_i w_i. Its standard error is that of `gbpl.value.estimate.Value`,
sqrt(sum_g T_g^2 G / (G - 1)) / sum_i w_i with T_g = sum_{i in g} w_i (v_i - m) over the G groups. With A_g = sum w v
and W_g = sum w of a group, sum_g T_g^2 = sum A_g^2 - 2 m sum A_g W_g + m^2 sum W_g^2: sums that can be added up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.checks import check_features, check_groups, check_outcomes, check_weights

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["RowSums", "WelfareRows"]


@dataclass(frozen=True, slots=True, eq=False)
class WelfareRows:
    """Rows on which draws are evaluated, as the user gave them; groups are numbers, None where every row is its own."""

    x: Float[np.ndarray, "row feature"]
    outcomes: Float[np.ndarray, "row action"]
    weights: Float[np.ndarray, " row"]
    groups: Int[np.ndarray, " row"] | None

    @classmethod
    def of(cls, X: Any, Y: Any, sample_weight: Any, groups: Any, n_actions: int) -> WelfareRows:
        """Check a user's arrays or frames."""
        x = check_features(X)
        outcomes = check_outcomes(Y, len(x))
        if outcomes.shape[1] != n_actions:
            raise ValueError(f"y has {outcomes.shape[1]} actions, but the policy knows {n_actions}")
        weights = np.ones(len(x)) if sample_weight is None else check_weights(sample_weight, len(x))
        return cls(x, outcomes, weights, None if groups is None else check_groups(groups, len(x)))

    def average(self, values: Float[np.ndarray, " row"]) -> float:
        """Weighted mean of one number per row."""
        return float(np.average(values, weights=self.weights))

    def by_group(self) -> tuple[WelfareRows, Int[np.ndarray, " row"]]:
        """The same rows with those of a group one after the other, and the group of each."""
        if self.groups is None:
            return self, np.arange(len(self.x))
        order = np.argsort(self.groups, kind="stable")
        groups = self.groups[order]
        return WelfareRows(self.x[order], self.outcomes[order], self.weights[order], groups), groups


class RowSums:
    """Adds up blocks of rows; those of a group must follow each other."""

    def __init__(self, draws: int) -> None:
        self.total, self.squares, self.products = np.zeros((3, draws))
        self.weight = self.weight_squares = 0.0
        self.groups = 0
        self._open: tuple[int, Float[np.ndarray, " draw"], float] | None = None

    def add(
        self, values: Float[np.ndarray, "draw row"], weights: Float[np.ndarray, " row"], groups: Int[np.ndarray, " row"]
    ) -> None:
        """Add a block; its last group stays open, as the next block may go on with it."""
        starts = np.flatnonzero(np.diff(groups, prepend=groups[0] - 1))
        sums = np.add.reduceat(np.asarray(values, np.float64) * weights, starts, axis=1)
        sizes = np.add.reduceat(np.asarray(weights, np.float64), starts)
        if self._open is not None:
            group, before, size = self._open
            if group == groups[0]:
                sums[:, 0] += before
                sizes[0] += size
            else:
                self._close(before[:, None], np.array([size]))
        self._close(sums[:, :-1], sizes[:-1])
        self._open = int(groups[-1]), sums[:, -1], float(sizes[-1])

    def _close(self, sums: Float[np.ndarray, "draw group"], sizes: Float[np.ndarray, " group"]) -> None:
        self.total += sums.sum(axis=1)
        self.squares += np.sum(sums**2, axis=1)
        self.products += sums @ sizes
        self.weight += float(sizes.sum())
        self.weight_squares += float(np.sum(sizes**2))
        self.groups += int(np.count_nonzero(sizes))  # groups without weight do not count

    def results(self) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " draw"]]:
        """Mean of each draw, and its standard error (NaN for a single row or group)."""
        if self._open is not None:
            _, sums, size = self._open
            self._close(sums[:, None], np.array([size]))
            self._open = None
        mean = self.total / self.weight
        if self.groups < 2:
            return mean, np.full(len(mean), np.nan)
        terms = np.maximum(self.squares - 2.0 * mean * self.products + mean**2 * self.weight_squares, 0.0)
        return mean, np.sqrt(terms * self.groups / (self.groups - 1)) / self.weight
