"""Pictures of a posterior and of rules made from it (appendix: posterior visualization, disagreement, thresholds).

Every function takes arrays, draws on `ax` or on a figure of its own, and returns the Axes; `ax.figure.savefig` writes
it. Nothing is shown and pyplot is not touched, so no figure stays behind. Legends stand above the plot: for a title
use `ax.figure.suptitle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gbpl.value.overlap import shorten

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from gbpl.coverage import CoverageStudy
    from gbpl.path.out_of_fold import ZetaPath
    from gbpl.posterior.eta import EtaChoice
    from gbpl.value.overlap import OverlapReport

__all__ = [
    "plot_coverage", "plot_disagreement", "plot_eta", "plot_groups", "plot_overlap", "plot_score_at", "plot_scores",
    "plot_threshold", "plot_welfare", "plot_zeta_path",
]  # fmt: skip

# Okabe and Ito's colours, told apart with any kind of colour vision and in grey.
BLUE, SKY, ORANGE, RED, GREEN, GREY = "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#767676"
PALE = "#F7DFCC"  # RED on white, for regions
GROUPS = ("0–0.2", "0.2–0.4", "0.4–0.6", "0.6–0.8", "0.8–1")  # noqa: RUF001 - the paper's five groups, en dashes
BAND = "pointwise band"
STRIPS = 6  # actions a picture of this height has room for
BAR = {"fmt": "o", "capsize": 3, "markersize": 5, "elinewidth": 1.2}


def _axes(ax: Axes | None) -> Axes:
    """The given Axes, or one on a figure of 640 x 400 that pyplot does not keep; two plain spines."""
    if ax is None:
        from matplotlib.figure import Figure

        ax = Figure(figsize=(6.4, 4.0), dpi=100, layout="constrained").add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _array(values: ArrayLike, name: str, axes: str) -> np.ndarray:
    array = np.asarray(values, np.float64)
    count = len(axes.split(", "))
    if array.ndim != count or array.size == 0 or not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite numbers by ({axes}), got shape {array.shape}")
    return array


def _column(values: ArrayLike | None, name: str, count: int) -> np.ndarray | None:
    if values is None:
        return None
    array = np.asarray(values, np.float64)
    if array.shape != (count,):
        raise ValueError(f"{name} must have {count} numbers, got shape {array.shape}")
    return array


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


def _percent(level: float) -> str:
    return f"{100.0 * level:.3g}%"


def _legend_above(ax: Axes, columns: int = 4) -> None:
    """A legend over the plot, where it hides nothing; faint lines and dots are shown in full colour."""
    count = min(columns, len(ax.get_legend_handles_labels()[1]))
    legend = ax.legend(
        frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=count, handlelength=1.6,
        columnspacing=1.4, markerscale=1.2,
    )  # fmt: skip
    for handle in legend.legend_handles:
        if handle is not None and (handle.get_alpha() or 1.0) < 0.5 and not str(handle.get_label()).endswith(BAND):
            handle.set_alpha(0.9)


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
    grid, draws = _array(grid, "grid", "point"), _array(score_draws, "score_draws", "draw, point")
    if draws.shape[1] != len(grid):
        raise ValueError(f"score_draws has {draws.shape[1]} points, grid {len(grid)}; evaluate the draws on the grid")
    low, high = _band(draws, level)
    aim = _column(target, "target", len(grid))
    ax = _axes(ax)
    ax.axhline(0.0, color=GREY, linewidth=0.8, zorder=0)
    ax.fill_between(grid, low, high, color=SKY, alpha=0.35, linewidth=0, label=f"{_percent(level)} {BAND}")
    for i, draw in enumerate(draws[_some(len(draws), shown)]):
        ax.plot(grid, draw, color=BLUE, linewidth=0.5, alpha=0.25, label=None if i else "posterior draws")
    ax.plot(grid, draws.mean(axis=0), color=BLUE, linewidth=2.2, label="posterior mean")
    if aim is not None:
        ax.plot(grid, aim, color=RED, linewidth=1.8, linestyle="--", label="target")
    ax.margins(x=0.0)
    ax.set(xlabel="covariate", ylabel="score (0 and above: action 1)")
    _legend_above(ax)
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
    draws = _array(draws, "draws", "draw")
    low, high = _band(draws, level)
    ax = _axes(ax)
    mean = float(draws.mean())
    ax.hist(draws, bins=_edges(draws, bins).tolist(), color=SKY, edgecolor="white", linewidth=0.5)
    ax.axvspan(low, high, color=BLUE, alpha=0.12, linewidth=0, zorder=0)
    ax.axvline(mean, color=BLUE, linewidth=2.0, label=f"mean {mean:.4g}")
    for end, label in ((low, f"{_percent(level)} interval [{low:.4g}, {high:.4g}]"), (high, None)):
        ax.axvline(end, color=BLUE, linewidth=1.2, linestyle=":", label=label)
    if reference is not None:
        ax.axvline(reference, color=RED, linewidth=1.8, linestyle="--", label=f"reference {reference:.4g}")
    ax.set(xlabel="welfare", ylabel="posterior draws")
    _legend_above(ax)
    return ax


def plot_score_at(
    score_draws: Float[np.ndarray, "draw point"],
    points: Sequence[float | str] | Float[np.ndarray, " point"],
    *,
    bins: int = 40,
    ax: Axes | None = None,
) -> Axes:
    """Histograms of the score at chosen points, one above the other, with the share of draws at 0 and above.

    `points` names them: covariate values, or words. All have the same bins, and each is as high as its row allows.
    """
    draws = _array(score_draws, "score_draws", "draw, point")
    if draws.shape[1] != len(points):
        raise ValueError(f"score_draws has {draws.shape[1]} points, points {len(points)}; name every point once")
    ax = _axes(ax)
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

    `correct` tells where the rule takes the better action. Means are over groups of rows by margin that hold 1, 3,
    5, ... parts of the rows, since what happens happens at small margins; at most `shown` rows are drawn as dots,
    evenly spaced in the order given.
    """
    split, margin = _array(disagreement, "disagreement", "row"), _array(margin, "margin", "row")
    if len(margin) != len(split):
        raise ValueError(f"disagreement has {len(split)} rows, margin {len(margin)}; give the same rows")
    right = _column(correct, "correct", len(split))
    ax = _axes(ax)
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
    _legend_above(ax, columns=2)
    return ax


