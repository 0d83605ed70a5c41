"""Bars: who gets what, how split the posterior is, how likely the log was to take each action.

Actions have colours that differ for any kind of colour vision, and their own patterns for print.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gbpl.report.markup import Child, Tag, tag
from gbpl.report.numbers import count, number, percent
from gbpl.report.svg import Scale, axis_below, axis_left, figure, segment, text

__all__ = ["Slots", "definitions", "disagreement_chart", "plain_histogram", "propensity_chart", "share_bar", "swatch"]

MOST_SLOTS = 8  # colours and patterns; with more actions the rarest share the last
OTHER = MOST_SLOTS - 1
PATTERNS = (  # what is cut out of the colour of each slot, on a tile of 8 pixels
    "",
    "M-2 2l4-4M0 8l8-8M6 10l4-4",
    "M2 2h.01M6 6h.01",
    "M0 4h8",
    "M-2 6l4 4M0 0l8 8M6-2l4 4",
    "M4 0v8",
    "M0 4h8M4 0v8",
    "M0 0l8 8M0 8l8-8",
)


@dataclass(frozen=True, slots=True)
class Slots:
    """Actions as charts show them: `members[s]` are the columns in slot s, `labels[s]` its name."""

    labels: tuple[str, ...]
    members: tuple[tuple[int, ...], ...]
    styles: tuple[int, ...]

    @classmethod
    def of(cls, actions: Sequence[dict[str, Any]], names: Sequence[str]) -> Slots:
        if len(names) <= MOST_SLOTS:
            return cls(tuple(names), tuple((a,) for a in range(len(names))), tuple(range(len(names))))
        ranked = sorted(range(len(names)), key=lambda a: -(actions[a].get("share") or 0.0))
        shown, rest = sorted(ranked[:OTHER]), sorted(ranked[OTHER:])
        return cls(
            (*(names[a] for a in shown), f"{len(rest)} other actions"),
            (*((a,) for a in shown), tuple(rest)),
            tuple(range(MOST_SLOTS)),
        )

    def gather(self, values: Sequence[float | None]) -> list[float]:
        """One number per action to one per slot."""
        return [sum(values[a] or 0.0 for a in members if a < len(values)) for members in self.members]

    def style(self, action: int) -> int:
        """Slot of a column."""
        return next((s for s, members in enumerate(self.members) if action in members), OTHER)

    def words(self, shares: Sequence[float]) -> str:
        return ", ".join(f"{label} {percent(share)}" for label, share in zip(self.labels, shares, strict=True))


def definitions() -> Tag:
    """The patterns of the slots, once for the page."""
    tiles = []
    for slot, cut in enumerate(PATTERNS):
        marks: list[Child] = [tag("rect", width=8, height=8, class_=f"fill{slot}")]
        if cut:
            marks.append(tag("path", d=cut, class_="cut dots" if "h.01" in cut else "cut"))
        tiles.append(tag("pattern", *marks, id=f"slot{slot}", width=8, height=8, patternUnits="userSpaceOnUse"))
    return tag(
        "svg", tag("defs", *tiles), class_="definitions", width=0, height=0, aria_hidden="true", focusable="false"
    )


def swatch(slot: int) -> Tag:
    """A sample of a slot for legends; the name stands beside it."""
    mark = tag("rect", width=14, height=14, fill=f"url(#slot{slot})", class_="bar")
    return tag("svg", mark, class_="swatch", width=14, height=14, aria_hidden="true", focusable="false")


def share_bar(shares: Sequence[float], slots: Slots, label: str, height: int = 16) -> Tag:
    """One bar of the whole width, divided by share."""
    marks: list[Child] = []
    before = 0.0
    for slot, share in enumerate(shares):
        if share > 0.0:
            x, width = f"{100 * before:.4g}%", f"{100 * share:.4g}%"
            said = tag("title", f"{slots.labels[slot]}: {percent(share)}")
            marks.append(tag("rect", said, x=x, width=width, height=height, fill=f"url(#slot{slot})"))
        before += share
    return tag("svg", *marks, role="img", aria_label=label, class_="shares", height=height)


def disagreement_chart(edges: Sequence[float], counts: Sequence[Sequence[float]], slots: Slots, level: float) -> Tag:
    """Rows by disagreement, stacked by action, and the line above which a person looks."""
    height = 170.0
    stacks = [slots.gather([column[b] for column in counts]) for b in range(len(edges) - 1)]
    across, up = Scale(edges[0], edges[-1]), Scale(0.0, 1.05 * max([1.0, *map(sum, stacks)]))
    left_axis, room = axis_left(up, height, "rows")
    marks: list[Child] = [left_axis]
    for b, stack in enumerate(stacks):
        before = 0.0
        x, width = across.at(edges[b]), across.at(edges[b + 1]) - across.at(edges[b])
        for slot, value in enumerate(stack):
            if value > 0:
                top, bottom = up.down(before + value, height), up.down(before, height)
                marks.append(
                    tag("rect", tag("title", f"{slots.labels[slot]}: {count(value)} rows"), x=f"{100 * x:.5g}%",
                        width=f"{100 * width:.5g}%", y=top, height=round(bottom - top, 2),
                        fill=f"url(#slot{slot})", class_="bar")
                )  # fmt: skip
            before += value
    marks.append(axis_below(across, height, grid=False, inside=False))
    right = across.at(level) < 0.6
    marks.append(
        tag(
            "svg",
            segment("0", -4.0, "0", height, "threshold"),
            text("a person looks →" if right else "← the policy decides", "6" if right else "-6", 8.0,
                 anchor="start" if right else "end", class_="note"),
            x=across.across(level), class_="mark", data_mark="threshold",
        )
    )  # fmt: skip
    total = sum(map(sum, stacks))
    above = sum(sum(stack) for b, stack in enumerate(stacks) if edges[b] >= level - 1e-9)
    label = (
        f"Histogram of disagreement of {count(total)} rows; {count(above)} of them are in bins above {number(level)}."
    )
    return figure(*marks, label=label, height=height, below=30.0, above=30.0, left=room, right=14)


def plain_histogram(edges: Sequence[float], counts: Sequence[float], words: str) -> Tag:
    """Rows in bins, in one colour."""
    height = 110.0
    across, up = Scale(edges[0], edges[-1]), Scale(0.0, 1.05 * max([1.0, *counts]))
    axis, room = axis_left(up, height, words)
    marks: list[Child] = [axis]
    for b, value in enumerate(counts):
        x, width, top = across.at(edges[b]), across.at(edges[b + 1]) - across.at(edges[b]), up.down(value, height)
        said = tag("title", f"{number(edges[b])} to {number(edges[b + 1])}: {count(value)} rows")
        marks.append(
            tag("rect", said, x=f"{100 * x:.5g}%", width=f"{100 * width:.5g}%", y=top,
                height=round(height - top, 2), class_="bar weight")
        )  # fmt: skip
    marks.append(axis_below(across, height, grid=False, inside=False, narrow=True))
    parts = ", ".join(
        f"{number(edges[b])} to {number(edges[b + 1])}: {count(value)}" for b, value in enumerate(counts) if value
    )
    return figure(
        *marks, label=f"Histogram, {words}: {parts}.", height=height, below=26.0, above=30.0, left=room, right=14
    )


def propensity_chart(
    edges: Sequence[float], sides: Sequence[Sequence[float]], clip: float | None, slot: int, name: str
) -> Tag:
    """Rows by the propensity of one action: those that took it upwards, those that did not downwards."""
    half = 48.0
    log = edges[0] > 0.0
    across = Scale(edges[0], edges[-1], log)
    most = max([1.0, *sides[0], *sides[1]])
    marks: list[Child] = [axis_below(across, 2 * half, inside=False)]
    for side, values in enumerate(sides):
        for b, value in enumerate(values):
            if value > 0:
                x, size = across.at(edges[b]), max(half * value / most, 1.0)
                width, y = across.at(edges[b + 1]) - x, half - size if side else half
                marks.append(
                    tag("rect", tag("title", f"{number(edges[b])} to {number(edges[b + 1])}: {count(value)} rows"),
                        x=f"{100 * x:.5g}%", width=f"{100 * width:.5g}%", y=round(y, 2), height=round(size, 2),
                        fill=f"url(#slot{slot})" if side else None,
                        class_="bar" if side else "bar faint")
                )  # fmt: skip
    marks.append(segment("0", half, "100%", half, "zero"))
    marks.append(text("took it", "-8", 0.5 * half + 4.0, anchor="end", class_="tick"))
    marks.append(text("did not", "-8", 1.5 * half + 4.0, anchor="end", class_="tick"))
    if clip is not None and edges[0] < clip:
        marks.append(segment(across.across(clip), 0.0, across.across(clip), 2 * half, "threshold"))
    label = (
        f"Histogram of the propensity of {name}: {count(sum(sides[1]))} rows took it, {count(sum(sides[0]))} did not; "
        f"most rows that took it are near {_mode(edges, sides[1])}."
    )
    return figure(*marks, label=label, height=2 * half, below=26.0, above=6.0, left=54, right=14)


def _mode(edges: Sequence[float], values: Sequence[float]) -> str:
    if not any(values):
        return "no value"
    top = max(range(len(values)), key=lambda b: values[b])
    return number(0.5 * (edges[top] + edges[top + 1]))
