"""What a pass over all rows adds up of those it sees: welfare, value, and curvature for posteriors (`passes.fit`)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbpl.fitting.apply import has_last_layer
from gbpl.passes.rows import Chunk
from gbpl.path.out_of_fold import OutOfFold
from gbpl.path.path import PathFit, _scaled_targets
from gbpl.posterior.curvature import gauss_newton

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Curvatures", "SeenRows", "ValueSums", "judge_fold"]


class SeenRows(NamedTuple):
    """Rows of a chunk as `x`, their folds, outcomes by each table (the judge's first), and policies by entry."""

    chunk: Chunk
    x: Float[np.ndarray, "row feature"]
    fold: Int[np.ndarray, " row"]
    outcomes: list[Float[np.ndarray, "row action"]]
    policies: Float[np.ndarray, "entry row action"]

    @property
    def weight(self) -> Float[np.ndarray, " row"]:
        """Ones where rows have none."""
        weight = self.chunk.weight
        return np.ones(len(self.chunk)) if weight is None else weight.astype(np.float64)


def judge_fold(judge: OutOfFold, number: int, seen: SeenRows) -> None:
    """The rows of one fold in a chunk, for that fold's judge."""
    own, weight = np.flatnonzero(seen.fold == number), seen.chunk.weight
    judge.add(seen.policies[:, own], seen.outcomes[0][own], None if weight is None else weight[own])


class ValueSums:
    """The mean of what rows get, and its standard error sqrt(sum_i w_i^2 (v_i - V)^2 n / (n - 1)) / sum w.

    `level` is taken off the outcomes, so that a large common level costs no digits.
    """

    def __init__(self, level: float) -> None:
        self.level, self.rows, self.sums = level, 0, np.zeros(5)

    def add(self, seen: SeenRows, action: Int[np.ndarray, " row"]) -> None:
        """Rows of a chunk, each of which takes an action."""
        value = seen.outcomes[0][np.arange(len(action)), action].astype(np.float64) - self.level
        weight, square = seen.weight, seen.weight**2
        self.sums += [weight.sum(), weight @ value, square.sum(), square @ value, square @ value**2]
        self.rows += len(action)

    def found(self) -> tuple[float, float]:
        """Mean and standard error."""
        total, first, squares, cross, second = self.sums
        mean, n = first / total, self.rows
        variance = max(second - 2.0 * mean * cross + mean**2 * squares, 0.0) * n / (n - 1)
        return float(mean + self.level), math.sqrt(variance) / total


class Curvatures:
    """Gauss-Newton matrices of the members that count, by all the rows that each has learned from.

    They are what a last-layer posterior needs of the rows. None are made of more than `most` numbers, or of models
    without a last layer. Weights of rows are in units of their mean over those rows, as `PathFit.problems` has them for
    the sample.
    """

    def __init__(self, fit: PathFit, *, most: int) -> None:
        self.fit, size = fit, 0
        if has_last_layer(fit.model):
            size = (fit.params[-1]["weight"].shape[1] + 1) * fit.surrogate.n_raw
        self.problems = fit.problems() if 0 < size**2 <= most else []
        self.sums = [np.zeros((size, size)) for _ in self.problems]
        self.rows, self.weight = np.zeros(len(self.problems)), np.zeros(len(self.problems))

    def add(self, seen: SeenRows) -> None:
        """The rows of a chunk, each for the members of the other folds."""
        if not self.problems:
            return
        weight, shape = seen.weight, (len(seen.outcomes), len(seen.x), -1)
        targets = _scaled_targets(self.fit.surrogate, seen.outcomes, self.fit.scale).reshape(shape)
        for number, (problem, member) in enumerate(zip(self.problems, self.fit.members, strict=True)):
            own = seen.fold != member.label["fold"]
            part = replace(problem, x=seen.x[own], target=targets[member.table][own], weights=weight[own])
            self.sums[number] += gauss_newton(part, one_of_many=True)
            self.rows[number] += own.sum()
            self.weight[number] += weight[own].sum()

    def found(self) -> tuple[Float[np.ndarray, "weight weight"], ...] | None:
        """The sums over `thinning`, so that they are of as few rows as the sample has; None if there are none."""
        parts = zip(self.sums, self.rows, self.weight, strict=True)
        return tuple(total * (rows / (weight * self.fit.thinning)) for total, rows, weight in parts) or None
