"""scikit-learn: the action with the largest regression prediction, one regression an action.

A 0/1 outcome is a regression too: its mean is what is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from protocol import Problem, serve
from sklearn.base import RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

MOST_ROUNDS = 200  # the default has 100


def forest(seed: int) -> RegressorMixin:
    return RandomForestRegressor(min_samples_leaf=5, n_jobs=-1, random_state=seed)


def boosting(seed: int) -> RegressorMixin:
    return HistGradientBoostingRegressor(random_state=seed)


def mlp(seed: int) -> RegressorMixin:
    return make_pipeline(
        StandardScaler(), MLPRegressor(hidden_layer_sizes=(100, 100), early_stopping=True, random_state=seed)
    )


def linear(seed: int) -> RegressorMixin:
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))


class TunedBoosting:
    """Boosting with the rounds that have the smallest squared error over three folds."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def fit(self, x: np.ndarray, y: np.ndarray) -> HistGradientBoostingRegressor:
        curve = np.zeros(MOST_ROUNDS)
        for train, test in KFold(3, shuffle=True, random_state=self.seed).split(x):
            fold = HistGradientBoostingRegressor(max_iter=MOST_ROUNDS, random_state=self.seed).fit(x[train], y[train])
            curve += [np.sum((y[test] - stage) ** 2) for stage in fold.staged_predict(x[test])]
        rounds = int(curve.argmin()) + 1
        return HistGradientBoostingRegressor(max_iter=rounds, random_state=self.seed).fit(x, y)


Maker = Callable[[int], RegressorMixin]


def plug_in(make: Maker, problem: Problem, seed: int) -> np.ndarray:
    """argmax over a of the regression of the outcome on the rows with action a."""
    means = []
    for action in range(problem.n_actions):
        rows = problem.action == action
        means.append(make(seed).fit(problem.x[rows], problem.outcome[rows]).predict(problem.x_test))
    return np.column_stack(means).argmax(axis=1)


if __name__ == "__main__":
    makers = {"forest": forest, "boosting": boosting, "boosting-tuned": TunedBoosting, "mlp": mlp, "linear": linear}
    serve({name: partial(plug_in, make) for name, make in makers.items()})
