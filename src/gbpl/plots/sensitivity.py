"""Bounds of a gain under hidden confounding, by Gamma."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.plots.axes import axes_for, legend_above, percent
from gbpl.plots.colours import BLUE, GREY, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gbpl.value.sensitivity import Sensitivity

__all__ = ["plot_sensitivity"]

ROOM = 0.09  # of the width, for the label of a Gamma


def plot_sensitivity(sensitivity: Sensitivity | Any, *, gain: bool = True, ax: Axes | None = None) -> Axes:
    """The bounds of the gain, or of the value, that widen with Gamma, inside those with their errors.

    With the gain, a line stands where the lower bound reaches zero (`breakdown`), if that is within the Gammas.
    A fitted policy can be given in place of its `sensitivity()`.
    """
    if callable(getattr(sensitivity, "sensitivity", None)):
        sensitivity = sensitivity.sensitivity()  # type: ignore[union-attr]
    ax = axes_for(ax)
    gammas = np.array(sensitivity.gammas)
    if len(gammas) < 2 or np.any(np.diff(gammas) <= 0):
        raise ValueError(f"a plot needs at least two Gammas in growing order, got {sensitivity.gammas}")
    low, high = (sensitivity.gain_lower, sensitivity.gain_upper) if gain else (sensitivity.lower, sensitivity.upper)
    ends = np.array([sensitivity.interval(place, gain=gain) for place in range(len(gammas))])
    lower, upper = np.array([value.estimate for value in low]), np.array([value.estimate for value in high])
    ax.fill_between(
        gammas, *ends.T, color=BLUE, alpha=0.12, linewidth=0, label=f"with errors, {percent(sensitivity.level)}"
    )
    ax.fill_between(gammas, lower, upper, color=BLUE, alpha=0.3, linewidth=0, label="bounds")
    for side in (lower, upper):
        ax.plot(gammas, side, color=BLUE, linewidth=1.4)
    ax.set_xscale("log")
    named = [gammas[0]]
    for gamma in gammas[1:]:  # a label that would touch the one before is left out
        if np.log(gamma / named[-1]) > ROOM * np.log(gammas[-1] / gammas[0]):
            named.append(gamma)
    ax.set_xticks(named, [f"{gamma:g}" for gamma in named])
    ax.set_xticks([], minor=True)
    ax.set_xlim(gammas[0], gammas[-1])
    if gain:
        ax.axhline(0.0, color=GREY, linewidth=0.8)
        if gammas[0] < sensitivity.breakdown < gammas[-1]:
            told = f"breakdown at {sensitivity.breakdown:.3g}"
            ax.axvline(sensitivity.breakdown, color=RED, linestyle="--", linewidth=1.2, label=told)
    name = sensitivity.baseline.replace("$", r"\$")
    ax.set(xlabel="Gamma: factor of the odds of an action", ylabel=f"gain over {name}" if gain else "value")
    legend_above(ax, columns=3)
    return ax
