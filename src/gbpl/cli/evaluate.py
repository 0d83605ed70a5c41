"""`gbpl evaluate` and `gbpl compare`: what policies are worth on rows they did not learn from."""

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
    guarded,
    held,
    print_json,
    stderr,
    stdout,
    table,
    verbatim,
)

if TYPE_CHECKING:
    from gbpl.frozen.file import SavedPolicy
    from gbpl.study.compare import Comparison, Evaluation
    from gbpl.value.estimate import Value

__all__ = ["compare", "evaluate"]

LEVEL = 0.95
AS_FITTED = "What differs from the fit"
Policy = Annotated[Path, typer.Argument(metavar="POLICY", help="Policy file written by gbpl fit.")]
Data = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="CSV, Parquet, Feather or Arrow file with rows that no policy learned from."),
]
Outcome = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="The outcome; more is better.", rich_help_panel=AS_FITTED)
]
Action = Annotated[str | None, typer.Option(metavar="COLUMN", help="The action taken.", rich_help_panel=AS_FITTED)]
Outcomes = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN...", help="The outcomes, one column per action.", rich_help_panel=AS_FITTED),
]
Controls = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN...", help="Columns that help to estimate but do not decide.", rich_help_panel=AS_FITTED
    ),
]
Propensity = Annotated[
    list[str] | None,
    typer.Option(
        metavar="CHANCE...", help="A column, a number, or ACTION=NUMBER, as in gbpl fit.", rich_help_panel=AS_FITTED
    ),
]
Cost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="ACTION=NUMBER...", help="Cost of the action, in units of the outcome.", rich_help_panel=AS_FITTED
    ),
]
Estimator = Annotated[
    str,
    typer.Option(
        metavar="dr|ipw|snipw|dm",
        help="Doubly robust, inverse propensity weighted, self-normalised, or outcome models alone.",
    ),
]


def _read(
    policies: tuple[SavedPolicy, ...], data: Path, encoding: str, delimiter: str | None, **given: Any
) -> tuple[Any, dict[str, Any]]:
    """The columns of the table that are needed, and roles and costs as the library takes them."""
    with held():
        from gbpl.study.compare import roles_of
        from gbpl.study.decide_file import needed_columns
        from gbpl.tables.read import open_batches, read_table
    with open_batches(data, encoding=encoding, delimiter=delimiter) as opened:
        columns = list(opened.names)
    given["propensity"] = parse.propensity(given["propensity"] or (), columns)
    cost = given.pop("cost")
    roles = {name: value for name, value in given.items() if value is not None}
    named = roles_of(policies[0], **roles)
    named.check(columns, data.name)
    decide = [name for policy in policies if policy.encoder is not None for name in needed_columns(policy)[0]]
    with stderr().status("reading the table"):
        wanted = list(dict.fromkeys([*named.used(), *decide]))
        rows = read_table(data, columns=wanted, encoding=encoding, delimiter=delimiter)
    return rows, roles | {"cost": None if cost is None else parse.by_action("--cost", cost)}


def _cells(value: Value) -> tuple[str, str]:
    from gbpl.report.numbers import decimal_places, number

    places = decimal_places(value.se)
    low, high = value.interval(LEVEL)
    return number(value.estimate, places), f"{number(low, places)} to {number(high, places)}"


def _chance(value: Value) -> str:
    from gbpl.report.numbers import chance

    return chance(value.probability_positive)


def _warning(console: Screen, warning: str | None) -> None:
    if warning is not None:
        console.say(f"[bold red]beware:[/] {verbatim(warning)}\n")


def _notes(console: Screen, notes: list[str]) -> None:
    for note in notes:
        console.say(verbatim(note), style="dim")


@guarded
def evaluate(
    policy: Policy,
    data: Data,
    outcome: Outcome = None,
    action: Action = None,
    outcomes: Outcomes = None,
    controls: Controls = None,
    propensity: Propensity = None,
    cost: Cost = None,
    estimator: Estimator = "dr",
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    as_json: Json = False,
) -> None:
    """Estimate what a policy is worth on new rows, and what it gains over every single action."""
    from gbpl.frozen.file import load

    loaded = load(policy)
    rows, roles = _read(
        (loaded,), data, encoding, delimiter, outcome=outcome, action=action, outcomes=outcomes, controls=controls,
        propensity=propensity, cost=cost,
    )  # fmt: skip
    from gbpl.study.compare import evaluate_policy

    evaluation = evaluate_policy(loaded, rows, estimator=estimator, source=data.name, **roles)
    if as_json:
        print_json(evaluation.to_dict(LEVEL))
    else:
        _print_evaluation(stdout(), evaluation)


def _print_evaluation(console: Screen, evaluation: Evaluation) -> None:
    from gbpl.cli.messages import GAIN_COLUMNS, GAIN_TITLE
    from gbpl.report.numbers import percent

    _warning(console, evaluation.warning)
    value, span = _cells(evaluation.value)
    shares = zip(evaluation.actions, evaluation.shares, strict=True)
    given = ", ".join(f"{label} to {percent(float(share))}" for label, share in shares)
    console.say(f"On these {evaluation.rows:,} rows the policy gives {verbatim(given)}.")
    console.say(f"It is worth {value} per row ({percent(LEVEL)} interval {span}, {evaluation.value.estimator}).\n")
    shown = table("alternative", *GAIN_COLUMNS, title=GAIN_TITLE)
    for name, other, gain in evaluation.alternatives:
        shown.add_row(verbatim(name), _cells(other)[0], *_cells(gain), _chance(gain))
    console.print(shown)
    for reason in [] if evaluation.overlap is None else evaluation.overlap.reasons():
        console.say(f"[yellow]weak overlap:[/] {verbatim(reason)}")
    _notes(console, evaluation.notes)


@guarded
def compare(
    first: Annotated[Path, typer.Argument(metavar="FIRST", help="Policy file written by gbpl fit.")],
    second: Annotated[Path, typer.Argument(metavar="SECOND", help="Another policy file, of the same actions.")],
    data: Data,
    outcome: Outcome = None,
    action: Action = None,
    outcomes: Outcomes = None,
    controls: Controls = None,
    propensity: Propensity = None,
    cost: Cost = None,
    estimator: Estimator = "dr",
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    as_json: Json = False,
) -> None:
    """Compare two policies on the same rows: which is worth more, and how sure that is."""
    from gbpl.frozen.file import load

    policies = load(first), load(second)
    rows, roles = _read(
        policies, data, encoding, delimiter, outcome=outcome, action=action, outcomes=outcomes, controls=controls,
        propensity=propensity, cost=cost,
    )  # fmt: skip
    from gbpl.study.compare import compare_policies

    comparison = compare_policies(*policies, rows, estimator=estimator, source=data.name, **roles)
    if as_json:
        print_json(comparison.to_dict(LEVEL))
    else:
        _print_comparison(stdout(), comparison, str(first), str(second))


def _print_comparison(console: Screen, comparison: Comparison, first: str, second: str) -> None:
    from gbpl.report.numbers import percent

    _warning(console, comparison.warning)
    shown = table("policy", "worth", f"{percent(LEVEL)} interval")
    for name, value in ((first, comparison.first), (second, comparison.second), ("difference", comparison.difference)):
        shown.add_row(verbatim(name), *_cells(value))
    console.print(shown)
    console.say(
        f"They differ in {percent(comparison.differ)} of {comparison.rows:,} rows. The chance that the first is better "
        f"is {_chance(comparison.difference)}."
        if comparison.differ
        else f"They decide alike in all of {comparison.rows:,} rows."
    )
    _notes(console, comparison.notes)
