"""EconML: doubly robust policy forests and trees and a causal forest, with their defaults.

The defaults estimate the propensities: the known ones of single rows cannot be given, only a classifier of features.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from econml.dml import CausalForestDML
from econml.policy import DRPolicyForest, DRPolicyTree
from protocol import Problem, serve


def policy(kind: type, problem: Problem, seed: int) -> np.ndarray:
    fitted = kind(random_state=seed).fit(problem.outcome, problem.action, X=problem.x)
    return fitted.predict(problem.x_test)


def causal_forest(problem: Problem, seed: int) -> np.ndarray:
    """Effects of every other action against action 0, and the largest; action 0 where none is positive."""
    forest = CausalForestDML(discrete_treatment=True, categories=list(range(problem.n_actions)), random_state=seed)
    effects = forest.fit(problem.outcome, problem.action, X=problem.x).const_marginal_effect(problem.x_test)
    effects = effects.reshape(len(problem.x_test), problem.n_actions - 1)
    return np.column_stack([np.zeros(len(effects)), effects]).argmax(axis=1)


if __name__ == "__main__":
    kinds = {"econml-forest": DRPolicyForest, "econml-tree": DRPolicyTree}
    policies = {name: partial(policy, kind) for name, kind in kinds.items()}
    serve({**policies, "econml-causal-forest": causal_forest})
