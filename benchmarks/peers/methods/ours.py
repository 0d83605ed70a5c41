"""gbpl: GBPL as it comes."""

from __future__ import annotations

import numpy as np
from protocol import Problem, serve

from gbpl import GBPL


def network(problem: Problem, seed: int) -> np.ndarray:
    policy = GBPL(random_state=seed)
    policy.fit(problem.x, problem.outcome, action=problem.action, propensity=problem.propensity)
    return policy.predict(problem.x_test)


if __name__ == "__main__":
    serve({"gbpl": network})
