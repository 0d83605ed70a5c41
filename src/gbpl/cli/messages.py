"""A study in the terminal, in the words of its report, and as JSON for scripts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.tree import Tree

from gbpl.cli.check import print_check
from gbpl.cli.console import Screen, table, verbatim
from gbpl.cli.groups import print_groups
from gbpl.cli.several import print_several
from gbpl.decisions.decisions import NOBODY
from gbpl.report.confounding import confounding_words
from gbpl.report.numbers import amount, chance, count, interval, number, percent, two_digits
from gbpl.report.reading import LEVEL, read
from gbpl.report.reading import Study as Reading
from gbpl.report.sections import decision
from gbpl.report.tree import Branch, grown
from gbpl.report.words import important, limited_by, reviewed_words, tree_words

if TYPE_CHECKING:
    from gbpl.study.study import Study

__all__ = ["GAIN_COLUMNS", "GAIN_TITLE", "print_study", "study_json"]

MOST_NOTES = 12
GAIN_TITLE = "What the policy gains over each alternative, and the chance that it does"
GAIN_COLUMNS = ("worth", "gain", f"{percent(LEVEL)} interval", "chance")


def study_json(study: Study, files: Mapping[str, Path]) -> dict[str, Any]:
    """The part of a summary that a script needs, as JSON."""
    summary = study.summary
    reading = read(summary)

    def span(quantiles: Sequence[float] | None) -> list[float] | None:
        ends = interval(quantiles, LEVEL)
        return None if ends is None else list(ends)

    return {
        "format": summary["format"],
        "data": summary["data"],
        "warnings": summary["warnings"],
        "actions": summary["actions"],
        "default": summary["actions"][summary["default"]]["label"],
        "advice": summary["advice"],
        "welfare": {
            "estimate": reading.welfare["estimate"], "se": reading.welfare["se"], "level": LEVEL,
            "interval": span(reading.welfare["quantiles"]), "net_of_cost": reading.welfare["net_of_cost"],
        },
        "alternatives": [
            {name: item[name] for name in ("label", "share", "value", "se", "gain", "gain_se", "chance", "best")}
            | {"gain_interval": span(item["gain_quantiles"])}
            for item in reading.alternatives
        ],
        "deferred": {"level": study.policy.rule.defer, "share": _deferred(study)},
        "reviewed": summary.get("reviewed"),
        "overlap": None if summary["overlap"] is None
        else {name: summary["overlap"][name] for name in ("weak", "reasons", "effective_size", "clipped_fraction")},
        "sensitivity": reading.summary["sensitivity"],
        "budget": _asked_budget(summary.get("budget")),
        "certificate": summary["certificate"],
        "small_rule": summary.get("small_rule"),
        "check": summary["check"],
        "several": summary.get("several"),
        "by_group": summary.get("by_group"),
        "files": {name: str(path) for name, path in files.items()},
        "seconds": summary["seconds"],
        "versions": summary["versions"],
    }  # fmt: skip


def _deferred(study: Study) -> float | None:
    away = study.decisions.deferred
    return None if away is None else float(away.mean())


def print_study(console: Screen, study: Study, files: Mapping[str, Path]) -> None:
    """The decision in plain words, the alternatives, what to beware of, and where the files are."""
    summary = study.summary
    reading = read(summary)
    sentences, data = decision(reading), reading.data
    console.say(f"\n[bold]{verbatim(summary['title'])}[/]")
    dropped = f", {data['dropped']:,} more left out" if data["dropped"] else ""
    decide = "1 column decides" if len(data["features"]) == 1 else f"{len(data['features'])} columns decide"
    console.say(f"{data['rows']:,} rows{dropped}, {decide}.\n", style="dim")
    console.say(f"[bold]{verbatim(sentences['advice'].headline)}[/]{verbatim(sentences['advice'].reason)}")
    for caution in sentences["cautions"]:
        console.say(f"[yellow]{verbatim(caution)}[/]")
    console.print()
    verdict = f"{sentences['verdict']}{sentences['verdict_gain']}"
    for sentence in (sentences["given"], sentences["limited"], sentences["worth"], verdict):
        if sentence is not None:
            console.say(verbatim(sentence))
    for sentence in _budget_words(reading):
        console.say(verbatim(sentence))
    _close_calls(console, study, reading)
    console.print()
    if summary.get("several") is not None:
        print_several(console, summary["several"])
    _alternatives(console, reading)
    _who(console, reading)
    print_groups(console, reading)
    _caveats(console, reading)
    if summary["check"] is not None:
        console.print()
        print_check(console, summary["check"])
    if files:
        console.print("\n[bold]Written[/]")
        width = max(len(str(path)) for path in files.values())
        for name, path in files.items():
            console.print(f"  {verbatim(f'{path!s:<{width}}')}  [dim]{name}[/]", soft_wrap=True)


def _asked_budget(spending: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """A budget without its curve."""
    return None if spending is None else {part: spending[part] for part in ("asked", "rows", "cost", "at")}


def _budget_words(reading: Reading) -> list[str]:
    """What the asked budget brings, and what more of it would."""
    spending = reading.summary.get("budget")
    if spending is None:
        return []
    at, rows = spending["at"], spending["rows"]
    gain, low, high = (amount(two_digits(at[name] * rows), None, reading.unit.sign) for name in ("gain", "low", "high"))
    first = (
        f"Of a budget of {number(spending['asked'])} for {count(rows)} rows, {number(at['spend'] * rows)} is spent. It "
        f"gains about {gain} in all over the default ({percent(spending['level'])} interval {low} to {high})."
    )
    if at["price"] <= 0.0:
        return [first, "More money would not help: everybody who is expected to gain is in."]
    more, error = (amount(at[name], 2, reading.unit.sign) for name in ("marginal", "marginal_se"))
    return [first, f"Another unit of budget would bring about {more} (standard error {error})."]


def _close_calls(console: Screen, study: Study, reading: Reading) -> None:
    """Rows for a person, where somebody asked for them."""
    reviewed, share, level = reading.summary["reviewed"], _deferred(study), study.policy.rule.defer
    if reviewed is not None:
        console.say(verbatim(reviewed_words(reading, reviewed)))
    elif share is not None and level < NOBODY:
        console.say(
            f"{percent(share)} of the rows are close calls (disagreement above {level:g}): have a person look at them."
            if share
            else f"No row has a disagreement above {level:g}: there are no close calls."
        )


def _alternatives(console: Screen, reading: Reading) -> None:
    shown: Table = table("alternative", *GAIN_COLUMNS, title=GAIN_TITLE)
    for place, item in enumerate(reading.alternatives):
        ends = reading.gain_interval(place)
        span = "" if ends is None else f"{number(ends[0], reading.places)} to {number(ends[1], reading.places)}"
        shown.add_row(
            verbatim(item["label"]) + ("\u00a0*" if item["best"] else ""), number(item["value"], reading.places),
            number(item["gain"], reading.places), span, chance(item["chance"]),
        )  # fmt: skip
    console.print(shown)
    if any(item["best"] for item in reading.alternatives):
        limit = limited_by(reading)
        what = "single action" if limit is None else f"of these within the {limit}"
        console.print(f"* the best {what}\n", style="dim")


def _who(console: Screen, reading: Reading) -> None:
    """What the decision turns on, and a small tree of it."""
    told = reading.summary.get("small_rule")
    if told is not None:
        console.say(verbatim(important(reading.summary["who"] or [])))
        _small_rule(console, told, reading)
        return
    tree, branch = reading.summary["tree"], grown(reading.summary["tree"])
    console.say(verbatim(f"{important(reading.summary['who'] or [])} {tree_words(tree)}"))
    if branch is not None and branch.yes is not None and (tree or {}).get("fidelity") is not None:
        root = Tree("", hide_root=True)
        _grow(root, branch, reading)
        console.print(root)
        console.print()


def _small_rule(console: Screen, told: Mapping[str, Any], reading: Reading) -> None:
    """The small rule that was asked for, and what it gives away."""
    console.print("\n[bold]Small rule[/]")
    for line in told["text"].splitlines():
        console.say(f"  {verbatim(line)}")
    price, level = told["price"], percent(told["price"]["level"])
    worth, less, low, high = (
        number(amount, reading.places)
        for amount in (told["value"]["estimate"], price["estimate"], price["low"], price["high"])
    )
    console.say(
        f"It is worth {worth} and gives away {less} against the full policy ({level} interval {low} to {high}); both "
        f"decide {percent(told['agreement'])} of the rows alike."
    )
    splits = told["splits"]
    asked = [f"{one['column']} ({percent(one['share'])})" for one in splits["columns"][:4]]
    if asked:
        console.say(verbatim(f"In {splits['replicates']} other samples the rule asks about {', '.join(asked)}."))
    console.print()


def _only(branch: Branch) -> set[Any]:
    """Actions at the leaves below."""
    if branch.yes is None or branch.no is None:
        return {branch.action}
    return _only(branch.yes) | _only(branch.no)


def _grow(above: Tree, branch: Branch, reading: Reading) -> None:
    for side, answer in ((branch.yes, branch.question), (branch.no, branch.otherwise)):
        if side is None:
            continue
        actions = _only(side)
        end = f": [bold]{verbatim(reading.name(next(iter(actions))))}[/]" if len(actions) == 1 else ""
        below = above.add(f"{verbatim(answer)}{end}")
        if not end:
            _grow(below, side, reading)


def _caveats(console: Screen, reading: Reading) -> None:
    summary, hidden = reading.summary, confounding_words(reading)
    overlap, certificate, notes = summary["overlap"], summary["certificate"], reading.data["notes"]
    for sentence in reading.warned:
        console.say(f"[bold red]Look at the data first:[/] {verbatim(sentence)}")
    if overlap is not None:
        source = "estimated" if overlap["estimated"] else "known"
        if overlap["reasons"]:
            console.say(f"[yellow]Weak overlap[/] (propensities {source}):")
            for reason in overlap["reasons"]:
                console.say(f"  {verbatim(reason)}")
        else:
            console.say(f"Overlap: no sign of weakness (propensities {source}).")
    if hidden is not None:
        console.say(verbatim(hidden))
    if certificate is not None:
        first, *more = certificate["text"].splitlines()
        console.say(f"\n[bold]Certificate[/]  {verbatim(first)}")
        for line in more:
            console.say(verbatim(line))
    if notes:
        console.print("\n[bold]Notes on the data[/]")
        for note in notes[:MOST_NOTES]:
            console.say(f"  {verbatim(note)}")
        if len(notes) > MOST_NOTES:
            console.print(f"  and {len(notes) - MOST_NOTES} more, in the report")
