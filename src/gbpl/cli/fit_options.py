"""Options of `gbpl fit` beside the columns: how the policy is to be used, and what is written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gbpl.cli.roles import GIVEN, OUTPUT

__all__ = [
    "Budget",
    "BudgetCost",
    "By",
    "Capacity",
    "Certify",
    "Check",
    "Confounding",
    "Default",
    "Defer",
    "GainGap",
    "Out",
    "OutcomeRange",
    "Per",
    "Population",
    "Rule",
    "RuleLeaves",
    "RuleMonotone",
    "RuleWithout",
    "ShareGap",
    "SmallestGroup",
    "Title",
    "Unit",
]

Capacity = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ACTION=SHARE...", help="Largest share of rows that can get the action.", rich_help_panel=GIVEN
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        metavar="AMOUNT", help="Spend at most this in all, on those for whom it gains most.", rich_help_panel=GIVEN
    ),
]
BudgetCost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ACTION=AMOUNT...",
        help="What the action takes from the budget, in the budget's unit; or the column of what was spent on each "
        "row; 1 for all but the default if not given.",
        rich_help_panel=GIVEN,
    ),
]
Default = Annotated[
    str | None,
    typer.Option(
        metavar="ACTION",
        help="The action people get otherwise; the first in order if not given.",
        rich_help_panel=GIVEN,
    ),
]
By = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN...", help="Say who gets what, and what it brings, by group.", rich_help_panel=OUTPUT),
]
ShareGap = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=SHARE",
        help="Largest difference between groups in the share that gets any action but the default.",
        rich_help_panel=GIVEN,
    ),
]
GainGap = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=NUMBER",
        help="Instead: largest difference between groups in the expected gain per row.",
        rich_help_panel=GIVEN,
    ),
]
OutcomeRange = Annotated[
    tuple[float, float] | None,
    typer.Option(
        metavar="LOW HIGH", help="Lowest and highest possible outcome, for a certificate.", rich_help_panel=GIVEN
    ),
]
Certify = Annotated[
    bool,
    typer.Option(
        "--certify",
        help="Hold half of the rows out, and say what the policy is worth at least on them.",
        rich_help_panel=OUTPUT,
    ),
]
Defer = Annotated[
    float | None,
    typer.Option(
        metavar="LEVEL",
        help="Instead of --review: the disagreement above which a person should decide, 0 to 1.",
        rich_help_panel=OUTPUT,
    ),
]
Title = Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the report.", rich_help_panel=OUTPUT)]
Unit = Annotated[
    str | None,
    typer.Option(metavar="SIGN", help="Unit of the outcome, such as $ or visits.", rich_help_panel=OUTPUT),
]
Per = Annotated[
    str | None, typer.Option(metavar="NOUN", help="What a row is, such as customer.", rich_help_panel=OUTPUT)
]
Population = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="How many to give totals for; the rows of the table if not given.", rich_help_panel=OUTPUT
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        metavar="DIR",
        help="Folder for policy, decisions, report and summary.",
        rich_help_panel=OUTPUT,
    ),
]
Confounding = Annotated[
    float,
    typer.Option(
        metavar="GAMMA",
        help="Learn for hidden confounding that changes the odds of an action by up to this factor; 1 is none.",
        rich_help_panel=GIVEN,
    ),
]
Check = Annotated[
    bool, typer.Option("--check", help="Try to break the result, as gbpl check does.", rich_help_panel=OUTPUT)
]
Rule = Annotated[
    str | None,
    typer.Option(
        metavar="KIND:SIZE",
        help="Also learn a small rule, with its price: tree:2, threshold, scorecard:4.",
        rich_help_panel=OUTPUT,
    ),
]
RuleWithout = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN...", help="Columns that the small rule does not use.", rich_help_panel=OUTPUT),
]
RuleMonotone = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN=ACTION...",
        help="Raising the column can only move the small rule towards the action.",
        rich_help_panel=OUTPUT,
    ),
]
RuleLeaves = Annotated[
    int | None, typer.Option(metavar="N", help="Most leaves of the small rule.", rich_help_panel=OUTPUT)
]
SmallestGroup = Annotated[
    int,
    typer.Option(
        metavar="ROWS", help="Nothing that is written tells fewer rows than these apart.", rich_help_panel=OUTPUT
    ),
]
