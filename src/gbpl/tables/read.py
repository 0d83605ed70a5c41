"""Tables in files: read whole, or in batches of rows.

Files are delimited text (.csv, .tsv, .txt; also compressed: .csv.gz, .csv.bz2, .csv.zst), Parquet (.parquet, .pq),
Arrow or Feather (.feather, .arrow, .ipc) and Excel (.xlsx). A format is a class here, with its endings in `formats`.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from gbpl.tables.delimited import DelimitedText, csv_options, parsed, text_is_long, with_codes, with_missing
from gbpl.tables.excel import ExcelFile
from gbpl.tables.formats import ARROW, EXCEL, PARQUET, TEXT, arrow, checked_input, checked_names, reading, suffixes
from gbpl.tables.frames import TableError, require_columns

__all__ = ["Batches", "open_batches", "read_table"]

BUFFER = 1 << 18  # bytes of a Parquet column read at a time


class TableFile(Protocol):
    """A file of a table: `names` of its columns, and `total_rows`, None where the file does not say."""

    @property
    def names(self) -> list[str]: ...
    @property
    def total_rows(self) -> int | None: ...

    def read(self, columns: list[str]) -> Any:
        """A pyarrow Table of some columns."""
        ...

    def batches(self, columns: list[str], rows: int, kinds: Mapping[str, str]) -> Iterator[Any]:
        """RecordBatches that have some columns, among others perhaps, in little memory; `rows` is a wish."""
        ...


class _Text:
    """Delimited text."""

    total_rows = None

    def __init__(self, path: Path, encoding: str, delimiter: str | None) -> None:
        self.path, self.encoding, self.delimiter = path, encoding, delimiter
        with self._open() as text:
            self.names = text.names

    def _open(self) -> DelimitedText:
        return DelimitedText(self.path, self.encoding, self.delimiter)

    def read(self, columns: list[str]) -> Any:
        if text_is_long(self.path):  # before it is all in memory
            with self._open() as text, reading(self.path), parsed(text, {}):
                text.skip()
        with self._open() as text, reading(self.path), parsed(text, {}):
            if not text.has_rows():
                raise TableError(f"{self.path.name} has a header but no rows")
            return with_codes(text, arrow(".csv").read_csv(text, **csv_options(text, columns, None)))

    def batches(self, columns: list[str], rows: int, kinds: Mapping[str, str]) -> Iterator[Any]:
        with self._open() as text, reading(self.path), parsed(text, kinds):
            if text.has_rows():
                for batch in arrow(".csv").open_csv(text, **csv_options(text, columns, kinds)):
                    yield with_missing(batch, kinds)


class _Parquet:
    """Parquet."""

    def __init__(self, path: Path, encoding: str, delimiter: str | None) -> None:
        self.path = path
        with self._open() as parquet:
            self.names = checked_names(parquet.schema_arrow.names, path)
            self.total_rows = int(parquet.metadata.num_rows)

    def _open(self) -> Any:
        with reading(self.path, "is not a Parquet file that can be read"):
            return arrow(".parquet").ParquetFile(self.path, buffer_size=BUFFER, pre_buffer=False)

    def read(self, columns: list[str]) -> Any:
        with reading(self.path), self._open() as parquet:
            return parquet.read(columns=columns)

    def batches(self, columns: list[str], rows: int, kinds: Mapping[str, str]) -> Iterator[Any]:
        with reading(self.path), self._open() as parquet:
            yield from parquet.iter_batches(rows, columns=columns, use_threads=False)


class _Arrow:
    """An Arrow or Feather file, or an Arrow stream, read from a memory map."""

    def __init__(self, path: Path, encoding: str, delimiter: str | None) -> None:
        self.path = path
        reader, _ = self._open()
        with reading(path):
            self.names = checked_names(reader.schema.names, path)
            self.total_rows = int(reader.count_rows()) if hasattr(reader, "count_rows") else None

    def _open(self, columns: Sequence[str] | None = None) -> tuple[Any, Any]:
        """Reader, and the memory map it reads from."""
        pa, ipc, path = arrow(), arrow(".ipc"), self.path
        with reading(path, "is not an Arrow file that can be read"):
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            if mapped[:4] == b"FEA1":
                raise TableError(
                    f"{path.name} is a Feather file of version 1; write it again as version 2, or as Parquet"
                )
            read, source = (ipc.open_file if mapped[:6] == b"ARROW1" else ipc.open_stream), pa.py_buffer(mapped)
            reader = read(source)
            if columns is not None and set(columns) != set(reader.schema.names):  # all columns are read without a copy
                wanted = [reader.schema.names.index(name) for name in columns]
                reader = read(source, options=ipc.IpcReadOptions(included_fields=wanted))
            return reader, mapped

    def read(self, columns: list[str]) -> Any:
        with reading(self.path):
            return self._open(columns)[0].read_all()

    def batches(self, columns: list[str], rows: int, kinds: Mapping[str, str]) -> Iterator[Any]:
        reader, mapped = self._open(columns)
        numbers = range(getattr(reader, "num_record_batches", 0))
        with reading(self.path):
            for batch in map(reader.get_batch, numbers) if hasattr(reader, "get_batch") else reader:
                for start in range(0, batch.num_rows, rows):
                    yield batch.slice(start, rows)
                    if hasattr(mmap, "MADV_DONTNEED"):  # pages read so far count as this process's memory
                        mapped.madvise(mmap.MADV_DONTNEED)


FORMATS: dict[tuple[str, ...], Callable[[Path, str, str | None], TableFile]] = {
    TEXT: _Text, PARQUET: _Parquet, ARROW: _Arrow, EXCEL: ExcelFile,
}  # fmt: skip


def _open(path: Path, encoding: str, delimiter: str | None) -> TableFile:
    kind = next(kind for endings, kind in FORMATS.items() if suffixes(path)[0] in endings)
    return kind(path, encoding, delimiter)


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
) -> Any:
    """A file as a pyarrow Table, with the columns asked for (None: all); `encoding` and `delimiter` are of text.

    The delimiter is taken from the header if None: `,` `;` tab or `|`. A file without rows is refused.
    """
    batches = open_batches(path, columns=columns, encoding=encoding, delimiter=delimiter)
    table = batches.file.read(batches.columns)
    if table.num_rows == 0:
        raise TableError(f"{batches.path.name} has columns but no rows")
    return table.select(batches.columns)


class Batches:
    """A file's rows in batches, in little memory: `names` of all its columns, `total_rows` or None where unknown.

    >>> with open_batches("people.parquet", columns=["age"]) as batches:  # doctest: +SKIP
    ...     for batch in batches:
    ...         ...
    """

    def __init__(
        self, path: Path, file: TableFile, columns: Sequence[str] | None, kinds: Mapping[str, str] | None, rows: int
    ) -> None:
        self.path, self.file, self.kinds, self.rows = path, file, dict(kinds or {}), rows
        self.names, self.total_rows = file.names, file.total_rows
        self._open: list[Any] = []
        if columns is not None and not len(columns):
            raise TableError(f"no column of {path.name} is asked for; name one, or leave columns out for all")
        require_columns(columns or [], self.names, path.name)
        self.columns = list(self.names if columns is None else columns)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self._open:
            self._open.pop().close()

    def __iter__(self) -> Iterator[Any]:
        """RecordBatches of the columns asked for, at most `rows` rows each; each iteration reads the file anew."""
        source = self.file.batches(self.columns, self.rows, self.kinds)
        self._open.append(source)
        for batch in source:
            chosen = batch.select(self.columns)
            yield from (chosen.slice(start, self.rows) for start in range(0, batch.num_rows, self.rows))
        self._open.remove(source)


def open_batches(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    kinds: Mapping[str, str] | None = None,
    rows: int = 65_536,
    encoding: str = "utf-8",
    delimiter: str | None = None,
) -> Batches:
    """A file to go through in batches of at most `rows` rows.

    `kinds` are of text, as by `Encoder.arrow_types`: a column is read as number, boolean or category, and as text where
    no kind is given. A word such as NA is a missing value in the columns of `kinds`; in others it stays as it is, and
    only an empty cell is missing. A file without rows has no batches.
    """
    if rows < 1:
        raise TableError(f"rows must be >= 1, got {rows}; try 65536")
    checked = checked_input(path)
    return Batches(checked, _open(checked, encoding, delimiter), columns, kinds, rows)
