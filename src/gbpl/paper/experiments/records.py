"""What the studies leave: one line per trial, method and zeta, in one CSV file per table.

A block of trials is written to a file of its own, under another name until it is whole, so that a run that is killed
leaves blocks or nothing. Numbers are written with all their digits: a table made from the files is the same, bit for
bit, as one made in the run that wrote them.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Record", "Records", "read_blocks", "write_block"]

KEYS = ("case", "method", "zeta", "trial")


@dataclass(frozen=True, slots=True)
class Record:
    """One line: `case` is the row group of the table (a design, a sample size), `zeta` as it is printed, or empty."""

    case: str
    method: str
    zeta: str
    trial: int
    values: Mapping[str, float] = field(default_factory=dict)


class Records:
    """The lines of one table, in the order of its trials."""

    def __init__(self, lines: Iterable[Record] = ()) -> None:
        self.lines = sorted(lines, key=lambda line: (line.case, line.method, line.zeta, line.trial))
        self._by_row: dict[tuple[str, str, str], list[Record]] = {}
        for line in self.lines:
            self._by_row.setdefault((line.case, line.method, line.zeta), []).append(line)

    def __len__(self) -> int:
        return len(self.lines)

    def rows(self) -> list[tuple[str, str, str]]:
        """(case, method, zeta) of every row of the table there are lines for."""
        return list(self._by_row)

    def of(self, case: str, method: str, zeta: str, metric: str) -> Float[np.ndarray, " trial"]:
        """The numbers of a row, by trial; empty if there are none, NaN where a trial has no such number."""
        lines = self._by_row.get((case, method, zeta), [])
        return np.array([line.values.get(metric, np.nan) for line in lines])

    def trials(self, case: str, method: str, zeta: str) -> list[int]:
        return [line.trial for line in self._by_row.get((case, method, zeta), [])]

    def write(self, path: Path) -> None:
        """One tidy file: the keys, then every number there is."""
        write_block(path, self.lines)

    @classmethod
    def read(cls, path: Path) -> Records:
        return cls(_read(path))


def _columns(lines: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(name for line in lines for name in line.values))


def write_block(path: Path, lines: Sequence[Record]) -> None:
    """Keep a block, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = _columns(lines)
    unfinished = path.with_name(path.name + ".part")
    with unfinished.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*KEYS, *columns])
        for line in lines:
            numbers = [repr(float(line.values[name])) if name in line.values else "" for name in columns]
            writer.writerow([line.case, line.method, line.zeta, line.trial, *numbers])
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def _read(path: Path) -> Iterator[Record]:
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            values = {name: float(text) for name, text in line.items() if name not in KEYS and text != ""}
            yield Record(line["case"], line["method"], line["zeta"], int(line["trial"]), values)


def read_blocks(paths: Iterable[Path]) -> Records:
    """The lines of blocks, together."""
    return Records(line for path in paths for line in _read(path))
