"""Randomization tests: the same rows with actions drawn again from their propensities.

Under given propensities e the sums

    S_ak = sum_i (1[A_i = a] - e_a(x_i)) m_k(i)

have mean zero for any m that does not depend on the actions, and drawing A* from e gives their distribution
exactly: no normal approximation, however rare an action or a category is (Candes, Fan, Janson and Lv 2018, section 4).
The statistic is the largest |S_ak| over its standard deviation, and p = (1 + draws at least as large) / (1 + draws).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Basis", "Redrawn", "basis_of", "draw_actions", "one_action_each", "ranks_of", "redraw"]

MOST_PAIRS = 100  # functions of the features, with their products; with more only the features themselves
BLOCK = 1 << 22  # numbers drawn at a time


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Bounded functions of the features, and the columns that each is made of."""

    values: Float[np.ndarray, "row function"]
    columns: list[tuple[int, ...]]


def ranks_of(x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row feature"]:
    """Ranks from -1 to 1: bounded, so that no row outweighs the others."""
    centred = rankdata(x, axis=0) - (len(x) + 1) / 2
    return centred / np.maximum(np.abs(centred).max(axis=0, initial=0.0), 1.0)


def basis_of(x: Float[np.ndarray, "row feature"]) -> Basis:
    """The constant, the ranks of each feature, and their products and squares where those are few."""
    ranks = ranks_of(np.asarray(x, np.float64))
    count = ranks.shape[1]
    columns: list[tuple[int, ...]] = [(), *((j,) for j in range(count))]
    parts = [np.ones((len(ranks), 1)), ranks]
    if (count + 1) * (count + 2) // 2 <= MOST_PAIRS:
        pairs = [(j, k) for j in range(count) for k in range(j, count)]
        products = np.column_stack([ranks[:, j] * ranks[:, k] for j, k in pairs])
        parts.append(products - products.mean(axis=0))
        columns += [pair if pair[0] != pair[1] else pair[:1] for pair in pairs]
    return Basis(np.hstack(parts), columns)


@dataclass(frozen=True, slots=True, eq=False)
class Redrawn:
    """Standardised sums of the table, and the largest of each redraw."""

    z: Float[np.ndarray, "action function"]
    largest: Float[np.ndarray, " draw"]

    def p_value(self, size: float | None = None) -> float:
        """Share of redraws whose largest sum is at least `size`, the table's own if None; the table counts as one."""
        own = np.abs(self.z).max(initial=0.0) if size is None else size
        return float((1 + np.sum(self.largest >= own * (1.0 - 1e-9))) / (1 + len(self.largest)))


def draw_actions(
    propensity: Float[np.ndarray, "row action"],
    draws: int,
    rng: np.random.Generator,
    groups: Int[np.ndarray, " row"] | None = None,
) -> Iterator[Int[np.ndarray, "draw row"]]:
    """Actions from their propensities, some redraws at a time; rows of one group share their chance."""
    upper = np.cumsum(propensity, axis=1)[:, :-1]
    n = len(propensity)
    size = n if groups is None else int(groups.max()) + 1
    for start in range(0, draws, step := max(1, BLOCK // n)):
        chance = rng.random((min(step, draws - start), size))
        chance = chance if groups is None else chance[:, groups]
        taken = np.zeros(chance.shape, np.int8)
        for column in upper.T:
            taken += chance >= column
        yield taken


def redraw(
    action: Int[np.ndarray, " row"],
    propensity: Float[np.ndarray, "row action"],
    moments: Float[np.ndarray, "row function"],
    *,
    draws: int,
    seed: int,
    groups: Int[np.ndarray, " row"] | None = None,
) -> Redrawn:
    """The sums S_ak of a table and of redraws, over the standard deviations that independent draws would have.

    Where every group has one action, groups are drawn and not rows. With two actions the sums of the first are those
    of the second with the other sign, and are left out.
    """
    count = propensity.shape[1]
    listed = [1] if count == 2 else list(range(count))
    together = groups if groups is not None and one_action_each(action, groups) else None
    chances = propensity[:, listed]
    sd = np.sqrt((chances * (1.0 - chances)).T @ moments**2)
    sd = np.where(sd > 0.0, sd, np.inf)
    expected = chances.T @ moments

    def sums(taken: Int[np.ndarray, "draw row"]) -> Float[np.ndarray, "draw action function"]:
        found = np.stack([(taken == a).astype(np.float32) @ narrow for a in listed], axis=1)
        return np.abs(found - expected) / sd

    narrow = moments.astype(np.float32)
    rng = np.random.default_rng([seed, 19])
    largest = np.concatenate([sums(taken).max(axis=(1, 2)) for taken in draw_actions(propensity, draws, rng, together)])
    z = np.stack([(action == a) @ moments for a in listed]) - expected
    return Redrawn(z / sd, largest)


def one_action_each(action: Int[np.ndarray, " row"], groups: Int[np.ndarray, " row"]) -> bool:
    """Whether all rows of a group took the same action, and there are fewer groups than rows."""
    first = np.full(int(groups.max()) + 1, -1)
    first[groups] = action
    return bool(np.all(first[groups] == action)) and len(first) < len(groups)
