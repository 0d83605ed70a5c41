"""Choices made by studies: the zeta path, eta by calibration, and coverage (section 4.2, appendix: calibration)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbpl.decisions.reliability import Reliability
from gbpl.plots.axes import BAR, axes_for, legend_above
from gbpl.plots.colours import BLUE, GREEN, GREY, ORANGE, RED, SKY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gbpl.estimators.fitted import FittedPolicy
    from gbpl.eta_coverage import EtaCoverage
    from gbpl.path.out_of_fold import ZetaPath
    from gbpl.posterior.eta import EtaChoice

__all__ = ["plot_coverage", "plot_eta", "plot_reliability", "plot_zeta_path"]


def plot_zeta_path(path: ZetaPath | FittedPolicy, *, ax: Axes | None = None) -> Axes:
    """Welfare out of fold over zeta with one standard error each way; a dot's area is its weight in the fitted policy.

    With one entry for each zeta the weights are written above; where the path was fitted to scores with and without the
    doubly robust correction, each has its own line, with its total weight in the legend.
    `path` is `zeta_path_`, or the fitted policy that has it.
    """
    path = getattr(path, "zeta_path_", path)
    ax = axes_for(ax)
    names = ("zeta", "welfare", "welfare_se", "weight", "correction")
    columns = {name: np.asarray(getattr(path, name), np.float64) for name in names}
    shares = np.unique(columns["correction"])[::-1]
    for share, color in zip(shares, (BLUE, GREEN, GREY), strict=False):
        rows = np.flatnonzero(columns["correction"] == share)
        zeta, welfare, se, weight = (columns[name][rows] for name in names[:4])
        label = f"correction {share:g}: weight {weight.sum():.0%}" if len(shares) > 1 else None
        order = np.argsort(zeta)
        ax.plot(zeta[order], welfare[order], color=color, linewidth=0.8, alpha=0.5, zorder=1, label=label)
        ax.errorbar(zeta, welfare, yerr=se, color=color, **{**BAR, "markersize": 3})  # type: ignore[arg-type]
        ax.scatter(zeta, welfare, s=300.0 * weight, color=ORANGE, edgecolors=color, zorder=3)
        if len(shares) == 1 and np.any(weight > 0) and len(zeta) <= 12:
            for x, part in zip(zeta, weight, strict=True):
                ax.text(x, 1.02, f"{part:.0%}", transform=ax.get_xaxis_transform(), ha="center", fontsize=9)
            ax.set_title("weight in the fitted policy", fontsize=9, pad=20)
    ax.set_xscale("log")
    if len(shares) > 1:
        ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9)
    ax.margins(x=0.08, y=0.12)
    ax.set(xlabel="zeta (left: towards direct welfare, right: towards regression)", ylabel="welfare out of fold")
    return ax


def plot_eta(choice: EtaChoice, *, ax: Axes | None = None) -> Axes:
    """The measure by which a calibration compared the etas, its nominal value if it has one, and the eta chosen."""
    ax = axes_for(ax)
    order = np.argsort(choice.grid)
    ax.plot(choice.grid[order], choice.curve[order], color=BLUE, marker="o", markersize=4)
    if choice.nominal is not None:
        ax.axhline(choice.nominal, color=GREY, linewidth=1.0, linestyle="--", zorder=0, label=f"{choice.nominal:.0%}")
    ax.axvline(choice.eta, color=ORANGE, linewidth=2.0, zorder=0, label=f"chosen: {choice.eta:.3g}")
    ax.set_xscale("log")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9)
    ax.set(xlabel="eta", ylabel=choice.what)
    return ax


def plot_coverage(study: EtaCoverage, *, ax: Axes | None = None) -> Axes:
    """Coverage of each level's intervals with two standard errors each way, the paper's two figures.

    With four etas or more it is drawn over eta, one line per level; with fewer, over the nominal level, one line per
    eta. The dashed line is the nominal level.
    """
    ax = axes_for(ax)
    if over_eta := len(study.etas) >= 4:
        names, across, table, errors = study.levels, study.etas, study.coverage.T, study.coverage_se.T
    else:
        names, across, table, errors = study.etas, study.levels, study.coverage, study.coverage_se
    lines = zip(names, table, errors, strict=True)
    for (name, rates, se), color in zip(lines, (BLUE, GREEN, ORANGE, RED, SKY, GREY), strict=False):
        label = f"{name:.0%}" if over_eta else f"eta {name:g}"
        ax.errorbar(across, rates, yerr=2.0 * se, color=color, label=label, **{**BAR, "fmt": "o-"})  # type: ignore[arg-type]
        if over_eta:
            ax.axhline(name, color=color, linewidth=1.0, linestyle="--", alpha=0.6, zorder=0)
    if over_eta:
        ax.set_xscale("log", base=2)
        ax.set_xticks(across, [f"{eta:g}" for eta in across])
    else:
        ax.plot(across, across, color=GREY, linestyle="--", linewidth=1.0, zorder=0)
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, frameon=False, fontsize=9)
    ax.set(xlabel="eta" if over_eta else "nominal level", ylabel="coverage", ylim=(min(0.3, table.min() - 0.05), 1.02))
    return ax


def plot_reliability(policy: FittedPolicy | Reliability, *, ax: Axes | None = None) -> Axes:
    """Gain of the most probable action over the second, by how sure the policy is: expected, and by rows not seen.

    `policy` is a fitted policy, or its `reliability()`. Bars are two standard errors each way.
    """
    ax = axes_for(ax)
    found = policy if isinstance(policy, Reliability) else policy.reliability()
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    ax.plot(found.said, found.expected, color=ORANGE, linestyle="--", marker="s", markersize=4, label="expected")
    bars = {**BAR, "markersize": 5}
    ax.errorbar(found.said, found.estimate, yerr=2.0 * found.se, color=BLUE, label="estimated", **bars)  # type: ignore[arg-type]
    ax.margins(x=0.06)
    ax.set(xlabel="probability that the most probable action is the best", ylabel="gain over the second, per row")
    legend_above(ax, columns=2)
    return ax
