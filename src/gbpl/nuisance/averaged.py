"""Models of the log by several learners, averaged by how well they predict rows they have not seen.

Networks, forests and smooth additive regressions are each best for some outcomes, and the log shows which: every row
has predictions by models that never saw it. The average with the least squared error there (for propensities, the
greatest likelihood) costs nothing more and is seldom far from the best of them (Wolpert 1992, Breiman 1996).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import combinations, combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.optimize import nnls
from sklearn.linear_model import LogisticRegression

from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.members import outside
from gbpl.models.splines import spline_curves
from gbpl.runtime.threads import few_threads, in_threads
from gbpl.trees.grow import Binned, forest_predictions

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    Folds = Sequence[Int[np.ndarray, " row"]]
    Means = tuple[Float[np.ndarray, "row action"], Float[np.ndarray, "fold row action"]]

__all__ = [
    "BENDS", "KNOTS", "PROPENSITY_LEAF", "RIDGES", "additive_means", "averaged_propensity", "convex_weights",
    "curve_sizes", "earned_weights", "forest_means", "mixture_weights",
]  # fmt: skip

TREES, LEAF, SHARE = 60, 3, 0.5  # of the forests: trees, rows per leaf, share of the features tried at a split
SEEN, SEEN_ROWS = 0.5, 50_000  # share of the rows that a tree of the outcomes sees, and rows that any sees at most
KNOTS = 5
RIDGES = tuple(10.0 ** np.arange(-1.0, 4.5, 0.5))  # pseudo-rows by which the additive model is shrunk
BENDS = (1.0, 25.0)  # ridge of what bends, over that of the lines
PROPENSITY_LEAF, PROPENSITY_SEEN = 20, 0.632  # as many rows as a bootstrap sample has distinct ones
ROUNDS = 200
EARNED = 2.0  # standard errors by which a learner must lower the error of the average


def convex_weights(
    predictions: Float[np.ndarray, "row learner"],
    outcome: Float[np.ndarray, " row"],
    weights: Float[np.ndarray, " row"] | None,
) -> Float[np.ndarray, " learner"]:
    """The c >= 0 with sum one that minimise sum_i w_i (y_i - sum_m c_m predictions_im)^2.

    >>> convex_weights(np.array([[0.0, 2.0], [1.0, 3.0]]), np.array([0.5, 1.5]), None).round(6).tolist()
    [0.75, 0.25]
    """
    root = np.ones(len(outcome)) if weights is None else np.sqrt(weights)
    # With sum one, the residual of the average is the average of the residuals.
    off = (predictions - outcome[:, None]) * root[:, None]
    scale = np.sqrt(np.sum(off**2)) or 1.0
    summing = 1e3 * np.ones(predictions.shape[1])
    solution, _ = nnls(np.vstack([off / scale, summing]), np.append(np.zeros(len(off)), 1e3))
    return solution / solution.sum()


def earned_weights(
    predictions: Float[np.ndarray, "row learner"],
    outcome: Float[np.ndarray, " row"],
    weights: Float[np.ndarray, " row"] | None,
    optional: int,
    *,
    least: float = EARNED,
) -> Float[np.ndarray, " learner"]:
    """The convex weights, with one learner left out unless it earns its place.

    It does where the average with it has the lower squared error by more than `least` standard errors of the rows: one
    learner more costs something wherever it brings nothing, because weights follow noise.
    """
    others = np.delete(np.arange(predictions.shape[1]), optional)
    every, fewer = convex_weights(predictions, outcome, weights), np.zeros(predictions.shape[1])
    fewer[others] = convex_weights(predictions[:, others], outcome, weights)
    row = np.ones(len(outcome)) if weights is None else weights / weights.mean()
    saved = row * ((outcome - predictions @ fewer) ** 2 - (outcome - predictions @ every) ** 2)
    return every if saved.mean() > least * saved.std() / np.sqrt(len(saved)) else fewer


def mixture_weights(
    likelihood: Float[np.ndarray, "row learner"], weights: Float[np.ndarray, " row"] | None
) -> Float[np.ndarray, " learner"]:
    """The c >= 0 with sum one that maximise sum_i w_i log sum_m c_m p_im, by expectation maximisation."""
    row = np.full(len(likelihood), 1.0 / len(likelihood)) if weights is None else weights / weights.sum()
    shares = np.full(likelihood.shape[1], 1.0 / likelihood.shape[1])
    for _ in range(ROUNDS):
        joint = likelihood * shares
        shares = row @ (joint / np.maximum(joint.sum(axis=1, keepdims=True), 1e-300))
    return shares / shares.sum()


def _two_out(
    n: int, count: int, folds: Folds, predicted: Callable[[Sequence[int]], Float[np.ndarray, "row action"]]
) -> Means:
    """Means of each fold by a model of the others; and, for each fold, means of the other folds by models of neither.

    `predicted(left_out)` gives the means of every row by a model that saw none of the folds left out.
    """
    means, fold_means = np.zeros((n, count)), np.zeros((len(folds), n, count))
    for one, other in combinations_with_replacement(range(len(folds)), 2):
        predictions = predicted(sorted({one, other}))
        fold_means[one, folds[other]] = predictions[folds[other]]
        fold_means[other, folds[one]] = predictions[folds[one]]
        if one == other:
            means[folds[one]] = predictions[folds[one]]
    return means, fold_means


@dataclass(frozen=True, slots=True, eq=False)
class _Ridges:
    """Ridge regressions of one action that leave folds out, on `basis` and a level that is not shrunk.

    With c the rows centred at their weighted mean, the coefficients are (c'Wc + r)^-1 c'Wy. They come from sums for
    each fold; or, where there are fewer rows than functions, as c'(cc' + r/W)^-1 y, whose matrix has the order of the
    rows (`grams` is then empty).
    """

    basis: Float[np.ndarray, "row function"]
    y: Float[np.ndarray, " row"]
    weight: Float[np.ndarray, " row"]
    fold: Int[np.ndarray, " row"]
    grams: Float[np.ndarray, "fold function_and_one function_and_one_and_y"]

    @classmethod
    def of(cls, basis: np.ndarray, y: np.ndarray, weight: np.ndarray, fold: np.ndarray, folds: int) -> _Ridges:
        size = basis.shape[1] + 1
        if len(basis) < size:
            return cls(basis, y, weight, fold, np.empty((0, 0, 0)))
        grams = np.empty((folds, size, size + 1))
        for number in range(folds):
            own = fold == number
            rows = np.column_stack([np.ones(np.count_nonzero(own)), basis[own]])
            grams[number] = (rows * weight[own, None]).T @ np.column_stack([rows, y[own]])
        return cls(basis, y, weight, fold, grams)

    def coefficients(
        self, left_out: Collection[int], ridges: Sequence[float]
    ) -> Float[np.ndarray, "ridge one_and_function"]:
        """Level and coefficients at each ridge; zeros for an action that no row is left of."""
        kept = ~np.isin(self.fold, list(left_out))
        made = np.zeros((len(ridges), self.basis.shape[1] + 1))
        total = float(self.weight[kept].sum())
        if total == 0.0:
            return made
        if len(self.grams):
            gram = self.grams[~np.isin(np.arange(len(self.grams)), list(left_out))].sum(axis=0)
            middle, level = gram[0, 1:-1] / total, gram[0, -1] / total
            matrix, right = gram[1:, 1:-1] - total * np.outer(middle, middle), gram[1:, -1] - total * level * middle
            turn, shrunk = None, np.ones(len(matrix))
        else:
            kept &= self.weight > 0.0
            rows, weight = self.basis[kept], self.weight[kept]
            middle, level = weight @ rows / total, weight @ self.y[kept] / total
            turn = rows - middle
            matrix, right, shrunk = turn @ turn.T, self.y[kept] - level, 1.0 / weight
        diagonal = np.diag(matrix).copy()
        with few_threads(len(matrix)):
            for number, ridge in enumerate(ridges):
                np.fill_diagonal(matrix, diagonal + ridge * shrunk)
                solved = scipy.linalg.solve(matrix, right, assume_a="pos", check_finite=False)
                made[number, 1:] = solved if turn is None else solved @ turn
        made[:, 0] = level - made[:, 1:] @ middle
        return made


def additive_means(feedback: LoggedFeedback, folds: Folds) -> Means:
    """Ridge regressions on spline curves of the features, one per action.

    The ridge for the predictions of a fold, and for the scores that may not see it, has the least error on the other
    folds, by models that saw neither, and so has how much larger it is for what bends: with few rows lines are enough.
    """
    n, count, y = len(feedback), len(feedback.actions), feedback.outcome
    x = Standardizer.fit(feedback.context, np.arange(n), feedback.weights).apply(feedback.context)
    basis = spline_curves(x, KNOTS).astype(np.float64)
    weight = np.ones(n) if feedback.weights is None else feedback.weights / feedback.weights.mean()
    dealt = np.full(n, -1)
    for number, fold in enumerate(folds):
        dealt[fold] = number
    by_action = [np.flatnonzero((feedback.action == action) & (dealt >= 0)) for action in range(count)]
    pairs, sizes = list(combinations(range(len(folds)), 2)), curve_sizes(x.shape[1])
    by_pair = np.zeros((len(pairs), len(BENDS), len(RIDGES), count, basis.shape[1] + 1))
    alone = np.zeros((len(folds), count, basis.shape[1] + 1))
    errors = np.zeros((len(folds), len(BENDS), len(RIDGES)))

    def models(rows: Int[np.ndarray, " row"], size: Float[np.ndarray, " function"]) -> _Ridges:
        return _Ridges.of(basis[rows] * size, y[rows], weight[rows], dealt[rows], len(folds))

    for action, rows in enumerate(by_action):
        for bend, size in enumerate(sizes):
            own = models(rows, size)
            for place, pair in enumerate(pairs):
                found = own.coefficients(pair, RIDGES)
                found[:, 1:] *= size
                by_pair[place, bend, :, action] = found
                for left, judged in (pair, pair[::-1]):  # the error on one of the two, for the ridge of the other
                    inside = rows[dealt[rows] == judged]
                    predicted = found[:, :1] + found[:, 1:] @ basis[inside].T
                    errors[left, bend] += (y[inside] - predicted) ** 2 @ weight[inside]
    best = [divmod(int(own.argmin()), len(RIDGES)) for own in errors]
    for action, rows in enumerate(by_action):
        made = {bend: models(rows, sizes[bend]) for bend in {bend for bend, _ in best}}
        for number, (bend, ridge) in enumerate(best):
            alone[number, action] = made[bend].coefficients({number}, [RIDGES[ridge]])[0]
            alone[number, action, 1:] *= sizes[bend]
    means, fold_means = np.zeros((n, count)), np.zeros((len(folds), n, count))

    def predictions(fold: Int[np.ndarray, " row"], of: Float[np.ndarray, "action one_and_function"]) -> np.ndarray:
        return of[:, 0] + basis[fold] @ of[:, 1:].T

    for place, (one, other) in enumerate(pairs):
        fold_means[one, folds[other]] = predictions(folds[other], by_pair[place, *best[one]])
        fold_means[other, folds[one]] = predictions(folds[one], by_pair[place, *best[other]])
    for number, fold in enumerate(folds):
        means[fold] = fold_means[number, fold] = predictions(fold, alone[number])
    return means, fold_means


def curve_sizes(features: int) -> Float[np.ndarray, "bend function"]:
    """What lines and curves are multiplied by: a ridge of b times as much is that of curves over the root of b."""
    return np.array([np.tile([1.0] + [bend**-0.5] * (KNOTS - 2), features) for bend in BENDS])


def forest_means(feedback: LoggedFeedback, folds: Folds, *, seed: int) -> Means:
    """Random forests, one per action.

    A forest of the rows outside a fold predicts that fold, and also the rows it was grown on, by the trees that did not
    see them (out of bag); where rows come in groups, forests that leave two folds out predict those instead.
    """
    n, count = len(feedback), len(feedback.actions)
    x = Standardizer.fit(feedback.context, np.arange(n), feedback.weights).apply(feedback.context)
    binned, target = Binned.of(x), feedback.outcome[:, None]

    def predicted(rows: Int[np.ndarray, " row"]) -> Float[np.ndarray, "row action"]:
        by_action = [rows[feedback.action[rows] == action] for action in range(count)]
        return np.column_stack(
            [
                forest_predictions(
                    binned, target, own, trees=TREES, bag=min(SEEN, SEEN_ROWS / len(own)), min_leaf=LEAF,
                    max_features=SHARE, seed=seed, weights=feedback.weights,
                )
                for own in by_action
            ]
        )  # fmt: skip

    if feedback.groups is not None:
        return _two_out(n, count, folds, lambda left_out: predicted(outside(folds, *left_out)))
    fold_means = np.empty((len(folds), n, count))
    for number, made in enumerate(in_threads(predicted, [outside(folds, number) for number in range(len(folds))])):
        fold_means[number] = made
    means = np.empty((n, count))
    for number, fold in enumerate(folds):
        means[fold] = fold_means[number, fold]
    return means, fold_means


def averaged_propensity(
    feedback: LoggedFeedback, dealt: Sequence[Folds], *, seed: int
) -> tuple[Float[np.ndarray, "row action"], dict[str, float]]:
    """Logistic regression and a forest, each row by models of other folds, mixed by likelihood; and their shares."""
    n, count = len(feedback), len(feedback.actions)
    x = Standardizer.fit(feedback.context, np.arange(n)).apply(feedback.context)
    binned, taken = Binned.of(x), np.eye(count)[feedback.action]
    tables = {"logistic regression": np.zeros((n, count)), "forest": np.zeros((n, count))}
    for folds in dealt:
        for number, fold in enumerate(folds):
            known = outside(folds, number)
            weights = None if feedback.weights is None else feedback.weights[known]
            logistic = LogisticRegression(max_iter=1000).fit(x[known], feedback.action[known], sample_weight=weights)
            forest = forest_predictions(
                binned, taken, known, trees=TREES, bag=min(PROPENSITY_SEEN, SEEN_ROWS / n), min_leaf=PROPENSITY_LEAF,
                max_features=SHARE, seed=seed, weights=feedback.weights,
            )  # fmt: skip
            tables["logistic regression"][fold] += logistic.predict_proba(x[fold]) / len(dealt)
            tables["forest"][fold] += forest[fold] / len(dealt)
    likelihood = np.column_stack([table[np.arange(n), feedback.action] for table in tables.values()])
    shares = mixture_weights(likelihood, feedback.weights)
    mixed = sum(share * table for share, table in zip(shares, tables.values(), strict=True))
    return np.asarray(mixed), dict(zip(tables, shares.tolist(), strict=True))
