"""`gbpl fit`: from a table to a policy, decisions, a report and a summary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbpl.cli import parse
from gbpl.cli.console import Delimiter, Encoding, Json, as_json_text, guarded, held, print_json, stderr, stdout
from gbpl.cli.roles import (
    GIVEN,
    OUTPUT,
    Action,
    Controls,
    Cost,
    Data,
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
    data: Data,
    outcome: Outcome = None,
    action: Action = None,
    outcomes: Outcomes = None,
    features: Features = None,
    controls: Controls = None,
    weight: Weight = None,
    group: Group = None,
    propensity: Propensity = None,
    cost: Cost = None,
    capacity: Annotated[
        list[str] | None,
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
    certify: Annotated[
        bool,
        typer.Option(
            "--certify",
            help="Hold half of the rows out, and say what the policy is worth at least on them.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
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
    models: Models = "auto",
    confounding: Annotated[
        float,
        typer.Option(
            metavar="GAMMA",
            help="Learn for hidden confounding that changes the odds of an action by up to this factor; 1 is none.",
            rich_help_panel=GIVEN,
        ),
    ] = 1.0,
    check: Annotated[
        bool, typer.Option("--check", help="Try to break the result, as gbpl check does.", rich_help_panel=OUTPUT)
    ] = False,
    seed: Seed = 0,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    as_json: Json = False,
) -> None:
    """Learn who should get which action, and write policy, decisions, report and summary."""
    check_out(out, data)
    parse.check_settings(seed, defer, outcome_range)
    check_models(models)
    costs, limits = parse.by_action("--cost", cost or ()), parse.by_action("--capacity", capacity or ())
    if not 1.0 <= confounding < float("inf"):
        raise ValueError(f"--confounding must be a finite number >= 1, got {confounding:g}; 1 is none, try 1.5")
    if confounding > 1.0 and outcomes:
        raise ValueError("--confounding is for a log of actions; with --outcomes nothing is hidden")
    with held():
        from gbpl.cli.messages import print_study, study_json
    table, roles = read_by_roles(
        data, outcome=outcome, action=action, outcomes=outcomes, features=features, controls=controls, weight=weight,
        group=group, propensity=propensity, encoding=encoding, delimiter=delimiter,
    )  # fmt: skip
    with held():
        from gbpl.study.study import learn
    study = learn(
        table, **roles, cost=costs, capacity=limits, default=default, defer=defer, outcome_range=outcome_range,
        certify=certify, seed=seed, source=parse.text_of(data.name), check=check,
        **estimator_of(models, seed, confounding),
    )  # fmt: skip
    with stderr().status("writing"):
        files = write_study(study, data, out, encoding=encoding, delimiter=delimiter)
    if as_json:
        print_json(study_json(study, files))
    else:
        print_study(stdout(), study, files)
