"""The front between two outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.plots.axes import axes_for, legend_above, percent
from gbpl.plots.colours import BLUE, GREY, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gbpl.value.front import Front

__all__ = ["plot_front"]


def plot_front(front: Front | Any, *, ax: Axes | None = None) -> Axes:
    """Changes of two outcomes along a front, with bands that hold for all of it together.

    Dominated points are hollow. A `Several` can be given in place of its `front`: then the chosen policy has a ring,
    and the bound of a guard in the outcome's unit is a line.
    """
    chosen, guards = getattr(front, "chosen", None), getattr(front, "guards", ())
    front = getattr(front, "front", front)
    if len(front.outcomes) != 2:
        raise ValueError(f"a front is drawn of two outcomes, got {len(front.outcomes)}: {', '.join(front.outcomes)}")
    ax = axes_for(ax)
    changes, bands, worse = front.changes, front.bands(), front.dominated
    for place, (change, band) in enumerate(zip(changes, bands, strict=True)):
        label = f"{percent(front.level)} bands, all together" if place == 0 else None
        ax.plot([change[1]] * 2, band[0], color=BLUE, alpha=0.35, linewidth=1.2, label=label)
        ax.plot(band[1], [change[0]] * 2, color=BLUE, alpha=0.35, linewidth=1.2)
    ax.plot(changes[:, 1], changes[:, 0], color=BLUE, linewidth=0.8, alpha=0.6)
    for hollow, label in ((False, "policies"), (True, "dominated")):
        some = worse == hollow
        if some.any():
            face = "white" if hollow else BLUE
            ax.plot(changes[some, 1], changes[some, 0], "o", color=BLUE, markerfacecolor=face, label=label)
    if chosen is not None:
        ax.plot(*changes[chosen, ::-1], "o", markersize=13, color=RED, fillstyle="none", label="chosen")
    for one in guards:
        if not one.guard.relative and np.isfinite(one.guard.bound):
            ax.axvline(one.guard.bound, color=RED, linestyle="--", linewidth=1.2, label=f"bound {one.guard.bound:g}")
    ax.axhline(0.0, color=GREY, linewidth=0.6)
    ax.axvline(0.0, color=GREY, linewidth=0.6)
    first, second = (name.replace("$", r"\$") for name in front.outcomes)
    ax.set(xlabel=f"change of {second}", ylabel=f"change of {first}")
    legend_above(ax, columns=3)
    return ax
