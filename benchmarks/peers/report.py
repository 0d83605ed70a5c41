"""The table of regrets and seconds, the ranks of the methods, and how far gbpl is from the best of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import rankdata

__all__ = ["OURS", "Record", "table"]

OURS = "gbpl"


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one replication: regret and seconds, or the last line of an error."""

    case: str
    method: str
    replication: int
    regret: float | None = None
    seconds: float | None = None
    error: str | None = None

    def line(self) -> dict[str, Any]:
        """Without what there is not."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        told = self.error if self.regret is None else f"regret {self.regret:.4f}, {self.seconds:.2f} s"
        return f"{self.case} {self.replication} {self.method}: {told}"


@dataclass(frozen=True, slots=True)
class Cell:
    """The replications of one method on one case."""

    records: tuple[Record, ...]

    @property
    def error(self) -> str | None:
        """A method that fails in one replication has failed: the mean of the others is that of easier ones."""
        errors = [record.error for record in self.records if record.error is not None]
        return f"failed in {len(errors)} of {len(self.records)}: {errors[0]}" if errors else None

    @property
    def regrets(self) -> dict[int, float]:
        return {record.replication: record.regret for record in self.records if record.regret is not None}

    @property
    def mean(self) -> float:
        return np.inf if self.error else float(np.mean(list(self.regrets.values())))

    @property
    def se(self) -> float:
        return standard_error(np.array(list(self.regrets.values())))

    @property
    def seconds(self) -> float:
        return float(np.median([record.seconds for record in self.records if record.seconds is not None]))


def standard_error(values: np.ndarray) -> float:
    """Of the mean; not a number for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


Cells = Mapping[tuple[str, str], Cell]


def table(records: Sequence[Record], cases: Sequence[str], methods: Sequence[str], missing: Mapping[str, str]) -> str:
    """Markdown. `missing` has the methods that could not be installed, with the reason."""
    cells: dict[tuple[str, str], Cell] = {}
    for case in cases:
        for method in methods:
            found = sorted((r for r in records if (r.case, r.method) == (case, method)), key=lambda r: r.replication)
            if found:
                cells[case, method] = Cell(tuple(found))
    cases = [case for case in cases if any((case, method) in cells for method in methods)]
    methods = [m for m in methods if m in missing or any((case, m) in cells for case in cases)]
    if not cases:
        return "No results yet.\n"
    return "\n".join([_regrets(cells, cases, methods, missing), _ranks(cells, cases, methods), _ours(cells, cases)])


def _rows(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _regrets(cells: Cells, cases: Sequence[str], methods: Sequence[str], missing: Mapping[str, str]) -> str:
    """A row a case, a column a method; what went wrong in notes below, where it does not widen the columns."""
    notes: list[str] = []
    rows = []
    for case in cases:
        here = {method: cells[case, method] for method in methods if (case, method) in cells}
        count, best = max(len(cell.records) for cell in here.values()), min(cell.mean for cell in here.values())
        row = [case, str(count)]
        for method in methods:
            if method not in here:
                row.append("not installable" if method in missing else "")
                continue
            cell = here[method]
            if cell.error:
                notes.append(f"{method} on {case} {cell.error}")
                row.append("failed")
                continue
            shown = f"{cell.mean:.4f}"
            shown = f"**{shown}**" if cell.mean == best else shown
            few = "" if len(cell.records) == count else f", of {len(cell.records)}"
            row.append(f"{shown} ({cell.se:.4f}{few}) {cell.seconds:.1f} s")
        rows.append(row)
    notes += [f"{method} is not installable: {reason}" for method, reason in missing.items()]
    head = "Mean regret (standard error) and median seconds of fit and prediction; the smallest regret in bold.\n\n"
    below = "".join(f"- {note}\n" for note in notes)
    return head + _rows(["case", "replications", *methods], rows) + "\n" + (f"\n{below}" if below else "")


def _ranks(cells: Cells, cases: Sequence[str], methods: Sequence[str]) -> str:
    """Mean rank over the cases that every method has been run on. One that fails on a case is last there."""
    ran = [method for method in methods if any((case, method) in cells for case in cases)]
    common = [case for case in cases if all((case, method) in cells for method in ran)]
    if not common:
        return "No case has been run by every method: no ranks yet.\n"
    ranks = np.mean([rankdata([cells[case, method].mean for method in ran], method="max") for case in common], axis=0)
    rows = []
    for i in np.argsort(ranks, kind="stable"):
        done = [cells[case, ran[i]] for case in common]
        failed = any(cell.error for cell in done)
        rows.append([ran[i], f"{ranks[i]:.2f}", "failed" if failed else f"{sum(cell.seconds for cell in done):.1f}"])
    head = (
        f"Mean rank by regret over the {len(common)} cases that every method has, and its median seconds, summed.\n\n"
    )
    return head + _rows(["method", "mean rank", "seconds"], rows) + "\n"


def _ours(cells: Cells, cases: Sequence[str]) -> str:
    """gbpl less the best of the others, in the standard error of the paired difference and of two independent means."""
    rows = []
    for case in cases:
        others = {m: cell for (c, m), cell in cells.items() if c == case and m != OURS and not cell.error}
        ours = cells.get((case, OURS))
        if ours is None or ours.error or not others:
            continue
        name = min(others, key=lambda method: others[method].mean)
        best, mine = others[name].regrets, ours.regrets
        paired = np.array([mine[number] - best[number] for number in sorted(mine.keys() & best.keys())])
        if len(paired) < 2:
            continue
        apart, error, unpaired = float(paired.mean()), standard_error(paired), float(np.hypot(ours.se, others[name].se))
        rows.append(
            [case, name, f"{apart:+.4f}", f"{error:.4f}", f"{_ratio(apart, error)}", f"{_ratio(apart, unpaired)}"]
        )
    if not rows:
        return "gbpl has not been run beside another method in two replications: no distances yet.\n"
    head = "gbpl less the best of the others, picked by these same figures: it looks a little better than it is.\n\n"
    columns = ["case", "best of the others", "difference", "paired se", "in paired se", "in se of both means"]
    return head + _rows(columns, rows) + "\n"


def _ratio(value: float, error: float) -> str:
    return f"{value / error:+.1f}" if error > 0 else "-"
