"""Features of which a score is linear, in numpy: leaves of trees and curves of splines.

`gbpl.trees.forest` and `gbpl.models.splines` fit models of them; a decision needs these formulas alone.
"""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "effect_basis", "leaf_numbers", "leaf_sums", "rough_basis", "rough_functions", "rounded_down", "spline_basis",
    "spline_curves",
]  # fmt: skip

ROWS = 8_192


def rounded_down(threshold: float | Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The largest float32 that is not above a threshold: the next one above it may be a row's own value."""
    wanted = np.asarray(threshold, np.float64)
    cut = wanted.astype(np.float32)
    return np.where(cut.astype(np.float64) > wanted, np.nextafter(cut, np.float32(-np.inf)), cut)


def leaf_numbers(
    feature: Int[np.ndarray, "tree node"], threshold: Float[np.ndarray, "tree node"], x: Float[np.ndarray, "row column"]
) -> Int[np.ndarray, "row tree"]:
    """The leaf of every row in every tree; the children of node i are 2 i + 1 (x <= threshold) and 2 i + 2."""
    trees, nodes = feature.shape
    first = nodes * np.arange(trees)  # places in the flat arrays, which are quicker to take from
    features, thresholds = feature.astype(np.intp).ravel(), threshold.ravel()
    leaves = np.empty((len(x), trees), np.int32)
    for start in range(0, len(x), ROWS):
        part = np.ascontiguousarray(x[start : start + ROWS])
        rows = (part.shape[1] * np.arange(len(part)))[:, None]
        values, place = part.ravel(), np.broadcast_to(first, (len(part), trees)).copy()
        for _ in range(int(nodes + 1).bit_length() - 1):
            right = values.take(rows + features.take(place)) > thresholds.take(place)
            place *= 2  # of node i = place - first: 2 i + 1 + right
            place += 1 - first
            place += right
        leaves[start : start + len(part)] = place - (first + nodes)
    return leaves


def leaf_sums(
    value: Float[np.ndarray, "tree leaf component"], leaf: Int[np.ndarray, "row tree"]
) -> Float[np.ndarray, "row component"]:
    """sum over trees t of value[t, leaf_t], tree after tree as `ForestFeatures` adds them."""
    total = np.zeros((len(leaf), value.shape[2]), value.dtype)
    taken = np.empty_like(total)
    for tree, own in zip(value, leaf.T, strict=True):
        total += np.take(tree, own, axis=0, out=taken, mode="clip")  # the other modes copy once more
    return total


def spline_curves(x: Any, knots: int, numpy: Any = np) -> Any:
    """The curves of every feature, those of one beside each other; `numpy` is numpy, or JAX's.

    A curve is its value at the first knot, plus slopes times what x is below the first or above the last one, plus

        sum over intervals j of a_j t_j + b_j t_j^2 + c_j t_j^3,  t_j the part of interval j that lies below x.

    All terms are small, so that float32 keeps its digits; the cubes of the usual formula cancel.
    """
    places, made = spline_basis(knots)
    below, above = numpy.minimum(x - places[0], 0.0), numpy.maximum(x - places[-1], 0.0)
    inside = numpy.minimum(numpy.maximum(x[..., None] - places[:-1], 0.0), np.diff(places))
    parts = [below[..., None], above[..., None], inside, inside * inside, inside * inside * inside]
    raw = numpy.concatenate(parts, axis=-1).reshape(-1, len(made) - 1)
    return (raw @ made[1:] + made[0]).reshape(x.shape[0], -1)


def effect_basis(x: Float[np.ndarray, "row feature"], knots: int, width: int) -> Float[np.ndarray, "row basis"]:
    """A one, and for every feature its line, or with `knots` its spline curves; a one alone if `width` is one."""
    if width == 1:
        return np.ones((len(x), 1))
    functions = spline_curves(np.asarray(x, np.float32), knots) if knots else x
    return np.column_stack([np.ones(len(x)), functions]).astype(np.float64)


def rough_functions(features: int, count: int) -> Float[np.ndarray, "feature_and_one function"]:
    """Frequencies w_j, standard normal, and below them the phases b_j, of `rough_basis`."""
    rng = np.random.default_rng([features, count])
    return np.vstack([rng.standard_normal((features, count)), rng.uniform(0.0, 2.0 * np.pi, count)]).astype(np.float32)


def rough_basis(
    x: Float[np.ndarray, "row feature"], functions: Float[np.ndarray, "feature_and_one function"]
) -> Float[np.ndarray, "row function"]:
    """sqrt(2 / J) cos(x'w_j + b_j) of J functions: sums with normal weights are a rough random function."""
    angle = np.asarray(x, np.float32) @ functions[:-1] + functions[-1]
    return np.float32(np.sqrt(2.0 / functions.shape[1])) * np.cos(angle)


def _natural(
    x: Float[np.ndarray, " point"], places: Float[np.ndarray, " knot"], order: int
) -> Float[np.ndarray, "point curve"]:
    """Derivatives, over the factorial of their order, of 1, x and d_k - d_{K-1} for the inner knots but one, with

    d_k(x) = ((x - k)_+^3 - (x - k_K)_+^3) / (k_K - k): cubic between the outer knots k_1 and k_K, linear outside.
    """
    *inner, last = places
    times = (1.0, 3.0, 3.0, 1.0)[order]
    over = [times * (x >= place) * (x - place) ** (3 - order) for place in places]
    bent = [(part - over[-1]) / (last - place) for part, place in zip(over, inner, strict=False)]
    lines = [np.full_like(x, order == 0), x if order == 0 else np.full_like(x, order == 1)]
    return np.stack([*lines, *(part - bent[-1] for part in bent[:-1])], axis=1)


def _normal_rule(places: Float[np.ndarray, " knot"]) -> tuple[np.ndarray, np.ndarray]:
    """Points and weights that integrate a spline's products under N(0, 1): Gauss-Legendre between the knots."""
    at, weight = np.polynomial.legendre.leggauss(64)
    ends = np.array([-12.0, *places, 12.0])
    half = np.diff(ends)[:, None] / 2.0
    points = (ends[:-1, None] + half * (1.0 + at)).ravel()
    density = np.exp(-0.5 * points**2) / np.sqrt(2.0 * np.pi)
    return points, (half * weight).ravel() * density


@lru_cache
def spline_basis(knots: int) -> tuple[Float[np.ndarray, " knot"], Float[np.ndarray, "term curve"]]:
    """Knots, and the terms of `spline_curves` in curves that are orthonormal under N(0, 1), the constant left out.

    The terms are the constant, what is below and above the knots, and the powers in each interval.
    """
    places = np.array([NormalDist().inv_cdf((number + 0.5) / knots) for number in range(knots)])
    at, weight = _normal_rule(places)
    root = np.linalg.qr(np.sqrt(weight)[:, None] * _natural(at, places, 0), mode="r")
    mixed = np.linalg.inv(root * np.sign(np.diag(root))[:, None])[:, 1:]
    outer = places[[0, -1]]
    terms = [_natural(outer[:1], places, 0), _natural(outer, places, 1)]
    terms += [_natural(places[:-1], places, order) for order in (1, 2, 3)]
    return places.astype(np.float32), (np.concatenate(terms) @ mixed).astype(np.float32)
