"""One page about a rerun: how near its numbers are, where the default stands, and what becomes of the statements."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gbpl.paper.experiments.catalog import EXAMPLE, TABLES
from gbpl.paper.experiments.open_settings import OPEN_SETTINGS
from gbpl.paper.printing.cells import Cell, cells
from gbpl.paper.printing.foil import foil_section
from gbpl.paper.printing.tables import number, pipe_table, signed, trial_counts, with_error
from gbpl.paper.report_tables import cell_name, table_section
from gbpl.paper.verdicts import verdict
from gbpl.paper.verdicts.consistency import consistency_section
from gbpl.paper.verdicts.posterior import PRINTED_EXAMPLE
from gbpl.paper.verdicts.standing import standing_section
from gbpl.paper.verdicts.statements import verdicts as all_verdicts
from gbpl.paper.verdicts.verdict import WORDS, Statement, Verdict

if TYPE_CHECKING:
    from gbpl.paper.experiments.records import Records

    Truths = Mapping[tuple[str, str], Mapping[str, float]]

__all__ = ["report"]

NEAR, FAR = 2.0, 3.0  # combined standard errors allowed to GBPLNet and to the methods it is compared with

INTRODUCTION = """\
This page sets a rerun of the experiments of *General Bayesian Policy Learning* beside the printed tables. Numbers are
means over trials with their standard errors in parentheses. *Apart* is ours minus printed, in standard errors of that
difference: both errors and the rounding of the print combined; where no error is printed, ours counted twice; for a
coverage, that of two shares of trials. If both sides estimate the same number, one in twenty is more than 2 apart.
"""


def report(
    records: Mapping[str, Records],
    *,
    truths: Truths,
    run: Mapping[str, Any],
    example: Mapping[str, float] | None = None,
    figures: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The report, in Markdown, on the tables there are records of.

    `truths[table, case]` has the design's exact "optimal" and "oracle" welfare where they are known; `run` has
    "seconds" (by table), "wall" (from start to finish), "device", "versions", "trials" and "quick", all of them
    optional; `example` is the one-dimensional run; `figures[table]` are stems of files figures/<stem>.png.
    """
    there = {name: records[name] for name in TABLES if name in records and len(records[name])}
    figures = figures or {}
    verdicts = all_verdicts(there, example)
    parts = ["# The paper's experiments, rerun", INTRODUCTION]
    if run.get("quick"):
        parts.append("**A quick run**: fewer trials than the paper's, so errors are large and verdicts mean little.")
    parts += [_summary(there, verdicts), standing_section(there), consistency_section(there, truths)]
    parts += ["## Statements", _statements(verdicts)]
    parts += [table_section(TABLES[name], there[name], truths, figures.get(name, ())) for name in there]
    if example:
        parts.append(_example(example, figures.get(EXAMPLE, ())))
    parts += [foil_section(records), _settings(run), _time(there, run), _rerun(run)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _compared(records: Mapping[str, Records]) -> list[Cell]:
    """Numbers of the consistent tables that have a distance from a printed one."""
    return [
        cell
        for name, table in records.items()
        if TABLES[name].group == "consistent"
        for cell in cells(TABLES[name], table)
        if math.isfinite(cell.apart)
    ]


def _limit(cell: Cell) -> float:
    return NEAR if cell.method.startswith("GBPLNet") else FAR


def _share(compared: Sequence[Cell], limit: float, table: str = "") -> str:
    """How many of the numbers with this limit, of one table or all, are within it."""
    asked = [cell for cell in compared if _limit(cell) == limit and table in ("", cell.table)]
    return f"{sum(abs(cell.apart) <= limit for cell in asked)} of {len(asked)}" if asked else "--"


def _summary(records: Mapping[str, Records], verdicts: Sequence[tuple[Statement, Verdict]]) -> str:
    compared = _compared(records)
    words = Counter(verdict.word for _, verdict in verdicts)
    parts = ["## Summary"]
    if compared:
        parts.append(
            f"Of the tables whose print can follow from the stated designs, {_share(compared, NEAR)} GBPLNet numbers "
            f"are within 2 combined standard errors, and {_share(compared, FAR)} numbers of other methods within 3. "
            "Welfare and regret of a row are nearly one number, so that these are not independent."
        )
        tables = dict.fromkeys(cell.table for cell in compared)
        rows = [[name, _share(compared, NEAR, name), _share(compared, FAR, name)] for name in tables]
        parts.append(pipe_table(["table", "GBPLNet within 2", "other methods within 3"], rows, "lrr"))
    outside = sorted((cell for cell in compared if abs(cell.apart) > _limit(cell)), key=lambda cell: -abs(cell.apart))
    if outside:
        rows = [
            [
                cell.table,
                *cell_name(cell),
                with_error(cell.ours, cell.se, cell.column.digits),
                with_error(cell.printed, cell.printed_se, cell.column.digits),
                signed(cell.apart),
            ]
            for cell in outside
        ]
        heading = ["table", "case", "method", "number", "ours", "printed", "apart"]
        parts += ["Outside those limits:", pipe_table(heading, rows, "llllrrr")]
    counts = "; ".join(f"{word}: {words[word]}" for word in WORDS)
    return "\n\n".join([*parts, f"Statements about results, by verdict: {counts}."])


def _statements(verdicts: Sequence[tuple[Statement, Verdict]]) -> str:
    if not verdicts:
        return "None is about the tables of this run."
    rules = (verdict.__doc__ or "").partition("\n\n")[2].strip()
    rows = [
        [
            str(i),
            f"“{statement.quote}”" if statement.of_text else f"*{statement.quote}*",
            statement.where,
            verdict.word,
            verdict.why,
        ]
        for i, (statement, verdict) in enumerate(verdicts, 1)
    ]
    return "\n\n".join(
        [
            "In quotes what the text says, in italics what a table shows that the text says nothing about.",
            rules,
            pipe_table(["", "statement", "where", "verdict", "our numbers"], rows, "rllll"),
        ]
    )


def _example(example: Mapping[str, float], figures: Sequence[str]) -> str:
    rows = [[key.replace("_", " "), number(example.get(key)), number(PRINTED_EXAMPLE[key])] for key in PRINTED_EXAMPLE]
    return "\n\n".join(
        [
            "## One-dimensional posterior example",
            "One run on each side, of other draws of the data: no standard error, and no distance.",
            pipe_table(["number", "ours", "printed"], rows, "lrr"),
            *(f"![{stem}](figures/{stem}.png)" for stem in figures),
        ]
    )


def _settings(run: Mapping[str, Any]) -> str:
    lines = [f"- **{what}.** {fact}" for what, fact in OPEN_SETTINGS]
    used = [f"- {what}: {value}" for what, value in dict(run.get("settings") or {}).items()]
    parts = ["## Settings the text leaves open", "\n".join(lines)]
    return "\n\n".join([*parts, "Used in this run:", "\n".join(used)] if used else parts)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _time(records: Mapping[str, Records], run: Mapping[str, Any]) -> str:
    seconds = dict(run.get("seconds") or {})
    rows = [
        [name, trial_counts(TABLES[name], records[name]) if name in records else "--", _duration(float(taken))]
        for name, taken in seconds.items()
    ]
    facts = [f"- Device: {run['device']}"] if run.get("device") else []
    facts += [f"- Trials asked for: {run['trials']}"] if run.get("trials") else []
    facts += [f"- {name} {version}" for name, version in dict(run.get("versions") or {}).items()]
    if run.get("wall"):
        facts.append(f"- From start to finish: {_duration(float(run['wall']))}, compilation included")
    parts = ["## Where the time went", "\n".join(facts)]
    if rows:
        rows.append(["all", "", _duration(float(sum(seconds.values())))])
        parts.append(pipe_table(["table", "trials", "time"], rows, "llr"))
    return "\n\n".join(part for part in parts if part)


def _rerun(run: Mapping[str, Any]) -> str:
    return "\n\n".join(
        [
            "## How to rerun",
            f"```\n{run.get('command') or 'gbpl reproduce'}\n```",
            "`records/<table>.csv` has one line per trial, method and zeta with all digits; `tables/`, `figures/` and "
            "this page are made from those files alone. `gbpl reproduce --help` lists how to run some tables only, or "
            "fewer trials.",
        ]
    )
