"""Excel workbooks (.xlsx): the first sheet is the table, its first row the header; needs openpyxl."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gbpl.tables.delimited import MISSING_TEXTS
from gbpl.tables.formats import arrow, checked_names
from gbpl.tables.frames import TableError

__all__ = ["ExcelFile", "ExcelSink"]

MOST_ROWS = 1_048_576  # of a sheet, the header among them
NEEDS = "Excel files need openpyxl: pip install 'gbpl[excel]'"


class ExcelFile:
    """The first sheet of a workbook, with the values of its formulas as they were last computed."""

    def __init__(self, path: Path, encoding: str, delimiter: str | None) -> None:
        self.path = path
        rows = list(_rows(path))
        while rows and not any(cell is not None for cell in rows[-1]):
            rows.pop()
        if not rows:
            raise TableError(f"the first sheet of {path.name} is empty: it has no header and no rows")
        header = list(rows[0])
        while header and header[-1] is None:
            header.pop()
        blank = next((number for number, name in enumerate(header, 1) if name is None), None)
        if blank is not None:
            raise TableError(f"column {blank} of the first sheet of {path.name} has no name in the first row; name it")
        self.names = checked_names([str(name) for name in header], path)
        self._rows, self.total_rows = rows[1:], len(rows) - 1

    def read(self, columns: list[str]) -> Any:
        """A pyarrow Table of some columns."""
        place = {name: number for number, name in enumerate(self.names)}
        values = {name: [_cell(row, place[name]) for row in self._rows] for name in columns}
        return arrow().table({name: _array(column) for name, column in values.items()})

    def batches(self, columns: list[str], rows: int, kinds: Mapping[str, str]) -> Iterator[Any]:
        """RecordBatches of some columns; a sheet is small enough to be read at once."""
        yield from self.read(columns).combine_chunks().to_batches(max_chunksize=rows)


def _rows(path: Path) -> Iterator[tuple[Any, ...]]:
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise ImportError(NEEDS) from error
    try:
        book = load_workbook(path, read_only=True, data_only=True)
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise TableError(f"{path.name} is not an Excel workbook that can be read; it may be damaged") from error
    try:
        for number, row in enumerate(book.worksheets[0].iter_rows(), 1):
            wrong = next((cell for cell in row if getattr(cell, "data_type", "") == "e"), None)
            if wrong is not None:
                raise TableError(
                    f"cell {wrong.coordinate} of {path.name}, row {number}, is {wrong.value}; correct it first"
                )
            yield tuple(cell.value for cell in row)
    finally:
        book.close()


def _cell(row: tuple[Any, ...], place: int) -> Any:
    value = row[place] if place < len(row) else None
    return None if isinstance(value, str) and value.strip() in MISSING_TEXTS else value


def _array(values: list[Any]) -> Any:
    """One type per column; numbers beside text are text, as in a CSV file."""
    pa, kinds = arrow(), {type(value) for value in values if value is not None}
    if len(kinds) <= 1:
        return pa.array(values)
    if kinds <= {int, float}:
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    return pa.array([None if value is None else str(value) for value in values], pa.string())


class ExcelSink:
    """A sheet written batch by batch; text is text, also where it looks like a formula."""

    def __init__(self, path: str, names: list[str]) -> None:
        try:
            from openpyxl import Workbook
        except ImportError as error:
            raise ImportError(NEEDS) from error
        self.path, self.rows = path, 1
        self.book = Workbook(write_only=True)
        self.sheet = self.book.create_sheet("decisions")
        self.sheet.append([self._made(name) for name in names])

    def _made(self, value: Any) -> Any:
        from openpyxl.cell import WriteOnlyCell

        if not isinstance(value, str):
            return None if isinstance(value, float) and value != value else value
        cell = WriteOnlyCell(self.sheet, value)
        cell.data_type = "s"
        return cell

    def write_batch(self, batch: Any) -> None:
        """Add the rows of a RecordBatch."""
        self.rows += batch.num_rows
        if self.rows > MOST_ROWS:
            raise TableError(f"an Excel sheet has room for {MOST_ROWS - 1:,} rows; write to .parquet or .csv instead")
        columns = [column.to_pylist() for column in batch.columns]
        for row in zip(*columns, strict=True):
            self.sheet.append([self._made(value) for value in row])

    def close(self) -> None:
        """Write the file."""
        self.book.save(self.path)
