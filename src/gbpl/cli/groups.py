"""Who gets what, by group, in the terminal: a table for each column, and what a bound between groups costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbpl.cli.console import Screen, table, verbatim
from gbpl.report.numbers import chance, number, percent
from gbpl.report.reading import Study

__all__ = ["print_groups"]

DIFFER = 0.05  # p-value from which on down groups are said to differ


def print_groups(console: Screen, reading: Study) -> None:
    """The part `by_group` of a summary, if it has one."""
    found = reading.summary.get("by_group")
    if found is None:
        return
    others = [place for place in range(len(reading.actions)) if place != reading.summary["default"]]
    level = percent(found["level"])
    for one in found["columns"]:
        shares = [f"get {reading.name(place)}" for place in others]
        shown = table(
            verbatim(one["column"]), "rows", *map(verbatim, shares), "gain", f"{level} for all groups",
            title=f"Who gets what by {verbatim(one['column'])}, and what it brings over {verbatim(reading.default)}",
        )  # fmt: skip
        for group in one["groups"]:
            gain = group["gain"]
            ends = (number(gain[name], reading.places) for name in ("estimate", "band_low", "band_high"))
            estimate, low, high = ends
            given = [percent(group["shares"][place]["estimate"]) for place in others]
            shown.add_row(verbatim(group["label"]), f"{group['rows']:,}", *given, estimate, f"{low} to {high}")
        console.print(shown)
        console.say(verbatim(_same(one)))
    if found["bound"] is not None:
        console.say(verbatim(_bound(found["bound"], reading)))
    console.print()


def _same(one: Mapping[str, Any]) -> str:
    p = one["same"]["gain"]
    if p is None:
        return "There is one group only."
    if p <= DIFFER:
        return f"The gains of these groups differ (p {'< 0.001' if p < 0.001 else f'= {p:.3f}'})."
    return f"That the gains of these groups differ is not shown (p = {p:.2f})."


def _bound(bound: Mapping[str, Any], reading: Study) -> str:
    """The bound, what was reached, and its price."""
    shares = bound["of"] == "shares"
    what = f"shares with another action than {reading.default}" if shares else "gains"

    def said(level: float | None) -> str:
        return percent(level) if shares and level is not None else number(level, reading.places)

    price, sure = bound["price"], ""
    if bound["chance"] is not None:
        sure = f"; the chance that new rows differ by more is {chance(bound['chance'])}"
    ends = " to ".join(number(price[name], reading.places) for name in ("low", "high"))
    return (
        f"The {what} of the groups of {bound['column']} differ by at most {said(bound['bound'])}: by "
        f"{said(bound['gap'])} on these rows, where without the bound they would by {said(bound['free_gap'])}{sure}. "
        f"The bound costs {number(price['estimate'], reading.places)} per row ({ends})."
    )
