"""Perpetual: its PolicyLearner, weighting by inverse propensities (its default) and doubly robust ("aipw").

It is for two actions. With more, one learner compares each action with action 0 on the rows of these two, whose
propensity is e_a / (e_0 + e_a), and the largest score wins, action 0 where none is positive.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from perpetual.policy import PolicyLearner
from protocol import Problem, serve


def against_first(mode: str, problem: Problem, action: int) -> np.ndarray:
    """Scores of the test rows: positive where the action is better than action 0."""
    rows = np.isin(problem.action, (0, action))
    chance = problem.propensity[rows, action] / (problem.propensity[rows, 0] + problem.propensity[rows, action])
    learner = PolicyLearner(mode=mode)
    learner.fit(problem.x[rows], (problem.action[rows] == action).astype(int), problem.outcome[rows], propensity=chance)
    return np.asarray(learner.decision_function(problem.x_test))


def policy(mode: str, problem: Problem, seed: int) -> np.ndarray:
    """The seed is not used: the learner has no randomness."""
    scores = [against_first(mode, problem, action) for action in range(1, problem.n_actions)]
    return np.column_stack([np.zeros(len(problem.x_test)), *scores]).argmax(axis=1)


if __name__ == "__main__":
    serve({f"perpetual-{mode}": partial(policy, mode) for mode in ("ipw", "aipw")})
