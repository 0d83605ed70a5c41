"""CausalML: effects against action 0 by its DR and X learners on XGBoost's defaults, and the action with the largest.

Both compare one action with action 0 on the rows of these two, so that their propensity is e_a / (e_0 + e_a). The X
learner needs it at the test rows, to weigh its two estimates.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from causalml.inference.meta import BaseDRRegressor, BaseXRegressor
from protocol import Problem, serve
from xgboost import XGBRegressor


def against_first(propensity: np.ndarray) -> dict[int, np.ndarray]:
    """e_a / (e_0 + e_a) for every other action."""
    first = propensity[:, 0]
    return {a: propensity[:, a] / (first + propensity[:, a]) for a in range(1, propensity.shape[1])}


def best(effects: np.ndarray) -> np.ndarray:
    """The action with the largest effect, action 0 where none is positive."""
    return np.column_stack([np.zeros(len(effects)), effects]).argmax(axis=1)


def learner(kind: type, options: tuple[str, ...], problem: Problem, seed: int) -> np.ndarray:
    fitted = kind(XGBRegressor(random_state=seed), control_name=0)
    chances, seeds = against_first(problem.propensity), dict.fromkeys(options, seed)
    fitted.fit(problem.x, treatment=problem.action, y=problem.outcome, p=chances, **seeds)
    return best(fitted.predict(problem.x_test, p=against_first(problem.propensity_test)))


if __name__ == "__main__":
    serve(
        {
            "causalml-dr": partial(learner, BaseDRRegressor, ("seed",)),  # of its three folds
            "causalml-x": partial(learner, BaseXRegressor, ()),
        }
    )
