"""What the pictures show: the numbers in the artists, restated; and that they leave nothing behind."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle, StepPatch
from numpy.testing import assert_allclose, assert_array_equal

from gbpl import OverlapReport, plots
from gbpl.decisions.reliability import Reliability
from gbpl.plots import (
    plot_budget,
    plot_by_group,
    plot_coverage,
    plot_disagreement,
    plot_eta,
    plot_front,
    plot_gain,
    plot_groups,
    plot_overlap,
    plot_reliability,
    plot_rule,
    plot_score_at,
    plot_scores,
    plot_sensitivity,
    plot_threshold,
    plot_welfare,
    plot_zeta_path,
)
from gbpl.value.budget_curve import budget_curve
from gbpl.value.by_group import group_table
from gbpl.value.estimate import Value
from gbpl.value.front import Front, FrontPoint
from gbpl.value.gains import gains_over
from gbpl.value.guards import Guard
from gbpl.value.overlap import ClipWelfare
from gbpl.value.sensitivity import Sensitivity

mpl.use("Agg")

RNG = np.random.default_rng(0)
GRID = np.linspace(-2.5, 2.5, 30)
SCORES = np.tanh(np.sin(GRID) + 0.3 * RNG.normal(size=(100, 1)))
WELFARE = RNG.normal(0.47, 0.03, 200)
PATH = SimpleNamespace(
    zeta=np.array([10.0, 1.0, 0.1]),
    welfare=np.array([0.41, 0.43, 0.42]),
    welfare_se=np.array([0.01, 0.02, 0.03]),
    weight=np.array([0.0, 0.75, 0.25]),
    correction=np.ones(3),
)
GAINS = np.column_stack([np.zeros(90), RNG.normal(size=(90, 2))])
SPENDING = budget_curve(GAINS, np.tile([0.0, 0.5, 1.0], (90, 1)), GAINS + 0.5)[0]
CHOICE = SimpleNamespace(
    grid=np.array([0.5, 1.0, 2.0]), curve=np.array([0.97, 0.92, 0.8]), eta=1.2, nominal=0.9, what="coverage"
)
COVERAGE = SimpleNamespace(
    etas=(0.5, 1.0, 2.0, 4.0),
    levels=(0.5, 0.9),
    coverage=np.array([[0.8, 1.0], [0.7, 0.97], [0.6, 0.93], [0.5, 0.9]]),
    coverage_se=np.full((4, 2), 0.02),
)
SURE = Reliability(
    said=np.array([0.55, 0.7, 0.95]), expected=np.array([0.01, 0.08, 0.3]), estimate=np.array([-0.02, 0.1, 0.25]),
    se=np.array([0.03, 0.02, 0.04]), rows=np.array([40, 40, 41]),
)  # fmt: skip
HIDDEN = Sensitivity(
    gammas=(1.0, 1.5, 3.0), baseline="wait", breakdown=2.0, breakdown_limit=1.4, level=0.9, row_breakdown=np.ones(4),
    **{
        f"{what}{side}": tuple(Value(level + sign * reach + np.arange(3) / 10, "dr") for reach in np.log([1, 1.5, 3]))
        for what, level in (("", 3.0), ("gain_", np.log(2.0)))
        for side, sign in (("lower", -1.0), ("upper", 1.0))
    },
)  # fmt: skip
ROWS = np.tile([-1.0, 1.0], 200)
BASE = (Value(0.0 * ROWS, "dr"), Value(0.0 * ROWS, "dr"))
FRONT = Front(
    ("spend", "complaints"), (1.0, -1.0),
    tuple(
        FrontPoint(f"lambda {place}", float(place), (1.0, -1.0), (Value(a + ROWS, "dr"), Value(b + 0.2 * ROWS, "dr")))
        for place, (a, b) in enumerate([(0.1, 0.0), (0.5, 0.1), (0.4, 0.2)])
    ),
    BASE, "everybody gets 0",
)  # fmt: skip
BOUND = Guard("complaints", "<=", 0.15)
CHOSEN = SimpleNamespace(front=FRONT, chosen=1, guards=[BOUND.result(FRONT.points[1].values[1], BASE[1], 0.95)])
PAPER = {  # the table of posterior action disagreement
    "agreement": [0.9955, 0.7176, 0.6568, 0.5799, 0.5225],
    "regret": [0.0002, 0.0165, 0.0219, 0.0278, 0.0348],
    "agreement_error": [0.0005, 0.0173, 0.0153, 0.0122, 0.0103],
    "regret_error": [0.0, 0.0017, 0.0018, 0.0019, 0.0023],
    "points": [391154, 3026, 2210, 1859, 1751],
}

PLOTS: dict[str, Callable[..., Axes]] = {
    "scores": lambda **k: plot_scores(GRID, SCORES, target=np.sin(GRID), **k),
    "welfare": lambda **k: plot_welfare(WELFARE, reference=0.5, **k),
    "score_at": lambda **k: plot_score_at(SCORES[:, [3, 20]], [1.0, 2.0], **k),
    "disagreement": lambda **k: plot_disagreement(WELFARE, WELFARE, correct=WELFARE > 0.4, **k),
    "threshold": lambda **k: plot_threshold([0.01, 0.03], [-0.1, -0.2], labels=["a", "b"], **k),
    "zeta_path": lambda **k: plot_zeta_path(PATH, **k),  # type: ignore[arg-type]
    "eta": lambda **k: plot_eta(CHOICE, **k),  # type: ignore[arg-type]
    "coverage": lambda **k: plot_coverage(COVERAGE, **k),  # type: ignore[arg-type]
    "reliability": lambda **k: plot_reliability(SURE, **k),
    "sensitivity": lambda **k: plot_sensitivity(HIDDEN, **k),
    "front": lambda **k: plot_front(CHOSEN, **k),
    "budget": lambda **k: plot_budget(SPENDING, budget=0.1, **k),
}


def line(ax: Axes, label: str) -> np.ndarray:
    """x and y of the one line with this beginning of its label."""
    (found,) = [item for item in ax.lines if str(item.get_label()).startswith(label)]
    return np.array(found.get_data(), float)


def bars(ax: Axes) -> tuple[np.ndarray, np.ndarray]:
    """Dots and (row, low and high) ends of the one set of error bars."""
    (found,) = [item for item in ax.containers if isinstance(item, ErrorbarContainer)]
    dots, _, ends = found.lines
    return np.array(dots.get_data()).T, np.array([segment[:, 1] for segment in ends[0].get_segments()])


def texts(ax: Axes) -> list[str]:
    return [item.get_text() for item in ax.texts]


@pytest.fixture(autouse=True)
def pyplot_keeps_no_figure() -> Iterator[None]:
    import matplotlib.pyplot as plt

    yield
    assert plt.get_fignums() == []


@pytest.mark.parametrize("name", PLOTS)
def test_draws_on_its_own_figure_or_on_the_given_axes(name: str) -> None:
    own = PLOTS[name]()
    assert isinstance(own, Axes)
    assert_array_equal(own.figure.get_size_inches() * own.figure.dpi, [640, 400])
    own.figure.draw_without_rendering()
    given = Figure().add_subplot()
    assert PLOTS[name](ax=given) is given
    assert given.get_xlabel()
    assert given.get_ylabel()


def assert_words_on_the_picture_and_apart(axes: Sequence[Axes]) -> None:
    axes[0].figure.draw_without_rendering()
    words = []
    for ax in axes:
        legend = ax.get_legend()
        words += [ax.xaxis.label, ax.yaxis.label, ax.title, *ax.texts, *(legend.get_texts() if legend else [])]
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())  # ticks beyond are not drawn
            words += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    boxes = [word.get_window_extent() for word in words if word.get_text()]
    for i, box in enumerate(boxes):
        assert box.x0 >= -1
        assert box.x1 <= 641
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


@pytest.mark.parametrize("name", PLOTS)
def test_all_words_are_on_the_picture_and_none_overlap(name: str) -> None:
    assert_words_on_the_picture_and_apart([PLOTS[name]()])


def test_sensitivity_shows_bounds_errors_and_breakdown() -> None:
    ax = plot_sensitivity(HIDDEN)
    lower, upper = (ax.get_lines()[i].get_ydata() for i in (0, 1))
    assert_allclose(lower, [value.estimate for value in HIDDEN.gain_lower])
    assert_allclose(upper, [value.estimate for value in HIDDEN.gain_upper])
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert_allclose([band.min(), band.max()], HIDDEN.interval(2, gain=True))
    assert_allclose(line(ax, "breakdown at 2")[0], 2.0)
    assert ax.get_ylabel() == "gain over wait"
    value = plot_sensitivity(HIDDEN, gain=False)
    assert_allclose(value.get_lines()[0].get_ydata(), [bound.estimate for bound in HIDDEN.lower])
    with pytest.raises(ValueError, match="at least two Gammas in growing order"):
        plot_sensitivity(replace(HIDDEN, gammas=(1.0,)))


def test_front_shows_changes_bands_bound_and_choice() -> None:
    ax = plot_front(CHOSEN)
    bands = FRONT.bands()
    assert_allclose(ax.get_lines()[0].get_ydata(), bands[0, 0])  # of the first outcome, upwards
    assert_allclose(ax.get_lines()[1].get_xdata(), bands[0, 1])
    assert_allclose(line(ax, "policies"), [[0.0, 0.1], [0.1, 0.5]])
    assert_allclose(line(ax, "dominated"), [[0.2], [0.4]])
    assert_allclose(line(ax, "chosen"), [[0.1], [0.5]])
    assert_allclose(line(ax, "bound 0.15")[0], 0.15)
    assert "chosen" not in [text.get_text() for text in plot_front(FRONT).get_legend().get_texts()]
    with pytest.raises(ValueError, match="drawn of two outcomes, got 1"):
        plot_front(replace(FRONT, outcomes=("spend",)))


def test_a_budget_curve_is_drawn_with_its_band_and_another_beside_it():
    ax = plot_budget(SPENDING, beside=SPENDING - SPENDING, budget=0.1, level=0.8)
    curve, beside, mark = ax.lines[:3]
    assert_allclose(curve.get_ydata(), SPENDING.gain)
    assert_allclose(beside.get_ydata(), 0.0, atol=1e-12)
    assert_allclose(mark.get_xdata(), 0.1)
    band = next(one for one in ax.collections if isinstance(one, PolyCollection))
    low, high = SPENDING.bands(0.8).T
    corners = band.get_paths()[0].vertices[:, 1]
    assert_allclose([corners.min(), corners.max()], [low.min(), high.max()])


def test_every_plot_is_a_name_of_the_package() -> None:
    assert {name for name in globals() if name.startswith("plot_")} == set(plots.__all__)
    assert all(callable(getattr(plots, name)) for name in plots.__all__)


def test_matplotlib_waits_for_a_call() -> None:
    code = "import sys, gbpl.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_scores_show_mean_band_target_and_some_draws(level: float) -> None:
    target = np.clip(1.2 * np.sin(GRID), -1.0, 1.0)
    ax = plot_scores(GRID, SCORES, target=target, level=level, shown=7)
    assert_allclose(line(ax, "posterior mean"), [GRID, SCORES.mean(axis=0)])
    assert_allclose(line(ax, "target"), [GRID, target])
    (dashed,) = [item for item in ax.lines if item.get_label() == "target"]
    assert dashed.get_linestyle() == "--"
    (band,) = [item for item in ax.collections if isinstance(item, PolyCollection)]
    corners = band.get_paths()[0].vertices
    for i, x in enumerate(GRID):
        ends = np.quantile(SCORES[:, i], [(1 - level) / 2, (1 + level) / 2])
        at = corners[np.isclose(corners[:, 0], x), 1]
        assert_allclose([at.min(), at.max()], ends)
    thin = [item for item in ax.lines if item.get_linewidth() == 0.5]
    assert len(thin) == 7
    for item in thin:
        assert any(np.array_equal(item.get_ydata(), draw) for draw in SCORES)
    assert f"{100 * level:.0f}% pointwise band" in [t.get_text() for t in ax.get_legend().get_texts()]


def test_fewer_draws_than_shown_are_all_drawn() -> None:
    ax = plot_scores(GRID, SCORES[:3])
    assert sum(item.get_linewidth() == 0.5 for item in ax.lines) == 3
    assert not [item for item in ax.lines if item.get_label() == "target"]


def test_welfare_histogram_has_every_draw_and_the_interval() -> None:
    ax = plot_welfare(WELFARE, level=0.9, reference=0.5, bins=12)
    histogram = ax.containers[0].patches
    assert len(histogram) == 12
    low, high = np.quantile(WELFARE, [0.05, 0.95])
    for bar in histogram[:-1]:
        start, end = bar.get_x(), bar.get_x() + bar.get_width()
        assert bar.get_height() == sum(start <= draw < end for draw in WELFARE)
    assert sum(bar.get_height() for bar in histogram) == len(WELFARE)
    assert_allclose(line(ax, "mean")[0], WELFARE.mean())
    assert_allclose(line(ax, "reference")[0], 0.5)
    assert_allclose(sorted(item.get_xdata()[0] for item in ax.lines if item.get_linestyle() == ":"), [low, high])
    legend = [t.get_text() for t in ax.get_legend().get_texts()]
    assert f"90% interval [{low:.4g}, {high:.4g}]" in legend


def test_welfare_that_does_not_vary_is_one_bar() -> None:
    ax = plot_welfare(np.full(50, 0.3))
    assert max(bar.get_height() for bar in ax.containers[0].patches) == 50


def test_score_at_points_shows_each_histogram_and_the_share_at_0_and_above() -> None:
    chosen = SCORES[:, [5, 14, 20]]
    ax = plot_score_at(chosen, [-1.5, "here", 2], bins=16)
    steps = [item for item in ax.patches if isinstance(item, StepPatch)]
    assert len(steps) == 3
    for i, step in enumerate(steps):
        values, edges, base = step.get_data()
        counts, _ = np.histogram(chosen[:, i], edges)
        assert counts.sum() == len(chosen)
        assert_allclose(base, i)
        assert_allclose((values - i) / (values - i).max(), counts / counts.max())
        assert values.max() < i + 1
        assert_allclose(ax.lines[1 + 2 * i].get_xdata(), chosen[:, i].mean())
    assert [t.get_text() for t in ax.get_yticklabels()] == ["-1.5", "here", "2"]
    (right,) = ax.child_axes
    assert [t.get_text() for t in right.get_yticklabels()] == [f"{np.mean(c >= 0):.0%}" for c in chosen.T]


@pytest.mark.parametrize("with_correct", [False, True])
def test_disagreement_dots_and_means_by_margin(with_correct: bool) -> None:
    rng = np.random.default_rng(1)
    margin = rng.exponential(0.5, 400)
    split = np.exp(-3.0 * margin) * rng.uniform(size=400)
    correct = rng.uniform(size=400) > split / 2
    ax = plot_disagreement(split, margin, correct=correct if with_correct else None, bins=4)
    dots = [item.get_offsets() for item in ax.collections if isinstance(item, PathCollection)]
    kinds = [correct, ~correct] if with_correct else [np.ones(400, bool)]
    for found, kind in zip(dots, kinds, strict=True):
        assert_allclose(np.asarray(found), np.column_stack([margin, split])[kind])
    order = np.argsort(margin)
    groups = [order[:25], order[25:100], order[100:225], order[225:]]  # 1, 3, 5 and 7 sixteenths
    center = [margin[g].mean() for g in groups]
    assert_allclose(line(ax, "mean disagreement"), [center, [split[g].mean() for g in groups]])
    if with_correct:
        assert_allclose(line(ax, "agreement"), [center, [correct[g].mean() for g in groups]])


def test_disagreement_of_many_rows_draws_some_and_averages_all() -> None:
    margin = np.arange(1.0, 1001.0)
    ax = plot_disagreement(1.0 / margin, margin, bins=1, shown=100)
    assert len(ax.collections[0].get_offsets()) == 100
    assert_allclose(line(ax, "mean disagreement")[:, 0], [margin.mean(), (1.0 / margin).mean()])


def test_groups_show_both_columns_with_their_errors() -> None:
    left, right = plot_groups(**PAPER)
    for ax, name in ((left, "agreement"), (right, "regret")):
        dots, ends = bars(ax)
        value, error = np.array(PAPER[name]), np.array(PAPER[f"{name}_error"])
        assert_allclose(dots, np.column_stack([range(5), value]))
        assert_allclose(ends, np.column_stack([value - error, value + error]))
        assert name in ax.get_ylabel()
        ticks = [t.get_text() for t in ax.get_xticklabels()]
        assert ticks[0].endswith("\n391k")
        assert ticks[1].endswith("\n3.0k")
    left.figure.draw_without_rendering()
    for ax in (left, right):
        boxes = [t.get_window_extent() for t in ax.get_xticklabels()]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
    figure = Figure()
    axes = figure.subplots(1, 2)
    assert plot_groups([0.9, np.nan], [0.1, np.nan], labels=["low", "high"], axes=axes) == tuple(axes)
    assert [t.get_text() for t in axes[0].get_xticklabels()] == ["low", "high"]


def test_threshold_points_errors_and_names() -> None:
    uncertain, difference, error = [0.03, 0.01, 0.02], [-0.6, -0.1, -0.3], [0.1, 0.2, 0.3]
    ax = plot_threshold(uncertain, difference, error=error, labels=["a", "b", "c"])
    dots, ends = bars(ax)
    assert_allclose(dots, np.column_stack([uncertain, difference]))
    assert_allclose(ends, np.column_stack([np.subtract(difference, error), np.add(difference, error)]))
    assert [(t.get_text(), t.xy) for t in ax.texts] == [("a", (0.03, -0.6)), ("b", (0.01, -0.1)), ("c", (0.02, -0.3))]
    assert_allclose(line(ax, "reference rule")[1], 0.0)


def test_zeta_path_shows_welfare_errors_and_weights() -> None:
    ax = plot_zeta_path(PATH)  # type: ignore[arg-type]
    dots, ends = bars(ax)
    assert ax.get_xscale() == "log"
    assert_allclose(dots, np.column_stack([PATH.zeta, PATH.welfare]))
    assert_allclose(ends, np.column_stack([PATH.welfare - PATH.welfare_se, PATH.welfare + PATH.welfare_se]))
    (marks,) = [item for item in ax.collections if isinstance(item, PathCollection)]
    sizes = marks.get_sizes()
    assert_allclose(sizes / sizes.sum(), PATH.weight)  # area is weight
    assert texts(ax) == ["0%", "75%", "25%"]


def test_zeta_path_without_weights_has_no_row_of_them() -> None:
    ax = plot_zeta_path(SimpleNamespace(**{**vars(PATH), "weight": np.zeros(3)}))  # type: ignore[arg-type]
    assert texts(ax) == []
    assert ax.get_title() == ""


def overlap_of(n_actions: int, *, labels: Sequence[object] | None = None, clips: Sequence[float] = ()) -> OverlapReport:
    """A report with made-up counts: its numbers are other tests' matter."""
    rng = np.random.default_rng(n_actions)
    counts = rng.integers(900, 12_000, n_actions)
    edges = np.linspace(0.0, 1.0, 51) if n_actions == 2 else np.geomspace(1e-4, 1.0, 51)
    return OverlapReport(
        actions=np.array(labels if labels is not None else range(n_actions)), counts=counts,
        smallest_propensity=np.full(n_actions, 1e-3), clip=0.05, clipped_fraction=0.2433, effective_size=2071.9,
        effective_size_by_action=rng.permutation(n_actions) * 10.0 + 5.0, quantile_99=12.9, largest=57.7,
        outside_support=None, outside_by_action=None, estimated=True, histogram_edges=edges,
        histogram=rng.integers(0, 90, (n_actions, 2, 50)),
        welfare_by_clip=tuple(ClipWelfare(c, 0.2 + c, 0.002 + c / 9, 0.1, 1000 + 9000 * c) for c in clips),
    )  # fmt: skip


