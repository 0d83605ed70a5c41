"""Statistics of one pass over a source: moments, how often each action was taken, and samples to keep."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.feedback.standardize import CONSTANT, Standardizer
from gbpl.passes.rows import Chunk, RowSource, Sampling, sample_numbers
from gbpl.runtime.pipeline import ahead

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Moments", "RowStatistics", "read_statistics"]

MOST_HELD = 2  # times as many rows as asked for may be kept where groups are held out, some of which may be large


class Moments:
    """Weighted mean and standard deviation of each column, added up part by part without losing digits.

    Parts with weights W_a, W_b, means m_a, m_b and sums of squares S_a, S_b around them have together the mean
    m_a + (m_b - m_a) W_b / W and the sum S_a + S_b + (m_b - m_a)^2 W_a W_b / W (Chan, Golub and LeVeque 1983).
    """

    def __init__(self) -> None:
        self.weight = 0.0
        self.mean: Float[np.ndarray, " column"] = np.zeros(0)
        self.squares: Float[np.ndarray, " column"] = np.zeros(0)

    def add(self, values: Float[np.ndarray, "row column"], weight: Float[np.ndarray, " row"] | None) -> None:
        values = np.asarray(values, np.float64)
        counted = np.ones(len(values)) if weight is None else np.asarray(weight, np.float64)
        total = float(counted.sum())
        if total == 0.0:
            return
        mean = counted @ values / total
        squares = counted @ (values - mean) ** 2
        if self.weight == 0.0:
            self.mean, self.squares = np.zeros_like(mean), np.zeros_like(squares)
        both, apart = self.weight + total, mean - self.mean
        self.squares = self.squares + squares + apart**2 * (self.weight * total / both)
        self.mean = self.mean + apart * (total / both)
        self.weight = both

    @property
    def sd(self) -> Float[np.ndarray, " column"]:
        """Standard deviation of the rows seen, without a correction for sampling."""
        return np.sqrt(self.squares / self.weight)


@dataclass(frozen=True, slots=True, eq=False)
class RowStatistics:
    """Of all rows: moments of the features, and with logged feedback those of the outcome and the actions by fold.

    `level` and `spread` are the mean and standard deviation of the outcome, the latter zero where it is constant;
    `sample` and `grown` have some of the rows each, sorted by number, none of them in both, and `weight` is the sum of
    all weights.
    """

    standardizer: Standardizer
    sample: Chunk
    grown: Chunk
    sampling: Sampling
    weight: float
    level: float = 0.0
    spread: float = 0.0
    taken: Int[np.ndarray, "fold action"] | None = None


def read_statistics(source: RowSource, *, rows: int, sample: int, folds: int, seed: int) -> RowStatistics:
    """Read every row once, `rows` at a time, and keep `sample` of them, and as many again.

    Every fold needs every action: where one is missing, this raises before anything is fitted.
    """
    sampling = Sampling.of(source.n_rows, sample, seed=seed)
    wanted = sample_numbers(source.n_rows, 2 * sample, seed=seed)
    features, outcome = Moments(), Moments()
    held, grown = [], []
    taken = np.zeros((folds, len(source.actions)), np.int64)
    seen = kept = 0
    for chunk in ahead(source.chunks(rows, None)):
        seen += len(chunk)
        features.add(chunk.x, chunk.weight)
        if chunk.outcome is not None and chunk.action is not None:
            outcome.add(chunk.outcome[:, None], None)
            np.add.at(taken, (chunk.folds(folds, seed=seed), chunk.action), 1)
        place = np.minimum(np.searchsorted(wanted, chunk.number), len(wanted) - 1)
        own = sampling.held(chunk)
        held.append(chunk.take(np.flatnonzero(own)[: max(MOST_HELD * sample - kept, 0)]))
        grown.append(chunk.take((wanted[place] == chunk.number) & ~own))
        kept += len(held[-1])
    if seen != source.n_rows:
        raise ValueError(f"the source has {source.n_rows} rows, and a pass over it gave {seen}; has a file changed?")
    both = _sorted(held), _sorted(grown)
    for part in both:
        _check_folds(part, folds, seed)
    standardizer = Standardizer.of_moments(features.mean, features.sd)
    if not source.logged:
        return RowStatistics(standardizer, *both, sampling, features.weight)
    _check_taken(taken, source)
    level, spread = float(outcome.mean[0]), float(outcome.sd[0])
    spread = spread if spread > CONSTANT * abs(level) else 0.0
    return RowStatistics(standardizer, *both, sampling, features.weight, level, spread, taken)


def _sorted(parts: list[Chunk]) -> Chunk:
    joined = Chunk.join(parts)
    return joined.take(np.argsort(joined.number))


def _check_folds(part: Chunk, folds: int, seed: int) -> None:
    counts = np.bincount(part.folds(folds, seed=seed), minlength=folds)
    if counts.min() == 0:
        raise ValueError(
            f"a sample of {len(part)} rows has none of fold {int(np.argmin(counts))} of {folds}, because groups are "
            "kept together and some are large; fit in memory, or use fewer folds (committee)"
        )


def _check_taken(taken: Int[np.ndarray, "fold action"], source: RowSource) -> None:
    fold, action = np.unravel_index(int(np.argmin(taken)), taken.shape)
    if taken[fold, action] == 0:
        label, count = source.actions.tolist()[action], int(taken[:, action].sum())
        raise ValueError(
            f"fold {fold} of {len(taken)} has no row with action {label!r}, which is taken in {count} of "
            f"{source.n_rows} rows; use fewer folds (committee), or leave the action out"
        )
