"""Real features with made outcomes of every action (UCI and OpenML experiments)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from gbpl.datasets.samples import SHIFT_INDEX, Sample, check_index_seed, check_whole, stream

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["SemiSyntheticDesign"]


def _standardized(table: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
    """Columns of mean zero and standard deviation one; a constant one is zero, and not its rounding made large."""
    varies = table.max(axis=0) > table.min(axis=0)
    standardized = np.zeros(table.shape)
    standardized[:, varies] = (table[:, varies] - table[:, varies].mean(axis=0)) / table[:, varies].std(axis=0)
    return standardized


@dataclass(frozen=True, slots=True, eq=False)
class SemiSyntheticDesign:
    """Real features and a real response, made into outcomes of every action (the paper's UCI experiments).

    With the columns of x and y standardized (constant ones are zero),

        Y(a) = y + tanh(x'w_a / sqrt(d) + c_a)

    with w_a standard normal and c_a normal with standard deviation 0.1, drawn from `index_seed`; the first ones stay
    when `n_actions` grows. The text gives neither distribution: these are inferred from its tables (welfare 0.35 and
    0.36, variance over trials 0.023 and 0.030, for yacht and energy_efficiency). Over draws of w, c and the test part
    the best rule gets 0.35 and 0.36 with variances 0.030 and 0.024. w_a of unit norm would give 0.21 and 0.19, and c_a
    with standard deviation 0.5 more than twice the variance; no c at all would fit as well.

    The rows are the population: a sample is all of them or some of them, never a new one, and nothing but their order
    is random. All actions share a row's response, so the gap between two actions has no noise, and the response counts
    as known: `outcome_mean` of a sample is its `outcomes`.

    >>> x, y = np.random.default_rng(0).standard_normal((50, 3)), np.arange(50.0)
    >>> design = SemiSyntheticDesign(x, y)
    >>> design.sample(seed=0).outcomes.shape, design.sample(20, seed=0).outcomes.shape
    ((50, 2), (20, 2))
    """

    x: Float[np.ndarray, "row feature"] = field(repr=False)
    y: Float[np.ndarray, " row"] = field(repr=False)
    n_actions: int = 2
    index_seed: int = 0
    _x: Float[np.ndarray, "row feature"] = field(init=False, repr=False)
    _y: Float[np.ndarray, "row 1"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Not at the top: these bring JAX and scikit-learn, which no other design or data set needs.
        from gbpl.feedback.checks import check_column, check_features

        check_whole("n_actions", self.n_actions, 2, "the paper has 2")
        check_index_seed(self.index_seed)
        x = check_features(self.x, min_rows=2, name="x")
        y = check_column(self.y, len(x), "y", "the response that all actions share")
        object.__setattr__(self, "_x", _standardized(np.asarray(x, np.float64)))
        object.__setattr__(self, "_y", _standardized(y[:, None]))

    @property
    def n_rows(self) -> int:
        """Rows of the table, the most a sample can have."""
        return len(self._x)

    @property
    def n_features(self) -> int:
        """Columns of the table."""
        return self._x.shape[1]

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """tanh(x'w_a / sqrt(d) + c_a) at standardized features: the means without the response, which is not in x.

        Gaps between actions are those of the outcomes; a sample's `outcome_mean` has the response of its rows added.
        """
        drawn = stream(self.index_seed, SHIFT_INDEX).standard_normal((self.n_actions, self.n_features + 1))
        return np.tanh(x @ drawn[:, :-1].T / math.sqrt(self.n_features) + 0.1 * drawn[:, -1])

    def sample(self, n: int | None = None, *, seed: int) -> Sample:
        """All rows in random order, or the first n of them; x is standardized."""
        if n is not None:
            check_whole("n", n, 1, "leave it out for all rows")
            if n > self.n_rows:
                raise ValueError(f"n must be at most the {self.n_rows} rows of the table, got {n}; try {self.n_rows}")
        rows = np.random.default_rng(seed).permutation(self.n_rows)[:n]
        outcomes = self._y[rows] + self.outcome_mean(self._x[rows])
        return Sample(self._x[rows], outcomes, outcomes.copy())

    def optimal_welfare(self) -> float:
        """The mean over the rows of max_a Y(a), exactly; their responses have mean zero."""
        return float(self.outcome_mean(self._x).max(axis=1).mean())

    def oracle_welfare(self) -> float:
        """The same as `optimal_welfare`: outcomes have no noise but the response, which all actions share."""
        return self.optimal_welfare()

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """The mean over the rows of Y(a), exactly."""
        return self.outcome_mean(self._x).mean(axis=0)
