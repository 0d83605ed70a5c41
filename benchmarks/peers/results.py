"""All records together: mean regrets that compare, and gbpl less the best of the others and less its earlier self."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from cases import CASES, SPEED
from records import OURS, Cell, Cells, standard_error

__all__ = ["Distance", "Results"]


@dataclass(frozen=True, slots=True)
class Distance:
    """gbpl less another method or less its earlier self on a case: mean and standard error of the paired difference."""

    case: str
    other: str
    mean: float
    se: float
    theirs: float

    @property
    def behind(self) -> bool:
        """By more than a standard error."""
        return self.mean > self.se

    @property
    def ahead(self) -> bool:
        """By more than a standard error."""
        return self.mean < -self.se


@dataclass(frozen=True, slots=True)
class Results:
    """Cells of all records; the methods that could not be installed, with the reason; and earlier cells of gbpl."""

    cells: Cells
    order: Sequence[str]  # of the methods
    missing: Mapping[str, str]
    before: Cells

    def cases(self, kind: str | None = None) -> list[str]:
        """Those with any record, without speed unless asked for."""
        ran = {case for case, _ in self.cells}
        return [c.name for c in CASES.values() if c.name in ran and (c.kind == kind if kind else c.kind != SPEED)]

    def methods(self, cases: Sequence[str]) -> list[str]:
        """Those with a record of one of the cases."""
        return [method for method in self.order if any((case, method) in self.cells for case in cases)]

    def ranked(self) -> tuple[list[str], list[str]]:
        """gbpl and the methods that have at least half of the cases, and the cases that all of them have."""
        cases = self.cases()
        count = {m: sum((case, m) in self.cells for case in cases) for m in self.methods(cases)}
        methods = [m for m in count if m == OURS or 2 * count[m] >= len(cases)]
        return methods, [case for case in cases if all((case, m) in self.cells for m in methods)]

    def ranks(self, case: str, methods: Sequence[str]) -> dict[str, float]:
        """One more than the methods with a smaller mean regret, ties as a half, failures last.

        Two methods are compared in the replications that both have: replications differ more than methods do.
        """
        here = {method: self.cells[case, method] for method in methods if (case, method) in self.cells}
        found = {}
        for method, cell in here.items():
            apart = [_apart(cell, other) for name, other in here.items() if name != method]
            found[method] = 1.0 + sum(1.0 if each > 0 else 0.5 if each == 0 else 0.0 for each in apart)
        return found

    def best(self, case: str, without: str | None = None) -> str | None:
        """The method with the smallest mean regret, of those that did not fail."""
        ranks = self.ranks(case, [method for method in self.order if method != without])
        sound = {method: rank for method, rank in ranks.items() if not self.cells[case, method].error}
        return min(sound, key=lambda method: sound[method]) if sound else None

    def near(self, case: str, method: str) -> bool:
        """The smallest mean regret of the case, or within a standard error of it, paired."""
        best = self.best(case)
        if best is None or self.cells[case, method].error:
            return False
        apart = self.cells[case, method].less(self.cells[case, best])
        return bool(apart.mean() <= 0 or apart.mean() <= standard_error(apart))

    def distances(self) -> list[Distance]:
        """gbpl less the best of the others, where both have two replications."""
        others = {case: name for case in self.cases() if (name := self.best(case, without=OURS)) is not None}
        return [found for case, name in others.items() for found in self._distance(case, name, self.cells[case, name])]

    def from_before(self) -> list[Distance]:
        """gbpl less its earlier self."""
        earlier = [(case, cell) for (case, method), cell in self.before.items() if method == OURS and not cell.error]
        known = self.cases()
        earlier = sorted((pair for pair in earlier if pair[0] in known), key=lambda pair: known.index(pair[0]))
        return [found for case, cell in earlier for found in self._distance(case, "before", cell)]

    def _distance(self, case: str, name: str, other: Cell) -> list[Distance]:
        ours = self.cells.get((case, OURS))
        if ours is None or ours.error:
            return []
        apart = ours.less(other)
        if len(apart) < 2:
            return []
        common = [other.regrets[number] for number in ours.regrets.keys() & other.regrets.keys()]
        return [Distance(case, name, float(apart.mean()), standard_error(apart), float(np.mean(common)))]

    def later_seconds(self) -> dict[int, dict[str, float]]:
        """Median CPU seconds of the fits after the first of a process, by n and method."""
        found: dict[int, dict[str, float]] = {}
        for case in self.cases(SPEED):
            spent = {m: [r.cpu_seconds for r in cell.records[1:]] for (c, m), cell in self.cells.items() if c == case}
            done = {m: spent[m] for m in self.order if spent.get(m) and None not in spent[m]}
            found[int(case.partition("/")[2])] = {m: float(np.median(values)) for m, values in done.items()}
        return dict(sorted(found.items()))


def _apart(cell: Cell, other: Cell) -> float:
    """Mean regret less that of the other, in common replications; two failures are level."""
    if cell.error or other.error:
        return float(bool(cell.error)) - float(bool(other.error))
    return float(cell.less(other).mean())
