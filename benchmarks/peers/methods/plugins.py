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
from sklearn.neural_network import MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler


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


Maker = Callable[[int], RegressorMixin]


def plug_in(make: Maker, problem: Problem, seed: int) -> np.ndarray:
    """argmax over a of the regression of the outcome on the rows with action a."""
    means = []
    for action in range(problem.n_actions):
        rows = problem.action == action
        means.append(make(seed).fit(problem.x[rows], problem.outcome[rows]).predict(problem.x_test))
    return np.column_stack(means).argmax(axis=1)


if __name__ == "__main__":
    makers = {"forest": forest, "boosting": boosting, "mlp": mlp, "linear": linear}
    serve({name: partial(plug_in, make) for name, make in makers.items()})
