"""Fitted members in numpy, draws of their last layers, and the deviation from uniform they add up to."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gbpl.models.basis import effect_basis, rough_basis
from gbpl.models.numpy_form import NumpyForm, dense
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
    the rough `functions`.
    """

    slope: float
    knots: int
    level: Float[np.ndarray, " action"]
    functions: Float[np.ndarray, "feature_and_one function"] | None = None
    draw_weight: Float[np.ndarray, "draw member"] | None = None
    draw_coefficient: Float[np.ndarray, "draw basis_and_function action"] | None = None

    @property
    def draw_count(self) -> int:
        """Draws that go with it."""
        return 0 if self.draw_weight is None else len(self.draw_weight)

    def complete(self, x: np.ndarray, drawn: Float[np.ndarray, "draw row action"]) -> None:
        """Add what is beside the members to `drawn`, what they add to each draw, in place."""
        assert self.draw_coefficient is not None
        assert self.functions is not None
        width = self.draw_coefficient.shape[1] - self.functions.shape[1]
        phi = effect_basis(x, self.knots, width).astype(np.float32)
        basis = np.concatenate([phi, rough_basis(x, self.functions)], axis=1)
        drawn += np.matmul(basis, self.draw_coefficient)


class _ReadyPart:
    """A part with what applying it needs: layers that members share kept once, draws by member."""

    def __init__(self, part: Part, squashing: str, count: int, weight: np.ndarray | None) -> None:
        self.form, self.weights, self.count, self.weight = part.form.shared(), part.weights, count, weight
        self.advantage, self.ordered = advantage_of(squashing), squashing in SQUASHINGS
        self.drawn: dict[int, Float[np.ndarray, "basis draw_raw"]] = {}
        if part.draws is not None and part.draw_member is not None:
            for member in np.unique(part.draw_member).tolist():
                own = part.draws[part.draw_member == member].transpose(1, 0, 2)
                self.drawn[member] = np.ascontiguousarray(own.reshape(len(own), -1))
        self.widest = max([self.form.widest] + [drawn.shape[1] for drawn in self.drawn.values()])

    def add(
        self,
        x: np.ndarray,
        deviation: np.ndarray,
        taken: np.ndarray | None,
        drawn: np.ndarray | None = None,
        prices: np.ndarray | None = None,
    ) -> None:
        """Add up one block of standardized rows, in place: the deviation, draws of actions, draws of effects."""
        for members, basis in self.form.bases(x):
            advantages = self.advantage(dense(basis, self.form.last[members]).astype(np.float64))
            deviation += np.tensordot(self.weights[members], advantages, axes=1)
            if drawn is not None and self.weight is not None:
                drawn += np.tensordot(self.weight[:, members], advantages.astype(np.float32), axes=1)
            if taken is not None:
                for place, member in enumerate(members.tolist()):
                    if member in self.drawn:
                        self._count(basis if basis.ndim == 2 else basis[place], self.drawn[member], taken, prices)

    def _count(
        self, basis: np.ndarray, drawn: np.ndarray, taken: Int[np.ndarray, "row action"], prices: np.ndarray | None
    ) -> None:
        """Add one to the action of every draw; every squashing but that of the gaps keeps the order of raw outputs."""
        raw = basis @ drawn[:-1]
        raw += drawn[-1]
        raw = raw.reshape(len(basis), -1, self.form.last.shape[2])
        raw = raw if self.ordered and prices is None else self.advantage(raw)
        raw = raw if prices is None else raw - prices
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
        ends = np.cumsum([len(part.weights) for part in parts])[:-1]
        drawn = None if effects is None else effects.draw_weight
        weights = [None] * len(parts) if drawn is None else np.split(drawn, ends, axis=1)
        self.parts = [_ReadyPart(part, squashing, count, own) for part, own in zip(parts, weights, strict=True)]
        self.columns = None if columns is None else np.asarray(columns)
        self.mean, self.scale = (part if columns is None else part[self.columns] for part in (mean, scale))
        self.count, self.effects = count, effects
        widest = max([part.widest for part in self.parts] + [0 if effects is None else count * effects.draw_count])
        self.block = max(64, min(BLOCK, 1 << ((1 << 21) // widest).bit_length() - 1))

    def apply(
        self,
        x: Float[np.ndarray, "row feature"],
        *,
        draws: bool,
        prices: Float[np.ndarray, " action"] | None = None,
        loss: Float[np.ndarray, "row action"] | None = None,
    ) -> tuple[Float[np.ndarray, "row action"], Int[np.ndarray, "row action"] | None]:
        """Deviation from uniform, and how many draws take each action, one block of rows per core at a time.

        Draws take the action that is best less its price, of effects in outcome units, else in units of deviation.
        With draws of effects, `loss` is filled with E[max_b effect_b] - E[effect_a], what each action is expected to
        lose, net of prices.
        """
        deviation = np.zeros((len(x), self.count))
        some = any(part.drawn for part in self.parts) or (self.effects is not None and self.effects.draw_count > 0)
        taken = np.zeros((len(x), self.count), np.int64) if draws and some else None

        def compute(start: int) -> None:
            rows = slice(start, start + self.block)
            self._block(
                x[rows], deviation[rows], None if taken is None else taken[rows], prices,
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

    def _block(
        self,
        x: np.ndarray,
        deviation: np.ndarray,
        taken: np.ndarray | None,
        prices: np.ndarray | None,
        loss: np.ndarray | None,
    ) -> None:
        x = (((x if self.columns is None else x[:, self.columns]) - self.mean) / self.scale).astype(np.float32)
        effects = self.effects
        of_effects = 0 if effects is None or taken is None else effects.draw_count
        drawn = np.zeros((of_effects, len(x), self.count), np.float32) if of_effects else None
        for part in self.parts:
            part.add(x, deviation, taken if drawn is None else None, drawn, prices)
        if effects is None:
            return
        deviation *= effects.slope
        deviation += effects.level
        if taken is None or drawn is None:
            return
        effects.complete(x, drawn)
        if prices is not None:
            drawn -= prices
        best = np.argmax(drawn, axis=2)
        taken += np.stack([np.count_nonzero(best == action, axis=0) for action in range(self.count)], axis=1)
        if loss is not None:
            loss[:] = drawn.max(axis=2).mean(axis=0)[:, None] - drawn.mean(axis=0)