def _count(number: float) -> str:
    """12 for 12, 3.0k for 3026, 391k for 391154."""
    if number < 1000:
        return f"{number:.0f}"
    return f"{number / 1000:.1f}k" if number < 9950 else f"{number / 1000:.0f}k"


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
        from matplotlib.figure import Figure

        axes = Figure(figsize=(6.4, 4.0), dpi=100, layout="constrained").subplots(1, 2)
    if len(axes) != 2:
        raise ValueError(f"axes must be two Axes, got {len(axes)}")
    left, right = _axes(axes[0]), _axes(axes[1])
    names, numbers = list(labels), _column(points, "points", len(labels))
    if numbers is not None:
        names = [f"{name}\n{_count(number)}" for name, number in zip(names, numbers, strict=True)]
    places = np.arange(len(labels))
    panels = (
        (left, agreement, agreement_error, "agreement", "agreement with the best action", BLUE),
        (right, regret, regret_error, "regret", "regret contribution", RED),
    )
    for ax, values, error, name, label, color in panels:
        height, spread = _column(values, name, len(labels)), _column(error, f"{name}_error", len(labels))
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
    """Welfare difference from the reference rule against the uncertain-region rate, one point a rule."""
    uncertain, difference = _array(uncertain, "uncertain", "rule"), _array(difference, "difference", "rule")
    if len(uncertain) != len(difference) or (labels is not None and len(labels) != len(uncertain)):
        raise ValueError(f"uncertain has {len(uncertain)} rules; difference and labels must have as many")
    spread = _column(error, "error", len(uncertain))
    ax = _axes(ax)
    order = np.argsort(uncertain, kind="stable")
    ax.axhline(0.0, color=GREY, linewidth=1.0, linestyle="--", label="reference rule")
    ax.plot(uncertain[order], difference[order], color=BLUE, linewidth=0.8, alpha=0.5)
    ax.errorbar(uncertain, difference, yerr=spread, color=BLUE, label="threshold rule", **BAR)  # type: ignore[arg-type]
    for x, y, text in zip(uncertain, difference, labels or [], strict=False):
        ax.annotate(text, (x, y), xytext=(7, 5), textcoords="offset points", fontsize=9)
    ax.margins(x=0.18, y=0.14)
    ax.set(xlabel="uncertain-region rate", ylabel="welfare difference from the reference")
    _legend_above(ax)
    return ax


