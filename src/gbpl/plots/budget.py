"""Gain against what is spent, with the band that contains the whole curve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.plots.axes import axes_for, legend_above, percent
from gbpl.plots.colours import BLUE, GREY, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gbpl.value.curve import Curve

__all__ = ["plot_budget"]


def plot_budget(
    curve: Curve | Any, *, beside: Curve | None = None, budget: float | None = None, level: float = 0.9,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """A budget curve with its simultaneous band; `beside` is another one, such as that of `order="lot"`.

    A `budget` per row is marked. A fitted policy can be given in place of its `budget_curve()`.
    """
    if callable(getattr(curve, "budget_curve", None)):
        curve = curve.budget_curve()  # type: ignore[union-attr]
    ax = axes_for(ax)
    low, high = curve.bands(level).T
    ax.fill_between(
        curve.spend, low, high, color=BLUE, alpha=0.2, linewidth=0, label=f"{percent(level)} band, whole curve"
    )
    ax.plot(curve.spend, curve.gain, color=BLUE, linewidth=1.6, label=curve.what)
    if beside is not None:
        end = float(curve.spend[-1])
        kept = beside.spend <= end
        x = np.append(beside.spend[kept], end)
        ax.plot(x, np.interp(x, beside.spend, beside.gain), color=GREY, linestyle="--", linewidth=1.4, label="beside")
    if budget is not None:
        ax.axvline(budget, color=RED, linestyle="--", linewidth=1.2, label=f"budget {budget:.4g}")
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    ax.set(xlabel="spent per row", ylabel=f"{curve.what} per row")
    ax.set_xlim(0.0, max(float(curve.spend[-1]), 1e-300))
    legend_above(ax, columns=3)
    return ax
