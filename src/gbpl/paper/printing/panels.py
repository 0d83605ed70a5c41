"""One panel of a figure of the paper from a table's records: boxes, means, curves, coverage, threshold rules.

Every function draws on the Axes it is given and returns it. Numbers are means over trials with their Monte Carlo
standard errors, std / sqrt(trials); a single trial has no error, and a trial without the number (NaN) does not count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments import catalog
from gbpl.paper.experiments.records import Records
from gbpl.paper.printing.cells import standard_error
from gbpl.paper.printing.columns import Column
from gbpl.plots.colours import BLUE, GREEN, GREY, ORANGE, RED, SKY

if TYPE_CHECKING:
    from jaxtyping import Float
    from matplotlib.axes import Axes

__all__ = [
    "box_panel", "coverage_panel", "curve_panel", "mean_panel", "row_label", "summary", "threshold_panel",
    "trials_label",
]  # fmt: skip

Row = tuple[str, str]  # method and zeta

PURPLE, LIME, BLACK = "#AA4499", "#999933", "#333333"
INK: Mapping[str, tuple[str, str]] = {  # a method's colour and marker, the same in every figure
    catalog.DEFAULT[0]: (RED, "o"),
    "GBPLNet": (BLUE, "s"),
    "GBPLNet-DR": (BLUE, "s"),
    "GBPLNet-IPW": (SKY, "D"),
    "DirectWelfare": (GREEN, "^"),
    "DirectDRWelfare": (GREEN, "^"),
    "DirectIPWWelfare": (LIME, "v"),
    "DiffReg": (ORANGE, "P"),
    "PluginReg": (PURPLE, "X"),
    "WeightedLogistic": (BLACK, "d"),
}
ETA_INK: Mapping[str, tuple[str, str]] = {  # small eta dark, large eta light
    "0.25": ("#440154", "o"), "0.5": ("#3B528B", "s"), "1": ("#2A788E", "^"), "2": ("#1FA187", "D"),
    "4": ("#5DBE4E", "v"), "8": ("#B5B01A", "P"),
}  # fmt: skip
PRINTED = "printed in the paper"
SHIFT = 0.004  # between the etas' bars, of the nominal level
SMALL, TEXT = 8.0, 9.0  # points: ticks, and labels


def summary(values: Float[np.ndarray, " trial"]) -> tuple[float, float]:
    """Mean and Monte Carlo standard error over the trials that have a number; NaN where there are too few."""
    known = values[np.isfinite(values)]
    mean = float(known.mean()) if len(known) else np.nan
    return mean, standard_error(known)


def row_label(row: Row) -> str:
    """A method and its zeta in words."""
    method, zeta = row
    if row == catalog.DEFAULT or not zeta:
        return method
    return f"{method}, ζ by CV" if zeta == "CV" else f"{method}, ζ = {zeta}"


def trials_label(records: Records, cases: Sequence[str], rows: Sequence[Row]) -> str:
    """'100 trials', or '100 trials (gbpl default: 20)' where the default has another number of them."""
    counts = {
        default: sorted(
            {len(records.trials(c, *r)) for c in (*cases, "auto") for r in rows if (r == catalog.DEFAULT) == default}
            - {0}
        )
        for default in (False, True)
    }
    words = {key: "–".join(str(n) for n in sorted({some[0], some[-1]})) for key, some in counts.items() if some}  # noqa: RUF001
    main = words.get(False, words.get(True, "0"))
    other = f" ({catalog.DEFAULT[0]}: {words[True]})" if words.get(True, main) != main else ""
    return f"{main} trial{'' if main == '1' else 's'}{other}"


def plain(ax: Axes, grid: str = "y") -> Axes:
    """Two spines, small ticks and faint grid lines along one axis or none."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=SMALL)
    ax.xaxis.label.set_fontsize(TEXT)
    ax.yaxis.label.set_fontsize(TEXT)
    ax.set_axisbelow(True)
    if grid:
        ax.grid(axis=grid, color=GREY, alpha=0.2, linewidth=0.7)  # type: ignore[arg-type]
    return ax


