"""Fitted members in numpy, draws of their last layers, and the deviation from uniform they add up to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.models.basis import effect_basis, rough_basis
from gbpl.models.numpy_form import Networks, NumpyForm, dense
from gbpl.runtime.threads import one_thread
from gbpl.squashing import SQUASHINGS, advantage_of

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Committee", "Effects", "Part"]

BLOCK = 512  # rows at a time, at most; a power of two, as are the batches of files
FEW = 16  # rows up to which BLAS starts no threads of its own


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Members of one model in a committee, the weight of each, and draws of their last layers, if any."""

    form: NumpyForm
    weights: Float[np.ndarray, " member"]
    draws: Float[np.ndarray, "draw basis raw"] | None = None
    draw_member: Int[np.ndarray, " draw"] | None = None

    @property
    def draw_count(self) -> int:
        """Draws that go with it."""
        return 0 if self.draws is None else len(self.draws)


@dataclass(frozen=True, slots=True, eq=False)
class Effects:
    """Expected effects in place of the members' deviation d, and draws of them, if any (`gbpl.posterior.effect`).

    The deviation that is played is slope d(x) + level. A draw weighs the members, part after part, by `draw_weight`,
    and adds functions of the features times `draw_coefficient`: phi, of lines or of curves with `knots`, and below it
    the rough `functions`. `freedom` are the degrees of freedom of their spread; None: not known, as in earlier files.
    """

    slope: float
    knots: int
    level: Float[np.ndarray, " action"]
    functions: Float[np.ndarray, "feature_and_one function"] | None = None
    draw_weight: Float[np.ndarray, "draw member"] | None = None
    draw_coefficient: Float[np.ndarray, "draw basis_and_function action"] | None = None
    freedom: int | None = None

    @property
    def draw_count(self) -> int:
        """Draws that go with it."""
        return 0 if self.draw_weight is None else len(self.draw_weight)


class _ReadyEffects:
    """Effects with what their draws need: arrays laid out so that a block of rows is two products."""

    def __init__(self, effects: Effects) -> None:
        weight, coefficient, functions = effects.draw_weight, effects.draw_coefficient, effects.functions
        assert weight is not None
        assert coefficient is not None
        assert functions is not None
        self.weight, self.functions, self.knots = np.ascontiguousarray(weight.T), functions, effects.knots
        draws, size, self.count = coefficient.shape
        self.width = size - functions.shape[1]
        self.coefficient = np.ascontiguousarray(coefficient.transpose(1, 2, 0)).reshape(size, self.count * draws)

    def taken(
        self,
        x: np.ndarray,
        advantages: Float[np.ndarray, "member row action"],
        prices: Float[np.ndarray, "*row action"] | None = None,
        loss: Float[np.ndarray, "row action"] | None = None,
    ) -> Int[np.ndarray, "row action"]:
        """How many draws take each action, net of prices; of actions that are level, the first one.

        `loss` is filled with what each action is expected to lose.
        """
        drawn = self.draws(x, advantages)
        if prices is not None:
            drawn -= prices[..., None]
        if loss is not None:
            loss[:] = drawn.max(axis=1).mean(axis=1)[:, None] - drawn.mean(axis=2)
        if self.count == 2:
            second = np.count_nonzero(drawn[:, 1] > drawn[:, 0], axis=1)
            return np.stack([drawn.shape[2] - second, second], axis=1)
        top, taken = drawn.max(axis=1), np.zeros((len(x), self.count), np.int64)
        free = np.ones(top.shape, bool)
        for action in range(self.count):
            best = (drawn[:, action] == top) & free
            taken[:, action] = np.count_nonzero(best, axis=1)
            free &= ~best
        return taken

    def draws(
        self, x: np.ndarray, advantages: Float[np.ndarray, "member row action"]
    ) -> Float[np.ndarray, "row action draw"]:
        """Draws of the effect of each action, up to a constant of the row."""
        phi = effect_basis(x, self.knots, self.width).astype(np.float32)
        basis = np.concatenate([phi, rough_basis(x, self.functions)], axis=1)
        drawn = (basis @ self.coefficient).reshape(len(x), self.count, -1)
        members = np.ascontiguousarray(advantages.transpose(1, 2, 0), np.float32)
        drawn += members @ self.weight
        return drawn


