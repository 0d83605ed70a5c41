"""Where the library's default stands: beside the printed GBPLNet (CV), the same as run here, and the best baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gbpl.paper.experiments.catalog import AUTO, DEFAULT, TABLES, TableSpec
from gbpl.paper.printing.cells import Cell, cells, printed_row, rounding, table_rows
from gbpl.paper.printing.columns import Row, layout
from gbpl.paper.printing.tables import pipe_table, with_error
from gbpl.paper.verdicts.verdict import Gap, NotComparable, level, name_of, paired

if TYPE_CHECKING:
    from gbpl.paper.experiments.records import Records

__all__ = ["Standing", "standing_section", "standings"]

REGRETS = """\
gbpl default is `GBPL()`, as users begin with it, on the same data as the paper's methods: it learns from all observed
rows, networks and forests side by side. Its settings were chosen on the paper's binary designs, among others, with
other seeds ([design](design.md)), so these tables are no untouched test of it. It is not a method of the paper, and no
verdict on a statement uses its rows. Regret, the less the better. Printed is GBPLNet (CV), of the DR kind with logged
feedback; it is left out where the print does not follow from the design. The other differences are paired by trial, in
regret against conditional means. With five actions the GBPLNet rows are randomized policies and the default is its
rule, so that part of the difference is that of not randomizing."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The default in one case of one table. Differences are the default's regret minus the other's, paired by trial.

    `printed` is the GBPLNet (CV) of the paper, of the DR kind where there are two; None where the print cannot follow
    from the design. `own` is that row as we ran it, `baseline` the method other than GBPLNet with the least regret.
    """

    table: str
    case: str
    regret: Gap
    printed: float | None
    printed_se: float | None
    own: Gap
    baseline: str
    against_baseline: Gap

    @property
    def against_print(self) -> Gap:
        """Default minus printed, with the errors of both combined."""
        if self.printed is None:
            return Gap(math.nan, math.nan, 0)
        error = math.hypot(self.regret.se, self.printed_se or 0.0, rounding(4))
        return Gap(self.regret.mean - self.printed, error, self.regret.trials)


def _try(records: Records, row: Row, other: Row | None, measure: str) -> Gap:
    try:
        return paired(records, row, other, measure) if other else level(records, row, measure)
    except NotComparable:
        return Gap(math.nan, math.nan, 0)


def _standing(spec: TableSpec, records: Records, case: str) -> Standing:
    """Regret against conditional means where it is kept, as it is without the noise of the test outcomes."""
    measure = "mean_regret" if "mean_regret" in spec.metrics else "regret"
    default, reference = (case, *DEFAULT), (case, *next(row for row in spec.rows if row[1] == "CV"))
    means = {
        (case, *row): _try(records, (case, *row), None, measure).mean
        for row in spec.rows
        if not row[0].startswith("GBPLNet")
    }
    known = {row: mean for row, mean in means.items() if math.isfinite(mean)}
    baseline = min(known, key=lambda row: known[row]) if known else None
    line = printed_row(spec, reference) if spec.group == "consistent" else None
    name = "regret" if "regret" in (line or {}) else "regret_mean"
    return Standing(
        spec.name,
        case,
        _try(records, default, None, "regret"),
        float(line[name]) if line else None,
        float(line["regret_se"]) if line else None,
        _try(records, default, reference, measure),
        name_of(baseline) if baseline else "--",
        _try(records, default, baseline, measure) if baseline else Gap(math.nan, math.nan, 0),
    )


def standings(records: Mapping[str, Records]) -> list[Standing]:
    """One for every case with a row of the default, in tables of policies."""
    return [
        _standing(spec, records[spec.name], row[0])
        for spec in TABLES.values()
        if spec.name in records and layout(spec).methods
        for row in table_rows(spec, records[spec.name])
        if row[1:] == DEFAULT
    ]


def standing_section(records: Mapping[str, Records]) -> str:
    """The part of the report on the default; empty where it was not run."""
    parts = [part for part in (_regrets(standings(records)), _intervals(records)) if part]
    return "\n\n".join([f"## Where {DEFAULT[0]} stands", *parts]) if parts else ""


def _regrets(standings: Sequence[Standing]) -> str:
    if not standings:
        return ""
    counts = {
        "Against the printed GBPLNet (CV)": [s.against_print for s in standings],
        "Against GBPLNet (CV) as run here": [s.own for s in standings],
        "Against the best other method as run here, picked afterwards": [s.against_baseline for s in standings],
    }
    heading = ["table", "case", "default", "printed", "difference", "from ours (CV)", "best other", "from it"]
    rows = [
        [
            s.table,
            s.case,
            with_error(s.regret.mean, s.regret.se),
            with_error(s.printed, s.printed_se),
            _text(s.against_print),
            _text(s.own),
            s.baseline,
            _text(s.against_baseline),
        ]
        for s in standings
    ]
    return "\n\n".join(
        [REGRETS, "\n".join(f"- {k}: {_count(v)}." for k, v in counts.items()), pipe_table(heading, rows, "llrrrrlr")]
    )


def _text(gap: Gap) -> str:
    return str(gap) if math.isfinite(gap.mean) else "--"


def _count(gaps: Sequence[Gap]) -> str:
    known = [gap.clear for gap in gaps if math.isfinite(gap.mean)]
    return (
        f"lower by 2 standard errors in {known.count(-1)}, higher in {known.count(1)}, not distinguishable in "
        f"{known.count(0)} of {len(known)} cases"
    )


def _intervals(records: Mapping[str, Records]) -> str:
    """Coverage and width of the default's intervals, for the welfare of its own rule."""
    rows = []
    for name in ("uq-calibration", "uq-evaluation"):
        by_name = {c.column.name: c for c in _of_default(name, records)}
        for column in layout(TABLES[name]).shown:
            if column.name in by_name:
                pair = [by_name[key] for key in (column.name, column.beside)]
                rows.append([name, str(pair[0].trials), column.name, *(with_error(c.ours, c.se) for c in pair)])
    if not rows:
        return ""
    table = pipe_table(["data of", "trials", "level", "coverage", "width"], rows, "lrlrr")
    return (
        "Its intervals are for the welfare of the rule it has learned, in the population, from the rows of the fit "
        "alone, and are judged on that; the paper's are for the welfare of a target on points with known means, and "
        f"are not beside them here.\n\n{table}"
    )


def _of_default(name: str, records: Mapping[str, Records]) -> list[Cell]:
    return [cell for cell in cells(TABLES[name], records[name]) if cell.case == AUTO] if name in records else []
