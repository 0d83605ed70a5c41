"""`gbpl fit`: from a table to a policy, decisions, a report and a summary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbpl.cli import parse
from gbpl.cli.console import Delimiter, Encoding, Json, as_json_text, guarded, held, print_json, stderr, stdout
from gbpl.runtime.files import check_folder, together

if TYPE_CHECKING:
    from gbpl.study.study import Study

__all__ = ["check_out", "fit", "write_study"]

NAMES = {
    "policy": "policy.gbpl",
    "decisions": "decisions.csv",
    "report": "report.html",
    "summary": "summary.json",
}
COLUMNS, GIVEN, OUTPUT = "Columns", "What is known about the actions", "Output"
Column = str | None
Columns = list[str] | None
MANY = "COLUMN..."


def check_out(out: Path, data: Path | None = None) -> None:
    """Refuse a folder that cannot be written, or would lose the data, before any work."""
    check_folder(out)
    for target in (out / name for name in NAMES.values()):
        if target.is_dir():
            raise ValueError(f"{target} is a folder, where a file has to be written; give another --out")
        if data is not None and target.exists() and data.exists() and os.path.samefile(target, data):
            raise ValueError(f"{data} would be written over by the result; give another --out")


def write_study(
    study: Study, data: Path, out: Path, *, frame: Any = None, encoding: str = "utf-8", delimiter: str | None = None
) -> dict[str, Path]:
    """Policy, decisions, report and summary in a folder, and a frame as its data: all of them, or none."""
    from gbpl.cli.data import write_frame
    from gbpl.cli.messages import study_json
    from gbpl.study.decide_file import decide_file

    files = {name: out / written for name, written in NAMES.items()}
    with together(out) as stage:
        if frame is not None:
            files = {"data": data, **files}
            data = stage / data.name
            write_frame(data, frame)
        study.save(stage / NAMES["policy"])
        study.report(stage / NAMES["report"])
        decide_file(study.policy, data, stage / NAMES["decisions"], encoding=encoding, delimiter=delimiter)
        text = as_json_text(study_json(study, files))
        (stage / NAMES["summary"]).write_text(text + "\n", encoding="utf-8")
    return files


@guarded
def fit(
    data: Annotated[
        Path,
        typer.Argument(metavar="DATA", help="CSV, Parquet, Feather or Arrow file; one person or case per row."),
    ],
    outcome: Annotated[
        Column, typer.Option(metavar="COLUMN", help="The outcome; more is better.", rich_help_panel=COLUMNS)
    ] = None,
    action: Annotated[Column, typer.Option(metavar="COLUMN", help="The action taken.", rich_help_panel=COLUMNS)] = None,
    outcomes: Annotated[
        Columns,
        typer.Option(
            metavar=MANY, help="Instead of both: the outcomes, one column per action.", rich_help_panel=COLUMNS
        ),
    ] = None,
    features: Annotated[
        Columns,
        typer.Option(
            metavar=MANY, help="Columns that decide; all without another role if not given.", rich_help_panel=COLUMNS
        ),
    ] = None,
    controls: Annotated[
        Columns,
        typer.Option(metavar=MANY, help="Columns that help to estimate but must not decide.", rich_help_panel=COLUMNS),
    ] = None,
    weight: Annotated[Column, typer.Option(metavar="COLUMN", help="Sample weights.", rich_help_panel=COLUMNS)] = None,
    group: Annotated[
        Column,
        typer.Option(
            metavar="COLUMN", help="Rows with the same value belong together (households).", rich_help_panel=COLUMNS
        ),
    ] = None,
    propensity: Annotated[
        Columns,
        typer.Option(
            metavar="CHANCE...",
            help="Probability of the action: a column (of the action taken), a number or fraction (of the second of "
            "two actions, or of each of more), or ACTION=NUMBER for each; estimated if not given.",
            rich_help_panel=GIVEN,
        ),
    ] = None,
    cost: Annotated[
        Columns,
        typer.Option(
            metavar="ACTION=NUMBER...", help="Cost of the action, in units of the outcome.", rich_help_panel=GIVEN
        ),
    ] = None,
    capacity: Annotated[
        Columns,
        typer.Option(
            metavar="ACTION=SHARE...", help="Largest share of rows that can get the action.", rich_help_panel=GIVEN
        ),
    ] = None,
    default: Annotated[
        str | None,
        typer.Option(
            metavar="ACTION",
            help="The action people get otherwise; the first in order if not given.",
            rich_help_panel=GIVEN,
        ),
    ] = None,
    outcome_range: Annotated[
        tuple[float, float] | None,
        typer.Option(
            metavar="LOW HIGH", help="Lowest and highest possible outcome, for a certificate.", rich_help_panel=GIVEN
        ),
    ] = None,
    defer: Annotated[
        float,
        typer.Option(
            metavar="LEVEL", help="Disagreement above which a person should decide, 0 to 1.", rich_help_panel=OUTPUT
        ),
    ] = 0.8,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            metavar="DIR",
            help="Folder for policy, decisions, report and summary.",
            rich_help_panel=OUTPUT,
        ),
    ] = Path("gbpl-result"),
    models: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="network, or auto: networks and forests, weighted by how well each does; takes longer.",
            rich_help_panel=OUTPUT,
        ),
    ] = "network",
    confounding: Annotated[
        float,
        typer.Option(
            metavar="GAMMA",
            help="Learn for hidden confounding that changes the odds of an action by up to this factor; 1 is none.",
            rich_help_panel=GIVEN,
        ),
    ] = 1.0,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Seed of folds, initial weights and draws.", rich_help_panel=OUTPUT)
    ] = 0,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    as_json: Json = False,
) -> None:
    """Learn who should get which action, and write policy, decisions, report and summary."""
    check_out(out, data)
    parse.check_settings(seed, defer, outcome_range)
    if models not in ("network", "auto"):
        raise ValueError(f"--models must be network or auto, got {models!r}")
    if not 1.0 <= confounding < float("inf"):
        raise ValueError(f"--confounding must be a finite number >= 1, got {confounding:g}; 1 is none, try 1.5")
    if confounding > 1.0 and outcomes:
        raise ValueError("--confounding is for a log of actions; with --outcomes nothing is hidden")
    with held():
        from gbpl.cli.messages import print_study, study_json
        from gbpl.tables.read import open_batches, read_table
        from gbpl.tables.roles import Roles
    with open_batches(data, encoding=encoding, delimiter=delimiter) as opened:
        columns = list(opened.names)
    roles: dict[str, Any] = {
        "outcome": outcome, "action": action, "outcomes": outcomes or None, "features": features or None,
        "controls": controls or (), "propensity": parse.propensity(propensity or (), columns), "weight": weight,
        "group": group,
    }  # fmt: skip
    named = Roles(**roles)
    named.check(columns, data.name)
    costs, limits = parse.by_action("--cost", cost or ()), parse.by_action("--capacity", capacity or ())
    needed = None if features is None else [*named.used(), *features]
    with stderr().status("reading the table"):
        table = read_table(data, columns=needed, encoding=encoding, delimiter=delimiter)
    with held():
        from gbpl.estimators.gbpl import GBPL
        from gbpl.estimators.gbplnet import GBPLNet
        from gbpl.study.study import learn
    chosen: dict[str, Any] = {}
    if models == "auto" or confounding > 1.0:
        learner = GBPL if models == "auto" else GBPLNet
        chosen["estimator"] = learner(random_state=seed, confounding=confounding)
    study = learn(
        table, **roles, cost=costs, capacity=limits, default=default, defer=defer, outcome_range=outcome_range,
        seed=seed, source=parse.text_of(data.name), **chosen,
    )  # fmt: skip
    with stderr().status("writing"):
        files = write_study(study, data, out, encoding=encoding, delimiter=delimiter)
    if as_json:
        print_json(study_json(study, files))
    else:
        print_study(stdout(), study, files)