def _name_rows(ax: Axes, rows: Sequence[Row]) -> Axes:
    """The rows of the table down the side, the first on top; the default's name in its colour."""
    ax.set_yticks(range(len(rows)), [row_label(row) for row in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0)
    plain(ax, "x")
    for row, tick in zip(rows, ax.get_yticklabels(), strict=True):
        if row == catalog.DEFAULT:
            tick.set(color=RED, fontweight="bold")
    return ax


def box_panel(ax: Axes, records: Records, case: str, rows: Sequence[Row], metric: str = "welfare") -> Axes:
    """One box per row of the table: quartiles and median, whiskers to the last trial within 1.5 of the box's length."""
    from matplotlib.cbook import boxplot_stats

    ax.use_sticky_edges = False  # a bar would take the margin at its side away
    for i, row in enumerate(rows):
        values = records.of(case, *row, metric)
        values = values[np.isfinite(values)]
        if not len(values):
            continue
        # Not ax.boxplot: it reads every rcParam, the backend too, which loads pyplot and may start a window system.
        (box,) = boxplot_stats(values)
        color, alpha = INK[row[0]][0], 0.75 if row == catalog.DEFAULT else 0.35
        for start, end in ((box["q1"], box["whislo"]), (box["q3"], box["whishi"])):
            ax.plot([start, end], [i, i], color=color, linewidth=1.0)
            ax.plot([end, end], [i - 0.15, i + 0.15], color=color, linewidth=1.0)
        ax.barh(i, box["q3"] - box["q1"], 0.62, box["q1"], color=color, alpha=alpha, edgecolor=color, linewidth=1.0)
        ax.plot([box["med"]] * 2, [i - 0.31, i + 0.31], color="black", linewidth=1.6, label="median")
        ax.plot(box["fliers"], np.full(len(box["fliers"]), i), ".", color=color, markersize=5.0, markeredgewidth=0.0)
    return _name_rows(ax, rows)


def mean_panel(ax: Axes, records: Records, case: str, rows: Sequence[Row], metric: str = "welfare") -> Axes:
    """The mean of each row of the table, with one standard error each way."""
    for i, row in enumerate(rows):
        mean, se = summary(records.of(case, *row, metric))
        if np.isfinite(mean):
            color, mark = INK[row[0]]
            ax.errorbar(
                [mean], [i], xerr=[[se], [se]], color=color, fmt=mark, markersize=5.5, capsize=3, elinewidth=1.4
            )
    return _name_rows(ax, rows)


def curve_panel(
    ax: Axes,
    records: Records,
    cases: Sequence[str],
    rows: Sequence[Row],
    metric: str,
    *,
    places: Sequence[float],
    spread: float = 0.0,
    log: bool = False,
    printed: Sequence[Mapping[str, str]] = (),
    key: str = "",
) -> Axes:
    """One line per row of the table over its cases, with one standard error each way, the default's on top.

    `places` are the cases on the axis. `spread` keeps the error bars of neighbouring rows apart by that much, in
    decades where the axis is `log`. Printed numbers of methods whose name begins with GBPLNet are open markers; `key`
    is the printed column with the case.
    """
    table = {row: np.array([summary(records.of(case, *row, metric)) for case in cases]) for row in rows}
    table = {row: pairs for row, pairs in table.items() if np.any(np.isfinite(pairs[:, 0]))}
    shifts = spread * (np.arange(len(table)) - (len(table) - 1) / 2.0)
    for (row, pairs), shift in zip(table.items(), shifts, strict=True):
        color, mark = INK[row[0]]
        at = np.asarray(places) * 10.0**shift if log else np.asarray(places) + shift
        strong = row == catalog.DEFAULT
        ax.errorbar(
            at, pairs[:, 0], yerr=pairs[:, 1], color=color, marker=mark, markersize=5.5 if strong else 4.5, capsize=2.5,
            linewidth=2.4 if strong else 1.2, elinewidth=1.2, zorder=4.0 if strong else 3.0, label=row[0],
        )  # fmt: skip
        if row[0].startswith("GBPLNet"):
            values = [_printed(printed, {key: case, "method": row[0], "zeta": row[1]}, metric) for case in cases]
            if np.any(np.isfinite(values)):
                _ring(ax, at, values, row[0])
    if log:
        ax.set_xscale("log")
    return plain(ax)


def _printed(lines: Sequence[Mapping[str, str]], where: Mapping[str, str], metric: str) -> float:
    """The number of the printed line with these columns; a table with one method has no column for it."""
    for line in lines:
        if all(line.get(name, text) == text for name, text in where.items()) and line.get(metric):
            return float(line[metric])
    return np.nan


def _ring(ax: Axes, at: Sequence[float] | np.ndarray, values: Sequence[float] | np.ndarray, method: str) -> None:
    color, mark = INK[method]
    ax.plot(
        at, values, linestyle="none", marker=mark, markersize=8.0, markerfacecolor="none", markeredgecolor=color,
        markeredgewidth=1.1, zorder=5.0, label=PRINTED,
    )  # fmt: skip


def coverage_panel(ax: Axes, records: Records, etas: Sequence[str], row: Row) -> Axes:
    """Share of trials whose welfare interval holds its target, against the nominal level, one line per eta.

    Points are moved a little to the side, so that bars of neighbours are seen.
    """
    levels = np.array(catalog.LEVELS)
    lines = [(eta, row, f"η = {eta}", *ETA_INK[eta]) for eta in etas]
    lines.append(("auto", catalog.DEFAULT, f"{catalog.DEFAULT[0]}\n(its own target)", *INK[catalog.DEFAULT[0]]))
    ax.plot([levels[0], 1.0], [levels[0], 1.0], color=GREY, linestyle="--", linewidth=1.2, zorder=1, label="nominal")
    shifts = SHIFT * (np.arange(len(lines)) - (len(lines) - 1) / 2.0)
    for (case, which, label, color, mark), shift in zip(lines, shifts, strict=True):
        columns = [Column("", f"{100 * level:.0f}", "coverage") for level in levels]
        pairs = np.array([summary(column.values(records, (case, *which))) for column in columns])
        if np.any(np.isfinite(pairs[:, 0])):
            strong = which == catalog.DEFAULT
            ax.errorbar(
                levels + shift, pairs[:, 0], yerr=pairs[:, 1], color=color, marker=mark, capsize=2.0, elinewidth=1.0,
                markersize=5.5 if strong else 4.5, linewidth=2.4 if strong else 1.2, zorder=4.0 if strong else 3.0,
                label=label,
            )  # fmt: skip
    ax.set_xticks(levels, [f"{level:.0%}" for level in levels])
    ax.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    ax.set(xlabel="nominal level of the interval", ylabel="empirical coverage ± s.e.", xlim=(0.475, 0.975))
    ax.set_ylim(top=1.02)
    return plain(ax)


def threshold_panel(
    ax: Axes, records: Records, alphas: Sequence[str], rows: Sequence[Row], printed: Sequence[Mapping[str, str]] = ()
) -> Axes:
    """Welfare difference from the MAP rule by uncertain-region rate, one point per alpha and one line per method."""
    from matplotlib.ticker import Formatter

    ax.axhline(0.0, color=GREY, linestyle="--", linewidth=1.2, zorder=1, label="MAP rule")
    ends: dict[str, list[tuple[float, float, float, str]]] = {alpha: [] for alpha in alphas}
    for row in rows:
        across = [summary(records.of(alpha, *row, "uncertain"))[0] for alpha in alphas]
        pairs = np.array([summary(records.of(alpha, *row, "difference")) for alpha in alphas])
        if not np.any(np.isfinite(pairs[:, 0])):
            continue
        (color, mark), strong = INK[row[0]], row == catalog.DEFAULT
        ax.errorbar(
            across, pairs[:, 0], yerr=pairs[:, 1], color=color, marker=mark, markersize=5.5, capsize=3, elinewidth=1.2,
            linewidth=2.0 if strong else 1.0, zorder=4.0 if strong else 3.0, label=row[0],
        )  # fmt: skip
        rings = np.full((len(alphas), 2), np.nan)
        if not strong and printed:
            rings = np.array(
                [[_printed(printed, {"alpha": a}, m) for m in ("uncertain", "difference")] for a in alphas]
            )
            _ring(ax, rings[:, 0], rings[:, 1], row[0])
        for alpha, x, (y, se), (_, ring) in zip(alphas, across, pairs, rings, strict=True):
            if np.isfinite(x + y):
                heights = np.array([y, y - se, y + se, ring])
                ends[alpha].append((x, float(np.nanmin(heights)), float(np.nanmax(heights)), color))
    for alpha, of_alpha in ends.items():
        _name_alpha(ax, alpha, of_alpha)
    ax.margins(x=0.1, y=0.2)
    ax.xaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
    ax.yaxis.set_major_formatter(lambda value, _: Formatter.fix_minus(f"{1000.0 * value:g}"))
    ax.set(xlabel="uncertain-region rate (share of evaluation points)")
    ax.set(ylabel="welfare minus the MAP rule's ± s.e. (10⁻³)")
    return plain(ax)


def _name_alpha(ax: Axes, alpha: str, ends: Sequence[tuple[float, float, float, str]]) -> None:
    """An alpha's name below the lowest of its points and above the others; `ends` are their x, low, high and colour."""
    order = sorted(ends, key=lambda end: end[1] + end[2])
    for k, (x, low, high, color) in enumerate(order):
        above = k > 0
        ax.annotate(
            f"α = {alpha}", (x, high if above else low), (0, 6 if above else -6), textcoords="offset points",  # noqa: RUF001
            fontsize=SMALL, color=color, ha="center", va="bottom" if above else "top",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )  # fmt: skip
