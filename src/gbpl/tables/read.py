"""Tables in files: read whole, or in batches of rows.

Files are delimited text (.csv, .tsv, .txt; also compressed: .csv.gz, .csv.bz2, .csv.zst), Parquet (.parquet, .pq) and
Arrow or Feather (.feather, .arrow, .ipc).
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from gbpl.tables.delimited import DelimitedText, csv_options, parsed, with_missing
from gbpl.tables.formats import PARQUET, TEXT, arrow, checked_input, checked_names, reading, suffixes
from gbpl.tables.frames import TableError, require_columns

__all__ = ["Batches", "open_batches", "read_table"]

BUFFER = 1 << 18  # bytes of a Parquet column read at a time


def _parquet(path: Path) -> Any:
    with reading(path, "is not a Parquet file that can be read"):
        return arrow(".parquet").ParquetFile(path, buffer_size=BUFFER, pre_buffer=False)


def _ipc(path: Path, columns: Sequence[str] | None = None) -> tuple[Any, Any]:
    """Reader of an Arrow file or stream, and the memory map it reads from."""
    pa, ipc = arrow(), arrow(".ipc")
    with reading(path, "is not an Arrow file that can be read"):
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if mapped[:4] == b"FEA1":
            raise TableError(f"{path.name} is a Feather file of version 1; write it again as version 2, or as Parquet")
        read, source = (ipc.open_file if mapped[:6] == b"ARROW1" else ipc.open_stream), pa.py_buffer(mapped)
        reader = read(source)
        if columns is not None and set(columns) != set(reader.schema.names):  # all columns are read without a copy
            wanted = [reader.schema.names.index(name) for name in columns]
            reader = read(source, options=ipc.IpcReadOptions(included_fields=wanted))
        return reader, mapped


def _released(mapped: Any) -> None:
    """Hand the pages read so far back: they count as this process's memory, and come again where needed."""
    if hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)


def read_table(
    path: str | os.PathLike[str],
    *,
    columns: Sequence[str] | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
) -> Any:
    """A file as a pyarrow Table, with the columns asked for (None: all); `encoding` and `delimiter` are of text.

    The delimiter is found in the header if None: `,` `;` tab or `|`. A file without rows is refused.
    """
    batches = open_batches(path, columns=columns, encoding=encoding, delimiter=delimiter)
    path = batches.path
    if batches.suffix in TEXT:
        with DelimitedText(path, encoding, delimiter) as text, reading(path), parsed(text, {}):
            if not text.has_rows():
                raise TableError(f"{path.name} has a header but no rows")
            table = arrow(".csv").read_csv(text, **csv_options(text, batches.columns, None))
    elif batches.suffix in PARQUET:
        with reading(path), _parquet(path) as parquet:
            table = parquet.read(columns=batches.columns)
    else:
        with reading(path):
            table = _ipc(path, batches.columns)[0].read_all()
    if table.num_rows == 0:
        raise TableError(f"{path.name} has columns but no rows")
    return table.select(batches.columns)


class Batches:
    """A file's rows in batches, in little memory: `names` of all its columns, `total_rows` or None where unknown.

    >>> with open_batches("people.parquet", columns=["age"]) as batches:  # doctest: +SKIP
    ...     for batch in batches:
    ...         ...
    """

    def __init__(
        self,
        path: Path,
        columns: Sequence[str] | None,
        kinds: Mapping[str, str] | None,
        rows: int,
        encoding: str,
        delimiter: str | None,
    ) -> None:
        self.path, self.suffix = path, suffixes(path)[0]
        self.kinds, self.rows, self.encoding, self.delimiter = dict(kinds or {}), rows, encoding, delimiter
        self.total_rows: int | None = None
        self._open: list[Any] = []
        if self.suffix in TEXT:
            with DelimitedText(path, encoding, delimiter) as text:
                self.names = text.names
        elif self.suffix in PARQUET:
            with _parquet(path) as parquet:
                self.names = checked_names(parquet.schema_arrow.names, path)
                self.total_rows = int(parquet.metadata.num_rows)
        else:
            reader, _ = _ipc(path)
            with reading(path):
                self.names = checked_names(reader.schema.names, path)
                self.total_rows = int(reader.count_rows()) if hasattr(reader, "count_rows") else None
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
        source = self._text() if self.suffix in TEXT else self._parquet() if self.suffix in PARQUET else self._arrow()
        self._open.append(source)
        yield from source
        self._open.remove(source)

    def _cut(self, batch: Any) -> Iterator[Any]:
        chosen = batch.select(self.columns)
        yield from (chosen.slice(start, self.rows) for start in range(0, batch.num_rows, self.rows))

    def _text(self) -> Iterator[Any]:
        with (
            DelimitedText(self.path, self.encoding, self.delimiter) as text,
            reading(self.path),
            parsed(text, self.kinds),
        ):
            if text.has_rows():
                for batch in arrow(".csv").open_csv(text, **csv_options(text, self.columns, self.kinds)):
                    yield from self._cut(with_missing(batch, self.kinds))

    def _parquet(self) -> Iterator[Any]:
        with reading(self.path), _parquet(self.path) as parquet:
            for batch in parquet.iter_batches(self.rows, columns=self.columns, use_threads=False):
                yield from self._cut(batch)

    def _arrow(self) -> Iterator[Any]:
        reader, mapped = _ipc(self.path, self.columns)
        numbers = range(getattr(reader, "num_record_batches", 0))
        with reading(self.path):
            for batch in map(reader.get_batch, numbers) if hasattr(reader, "get_batch") else reader:
                for part in self._cut(batch):
                    yield part
                    _released(mapped)


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
    return Batches(checked_input(path), columns, kinds, rows, encoding, delimiter)