LONG = "a treatment with a rather long name, number "
CLIPS = (0.01, 0.02, 0.05, 0.1, 0.2)


@pytest.mark.parametrize(
    ("n_actions", "long", "clips"),
    [
        *((k, long, clips) for k in (2, 3, 34) for long, clips in ((True, ()), (True, CLIPS), (False, CLIPS))),
        (5, True, (0.05,)),
        (5, True, (0.0, 0.01, 0.05)),
        (2, True, np.geomspace(0.001, 0.3, 30).tolist()),
    ],
)
def test_overlap_words_are_apart(n_actions: int, long: bool, clips: Sequence[float]) -> None:
    labels = [f"{LONG}${i}$" for i in range(n_actions)] if long else None
    axes = plot_overlap(overlap_of(n_actions, labels=labels, clips=clips))
    assert len(axes) == (2 if clips else 1)
    assert_array_equal(axes[0].figure.get_size_inches() * axes[0].figure.dpi, [640, 400])
    assert_words_on_the_picture_and_apart(axes)


def spans(ax: Axes) -> list[list[float]]:
    return [[p.get_x(), p.get_x() + p.get_width()] for p in ax.patches if isinstance(p, Rectangle)]


def test_overlap_of_two_actions_is_mirrored() -> None:
    report = overlap_of(2, labels=["keep $1", "pay $2 or $3"])
    (ax,) = plot_overlap(report)
    up, down = [item for item in ax.patches if isinstance(item, StepPatch)]
    for item, counts in ((up, report.histogram[1, 1]), (down, -report.histogram[1, 0])):
        assert_array_equal(item.get_data().values, counts)
        assert_array_equal(item.get_data().edges, report.histogram_edges)
    assert_allclose(spans(ax), [[0.0, 0.05], [0.95, 1.0]])
    legend = [t.get_text() for t in ax.get_legend().get_texts()]
    assert legend == [r"took pay \$2 or \$3", r"took keep \$1", "clipped (24.3% of rows)"]
    assert ax.get_xlabel() == r"estimated propensity of pay \$2 or \$3"
    ax.figure.draw_without_rendering()
    assert not any("-" in t.get_text() or "−" in t.get_text() for t in ax.get_yticklabels())  # noqa: RUF001


