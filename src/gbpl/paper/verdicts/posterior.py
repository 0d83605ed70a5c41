"""Statements about the posterior: intervals, disagreement, threshold rules, and the one-dimensional example."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import EXAMPLE, LEVELS, TABLES
from gbpl.paper.printing.cells import rounding
from gbpl.paper.printing.columns import Column, Row, layout
from gbpl.paper.verdicts.statement import Statement
from gbpl.paper.verdicts.verdict import (
    CLEAR,
    SMALL,
    Gap,
    Verdict,
    all_of,
    beyond,
    graded,
    level,
    paired,
    same,
    trend,
)

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.paper.experiments.records import Records
    from gbpl.paper.verdicts.verdict import Measure

__all__ = ["PRINTED_EXAMPLE", "RUN", "STATEMENTS"]

PRINTED_EXAMPLE = {"validation_loss": 0.3482, "welfare_mean": 0.4699, "low": 0.3327, "high": 0.5021}
RUN = ("", "GBPLNet", "1.0")  # the row of the example, one trial per run
TRACKS = 0.1  # 5 % of the range of a score, from -1 to 1


def _only(table: str) -> list[Row]:
    """Rows of a table with a single method."""
    return [(case, *TABLES[table].rows[0]) for case in TABLES[table].cases]


def _interval(table: str, percent: int, kind: str) -> Column:
    return layout(TABLES[table]).column(f"{percent}%" if kind == "coverage" else f"{percent}%_width")


def _coverages(records: Records, table: str, percent: int) -> dict[str, Gap]:
    column = _interval(table, percent, "coverage")
    return {row[0]: level(records, row, column.values) for row in _only(table)}


def _closer(records: Records, table: str, percent: int, row: Row, other: Row) -> Gap:
    """How much farther from the level the coverage of `other` is than that of `row`, paired by trial.

    |c - level| is c - level or level - c, by the side the mean is on, and so a mean over trials like c.
    """
    column = _interval(table, percent, "coverage")
    sides = {r: np.sign(level(records, r, column.values).mean - percent / 100) for r in (row, other)}

    def off(of: Records, r: Row) -> Float[np.ndarray, " trial"]:
        return sides[r] * (column.values(of, r) - percent / 100)

    return paired(records, other, row, off)


def _closest(records: Records) -> Verdict:
    """The coverage at eta = 4 nearer to 0.90 than that at any other eta."""
    rows = {row[0]: row for row in _only("uq-calibration")}
    four = rows.pop("4")
    z = {
        eta: beyond(gap.mean, gap.se)
        for eta, row in rows.items()
        for gap in [_closer(records, "uq-calibration", 90, four, row)]
    }
    coverage = _coverages(records, "uq-calibration", 90)
    closest = min(coverage, key=lambda eta: round(abs(coverage[eta].mean - 0.9), 9))
    numbers = ", ".join(f"{eta}: {gap.mean:.3f} ({gap.se:.3f})" for eta, gap in coverage.items())
    why = f"closest is eta = {closest}; coverage by eta {numbers}"
    return graded(min(z.values()), why, "|coverage - 0.90| smaller at eta = 4 than at each other eta")


def _coverage_depends(records: Records) -> Verdict:
    """Lower at the largest eta than at the smallest, at every level."""
    first, *_, last = _only("uq-calibration")
    parts = {}
    for percent in (round(100 * share) for share in LEVELS):
        coverage = _interval("uq-calibration", percent, "coverage").values
        parts[f"{percent} %"] = trend(records, [first, last], coverage, sign=-1)
    return all_of(parts)


def _narrower(records: Records) -> Verdict:
    first, last = _only("uq-evaluation")
    parts = {}
    for percent in (round(100 * share) for share in LEVELS):
        width = _interval("uq-evaluation", percent, "width").values
        verdict = trend(records, [first, last], width, sign=-1)
        parts[f"{percent} %"] = replace(verdict, why=f"width {verdict.why}")
    return all_of(parts)


def _near_nominal(records: Records) -> Verdict:
    """At eta = 4 nearer the level than as many trials as the paper's could tell, and nearer than at eta = 1."""
    first, last = _only("uq-evaluation")
    parts = {}
    for percent in (90, 95):
        nominal, coverage = percent / 100, _coverages(records, "uq-evaluation", percent)
        before, after = coverage["1"], coverage["4"]
        margin = CLEAR * math.sqrt(nominal * (1 - nominal) / TABLES["uq-evaluation"].trials)
        why = f"{after.mean:.3f} ({after.se:.3f}) at eta = 4, {before.mean:.3f} ({before.se:.3f}) at eta = 1"
        z = beyond(margin - abs(after.mean - nominal), after.se)
        parts[f"{percent} %"] = graded(z, why, f"coverage within {margin:.3f} of its level")
        gap = _closer(records, "uq-evaluation", percent, last, first)
        nearer = f"nearer by {gap}"
        parts[f"{percent} %, than at eta = 1"] = graded(beyond(gap.mean, gap.se), nearer, "nearer than at eta = 1")
    return all_of(parts)


