"""What every chart is made of: scales, ticks and frames.

Across, places are in percent of the width; down, in pixels. So a chart fills a phone and a desk alike, and its text
has the same size on both. charts.js places and labels axes by the same rules.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from gbpl.report.markup import Child, Tag, tag
from gbpl.report.numbers import exponent, number

__all__ = ["Scale", "axis_below", "axis_left", "figure", "fit", "segment", "shorten", "text"]

MOST_TICKS = 5
FEW_TICKS = 3
NARROW_TICKS = 4
LONG_LABEL = 8  # characters of a tick's label, above which a phone has room for few
CHARACTER = 6.7  # pixels of a digit in the charts' type
EDGE = 0.03  # ticks nearer than this to an end have their label turned inwards
PADDING = 0.04


@dataclass(frozen=True, slots=True)
class Scale:
    """Numbers from `low` to `high` laid from 0 to 1."""

    low: float
    high: float
    log: bool = False

    def at(self, value: float) -> float:
        """Place of a value, cut off at the ends."""
        low, high = self.low, self.high
        if self.log:
            value, low, high = math.log(max(value, low)), math.log(low), math.log(high)
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def across(self, value: float) -> str:
        return f"{100.0 * self.at(value):.6g}%"

    def down(self, value: float, height: float) -> float:
        return round(height * (1.0 - self.at(value)), 2)

    def ticks(self, *, narrow: bool = False) -> list[tuple[float, str]]:
        """Round values and their labels, fewer where labels are long or the chart is `narrow`."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            step = -(-(last - first + 1) // MOST_TICKS)
            return [(10.0**power, number(10.0**power)) for power in range(first, last + 1, max(step, 1))]
        many = _round_ticks(self.low, self.high, MOST_TICKS)
        long = max((len(label) for _, label in many), default=0) > LONG_LABEL
        some = _round_ticks(self.low, self.high, NARROW_TICKS) if narrow else many
        return _round_ticks(self.low, self.high, FEW_TICKS) if long else some


def _round_ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    least = (high - low) / most
    power = exponent(least, 1 + 15)
    times = next(times for times in (1, 2, 2.5, 5, 10) if times * 10.0**power >= least * (1.0 - 1e-9))
    step, places = times * 10.0**power, max(0, (times == 2.5) - power - (times == 10))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [(i * step, number(i * step, places)) for i in range(first, last + 1)]


def fit(values: Iterable[float | None], *, zero: bool = False, padding: float = PADDING) -> Scale:
    """A scale with a little room around the values, and around zero where that must be on it."""
    known = [value for value in values if value is not None] + ([0.0] if zero else [])
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    alike = high - low < 1e-9 * max(abs(low), abs(high), 1e-300)
    room = (0.5 * abs(high) or 0.5) if alike else padding * (high - low)
    return Scale(low - room, high + room)


def text(content: str, x: object, y: float, *, anchor: str = "start", class_: str | None = None, **more: object) -> Tag:
    return tag("text", content, x=x, y=y, text_anchor=None if anchor == "start" else anchor, class_=class_, **more)


def segment(x1: object, y1: float, x2: object, y2: float, class_: str, **more: object) -> Tag:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, **more)


def axis_below(
    scale: Scale, height: float, *, top: float = 0.0, grid: bool = True, inside: bool = True, narrow: bool = False
) -> Tag:
    """Labels under the plot, with lines up through it; `inside` where nothing is left for them beside it."""
    marks: list[Child] = []
    for value, label in scale.ticks(narrow=narrow):
        place = scale.at(value)
        turned = "start" if place < EDGE else "end" if place > 1.0 - EDGE else "middle"
        anchor = turned if inside else "middle"
        x = scale.across(value)
        marks.append(segment(x, top if grid else height, x, height + 4.0, "grid"))
        marks.append(text(label, x, height + 17.0, anchor=anchor, class_="tick"))
    return tag("g", *marks, class_="axis")


def axis_left(scale: Scale, height: float, label: str | None = None) -> tuple[Tag, int]:
    """Lines across with labels to the left of the plot, and the room in pixels that these need."""
    ticks = scale.ticks()
    marks: list[Child] = []
    for value, written in ticks:
        y = scale.down(value, height)
        marks.append(segment("0", y, "100%", y, "grid"))
        marks.append(text(written, "-6", y + 4.0, anchor="end", class_="tick"))
    if label is not None:
        marks.append(text(label, "0", -14.0, class_="tick"))
    room = max((len(written) for _, written in ticks), default=0)
    return tag("g", *marks, class_="axis"), round(CHARACTER * room) + 10


def figure(
    *marks: Child,
    label: str,
    height: float,
    below: float = 24.0,
    above: float = 8.0,
    left: int = 0,
    right: int = 0,
    **more: object,
) -> Tag:
    """The drawing: `label` says in words what it shows. Marks above and to the left of the plot are in its margin."""
    style = f"margin:{above:g}px 0 {below:g}px {left}px;width:calc(100% - {left + right}px);height:{height:g}px"
    return tag(
        "svg", *marks, role="img", aria_label=label, class_="plot", style=style, height=height,
        data_height=height, **more,
    )  # fmt: skip


def shorten(name: str, width: int) -> str:
    """A name on one line of about `width` letters; the middle of a long one is left out.

    Names differ mostly at their ends. Wide letters (Chinese, most emoji) count as two.
    """
    name = " ".join(name.split())
    if _width(name) <= width:
        return name
    half = (width - 1) // 2
    return f"{_start(name, half)}…{_start(name[::-1], width - 1 - half)[::-1]}"


def _width(name: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in name)


def _start(name: str, width: int) -> str:
    taken = 0
    for place, letter in enumerate(name):
        taken += _width(letter)
        if taken > width:
            return name[:place]
    return name
