"""Row losses of the methods the paper compares with, and of several methods in one stack (section 9).

Each is an objective of `fit_stack` whose target is the (row, action) table of outcomes or pseudo-outcomes itself, in
outcome units divided by one scale. U = Y(1) - Y(0) is the gap. Only surrogates use zeta.

Axis names: `row`, `action` (K of them), `raw` (1 or K).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.surrogates import Surrogate
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    Table = Array | np.ndarray

__all__ = ["GapSquare", "OneOf", "OutcomeSquare", "RowLoss", "SurrogateLoss", "WeightedLogit"]


def _centered(outcomes: Float[Table, "row action"]) -> Float[Table, "row action"]:
    return outcomes - outcomes.mean(axis=-1, keepdims=True)


def _gap(outcomes: Float[Array, "row action"]) -> Float[Array, " row"]:
    return outcomes[..., 1] - outcomes[..., 0]


@dataclass(frozen=True, slots=True)
class RowLoss(ABC):
    """An objective of a stack that also turns raw outputs into a policy."""

    @property
    @abstractmethod
    def n_raw(self) -> int:
        """Raw outputs the score model must have."""

    @abstractmethod
    def row_loss(self, raw: Array, target: Array, zeta: float | Array) -> Float[Array, " row"]:
        """Loss of each row."""

    @abstractmethod
    def policy(self, raw: Float[Table, "row raw"]) -> Float[Array, "row action"]:
        """Action probabilities; for a rule `gbpl.value.welfare.deterministic` of them."""

    def target(self, outcomes: Float[Table, "row action"]) -> Float[Table, "row action"]:
        """The table to fit to. Rows are centred where only differences count, so that float32 keeps its digits."""
        return _centered(outcomes)


@dataclass(frozen=True, slots=True)
class _OfGap(RowLoss):
    """One raw output whose sign decides between two actions: action 1 where raw >= 0."""

    @property
    def n_raw(self) -> int:
        return 1

    def policy(self, raw: Float[Table, "row raw"]) -> Float[Array, "row action"]:
        chosen = jnp.asarray(raw) >= 0.0
        return jnp.concatenate([~chosen, chosen], axis=-1).astype(jnp.float32)


@dataclass(frozen=True, slots=True)
class GapSquare(_OfGap):
    """Regression of the gap (DiffReg): 1/2 (raw - U)^2; its minimiser is the conditional mean gap.

    >>> GapSquare().row_loss(jnp.array([[0.5]]), jnp.array([[1.0, 2.0]]), 1.0)
    Array([0.125], dtype=float32)
    """

    def row_loss(self, raw: Array, target: Array, zeta: float | Array) -> Float[Array, " row"]:
        return 0.5 * (raw[..., 0] - _gap(target)) ** 2


@dataclass(frozen=True, slots=True)
class WeightedLogit(_OfGap):
    """Classification of the better action, weighted by |U| (WeightedLogistic): |U| log(1 + exp(-sign(U) raw)).

    Its minimiser log(E[max(U, 0) | x] / E[max(-U, 0) | x]) has the sign of the conditional mean gap.
    """

    def row_loss(self, raw: Array, target: Array, zeta: float | Array) -> Float[Array, " row"]:
        gap = _gap(target)
        return jnp.abs(gap) * jax.nn.softplus(-jnp.sign(gap) * raw[..., 0])


@dataclass(frozen=True, slots=True)
class _OfActions(RowLoss):
    n_actions: int = 2

    def __post_init__(self) -> None:
        if self.n_actions < 2:
            raise ValueError(f"n_actions must be >= 2, got {self.n_actions}; count every action, doing nothing too")


@dataclass(frozen=True, slots=True)
class OutcomeSquare(_OfActions):
    """Regression of every action's outcome (PluginReg): sum_a (raw_a - Y(a))^2 / (2 K)."""

    @property
    def n_raw(self) -> int:
        return self.n_actions

    def target(self, outcomes: Float[Table, "row action"]) -> Float[Table, "row action"]:
        return outcomes

    def row_loss(self, raw: Array, target: Array, zeta: float | Array) -> Float[Array, " row"]:
        return 0.5 * jnp.mean((raw - target) ** 2, axis=-1)

    def policy(self, raw: Float[Table, "row raw"]) -> Float[Array, "row action"]:
        """A one at the largest raw output; of two equal ones action 1, as everywhere with two actions."""
        return jax.nn.one_hot(deterministic(jnp.asarray(raw)), self.n_actions, dtype=jnp.float32)


@dataclass(frozen=True, slots=True)
class SurrogateLoss(RowLoss):
    """A surrogate that takes the table of outcomes as target, as the other losses do.

    That of GBPLNet; of `NegativeWelfare` it is DirectWelfare (with pseudo-outcomes DirectDR- and DirectIPWWelfare).
    """

    surrogate: Surrogate

    @property
    def n_raw(self) -> int:
        return self.surrogate.n_raw

    def target(self, outcomes: Float[Table, "row action"]) -> Float[Table, "row action"]:
        return _centered(outcomes) if self.surrogate.shift_invariant else outcomes

    def row_loss(self, raw: Array, target: Array, zeta: float | Array) -> Float[Array, " row"]:
        return self.surrogate.row_loss(raw, jnp.asarray(self.surrogate.target(target)), zeta)

    def policy(self, raw: Float[Table, "row raw"]) -> Float[Array, "row action"]:
        return self.surrogate.policy(self.surrogate.scores(jnp.asarray(raw)))


@dataclass(frozen=True, slots=True)
class OneOf:
    """Members of different methods in one stack: each row's loss is the one of `losses` that its code names.

    The target is a pair: tables of outcomes one below the other, and a code (a place in `losses`) for each of their
    rows; a member's `table` says which is its own. A method with fewer raw outputs than the others uses the first ones.
    """

    losses: tuple[RowLoss, ...]

    @property
    def n_raw(self) -> int:
        return max(loss.n_raw for loss in self.losses)

    def target(
        self, outcomes: Float[np.ndarray, "row action"], code: int
    ) -> tuple[Float[Table, "row action"], Float[np.ndarray, " row"]]:
        """A table for one of the losses, with its codes; concatenate those of all tables."""
        return self.losses[code].target(outcomes), np.full(len(outcomes), code, np.float32)

    def row_loss(self, raw: Array, target: tuple[Array, Array], zeta: float | Array) -> Float[Array, " row"]:
        """The other losses see zeros, where they and their gradients are finite, and are left out."""
        outcomes, code = target
        total = jnp.zeros(raw.shape[:-1], raw.dtype)
        for number, loss in enumerate(self.losses):
            mine = code == number
            shown, known = (jnp.where(mine[..., None], part, 0.0) for part in (raw[..., : loss.n_raw], outcomes))
            total = jnp.where(mine, loss.row_loss(shown, known, zeta), total)
        return total

    def policy(self, raw: Float[Table, "row raw"], code: int) -> Float[Array, "row action"]:
        """Policy of members that one of the losses has fitted."""
        return self.losses[code].policy(raw[..., : self.losses[code].n_raw])
