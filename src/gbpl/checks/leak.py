"""Leaks: columns that copy the outcome or the action, which no policy will know when it decides.

Each column alone predicts the outcome, by a tree out of fold or by a line. Good features explain a part of it; a
column that explains nearly all is usually the outcome in other units. This is a rule and not a test: it has no level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import rankdata
from sklearn.tree import DecisionTreeRegressor

from gbpl.checks.finding import Finding
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.logged import LoggedFeedback
from gbpl.report.numbers import percent

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["LEAK", "check_leak", "explained", "most_explained"]

LEAK = "copied outcome"
COPY, SAME_ORDER = 0.98, 0.99  # share of the variance, and rank correlation, from which a column is a copy
MUCH, MUCH_OF_TWO = 0.85, 0.5  # share of the variance that is doubtful; the second for outcomes of two values
OF_ACTION = 0.9  # share of the variance of an action
MOST_ROWS = 10_000
LEAF = 5
BINS = 50  # of a quick look at a column
WORTH_A_LOOK = 0.8  # of what is doubtful, in the quick look, from which a column gets a tree


def explained(
    column: Float[np.ndarray, " row"], targets: Float[np.ndarray, "row target"]
) -> Float[np.ndarray, " target"]:
    """Share of the variance of each target that a column explains: by a tree, each half by a tree of the other, or by a
    line, which follows far tails better."""
    x, half = column[:, None], np.arange(len(column)) % 2 == 0
    predicted = np.empty(targets.shape)
    for known in (half, ~half):
        tree = DecisionTreeRegressor(min_samples_leaf=LEAF, random_state=0).fit(x[known], targets[known])
        predicted[~known] = tree.predict(x[~known]).reshape(-1, targets.shape[1])
    centred, moved = targets - targets.mean(axis=0), column - column.mean()
    total, size = np.sum(centred**2, axis=0), np.sum(moved**2)
    total = np.where(total > 0.0, total, np.inf)
    by_tree = 1.0 - np.sum((targets - predicted) ** 2, axis=0) / total
    by_line = (moved @ centred) ** 2 / (total * (size if size > 0.0 else np.inf))
    made: Float[np.ndarray, " target"] = np.where(np.isfinite(total), np.maximum(by_tree, by_line), 0.0)
    return made


def _same_order(x: Float[np.ndarray, "row column"], targets: Float[np.ndarray, "row target"]) -> np.ndarray:
    """Absolute rank correlation of each column with each target."""

    def standardised(values: np.ndarray) -> np.ndarray:
        ranks = rankdata(values, axis=0)
        ranks = ranks - ranks.mean(axis=0)
        size = np.sqrt(np.sum(ranks**2, axis=0))
        return ranks / np.where(size > 0.0, size, np.inf)

    made: np.ndarray = np.abs(standardised(x).T @ standardised(targets))
    return made


def _targets(feedback: LoggedFeedback | FullFeedback) -> Float[np.ndarray, "row target"]:
    """The outcome; with full feedback that of each action, and differences to the first."""
    if isinstance(feedback, LoggedFeedback):
        return feedback.outcome[:, None]
    outcomes = feedback.outcomes
    return np.hstack([outcomes, outcomes[:, 1:] - outcomes[:, :1]])


def _quickly(x: Float[np.ndarray, "row column"], target: Float[np.ndarray, " row"]) -> Float[np.ndarray, " column"]:
    """Share of the variance of the target between bins of the ranks of each column, or along a line: hardly too low."""
    n, centred = len(target), target - target.mean()
    total = float(np.sum(centred**2))
    if total == 0.0:
        return np.zeros(x.shape[1])
    shares = []
    for column in x.T:
        bins = ((rankdata(column) - 0.5) * min(BINS, n // LEAF + 1) / n).astype(np.int64)
        rows = np.maximum(np.bincount(bins), 1)
        moved = column - column.mean()
        size = float(np.sum(moved**2))
        line = float(moved @ centred) ** 2 / size if size > 0.0 else 0.0
        shares.append(max(float(np.sum(np.bincount(bins, centred) ** 2 / rows)), line) / total)
    return np.array(shares)


def most_explained(log: LoggedFeedback, *, seed: int = 0) -> tuple[Float[np.ndarray, " column"], float]:
    """Share of the outcome that each column explains, 0 where that is far from suspicious, and what is doubtful."""
    log = log.take(np.random.default_rng([seed, 29]).permutation(len(log))[:MOST_ROWS])
    much = MUCH_OF_TWO if len(np.unique(log.outcome)) <= 2 else MUCH
    shares = _quickly(log.context, log.outcome)
    for j in np.flatnonzero(shares >= WORTH_A_LOOK * much):
        shares[j] = explained(log.context[:, j], log.outcome[:, None])[0]
    return np.where(shares >= WORTH_A_LOOK * much, shares, 0.0), much


def check_leak(feedback: LoggedFeedback | FullFeedback, names: Sequence[str], *, seed: int = 0) -> Finding:
    """Failed if a column is a copy of the outcome or of the action; `names` are of features and controls."""
    order = np.random.default_rng([seed, 29]).permutation(len(feedback))[:MOST_ROWS]
    feedback = feedback.take(order)
    x = feedback.context if isinstance(feedback, LoggedFeedback) else feedback.x
    targets = _targets(feedback)
    shares = np.array([explained(column, targets).max() for column in x.T])
    ranked = _same_order(x, targets).max(axis=1)
    of_action = np.zeros(len(shares))
    if isinstance(feedback, LoggedFeedback):
        taken = np.eye(len(feedback.actions))[feedback.action]
        of_action = np.array([explained(column, taken).min() for column in x.T])
    top = int(np.argmax(shares))
    details: dict[str, Any] = {"column": names[top], "explains": float(shares[top])}
    if of_action.max() >= OF_ACTION:
        worst = int(np.argmax(of_action))
        sentence = (
            f"{names[worst]!r} copies the action: alone it explains {percent(of_action[worst])} of it. Leave it out of "
            "the features and controls."
        )
        return Finding(LEAK, "failed", sentence, float(of_action[worst]), None, details | {"column": names[worst]})
    two = len(np.unique(targets[:, 0])) <= 2
    much = MUCH_OF_TWO if two else MUCH
    copies = np.flatnonzero((shares >= COPY) | (ranked >= SAME_ORDER))
    if len(copies):
        first = int(copies[np.argmax(shares[copies])])
        listed = ", ".join(repr(names[j]) for j in copies[:3])
        sentence = (
            f"{listed} {'copies' if len(copies) == 1 else 'copy'} the outcome: {names[first]!r} alone explains "
            f"{percent(shares[first])} of it, with a rank correlation of {ranked[first]:.3f}. Leave it out: it will "
            "not be known when the policy decides."
        )
        return Finding(LEAK, "failed", sentence, float(shares[first]), None, details | {"column": names[first]})
    if shares[top] >= much:
        sentence = (
            f"{names[top]!r} alone explains {percent(shares[top])} of the outcome, more than {percent(much)}. If it is "
            "not known before the decision, leave it out."
        )
        return Finding(LEAK, "doubt", sentence, float(shares[top]), None, details)
    best = percent(max(float(shares[top]), 0.0))
    sentence = f"No column copies the outcome: the best, {names[top]!r}, explains {best} of it alone."
    return Finding(LEAK, "passed", sentence, float(shares[top]), None, details)