def plot_zeta_path(path: ZetaPath, *, ax: Axes | None = None) -> Axes:
    """Welfare out of fold over zeta with one standard error each way; a dot's area is its weight in the fitted policy.

    With one entry for each zeta the weights are written above; where the path was fitted to scores with and without the
    doubly robust correction, each has its line, with its whole weight in the legend.
    """
    ax = _axes(ax)
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
    """What a calibration judged each eta by, its nominal value where it has one, and the eta it chose."""
    ax = _axes(ax)
    order = np.argsort(choice.grid)
    ax.plot(choice.grid[order], choice.curve[order], color=BLUE, marker="o", markersize=4)
    if choice.nominal is not None:
        ax.axhline(choice.nominal, color=GREY, linewidth=1.0, linestyle="--", zorder=0, label=f"{choice.nominal:.0%}")
    ax.axvline(choice.eta, color=ORANGE, linewidth=2.0, zorder=0, label=f"chosen: {choice.eta:.3g}")
    ax.set_xscale("log")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=9)
    ax.set(xlabel="eta", ylabel=choice.what)
    return ax


def plot_coverage(study: CoverageStudy, *, ax: Axes | None = None) -> Axes:
    """Coverage of each level's intervals with two standard errors each way, the paper's two figures.

    With four etas or more it is drawn over eta, a line a level; with fewer over the nominal level, a line an eta.
    Dashed is the nominal level.
    """
    ax = _axes(ax)
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


def _label(action: object, width: int) -> str:
    """A user's label as matplotlib takes it: short, and a dollar sign is no mathematics."""
    return shorten(action, width).replace("$", r"\$")


def plot_overlap(report: OverlapReport, *, axes: Sequence[Axes] | None = None) -> tuple[Axes, ...]:
    """Rows by propensity, those that took the action upwards and the others downwards; and welfare by clip level.

    With two actions the propensity is that of the second. With more, each action has a strip on a log axis, every
    side as high as its own largest bin and the first bin with all that is smaller; of more than six, the six of
    smallest effective size are drawn. The second Axes is there when the report has `welfare_by_clip`: welfare with
    1.96 standard errors each way, and the effective size below each clip level.
    """
    count = 2 if report.welfare_by_clip else 1
    if axes is None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(6.4, 4.0), dpi=100, layout="constrained")
        axes = figure.subplots(1, count, squeeze=False, width_ratios=(4, 3)[:count])[0]
    if len(axes) != count:
        raise ValueError(f"axes must be {count} Axes for this report, got {len(axes)}")
    panels = tuple(_axes(ax) for ax in axes)
    draw = _mirrored_rows if len(report.actions) == 2 else _strips
    draw(report, panels[0])
    if count == 2:
        _welfare_by_clip(report, panels[1])
    return panels