class _ReadyPart:
    """A part with what applying it needs: layers that members share kept once, draws by member."""

    def __init__(self, part: Part, squashing: str, count: int) -> None:
        self.form, self.weights, self.count = part.form.shared(), part.weights, count
        self.advantage, self.ordered = advantage_of(squashing), squashing in SQUASHINGS
        self.drawn: dict[int, Float[np.ndarray, "basis draw_raw"]] = {}
        if part.draws is not None and part.draw_member is not None:
            for member in np.unique(part.draw_member).tolist():
                own = part.draws[part.draw_member == member].transpose(1, 0, 2)
                self.drawn[member] = np.ascontiguousarray(own.reshape(len(own), -1))
        self.widest = max([self.form.widest] + [drawn.shape[1] for drawn in self.drawn.values()])
        whole = isinstance(self.form, Networks) or self.drawn
        self.folded = None if whole else self.form.folded()  # type: ignore[union-attr]

    def advantages(
        self, x: np.ndarray, taken: np.ndarray | None, prices: np.ndarray | None
    ) -> Float[np.ndarray, "member row action"]:
        """What each member adds to the deviation of standardized rows; draws of actions are added up in place."""
        if self.folded is not None:
            return self.advantage(self.folded.raws(x).astype(np.float64))
        made = np.empty((len(self.weights), len(x), self.count))
        for members, basis in self.form.bases(x):
            made[members] = self.advantage(dense(basis, self.form.last[members]).astype(np.float64))
            if taken is not None:
                for place, member in enumerate(members.tolist()):
                    if member in self.drawn:
                        self._count(basis if basis.ndim == 2 else basis[place], self.drawn[member], taken, prices)
        return made

    def _count(
        self, basis: np.ndarray, drawn: np.ndarray, taken: Int[np.ndarray, "row action"], prices: np.ndarray | None
    ) -> None:
        """Add one to the action of every draw; every squashing but that of the gaps keeps the order of raw outputs."""
        raw = basis @ drawn[:-1]
        raw += drawn[-1]
        raw = raw.reshape(len(basis), -1, self.form.last.shape[2])
        raw = raw if self.ordered and prices is None else self.advantage(raw)
        raw = raw if prices is None else raw - (prices[:, None] if prices.ndim == 2 else prices)
        chosen = (raw[..., 0] >= 0.0).astype(np.int64) if raw.shape[-1] == 1 else np.argmax(raw, axis=-1)
        chosen += self.count * np.arange(len(basis))[:, None]
        taken += np.bincount(chosen.ravel(), minlength=taken.size).reshape(taken.shape)


class Committee:
    """Parts ready to be applied, and how features are standardized: as `Standardizer.apply`, to the last bit."""

    def __init__(
        self,
        parts: Sequence[Part],
        squashing: str,
        mean: Float[np.ndarray, " feature"],
        scale: Float[np.ndarray, " feature"],
        count: int,
        effects: Effects | None = None,
        columns: Int[np.ndarray, " kept"] | None = None,
    ) -> None:
        self.parts = [_ReadyPart(part, squashing, count) for part in parts]
        self.weights = np.concatenate([part.weights for part in parts])
        self.drawn = _ReadyEffects(effects) if effects is not None and effects.draw_count else None
        self.columns = None if columns is None else np.asarray(columns)
        self.mean, self.scale = (part if columns is None else part[self.columns] for part in (mean, scale))
        self.count, self.effects = count, effects
        several = count * (len(self.weights) + (0 if effects is None else effects.draw_count))
        widest = max([several, *(part.widest for part in self.parts)])
        self.block = max(64, min(BLOCK, 1 << ((1 << 21) // widest).bit_length() - 1))

    def apply(
        self,
        x: Float[np.ndarray, "row feature"],
        *,
        draws: bool,
        prices: Float[np.ndarray, "*row action"] | None = None,
        loss: Float[np.ndarray, "row action"] | None = None,
    ) -> tuple[Float[np.ndarray, "row action"], Int[np.ndarray, "row action"] | None]:
        """Deviation from uniform, and how many draws take each action, one block of rows per core at a time.

        Draws take the action that is best less its price, the same in all rows or a table of them, of effects in
        outcome units, else in units of deviation. With draws of effects, `loss` is filled with
        E[max_b effect_b] - E[effect_a], what each action is expected to lose, net of prices.
        """
        deviation = np.zeros((len(x), self.count))
        some = any(part.drawn for part in self.parts) or self.drawn is not None
        taken = np.zeros((len(x), self.count), np.int64) if draws and some else None

        def compute(start: int) -> None:
            rows = slice(start, start + self.block)
            self._block(
                x[rows], deviation[rows], None if taken is None else taken[rows],
                prices if prices is None or prices.ndim == 1 else prices[rows],
                None if loss is None else loss[rows],
            )  # fmt: skip

        starts = range(0, len(x), self.block)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if len(x) <= FEW:
            list(map(compute, starts))
            return deviation, taken
        with one_thread():
            if len(starts) == 1 or cores == 1:
                list(map(compute, starts))
            else:
                with ThreadPoolExecutor(min(cores, len(starts))) as pool:
                    list(pool.map(compute, starts))
        return deviation, taken

    def effects_drawn(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action draw"] | None:
        """Draws of the effect of each action in outcome units, up to a constant of the row; None where there are none.

        For few rows: all of their draws are in memory.
        """
        if self.drawn is None:
            return None
        x = self.standardized(x)
        return self.drawn.draws(x, np.concatenate([part.advantages(x, None, None) for part in self.parts]))

    def standardized(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row kept"]:
        """Rows as members see them."""
        return (((x if self.columns is None else x[:, self.columns]) - self.mean) / self.scale).astype(np.float32)

    def _block(
        self,
        x: np.ndarray,
        deviation: np.ndarray,
        taken: np.ndarray | None,
        prices: np.ndarray | None,
        loss: np.ndarray | None,
    ) -> None:
        x = self.standardized(x)
        by_part = [part.advantages(x, None if self.drawn is not None else taken, prices) for part in self.parts]
        advantages = by_part[0] if len(by_part) == 1 else np.concatenate(by_part)
        deviation += (self.weights @ advantages.reshape(len(advantages), -1)).reshape(deviation.shape)
        if self.effects is not None:
            deviation *= self.effects.slope
            deviation += self.effects.level
        if taken is not None and self.drawn is not None:
            taken += self.drawn.taken(x, advantages, prices, loss)
