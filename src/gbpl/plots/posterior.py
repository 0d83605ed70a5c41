"""A posterior of scores and welfare, and decisions made from it (appendix: posterior visualization, thresholds)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gbpl.plots.style import (
    BAND,
    BAR,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    RED,
    SKY,
    axes_for,
    finite_array,
    legend_above,
    new_figure,
    one_per_item,
    percent,
    short_count,
)  # fmt: skip

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from matplotlib.axes import Axes

__all__ = [
    "GROUPS", "plot_disagreement", "plot_groups", "plot_score_at", "plot_scores", "plot_threshold", "plot_welfare",
]  # fmt: skip

GROUPS = ("0–0.2", "0.2–0.4", "0.4–0.6", "0.6–0.8", "0.8–1")  # noqa: RUF001 - the paper's five groups, en dashes


def _band(draws: np.ndarray, level: float) -> np.ndarray:
    """Lower and upper ends of the central interval of each column of draws."""
    if not 0.0 < level < 1.0:
        raise ValueError(f"level must be in (0, 1), got {level}; try 0.95")
    return np.quantile(draws, [(1.0 - level) / 2.0, (1.0 + level) / 2.0], axis=0)


def _some(count: int, shown: int) -> np.ndarray:
    """At most `shown` of `count` places, evenly spaced."""
    if shown < 0:
        raise ValueError(f"shown must be 0 or more, got {shown}")
    return np.unique(np.linspace(0, count - 1, min(shown, count)).astype(int))


def _edges(values: np.ndarray, bins: int) -> np.ndarray:
    """Bin edges over the range of the values, a little wider where they are all the same."""
    low, high = float(values.min()), float(values.max())
    least = 1e-6 * max(abs(low), abs(high), 1.0)
    if high - low < least:
        low, high = low - least, high + least
    return np.linspace(low, high, bins + 1)


def plot_scores(
    grid: Float[np.ndarray, " point"],
    score_draws: Float[np.ndarray, "draw point"],
    *,
    target: Float[np.ndarray, " point"] | None = None,
    level: float = 0.95,
    shown: int = 60,
    ax: Axes | None = None,
) -> Axes:
    """Posterior draws of the score over one covariate, their mean and pointwise band, and the population target.

    At most `shown` draws are drawn as thin lines, evenly spaced in the chain; mean and band use all of them.
    """
    grid, draws = finite_array(grid, "grid", "point"), finite_array(score_draws, "score_draws", "draw, point")
    if draws.shape[1] != len(grid):
        raise ValueError(f"score_draws has {draws.shape[1]} points, grid {len(grid)}; evaluate the draws on the grid")
    low, high = _band(draws, level)
    aim = one_per_item(target, "target", len(grid))
    ax = axes_for(ax)
    ax.axhline(0.0, color=GREY, linewidth=0.8, zorder=0)
    ax.fill_between(grid, low, high, color=SKY, alpha=0.35, linewidth=0, label=f"{percent(level)} {BAND}")
    for i, draw in enumerate(draws[_some(len(draws), shown)]):
        ax.plot(grid, draw, color=BLUE, linewidth=0.5, alpha=0.25, label=None if i else "posterior draws")
    ax.plot(grid, draws.mean(axis=0), color=BLUE, linewidth=2.2, label="posterior mean")
    if aim is not None:
        ax.plot(grid, aim, color=RED, linewidth=1.8, linestyle="--", label="target")
    ax.margins(x=0.0)
    ax.set(xlabel="covariate", ylabel="score (0 and above: action 1)")
    legend_above(ax)
    return ax


def plot_welfare(
    draws: Float[np.ndarray, " draw"],
    *,
    level: float = 0.95,
    reference: float | None = None,
    bins: int = 30,
    ax: Axes | None = None,
) -> Axes:
    """Histogram of welfare over posterior draws, with its mean, central interval and a reference value."""
    draws = finite_array(draws, "draws", "draw")
    low, high = _band(draws, level)
    ax = axes_for(ax)
    mean = float(draws.mean())
    ax.hist(draws, bins=_edges(draws, bins).tolist(), color=SKY, edgecolor="white", linewidth=0.5)
    ax.axvspan(low, high, color=BLUE, alpha=0.12, linewidth=0, zorder=0)
    ax.axvline(mean, color=BLUE, linewidth=2.0, label=f"mean {mean:.4g}")
    for end, label in ((low, f"{percent(level)} interval [{low:.4g}, {high:.4g}]"), (high, None)):
        ax.axvline(end, color=BLUE, linewidth=1.2, linestyle=":", label=label)
    if reference is not None:
        ax.axvline(reference, color=RED, linewidth=1.8, linestyle="--", label=f"reference {reference:.4g}")
    ax.set(xlabel="welfare", ylabel="posterior draws")
    legend_above(ax)
    return ax


def plot_score_at(
    score_draws: Float[np.ndarray, "draw point"],
    points: Sequence[float | str] | Float[np.ndarray, " point"],
    *,
    bins: int = 40,
    ax: Axes | None = None,
) -> Axes:
    """Histograms of the score at chosen points, one above the other, with the share of draws at 0 and above.

    `points` names them by covariate values or words. All have the same bins, and each is as high as its row allows.
    """
    draws = finite_array(score_draws, "score_draws", "draw, point")
    if draws.shape[1] != len(points):
        raise ValueError(f"score_draws has {draws.shape[1]} points, points {len(points)}; name every point once")
    ax = axes_for(ax)
    edges, places = _edges(draws, bins), np.arange(len(points))
    ax.axvline(0.0, color=GREY, linewidth=1.0, linestyle="--", zorder=0)
    for place, column in zip(places, draws.T, strict=True):
        counts, _ = np.histogram(column, edges)
        ax.stairs(place + 0.85 * counts / counts.max(), edges, baseline=place, fill=True, color=SKY)
        ax.plot([column.mean()] * 2, [place, place + 0.85], color=BLUE, linewidth=1.8)
        ax.axhline(float(place), color=GREY, linewidth=0.6)
    ax.set_yticks(places + 0.4, [p if isinstance(p, str) else f"{p:g}" for p in points])
    ax.set(xlabel="score (bar: mean; dashed: 0, where the action changes)", ylabel="point", ylim=(-0.05, len(points)))
    shares = ax.secondary_yaxis("right")
    shares.set_yticks(places + 0.4, [f"{share:.0%}" for share in (draws >= 0.0).mean(axis=0)])
    shares.set_ylabel("draws with score 0 and above", labelpad=8)
    for axis in (ax, shares):
        axis.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    shares.spines["right"].set_visible(False)
    return ax


def plot_disagreement(
    disagreement: Float[np.ndarray, " row"],
    margin: Float[np.ndarray, " row"],
    *,
    correct: Bool[np.ndarray, " row"] | None = None,
    bins: int = 10,
    shown: int = 2000,
    ax: Axes | None = None,
) -> Axes:
    """Posterior disagreement against the margin M(x), its mean by margin, and agreement by margin.

    `correct` says where the rule takes the better action. Means are over groups of rows by margin that hold 1, 3,
    5, ... parts of the rows, since disagreement is found at small margins; at most `shown` rows are drawn as dots,
    evenly spaced in the order given.
    """
    split, margin = finite_array(disagreement, "disagreement", "row"), finite_array(margin, "margin", "row")
    if len(margin) != len(split):
        raise ValueError(f"disagreement has {len(split)} rows, margin {len(margin)}; give the same rows")
    right = one_per_item(correct, "correct", len(split))
    ax = axes_for(ax)
    some = _some(len(split), shown)
    kinds = [(np.ones(len(some), bool), GREY, "rows")]
    if right is not None:
        good = right[some] > 0.5
        kinds = [(good, GREY, "rows, better action taken"), (~good, ORANGE, "rows, other action taken")]
    for which, color, label in kinds:
        rows = some[which]
        ax.scatter(margin[rows], split[rows], s=9, color=color, alpha=0.45, linewidths=0, label=label, rasterized=True)
    cuts = np.round(len(margin) * (np.arange(1, bins) / bins) ** 2).astype(int)
    groups = [g for g in np.split(np.argsort(margin, kind="stable"), cuts) if len(g)]
    center = [margin[g].mean() for g in groups]
    ax.plot(center, [split[g].mean() for g in groups], "o-", color=BLUE, markersize=4, label="mean disagreement")
    if right is not None:
        ax.plot(center, [right[g].mean() for g in groups], "s-", color=GREEN, markersize=4, label="agreement")
    ax.set(xlabel="margin (difference of the action means)", ylim=(-0.04, 1.04))
    ax.set_ylabel("disagreement" if right is None else "disagreement, agreement")
    ax.set_xlim(left=min(0.0, float(margin.min())))
    legend_above(ax, columns=2)
    return ax


def plot_groups(
    agreement: Float[np.ndarray, " group"],
    regret: Float[np.ndarray, " group"],
    *,
    agreement_error: Float[np.ndarray, " group"] | None = None,
    regret_error: Float[np.ndarray, " group"] | None = None,
    points: Int[np.ndarray, " group"] | None = None,
    labels: Sequence[str] = GROUPS,
    axes: Sequence[Axes] | None = None,
) -> tuple[Axes, Axes]:
    """Agreement with the best action and regret contribution by disagreement group, side by side, with errors.

    The groups are the paper's five unless `labels` says otherwise; `points` are the numbers of rows in them. A
    group without rows may be NaN.
    """
    agreement = np.asarray(agreement, np.float64)
    if agreement.shape != (len(labels),):
        raise ValueError(f"agreement must have {len(labels)} groups, got shape {agreement.shape}; or give labels")
    if axes is None:
        axes = new_figure().subplots(1, 2)
    if len(axes) != 2:
        raise ValueError(f"axes must be two Axes, got {len(axes)}")
    left, right = axes_for(axes[0]), axes_for(axes[1])
    names, numbers = list(labels), one_per_item(points, "points", len(labels))
    if numbers is not None:
        names = [f"{name}\n{short_count(number)}" for name, number in zip(names, numbers, strict=True)]
    places = np.arange(len(labels))
    panels = (
        (left, agreement, agreement_error, "agreement", "agreement with the best action", BLUE),
        (right, regret, regret_error, "regret", "regret contribution", RED),
    )
    for ax, values, error, name, label, color in panels:
        height, spread = one_per_item(values, name, len(labels)), one_per_item(error, f"{name}_error", len(labels))
        ax.errorbar(places, height, yerr=spread, color=color, linewidth=1.0, linestyle="-", **BAR)  # type: ignore[arg-type]
        ax.set_xticks(places, names, fontsize=8)
        ax.set(ylabel=label, xlim=(-0.5, len(labels) - 0.5), xlabel="disagreement")
        if numbers is not None:
            ax.set_xlabel("disagreement (below: rows)")
        ax.grid(axis="y", color=GREY, alpha=0.2)
    left.set_ylim(top=1.02)
    right.set_ylim(bottom=min(0.0, float(np.nanmin(regret))) - 0.03 * float(np.nanmax(np.abs(regret))))
    return left, right


def plot_threshold(
    uncertain: Float[np.ndarray, " rule"],
    difference: Float[np.ndarray, " rule"],
    *,
    error: Float[np.ndarray, " rule"] | None = None,
    labels: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Welfare difference from the reference rule against the uncertain-region rate, one point per rule."""
    uncertain, difference = finite_array(uncertain, "uncertain", "rule"), finite_array(difference, "difference", "rule")
    if len(uncertain) != len(difference) or (labels is not None and len(labels) != len(uncertain)):
        raise ValueError(f"uncertain has {len(uncertain)} rules; difference and labels must have as many")
    spread = one_per_item(error, "error", len(uncertain))
    ax = axes_for(ax)
    order = np.argsort(uncertain, kind="stable")
    ax.axhline(0.0, color=GREY, linewidth=1.0, linestyle="--", label="reference rule")
    ax.plot(uncertain[order], difference[order], color=BLUE, linewidth=0.8, alpha=0.5)
    ax.errorbar(uncertain, difference, yerr=spread, color=BLUE, label="threshold rule", **BAR)  # type: ignore[arg-type]
    for x, y, text in zip(uncertain, difference, labels or [], strict=False):
        ax.annotate(text, (x, y), xytext=(7, 5), textcoords="offset points", fontsize=9)
    ax.margins(x=0.18, y=0.14)
    ax.set(xlabel="uncertain-region rate", ylabel="welfare difference from the reference")
    legend_above(ax)
    return ax
