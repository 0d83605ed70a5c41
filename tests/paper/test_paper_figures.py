"""The paper's figures: the arithmetic of the records, restated; files are pictures, and their words can be read."""

from __future__ import annotations

import struct
import subprocess
import sys
import warnings
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.testing import assert_allclose, assert_array_equal

from gbpl.paper.experiments import catalog
from gbpl.paper.experiments.catalog import DEFAULT, TABLES
from gbpl.paper.experiments.records import Record, Records
from gbpl.paper.printing import figures, panels

TRIALS, FEWER = 4, 3  # of the paper's rows, and of the default
MADE = [name for name in TABLES if name in figures.FIGURES]


def number(spec: catalog.TableSpec, case: str, row: tuple[str, str], metric: str) -> float | None:
    """The printed number, if there is one, so that made-up records have the size of real ones."""
    case = dict(spec.variants).get(case, case)
    row = spec.rows[0] if row == DEFAULT else row
    for line in catalog.printed(spec.name):
        if line[spec.key] == case and (line.get("method", row[0]), line.get("zeta", row[1])) == row:
            text = line.get(metric) or line.get(f"{metric}_mean")
            return float(text) if text else None
    return None


@cache
def records_around_print(name: str, trials: int = TRIALS, default: int = FEWER) -> Records:
    """Records around the printed numbers; intervals around a target that some of them miss."""
    spec, rng = TABLES[name], np.random.default_rng(len(name))
    intervals = name.startswith("uq")
    rows = [(case, *row) for case in (*spec.cases, *dict(spec.variants)) for row in (*spec.rows, DEFAULT)]
    if intervals:
        rows = [row for row in rows if row[1:] != DEFAULT] + [("auto", *DEFAULT)]
    lines = []
    for case, method, zeta in rows:
        for trial in range(default if (method, zeta) == DEFAULT else trials):
            values: dict[str, float] = {}
            if intervals:
                center = float(rng.normal(0.43, 0.01))
                values = {"target": 0.43, "welfare": center}
                for level in catalog.LEVELS:
                    width = 0.02 * level
                    values |= {f"low{100 * level:.0f}": center - width, f"high{100 * level:.0f}": center + width}
            for metric in () if intervals else spec.metrics:
                mean = number(spec, case, (method, zeta), metric)
                if mean is not None:
                    values[metric] = mean * float(1.0 + 0.03 * rng.normal())
            lines.append(Record(case, method, zeta, trial, values))
    return Records(lines)


@cache
def figure_of(name: str) -> Figure:
    return figures.FIGURES[name][1](TABLES[name], records_around_print(name))


def panel() -> Axes:
    return Figure().add_subplot()


