"""Overlap of logged data: how much the log says about each action (section 7).

A small propensity makes one row stand for many. Clipping limits how many, at the price of a bias (section 7, the
stabilization under weak overlap), and the appendix on weak overlap assesses both by the numbers collected here. The
report keeps counts and summaries, never rows, so that a saved policy can hold it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.runtime.json import plain
from gbpl.runtime.warn import warn

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "LEAST_EVENTS",
    "ClipWelfare",
    "OverlapReport",
    "OverlapWarning",
    "clipping",
    "overlap_report",
    "warn_if_weak",
]

MOST_CLIPPED = 0.05  # above it, the bias of clipping no longer comes from a few odd rows
LEAST_EFFECTIVE_SHARE = 0.5  # below it, uneven weights within actions have cost more than half of the rows
MOST_OUTSIDE = 0.05  # above it, a group of some size has an action that nobody like them took
MOST_ROWS_OUTSIDE = 20  # in a small log as many may be outside by chance
LEAST_PER_ACTION = 30.0  # below it, a normal interval for the mean of one action is doubtful
LEAST_EVENTS = 10  # below it, the rate of a rare event is known to half of itself at best
ROUNDING = 1e-6  # of a propensity: 1 - 0.9 is below 0.1, and float32's 0.01 below 0.01, yet neither is small
BINS = 50
FIRST_EDGE = 1e-4  # smaller propensities need no bins of their own: no clip in use is as small
NAMED = 5  # actions named in a sentence
LISTED = 10  # actions listed in a printed report
LABEL_WIDTH = 32


class OverlapWarning(UserWarning):
    """The log says little about some actions, or about some rows."""


@dataclass(frozen=True, slots=True)
class ClipWelfare:
    """Welfare of the policy, with its standard error, had the propensities been clipped at `clip`."""

    clip: float
    welfare: float
    se: float
    clipped_fraction: float
    effective_size: float


@dataclass(frozen=True, slots=True, eq=False)
class OverlapReport:
    """What the propensities of a log allow one to estimate.

    `counts` are the rows that took each action, `smallest_propensity` is each action's before clipping (over all
    rows, or over those that took it where only the logged action's is known; NaN without any). `clipped_fraction` is
    the share of rows in which clipping changed a propensity. `effective_size` is (sum w)^2 / sum w^2 with w the
    sample weight over the clipped propensity of the logged action, over all rows and over those of each action.
    `quantile_99` and `largest` are those of the |pseudo-difference|: between the two pseudo-outcomes of a row, or with
    more actions between its largest and its smallest. `outside_support` is the share of rows outside common support,
    and `outside_by_action` that for each action, None where it is unknown. Weakness is assessed by action, so that a
    randomized log is not called weak for uneven shares or many actions. `histogram` counts rows by the propensity of
    each action, those that did not take it and those that did; with more than two actions the bins are even on a log
    scale, and the first holds everything smaller. Shares, quantiles and counts are of rows, whatever their weight.
    `events` counts the outcomes of each action that are not the usual one, where they are rare (`value.rare`).
    """

    actions: np.ndarray
    counts: Int[np.ndarray, " action"]
    smallest_propensity: Float[np.ndarray, " action"]
    clip: float
    clipped_fraction: float
    effective_size: float
    effective_size_by_action: Float[np.ndarray, " action"]
    quantile_99: float
    largest: float
    outside_support: float | None
    outside_by_action: Float[np.ndarray, " action"] | None
    estimated: bool
    histogram_edges: Float[np.ndarray, " edge"] = field(repr=False)
    histogram: Int[np.ndarray, "action 2 bin"] = field(repr=False)
    welfare_by_clip: tuple[ClipWelfare, ...] = ()
    events: Int[np.ndarray, " action"] | None = None

    @property
    def weak(self) -> bool:
        """Whether there is any reason to doubt the overlap."""
        return bool(self.reasons())

    def reasons(self) -> list[str]:
        """Why the overlap is weak, one sentence per reason, with the number and its limit; empty if it is not."""
        n, reasons = int(self.counts.sum()), []
        if self.clipped_fraction > MOST_CLIPPED:
            reasons.append(
                f"{_percent(self.clipped_fraction)} of the rows have a propensity below the clip of {self.clip:g} "
                f"(more than {_percent(MOST_CLIPPED)})"
            )
        within = float(self.effective_size_by_action.sum())
        if within < LEAST_EFFECTIVE_SHARE * n:
            reasons.append(
                f"after weighting, the {n} rows are worth {within:.1f} (each action by itself; less than "
                f"{_percent(LEAST_EFFECTIVE_SHARE)} of them)"
            )
        outside = np.zeros(1) if self.outside_by_action is None else self.outside_by_action
        far = int(np.argmax(outside))
        if outside[far] > max(MOST_OUTSIDE, MOST_ROWS_OUTSIDE / n):
            reasons.append(
                f"{_percent(outside[far])} of the rows are outside common support: less likely to take "
                f"{self.actions.tolist()[far]!r} than every row that took it (more than {_percent(MOST_OUTSIDE)})"
            )
        few = self._rarest()[: int(np.sum(self.effective_size_by_action < LEAST_PER_ACTION))]
        if len(few):
            named = [f"{self.actions.tolist()[a]!r} {self.effective_size_by_action[a]:.3g}" for a in few[:NAMED]]
            more = ["..."] if len(few) > NAMED else []
            reasons.append(
                f"{len(few)} of the {len(self.actions)} actions have an effective size below {LEAST_PER_ACTION:g}: "
                + ", ".join(named + more)
            )
        if self.events is not None and self.events.min() < LEAST_EVENTS:
            few_events, none = int(np.sum(self.events < LEAST_EVENTS)), int(np.sum(self.events == 0))
            reasons.append(
                f"{few_events} of the {len(self.actions)} actions have fewer than {LEAST_EVENTS} rare events, of "
                f"{int(self.events.sum())} in all" + (f", and {none} have none" if none else "")
            )
        return reasons

    def _rarest(self) -> Int[np.ndarray, " action"]:
        """Action numbers by effective size, the smallest first."""
        return np.argsort(self.effective_size_by_action, kind="stable")

    def to_dict(self) -> dict[str, Any]:
        """Every number by name in plain Python types, as `json.dumps` takes them; None for NaN."""
        columns = {name: getattr(self, name) for name in self.__slots__ if name != "welfare_by_clip"}
        columns["actions"] = [str(label) if isinstance(label, tuple) else label for label in self.actions.tolist()]
        return {
            **plain(columns, other=str),
            "welfare_by_clip": [plain(asdict(row)) for row in self.welfare_by_clip],
            "weak": self.weak,
            "reasons": self.reasons(),
        }

    def __str__(self) -> str:
        n, reasons = int(self.counts.sum()), self.reasons()
        outside = "unknown" if self.outside_support is None else _percent(self.outside_support)
        share = _percent(self.effective_size / n)
        listed = np.arange(len(self.actions)) if len(self.actions) <= LISTED else self._rarest()[:LISTED]
        left = len(self.actions) - len(listed)
        lines = [
            f"overlap of {n} rows: {'WEAK' if reasons else 'no sign of weakness'}",
            f"  propensities          {'estimated' if self.estimated else 'known'}",
            f"  clipped at {self.clip:<10g} {_percent(self.clipped_fraction)} of the rows",
            f"  outside support       {outside if self.outside_support is None else outside + ' of the rows'}",
            f"  effective size        {self.effective_size:.1f} ({share})",
            f"  |pseudo-difference|   {self.quantile_99:.4g} (0.99 quantile), {self.largest:.4g} (largest)",
            *_table(
                ["action", "rows", "effective size", "smallest propensity"],
                [
                    [
                        shorten(self.actions.tolist()[a], LABEL_WIDTH),
                        f"{self.counts[a]}",
                        f"{self.effective_size_by_action[a]:.1f}",
                        f"{self.smallest_propensity[a]:.4g}",
                    ]
                    for a in listed
                ],
            ),
        ]
        if left:
            lines.append(f"  (and {left} more, of larger effective size)")
        if self.welfare_by_clip:
            lines += _table(
                ["clip", "welfare", "standard error", "clipped", "effective size"],
                [
                    [
                        f"{row.clip:g}",
                        f"{row.welfare:.5g}",
                        f"{row.se:.3g}",
                        _percent(row.clipped_fraction),
                        f"{row.effective_size:.1f}",
                    ]
                    for row in self.welfare_by_clip
                ],
            )
        return "\n".join(lines + [f"  weak: {reason}" for reason in reasons])


def overlap_report(
    action: Int[np.ndarray, " row"],
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"],
    clipped: Float[np.ndarray, " row"],
    pseudo_outcomes: Float[np.ndarray, "row action"],
    *,
    actions: np.ndarray,
    clip: float,
    sample_weight: Float[np.ndarray, " row"] | None = None,
    estimated: bool = False,
) -> OverlapReport:
    """The report from arrays that have been checked already.

    `propensity` is before clipping, of every action or of the logged one (with two actions that gives the other);
    `clipped` is that of the logged action after clipping.

    A row is clipped when any known propensity is below `clip`: with two actions, when e_1 is
    outside [clip, 1 - clip]. Common support is by the min-max rule: row i is outside it when for some action a,
    e_a(x_i) is lower than e_a(x_j) of every row j that took a. An action nobody took leaves every row outside.
    """
    labels, n = np.asarray(actions), len(action)
    count, complete = len(labels), propensity.ndim == 2 or len(labels) == 2
    weight = (1.0 if sample_weight is None else np.asarray(sample_weight, np.float64)) / np.asarray(clipped, np.float64)
    edges = _edges(count, clip, float(np.min(propensity)))
    outside, beyond = np.zeros(n, bool), np.zeros(count)
    clipped_fraction, effective_size = clipping(action, propensity, weight, count, clip)
    counts, smallest, effective = np.zeros(count, np.int64), np.full(count, np.nan), np.zeros(count)
    histogram = np.zeros((count, 2, BINS), np.int64)
    for a in range(count):  # one action at a time: nothing as large as the table is made
        took = action == a
        known = np.ones(n, bool) if complete else took
        chance = _chance_of(a, took, propensity)
        counts[a] = took.sum()
        smallest[a] = chance[known].min() if known.any() else np.nan
        effective[a] = _effective_size(weight[took])
        lower = chance < chance[took].min(initial=np.inf) * (1.0 - ROUNDING)
        outside |= lower
        beyond[a] = lower.mean()
        for side, rows in enumerate((known & ~took, took)):
            histogram[a, side] = np.histogram(np.clip(chance[rows], edges[0], 1.0), edges)[0]
    difference = np.max(pseudo_outcomes, axis=1) - np.min(pseudo_outcomes, axis=1)  # |Y~(1) - Y~(0)| with two
    return OverlapReport(
        actions=labels,
        counts=counts,
        smallest_propensity=smallest,
        clip=float(clip),
        clipped_fraction=clipped_fraction,
        effective_size=effective_size,
        effective_size_by_action=effective,
        quantile_99=float(np.quantile(difference, 0.99)),
        largest=float(difference.max()),
        outside_support=float(outside.mean()) if complete else None,
        outside_by_action=beyond if complete else None,
        estimated=bool(estimated),
        histogram_edges=edges,
        histogram=histogram,
    )


def clipping(
    action: Int[np.ndarray, " row"],
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"],
    weight: Float[np.ndarray, " row"],
    count: int,
    clip: float,
) -> tuple[float, float]:
    """Share of rows that a clip level changes, and the effective size of weights made with it."""
    below = np.zeros(len(action), bool)
    for a in range(count):
        took = action == a
        known = took if propensity.ndim == 1 and count > 2 else np.ones(len(action), bool)
        below |= known & (_chance_of(a, took, propensity) < clip * (1.0 - ROUNDING))
    return float(below.mean()), _effective_size(weight)


def warn_if_weak(report: OverlapReport) -> None:
    """Warn with the reasons and what to do."""
    reasons = report.reasons()
    if reasons:
        warn(
            f"weak overlap: {'; '.join(reasons)}. What the log does not hold, no estimate can: collect more rows with "
            f"the rare actions, raise clip (now {report.clip:g}; less variance, more bias), restrict the population or "
            'the actions to what was tried, or lean on the outcome model with pseudo_outcome="dm"',
            OverlapWarning,
        )


def shorten(label: Any, width: int) -> str:
    """A label on one line; the middle of a long one is left out, since labels differ mostly at their ends."""
    text = " ".join(str(label).split())
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _chance_of(
    a: int, took: np.ndarray, propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"]
) -> Float[np.ndarray, " row"]:
    """Propensity of action a; from one number per row, its complement where a was not taken (right for two actions)."""
    if propensity.ndim == 2:
        return np.asarray(propensity[:, a], np.float64)
    logged = np.asarray(propensity, np.float64)
    return np.where(took, logged, 1.0 - logged)


def _edges(n_actions: int, clip: float, smallest: float) -> Float[np.ndarray, " edge"]:
    """Two actions: even over [0, 1]. More actions: even on a log scale, from below clip to 1."""
    if n_actions == 2:
        return np.linspace(0.0, 1.0, BINS + 1)
    low = min(smallest, 0.5 * clip if clip > 0.0 else 1.0, 0.1)
    return np.geomspace(max(low, FIRST_EDGE), 1.0, BINS + 1)


def _effective_size(weight: Float[np.ndarray, " row"]) -> float:
    squares = float(weight @ weight)
    return float(weight.sum()) ** 2 / squares if squares > 0.0 else 0.0


def _percent(share: float) -> str:
    return f"{100.0 * share:.3g}%"


def _table(names: list[str], rows: list[list[str]]) -> list[str]:
    """Lines of a table, the first column to the left and numbers to the right."""
    widths = [max(len(cell) for cell in column) for column in zip(names, *rows, strict=True)]
    sides = ["<", *[">"] * (len(names) - 1)]
    line = "  " + "  ".join(f"{{:{side}{width}}}" for side, width in zip(sides, widths, strict=True))
    return [line.format(*row) for row in [names, *rows]]
