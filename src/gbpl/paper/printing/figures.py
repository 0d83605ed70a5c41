"""The paper's figures from the records of its tables, each as a PNG and a PDF file.

Nothing is shown and pyplot is not touched, so figures can be drawn without a display and in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments import catalog
from gbpl.paper.experiments.records import Records
from gbpl.paper.printing import panels
from gbpl.plots.posterior import GROUPS, plot_scores, plot_welfare
from gbpl.plots.style import GREEN, GREY, RED

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

ARRAYS = ("grid", "draws", "target", "map", "welfare", "at_1", "at_2")
TITLES = {"DGP1 unscaled": "DGP1, x'w not divided"}
DPI = 150
PAGE = 7.0  # inches
WELFARE, MEAN_WELFARE = "welfare (mean outcome)", "mean welfare ± s.e."


def draw(
    records: Mapping[str, Records], folder: Path, *, example: Mapping[str, np.ndarray] | None = None
) -> dict[str, list[str]]:
    """Draw what there are records for into `folder`; the file stems written, by table.

    `example` has the one-dimensional posterior example: `grid` (point), `draws` (draw, point) of the score, `target`
    and `map` (point), and over draws `welfare`, `at_1` and `at_2`, the scores at 1 and 2.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written: dict[str, list[str]] = {}
    for name, (stem, make) in FIGURES.items():
        if len(records.get(name, ())):
            _save(make(catalog.TABLES[name], records[name]), folder, stem)
            written[name] = [stem]
    if example is not None:
        if missing := [name for name in ARRAYS if name not in example]:
            raise ValueError(f"example has no {', '.join(missing)}; it needs {', '.join(ARRAYS)}")
        for stem, picture in EXAMPLES.items():
            _save(picture(example), folder, stem)
        written[catalog.EXAMPLE] = list(EXAMPLES)
    return written


def _save(figure: Figure, folder: Path, stem: str) -> None:
    figure.savefig(folder / f"{stem}.png", dpi=DPI)
    figure.savefig(folder / f"{stem}.pdf", metadata={"CreationDate": None})  # the same bytes from the same records


def _figure(width: float, height: float, title: str = "") -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.06))
    if title:
        figure.suptitle(title, fontsize=10.0)
    return figure


def _rows(spec: catalog.TableSpec) -> list[panels.Row]:
    return [*spec.rows, catalog.DEFAULT]


def _n(spec: catalog.TableSpec) -> str:
    return f", n = {spec.n}" if spec.n else ""


def _title(spec: catalog.TableSpec, records: Records) -> str:
    return f"{spec.title}{_n(spec)}, {panels.trials_label(records, spec.cases, _rows(spec))}"


def _legend(figure: Figure) -> None:
    """One legend for all panels, below them; what is printed has one entry, in grey."""
    handles: dict[str, Artist] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if panels.PRINTED in handles:
        from matplotlib.lines import Line2D

        del handles[panels.PRINTED]
        ring = Line2D([], [], linestyle="none", marker="o", markersize=8.0, markerfacecolor="none", color=GREY)
        handles[panels.PRINTED] = ring
    figure.legend(
        list(handles.values()), list(handles), loc="outside lower center",
        ncols=len(handles) if len(handles) <= 5 else 4, frameon=False, fontsize=panels.SMALL + 0.5, columnspacing=1.4,
        handlelength=1.8,
    )  # fmt: skip


