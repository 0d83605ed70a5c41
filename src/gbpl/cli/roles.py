"""Options that name the columns of a table and what is known about the actions, for every command that learns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gbpl.cli import parse
from gbpl.cli.console import held, stderr

__all__ = [
    "GIVEN", "OUTPUT", "Action", "Controls", "Cost", "Data", "Exclude", "Features", "Group", "KeepOutliers", "Models",
    "Outcome", "Outcomes", "Propensity", "Review", "Seed", "Weight", "check_models", "estimator_of", "read_by_roles",
]  # fmt: skip

COLUMNS, GIVEN, OUTPUT = "Columns", "What is known about the actions", "Output"
Column = str | None
Columns = list[str] | None
MANY = "COLUMN..."
Data = Annotated[
    Path, typer.Argument(metavar="DATA", help="CSV, Parquet, Feather, Arrow or Excel file; one person or case per row.")
]
Outcome = Annotated[
    Column, typer.Option(metavar="COLUMN", help="The outcome; more is better.", rich_help_panel=COLUMNS)
]
Action = Annotated[Column, typer.Option(metavar="COLUMN", help="The action taken.", rich_help_panel=COLUMNS)]
Outcomes = Annotated[
    Columns,
    typer.Option(metavar=MANY, help="Instead of both: the outcomes, one column per action.", rich_help_panel=COLUMNS),
]
Features = Annotated[
    Columns,
    typer.Option(
        metavar=MANY,
        help="Columns that decide, all without another role if not given; patterns such as 'age*', or '!age*' for all "
        "but those.",
        rich_help_panel=COLUMNS,
    ),
]
Exclude = Annotated[
    Columns,
    typer.Option(
        metavar=MANY, help="Columns that must not be used, or patterns of their names.", rich_help_panel=COLUMNS
    ),
]
Controls = Annotated[
    Columns,
    typer.Option(metavar=MANY, help="Columns that help to estimate but must not decide.", rich_help_panel=COLUMNS),
]
Weight = Annotated[Column, typer.Option(metavar="COLUMN", help="Sample weights.", rich_help_panel=COLUMNS)]
Group = Annotated[
    Column,
    typer.Option(
        metavar="COLUMN", help="Rows with the same value belong together (households).", rich_help_panel=COLUMNS
    ),
]
Propensity = Annotated[
    Columns,
    typer.Option(
        metavar="CHANCE...",
        help="Probability of the action: a column (of the action taken), a number or fraction (of the second of "
        "two actions, or of each of more), or ACTION=NUMBER for each; estimated if not given.",
        rich_help_panel=GIVEN,
    ),
]
Cost = Annotated[
    Columns,
    typer.Option(
        metavar="ACTION=NUMBER...", help="Cost of the action, in units of the outcome.", rich_help_panel=GIVEN
    ),
]
Models = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="auto: networks and forests, weighted by how well each does; or network: the paper's networks alone.",
        rich_help_panel=OUTPUT,
    ),
]
KeepOutliers = Annotated[
    bool,
    typer.Option(
        "--keep-outliers",
        help="Learn from outcomes that are so far from all others that they decide alone, and are cut otherwise.",
        rich_help_panel=GIVEN,
    ),
]
Review = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Mark the N rows where a person's look is worth most; none if not given.",
        rich_help_panel=OUTPUT,
    ),
]  # fmt: skip
Seed = Annotated[
    int, typer.Option(metavar="N", help="Seed of folds, initial weights and draws.", rich_help_panel=OUTPUT)
]


def read_by_roles(
    data: Path, *, propensity: Columns, encoding: str, delimiter: str | None, also: Sequence[str] = (), **given: Any
) -> tuple[Any, dict[str, Any]]:
    """The columns of a file that are needed, and their roles as `learn` takes them; wrong names are refused first.

    Columns of `also` have a use besides, and no role.
    """
    with held():
        from gbpl.tables.read import open_batches, read_table
        from gbpl.tables.roles import Roles
    with open_batches(data, encoding=encoding, delimiter=delimiter) as opened:
        columns = list(opened.names)
    roles: dict[str, Any] = {name: value or None for name, value in given.items()}
    roles |= {name: given[name] or () for name in ("controls", "exclude")}
    roles["propensity"] = parse.propensity(propensity or (), columns)
    named = Roles(**roles).resolved(columns, data.name)
    named.check(columns, data.name)
    needed = None if not named.exclude else [name for name in columns if name in also or name not in named.exclude]
    if named.features is not None:
        needed = [*named.used(), *named.features, *(name for name in also if name in columns)]
    roles |= {"features": named.features, "exclude": ()}  # what is left out is not read
    with stderr().status("reading the table"):
        return read_table(data, columns=needed, encoding=encoding, delimiter=delimiter), roles


def check_models(models: str) -> None:
    """Refuse a name that is no choice of models."""
    if models not in ("network", "auto"):
        raise ValueError(f"--models must be network or auto, got {models!r}")


def estimator_of(models: str, seed: int, confounding: float = 1.0, keep_outliers: bool = False) -> dict[str, Any]:
    """The estimator of `learn` for a choice of models, as an argument; none for its own."""
    if models == "auto" and confounding == 1.0 and not keep_outliers:
        return {}
    from gbpl.estimators.gbpl import GBPL
    from gbpl.estimators.gbplnet import GBPLNet

    learner = GBPLNet if models == "network" else GBPL
    outliers = "keep" if keep_outliers else "cut"
    return {"estimator": learner(random_state=seed, confounding=confounding, outliers=outliers)}
