"""The section on groups: who gets and gains what in each group of a column, and what a bound between them costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbpl.report.cells import Cell, ends_of
from gbpl.report.intervals import GainRow, forest_chart
from gbpl.report.markup import Sentence, Tag
from gbpl.report.numbers import UNKNOWN, count, number, percent
from gbpl.report.reading import Study

__all__ = ["by_group"]

DRAWN = 20  # groups in a chart; all are in the table
ACTIONS = 3  # whose shares have a column of their own


def by_group(study: Study) -> dict[str, Any] | None:
    """A table and a chart per column that was asked for; None where none was."""
    part = study.summary.get("by_group") or {}
    level = part.get("level")
    columns = [_column(study, one, level, place) for place, one in enumerate(part.get("columns") or []) if one]
    columns = [one for one in columns if one["rows"]]
    bound = _bound(study, part.get("bound") or {})
    return {"columns": columns, "bound": bound, "level": percent(level)} if columns or bound else None


def _column(study: Study, part: dict[str, Any], level: float | None, place: int) -> dict[str, Any]:
    groups = [group for group in part.get("groups") or [] if group]
    given = _given(study)
    named = [study.names[a] for a in given] if given else [f"not {study.default}"]
    heads = ["Group", "Rows", *(f"Get {name}" for name in named), "Value", "Gain", f"{percent(level)} interval"]
    return {
        "name": str(part.get("column")),
        "says": _same(part, level),
        "id": f"t-group-{place}",
        "chart": _chart(study, groups, place),
        "heads": [*heads, "All together", "Gain, less that of the others"],
        "rows": [_row(study, group, given) for group in groups],
        "feature": part.get("feature"),
    }


def _given(study: Study) -> list[int]:
    """Actions with a column: all but the default, or none of them where there are too many."""
    others = [a for a in range(len(study.actions)) if a != study.summary.get("default")]
    return others if len(others) <= ACTIONS else []


def _same(part: dict[str, Any], level: float | None) -> Sentence | None:
    """Whether gains and shares differ between the groups."""
    same, limit = part.get("same") or {}, 1.0 - (0.9 if level is None else level)
    said = []
    for key, noun in (("gain", "gains"), ("share", "shares")):
        chance = same.get(key)
        if chance is not None:
            words = f"{noun} differ" if chance <= limit else f"it is not shown that {noun} differ"
            said.append(f"{words} (p\u00a0=\u00a0{number(chance, 3) if chance >= 0.001 else '<0.001'})")
    if not said:
        return None
    text = "; ".join(said).replace("=\u00a0<", "<\u00a0")
    return Sentence(f"Between groups of {{column:name}}: {text}.", {"column": str(part.get("column"))})


def _row(study: Study, group: dict[str, Any], given: Sequence[int]) -> list[Cell]:
    shares = [(span or {}).get("estimate") for span in group.get("shares") or []]
    value, gain, more = (group.get(key) or {} for key in ("value", "gain", "gain_difference"))
    if given:
        shown = [shares[a] if a < len(shares) else None for a in given]
    else:
        default = study.summary.get("default")
        own = shares[default] if isinstance(default, int) and default < len(shares) else None
        shown = [None if own is None else 1.0 - own]
    label = str(group.get("label"))
    return [
        Cell(label, label, name=True),
        Cell(count(group.get("rows")), group.get("rows")),
        *(Cell(percent(share), share) for share in shown),
        Cell(study.money(value.get("estimate")), value.get("estimate")),
        Cell(study.money(gain.get("estimate"), signed=True), gain.get("estimate")),
        _ends(study, ends_of(gain)),
        _ends(study, ends_of(gain, "band_")),
        Cell(study.money(more.get("estimate"), signed=True), more.get("estimate")),
    ]


def _ends(study: Study, ends: tuple[float, float] | None) -> Cell:
    return Cell(UNKNOWN) if ends is None else Cell(f"{study.money(ends[0])} to {study.money(ends[1])}", ends[0])


def _chart(study: Study, groups: Sequence[dict[str, Any]], place: int) -> Tag | None:
    """Gain of each group with its interval, and as a thin line the band for all of them together."""
    rows: list[GainRow] = []
    reaches: list[float] = []
    for group in groups[:DRAWN]:
        gain = group.get("gain") or {}
        ends, band = ends_of(gain), ends_of(gain, "band_")
        if gain.get("estimate") is None or ends is None:
            continue
        written = study.money(gain["estimate"], signed=True)
        rows.append(GainRow(len(rows), str(group.get("label")), gain["estimate"], *ends, written, False, band))
        reaches += [*ends, *(band or ())]
    label = "Gain of each group over the default with intervals, around a line at zero. The table has the numbers."
    if not rows:
        return None
    return forest_chart(rows, reaches, label, id=f"group-{place}", sides=("\u2190 loses", "gains \u2192"))


def _bound(study: Study, part: dict[str, Any]) -> dict[str, Any] | None:
    """The bound that was asked for, whether it holds, and what it costs."""
    if part.get("bound") is None:
        return None
    shares = part.get("of") == "shares"
    price = part.get("price") or {}

    def write(value: float | None) -> str:
        return percent(value) if shares else study.money(value)

    pattern = (
        "As asked, {what} of two groups of {column:name} differ by at most {bound:b}. Without the bound they would "
        "differ by {free}; they do by {gap:b}, and by {held} on rows that were not learned from."
    )
    values = {
        "what": "shares that get anything but the default" if shares else "expected gains",
        "column": str(part.get("column")), "bound": write(part["bound"]), "free": write(part.get("free_gap")),
        "gap": write(part.get("gap")), "held": write(part.get("held_out_gap")), "per": study.unit.per,
        "chance": percent(part.get("chance")), "price": study.money(price.get("estimate")),
        "low": study.money(price.get("low")), "high": study.money(price.get("high")),
    }  # fmt: skip
    if part.get("chance") is not None:
        pattern += " On new rows the difference is above the bound with a chance of {chance}."
    if price.get("estimate") is not None:
        pattern += " That costs {price:b} per {per} (interval {low} to {high})."
    rows = [
        [
            Cell(str(one.get("label")), str(one.get("label")), name=True),
            Cell(count(one.get("rows")), one.get("rows")),
            *(Cell(write(one.get(key)), one.get(key)) for key in ("free", "reached", "held_out")),
            Cell(study.money(one.get("price")), one.get("price")),
        ]
        for one in part.get("groups") or []
        if one
    ]
    return {"says": Sentence(pattern, values), "rows": rows}
