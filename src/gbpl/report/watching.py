"""The page of a watched policy: verdict, bounds by row, actions, expected gains, drift, and the error budget."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gbpl.report.bars import Slots, definitions, share_bar, swatch
from gbpl.report.markup import Child, Tag, tag
from gbpl.report.numbers import UNKNOWN, count, decimal_places, number, percent
from gbpl.report.page import Verbatim, resource, template
from gbpl.report.svg import Scale, axis_below, axis_left, figure, fit, segment, text

__all__ = ["watch_document"]

TALL, WIDE = 190.0, 1000
BADGES = {"promote": "clear", "keep watching": "likely", "roll back": "failed"}
LATE = 0.02  # of the rows: from there on bounds must be on the chart
SHOWN = 30  # features in the table; more are counted


def watch_document(reading: Mapping[str, Any]) -> str:
    """One HTML document; see `gbpl.report.render_watch`."""
    value, gain, surplus = reading["value"], reading["gain"], reading["surplus"]
    places = decimal_places((gain["upper"] - gain["lower"]) / 4.0)
    return template("watch.html.jinja").render(
        reading=reading,
        badge=BADGES[reading["verdict"]],
        title=f"{reading['policy']}: {reading['verdict']}",
        value=_written(value, places),
        gain=_written(gain, places),
        surplus=None if surplus is None else _written(surplus, places),
        sure=percent(1.0 - reading["failure_probability"]),
        budget=percent(reading["version_budget"]),
        charts=[
            _chart(reading["history"], 4, f"gain over {reading['baseline']}, per row", _verdicts(reading), zero=True),
            _chart(reading["history"], 1, "value, per row"),
        ],
        actions=_actions(reading["by_action"], places),
        drift=_drift(reading["drift"]),
        unlisted=max(0, len(reading["drift"]) - SHOWN),
        limits=reading["limits"],
        span=[number(end) for end in reading["outcome_range"]],
        budgets=_budgets(reading),
        definitions=definitions(),
        style=Verbatim(resource("style.css")),
    )


def _written(bounds: Mapping[str, float], places: int | None) -> dict[str, str]:
    return {name: number(bounds[name], places) for name in ("lower", "estimate", "upper")}


def _verdicts(reading: Mapping[str, Any]) -> list[int]:
    return [row for row in dict.fromkeys([reading["promoted_row"], reading["verdict_row"]]) if row is not None]


def _chart(
    history: Sequence[Sequence[float]], first: int, label: str, verdicts: Sequence[int] = (), *, zero: bool = False
) -> Tag | None:
    """Lower bound, estimate and upper bound by the number of rows, on a logarithmic scale."""
    points = [(row[0], *row[first : first + 3]) for row in history if row[0] >= 10.0]
    if len(points) < 2:
        return None
    across = Scale(points[0][0], points[-1][0], log=True)
    late = [point for point in points if point[0] >= LATE * points[-1][0]]  # the first are as wide as can be
    up = fit([part for point in late for part in point[1:]], zero=zero)
    left, room = axis_left(up, TALL, label)

    def path(line: int) -> list[str]:
        return [f"{WIDE * across.at(point[0]):.1f} {up.down(point[line], TALL):.1f}" for point in points]

    drawing = tag(
        "svg",
        tag("path", d="M" + "L".join([*path(1), *reversed(path(3))]) + "Z", class_="area inside"),
        tag("path", d="M" + "L".join(path(2)), class_="outline"),
        viewBox=f"0 0 {WIDE} {TALL:g}", preserveAspectRatio="none", width="100%", height=TALL,
    )  # fmt: skip
    marks: list[Child] = [left, drawing, axis_below(across, TALL, grid=False)]
    if zero:
        marks.append(segment("0", up.down(0.0, TALL), "100%", up.down(0.0, TALL), "diagonal"))
    marks += [segment(across.across(row), 0.0, across.across(row), TALL, "threshold") for row in verdicts]
    marks.append(text("rows →", "100%", TALL + 34.0, anchor="end", class_="tick"))
    last = points[-1]
    said = f"{label} after {count(last[0])} rows: {number(last[1])} to {number(last[3])}, estimate {number(last[2])}."
    return figure(*marks, label=said, height=TALL, below=42.0, above=30.0, left=room, right=14)


def _actions(by_action: Sequence[Mapping[str, Any]], places: int | None) -> dict[str, Any]:
    names = [str(part["action"]) for part in by_action]
    slots = Slots.of([dict(part) for part in by_action], names)
    bars = []
    for key, words in (
        ("share", "The policy gives"), ("share_learned", "When it learned, it gave"), ("share_taken", "The log took"),
    ):  # fmt: skip
        shares = [part[key] for part in by_action]
        if all(share is not None for share in shares):
            gathered = slots.gather(shares)
            bars.append((words, share_bar(gathered, slots, f"{words}: {slots.words(gathered)}", height=18)))
    rows = [
        [names[number_], percent(part["share"]), percent(part["share_learned"]), percent(part["share_taken"]),
         number(part["gain"], places), number(part["expected_gain"], places)]
        for number_, part in enumerate(by_action)
    ]  # fmt: skip
    legend = [(swatch(style), label) for style, label in zip(slots.styles, slots.labels, strict=True)]
    return {"bars": bars, "rows": rows, "legend": legend}


def _drift(features: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    return [
        (
            str(part["feature"]),
            number(part["shift"], 2) if math.isfinite(part["shift"]) else UNKNOWN,
            "" if part["moved"] is None else f"row {count(part['moved'])}",
        )
        for part in features[:SHOWN]
    ]


def _budgets(reading: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Each statement of this version and the probability that it is ever wrong."""
    shares, whole = reading["shares"], reading["version_budget"]
    low, high = shares["gain"]
    rows = [
        ("promotes a policy that gains nothing", low), ("rolls back a policy that loses nothing", high),
        ("rolls it back once promoted, though it has not begun to lose", shares["gain since promotion"]),
        ("a bound on the value is wrong", sum(shares["value"])),
        ("says wrongly that expected gains are off", sum(shares["expected gain"])),
        ("says wrongly that a feature has moved", shares["drift"]),
    ]  # fmt: skip
    return [(words, percent(whole * share)) for words, share in rows]
