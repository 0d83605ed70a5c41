"""Pseudo-outcomes of logged data: inverse propensity, doubly robust, outcome model alone (section 7).

Formulas only. The result is a table with one column per action whose mean given x is that of the outcomes, so that
everything after it works as with full feedback. `propensity` is the probability of the action that was taken, one
number per row: no other is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["clip_propensity", "doubly_robust", "ipw", "of_logged_action"]


def of_logged_action(
    table: Float[np.ndarray, "row action"], action: Int[np.ndarray, " row"]
) -> Float[np.ndarray, " row"]:
    """Entry of the action taken, one number per row."""
    return np.take_along_axis(table, action[:, None], axis=1)[:, 0]


def clip_propensity(
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"], clip: float
) -> Float[np.ndarray, "..."]:
    """Propensities of at least `clip`, each row still summing to one.

    Those below `clip` are raised to it and the others multiplied by a common factor, repeatedly until none is below:
    the distribution nearest in Kullback-Leibler divergence among those with every entry >= clip. With two actions this
    is the paper's max(clip, min(1 - clip, e_1)) and its complement. One number per row (the others unknown) is only
    raised.

    >>> clip_propensity(np.array([[0.01, 0.39, 0.6]]), 0.1).round(3)
    array([[0.1  , 0.355, 0.545]])
    """
    table = np.array(propensity, np.float64)
    if not 0.0 <= clip < 1.0 / (table.shape[1] if table.ndim == 2 else 1):
        raise ValueError(f"clip must be in [0, 1/K) for K actions, got {clip}; try 0.01")
    if table.ndim == 1:
        return np.maximum(table, clip)
    raised = np.zeros(table.shape, bool)
    clipped = table
    while (clipped < clip).any():  # ends: each pass raises at least one more entry, and clip < 1 / K
        raised |= clipped < clip
        free = np.where(raised, 0.0, table)
        left = 1.0 - clip * raised.sum(axis=1, keepdims=True)
        factor = left / np.maximum(free.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        clipped = np.where(raised, clip, np.where(raised.any(axis=1, keepdims=True), free * factor, table))
    return clipped


def doubly_robust(
    outcome: Float[np.ndarray, " row"],
    action: Int[np.ndarray, " row"],
    propensity: Float[np.ndarray, " row"],
    outcome_mean: Float[np.ndarray, "row action"],
) -> Float[np.ndarray, "row action"]:
    """gamma_a(x) + 1[A = a] (Y - gamma_a(x)) / e_a(x): right on average if either model is right.

    >>> doubly_robust(np.array([3.0]), np.array([1]), np.array([0.5]), np.array([[1.0, 2.0]]))
    array([[1., 4.]])
    """
    table = np.array(outcome_mean, np.float64)
    rows = np.arange(len(action))
    table[rows, action] += (outcome - table[rows, action]) / propensity
    return table


def ipw(
    outcome: Float[np.ndarray, " row"],
    action: Int[np.ndarray, " row"],
    propensity: Float[np.ndarray, " row"],
    n_actions: int,
    *,
    center: Float[np.ndarray, " row"] | float = 0.0,
) -> Float[np.ndarray, "row action"]:
    """c(x) + 1[A = a] (Y - c(x)) / e_a(x), with c = 0 the Horvitz-Thompson form of the paper.

    `center` is a regression of the outcome on x alone. Any c gives the same policy in expectation (section 5, shift
    invariance); a good one removes the variance that all actions share.

    >>> ipw(np.array([3.0]), np.array([1]), np.array([0.5]), 2)
    array([[0., 6.]])
    """
    common = np.broadcast_to(np.asarray(center, np.float64), (len(action),))
    return doubly_robust(outcome, action, propensity, np.repeat(common[:, None], n_actions, axis=1))
