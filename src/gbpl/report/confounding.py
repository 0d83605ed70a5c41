"""The section on hidden confounding: bounds of the gain by Gamma, and where it breaks down."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from gbpl.report.cells import Cell
from gbpl.report.markup import Child, Sentence, Tag, tag
from gbpl.report.numbers import number, percent
from gbpl.report.reading import Study
from gbpl.report.svg import Scale, axis_left, figure, fit, segment, text

__all__ = ["confounding", "confounding_words"]

HEIGHT = 190.0
WIDE = 1000  # units across the bands' own drawing, which is stretched to the width
LABELLED = (1.0, 1.5, 2.0, 3.0, 5.0)
NEEDED = ("lower", "upper", "low", "high")
WORDS = {
    "none": "There is no gain over giving everybody {baseline:name} that hidden confounding would have to explain.",
    "never": "No hidden confounding that changes the odds of an action by a factor of up to {most:b} could explain the "
    "whole gain over giving everybody {baseline:name}.",
    "breaks": "Hidden confounding that changes the odds of an action by a factor of {breakdown:b} or more could "
    "explain the whole gain over giving everybody {baseline:name}.",
    "limit": " With the error of the estimate counted, a factor of {limit:b} is enough to leave it in doubt ({level}).",
    "limit_never": " That holds with the error of the estimate counted ({level}).",
    "uncertain": " Even without any, the gain is not certain ({level}).",
}


def confounding_words(study: Study) -> Sentence | None:
    """The answer in a sentence or two; None where it was not computed."""
    part = study.summary.get("sensitivity")
    rows = _rows(part)
    if not part or not rows:
        return None
    limit, breakdown = part.get("breakdown_limit"), part.get("breakdown")
    values = {
        "baseline": _baseline(study, part), "breakdown": number(breakdown, 2), "limit": number(limit, 2),
        "most": number(part.get("most")), "level": f"{percent(part.get('level'))} level",
    }  # fmt: skip
    if rows[0]["gain"]["lower"] <= 0.0:
        return Sentence(WORDS["none"], values)
    pattern = WORDS["never" if breakdown is None else "breaks"]
    if rows[0]["gain"]["low"] <= 0.0:
        return Sentence(pattern + WORDS["uncertain"], values)
    return Sentence(pattern + WORDS["limit_never" if limit is None else "limit"], values)


def _rows(part: dict[str, Any] | None) -> list[dict[str, Any]]:
    """One entry per Gamma, those that have all of their numbers."""
    known = []
    for row in (part or {}).get("gammas") or []:
        gain = (row or {}).get("gain") or {}
        if (row or {}).get("gamma") is not None and all(gain.get(key) is not None for key in NEEDED):
            known.append(row)
    return known


def confounding(study: Study) -> dict[str, Any] | None:
    """None where propensities are known, or nothing was computed."""
    part = study.summary.get("sensitivity")
    rows = _rows(part)
    if not part or len(rows) < 2:
        return None
    places = study.places
    return {
        "says": confounding_words(study),
        "baseline": _baseline(study, part),
        "chart": _chart(rows, part),
        "level": percent(part.get("level")),
        "rows": [
            [
                Cell(number(row["gamma"]), row["gamma"]),
                _range(row, "lower", "upper", places),
                _range(row["gain"], "lower", "upper", places),
                _range(row["gain"], "low", "high", places),
                Cell(percent(row.get("rows_left")), row.get("rows_left")),
            ]
            for row in rows
        ],
        "against": [
            [
                Cell(str(item.get("label")), str(item.get("label")), name=True),
                Cell(number(item.get("gain"), places), item.get("gain")),
                *(_gamma(item, key, part) for key in ("breakdown", "breakdown_limit")),
            ]
            for item in part.get("against") or []
            if item
        ],
        "differ": percent(part.get("differ")),
        "learned_for": _learned_for(study),
    }


def _baseline(study: Study, part: dict[str, Any]) -> str:
    return "the best single action" if part.get("baseline") is None else study.called(part["baseline"])


def _range(row: dict[str, Any], low: str, high: str, places: int | None) -> Cell:
    return Cell(f"{number(row.get(low), places)} to {number(row.get(high), places)}", row.get(low))


def _gamma(item: dict[str, Any], key: str, part: dict[str, Any]) -> Cell:
    """A Gamma of breakdown: none without a gain, and more than was tried where it is not known."""
    gamma, gain = item.get(key), item.get("gain")
    if gamma is None:
        return Cell(f"over {number(part.get('most'))}", part.get("most"))
    if gain is None or gain <= 0.0:
        return Cell("no gain", 0.0)
    return Cell("not certain", 1.0) if gamma <= 1.0 else Cell(number(gamma, 2), gamma)


def _learned_for(study: Study) -> str | None:
    """The Gamma of the fit, where it is above 1."""
    gamma = (study.summary.get("settings") or {}).get("confounding")
    return number(gamma) if isinstance(gamma, int | float) and gamma > 1.0 else None


def _chart(rows: Sequence[dict[str, Any]], part: dict[str, Any]) -> Tag:
    """The bounds of the gain as a band that widens with Gamma, inside that of their errors."""
    up = fit([row["gain"][key] for row in rows for key in ("low", "high")], zero=True)
    across = Scale(rows[0]["gamma"], rows[-1]["gamma"], log=True)
    left, room = axis_left(up, HEIGHT, "gain, per row")
    bands = tag(
        "svg",
        tag("path", d=_band(rows, "low", "high", across, up), class_="area"),
        tag("path", d=_band(rows, "lower", "upper", across, up), class_="area inside"),
        viewBox=f"0 0 {WIDE} {HEIGHT:g}", preserveAspectRatio="none", width="100%", height=HEIGHT,
    )  # fmt: skip
    marks: list[Child] = [bands, left, segment("0", up.down(0.0, HEIGHT), "100%", up.down(0.0, HEIGHT), "zero")]
    for key in ("lower", "upper"):
        places = [(across.across(row["gamma"]), up.down(row["gain"][key], HEIGHT)) for row in rows]
        marks += [segment(*a, *b, "path") for a, b in pairwise(places)]
    for row in rows:
        if row["gamma"] in LABELLED:
            x = across.across(row["gamma"])
            marks += [
                segment(x, HEIGHT, x, HEIGHT + 4.0, "grid"),
                text(number(row["gamma"]), x, HEIGHT + 17.0, anchor="middle", class_="tick"),
            ]
    marks.append(text("Gamma, the factor of the odds →", "100%", HEIGHT + 34.0, anchor="end",
                      class_="tick"))  # fmt: skip
    breakdown = part.get("breakdown")
    if breakdown is not None and rows[0]["gain"]["lower"] > 0.0 and breakdown < across.high:
        x, turned = across.across(breakdown), across.at(breakdown) > 0.6
        marks += [
            segment(x, 0.0, x, HEIGHT, "threshold"),
            text(f"breakdown at {number(breakdown, 2)}", x, 12.0, anchor="end" if turned else "start", class_="note",
                 dx=-7 if turned else 7),
        ]  # fmt: skip
    ends = rows[-1]
    label = (
        f"Bounds of the gain by Gamma: {number(rows[0]['gain']['lower'])} at {number(rows[0]['gamma'])}, from "
        f"{number(ends['gain']['lower'])} to {number(ends['gain']['upper'])} at {number(ends['gamma'])}. "
        "The table after it has the numbers."
    )
    return figure(*marks, label=label, height=HEIGHT, below=42.0, above=30.0, left=room, right=14)


def _band(rows: Sequence[dict[str, Any]], low: str, high: str, across: Scale, up: Scale) -> str:
    """Path around everything between two of a row's numbers."""
    there = [f"{WIDE * across.at(row['gamma']):.1f} {up.down(row['gain'][high], HEIGHT):.1f}" for row in rows]
    back = [f"{WIDE * across.at(row['gamma']):.1f} {up.down(row['gain'][low], HEIGHT):.1f}" for row in reversed(rows)]
    return "M" + "L".join([*there, *back]) + "Z"
