"""Options and words of several outcomes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from gbpl.cli import parse
from gbpl.cli.console import Screen, table, verbatim
from gbpl.cli.roles import GIVEN
from gbpl.report.numbers import decimal_places, number, percent

__all__ = ["GuardAgainst", "Guards", "WeightOutcome", "print_several", "wanted"]

Guards = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN<=NUMBER...",
        help="What must not happen to another outcome: 'complaints<=0.01' is a rise of its mean by 0.01 at most, "
        "'complaints<=1%' by a hundredth, 'visits>=-2%' a loss.",
        rich_help_panel=GIVEN,
    ),
]
WeightOutcome = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=NUMBER...",
        help="Instead of a guard: weights of outcomes in the objective, such as complaints=-5.",
        rich_help_panel=GIVEN,
    ),
]
GuardAgainst = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="What a guard compares with: the default action (default), the policy that wrote the log (logging), or "
        "the best policy for the guarded column (best).",
        rich_help_panel=GIVEN,
    ),
]


def wanted(
    guard: Sequence[str] | None, weight: Sequence[str] | None, against: str
) -> tuple[dict[str, str], dict[str, float]]:
    """Guards and weights by column; wrong words are refused before anything is read."""
    from gbpl.value.guards import check_against, split_guard

    check_against(against)
    guards: dict[str, str] = {}
    for text in guard or ():
        name, bound = split_guard(text)
        if name in guards:
            raise ValueError(f"--guard names {name!r} twice; name it once")
        guards[name] = bound
    weights = parse.by_action("--weight-outcome", weight or (), "COLUMN", "complaints=-5")
    if guards and weights:
        raise ValueError("--guard and --weight-outcome are two ways to weigh outcomes; give one of them")
    return guards, weights


def print_several(console: Screen, several: Mapping[str, Any]) -> None:
    """The choice and its guards in words, and the front as a table."""
    console.say(f"[bold]Several outcomes[/]  {verbatim(several['text'])}")
    level = percent(several["level"])
    heads = [head for name in several["outcomes"] for head in (verbatim(name), f"{level} band")]
    title = verbatim(f"Change of each outcome from {several['against_label']}")
    shown: Table = table("policy", *heads, title=title)
    errors = [[one["change_se"] or 0.0 for one in point["outcomes"]] for point in several["front"]]
    places = [decimal_places(max(column)) for column in zip(*errors, strict=True)]
    for point in several["front"]:
        cells = []
        for one, digits in zip(point["outcomes"], places, strict=True):
            ends = f"{number(one['band_low'], digits)} to {number(one['band_high'], digits)}"
            cells += [number(one["change"], digits), ends]
        mark = "\u00a0*" if point["chosen"] else ""
        shown.add_row(f"{verbatim(point['label'])}{mark}", *cells)
    console.print(shown)
    console.print("* the policy that was chosen\n", style="dim")
