"""Welfare, penalized welfare and regret of a policy on a table of outcomes (sections 2 and 8).

`outcomes` may be realized outcomes, pseudo-outcomes or known conditional means; the result means what they mean. A
policy has action probabilities for each row; a deterministic rule has zeros and a one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.surrogates import Surrogate

__all__ = ["deterministic", "penalized_welfare", "regret", "welfare"]


def _mean(values: Float[np.ndarray, " row"], sample_weight: Float[np.ndarray, " row"] | None) -> float:
    return float(np.average(values, weights=sample_weight))


def deterministic(policy: Any) -> Any:
    """Most probable action, a column number; two equal probabilities go to action 1, as in the paper's f >= 0.

    This is the one deterministic rule, for numpy and JAX arrays with any axes before that of the actions.
    """
    if policy.shape[-1] == 2:
        return (policy[..., 1] >= policy[..., 0]).astype(int)
    return policy.argmax(axis=-1)


def welfare(
    policy: Float[np.ndarray, "row action"],
    outcomes: Float[np.ndarray, "row action"],
    *,
    sample_weight: Float[np.ndarray, " row"] | None = None,
) -> float:
    """V = mean over rows of sum_a delta_a(x) Y(a).

    >>> welfare(np.array([[0.5, 0.5]]), np.array([[0.0, 1.0]]))
    0.5
    """
    return _mean(np.sum(np.asarray(policy, np.float64) * outcomes, axis=1), sample_weight)


def regret(
    policy: Float[np.ndarray, "row action"],
    outcomes: Float[np.ndarray, "row action"],
    *,
    sample_weight: Float[np.ndarray, " row"] | None = None,
) -> float:
    """Welfare of the best action of every row, less the policy's.

    With realized outcomes this is the paper's realized-outcome regret, with conditional means its regret against
    the Bayes-optimal action.
    """
    return _mean(np.max(outcomes, axis=1), sample_weight) - welfare(policy, outcomes, sample_weight=sample_weight)


def penalized_welfare(
    policy: Float[np.ndarray, "row action"],
    outcomes: Float[np.ndarray, "row action"],
    *,
    zeta: float,
    surrogate: Surrogate,
    sample_weight: Float[np.ndarray, " row"] | None = None,
) -> float:
    """W = V - lambda mean |s|^2 with lambda = zeta/4 (binary, gap) or zeta/2 (full vector): what fits maximise."""
    scores = np.asarray(surrogate.scores_of_policy(policy), np.float64)
    penalty = surrogate.penalty_scale * zeta * _mean(np.sum(scores**2, axis=1), sample_weight)
    return welfare(policy, outcomes, sample_weight=sample_weight) - penalty