def _small_change(records: Records) -> Verdict:
    changed = {row[0]: level(records, row, "change") for row in _only("posterior-threshold-rules")}
    numbers = ", ".join(f"{gap.mean:.4f} ({gap.se:.4f}) at {alpha}" for alpha, gap in changed.items())
    z = min(beyond(SMALL - gap.mean, gap.se) for gap in changed.values())
    return graded(z, f"share changed: {numbers}", "share below 5 %")


def _small_loss(records: Records) -> Verdict:
    """A loss of less than 5 % of the MAP rule's welfare, and no clear gain."""
    rows = _only("posterior-threshold-rules")
    losses = {row[0]: (level(records, row, "difference"), level(records, row, "map").mean) for row in rows}
    numbers = ", ".join(f"{gap} at {alpha}" for alpha, (gap, _) in losses.items())
    z = min(
        min(beyond(gap.mean + SMALL * abs(base), gap.se), CLEAR + beyond(-gap.mean, gap.se))
        for gap, base in losses.values()
    )
    return graded(z, f"difference from the MAP rule {numbers}", "loss below 5 % of welfare, no clear gain")


# -- the example: runs with other seeds beside the one of the text -------------------------------------------


def _width(records: Records, row: Row) -> Float[np.ndarray, " trial"]:
    return records.of(*row, "high") - records.of(*row, "low")


def _one_printed(records: Records, numbers: Mapping[str, tuple[Measure, float]]) -> Verdict:
    """Numbers of one printed run, as far from our runs as one more of them would be."""
    apart, reasons, count = [], [], 0
    for name, (measure, printed) in numbers.items():
        runs = level(records, RUN, measure)
        sd, count = runs.se * math.sqrt(runs.trials), runs.trials
        apart.append(beyond(printed - runs.mean, math.hypot(sd, runs.se, rounding(4))))
        reasons.append(f"{name} {runs.mean:.4f}, sd {sd:.4f}, printed {printed:.4f}")
    verdict = same(max(abs(z) for z in apart), f"{count} runs: {'; '.join(reasons)}")
    return replace(verdict, test="printed run within 2 sd of our runs")


def _example_interval(records: Records) -> Verdict:
    """Mean and width: where the ends are depends on the 300 test rows, as the mean does."""
    theirs = PRINTED_EXAMPLE["high"] - PRINTED_EXAMPLE["low"]
    mean, width = ("welfare_mean", PRINTED_EXAMPLE["welfare_mean"]), (_width, theirs)
    verdict = _one_printed(records, {"welfare mean": mean, "width of the interval": width})
    times = theirs / level(records, RUN, _width).mean
    return replace(verdict, why=f"{verdict.why}, {times:.2g} times as wide as ours")


