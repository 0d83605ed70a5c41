"""Shapley values in closed form: members that are additive or a forest, where nothing is squashed.

A clipped or projected score is the raw output itself as long as it stays within its bounds. Whether it does for every
coalition of columns follows from bounds on the sums: of a spline or a line the parts of its columns that lower or raise
it, of a forest the lowest and highest leaf of each tree that any coalition reaches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbpl.frozen.committee import Part
from gbpl.frozen.shapley import from_leaves
from gbpl.models.basis import spline_curves
from gbpl.models.numpy_form import Forests, Networks

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["Linear", "additive_or_tree"]


class Linear(NamedTuple):
    """Members whose part is linear in their raw outputs, and the Shapley values of these, weighed."""

    members: Bool[np.ndarray, " member"]
    values: Float[np.ndarray, "player raw"]


def additive_or_tree(
    parts: Sequence[Part],
    squashing: str,
    row: Float[np.ndarray, " kept"],
    reference: Float[np.ndarray, " kept"],
    player: Int[np.ndarray, " kept"],
    size: int,
) -> list[Linear]:
    """For each part, which members have a closed form, and the weighted sum of their values; rows standardized.

    `player` is the number, below `size`, of the column that each feature belongs to.
    """
    found = []
    for part in parts:
        form = part.form
        if squashing not in ("clip", "project") or (isinstance(form, Networks) and form.hidden):
            found.append(Linear(np.zeros(len(part.weights), bool), np.zeros((size, form.last.shape[2]))))
            continue
        if isinstance(form, Networks):
            values, low, high = _additive(form, row, reference, player, size)
        else:
            values, low, high = _forests(form, row, reference, player, size)
        fine = _unsquashed(squashing, low, high)
        found.append(Linear(fine, np.tensordot(part.weights * fine, values, axes=1)))
    return found


def _unsquashed(
    squashing: str, low: Float[np.ndarray, "member raw"], high: Float[np.ndarray, "member raw"]
) -> Bool[np.ndarray, " member"]:
    """Whether no coalition's outputs are squashed: |raw| <= 1 if clipped, raw_a - mean raw >= -1/K if projected."""
    if squashing == "clip":
        return np.asarray(((low >= -1.0) & (high <= 1.0)).all(axis=1))
    above = high.mean(axis=1, keepdims=True)  # each output at its highest: no mean is above it
    return np.asarray((low - above >= -1.0 / low.shape[1]).all(axis=1))


def _additive(
    form: Networks, row: np.ndarray, reference: np.ndarray, player: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of every member's raw outputs, phi_j = g_j(row) - g_j(reference), and bounds on the outputs."""
    both = np.stack([row, reference])
    basis = np.float32(form.gain) * (spline_curves(both, form.knots) if form.knots else both)
    terms = np.repeat(player, basis.shape[1] // len(row))  # curve after curve of each feature
    change = (basis[0].astype(np.float64) - basis[1])[:, None] * form.last[:, :-1]
    values = np.zeros((len(form.last), size, form.last.shape[2]))
    for one in range(size):
        values[:, one] = change[:, terms == one].sum(axis=1)
    start = basis[1].astype(np.float64) @ form.last[:, :-1] + form.last[:, -1]
    return values, start + np.minimum(values, 0.0).sum(axis=1), start + np.maximum(values, 0.0).sum(axis=1)


def _forests(
    form: Forests, row: np.ndarray, reference: np.ndarray, player: np.ndarray, size: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same for forests, by the product games of their leaves."""
    members, outputs = len(form.last), form.last.shape[2]
    values, low, high = np.zeros((members, size, outputs)), np.zeros((members, outputs)), np.zeros((members, outputs))
    for number in np.unique(form.forest).tolist():
        feature, threshold = form.feature[number], form.threshold[number]
        here, there = (_fits(feature, threshold, x, player, size) for x in (row, reference))
        alive = (here | there).all(axis=2)  # tree, leaf
        for member in np.flatnonzero(form.forest == number).tolist():
            leaf = form.value[number].astype(np.float64) @ form.last[member, :-1]
            values[member] = from_leaves(here.reshape(-1, size), there.reshape(-1, size), leaf.reshape(-1, outputs))
            bias = form.last[member, -1].astype(np.float64)
            low[member] = np.where(alive[..., None], leaf, np.inf).min(axis=1).sum(axis=0) + bias
            high[member] = np.where(alive[..., None], leaf, -np.inf).max(axis=1).sum(axis=0) + bias
    return values, low, high


def _fits(
    feature: Int[np.ndarray, "tree node"], threshold: Float[np.ndarray, "tree node"], x: np.ndarray,
    player: Int[np.ndarray, " kept"], size: int,
) -> Bool[np.ndarray, "tree leaf player"]:  # fmt: skip
    """Whether a row passes all questions on the path to a leaf that are about a column."""
    trees, nodes = feature.shape
    leaf, passed = np.arange(nodes + 1), np.ones((trees, nodes + 1, size), bool)
    right = x[feature] > threshold
    node = leaf + nodes  # numbers of leaves go on from those of nodes; the parent of i is (i - 1) // 2
    while node[0] > 0:
        above, goes_right = (node - 1) // 2, node % 2 == 0
        wrong = right[:, above] != goes_right
        tree, place = np.nonzero(wrong)
        passed[tree, place, player[feature[tree, above[place]]]] = False
        node = above
    return passed
