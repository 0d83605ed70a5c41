"""One page about a rerun: how near its numbers are, what becomes of the statements, and where the default stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gbpl.paper.experiments.catalog import EXAMPLE, TABLES
from gbpl.paper.experiments.open_settings import CHOICES
from gbpl.paper.printing.cells import Cell, cells
from gbpl.paper.printing.columns import SPREADS
from gbpl.paper.printing.foil import foil_section
from gbpl.paper.printing.tables import number, pipe_table, trial_counts
from gbpl.paper.report_tables import FAR, NEAR, columns_section, limit, table_section
from gbpl.paper.verdicts.consistency import consistency_section
from gbpl.paper.verdicts.posterior import PRINTED_EXAMPLE, RUN
from gbpl.paper.verdicts.readings import readings_section
from gbpl.paper.verdicts.standing import standing_section
from gbpl.paper.verdicts.statements import statements_section, verdict_summary
from gbpl.paper.verdicts.statements import verdicts as all_verdicts
from gbpl.paper.verdicts.variances import variance_section

if TYPE_CHECKING:
    from gbpl.paper.experiments.records import Records

    Truths = Mapping[tuple[str, str], Mapping[str, float]]

__all__ = ["report"]

INTRODUCTION = """\
This page sets a rerun of the experiments of *General Bayesian Policy Learning* beside the printed tables. Numbers are
means over trials with their standard errors in parentheses. *Apart* is ours minus printed, in standard errors of that
difference: both errors and the rounding of the print combined; where no error is printed, ours for as many trials as
the paper has; for a coverage, that of two shares of trials. If both sides estimate the same number, one in twenty is
more than 2 apart.
"""

# Sections on studies beside the paper's tables, each made from the records of the run ("" where it has none).
FURTHER_SECTIONS: tuple[Callable[[Mapping[str, Records]], str], ...] = (readings_section, foil_section)


def report(
    records: Mapping[str, Records],
    *,
    truths: Truths,
    run: Mapping[str, Any],
    figures: Mapping[str, Sequence[str]] | None = None,
) -> str:
    """The report, in Markdown, on the tables there are records of.

    `truths[table, case]` has the design's exact values where they are known (`studies.truths`); `run` has "seconds" (by
    study), "wall" (from start to finish), "device", "versions", "trials" and "quick", all of them optional;
    `figures[table]` are stems of files figures/<stem>.png.
    """
    known = {name: table for name, table in records.items() if len(table)}
    there = {name: known[name] for name in TABLES if name in known}
    figures = figures or {}
    verdicts = all_verdicts(known)
    parts = ["# The paper's experiments, rerun", INTRODUCTION]
    if run.get("quick"):
        parts.append("**A quick run**: fewer trials than the paper's, so errors are large and verdicts mean little.")
    parts += [_summary(there, verdict_summary(verdicts)), statements_section(verdicts)]
    parts += [consistency_section(there, truths), variance_section(there, truths)]
    parts += [section(known) for section in FURTHER_SECTIONS]
    parts += [_open_settings(), standing_section(there)]
    parts += [table_section(TABLES[name], there[name], truths, figures.get(name, ())) for name in there]
    if EXAMPLE in known:
        parts.append(_example(known[EXAMPLE], figures.get(EXAMPLE, ())))
    parts += [columns_section(there), _time(known, run), _rerun(run)]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _share(compared: Sequence[Cell], allowed: float, table: str = "") -> str:
    """How many of the numbers with this limit, of one table or all, are within it."""
    asked = [cell for cell in compared if limit(cell) == allowed and table in ("", cell.table)]
    return f"{sum(abs(cell.apart) <= allowed for cell in asked)} of {len(asked)}" if asked else "--"


def _summary(records: Mapping[str, Records], statements: str) -> str:
    """How near the numbers are of tables that can follow from their designs; and the statements, by kind."""
    comparable = [
        cell
        for name, table in records.items()
        if TABLES[name].group == "consistent"
        for cell in cells(TABLES[name], table)
        if math.isfinite(cell.apart)
    ]
    compared = [cell for cell in comparable if cell.column.kind not in SPREADS]
    spreads = [cell for cell in comparable if cell.column.kind in SPREADS]
    parts = ["## Summary", statements]
    if compared:
        within = sum(abs(cell.apart) <= limit(cell) for cell in spreads)
        parts.append(
            f"Of the tables whose print can follow from the stated designs, {_share(compared, NEAR)} GBPLNet numbers "
            f"are within 2 combined standard errors, and {_share(compared, FAR)} numbers of other methods within 3; "
            f"of printed variances and standard errors, {within} of {len(spreads)}. Welfare and regret of a row are "
            "nearly one number, so that these are not independent. Each distance is in the table it belongs to, and "
            "[every printed column](#every-printed-column) in a list."
        )
        tables = dict.fromkeys(cell.table for cell in compared)
        rows = [[name, _share(compared, NEAR, name), _share(compared, FAR, name)] for name in tables]
        parts.append(pipe_table(["table", "GBPLNet within 2", "other methods within 3"], rows, "lrr"))
    return "\n\n".join(part for part in parts if part)


def _example(records: Records, figures: Sequence[str]) -> str:
    runs = {key: records.of(*RUN, key) for key in PRINTED_EXAMPLE}
    rows = [
        [
            key.replace("_", " "),
            number(values[0]),
            number(values.mean()),
            f"{number(values.min())} to {number(values.max())}",
            number(PRINTED_EXAMPLE[key]),
        ]
        for key, values in runs.items()
    ]
    return "\n\n".join(
        [
            "## One-dimensional posterior example",
            f"The paper shows one run. Ours is repeated with {len(runs['low'])} seeds, which draw the data, the "
            "network and the chain; the figures are of the first.",
            pipe_table(["number", "first run", "mean of runs", "range", "printed"], rows, "lrrrr"),
            *(f"![{stem}](figures/{stem}.png)" for stem in figures),
        ]
    )


def _open_settings() -> str:
    rows = [[choice.what, choice.tried, choice.kept, choice.why, choice.by_print] for choice in CHOICES]
    by_print = sum(choice.by_print.startswith("yes") for choice in CHOICES)
    return "\n\n".join(
        [
            "## What the text leaves open",
            f"{by_print} of these {len(CHOICES)} choices were made by what comes nearer to print, so that agreement of "
            "the tables they bear on is less than an independent confirmation.",
            pipe_table(["left open", "tried", "kept", "why", "by nearness to print"], rows, "lllll"),
        ]
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def _time(records: Mapping[str, Records], run: Mapping[str, Any]) -> str:
    seconds = dict(run.get("seconds") or {})
    rows = [
        [
            name,
            trial_counts(TABLES[name], records[name]) if name in records and name in TABLES else "--",
            _duration(float(taken)),
        ]
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
            "`records/<table>.csv` has one line per trial, method and zeta with all digits, `verdicts.json` the "
            "statements with their verdicts; `tables/`, `figures/` and this page are made from the records alone. "
            "`gbpl reproduce --help` lists how to run some tables only, or fewer trials.",
        ]
    )
