"""What all plots share: plain axes, checks of arrays, and a legend above the plot."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbpl.value.overlap import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

__all__ = [
    "BAND", "BAR", "axes_for", "finite_array", "label_text", "legend_above", "new_figure", "one_per_item", "percent",
    "short_count",
]  # fmt: skip

BAND = "pointwise band"
BAR = {"fmt": "o", "capsize": 3, "markersize": 5, "elinewidth": 1.2}


def new_figure() -> Figure:
    """A figure of 640 x 400 pixels that pyplot does not keep."""
    from matplotlib.figure import Figure

    return Figure(figsize=(6.4, 4.0), dpi=100, layout="constrained")


def axes_for(ax: Axes | None) -> Axes:
    """The given Axes, or one on a new figure, with two plain spines."""
    ax = new_figure().add_subplot() if ax is None else ax
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def finite_array(values: ArrayLike, name: str, axes: str) -> np.ndarray:
    array = np.asarray(values, np.float64)
    count = len(axes.split(", "))
    if array.ndim != count or array.size == 0 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite numbers by ({axes}), got shape {array.shape}")
    return array


def one_per_item(values: ArrayLike | None, name: str, count: int) -> np.ndarray | None:
    if values is None:
        return None
    array = np.asarray(values, np.float64)
    if array.shape != (count,):
        raise ValueError(f"{name} must have {count} numbers, got shape {array.shape}")
    return array


def percent(level: float) -> str:
    return f"{100.0 * level:.3g}%"


def label_text(label: object, width: int) -> str:
    """A user's label as matplotlib takes it: short, and a dollar sign is no mathematics."""
    return shorten(label, width).replace("$", r"\$")


def short_count(number: float) -> str:
    """12 for 12, 3.0k for 3026, 391k for 391154."""
    if number < 1000:
        return f"{number:.0f}"
    return f"{number / 1000:.1f}k" if number < 9950 else f"{number / 1000:.0f}k"


def legend_above(ax: Axes, columns: int = 4) -> None:
    """A legend over the plot, where it hides nothing; faint lines and dots are shown in full colour."""
    count = min(columns, len(ax.get_legend_handles_labels()[1]))
    legend = ax.legend(
        frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=count, handlelength=1.6,
        columnspacing=1.4, markerscale=1.2,
    )  # fmt: skip
    for handle in legend.legend_handles:
        if handle is not None and (handle.get_alpha() or 1.0) < 0.5 and not str(handle.get_label()).endswith(BAND):
            handle.set_alpha(0.9)