def _by_case(spec: catalog.TableSpec, records: Records, panel: Callable[..., Axes], label: str) -> Figure:
    """One panel per case, variants in smaller print, and the rows of the table that have records down the side."""
    known = records.rows()
    variants = [variant for variant, _ in spec.variants]
    cases = [case for case in (*spec.cases, *variants) if any(row[0] == case for row in known)]
    rows = [row for row in _rows(spec) if any(row == other[1:] for other in known)]
    columns = 2 if len(cases) == 4 else len(cases)
    lines = len(cases) // columns
    figure = _figure(PAGE, 0.6 + lines * max(2.1, 0.75 + 0.23 * len(rows)), f"{spec.title}{_n(spec)}")
    axes = figure.subplots(lines, columns, squeeze=False)
    for ax, case in zip(axes.ravel(), cases, strict=True):
        panel(ax, records, case, rows)
        ax.tick_params(axis="y", labelleft=ax in axes[:, 0])
        ax.locator_params(axis="x", nbins=5)
        size = panels.SMALL - 1.0 if case in variants else panels.TEXT
        ax.set_title(f"{TITLES.get(case, case)}\n{panels.trials_label(records, [case], rows)}", fontsize=size)
        ax.set_xlabel(label, fontsize=size)
        ax.tick_params(axis="x", labelsize=min(size, panels.SMALL))
    return figure


def _boxes(spec: catalog.TableSpec, records: Records) -> Figure:
    return _by_case(spec, records, panels.box_panel, WELFARE)


def _means(spec: catalog.TableSpec, records: Records) -> Figure:
    return _by_case(spec, records, panels.mean_panel, MEAN_WELFARE)


def _curves(
    spec: catalog.TableSpec,
    records: Records,
    labels: Mapping[str, str],
    places: Sequence[float],
    ticks: Sequence[str],
    across: str,
    *,
    spread: float,
    log: bool = False,
) -> tuple[Figure, Sequence[Axes]]:
    """Two panels, each a metric of the table over its cases; `labels` has what the metrics are called."""
    figure = _figure(PAGE, 3.7, _title(spec, records))
    axes = figure.subplots(1, 2)
    for ax, (metric, label) in zip(axes, labels.items(), strict=True):
        panels.curve_panel(
            ax, records, spec.cases, _rows(spec), metric, places=places, spread=spread, log=log,
            printed=catalog.printed(spec.name), key=spec.key,
        )  # fmt: skip
        ax.set_xticks(places, ticks)
        ax.set_xticks([], minor=True)
        ax.set(xlabel=across, ylabel=label)
    _legend(figure)
    return figure, axes


def _learning(spec: catalog.TableSpec, records: Records) -> Figure:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    sizes = [float(case) for case in spec.cases]
    ticks = [f"{size / 1000.0:g}k" if size >= 1000.0 else f"{size:g}" for size in sizes]  # 2000 would touch 3000
    labels = {"welfare": MEAN_WELFARE, "regret": "mean regret ± s.e. (log scale)"}
    across = "sample size n (log scale)"
    figure, (_, right) = _curves(spec, records, labels, sizes, ticks, across, spread=0.009, log=True)
    right.set_yscale("log")
    right.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    right.yaxis.set_minor_formatter(NullFormatter())
    return figure


def _weak_overlap(spec: catalog.TableSpec, records: Records) -> Figure:
    places = np.arange(len(spec.cases), dtype=float).tolist()
    labels = {"welfare": MEAN_WELFARE, "q99_abs_pseudo_difference": "0.99 quantile of |pseudo-diff.| ± s.e."}
    return _curves(spec, records, labels, places, spec.cases, "propensities clipped at", spread=0.06)[0]


def _disagreement(spec: catalog.TableSpec, records: Records) -> Figure:
    places = np.arange(len(spec.cases), dtype=float).tolist()
    labels = {"agreement": "agreement with the Bayes action ± s.e.", "regret": "regret contribution ± s.e."}
    method = next(row for row in _rows(spec) if any(row == other[1:] for other in records.rows()))
    points = [np.nansum(records.of(case, *method, "points")) for case in spec.cases]
    ticks = [f"{group}\n{count:,.0f}" for group, count in zip(GROUPS, points, strict=True)]
    across = f"disagreement u(x); below: points, {method[0]}"
    figure, (left, right) = _curves(spec, records, labels, places, ticks, across, spread=0.12)
    left.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    right.set_ylim(bottom=min(0.0, right.get_ylim()[0]))
    return figure