def _shade_clipped(report: OverlapReport, ax: Axes) -> None:
    """Where clipping changes a propensity; with two actions a large one is the other's small one."""
    first, last = report.histogram_edges[[0, -1]].tolist()
    ends = [(first, report.clip), (1.0 - report.clip, last)][: 2 if len(report.actions) == 2 else 1]
    for i, (low, high) in enumerate(ends):
        label = None if i else f"clipped ({_percent(report.clipped_fraction)} of rows)"
        ax.axvspan(low, max(low, high), color=PALE, linewidth=0, zorder=0, label=label)
    ax.set_xlim(first, last)


def _mirrored_rows(report: OverlapReport, ax: Axes) -> None:
    others, takers = report.histogram[1]
    first, second = (_label(action, 12) for action in report.actions.tolist())
    ax.stairs(takers, report.histogram_edges, fill=True, color=BLUE, label=f"took {second}")
    ax.stairs(-others, report.histogram_edges, fill=True, color=ORANGE, label=f"took {first}")
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    _shade_clipped(report, ax)
    ax.locator_params(axis="y", integer=True)
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
    ax.set(xlabel=f"{'estimated ' * report.estimated}propensity of {second}", ylabel="rows")
    _legend_above(ax, columns=2)


def _strips(report: OverlapReport, ax: Axes) -> None:
    size = report.effective_size_by_action
    shown = np.sort(np.argsort(size, kind="stable")[:STRIPS])
    places = np.arange(len(shown))[::-1]  # the first action on top
    for side, height, color, label in ((1, 0.42, BLUE, "took it"), (0, -0.42, ORANGE, "did not")):
        counts = report.histogram[shown, side]
        for i, (place, row) in enumerate(zip(places, counts, strict=True)):
            heights = place + height * row / max(row.max(), 1)
            name = label if i == 0 and counts.any() else None
            ax.stairs(heights, report.histogram_edges, baseline=place, fill=True, color=color, label=name)
    for place in places:
        ax.axhline(float(place), color=GREY, linewidth=0.6)
    _shade_clipped(report, ax)
    names = [f"{_label(report.actions.tolist()[a], 16)}\n{_count(report.counts[a])} ({_count(size[a])})" for a in shown]
    ax.set_yticks(places, names, fontsize=8)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    few = f"the {len(shown)} of {len(size)} with the smallest" if len(shown) < len(size) else ""
    ax.set(xscale="log", xlabel=f"{'estimated ' * report.estimated}propensity of the action")
    ax.set(ylabel=f"action: rows (effective size)\n{few}".strip(), ylim=(-0.5, len(shown) - 0.5))
    _legend_above(ax, columns=2)


def _welfare_by_clip(report: OverlapReport, ax: Axes) -> None:
    rows = sorted(report.welfare_by_clip, key=lambda row: row.clip)
    clip, welfare, error = np.array([(row.clip, row.welfare, 1.96 * row.se) for row in rows]).T
    least = min((c for c in clip if c > 0), default=0.01)
    places = np.where(clip > 0, clip, least / 3.0)  # no clipping has no place on a log axis: left of all
    ax.set_xscale("log")
    ax.errorbar(places, welfare, yerr=error, color=BLUE, linewidth=1.0, linestyle="-", **BAR)  # type: ignore[arg-type]
    used = np.isclose(clip, report.clip)
    if used.any():
        ax.plot(places[used], welfare[used], "o", color=RED, markersize=8, zorder=3, label="clip in use")
        _legend_above(ax)
    texts = [f"{row.clip:.3g}\n{_count(row.effective_size)}" for row in rows]
    letter = 0.05 * np.log(places[-1] / places[0])  # room for one, about
    named = [0]
    for i, place in enumerate(places):  # a label that would touch the one before is left out
        widest = max(len(part) for text in (texts[i], texts[named[-1]]) for part in text.split("\n"))
        if np.log(place / places[named[-1]]) > letter * widest:
            named.append(i)
    ax.set_xticks(places[named], [texts[i] for i in named], fontsize=8)
    ax.set_xticks([], minor=True)
    ax.grid(axis="y", color=GREY, alpha=0.2)
    ax.margins(x=0.12, y=0.12)
    ax.set(xlabel="clip, effective size", ylabel="welfare")