def test_overlap_strips_are_the_actions_of_smallest_effective_size() -> None:
    report = overlap_of(34)
    (ax,) = plot_overlap(report)
    shown = sorted(range(34), key=lambda a: report.effective_size_by_action[a])[:6]
    ticks = dict(zip([t.get_text() for t in ax.get_yticklabels()], ax.get_yticks(), strict=True))
    assert {int(tick.split("\n")[0]) for tick in ticks} == set(shown)
    assert "6 of 34" in ax.get_ylabel()
    assert ax.get_xscale() == "log"
    assert_allclose(spans(ax), [[1e-4, 0.05]])
    steps = [item.get_data() for item in ax.patches if isinstance(item, StepPatch)]
    for tick, place in ticks.items():
        a = int(tick.split("\n")[0])
        assert tick.endswith(f"({report.effective_size_by_action[a]:.0f})")
        up, down = [step.values - place for step in steps if step.baseline == place]
        assert_allclose(up / up.max(), report.histogram[a, 1] / report.histogram[a, 1].max())
        assert_allclose(down / down.min(), report.histogram[a, 0] / report.histogram[a, 0].max())
        assert max(up.max(), -down.min()) < 0.5  # strips do not meet


def test_overlap_with_only_the_logged_propensity_draws_takers_alone() -> None:
    report = overlap_of(3)
    report.histogram[:, 0] = 0
    (ax,) = plot_overlap(report)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["took it", "clipped (24.3% of rows)"]
    assert "of 3" not in ax.get_ylabel()


