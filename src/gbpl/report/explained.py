"""The section on single decisions: typical rows with what was decided, how sure, what moved it, and what would flip it.

A gain is that of the average row plus what each column moves it (Shapley values), drawn as a staircase.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbpl.report.cells import ends_of
from gbpl.report.intervals import GainRow, forest_chart
from gbpl.report.markup import Child, Sentence, Tag, tag
from gbpl.report.numbers import count, decimal_places, number, percent
from gbpl.report.reading import Study
from gbpl.report.svg import axis_below, figure, fit, segment, shorten, text

__all__ = ["explained"]

STEPS = 6  # columns with a stair of their own
STAIR = 38.0
NAME = 44
KINDS = {"typical": "Typical", "close call": "Close call", "large gain": "Large gain", "clear case": "Clear case"}


def explained(study: Study) -> dict[str, Any] | None:
    """The rows there are, each with its pictures and what a search looks through; None without any."""
    part = study.summary.get("explained") or {}
    listed = [row for row in part.get("rows") or [] if row]
    if not listed:
        return None
    level = percent(part.get("level"))
    return {
        "rows": [_row(study, row, place) for place, row in enumerate(listed)],
        "level": level,
        "reference": str(part.get("reference") or "the average row"),
    }


def _row(study: Study, row: dict[str, Any], place: int) -> dict[str, Any]:
    columns = [one for one in row.get("contributions") or [] if one]
    decided, sure = str(row.get("decided")), row.get("draw_share")
    named = [f"{one.get('column')} {one.get('value')}" for one in columns]
    return {
        "kind": KINDS.get(str(row.get("kind")), "Typical"),
        "action": _action(study, row.get("decided")),
        "decided": study.called(decided),
        "rows": count(row.get("rows")),
        "sure": "" if sure is None else f"{count(100.0 * sure)} of 100 draws agree",
        "who": [(str(one.get("column")), str(one.get("value"))) for one in columns[:STEPS]],
        "gains": _gains(study, row, place),
        "prices": [_price(study, one) for one in row.get("gains") or [] if one and one.get("price")],
        "about": study.called(row.get("about")),
        "default": study.called(row.get("default")),
        "stairs": _stairs(study, row, columns, place),
        "sampled": row.get("mode") == "sampled",
        "flips": [_flip(study, flip) for flip in row.get("flips") or [] if flip],
        "search": " ".join(" ".join([str(row.get("kind")), decided, *named]).lower().split())[:1500],
    }


def _action(study: Study, label: Any) -> int | None:
    labels = [str(action.get("label")) for action in study.actions]
    return labels.index(str(label)) if str(label) in labels else None


def _gains(study: Study, row: dict[str, Any], place: int) -> Tag | None:
    """What each action is expected to gain over the default, with its interval."""
    rows: list[GainRow] = []
    reaches: list[float] = []
    for one in row.get("gains") or []:
        gain = (one or {}).get("gain")
        if gain is None or str(one.get("action")) == str(row.get("default")):
            continue
        low, high = ends_of(one) or (gain, gain)
        own = str(one.get("action")) == str(row.get("decided"))
        written = study.money(gain, signed=True)
        rows.append(GainRow(len(rows), study.called(one.get("action")), gain, low, high, written, own))
        reaches += [low, high]
    label = "Expected gain of each action over the default, with intervals: "
    label += "; ".join(f"{r.label} {r.written}, {study.money(r.low)} to {study.money(r.high)}" for r in rows)
    return (
        forest_chart(rows, reaches, f"{label}.", id=f"gains-{place}", sides=("\u2190 worse", "better \u2192"))
        if rows
        else None
    )


def _price(study: Study, one: dict[str, Any]) -> Sentence:
    """What a limited action must gain to be given."""
    values = {"action": study.called(one.get("action")), "price": study.money(one.get("price"))}
    return Sentence(
        "A place with {action:name} has a price of {price:b}: it goes to rows that gain more than that.", values
    )


def _stairs(study: Study, row: dict[str, Any], columns: Sequence[dict[str, Any]], place: int) -> Tag | None:
    """From the gain of the average row to that of this one, a stair per column."""
    start, end = row.get("reference_gain"), row.get("gain")
    known = [one for one in columns if one.get("contribution") is not None]
    if start is None or end is None or not known:
        return None
    steps = [(_name(one), one["contribution"]) for one in known[:STEPS] if one["contribution"] != 0.0]
    rest = end - start - sum(step for _, step in steps)
    if len(known) > STEPS or row.get("others"):
        steps.append(("all other columns", rest))
    ends, at = [(0.0, start)], start
    for _, step in steps:
        ends.append((at, at + step))
        at += step
    ends.append((0.0, end))
    names = ["the average row", *(name for name, _ in steps), "this row"]
    values = [start, *(step for _, step in steps), end]
    return _staircase(study, names, values, ends, place)


def _name(one: dict[str, Any]) -> str:
    """The column, its value, and what it is in the average row."""
    usual = one.get("reference")
    among = "" if usual is None else f" (average {usual})"
    return f"{one.get('column')} = {one.get('value')}{among}"


def _staircase(
    study: Study, names: Sequence[str], values: Sequence[float], ends: Sequence[tuple[float, float]], place: int
) -> Tag:
    scale = fit([value for pair in ends for value in pair], zero=True)
    places = study.places if study.places is not None else decimal_places(max(map(abs, values)) / 50.0)
    height = STAIR * len(names)
    marks: list[Child] = [axis_below(scale, height, grid=False, narrow=True)]
    for i, (name, value, (start, end)) in enumerate(zip(names, values, ends, strict=True)):
        whole, y = i in (0, len(names) - 1), STAIR * i
        x, width = scale.at(min(start, end)), abs(scale.at(end) - scale.at(start))
        written = study.money(value, signed=not whole) if places == study.places else number(value, places)
        kind = "now" if whole else "more" if value > 0.0 else "less"
        marks += [
            text(shorten(name, NAME), "0", y + 14.0, class_="name best" if whole else "name"),
            text(written, "100%", y + 14.0, anchor="end", class_="value"),
            segment(scale.across(0.0), y + 19.0, scale.across(0.0), y + 34.0, "zero"),
            tag("rect", x=f"{100 * x:.6g}%", width=f"{max(100 * width, 0.3):.6g}%", y=y + 21.0, height=11,
                class_=f"bar {kind}"),
        ]  # fmt: skip
    said = "; ".join(f"{shorten(name, NAME)}: {number(value)}" for name, value in zip(names, values, strict=True))
    return figure(
        *marks, label=f"What moves the gain: {said}.", height=height, below=24.0, above=0.0, id=f"stairs-{place}"
    )


def _flip(study: Study, flip: dict[str, Any]) -> Sentence:
    changes = [one for one in flip.get("changes") or [] if one]
    parts = [f"{{c{i}:name}} were {{t{i}:b}} instead of {{f{i}}}" for i in range(len(changes))]
    values = {f"c{i}": str(one.get("column")) for i, one in enumerate(changes)}
    values |= {f"t{i}": str(one.get("to")) for i, one in enumerate(changes)}
    values |= {f"f{i}": str(one.get("from")) for i, one in enumerate(changes)}
    values["decided"] = study.called(flip.get("decided"))
    return Sentence(f"If {' and '.join(parts)}, it would be {{decided:name}}.", values)
