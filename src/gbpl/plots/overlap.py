"""Overlap of a log: rows by propensity, and welfare by clip level (appendix: weak overlap)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.plots.axes import BAR, axes_for, label_text, legend_above, new_figure, percent, short_count
from gbpl.plots.colours import BLUE, GREY, ORANGE, PALE, RED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gbpl.value.overlap import OverlapReport

__all__ = ["plot_overlap"]

STRIPS = 6  # actions a picture of this height has room for


def plot_overlap(report: OverlapReport | Any, *, axes: Sequence[Axes] | None = None) -> tuple[Axes, ...]:
    """Rows by propensity, those that took the action upwards and the others downwards; and welfare by clip level.

    With two actions the propensity is that of the second. With more, each action has a strip on a log axis, every
    side as high as its own largest bin and the first bin with all that is smaller; of more than six, the six of
    smallest effective size are drawn. The second Axes is there when the report has `welfare_by_clip`: welfare with
    1.96 standard errors each way, and the effective size below each clip level. In place of the report, `overlap_`, the
    fitted policy or a study can be given.
    """
    report = getattr(getattr(report, "fitted", report), "overlap_", report)
    if not hasattr(report, "welfare_by_clip"):
        raise ValueError(
            f"plot_overlap takes a policy fitted to logged feedback, or its overlap_, got {type(report).__name__}; "
            "where the outcomes of every action are known there is no overlap to show"
        )
    count = 2 if report.welfare_by_clip else 1
    if axes is None:
        axes = new_figure().subplots(1, count, squeeze=False, width_ratios=(4, 3)[:count])[0]
    if len(axes) != count:
        raise ValueError(f"axes must be {count} Axes for this report, got {len(axes)}")
    panels = tuple(axes_for(ax) for ax in axes)
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
        label = None if i else f"clipped ({percent(report.clipped_fraction)} of rows)"
        ax.axvspan(low, max(low, high), color=PALE, linewidth=0, zorder=0, label=label)
    ax.set_xlim(first, last)


def _mirrored_rows(report: OverlapReport, ax: Axes) -> None:
    others, takers = report.histogram[1]
    first, second = (label_text(action, 12) for action in report.actions.tolist())
    ax.stairs(takers, report.histogram_edges, fill=True, color=BLUE, label=f"took {second}")
    ax.stairs(-others, report.histogram_edges, fill=True, color=ORANGE, label=f"took {first}")
    ax.axhline(0.0, color=GREY, linewidth=0.8)
    _shade_clipped(report, ax)
    ax.locator_params(axis="y", integer=True)
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):.0f}")
    ax.set(xlabel=f"{'estimated ' * report.estimated}propensity of {second}", ylabel="rows")
    legend_above(ax, columns=2)


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
    labels = [label_text(action, 16) for action in report.actions[shown].tolist()]
    sizes = [f"{short_count(report.counts[a])} ({short_count(size[a])})" for a in shown]
    names = [f"{label}\n{text}" for label, text in zip(labels, sizes, strict=True)]
    ax.set_yticks(places, names, fontsize=8)
    ax.tick_params(axis="y", length=0)
    ax.spines["left"].set_visible(False)
    few = f"the {len(shown)} of {len(size)} with the smallest" if len(shown) < len(size) else ""
    ax.set(xscale="log", xlabel=f"{'estimated ' * report.estimated}propensity of the action")
    ax.set(ylabel=f"action: rows (effective size)\n{few}".strip(), ylim=(-0.5, len(shown) - 0.5))
    legend_above(ax, columns=2)


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
        legend_above(ax)
    texts = [f"{row.clip:.3g}\n{short_count(row.effective_size)}" for row in rows]
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
