"""Other settings of the posterior studies beside print: the example by SGLD, welfare intervals, and decisions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from gbpl.paper.experiments.catalog import EXAMPLE, TABLES
from gbpl.paper.experiments.posterior_setting_records import DECISION_TABLES, REPLICATIONS, setting_case
from gbpl.paper.experiments.posterior_settings import DECISIONS, INTERVALS, SGLD_SETTINGS, PosteriorSetting
from gbpl.paper.experiments.reading_records import apart
from gbpl.paper.experiments.records import Record, Records
from gbpl.paper.printing.cells import Cell, cells
from gbpl.paper.printing.tables import number, pipe_table, signed
from gbpl.paper.verdicts.posterior import PRINTED_EXAMPLE

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["example_distances", "setting_cells", "settings_sections"]

ROW = ("GBPLNet", "1.0")
NEAR = 2.0
LEVEL = "90%"


def settings_sections(records: Records) -> list[str]:
    """The sections there are lines of."""
    known = {row[0] for row in records.rows()}
    parts = []
    if setting_case(EXAMPLE, "", SGLD_SETTINGS[0].name) in known:
        parts += _example(records)
    if setting_case("uq-evaluation", "1", INTERVALS[0].name) in known:
        parts += [*_intervals(records), *_decisions(records)]
    return parts


def _listed(settings: Sequence[PosteriorSetting]) -> str:
    rows = [[s.name, s.quote or "--", s.read or "--", s.known or "--"] for s in settings]
    return pipe_table(["setting", "the text", "read as", "known before"], rows, "llll")


# -- the example --------------------------------------------------------------------------------------------


def _printed() -> dict[str, float]:
    return {
        "welfare_mean": PRINTED_EXAMPLE["welfare_mean"],
        "low": PRINTED_EXAMPLE["low"],
        "high": PRINTED_EXAMPLE["high"],
        "width": PRINTED_EXAMPLE["high"] - PRINTED_EXAMPLE["low"],
    }


def _runs(records: Records, name: str, column: str) -> Float[np.ndarray, " run"]:
    values = records.of(setting_case(EXAMPLE, "", name), *ROW, column)
    return values[np.isfinite(values)]


def example_distances(records: Records, name: str) -> dict[str, float]:
    """Each printed number of the example: mean over our runs minus print, in standard deviations of one run."""
    runs = {column: _runs(records, name, column) for column in _printed()}
    return {c: apart(runs[c], p) if len(runs[c]) > 1 else math.nan for c, p in _printed().items()}


def _example(records: Records) -> list[str]:
    of_print = _printed()
    rows = [["*printed*", *(f"*{number(value)}*" for value in of_print.values()), ""]]
    for setting in SGLD_SETTINGS:
        far = example_distances(records, setting.name)
        runs = {column: _runs(records, setting.name, column) for column in of_print}
        line = [f"{number(np.mean(runs[c]))} [{signed(far[c])}]" if len(runs[c]) else "--" for c in of_print]
        widths = runs["width"]
        rows.append([setting.name, *line, f"{number(widths.min())} to {number(widths.max())}" if len(widths) else "--"])
    count = len(records.of(setting_case(EXAMPLE, "", SGLD_SETTINGS[0].name), *ROW, "width"))
    wide = [s.name for s in SGLD_SETTINGS if abs(example_distances(records, s.name)["width"]) <= NEAR]
    every = [s.name for s in SGLD_SETTINGS if all(abs(far) <= NEAR for far in _all(records, s.name))]
    words = (
        f"The printed interval of the one-dimensional example is of one run; here are {count} runs of each setting, of "
        "other data. *Apart*, in brackets, is our mean minus print in standard deviations of one run. All start from "
        "the MAP at eta = 1; the list was fixed before the distances were computed."
    )
    verdict = f"Within 2 in width: {_names(wide)}. In all four numbers: {_names(every)}."
    heading = ["setting", *of_print, "widths"]
    return [
        "### SGLD in the one-dimensional example: other settings",
        words,
        _listed(SGLD_SETTINGS),
        pipe_table(heading, rows, "lrrrrr"),
        f"{verdict} A setting whose widths differ much from run to run is within 2 of many numbers: that it is near "
        "says little.",
    ]


def _all(records: Records, name: str) -> list[float]:
    return [value if math.isfinite(value) else math.inf for value in example_distances(records, name).values()]


def _names(names: Sequence[str]) -> str:
    return "; ".join(names) or "none"


# -- tables -------------------------------------------------------------------------------------------------


def setting_cells(records: Records, table: str, name: str) -> list[Cell]:
    """The compared numbers of a table under a setting, with their distances from print."""
    spec = TABLES[table]
    lines = []
    for case in spec.cases:
        key = (setting_case(table, case, name), *ROW)
        lines += [line for line in records.lines if (line.case, line.method, line.zeta) == key]
    own = Records(
        Record(line.case.partition(":")[0].split(" ")[1], line.method, line.zeta, line.trial, line.values)
        for line in lines
    )
    return [cell for cell in cells(spec, own) if math.isfinite(cell.apart)]


def _within(found: Sequence[Cell]) -> str:
    if not found:
        return "--"
    inside, worst = sum(abs(cell.apart) <= NEAR for cell in found), max(found, key=lambda cell: abs(cell.apart))
    return f"{inside} of {len(found)} [{signed(worst.apart)}]"


def _nearest(records: Records, tables: Sequence[str], settings: Sequence[PosteriorSetting]) -> str:
    """The setting with the most numbers within 2, and which of them it leaves unexplained."""

    def outside(setting: PosteriorSetting) -> list[Cell]:
        found = [cell for table in tables for cell in setting_cells(records, table, setting.name)]
        return sorted((cell for cell in found if abs(cell.apart) > NEAR), key=lambda cell: -abs(cell.apart))

    best = min(settings, key=lambda setting: len(outside(setting)))
    left = [f"{cell.column.name.replace('_', ' ')} at {cell.case} ({signed(cell.apart)})" for cell in outside(best)]
    return f"Nearest is *{best.name}*. Unexplained by it: {', '.join(left) or 'nothing'}."


def _intervals(records: Records) -> list[str]:
    cases = TABLES["uq-evaluation"].cases
    wanted = [(case, column) for case in cases for column in (LEVEL, f"{LEVEL}_width")]
    rows: list[list[str]] = []
    for setting in INTERVALS:
        found = setting_cells(records, "uq-evaluation", setting.name)
        by_name = {(cell.case, cell.column.name): cell for cell in found}
        if not rows:
            of_print = [f"*{number(by_name[key].printed, by_name[key].column.digits)}*" for key in wanted]
            rows.append(["*printed*", *of_print, "", ""])
        line = [f"{number(by_name[k].ours, by_name[k].column.digits)} [{signed(by_name[k].apart)}]" for k in wanted]
        kinds = [[cell for cell in found if cell.column.kind == kind] for kind in ("coverage", "width")]
        rows.append([setting.name, *line, *(_within(of_kind) for of_kind in kinds)])
    heading = ["setting", *(f"eta {case}: {column.replace('_', ' ')}" for case, column in wanted)]
    heading += ["coverages within 2", "widths within 2"]
    words = (
        f"The table of {TABLES['uq-evaluation'].trials} replications at eta = 1 and 4, with {REPLICATIONS} of ours. "
        "*Apart* as everywhere on this page; of eight coverages and eight widths those within 2, with the "
        "farthest in brackets. Coverages of so few replications hardly tell settings apart; widths do."
    )
    return [
        "### Welfare intervals: other settings",
        words,
        _listed(INTERVALS),
        pipe_table(heading, rows, "l" + "r" * (len(heading) - 1)),
        _nearest(records, ["uq-evaluation"], INTERVALS),
    ]


def _decisions(records: Records) -> list[str]:
    rows = [
        [
            setting.name,
            *(_within(setting_cells(records, table, setting.name)) for table in DECISION_TABLES),
            setting.known or "--",
        ]
        for setting in DECISIONS
    ]
    words = (
        "The text gives neither eta nor the scale of x for these tables. Three settings had been tried and the nearest "
        "kept; here they are, with two more. Numbers within 2, the farthest in brackets."
    )
    heading = ["setting", *DECISION_TABLES, "known before"]
    return [
        "### Disagreement and threshold rules: other settings",
        words,
        pipe_table(heading, rows, "lrrl"),
        _nearest(records, DECISION_TABLES, DECISIONS),
    ]