def _coverage(spec: catalog.TableSpec, records: Records) -> Figure:
    figure = _figure(6.0, 4.0, _title(spec, records))
    panels.coverage_panel(figure.subplots(), records, spec.cases, spec.rows[0])
    figure.legend(loc="outside right center", frameon=False, fontsize=panels.SMALL + 0.5, labelspacing=0.8)
    return figure


def _thresholds(spec: catalog.TableSpec, records: Records) -> Figure:
    figure = _figure(6.0, 4.0, _title(spec, records))
    panels.threshold_panel(figure.subplots(), records, spec.cases, _rows(spec), catalog.printed(spec.name))
    _legend(figure)
    return figure


def _scores(example: Mapping[str, np.ndarray]) -> Figure:
    figure = _figure(PAGE, 4.0, f"One-dimensional example: {len(example['draws'])} posterior draws of the score")
    ax = plot_scores(example["grid"], example["draws"], target=example["target"], ax=figure.subplots())
    ax.plot(example["grid"], example["map"], color=GREEN, linewidth=1.4, linestyle="-.", label="MAP")
    ax.set(xlabel="covariate x", ylabel="score f_w(x); action 1 at 0 and above")
    panels.plain(ax, "")
    _above(ax, 5)
    return figure


def _above(ax: Axes, columns: int) -> None:
    """A legend above the plot, in place of the one it has; thin lines are shown in full colour."""
    legend = ax.legend(
        frameon=False, fontsize=panels.SMALL, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=columns,
        columnspacing=1.4, handlelength=1.8,
    )  # fmt: skip
    for handle in legend.get_lines():
        handle.set_alpha(1.0)


def _welfare(example: Mapping[str, np.ndarray]) -> Figure:
    draws = example["welfare"]
    figure = _figure(PAGE, 3.6, f"One-dimensional example: test welfare of {len(draws)} posterior draws")
    ax = plot_welfare(draws, ax=figure.subplots())
    ax.set_xlabel(WELFARE)
    panels.plain(ax, "")
    _above(ax, 3)
    return figure


def _at_points(example: Mapping[str, np.ndarray]) -> Figure:
    count = len(example["at_1"])
    figure = _figure(PAGE, 3.6, f"One-dimensional example: {count} posterior draws of the score at two points")
    axes = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, point in zip(axes, (1.0, 2.0), strict=True):
        plot_welfare(example[f"at_{point:.0f}"], ax=ax)
        target = float(np.interp(point, example["grid"], example["target"]))
        ax.axvline(target, color=RED, linewidth=1.6, linestyle="--", label=f"target {target:.4g}")
        ax.set(xlabel=f"f_w({point:.0f})", ylabel="posterior draws")
        ax.label_outer()
        panels.plain(ax, "")
        _above(ax, 1)
    return figure


Make = Callable[[catalog.TableSpec, Records], "Figure"]
FIGURES: Mapping[str, tuple[str, Make]] = {
    "synthetic-binary": ("synthetic-binary-boxplots", _boxes),
    "synthetic-K": ("synthetic-K", _means),
    "uci": ("uci-boxplots", _boxes),
    "full-feedback-learning": ("full-feedback-learning", _learning),
    "logged-feedback-learning": ("logged-feedback-learning", _learning),
    "weak-overlap": ("weak-overlap", _weak_overlap),
    "uq-calibration": ("uq-calibration", _coverage),
    "uq-evaluation": ("uq-evaluation", _coverage),
    "action-disagreement": ("action-disagreement", _disagreement),
    "posterior-threshold-rules": ("posterior-threshold-rules", _thresholds),
}
EXAMPLES: Mapping[str, Callable[[Mapping[str, np.ndarray]], Figure]] = {
    "posterior-scores": _scores,
    "posterior-welfare": _welfare,
    "posterior-at-points": _at_points,
}
