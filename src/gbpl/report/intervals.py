"""The two charts that follow the controls: what the policy is worth, and what it gains over each alternative.

charts.js moves the same marks when the level or the costs change.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gbpl.report.markup import Child, Tag, tag
from gbpl.report.svg import Scale, axis_below, figure, fit, segment, shorten, text

__all__ = ["Curve", "GainRow", "density_chart", "density_curve", "forest_chart"]

POINTS = 90
BANDWIDTH = 0.3  # of the standard deviation: widens a normal curve by 4 %
REACH = 3.2  # standard deviations of the kernel beyond the outermost quantile
WIDE = 1000  # units across the curve's own drawing, which is stretched to the width
TALL = 150.0
ROW = 46.0
TOP = 22.0
NAME = 34  # letters of an alternative's name on a phone
ROOM = 0.3  # share of the width that words beside the zero line need


@dataclass(frozen=True, slots=True)
class Curve:
    """A density through the points (x, height), the highest 1."""

    x: list[float]
    height: list[float]


@dataclass(frozen=True, slots=True)
class GainRow:
    """One alternative of the forest plot; `number` is its place among the alternatives."""

    number: int
    label: str
    gain: float
    low: float
    high: float
    written: str
    best: bool
    band: tuple[float, float] | None = None


def density_curve(quantiles: Sequence[float]) -> Curve | None:
    """A Gaussian kernel on the quantiles; None where they are all the same."""
    mean = sum(quantiles) / len(quantiles)
    sd = math.sqrt(sum((value - mean) ** 2 for value in quantiles) / len(quantiles))
    if sd <= 1e-12 * max(abs(mean), 1e-300):
        return None
    width = BANDWIDTH * sd
    low, high = quantiles[0] - REACH * width, quantiles[-1] + REACH * width
    x = [low + (high - low) * i / (POINTS - 1) for i in range(POINTS)]
    height = [sum(math.exp(-0.5 * ((at - value) / width) ** 2) for value in quantiles) for at in x]
    return Curve(x, [value / max(height) for value in height])


def density_chart(curve: Curve, estimate: float, low: float, high: float, label: str) -> Tag:
    """The curve, its part inside the interval filled, and the estimate."""
    scale = Scale(curve.x[0], curve.x[-1])
    drawing = tag(
        "svg",
        tag("path", d=_area(curve, scale, scale.low, scale.high), class_="area"),
        tag("path", d=_area(curve, scale, low, high), class_="area inside"),
        tag("path", d=_area(curve, scale, scale.low, scale.high, closed=False), class_="outline"),
        viewBox=f"0 0 {WIDE} {TALL:g}", preserveAspectRatio="none", width="100%", height=TALL,
    )  # fmt: skip
    marks = [
        axis_below(scale, TALL, grid=False),
        drawing,
        segment("0", TALL, "100%", TALL, "zero"),
        segment(scale.across(estimate), -4.0, scale.across(estimate), TALL, "estimate"),
    ]
    return figure(*marks, label=label, height=TALL, below=26.0, above=10.0, id="density")


def _area(curve: Curve, scale: Scale, low: float, high: float, *, closed: bool = True) -> str:
    """Path under the curve from `low` to `high`."""
    inner = [(x, h) for x, h in zip(curve.x, curve.height, strict=True) if low < x < high]
    ends = [(at, _height(curve, at)) for at in (low, high)]
    points = [ends[0], *inner, ends[1]]
    places = [f"{WIDE * scale.at(x):.1f} {TALL * (1.0 - 0.97 * h):.1f}" for x, h in points]
    path = "M" + "L".join(places)
    return f"{path}L{WIDE * scale.at(high):.1f} {TALL:g}L{WIDE * scale.at(low):.1f} {TALL:g}Z" if closed else path


def _height(curve: Curve, at: float) -> float:
    place = (at - curve.x[0]) / (curve.x[-1] - curve.x[0]) * (POINTS - 1)
    below = min(max(int(place), 0), POINTS - 2)
    share = min(max(place - below, 0.0), 1.0)
    return curve.height[below] + share * (curve.height[below + 1] - curve.height[below])


def forest_chart(
    rows: Sequence[GainRow],
    reaches: Sequence[float],
    label: str,
    id: str = "forest",
    sides: tuple[str, str] = ("\u2190 policy worse", "policy better \u2192"),
    row_height: float = ROW,
) -> Tag:
    """Gains with intervals around a line at zero; `reaches` are the ends of the widest intervals there may be."""
    scale = fit(reaches, zero=True)
    height = TOP + row_height * len(rows)
    zero = scale.at(0.0)
    marks: list[Child] = [
        axis_below(scale, height, grid=False),
        segment(scale.across(0.0), 4.0, scale.across(0.0), TOP - 4.0, "zero", data_mark="zero"),
        _beside(scale, sides[0], -7, "end", zero >= ROOM, "worse"),
        _beside(scale, sides[1], 7, "start", zero <= 1.0 - ROOM, "better"),
    ]
    for place, row in enumerate(rows):
        y = TOP + row_height * place
        marks += [
            text(
                shorten(row.label, NAME),
                "0",
                y + 14.0,
                class_="name best" if row.best else "name",
                data_name=row.number,
            ),
            text(row.written, "100%", y + 14.0, anchor="end", class_="value", data_written=row.number),
            # Beside the marks only: names and numbers are not crossed.
            segment(scale.across(0.0), y + 20.0, scale.across(0.0), y + 40.0, "zero", data_mark="zero"),
            *(
                [segment(scale.across(row.band[0]), y + 29.0, scale.across(row.band[1]), y + 29.0, "band")]
                if row.band is not None
                else []
            ),
            segment(scale.across(row.low), y + 29.0, scale.across(row.high), y + 29.0, "reach", data_reach=row.number),
            tag(
                "circle",
                tag("title", f"{shorten(row.label, NAME)}: {row.written}"),
                cx=scale.across(row.gain),
                cy=y + 29.0,
                r=5,
                class_="point",
                data_point=row.number,
            ),
        ]
    return figure(*marks, label=label, height=height, below=26.0, above=0.0, id=id)


def _beside(scale: Scale, words: str, shift: int, anchor: str, shown: bool, mark: str) -> Tag:
    return text(
        words, scale.across(0.0), 14.0, anchor=anchor, class_="note", data_mark=mark, dx=shift,
        style=None if shown else "display:none",
    )  # fmt: skip
