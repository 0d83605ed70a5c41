"""Statements about the posterior: intervals, disagreement, threshold rules, and the one-dimensional example."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gbpl.paper.experiments.catalog import EXAMPLE, LEVELS, TABLES
from gbpl.paper.printing.columns import Column, Row, layout
from gbpl.paper.verdicts.verdict import (
    CLEAR,
    FAILS,
    HOLDS,
    SMALL,
    UNKNOWN,
    NotComparable,
    Statement,
    Verdict,
    all_of,
    level,
    trend,
)

if TYPE_CHECKING:
    from gbpl.paper.experiments.records import Records

__all__ = ["PRINTED_EXAMPLE", "STATEMENTS"]

PRINTED_EXAMPLE = {"validation_loss": 0.3482, "welfare_mean": 0.4699, "low": 0.3327, "high": 0.5021}
NEAR = 0.02  # a coverage this close to its level is close, however many trials there are


def _only(table: str) -> list[Row]:
    """Rows of a table with a single method."""
    return [(case, *TABLES[table].rows[0]) for case in TABLES[table].cases]


def _interval(table: str, percent: int, kind: str) -> Column:
    return layout(TABLES[table]).column(f"{percent}%" if kind == "coverage" else f"{percent}%_width")


def _closest(records: Records) -> Verdict:
    """By the numbers themselves: the eta whose coverage is nearest to 0.90."""
    column = _interval("uq-calibration", 90, "coverage")
    coverage = {row[0]: level(records, row, column.values) for row in _only("uq-calibration")}
    closest = min(coverage, key=lambda eta: round(abs(coverage[eta].mean - 0.9), 9))
    numbers = ", ".join(f"{eta}: {gap.mean:.3f} ({gap.se:.3f})" for eta, gap in coverage.items())
    return Verdict(HOLDS if closest == "4" else FAILS, f"closest is eta = {closest}; coverage by eta {numbers}")


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
        parts[f"{percent} %"] = Verdict(verdict.word, f"width {verdict.why}")
    return all_of(parts)


def _near_nominal(records: Records) -> Verdict:
    """At eta = 4 close to the level, and closer to it than at eta = 1."""
    first, last = _only("uq-evaluation")
    parts = {}
    for percent in (90, 95):
        column, nominal = _interval("uq-evaluation", percent, "coverage"), percent / 100
        before, after = level(records, first, column.values), level(records, last, column.values)
        error = math.sqrt(nominal * (1 - nominal) / after.trials)
        off, was = (round(abs(gap.mean - nominal), 9) for gap in (after, before))
        why = f"{after.mean:.3f} ({after.se:.3f}) at eta = 4, {before.mean:.3f} ({before.se:.3f}) at eta = 1"
        parts[f"{percent} %"] = Verdict(HOLDS if off <= max(NEAR, CLEAR * error) and off < was else FAILS, why)
    return all_of(parts)


def _small_change(records: Records) -> Verdict:
    changed = {row[0]: level(records, row, "change") for row in _only("posterior-threshold-rules")}
    numbers = ", ".join(f"{gap.mean:.4f} ({gap.se:.4f}) at {alpha}" for alpha, gap in changed.items())
    return Verdict(HOLDS if all(gap.mean < SMALL for gap in changed.values()) else FAILS, f"share changed: {numbers}")


def _small_loss(records: Records) -> Verdict:
    """No clear gain, and a loss of less than 5 % of the MAP rule's welfare."""
    rows = _only("posterior-threshold-rules")
    losses = {row[0]: (level(records, row, "difference"), level(records, row, "map").mean) for row in rows}
    numbers = ", ".join(f"{gap} at {alpha}" for alpha, (gap, _) in losses.items())
    small = all(gap.clear <= 0 and -gap.mean < SMALL * abs(base) for gap, base in losses.values())
    return Verdict(HOLDS if small else FAILS, f"difference from the MAP rule {numbers}")


def _example(records: Records) -> dict[str, float]:
    numbers = {key: float(records.of("", "GBPLNet", "1.0", key)[0]) for key in PRINTED_EXAMPLE}
    if not all(math.isfinite(value) for value in numbers.values()):
        raise NotComparable("the example's run left no such numbers")
    return numbers


def _one_run(records: Records) -> Verdict:
    return Verdict(UNKNOWN, f"one run on each side, of other data: ours is {_example(records)['validation_loss']:.4f}")


def _example_interval(records: Records) -> Verdict:
    ours, theirs = _example(records), PRINTED_EXAMPLE
    times = (theirs["high"] - theirs["low"]) / max(ours["high"] - ours["low"], 1e-12)
    why = f"ours has mean {ours['welfare_mean']:.4f} and interval [{ours['low']:.4f}, {ours['high']:.4f}]"
    return Verdict(UNKNOWN, f"one run on each side, of other data: {why}; the printed one is {times:.2g} times as wide")


def _long_below(records: Records) -> Verdict:
    ours = _example(records)
    below, above = ours["welfare_mean"] - ours["low"], ours["high"] - ours["welfare_mean"]
    return Verdict(HOLDS if below > above else FAILS, f"ours reaches {below:.4f} below the mean and {above:.4f} above")


def _seen_only(records: Records) -> Verdict:
    return Verdict(UNKNOWN, "the numbers kept of the run do not show it; see the figure of the posterior draws")


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
    Statement("the best validation surrogate loss is 0.3482", DRAWN, EXAMPLE, _one_run),
    Statement("The posterior mean tracks the target ... and saturates near the boundaries", DRAWN, EXAMPLE, _seen_only),
    Statement("The credible band widens in transition regions", DRAWN, EXAMPLE, _seen_only),
    Statement(
        "the posterior welfare mean is 0.4699, and the 95 % credible interval ... is [0.3327, 0.5021]", DRAWN, EXAMPLE,
        _example_interval,
    ),
    Statement("the interval reaches farther below its mean than above", DRAWN, EXAMPLE, _long_below, of_text=False),
)  # fmt: skip
