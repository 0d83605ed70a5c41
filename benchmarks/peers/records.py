"""What became of each replication, and the replications of a method on a case together."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["OURS", "OURS_VALUED", "Cell", "Cells", "Record", "Records", "by_cell", "standard_error"]

OURS, OURS_VALUED = "gbpl", "gbpl-value"


@dataclass(frozen=True, slots=True)
class Record:
    """Regret and seconds of one replication, with a note where the method has one; or the last line of an error."""

    case: str
    method: str
    replication: int
    regret: float | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    note: str | None = None
    error: str | None = None

    def line(self) -> dict[str, Any]:
        """Without what there is not."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def __str__(self) -> str:
        if self.regret is None:
            return f"{self.case} {self.replication} {self.method}: {self.error}"
        message = f"regret {self.regret:.4f}, {self.seconds:.2f} s, {self.cpu_seconds:.2f} CPU s"
        return f"{self.case} {self.replication} {self.method}: {message}" + (f", {self.note}" if self.note else "")


class Records:
    """Lines of a file of records, by case, method and replication. Threads may add."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        self.found: dict[tuple[str, str, int], Record] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                self._keep(Record(**json.loads(line)))

    def _keep(self, record: Record) -> None:
        self.found[record.case, record.method, record.replication] = record

    def add(self, record: Record) -> None:
        with self.lock:
            self._keep(record)
            with self.path.open("a") as lines:
                print(json.dumps(record.line()), file=lines)
            print(record, flush=True)


@dataclass(frozen=True, slots=True)
class Cell:
    """The replications of one method on one case, in their order."""

    records: tuple[Record, ...]

    @property
    def error(self) -> str | None:
        """A method that fails in one replication has failed: the mean of the others is that of easier ones."""
        errors = [record.error for record in self.records if record.error is not None]
        return f"failed in {len(errors)} of {len(self.records)}: {errors[0]}" if errors else None

    @property
    def note(self) -> str | None:
        notes = [record.note for record in self.records if record.note is not None]
        return f"in {len(notes)} of {len(self.records)}: {notes[0]}" if notes else None

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
    def cpu_seconds(self) -> float:
        """The median."""
        return float(np.median([record.cpu_seconds for record in self.records if record.cpu_seconds is not None]))

    def less(self, other: Cell) -> np.ndarray:
        """Regret less that of the other, in the replications that both have."""
        mine, others = self.regrets, other.regrets
        return np.array([mine[number] - others[number] for number in sorted(mine.keys() & others.keys())])


def standard_error(values: np.ndarray) -> float:
    """Of the mean; not a number for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


Cells = Mapping[tuple[str, str], Cell]


def by_cell(records: Iterable[Record]) -> dict[tuple[str, str], Cell]:
    """By case and method."""
    found: dict[tuple[str, str], list[Record]] = {}
    for record in sorted(records, key=lambda record: record.replication):
        found.setdefault((record.case, record.method), []).append(record)
    return {key: Cell(tuple(each)) for key, each in found.items()}
