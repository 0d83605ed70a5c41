"""The section on several outcomes: what guards hold, and the front between the first two outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbpl.report.cells import Cell, ends_of
from gbpl.report.markup import Child, Sentence, Tag, tag
from gbpl.report.numbers import UNKNOWN, decimal_places, number, percent
from gbpl.report.reading import Study
from gbpl.report.svg import axis_below, axis_left, figure, fit, segment, shorten, text

__all__ = ["several"]

HEIGHT = 240.0
NAME = 30


def several(study: Study) -> dict[str, Any] | None:
    """Guards, front and table; None where one outcome is all there is."""
    part = study.summary.get("several") or {}
    outcomes = [str(name) for name in part.get("outcomes") or []]
    front = [point for point in part.get("front") or [] if point]
    if len(outcomes) < 2 or not front:
        return None
    chosen = _chosen(part, front)
    level = percent(part.get("level"))
    heads = ["Objective", *(head for name in outcomes for head in (shorten(name, NAME), f"{level} band"))]
    return {
        "says": str(part.get("text") or "") or None,
        "fallback": bool(part.get("fallback")),
        "against": str(part.get("against_label") or "the default for everybody"),
        "guards": [guard_line(guard) for guard in part.get("guards") or [] if guard],
        "chart": _chart(outcomes, front, chosen),
        "outcomes": outcomes,
        "level": level,
        "guarded": part.get("kind") == "guard",
        "heads": [*heads, "Guards"] if part.get("guards") else heads,
        "rows": [_row(point, len(outcomes), bool(part.get("guards")), i == chosen) for i, point in enumerate(front)],
    }


def _chosen(part: dict[str, Any], front: Sequence[dict[str, Any]]) -> int | None:
    marked = [i for i, point in enumerate(front) if point.get("chosen")]
    place = part.get("chosen")
    return marked[0] if marked else place if isinstance(place, int) and 0 <= place < len(front) else None


def guard_line(guard: dict[str, Any]) -> dict[str, Any]:
    """A guard with its mark, its word and what was found."""
    holds, relative = guard.get("holds"), bool(guard.get("relative"))
    places = decimal_places(guard.get("se"))

    def write(value: float | None) -> str:
        return percent_signed(value) if relative else number(value, places)

    upper = guard.get("sign") != ">="
    pattern = "{outcome:name} changes by {change:b}, {side} {limit} by its limit; allowed is {side} {bound}."
    values = {
        "outcome": str(guard.get("outcome")), "change": write(guard.get("change")), "limit": write(guard.get("limit")),
        "bound": percent_signed(guard.get("bound")) if relative else number(guard.get("bound")),
        "side": "at most" if upper else "at least",
    }  # fmt: skip
    key = "passed" if holds else "open" if holds is None else "failed"
    mark, word = {"passed": ("\u2713", "Holds"), "failed": ("\u2717", "Not shown"), "open": (UNKNOWN, "Unknown")}[key]
    return {"key": key, "mark": mark, "word": word, "says": Sentence(pattern, values)}


def percent_signed(value: float | None) -> str:
    """A relative change: percent, with its sign."""
    if value is None:
        return percent(None)
    return f"\u2212{percent(-value)}" if value < 0.0 else percent(value)


def _chart(outcomes: Sequence[str], front: Sequence[dict[str, Any]], chosen: int | None) -> Tag | None:
    """Changes of the first two outcomes, a cross of bands around each point, in the order of the front."""
    points = []
    for i, point in enumerate(front):
        spans = [one or {} for one in (point.get("outcomes") or [])[:2]]
        if len(spans) == 2 and all(span.get("change") is not None for span in spans):
            points.append((i, str(point.get("label")), spans))
    if not points:
        return None
    reached = [
        [value for _, _, spans in points for value in (spans[j]["change"], *(ends_of(spans[j], "band_") or ()))]
        for j in (0, 1)
    ]
    across, up = fit(reached[0], zero=True, padding=0.06), fit(reached[1], zero=True, padding=0.06)
    left, room = axis_left(up, HEIGHT, f"change of {shorten(outcomes[1], NAME)}")
    marks: list[Child] = [left, axis_below(across, HEIGHT, grid=False, inside=False, narrow=True)]
    marks.append(segment("0", up.down(0.0, HEIGHT), "100%", up.down(0.0, HEIGHT), "zero"))
    marks.append(segment(across.across(0.0), 0.0, across.across(0.0), HEIGHT, "zero"))
    below = f"change of {shorten(outcomes[0], NAME)} \u2192"
    marks.append(text(below, "100%", HEIGHT + 34.0, anchor="end", class_="tick"))
    for i, label, (first, second) in points:
        x, y = across.across(first["change"]), up.down(second["change"], HEIGHT)
        bands = ends_of(first, "band_"), ends_of(second, "band_")
        if bands[0]:
            marks.append(segment(across.across(bands[0][0]), y, across.across(bands[0][1]), y, "band"))
        if bands[1]:
            marks.append(segment(x, up.down(bands[1][0], HEIGHT), x, up.down(bands[1][1], HEIGHT), "band"))
        said = tag("title", f"{label}: {number(first['change'])}, {number(second['change'])}")
        marks.append(tag("circle", said, cx=x, cy=y, r=5, class_="point"))
        if i == chosen:
            marks.append(tag("circle", cx=x, cy=y, r=9, class_="ring"))
    parts = "; ".join(f"{label} {number(a['change'])}, {number(b['change'])}" for _, label, (a, b) in points)
    label = f"Changes of {outcomes[0]} and {outcomes[1]}: {parts}."
    return figure(*marks, label=label, height=HEIGHT, below=42.0, above=30.0, left=room, right=14, id="front")


def _row(point: dict[str, Any], width: int, guarded: bool, chosen: bool) -> list[Cell]:
    name = f"{point.get('label')}{' (chosen)' if chosen else ''}"
    cells = [Cell(name, name, name=True)]
    spans = [one or {} for one in point.get("outcomes") or []]
    for j in range(width):
        span = spans[j] if j < len(spans) else {}
        places, ends = decimal_places(span.get("change_se")), ends_of(span, "band_")
        written = UNKNOWN if ends is None else f"{number(ends[0], places)} to {number(ends[1], places)}"
        cells.append(Cell(number(span.get("change"), places), span.get("change")))
        cells.append(Cell(written, None if ends is None else ends[0]))
    if guarded:
        holds = "hold" if point.get("holds") else "not shown to hold"
        cells.append(Cell(holds if point.get("tested") else "not tested"))
    return cells
