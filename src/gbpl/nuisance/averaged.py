"""Models of the log by several learners, averaged by how well they predict rows they have not seen.

Networks, forests and smooth additive regressions are each best for some outcomes, and the log shows which: every row
has predictions by models that never saw it. The average with the least squared error there (for propensities, the
greatest likelihood) costs nothing more and is seldom far from the best of them (Wolpert 1992, Breiman 1996).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations_with_replacement
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import nnls
from sklearn.linear_model import LogisticRegression

from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.standardize import Standardizer
from gbpl.models.splines import spline_curves
from gbpl.trees.grow import Binned, forest_predictions

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    Folds = Sequence[Int[np.ndarray, " row"]]
    Means = tuple[Float[np.ndarray, "row action"], Float[np.ndarray, "fold row action"]]

__all__ = ["additive_means", "averaged_propensity", "convex_weights", "forest_means", "mixture_weights"]

TREES, LEAF, SHARE = 60, 3, 0.5  # of the forests: trees, rows per leaf, share of the features tried at a split
SEEN, SEEN_ROWS = 0.5, 50_000  # share of the rows that a tree of the outcomes sees, and rows that any sees at most
KNOTS = 5
RIDGES = tuple(10.0 ** np.arange(-1.0, 4.5, 0.5))  # pseudo-rows by which the additive model is shrunk
PROPENSITY_LEAF, PROPENSITY_SEEN = 20, 0.632  # as many rows as a bootstrap sample has distinct ones
ROUNDS = 200


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


def _outside(folds: Folds, *left_out: int) -> Int[np.ndarray, " row"]:
    """Rows of the other folds, in the order in which they were dealt."""
    return np.concatenate([fold for number, fold in enumerate(folds) if number not in left_out])


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


def additive_means(feedback: LoggedFeedback, folds: Folds) -> Means:
    """Ridge regressions on spline curves of the features, one per action.

    They need only sums of squares and products for each fold and action: a model that leaves folds out uses the sums
    of the others. The ridge for the predictions of a fold, and for the scores that may not see it, has the least error
    on the other folds, by models that saw neither.
    """
    n, count = len(feedback), len(feedback.actions)
    x = Standardizer.fit(feedback.context, np.arange(n), feedback.weights).apply(feedback.context)
    basis = np.column_stack([np.ones(n), spline_curves(x, KNOTS)]).astype(np.float64)
    y = feedback.outcome
    weight = np.ones(n) if feedback.weights is None else feedback.weights / feedback.weights.mean()
    size = basis.shape[1]
    gram, moment = np.zeros((len(folds), count, size, size)), np.zeros((len(folds), count, size))
    for number, fold in enumerate(folds):
        for action in range(count):
            rows = fold[feedback.action[fold] == action]
            weighted = basis[rows] * weight[rows, None]
            gram[number, action], moment[number, action] = weighted.T @ basis[rows], weighted.T @ y[rows]
    shrunk = np.ones(size)
    shrunk[0] = 1e-9  # the level is not shrunk, except for an action that no row is left of

    def coefficients(left_out: Collection[int], ridge: float) -> Float[np.ndarray, "basis action"]:
        kept = [number for number in range(len(folds)) if number not in left_out]
        matrix = gram[kept].sum(axis=0) + np.diag(ridge * shrunk)
        return np.linalg.solve(matrix, moment[kept].sum(axis=0)[..., None])[..., 0].T

    def error(left_out: Collection[int], number: int, ridge: float) -> float:
        fold = folds[number]
        predictions = basis[fold] @ coefficients(left_out, ridge)
        return float(weight[fold] @ (y[fold] - predictions[np.arange(len(fold)), feedback.action[fold]]) ** 2)

    means, fold_means = np.zeros((n, count)), np.zeros((len(folds), n, count))
    for one, fold in enumerate(folds):
        others = [number for number in range(len(folds)) if number != one]
        ridge = min(RIDGES, key=lambda r, one=one, others=others: sum(error({one, g}, g, r) for g in others))  # type: ignore[misc]
        for other in others:
            fold_means[one, folds[other]] = basis[folds[other]] @ coefficients({one, other}, ridge)
        means[fold] = fold_means[one, fold] = basis[fold] @ coefficients({one}, ridge)
    return means, fold_means


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
        return _two_out(n, count, folds, lambda left_out: predicted(_outside(folds, *left_out)))
    fold_means = np.stack([predicted(_outside(folds, number)) for number in range(len(folds))])
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
            known = _outside(folds, number)
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
