"""Zeta grids: the entries of a path, in units of the outcome scale (section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["AUTO_PATH", "MODEL_PATH", "PASSES_MODEL_PATH", "SIDE_PATH", "TableGrid", "auto_path"]

AUTO_PATH = (10.0, 3.0, 1.0, 0.1, 0.001)  # from the regression end to the direct-welfare end
MODEL_PATH = (3.0, 0.1)  # of the outcome model's table alone: it has no noise, zetas differ little, and two are enough
SHORT_PATH, SHORT_MODEL_PATH = (3.0, 1.0, 0.1), (1.0,)  # of a network that has other models beside it
# With many rows the outcome model's table is precise, and a score that is not saturated changes sign where it does.
MANY, MANY_MODEL_PATH, PASSES_MODEL_PATH = 5_000, (3.0,), (10.0, 3.0)
SIDE_PATH = (3.0, 0.3)  # of the models beside the network


def auto_path(correction: float, *, several: bool = False, logged: int = 0) -> tuple[float, ...]:
    """Zetas of a table with this share of the doubly robust correction, where the user names none.

    With `several` models they are those of the first; `logged` is the number of rows of a log.
    """
    if correction > 0.0:
        return SHORT_PATH if several else AUTO_PATH
    if not several:
        return MODEL_PATH
    return SHORT_MODEL_PATH if logged < MANY else MANY_MODEL_PATH


@dataclass(frozen=True, slots=True)
class TableGrid:
    """The zetas of one table of outcomes: `scale` is the outcome scale they follow, `path` is in units of it.

    `copies` counts its versions, one for all folds or one for each; `correction` is its share of the doubly robust
    correction.
    """

    scale: float
    correction: float = 1.0
    path: Sequence[float] = AUTO_PATH
    copies: int = 1

    def zetas(self, named: Sequence[float] | None, unit: float, *, first: bool) -> list[float]:
        """Those named, or those that follow from the scale (`unit` if it is zero); fewer for models after the first."""
        if named is not None:
            return [float(zeta) for zeta in named]
        relative = self.path if first else SIDE_PATH[: len(self.path)]
        return [zeta * (self.scale or unit) for zeta in relative]
