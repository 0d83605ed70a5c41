"""From raw outputs to action probabilities without JAX (sections 4 and 5).

A surrogate names one of these formulas as its `squashing`; a frozen policy needs no more of it to decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["SQUASHINGS", "simplex_projection"]


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
