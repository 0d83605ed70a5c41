"""`gbpl watch`: a deployed policy while its log grows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbpl.cli import parse
from gbpl.cli.console import (
    Delimiter,
    Encoding,
    Json,
    Screen,
    guarding,
    held,
    print_json,
    progress_bar,
    stdout,
    table,
    verbatim,
)
from gbpl.runtime.files import check_target

if TYPE_CHECKING:
    from gbpl.watch.reading import Bounds, Reading

__all__ = ["CODES", "watch"]

CODES = {"promote": 0, "roll back": 3, "keep watching": 4}  # 1 and 2 are faults of gbpl and of the input
COLUMNS, PROMISE, OUTPUT = "Columns, where they differ from the fit", "Fixed before the first row", "Output"


@guarding("what was counted is kept, and the next run goes on from there")
def watch(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="Policy file written by gbpl fit.")],
    data: Annotated[
        list[Path],
        typer.Argument(metavar="LOG...", help="Logs, rows in order; those counted before are not counted again."),
    ],
    outcome: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The outcome; more is better.", rich_help_panel=COLUMNS)
    ] = None,
    action: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The action taken.", rich_help_panel=COLUMNS)
    ] = None,
    propensity: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANCE...",
            help="Known probability of the action: a column (of the action taken), ACTION=COLUMN for each action, "
            "ACTION=NUMBER for each, or a number.",
            rich_help_panel=COLUMNS,
        ),
    ] = None,
    outcome_range: Annotated[
        tuple[float, float] | None,
        typer.Option(metavar="LOW HIGH", help="Lowest and highest possible outcome.", rich_help_panel=PROMISE),
    ] = None,
    cut: Annotated[
        bool, typer.Option("--cut", help="Cut outcomes outside at the range.", rich_help_panel=PROMISE)
    ] = False,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="ACTION",
            help="What the policy must beat: an action, or logging, what the log did; the policy's default if not "
            "given.",
            rich_help_panel=PROMISE,
        ),
    ] = None,
    failure_probability: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Of anything wrong ever said of the policy and its refits; 0.05.", rich_help_panel=PROMISE
        ),
    ] = None,
    least_propensity: Annotated[
        float | None,
        typer.Option(
            metavar="P",
            help="Below this, bounds are less sharp; if not given, the least of constant propensities, or 1 over twice "
            "the number of actions.",
            rich_help_panel=PROMISE,
        ),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACTION=NUMBER...", help="Cost of the action; as in the fit if not given.", rich_help_panel=PROMISE
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What is kept between runs; POLICY.watch.json.", rich_help_panel=OUTPUT),
    ] = None,
    refit: Annotated[
        bool,
        typer.Option("--refit", help="The policy takes the place of the one watched so far.", rich_help_panel=OUTPUT),
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option("--report", metavar="FILE", help="HTML page to write.", rich_help_panel=OUTPUT),
    ] = None,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    as_json: Json = False,
) -> None:
    """Watch a policy while its log grows: exit code 0 to promote it, 3 to roll it back, 4 to keep watching."""
    kept = policy.with_suffix(".watch.json") if state is None else state
    check_target(kept)
    if report is not None:
        if report.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"the report is an HTML page, got {str(report)!r}; give a name that ends in .html")
        check_target(report)
    with held():
        from gbpl.frozen.file import load
        from gbpl.study.watch_file import LogColumns, watch_files
    loaded = load(policy)
    terms: dict[str, Any] = {
        "outcome_range": outcome_range, "cut": cut or None, "baseline": baseline,
        "failure_probability": failure_probability, "least_propensity": least_propensity,
        "cost": parse.by_action("--cost", cost) if cost else None,
    }  # fmt: skip
    chance = _propensity(propensity, data[0], encoding, delimiter)
    columns = LogColumns.of(loaded, outcome=outcome, action=action, propensity=chance)
    with progress_bar() as bar:
        task = bar.add_task("watching", total=None)
        reading = watch_files(
            loaded, data, kept, columns=columns, refit=refit, encoding=encoding, delimiter=delimiter,
            progress=lambda done, total: bar.update(task, completed=done, total=total), **terms,
        )  # fmt: skip
    content = reading.to_dict() | {"code": CODES[reading.verdict], "state": str(kept)}
    if report is not None:
        from gbpl.report import render_watch
        from gbpl.runtime.files import write_text

        write_text(report, render_watch(content | {"policy": policy.name, "outcome": columns.outcome}))
    if as_json:
        print_json(content | {"report": None if report is None else str(report)})
    else:
        _print_reading(stdout(), reading)
        for file in (kept, report):
            if file is not None:
                stdout().print(f"Written: {verbatim(file)}", soft_wrap=True)
    raise SystemExit(CODES[reading.verdict])


def _propensity(given: list[str] | None, data: Path, encoding: str, delimiter: str | None) -> Any:
    """As `gbpl fit` takes it, or a column for each action."""
    if not given:
        return None
    from gbpl.tables.read import open_batches

    with open_batches(data, encoding=encoding, delimiter=delimiter) as opened:
        names = list(opened.names)
    pairs = [text.rpartition("=") for text in given]
    if len(given) > 1 and all(sign and name in names for _, sign, name in pairs):
        return {label: name for label, _, name in pairs}
    return parse.propensity(given, names)


def _print_reading(console: Screen, reading: Reading) -> None:
    from gbpl.report.numbers import number, percent

    console.say(f"[bold]{verbatim(reading.sentence())}[/]\n")
    shown = table(
        "per row", "at least", "estimate", "at most", title=f"Version {reading.version}, {reading.rows:,} rows"
    )
    lines: list[tuple[str, Bounds | None]] = [
        ("value", reading.value), (f"gain over {reading.baseline}", reading.gain),
        ("gain less what the policy expects", reading.surplus),
    ]  # fmt: skip
    for name, bounds in lines:
        if bounds is not None:
            shown.add_row(verbatim(name), *(number(part) for part in bounds))
    console.print(shown)
    actions = table("action", "policy gives", "when it learned", "log took")
    for part in reading.by_action:
        shares = (part["share"], part["share_learned"], part["share_taken"])
        actions.add_row(verbatim(part["action"]), *(percent(share) for share in shares))
    console.print(actions)
    for alarm in reading.alarms:
        console.say(f"[yellow]alarm:[/] {verbatim(alarm)}")
    console.say(
        f"Bounds, verdict and alarms hold at every row, with probability {percent(1.0 - reading.failure_probability)} "
        "for all of them over the life of the policy.",
        style="dim",
    )
