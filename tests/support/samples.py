"""Samples of which the best policy is known, and paths over zeta made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbpl.path.out_of_fold import ZetaPath


def outcomes_table(count: int = 2, rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Three features and the outcomes of every action; action 1 is good where the first feature is positive."""
    rng = np.random.default_rng(count)
    x = rng.normal(size=(rows, 3))
    outcomes = 0.3 * rng.normal(size=(rows, count))
    outcomes[:, 1] += x[:, 0]
    return x, outcomes


def drawn_actions(rng: np.random.Generator, propensity: np.ndarray) -> np.ndarray:
    """One action per row, drawn with the propensities of that row."""
    return (rng.random((len(propensity), 1)) > propensity.cumsum(axis=1)[:, :-1]).sum(axis=1)


def random_policies(count: int, rows: int, *shape: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Policies at random, one or an array of this shape, and outcomes and weights of the rows."""
    rng = np.random.default_rng(seed)
    policies = rng.dirichlet(np.ones(count), (*shape, rows))
    return policies, rng.normal(size=(rows, count)) + 0.3, rng.uniform(0.2, 3.0, rows)


def path_of(welfare: Any, covariance: Any = None, *, modelled: np.ndarray | None = None, **columns: Any) -> ZetaPath:
    """A path of which only welfare, its covariance and the columns given matter."""
    count = len(welfare)
    names = ("welfare_se", "shortfall", "shortfall_se", "randomized_welfare", "penalized_welfare", "size", "weight")
    given = {
        **dict.fromkeys(names, np.zeros(count)),
        "zeta": np.arange(1.0, count + 1),
        "correction": np.ones(count),
        **{name: np.array(column, float) for name, column in columns.items()},
    }
    covariance = np.eye(count) if covariance is None else np.array(covariance, float)
    return ZetaPath(welfare=np.array(welfare, float), covariance=covariance, modelled=modelled, **given)
