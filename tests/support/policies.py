"""Estimators that fit in a second or two. One of each kind, so that tests share what is compiled for them."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

from gbpl import MLP, FitConfig, GBPLNet, PerAction


def small_net(**changes: Any) -> GBPLNet:
    """Two members with four hidden units."""
    given: dict[str, Any] = {
        "zeta": 1.0, "committee": 2, "model": MLP(hidden=(4,), activation="relu"),
        "fit_config": FitConfig(max_epochs=10, learning_rate=0.03), "random_state": 0, "device": "cpu",
        "progress": False,
    }  # fmt: skip
    return GBPLNet(**{**given, **changes})


class FromOneColumn:
    """Beside an estimator: for scikit-learn's own suite, which gives one column, here the gap of two outcomes."""

    def fit(self, X: Any, y: Any = None, *, sample_weight: Any = None, **given: Any) -> Any:
        whole = y is None or np.asarray(y).reshape(len(np.asarray(y)), -1).shape[1] > 1
        outcome = {"y": y} if whole else {"outcome_gap": y}
        return super().fit(X, **outcome, sample_weight=sample_weight, **given)  # type: ignore[misc]

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, **given: Any) -> Any:
        return super().score(X, sample_weight=sample_weight, outcome_gap=y, **given)  # type: ignore[misc]


class NetFromOneColumn(FromOneColumn, GBPLNet): ...


def from_one_column(**changes: Any) -> GBPLNet:
    """`small_net` for scikit-learn's suite."""
    return NetFromOneColumn(**small_net(**changes).get_params())


def small_logged_net(**changes: Any) -> GBPLNet:
    """For logs: the policy and its outcome model are networks with 16 hidden units, cross-fitted in two folds."""
    network = MLP(hidden=(16,))
    given: dict[str, Any] = {
        "model": network, "outcome_model": network, "nuisance_folds": 2, "fit_config": FitConfig(max_epochs=20),
    }  # fmt: skip
    return small_net(**{**given, **changes})


def small_study_net(**changes: Any) -> GBPLNet:
    """For studies of tables: two zetas, three members, and an outcome model that needs no compilation."""
    given: dict[str, Any] = {
        "zeta": [1.0, 0.1], "committee": 3, "model": MLP(hidden=(8,)), "nuisance_folds": 2, "correction": 1.0,
        "outcome_model": PerAction(LinearRegression()), "fit_config": FitConfig(max_epochs=5, learning_rate=0.03),
        "random_state": 4, "progress": None,
    }  # fmt: skip
    return small_net(**{**given, **changes})
