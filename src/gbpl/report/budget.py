"""The section on the budget: what each brings, with a band around the whole curve, and who is in at the asked one.

Between the points of the curve everything is linear, here and in budget.js; the asked budget is a point of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gbpl.report import bars
from gbpl.report.cells import Cell
from gbpl.report.markup import Child, Sentence, Tag, tag
from gbpl.report.numbers import amount, count, decimal_places, number, percent, reach, two_digits
from gbpl.report.reading import Study
from gbpl.report.svg import Scale, axis_below, axis_left, figure, segment, text
from gbpl.report.words import PATTERNS

__all__ = ["budget"]

HEIGHT = 220.0
WIDE = 1000
SERIES = ("spend", "gain", "low", "high", "lot", "price")
LISTED = 11  # points of the table
STEPS = 100  # of the slider


def budget(study: Study) -> dict[str, Any] | None:
    """Curve, sentence at the asked budget, and what else is known; None where no budget was asked for."""
    part = study.summary.get("budget") or {}
    knots, rows = _knots(study, part), part.get("rows") or study.data.get("rows")
    if len(knots) < 2 or not rows:
        return None
    most = knots[-1]["spend"]
    if not most > 0.0:
        return None
    at, places = part.get("at") or {}, _places(part)
    asked = float(most if at.get("spend") is None else at["spend"])
    shown = {"rows": rows, "places": places, "level": part.get("level"), "knots": knots}
    now = interpolated(knots, asked)
    return {
        "says": Sentence(PATTERNS["budget"], budget_words(study, shown, now)),
        "asked": _asked(study, part, places),
        "chart": _chart(study, shown, now),
        "bar": _bar(study, now["shares"]),
        "level": percent(part.get("level")),
        "max": most * rows,
        "start": asked * rows,
        "step": two_digits(most * rows / STEPS),
        "facts": _facts(study, part, places),
        "inclusion": _inclusion(part.get("inclusion") or {}),
        "lot": any(knot["lot"] is not None for knot in knots),
        "estimated": part.get("cost_column"),
        "rows": [_row(study, shown, knot) for knot in _listed(knots)],
        "figures": shown,
    }


def _knots(study: Study, part: dict[str, Any]) -> list[dict[str, Any]]:
    """Points of the curve from small to large spending, with shares by colour; the asked budget among them."""
    columns = {key: part.get(key) or [] for key in SERIES}
    shares, at = part.get("shares") or [], part.get("at") or {}
    knots: list[dict[str, Any]] = []
    for place, spend in enumerate(columns["spend"]):
        knot = {key: values[place] if place < len(values) else None for key, values in columns.items()}
        known = shares[place] if place < len(shares) else None
        if spend is not None and knot["gain"] is not None:
            knots.append(knot | {"shares": None if not known else study.slots.gather(known)})
    knots.sort(key=lambda knot: float(knot["spend"]))
    if len(knots) < 2 or at.get("spend") is None or at.get("gain") is None:
        return knots
    if not knots[0]["spend"] <= at["spend"] <= knots[-1]["spend"]:
        return knots
    own = interpolated(knots, at["spend"]) | {"gain": at["gain"]}
    own |= {"price": at["price"]} if at.get("price") is not None else {}
    own |= {"shares": study.slots.gather(at["shares"])} if at.get("shares") else {}
    own |= {"low": _least(own["low"], at["gain"]), "high": _most(own["high"], at["gain"])}
    kept = [knot for knot in knots if knot["spend"] != at["spend"]]
    return sorted([*kept, own], key=lambda knot: float(knot["spend"]))


def _least(low: float | None, gain: float) -> float | None:
    return None if low is None else min(low, gain)


def _most(high: float | None, gain: float) -> float | None:
    return None if high is None else max(high, gain)


def interpolated(knots: Sequence[dict[str, Any]], spend: float) -> dict[str, Any]:
    """All numbers at a spending per row, linear between the points on either side."""
    spend = min(max(spend, knots[0]["spend"]), knots[-1]["spend"])
    before, after = next(pair for pair in pairwise(knots) if spend <= pair[1]["spend"])
    width = after["spend"] - before["spend"]
    part = 1.0 if width <= 0.0 else (spend - before["spend"]) / width

    def between(a: float | None, b: float | None) -> float | None:
        return None if a is None or b is None else a + part * (b - a)

    made = {key: between(before[key], after[key]) for key in SERIES}
    shares = None
    if before["shares"] and after["shares"]:
        shares = [a + part * (b - a) for a, b in zip(before["shares"], after["shares"], strict=True)]
    return made | {"spend": spend, "shares": shares}


def _places(part: dict[str, Any]) -> int | None:
    """Decimals of a gain per row, by the error at the asked budget, else by the largest along the curve."""
    errors = [se for se in part.get("se") or [] if se is not None]
    se = (part.get("at") or {}).get("se") or max(errors, default=None)
    return decimal_places(se)


def budget_words(study: Study, shown: dict[str, Any], now: dict[str, Any]) -> dict[str, str]:
    """What stands in the sentence about one budget: totals to two digits of what they are per row, times the rows."""
    rows, places, sign = shown["rows"], shown["places"], study.unit.sign
    return {
        "budget": number(now["spend"] * rows),
        "spend": number(now["spend"]),
        "default": study.default,
        "per": study.unit.per,
        "gain": amount(now["gain"], places, sign, signed=True),
        "total": amount(_times(now["gain"], rows), None, sign, signed=True),
        "low": amount(now["low"], places, sign),
        "high": amount(now["high"], places, sign),
        "level": percent(shown["level"]),
        "price": amount(None if now["price"] is None else two_digits(now["price"]), None, sign),
    }


def _times(value: float | None, rows: float) -> float | None:
    return None if value is None else value * rows


def _asked(study: Study, part: dict[str, Any], places: int | None) -> Sentence | None:
    """The asked budget: its own interval, and what more money would bring."""
    at, rows, asked = part.get("at") or {}, part.get("rows") or study.data.get("rows"), part.get("asked")
    if asked is None or at.get("spend") is None or at.get("gain") is None or not rows:
        return None
    spare = at["spend"] * rows < asked * (1.0 - 1e-6)
    pattern = (
        "Of the {asked:b} asked for, {spent:b} can be spent to advantage" if spare else "With the {asked:b} asked for"
    )
    pattern += ": a gain of {gain:b} per {per} ({level} interval for this budget alone: {low} to {high})."
    sign, level = study.unit.sign, part.get("level")
    values = {
        "asked": number(asked), "spent": number(at["spend"] * rows), "per": study.unit.per, "level": percent(level),
        "gain": amount(at["gain"], places, sign, signed=True), "low": amount(at.get("low"), places, sign),
        "high": amount(at.get("high"), places, sign),
    }  # fmt: skip
    marginal, se = at.get("marginal"), at.get("marginal_se")
    if marginal is not None and se is not None and level is not None:
        ends = [marginal + side * reach(level) * se for side in (-1.0, 1.0)]
        own = decimal_places(se)
        pattern += (
            " Another unit of money would bring {marginal:b} ({level} interval {marginal_low} to {marginal_high})."
        )
        values |= {"marginal": amount(marginal, own, sign)}
        values |= {"marginal_low": amount(ends[0], own, sign), "marginal_high": amount(ends[1], own, sign)}
    return Sentence(pattern, values)


def _facts(study: Study, part: dict[str, Any], places: int | None) -> list[tuple[str, str]]:
    """Means over all budgets of the curve, with their intervals."""
    level, made = percent(part.get("level")), []
    named = (("area", "Mean gain over all these budgets"), ("over_lot", "Of it, by looking at features"))
    for key, name in named:
        found = part.get(key) or {}
        if found.get("estimate") is None:
            continue
        low, high = (amount(found.get(end), places, study.unit.sign) for end in ("low", "high"))
        shown = amount(found["estimate"], places, study.unit.sign)
        made.append((f"{name}, per {study.unit.per}", f"{shown} ({level} interval {low} to {high})"))
    return made


def _chart(study: Study, shown: dict[str, Any], now: dict[str, Any]) -> Tag:
    """Gain in all against money in all: the band, the curve, the line by lot, and the budget that is looked at."""
    rows, knots = shown["rows"], shown["knots"]
    known = [knot[key] * rows for knot in knots for key in ("gain", "low", "high", "lot") if knot[key] is not None]
    low, high = min(0.0, *known), max(0.0, *known)
    room = 0.04 * (high - low) or 0.5
    up, across = Scale(low - room, high + room), Scale(0.0, knots[-1]["spend"] * rows)
    left, width = axis_left(up, HEIGHT, "gain in all")
    drawn: list[Child] = []
    if all(knot["low"] is not None and knot["high"] is not None for knot in knots):
        there = [_point(knot["spend"], knot["high"], rows, across, up) for knot in knots]
        back = [_point(knot["spend"], knot["low"], rows, across, up) for knot in reversed(knots)]
        drawn.append(tag("path", d=f"M{'L'.join([*there, *back])}Z", class_="area inside"))
    for key, kind in (("lot", "by-lot"), ("gain", "outline")):
        line = [_point(knot["spend"], knot[key], rows, across, up) for knot in knots if knot[key] is not None]
        if line:
            drawn.append(tag("path", d=f"M{'L'.join(line)}", class_=kind))
    paths = tag(
        "svg", *drawn, viewBox=f"0 0 {WIDE} {HEIGHT:g}", preserveAspectRatio="none", width="100%", height=HEIGHT
    )
    x, y = across.across(now["spend"] * rows), up.down(now["gain"] * rows, HEIGHT)
    marks: list[Child] = [
        paths, left, axis_below(across, HEIGHT, grid=False, inside=False, narrow=True),
        segment("0", up.down(0.0, HEIGHT), "100%", up.down(0.0, HEIGHT), "zero"),
        segment(x, 0.0, x, HEIGHT, "threshold", data_mark="line"),
        tag("circle", cx=x, cy=y, r=6, class_="point", data_mark="here"),
        text("budget in all \u2192", "100%", HEIGHT + 34.0, anchor="end", class_="tick"),
    ]  # fmt: skip
    words = budget_words(study, shown, now)
    label = str(Sentence(PATTERNS["budget_label"], words))
    return figure(
        *marks, label=label, height=HEIGHT, below=42.0, above=30.0, left=width, right=14, id="budget-chart",
        data_bottom=float(up.low), data_top=float(up.high), data_wide=float(across.high),
    )  # fmt: skip


def _point(spend: float, value: float, rows: float, across: Scale, up: Scale) -> str:
    return f"{WIDE * across.at(spend * rows):.1f} {up.down(value * rows, HEIGHT):.1f}"


def _bar(study: Study, shares: Sequence[float] | None) -> Tag | None:
    """Shares of the actions; every colour has its part, so that the script can move it."""
    if not shares:
        return None
    marks: list[Child] = []
    before = 0.0
    for slot, share in enumerate(shares):
        place = {"x": f"{100 * before:.6g}%", "width": f"{100 * share:.6g}%", "data_share": slot}
        marks.append(tag("rect", **place, height=16, fill=f"url(#slot{slot})"))
        before += share
    label = f"Shares of the actions: {study.slots.words(shares)}"
    return tag("svg", *marks, role="img", aria_label=label, class_="shares", height=16, id="budget-bar")


def _inclusion(part: dict[str, Any]) -> Tag | None:
    """Rows by the probability that they are in at the asked budget."""
    edges, counts = part.get("edges") or [], part.get("counts") or []
    if len(edges) != len(counts) + 1 or not any(counts) or None in (*edges, *counts):
        return None
    return bars.plain_histogram(edges, counts, "rows, by the probability of being in")


def _listed(knots: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    step = max((len(knots) - 1) / (LISTED - 1), 1.0)
    places = sorted({round(step * i) for i in range(LISTED) if round(step * i) < len(knots)} | {len(knots) - 1})
    return [knots[place] for place in places]


def _row(study: Study, shown: dict[str, Any], knot: dict[str, Any]) -> list[Cell]:
    rows, places, sign = shown["rows"], shown["places"], study.unit.sign
    gains = [Cell(amount(knot[key], places, sign), knot[key]) for key in ("gain", "low", "high", "lot")]
    total = Cell(count(knot["spend"] * rows), knot["spend"] * rows)
    return [total, *gains, Cell(amount(knot["price"], None, sign), knot["price"])]
