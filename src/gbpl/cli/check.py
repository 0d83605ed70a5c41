"""`gbpl check`: tests that try to break the result that a table gives."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gbpl.cli import parse
from gbpl.cli.console import (
    Delimiter,
    Encoding,
    Json,
    Screen,
    guarded,
    held,
    learning,
    print_json,
    stdout,
    table,
    verbatim,
    warnings_shown,
)  # fmt: skip
from gbpl.cli.roles import (
    OUTPUT,
    Action,
    Controls,
    Cost,
    Data,
    Exclude,
    Features,
    Group,
    Models,
    Outcome,
    Outcomes,
    Propensity,
    Seed,
    Weight,
    check_models,
    estimator_of,
    read_by_roles,
)  # fmt: skip
from gbpl.runtime.files import check_target
from gbpl.runtime.platforms import leave_gpu
from gbpl.runtime.progress import stage

__all__ = ["NOT_PASSED", "check", "print_check"]

NOT_PASSED = 3  # exit code; 1 and 2 are faults of gbpl and of the input
MARKS = {"passed": "[green]passed[/]", "doubt": "[yellow]doubt[/]", "failed": "[bold red]failed[/]"}


def print_check(console: Screen, report: Mapping[str, Any]) -> None:
    """The findings of a check as a table: test, verdict, sentence."""
    shown: Table = table("test", title="What would break it?")
    shown.add_column("verdict")
    shown.add_column("what was found", overflow="fold")
    for finding in report["findings"]:
        shown.add_row(verbatim(finding["name"]), MARKS[finding["verdict"]], verbatim(finding["sentence"]))
    console.print(shown)


@guarded
def check(
    data: Data,
    outcome: Outcome = None,
    action: Action = None,
    outcomes: Outcomes = None,
    features: Features = None,
    exclude: Exclude = None,
    controls: Controls = None,
    weight: Weight = None,
    group: Group = None,
    propensity: Propensity = None,
    cost: Cost = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="HTML page to write the report to.", rich_help_panel=OUTPUT),
    ] = None,
    models: Models = "auto",
    seed: Seed = 0,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    as_json: Json = False,
) -> None:
    """Try to break what a table gives: placebos, leaks, wrong propensities, other seeds and rows; exit code 3 if so."""
    parse.check_settings(seed, 0.8, None)
    check_models(models)
    costs = parse.by_action("--cost", cost or ())
    if report is not None:
        if report.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"the report is an HTML page, got {str(report)!r}; give a name that ends in .html")
        check_target(report)
    with learning(check=True, quiet=as_json):
        stage("reading")
        rows, roles = read_by_roles(
            data, outcome=outcome, action=action, outcomes=outcomes, features=features, exclude=exclude,
            controls=controls, weight=weight, group=group, propensity=propensity, encoding=encoding,
            delimiter=delimiter,
        )  # fmt: skip
        with held():
            from gbpl.tables.frames import rows_of

            leave_gpu(rows_of(rows))
            from gbpl.study.study import learn
        source = parse.text_of(data.name)
        with warnings_shown(as_json):
            study = learn(rows, **roles, cost=costs, seed=seed, source=source, check=True, **estimator_of(models, seed))
    found = study.summary["check"]
    if report is not None:
        study.report(report)
    if as_json:
        print_json(found | {"report": None if report is None else str(report)})
    else:
        print_check(stdout(), found)
        if report is not None:
            stdout().print(f"Written: {verbatim(report)}", soft_wrap=True)
    if found["verdict"] != "passed":
        raise SystemExit(NOT_PASSED)