def _of_runs(
    measure: Callable[[Records, Row], Float[np.ndarray, " trial"]], why: str, test: str
) -> Callable[[Records], Verdict]:
    """A number that should be positive in a run: its mean over runs, and in how many of them it is."""

    def rule(records: Records) -> Verdict:
        gap, values = level(records, RUN, measure), measure(records, RUN)
        seen = f"in {int(np.sum(values > 0))} of {gap.trials} runs"
        return graded(beyond(gap.mean, gap.se), f"{why} {gap}, above 0 {seen}", test)

    return rule


_TRACKS = _of_runs(
    lambda of, row: TRACKS - of.of(*row, "miss"), "0.1 less the mean distance from the target",
    "mean distance below 0.1",
)  # fmt: skip
_SATURATES = _of_runs(
    lambda of, row: of.of(*row, "edge") - (1 - TRACKS), "size on the boundary, less 0.9", "size above 0.9"
)
_WIDENS = _of_runs(
    lambda of, row: of.of(*row, "band") - of.of(*row, "edge_band"),
    "width of the band near the decision boundary, less that where the target is on the boundary of the actions",
    "wider near the decision boundary",
)
_LONG_BELOW = _of_runs(
    lambda of, row: 2 * of.of(*row, "welfare_mean") - of.of(*row, "low") - of.of(*row, "high"),
    "reach below the mean less that above", "farther below",
)  # fmt: skip


INTERVALS, GROUPS, RULES = "Appendix, interval tables", "Appendix, disagreement table", "Appendix, threshold-rule table"
DRAWN = "Appendix, posterior visualization"

STATEMENTS: tuple[Statement, ...] = (
    Statement(
        "Their frequentist coverage depends on the loss scale eta", INTERVALS, "uq-calibration", _coverage_depends
    ),
    Statement("eta = 4 gives empirical coverage closest to 0.90", INTERVALS, "uq-calibration", _closest),
    Statement("Calibration reduces interval width", INTERVALS, "uq-evaluation", _narrower),
    Statement(
        "and brings the 90 % and 95 % intervals close to their nominal coverage levels", INTERVALS, "uq-evaluation",
        _near_nominal,
    ),
    Statement(
        "Higher posterior disagreement is associated with lower agreement with the Bayes-optimal action", GROUPS,
        "action-disagreement",
        lambda records: trend(records, _only("action-disagreement"), "agreement", sign=-1),
    ),
    Statement(
        "and a larger regret contribution", GROUPS, "action-disagreement",
        lambda records: trend(records, _only("action-disagreement"), "regret", sign=1),
    ),
    Statement(
        "the conditional margin falls with disagreement", GROUPS, "action-disagreement",
        lambda records: trend(records, _only("action-disagreement"), "margin", sign=-1), of_text=False,
    ),
    Statement(
        "the threshold rule changes a small fraction of actions", RULES, "posterior-threshold-rules", _small_change
    ),
    Statement(
        "and has a small welfare loss relative to the MAP rule", RULES, "posterior-threshold-rules", _small_loss
    ),
    Statement(
        "the loss shrinks as alpha grows", RULES, "posterior-threshold-rules",
        lambda records: trend(records, _only("posterior-threshold-rules"), "difference", sign=1), of_text=False,
    ),
    Statement(
        "the best validation surrogate loss is 0.3482", DRAWN, EXAMPLE,
        lambda records: _one_printed(
            records, {"validation loss": ("validation_loss", PRINTED_EXAMPLE["validation_loss"])}
        ),
    ),
    Statement(
        "The posterior mean tracks the target ... and saturates near the boundaries", DRAWN, EXAMPLE,
        lambda records: all_of({"tracks": _TRACKS(records), "saturates": _SATURATES(records)}),
    ),
    Statement("The credible band widens in transition regions", DRAWN, EXAMPLE, _WIDENS),
    Statement(
        "the posterior welfare mean is 0.4699, and the 95 % credible interval ... is [0.3327, 0.5021]", DRAWN, EXAMPLE,
        _example_interval,
    ),
    Statement("the interval reaches farther below its mean than above", DRAWN, EXAMPLE, _LONG_BELOW, of_text=False),
)  # fmt: skip
