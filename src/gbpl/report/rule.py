"""The section on the small rule: what it says, what it gives away against the policy, and how settled it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbpl.report import words
from gbpl.report.cells import Cell, ends_of
from gbpl.report.intervals import GainRow, forest_chart
from gbpl.report.markup import Sentence, Tag
from gbpl.report.numbers import UNKNOWN, count, number, of_rows, percent
from gbpl.report.reading import Study
from gbpl.report.tree import fits_side_by_side, grown, rules

__all__ = ["small_rule"]

KINDS = {"tree": "tree of questions", "threshold": "single question", "scorecard": "scorecard"}


def small_rule(study: Study) -> dict[str, Any] | None:
    """Tree or scorecard with its price; None where none was asked for."""
    part = study.summary.get("small_rule")
    if not part:
        return None
    root = grown({"nodes": part.get("nodes")}) if part.get("nodes") else None
    card = part.get("card") or {}
    if root is None and not card.get("conditions"):
        return None
    splits = part.get("splits") or {}
    return {
        "says": _says(study, part),
        "root": root if root is not None and root.depth > 0 else None,
        "wide": root is not None and fits_side_by_side(root, study.names),
        "rules": rules(root) if root is not None and root.depth > 0 else [],
        "card": _card(study, card),
        "price": _price(study, part.get("price") or {}),
        "settled": _settled(splits),
        "first": [_first(one) for one in splits.get("first") or [] if one],
        "columns": [_column(one) for one in splits.get("columns") or [] if one],
        "constraints": _constraints(part.get("constraints") or {}),
        "exact": part.get("exact"),
    }


def _says(study: Study, part: dict[str, Any]) -> Sentence:
    value, price = part.get("value") or {}, part.get("price") or {}
    pattern = "Instead of the policy, this {kind} could be used."
    if value.get("estimate") is not None:
        pattern += " It is worth {value:b} per {per} ({level} interval {low} to {high})."
    ends = ends_of(price)
    if price.get("estimate") is not None and ends is not None and ends[0] <= 0.0:
        pattern += (
            " It is not shown to give anything away: the policy is worth {price:b} per {per} more ({price_span})."
        )
    elif price.get("estimate") is not None:
        pattern += " Its price is what it gives away against the policy: {price:b} per {per}{total} ({price_span})."
    if part.get("agreement") is not None:
        pattern += " It decides as the policy does in {agreement:b}."
    values = {
        "kind": KINDS.get(str(part.get("kind")), "small rule"), "value": study.money(value.get("estimate")),
        "per": study.unit.per, "level": percent(value.get("level")), "low": study.money(value.get("low")),
        "high": study.money(value.get("high")), "price": study.money(price.get("estimate")),
        "total": study.total(price.get("estimate")), "agreement": of_rows(part.get("agreement")),
        "price_span": f"{percent(price.get('level'))} interval {study.money(price.get('low'))} to "
        f"{study.money(price.get('high'))}",
    }  # fmt: skip
    return Sentence(pattern, values)


def _price(study: Study, price: dict[str, Any]) -> Tag | None:
    """The price with its interval around zero."""
    ends = ends_of(price)
    if price.get("estimate") is None or ends is None:
        return None
    row = GainRow(0, "the policy less the rule", price["estimate"], *ends, study.money(price["estimate"]), True)
    low, high = map(study.money, ends)
    label = f"What the rule gives away: {study.money(price['estimate'])}, from {low} to {high}."
    return forest_chart([row], ends, label, id="price", sides=("\u2190 rule better", "policy better \u2192"))


def _card(study: Study, card: dict[str, Any]) -> dict[str, Any] | None:
    """Points per action of each condition that holds, the start first."""
    conditions: Sequence[dict[str, Any]] = card.get("conditions") or []
    if not conditions:
        return None
    width = len(study.names)

    def row(name: str, points: Any) -> list[Cell]:
        known = [*(points or []), *([None] * width)][:width]
        return [Cell(name, name, name=True), *(Cell(number(value), value) for value in known)]

    rows = [row("to start with", card.get("start"))]
    rows += [row(f"if {one.get('text')}", one.get("points")) for one in conditions if one]
    return {"heads": ["Points", *study.names], "rows": rows}


def _settled(splits: dict[str, Any]) -> Sentence | None:
    """How far other samples would have chosen the same rule."""
    times, same, agreement = (splits.get(key) for key in ("replicates", "same_columns", "agreement"))
    if not times or agreement is None:
        return None
    pattern = (
        "Searched for again in {times} other samples like this one, rules decided as this one does in {agreement:b}"
    )
    pattern += "." if same is None else "; {same:b} of them ask about exactly the same columns."
    return Sentence(pattern, {"times": count(times), "agreement": of_rows(agreement), "same": percent(same)})


def _first(one: dict[str, Any]) -> list[Cell]:
    ends = ends_of(one)
    cuts = UNKNOWN if ends is None else f"{number(ends[0])} to {number(ends[1])}"
    return [*_column(one), Cell(cuts, None if ends is None else ends[0])]


def _column(one: dict[str, Any]) -> list[Cell]:
    name = str(one.get("column"))
    return [Cell(name, name, name=True), Cell(percent(one.get("share")), one.get("share"))]


def _constraints(part: dict[str, Any]) -> Sentence | None:
    """What the search was not allowed to do."""
    said: list[str] = []
    values: dict[str, str] = {}
    without = [str(name) for name in part.get("without") or []]
    if without:
        said.append(f"does not use {words.listed([f'{{w{i}:name}}' for i in range(len(without))])}")
        values |= {f"w{i}": name for i, name in enumerate(without)}
    for i, (name, action) in enumerate((part.get("monotone") or {}).items()):
        said.append(f"gives {{m{i}:name}} the more, the larger {{c{i}:name}} is")
        values |= {f"m{i}": str(action), f"c{i}": str(name)}
    if part.get("leaves"):
        said.append(f"has at most {count(part['leaves'])} leaves")
    if part.get("min_share"):
        said.append(f"has at least {percent(part['min_share'])} of the rows in each leaf")
    return Sentence(f"As asked, the rule {words.listed(said)}.", values) if said else None