def test_overlap_shows_welfare_by_clip() -> None:
    report = overlap_of(2, clips=(0.1, 0.0, 0.01, 0.05))
    figure = Figure()
    given = figure.subplots(1, 2)
    assert plot_overlap(report, axes=given) == tuple(given)
    ax = given[1]
    rows = sorted(report.welfare_by_clip, key=lambda row: row.clip)
    dots, ends = bars(ax)
    assert ax.get_xscale() == "log"
    assert_allclose(dots[1:, 0], [0.01, 0.05, 0.1])
    assert 0.0 < dots[0, 0] < 0.01  # no clipping: left of all
    assert_allclose(dots[:, 1], [row.welfare for row in rows])
    assert_allclose(ends, [[row.welfare - 1.96 * row.se, row.welfare + 1.96 * row.se] for row in rows])
    assert_allclose(line(ax, "clip in use"), [[0.05], [0.25]])
    ticks = [t.get_text() for t in ax.get_xticklabels()]
    assert ticks[0] == "0\n1.0k"
    assert "0.05\n1.4k" in ticks
    other = plot_overlap(overlap_of(2, clips=(0.3,)))[1]
    assert other.get_legend() is None


def test_reliability_shows_expected_and_estimated_gains_by_how_sure_it_is() -> None:
    policy = SimpleNamespace(reliability=lambda: SURE)
    for ax in (plot_reliability(SURE), plot_reliability(policy)):  # type: ignore[arg-type]
        assert_allclose(line(ax, "expected"), [SURE.said, SURE.expected])
        dots, ends = bars(ax)
        assert_allclose(dots, np.column_stack([SURE.said, SURE.estimate]))
        assert_allclose(ends, np.column_stack([SURE.estimate - 2 * SURE.se, SURE.estimate + 2 * SURE.se]))
        assert {t.get_text() for t in ax.get_legend().get_texts()} == {"expected", "estimated"}
        assert any(np.array_equal(item.get_ydata(), [0.0, 0.0]) for item in ax.lines)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: plot_scores(GRID, SCORES[:, 1:]), "29 points, grid 30"),
        (lambda: plot_scores(GRID, SCORES, level=1.0), r"level must be in \(0, 1\), got 1.0; try 0.95"),
        (lambda: plot_scores(GRID, SCORES, shown=-1), "shown must be 0 or more, got -1"),
        (lambda: plot_scores(GRID, SCORES, target=GRID[1:]), "target must have 30 numbers"),
        (lambda: plot_welfare(SCORES), r"draws must be finite numbers by \(draw\)"),
        (lambda: plot_welfare([np.nan]), "finite"),
        (lambda: plot_score_at(SCORES, [1.0]), "name every point once"),
        (lambda: plot_disagreement(WELFARE, WELFARE[1:]), "same rows"),
        (lambda: plot_groups([0.1], [0.1]), "agreement must have 5 groups"),
        (lambda: plot_groups(PAPER["agreement"], [0.1]), "regret must have 5 numbers"),
        (lambda: plot_threshold([0.1], [0.1], labels=["a", "b"]), "labels must have as many"),
        (lambda: plot_overlap(overlap_of(2, clips=CLIPS), axes=[Figure().add_subplot()]), "axes must be 2 Axes"),
    ],
)
def test_errors_say_what_is_wrong(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_a_path_with_two_corrections_has_a_line_and_a_weight_for_each() -> None:
    two = SimpleNamespace(
        zeta=np.array([10.0, 1.0, 0.1, 5.0, 0.2]),
        welfare=np.array([0.41, 0.43, 0.42, 0.44, 0.40]),
        welfare_se=np.full(5, 0.01),
        weight=np.array([0.1, 0.3, 0.1, 0.4, 0.1]),
        correction=np.array([1.0, 1.0, 1.0, 0.0, 0.0]),
    )
    ax = plot_zeta_path(two)  # type: ignore[arg-type]
    lines = [line for line in ax.lines if not str(line.get_label()).startswith("_")]
    assert [line.get_label() for line in lines] == ["correction 1: weight 50%", "correction 0: weight 50%"]
    np.testing.assert_allclose(lines[0].get_xdata(), [0.1, 1.0, 10.0])
    np.testing.assert_allclose(lines[1].get_ydata(), [0.40, 0.44])
    assert not ax.texts, "weights above the axes would run into each other"


def test_eta_shows_the_curve_the_nominal_value_and_the_choice() -> None:
    ax = plot_eta(CHOICE)  # type: ignore[arg-type]
    curve, nominal, chosen = ax.get_lines()
    assert_allclose(curve.get_xydata(), np.column_stack([CHOICE.grid, CHOICE.curve]))
    assert_allclose(nominal.get_ydata(), 0.9)
    assert_allclose(chosen.get_xdata(), 1.2)
    without = SimpleNamespace(**{**vars(CHOICE), "nominal": None})
    assert len(plot_eta(without).get_lines()) == 2  # type: ignore[arg-type]


def test_coverage_is_drawn_over_eta_or_over_the_level() -> None:
    ax = plot_coverage(COVERAGE)  # type: ignore[arg-type]
    shown = [bar.lines[0].get_xydata() for bar in ax.containers if isinstance(bar, ErrorbarContainer)]
    assert_allclose(shown, [np.column_stack([COVERAGE.etas, column]) for column in COVERAGE.coverage.T])
    few = SimpleNamespace(
        etas=(1.0, 4.0), levels=COVERAGE.levels, coverage=COVERAGE.coverage[:2], coverage_se=COVERAGE.coverage_se[:2]
    )
    ax = plot_coverage(few)  # type: ignore[arg-type]
    shown = [bar.lines[0].get_xydata() for bar in ax.containers if isinstance(bar, ErrorbarContainer)]
    assert_allclose(shown, [np.column_stack([few.levels, row]) for row in few.coverage])


# -- of a policy ------------------------------------------------------------------------------------------------------


def test_gain_over_each_action_with_intervals_and_bands() -> None:
    rng = np.random.default_rng(3)
    own = Value(rng.normal(size=60), "dr")
    gains = gains_over(own, ["wait", "co$t"], [Value(rng.normal(size=60), "dr") for _ in range(2)])
    ax = plot_gain(gains, level=0.9)
    band, one = (np.array([path.vertices[:, 0] for path in lines.get_paths()]) for lines in ax.collections)
    assert_allclose(one, gains.intervals(0.9))
    assert_allclose(band, gains.bands(0.9))
    assert_allclose(ax.lines[-1].get_xdata(), gains.estimates)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["wait", r"co\$t"]


def test_groups_with_intervals_and_bands() -> None:
    rng = np.random.default_rng(4)
    value, usual = Value(rng.normal(size=90), "dr"), Value(rng.normal(size=90), "dr")
    table = group_table(
        "city", ["Bern", "U$m"], np.arange(90) % 2, value=value, usual=usual, given=np.eye(2)[np.arange(90) % 2],
        actions=["wait", "call"], default=0,
    )  # fmt: skip
    for of in ("gains", "values", "gain_differences", "share_differences"):
        ax, shown = plot_by_group(table, of=of, level=0.9), getattr(table, of)
        band, one = (np.array([path.vertices[:, 0] for path in lines.get_paths()]) for lines in ax.collections)
        assert_allclose(one, shown.intervals(0.9))
        assert_allclose(band, shown.bands(0.9))
        assert [label.get_text() for label in ax.get_yticklabels()] == ["Bern", r"U\$m"]
        assert ax.get_ylabel() == "city"
        assert_words_on_the_picture_and_apart([ax])
    with pytest.raises(ValueError, match="of must be one of gains, values"):
        plot_by_group(table, of="rows")


class _Corner:
    """A policy that treats where both features are above 1, in the numbers of its rows."""

    actions_, n_features_in_, mean, scale = np.array(["wait", "treat"]), 3, np.array([1.0, 5.0, 1.0]), np.ones(3)
    encoder = None

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        assert_array_equal(x[:, 1], 5.0)
        treat = 0.1 + 0.8 * ((x[:, 0] > 1.0) & (x[:, 2] > 1.0))
        return np.column_stack([1.0 - treat, treat])

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.actions_[np.argmax(self.predict_proba(x), axis=1)]


def test_map_of_the_rule_over_two_features() -> None:
    ax = plot_rule(_Corner(), 0, 2, points=4)
    image = ax.images[0]
    assert_allclose(image.get_extent(), [-1.0, 3.0, -1.0, 3.0])
    colours = np.asarray(image.get_array())
    treat = colours[-1, -1]
    assert np.all(colours[2:, 2:] == treat), "across the first feature, upwards the second"
    assert not np.any(np.all(colours[:2] == treat, axis=2))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["wait", "treat"]
    with pytest.raises(ValueError, match="7 is no feature of this policy; its features are 0, 1, 2"):
        plot_rule(_Corner(), 7, 0)
    with pytest.raises(ValueError, match="first and second are both 0"):
        plot_rule(_Corner(), 0, 0)


def test_overlap_and_path_are_drawn_from_the_policy_itself() -> None:
    with pytest.raises(ValueError, match="takes a policy fitted to logged feedback, or its overlap_, got _Corner"):
        plot_overlap(_Corner())
    whole, part = SimpleNamespace(zeta_path_=PATH), PATH
    assert_array_equal(plot_zeta_path(whole).lines[0].get_ydata(), plot_zeta_path(part).lines[0].get_ydata())
