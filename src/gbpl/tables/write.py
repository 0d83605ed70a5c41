"""Tables written to files, batch by batch, all or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from gbpl.runtime.files import check_target, placed, writing
from gbpl.tables.arrow_arrays import from_plain
from gbpl.tables.excel import ExcelSink
from gbpl.tables.formats import ARROW, EXCEL, PARQUET, arrow, checked_names
from gbpl.tables.frames import TableError

__all__ = ["Writer", "check_output", "formulas", "open_writer"]

MOST_BYTES = 1 << 25
FORMULA = r"^[=@\t\r]|^[-+][^0-9.,]"
WRITABLE = ".csv, .tsv, .parquet, .pq, .feather, .arrow, .ipc, .xlsx"


def check_output(path: str | os.PathLike[str], inputs: Iterable[str | os.PathLike[str]] = ()) -> Path:
    """Refuse a table's file that cannot be written, before anything is read; `inputs` must stay as they are."""
    try:
        target, suffix = check_target(Path(path)), Path(path).suffix.lower()
    except ValueError as error:
        raise TableError(str(error)) from error
    if suffix not in (".csv", ".tsv", *PARQUET, *ARROW, *EXCEL):
        ending = repr(suffix) if suffix else "nothing"
        raise TableError(f"{path} ends in {ending}, so its format is not known; those written are {WRITABLE}")
    for other in inputs:
        if target.exists() and os.path.exists(other) and os.path.samefile(target, other):
            raise TableError(f"{path} is the file that is read; write to another")
    return target


@contextmanager
def _writing(target: Path) -> Iterator[None]:
    """What pyarrow or the system finds wrong, as a TableError that names the file and not the folder it is made in."""
    try:
        with writing(target):
            yield
    except Exception as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith("pyarrow"):
            raise
        reason = error.strerror if isinstance(error, OSError) else f"cannot be written: {str(error).splitlines()[0]}"
        raise TableError(f"{target.name} {reason}") from error


class Writer:
    """A table written batch by batch: the file is there, whole, when the `with` block ends well, and not before."""

    def __init__(self, target: Path, schema: Any = None) -> None:
        self.target, self.schema = target, schema
        self.rows = 0
        self._sink: Any = None
        self._place: Any = None

    def __enter__(self) -> Self:
        self._place = placed(self.target)
        with _writing(self.target):
            self._part = self._place.__enter__()
        return self

    def write(self, batch: Mapping[str, np.ndarray] | Any) -> None:
        """Add rows: arrays by column name, or a RecordBatch; the first batch sets the columns unless a schema did."""
        if self._place is None:
            raise TableError("a writer is used in a with block; what is written outside of one would not be kept")
        pa = arrow()
        try:
            made = self._named(pa, batch)
            size = _rows_at_once(pa, made)
            for start in range(0, max(made.num_rows, 1), size):
                part = made.slice(start, size)
                self._write(part if part.schema.equals(self.schema) else part.cast(self.schema))
        except TableError:
            raise
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TableError(
                f"{self.target.name}: a batch does not fit the table: {error}; give open_writer a schema, or convert it"
            ) from error
        self.rows += made.num_rows

    def _write(self, made: Any) -> None:
        with _writing(self.target):
            if self._sink is None:
                self._begin()
            self._sink.write_batch(made)

    def _named(self, pa: Any, batch: Any) -> Any:
        """A batch of the table's columns, which the first one sets."""
        names = list(batch) if isinstance(batch, Mapping) else batch.schema.names
        if self.schema is not None and names != self.schema.names:
            raise TableError(f"{self.target.name} has the columns {self.schema.names}, but a batch has {names}")
        if isinstance(batch, Mapping):
            arrays = [
                _array(pa, values, self.schema and self.schema.field(name).type) for name, values in batch.items()
            ]
            batch = pa.RecordBatch.from_arrays(arrays, names)
        if self.schema is None:
            checked_names(names, self.target)
            self.schema = pa.schema([(field.name, _lasting(pa, field.type)) for field in batch.schema])
        return batch

    def _begin(self) -> None:
        suffix, part = self.target.suffix.lower(), str(self._part)
        if suffix in PARQUET:
            self._sink = arrow(".parquet").ParquetWriter(part, self.schema)
        elif suffix in ARROW:
            self._sink = arrow(".ipc").new_file(part, self.schema)
        elif suffix in EXCEL:
            self._sink = ExcelSink(part, self.schema.names)
        else:
            options = arrow(".csv").WriteOptions(delimiter="\t" if suffix == ".tsv" else ",")
            self._sink = arrow(".csv").CSVWriter(part, self.schema, write_options=options)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        place, self._place = self._place, None
        try:
            self._finish(failed=kind is not None)
        except BaseException as late:
            place.__exit__(type(late), late, late.__traceback__)
            raise
        if kind is None:
            with _writing(self.target):
                place.__exit__(None, None, None)
        else:
            place.__exit__(kind, error, trace)

    def _finish(self, failed: bool) -> None:
        if failed:
            with suppress(Exception):  # the file goes anyway
                if self._sink is not None:
                    self._sink.close()
            return
        if self.schema is None:
            raise TableError(f"{self.target.name} is not written: there were no rows, and no schema says its columns")
        with _writing(self.target):
            if self._sink is None:
                self._begin()
            self._sink.close()


def formulas(values: Any) -> int:
    """How many cells of a column of text a spreadsheet would run as a formula: '=1+1', '@sum', '-cmd', but not '-1'.

    >>> formulas(["=cmd|' /C calc'!A0", "-1", "a=b"])
    1
    """
    pa, compute = arrow(), arrow(".compute")
    array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
    if pa.types.is_dictionary(array.type) and isinstance(array, pa.Array):
        own = [formulas([level]) > 0 for level in array.dictionary.to_pylist()]
        return int(np.isin(array.indices.to_numpy(zero_copy_only=False), np.flatnonzero(own)).sum())
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return 0
    return int(compute.sum(compute.match_substring_regex(array, FORMULA)).as_py() or 0)


def _rows_at_once(pa: Any, batch: Any) -> int:
    """Rows whose levels, written out as text, stay below some megabytes."""
    levels = [column.dictionary for column in batch.columns if pa.types.is_dictionary(column.type)]
    longest = max((len(str(level)) for values in levels for level in values.to_pylist()), default=0)
    return max(1, MOST_BYTES // longest) if longest else max(1, batch.num_rows)


def _array(pa: Any, values: Any, kind: Any) -> Any:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if isinstance(values, pa.Array):
        coded = pa.types.is_dictionary(values.type)  # written out some rows at a time
        return values if kind is None or (coded and values.type.value_type == kind) else values.cast(kind)
    made = from_plain(pa, values) if isinstance(values, np.ndarray) else None
    if made is not None and (kind is None or made.type == kind):
        return made
    return pa.array(values, kind, from_pandas=True)  # NaN is missing, as in every table here


def _lasting(pa: Any, kind: Any) -> Any:
    """A column's type by its first batch: without a value yet it may be text, and levels differ between batches."""
    return pa.string() if kind == pa.null() else kind.value_type if pa.types.is_dictionary(kind) else kind


def open_writer(
    path: str | os.PathLike[str], schema: Any = None, *, inputs: Iterable[str | os.PathLike[str]] = ()
) -> Writer:
    """A writer of .csv, .tsv, .parquet, .pq, .feather, .arrow, .ipc or .xlsx; `inputs` are files it must not replace.

    >>> with open_writer("decisions.csv") as writer:  # doctest: +SKIP
    ...     writer.write({"action": np.array(["wait", "treat"])})
    """
    return Writer(check_output(path, inputs), schema)
