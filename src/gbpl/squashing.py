"""From raw outputs to action probabilities and advantages without JAX (sections 4 and 5).

A surrogate names one of these formulas as its `squashing`; a frozen policy needs no more of it to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = [
    "NO_PROBABILITY", "SQUASHINGS", "advantage_of", "gap_advantage", "gap_doubt", "simplex_projection", "squashings",
]  # fmt: skip


NO_PROBABILITY = 0.05  # of the baseline: less is taken for none


def simplex_projection(points: Any, numpy: Any = np) -> Any:
    """Euclidean projection of each row on the simplex, max(points - c, 0) with c such that it sums to one.

    `numpy` is numpy or JAX's version of it, whichever made the points.
    """
    points = points - points.max(axis=-1, keepdims=True)  # the same projection, and float32 keeps the 1 below
    ordered = -numpy.sort(-points, axis=-1)
    excess = numpy.cumsum(ordered, axis=-1) - 1.0
    support = numpy.sum(ordered * numpy.arange(1, points.shape[-1] + 1) > excess, axis=-1, keepdims=True)
    cut = numpy.take_along_axis(excess, support - 1, axis=-1) / support
    return numpy.maximum(points - cut, 0.0)


def gap_advantage(policy: Any, baseline: int) -> Any:
    """Scores of all actions for the gaps of section 5.1, the baseline's included, less their mean in each row.

    The others have f_a = 2 delta_a - 1. While the baseline has some probability, f_a is the gap over zeta and the
    baseline's score is 0. Where it has none, the simplex has taken the same unknown amount from every f_a: the best of
    the others may be below the baseline by at most (1 - 2 / (K - 1)) zeta, and above it by any amount, so it is
    taken. A softmax has no zeros; below `NO_PROBABILITY` the baseline's score goes over to -(1 - 2 / (K - 1)), which is
    the least that the largest f_a can be. With two or three actions that is 0 as well, and nothing is unknown.

    For numpy and JAX arrays with any axes before that of the actions.
    """
    count = policy.shape[-1]
    own = np.arange(count) == baseline
    missing = (1.0 - policy[..., baseline : baseline + 1] / NO_PROBABILITY).clip(0.0)
    scores = ~own * (2.0 * policy - 1.0) - own * (gap_doubt(count) * missing)
    return scores - scores.mean(axis=-1, keepdims=True)


def gap_doubt(count: int) -> float:
    """By how much the baseline may be better than the best of the others when it has no probability, over zeta."""
    return max(0.0, 1.0 - 2.0 / (count - 1))


def _two_actions(score: Float[np.ndarray, "... one"]) -> Float[np.ndarray, "... action"]:
    return np.concatenate([1.0 - score, 1.0 + score], axis=-1) / 2.0


def _softmax(raw: Float[np.ndarray, "... raw"]) -> Float[np.ndarray, "... action"]:
    raw = np.exp(raw - raw.max(axis=-1, keepdims=True))
    return raw / raw.sum(axis=-1, keepdims=True)


SQUASHINGS: dict[str, Callable[[Float[np.ndarray, "... raw"]], Float[np.ndarray, "... action"]]] = {
    "tanh": lambda raw: _two_actions(np.tanh(raw)),
    "softmax": _softmax,
    "clip": lambda raw: _two_actions(np.clip(raw, -1.0, 1.0)),
    "project": simplex_projection,
}


def squashings(count: int) -> list[str]:
    """The names a policy of `count` actions may have: those above, and the gaps to each action, "gap 0" and so on."""
    return [*SQUASHINGS, *(f"gap {baseline}" for baseline in range(count))]


def advantage_of(squashing: str) -> Callable[[Float[np.ndarray, "... raw"]], Float[np.ndarray, "... action"]]:
    """From raw outputs to what a member adds to a committee (`Surrogate.advantage`)."""
    if squashing in SQUASHINGS:
        policy = SQUASHINGS[squashing]
        return lambda raw: (policies := policy(raw)) - 1.0 / policies.shape[-1]
    baseline = int(squashing.removeprefix("gap "))
    return lambda raw: gap_advantage(_softmax(raw), baseline)
