"""gbpl: GBPL as it comes; for seconds, also with what its policy is worth."""

from __future__ import annotations

import numpy as np
from protocol import Problem, serve

from gbpl import GBPL


def fitted(problem: Problem, seed: int) -> GBPL:
    policy = GBPL(random_state=seed)
    return policy.fit(problem.x, problem.outcome, action=problem.action, propensity=problem.propensity)


def decided(problem: Problem, seed: int) -> np.ndarray:
    return fitted(problem, seed).predict(problem.x_test)


def valued(problem: Problem, seed: int) -> np.ndarray:
    policy = fitted(problem, seed)
    policy.population_welfare()
    return policy.predict(problem.x_test)


if __name__ == "__main__":
    serve({"gbpl": decided, "gbpl-value": valued})