def bars(ax: Axes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Of every line with error bars, its points (x, y) and the two ends of each vertical bar."""
    found = {}
    for container in ax.containers:
        assert isinstance(container, ErrorbarContainer)
        line, _, (across,) = container.lines
        ends = [s[:, 1] if len(s) else np.full(2, np.nan) for s in across.get_segments()]
        found[str(container.get_label())] = (np.asarray(line.get_xydata(), float), np.array(ends))
    return found


def rings(ax: Axes) -> list[np.ndarray]:
    return [np.asarray(line.get_xydata()) for line in ax.lines if line.get_label() == panels.PRINTED]


def mean_and_error(values: Iterable[float]) -> tuple[float, float]:
    known = [v for v in values if not np.isnan(v)]
    mean = sum(known) / len(known)
    return mean, (sum((v - mean) ** 2 for v in known) / (len(known) - 1) / len(known)) ** 0.5


def test_summary_is_mean_and_monte_carlo_error() -> None:
    values = np.array([0.3, 0.5, 0.4, np.nan, 0.9])
    assert_allclose(panels.summary(values), mean_and_error(values))
    assert_array_equal(panels.summary(np.array([0.3, np.nan])), [0.3, np.nan])
    assert_array_equal(panels.summary(np.array([])), [np.nan, np.nan])


def test_boxes_are_the_quartiles_and_the_default_has_its_own_colour() -> None:
    records, rows = records_around_print("uci"), [*TABLES["uci"].rows, DEFAULT]
    ax = panels.box_panel(panel(), records, "yacht", rows)
    assert len(ax.patches) == len(rows)
    for i, (row, box) in enumerate(zip(rows, ax.patches, strict=True)):
        assert isinstance(box, Rectangle)
        values = records.of("yacht", *row, "welfare")
        assert_allclose([box.get_x(), box.get_x() + box.get_width()], np.quantile(values, [0.25, 0.75]))
        assert_allclose(box.get_y() + box.get_height() / 2.0, i)
    medians = [np.asarray(line.get_xdata(), float) for line in ax.lines if line.get_label() == "median"]
    assert_allclose(medians, [[np.median(records.of("yacht", *row, "welfare"))] * 2 for row in rows])
    others = {box.get_facecolor()[:3] for box in ax.patches[:-1]}
    assert ax.patches[-1].get_facecolor()[:3] not in others
    names = [tick.get_text() for tick in ax.get_yticklabels()]
    assert names[:3] == ["DiffReg", "GBPLNet, ζ = 0.01", "GBPLNet, ζ = 0.1"]
    assert names[-1] == "gbpl default"


def test_whiskers_end_at_the_last_trial_within_one_and_a_half_boxes() -> None:
    welfare = [0.0, 4.0, 5.0, 6.0, 7.0, 8.0, 11.0, 20.0]  # quartiles 4.75 and 8.75: from -1.25 to 14.75
    records = Records(Record("yacht", "DiffReg", "", trial, {"welfare": w}) for trial, w in enumerate(welfare))
    ax = panels.box_panel(panel(), records, "yacht", [("DiffReg", "")])
    across = [np.asarray(line.get_xdata()) for line in ax.lines if line.get_label() != "median"]
    ends = [x.tolist() for x in across if len(x) == 2 and x[0] != x[1]]
    assert ends == [[4.75, 0.0], [8.75, 11.0]]
    assert [x.tolist() for x in across if len(x) == 1] == [[20.0]]


def test_means_have_one_standard_error_each_way() -> None:
    records, rows = records_around_print("synthetic-K"), [*TABLES["synthetic-K"].rows, DEFAULT]
    ax = panels.mean_panel(panel(), records, "DGP2", rows)
    assert len(ax.containers) == len(rows)
    for i, (row, container) in enumerate(zip(rows, ax.containers, strict=True)):
        assert isinstance(container, ErrorbarContainer)
        point, _, (bar,) = container.lines
        mean, se = mean_and_error(records.of("DGP2", *row, "welfare"))
        assert_allclose(np.asarray(point.get_xydata(), float), [[mean, float(i)]])
        assert_allclose(bar.get_segments()[0][:, 0], [mean - se, mean + se])


@pytest.mark.parametrize("name", ["full-feedback-learning", "logged-feedback-learning"])
def test_curves_are_means_over_n_with_errors_and_the_printed_numbers(name: str) -> None:
    spec, records = TABLES[name], records_around_print(name)
    for ax, metric in zip(figure_of(name).axes, ("welfare", "regret"), strict=True):
        shown = bars(ax)
        assert list(shown) == [method for method, _ in (*spec.rows, DEFAULT)]
        for row in (*spec.rows, DEFAULT):
            points, ends = shown[row[0]]
            want = np.array([mean_and_error(records.of(case, *row, metric)) for case in spec.cases])
            assert_allclose(points[:, 1], want[:, 0])
            assert_allclose(points[:, 0], [float(case) for case in spec.cases], rtol=0.08)  # moved apart a little
            assert_allclose(ends, np.column_stack([want[:, 0] - want[:, 1], want[:, 0] + want[:, 1]]))
        of_paper = [row for row in spec.rows if row[0].startswith("GBPLNet")]
        assert len(rings(ax)) == len(of_paper)
        for row, drawn in zip(of_paper, rings(ax), strict=True):
            lines = [line for line in catalog.printed(name) if line["method"] == row[0]]
            assert_allclose(drawn[:, 1], [float(line[metric]) for line in lines])
            assert_allclose(drawn[:, 0], shown[row[0]][0][:, 0])
        widths = {str(c.get_label()): c.lines[0].get_linewidth() for c in ax.containers}  # type: ignore[attr-defined]
        assert max(widths, key=widths.__getitem__) == DEFAULT[0]
        assert ax.get_xscale() == "log"
        assert ax.get_yscale() == ("log" if metric == "regret" else "linear")


def test_a_metric_that_a_method_does_not_have_is_left_out() -> None:
    left, right = figure_of("weak-overlap").axes
    assert "PluginReg" in bars(left)
    assert list(bars(right)) == ["GBPLNet-DR", "GBPLNet-IPW", DEFAULT[0]]


def intervals(*rows: tuple[str, tuple[str, str], list[tuple[float, float, float]]]) -> Records:
    """Records with the same (low, target, high) at every level."""
    ends = [(f"low{100 * level:.0f}", f"high{100 * level:.0f}") for level in catalog.LEVELS]
    return Records(
        Record(
            case, *row, trial, {"target": at, **{k: v for low_, high_ in ends for k, v in ((low_, low), (high_, high))}}
        )
        for case, row, triples in rows
        for trial, (low, at, high) in enumerate(triples)
    )


def test_coverage_counts_the_trials_whose_interval_holds_the_target() -> None:
    spec = TABLES["uq-evaluation"]
    inside, above, below, edge = (0.1, 0.2, 0.3), (0.1, 0.4, 0.3), (0.1, 0.0, 0.3), (0.1, 0.3, 0.3)
    lost = (0.1, np.nan, 0.3)
    records = intervals(
        ("1", spec.rows[0], [inside, above, below, edge, lost]), ("auto", DEFAULT, [inside, inside, above])
    )
    ax = panels.coverage_panel(panel(), records, spec.cases, spec.rows[0])
    shown = bars(ax)
    assert len(shown) == 2, "no line for an eta without records"
    for label, share, trials in (("η = 1", 2 / 4, 4), ("gbpl default\n(its own target)", 2 / 3, 3)):
        points, ends = shown[label]
        assert_allclose(points[:, 1], share)
        assert_allclose(points[:, 0], catalog.LEVELS, atol=0.02)
        error = np.sqrt(share * (1.0 - share) / (trials - 1))
        assert_allclose(ends, np.tile([share - error, share + error], (4, 1)))
    diagonal = next(line for line in ax.lines if line.get_label() == "nominal")
    xs, ys = np.asarray(diagonal.get_xydata(), float).T
    assert_allclose(xs, ys)
    assert xs[0] < xs[-1]


def test_each_level_has_its_own_interval() -> None:
    records = records_around_print("uq-calibration")
    shown = bars(panels.coverage_panel(panel(), records, TABLES["uq-calibration"].cases, ("GBPLNet", "1.0")))
    assert len(shown) == 7
    for eta in TABLES["uq-calibration"].cases:
        lines = [line.values for line in records.lines if line.case == eta]
        want = [sum(v[f"low{p}"] <= v["target"] <= v[f"high{p}"] for v in lines) / len(lines) for p in (50, 80, 90, 95)]
        assert_allclose(shown[f"η = {eta}"][0][:, 1], want)


def test_groups_average_the_trials_that_have_points() -> None:
    spec = TABLES["action-disagreement"]
    agreement = {"1": [1.0, 0.9, 0.8], "2": [0.7, np.nan, 0.5], "3": [np.nan] * 3, "4": [0.6, 0.5, 0.4]}
    records = Records(
        Record(case, "GBPLNet", "1.0", trial, {"agreement": a, "regret": 1.0 - a, "points": 1000.0 * np.isfinite(a)})
        for case, column in agreement.items()
        for trial, a in enumerate(column)
    )
    figure = figures.FIGURES[spec.name][1](spec, records)
    points, ends = bars(figure.axes[0])["GBPLNet"]
    assert_allclose(points[:, 1], [0.9, 0.6, np.nan, 0.5, np.nan])
    assert_allclose(ends[1], [0.6 - 0.1, 0.6 + 0.1])  # sd sqrt(0.02), two trials
    assert_allclose(bars(figure.axes[1])["GBPLNet"][0][:, 1], [0.1, 0.4, np.nan, 0.5, np.nan])
    ticks = [tick.get_text().split("\n")[1] for tick in figure.axes[0].get_xticklabels()]
    assert ticks == ["3,000", "2,000", "0", "3,000", "0"]


def test_threshold_rules_are_named_where_they_stand() -> None:
    spec, records = TABLES["posterior-threshold-rules"], records_around_print("posterior-threshold-rules")
    ax = figure_of(spec.name).axes[0]
    for row in (*spec.rows, DEFAULT):
        points, ends = bars(ax)[row[0]]
        want = np.array([mean_and_error(records.of(alpha, *row, "difference")) for alpha in spec.cases])
        across = [records.of(alpha, *row, "uncertain").mean() for alpha in spec.cases]
        assert_allclose(points, np.column_stack([across, want[:, 0]]))
        assert_allclose(ends[:, 1] - ends[:, 0], 2.0 * want[:, 1])
        named = {text.get_text(): text.xy[0] for text in ax.texts if text.xy[0] in across}  # type: ignore[attr-defined]
        assert named == {f"α = {alpha}": x for alpha, x in zip(spec.cases, across, strict=True)}  # noqa: RUF001
    printed = [[float(line[m]) for m in ("uncertain", "difference")] for line in catalog.printed(spec.name)]
    assert_allclose(rings(ax), [printed])


def test_trials_are_counted_for_the_paper_and_for_the_default() -> None:
    spec = TABLES["uci"]
    rows = [*spec.rows, DEFAULT]
    assert panels.trials_label(records_around_print("uci"), ["yacht"], rows) == "4 trials (gbpl default: 3)"
    assert panels.trials_label(records_around_print("uci", 4, 4), ["yacht"], rows) == "4 trials"
    assert panels.trials_label(records_around_print("uci", 1, 0), ["yacht"], rows) == "1 trial"
    few = Records(line for line in records_around_print("uci").lines if line.method != "DiffReg" or line.trial < 2)
    assert panels.trials_label(few, ["yacht"], spec.rows) == "2–4 trials"  # noqa: RUF001
    assert panels.trials_label(records_around_print("uq-evaluation"), ["1", "4"], rows[-1:]) == "3 trials"


def test_a_variant_has_a_panel_in_smaller_print() -> None:
    titles = {
        ax.get_title().split("\n")[0]: float(ax.title.get_fontsize()) for ax in figure_of("synthetic-binary").axes
    }
    assert list(titles) == ["DGP1", "DGP2", "DGP3", "DGP1, x'w not divided"]
    assert titles["DGP1, x'w not divided"] < titles["DGP1"]
    printed_only = Records(
        line for line in records_around_print("synthetic-binary").lines if line.case in ("DGP1", "DGP2", "DGP3")
    )
    assert len(figures.FIGURES["synthetic-binary"][1](TABLES["synthetic-binary"], printed_only).axes) == 3


@cache
def example_curves() -> dict[str, np.ndarray]:
    rng, grid = np.random.default_rng(0), np.linspace(-2.5, 2.5, 51)
    draws = np.tanh(1.5 * np.sin(grid) + 0.3 * rng.normal(size=(40, 1)))
    at = [draws[:, np.argmin(abs(grid - point))] for point in (1.0, 2.0)]
    target = np.clip(1.2 * np.sin(grid), -1.0, 1.0)
    welfare = rng.normal(0.47, 0.03, 40)
    return {
        "grid": grid,
        "draws": draws,
        "target": target,
        "map": draws[0],
        "welfare": welfare,
        "at_1": at[0],
        "at_2": at[1],
    }


def drawn(ax: Axes) -> dict[str, np.ndarray]:
    return {str(line.get_label()): np.asarray(line.get_xydata(), float) for line in ax.lines}


def test_the_example_is_drawn_from_its_draws() -> None:
    arrays = example_curves()
    (scores,) = figures.EXAMPLES["posterior-scores"](arrays).axes
    lines = drawn(scores)
    assert_allclose(lines["posterior mean"][:, 1], arrays["draws"].mean(axis=0))
    assert_allclose(lines["target"][:, 1], arrays["target"])
    assert_allclose(lines["MAP"][:, 1], arrays["map"])
    (welfare,) = figures.EXAMPLES["posterior-welfare"](arrays).axes
    assert sum(bar.get_height() for bar in welfare.patches[:30]) == 40  # type: ignore[attr-defined]
    mean, (low, high) = arrays["welfare"].mean(), np.quantile(arrays["welfare"], [0.025, 0.975])
    assert f"mean {mean:.4g}" in drawn(welfare)
    assert f"95% interval [{low:.4g}, {high:.4g}]" in drawn(welfare)
    for ax, name, target in zip(
        figures.EXAMPLES["posterior-at-points"](arrays).axes, ("1", "2"), (1.0, 1.0), strict=True
    ):
        lines = drawn(ax)
        assert_allclose(lines[f"mean {arrays[f'at_{name}'].mean():.4g}"][:, 0], arrays[f"at_{name}"].mean())
        assert_allclose(lines[f"target {target:.4g}"][:, 0], target)


def assert_picture(folder: Path, stem: str) -> None:
    png, pdf = (folder / f"{stem}.png").read_bytes(), (folder / f"{stem}.pdf").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert pdf.startswith(b"%PDF")
    assert pdf.rstrip().endswith(b"%%EOF")
    width, height = struct.unpack(">II", png[16:24])
    assert 800 <= width <= 1200  # page width at 150 dots an inch
    assert 400 <= height <= 1200
    assert min(len(png), len(pdf)) > 5000


def test_files_are_written_for_tables_with_records(tmp_path: Path) -> None:
    records = {name: records_around_print(name) for name in ("uci", "weak-overlap")}
    records |= {
        "uq-evaluation": Records(),
        "cf-uci-binary": records_around_print("cf-uci-binary"),
    }  # nothing, and no figure
    written = figures.draw(records, tmp_path / "new" / "folder", example=example_curves())
    assert written == {
        "uci": ["uci-boxplots"],
        "weak-overlap": ["weak-overlap"],
        "posterior-example": ["posterior-scores", "posterior-welfare", "posterior-at-points"],
    }
    stems = [stem for some in written.values() for stem in some]
    for stem in stems:
        assert_picture(tmp_path / "new" / "folder", stem)
    assert {p.name for p in (tmp_path / "new" / "folder").iterdir()} == {
        f"{s}.{e}" for s in stems for e in ("png", "pdf")
    }


def test_no_records_no_files(tmp_path: Path) -> None:
    assert figures.draw({}, tmp_path) == {}
    assert not list(tmp_path.iterdir())


def test_an_example_without_an_array_is_refused(tmp_path: Path) -> None:
    without = {name: array for name, array in example_curves().items() if name != "at_2"}
    with pytest.raises(ValueError, match="example has no at_2"):
        figures.draw({}, tmp_path, example=without)


@pytest.mark.parametrize("name", MADE)
def test_one_trial_is_drawn_without_errors(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = figures.FIGURES[name][1](TABLES[name], records_around_print(name, 1, 1))
        figure.draw_without_rendering()
    for ax in figure.axes:
        for container in ax.containers:
            if isinstance(container, ErrorbarContainer):
                segments = np.concatenate([np.ravel(s) for s in container.lines[2][0].get_segments()] or [np.zeros(0)])
                assert not np.isfinite(segments).reshape(-1, 2).all(axis=1).any()


def words(figure: Figure) -> list[tuple[str, object]]:
    """Every word on a picture with its place: titles, labels, ticks in view, legends, names of points."""
    texts = [t for t in figure.texts if t.get_text()] + ([figure._suptitle] if figure._suptitle else [])  # type: ignore[attr-defined]
    for legend in (*figure.legends, *(ax.get_legend() for ax in figure.axes)):
        texts += legend.get_texts() if legend else []
    for ax in figure.axes:
        texts += [ax.title, ax.xaxis.label, ax.yaxis.label, *ax.texts]
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in axis.get_major_ticks():
                if low <= tick.get_loc() <= high and tick.label1.get_visible():
                    texts.append(tick.label1)
    unique = {id(text): text for text in texts if text.get_text()}
    return [(text.get_text(), text.get_window_extent()) for text in unique.values()]


@pytest.mark.parametrize("name", [*MADE, *figures.EXAMPLES])
def test_all_words_are_on_the_picture_and_none_overlap(name: str) -> None:
    figure = figure_of(name) if name in TABLES else figures.EXAMPLES[name](example_curves())
    figure.draw_without_rendering()
    width, height = figure.bbox.width, figure.bbox.height
    found = words(figure)
    for i, (text, box) in enumerate(found):
        assert min(box.x0, box.y0) >= -1, text  # type: ignore[attr-defined]
        assert box.x1 <= width + 1, text  # type: ignore[attr-defined]
        assert box.y1 <= height + 1, text  # type: ignore[attr-defined]
        for other, place in found[i + 1 :]:
            assert not box.overlaps(place), f"{text!r} and {other!r}"  # type: ignore[attr-defined]


def test_matplotlib_waits_for_a_call_and_pyplot_is_left_alone(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib, gbpl.paper.printing.figures as f; early = 'matplotlib' in sys.modules\n"
        "from gbpl.paper.experiments.records import Record, Records\n"
        "lines = [Record('yacht', 'DiffReg', '', t, {'welfare': 0.3 + t}) for t in range(2)]\n"
        f"f.draw({{'uci': Records(lines)}}, pathlib.Path({str(tmp_path)!r}))\n"
        "sys.exit(early or 'matplotlib.pyplot' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert_picture(tmp_path, "uci-boxplots")
