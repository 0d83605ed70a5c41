"""EconML: doubly robust policy forests and trees, with their defaults.

The defaults estimate the propensities: the known ones of single rows cannot be given, only a classifier of features.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from econml.policy import DRPolicyForest, DRPolicyTree
from protocol import Problem, serve


def policy(kind: type, problem: Problem, seed: int) -> np.ndarray:
    fitted = kind(random_state=seed).fit(problem.outcome, problem.action, X=problem.x)
    return fitted.predict(problem.x_test)


if __name__ == "__main__":
    kinds = {"econml-forest": DRPolicyForest, "econml-tree": DRPolicyTree}
    serve({name: partial(policy, kind) for name, kind in kinds.items()})
