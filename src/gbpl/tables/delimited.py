"""Delimited text: header, delimiter and encoding, and in which line something is wrong.

Text has a header. A cell is missing if it is empty or one of `MISSING_TEXTS`, quoted or not, with spaces around it or
not; in a column that a stream only copies, only if it is empty. A column without a name is called by its place, such as
'column 3'.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

from gbpl.tables.arrow_arrays import text_array
from gbpl.tables.formats import PACKED, arrow, checked_names, reading, suffixes
from gbpl.tables.frames import DELIMITERS, TableError, nearest

__all__ = ["MISSING_TEXTS", "DelimitedText", "csv_options", "parsed", "text_is_long", "with_codes", "with_missing"]

MISSING_TEXTS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", ".")
NULLS = tuple(f"{before}{word}{after}" for word in MISSING_TEXTS for before in ("", " ") for after in ("", " "))
BLOCK = 1 << 20  # bytes of text parsed at a time; a row is shorter
LONGEST_HEADER = 1 << 23
LONG_TEXT = 1 << 26
PADDED = re.compile(rb'(?:^|[,;\t|"\n ])0[0-9]')  # a cell that may begin so
END = "\0"  # a line that no text has
MAGIC = (
    (b"PAR1", "a Parquet file; rename it to .parquet"),
    (b"ARROW1", "an Arrow file; rename it to .arrow"),
    (b"FEA1", "a Feather file; rename it to .feather"),
    (b"PK\x03\x04", "a zip or Excel file; rename it to .xlsx, or export it as CSV"),
    (b"\xd0\xcf\x11\xe0", "an Excel file; export it as CSV"),
    (b"\x1f\x8b", "compressed; rename it to end in .gz"),
    (b"BZh9", "compressed; rename it to end in .bz2"),
    (b"\x28\xb5\x2f\xfd", "compressed; rename it to end in .zst"),
    (b"\xff\xfe", "UTF-16 text; give its encoding: --encoding utf-16"),
    (b"\xfe\xff", "UTF-16 text; give its encoding: --encoding utf-16"),
)


class DelimitedText(io.RawIOBase):
    """The rows of a delimited file as UTF-8, checked on the way, after a header that is read at once."""

    def __init__(self, path: Path, encoding: str, delimiter: str | None) -> None:
        self.path, self.encoding = path, _checked_encoding(encoding)
        self.decoder = codecs.getincrementaldecoder(self.encoding)("strict")
        self.packing = PACKED.get(suffixes(path)[1])
        self.offset = self.lines = self.quotes = 0
        self.padded = False
        self.pending = b""
        self.ended = False
        with reading(path):
            self.raw = arrow().input_stream(str(path), compression=self.packing)
        self.names, self.delimiter = self._header(_checked_delimiter(delimiter, path))
        self.quotes = self.pending.count(b'"')

    def again(self) -> DelimitedText:
        return DelimitedText(self.path, self.encoding, self.delimiter)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        if not self.closed:
            self.raw.close()
        super().close()

    def read(self, size: int = -1) -> bytes:
        """As many bytes as asked for, until the end: pyarrow treats what it gets as a block, which must hold a row."""
        while not self.ended and (size < 0 or len(self.pending) <= size):
            self._fill()
        size = len(self.pending) if size < 0 else size
        if 1 < size < len(self.pending) and self.pending[size - 1 : size] == b"\r":
            size -= 1  # pyarrow would lose the \n of a cell's \r\n that is cut between two blocks
        taken, self.pending = self.pending[:size], self.pending[size:]
        return taken

    def readinto(self, buffer: Any) -> int:
        taken = self.read(len(buffer))
        buffer[: len(taken)] = taken
        return len(taken)

    def has_rows(self) -> bool:
        while not self.ended and not self.pending.strip():
            self._fill()
        return bool(self.pending.strip())

    def skip(self) -> None:
        """Go to the end, keeping nothing: quotes are counted on the way."""
        while not self.ended:
            self._fill()
            self.pending = b""

    def _fill(self) -> None:
        with reading(self.path):
            chunk = self.raw.read(BLOCK)
        if self.offset == 0:
            chunk = self._checked_start(chunk)
        held = self.decoder.getstate()[0]
        try:
            text = self.decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            raise self._not_text(held + chunk, error.start, self.offset - len(held)) from None
        made = chunk if self.encoding == "utf-8" else (text if self.offset else text.removeprefix("\ufeff")).encode()
        if b"\0" in made:
            line = self.lines + made[: made.index(b"\0")].count(b"\n") + 1
            what = f"{self.path.name} has a NUL byte in line {line}"
            raise TableError(f"{what}: it is not text, or in another encoding, such as --encoding utf-16")
        self.ended = not chunk
        self.offset += len(chunk)
        self.lines += made.count(b"\n")
        self.quotes += made.count(b'"')
        self.padded = self.padded or PADDED.search(made) is not None
        self.pending += made

    def _checked_start(self, chunk: bytes) -> bytes:
        if self.encoding == "utf-8":
            what = next((what for magic, what in MAGIC if chunk.startswith(magic)), None)
            if what is not None:
                raise TableError(f"{self.path.name} is {what}")
            if chunk.startswith(codecs.BOM_UTF8):
                self.offset = len(codecs.BOM_UTF8)
                return chunk[len(codecs.BOM_UTF8) :]
        return chunk

    def _not_text(self, data: bytes, start: int, base: int) -> TableError:
        line = self.lines + data[:start].count(b"\n") + 1
        other = "utf-16" if b"\0" in data else "latin-1" if self.encoding == "utf-8" else "utf-8"
        return TableError(
            f"{self.path.name} is not {self.encoding.upper()}: byte {base + start:,}, in line {line}, is "
            f"0x{data[start]:02x}; give its encoding, such as --encoding {other}"
        )

    def _header(self, delimiter: str | None) -> tuple[list[str], str]:
        """Names and delimiter; what follows the header stays pending."""
        headers: dict[str, tuple[list[str], int]] = {}
        marks = [delimiter] if delimiter else DELIMITERS
        while len(headers) < len(marks):
            self._fill()
            text = self.pending.decode("utf-8", "ignore")  # a character cut in two comes again, whole
            tried = {mark: self._record(text, mark) for mark in marks}
            headers = {mark: record for mark, record in tried.items() if record is not None}
            if len(headers) < len(marks) and (self.ended or len(text) > LONGEST_HEADER):
                why = "a first row that does not end; is a quote left open?" if text.strip() else "no header"
                raise TableError(f"{self.path.name} has {why}")
        mark = max(headers, key=lambda mark: len(headers[mark][0]))
        cells, end = headers[mark]
        self.header_lines = len(io.StringIO(text[:end], newline="").readlines())
        self.pending = self.pending[len(text[:end].encode()) :]
        names = [cell or f"column {number}" for number, cell in enumerate(cells, 1)]
        return checked_names(names, self.path), mark

    def _record(self, text: str, delimiter: str) -> tuple[list[str], int] | None:
        """The first row that is not blank and where it ends, or None if more of the file is needed to know."""
        lines = io.StringIO(f"{text}\n{END}" if self.ended else text, newline="")
        with suppress(csv.Error, StopIteration):
            cells = next(row for row in csv.reader(lines, delimiter=delimiter) if any(cell.strip() for cell in row))
            if lines.tell() < len(lines.getvalue()):
                return cells, min(lines.tell(), len(text))
        return None


def _checked_encoding(encoding: str) -> str:
    try:
        name = codecs.lookup(encoding).name
        codecs.getincrementaldecoder(name)
        "".encode(name)  # refuses codecs that are not of text
    except LookupError:
        hint = nearest(encoding, ["utf-8", "utf-16", "latin-1", "cp1252", "shift_jis", "gb18030"])
        raise TableError(f"encoding {encoding!r} is not known{hint or '; try utf-8, latin-1 or utf-16'}") from None
    return "utf-8" if name in ("utf-8", "utf-8-sig") else name


def _checked_delimiter(delimiter: str | None, path: Path) -> str | None:
    if delimiter is None:
        return "\t" if suffixes(path)[0] == ".tsv" else None
    given = {"tab": "\t", "\\t": "\t"}.get(delimiter, delimiter)
    if len(given) != 1 or not given.isascii() or given in '"\r\n\0':
        raise TableError(f"delimiter must be one character, such as ',' or ';' or tab; got {delimiter!r}")
    return given


def _records(text: DelimitedText) -> Iterator[tuple[int, list[str]]]:
    """Rows below the header by Python's csv, with the line they start in; slow, to find what pyarrow refused."""
    lines = io.TextIOWrapper(io.BufferedReader(text), encoding="utf-8", newline="")
    reader = csv.reader(chain(lines, ["\n", END]), delimiter=text.delimiter)
    line = text.header_lines + 1
    try:
        for cells in reader:
            yield line, cells
            line = text.header_lines + reader.line_num + 1
    except csv.Error:  # a cell without end
        yield line, [END, END]


def _trouble(text: DelimitedText) -> str:
    """Where rows are ragged or a quote stays open; empty if nowhere."""
    with text.again() as fresh:
        for line, cells in _records(fresh):
            if any(END in cell for cell in cells) and cells != [END]:
                return f"a quote opened in line {line} is not closed"
            if cells and cells != [END] and len(cells) != len(text.names):
                return f"line {line} has {len(cells)} cell(s), but the header has {len(text.names)}"
    return ""


def _line_of(text: DelimitedText, column: int, value: str) -> str:
    with text.again() as fresh:
        rows = (line for line, cells in _records(fresh) if len(cells) > column and cells[column].strip() == value)
        line = next(rows, None)
    return f" in line {line}" if line is not None else ""


@contextmanager
def parsed(text: DelimitedText, kinds: Mapping[str, str]) -> Iterator[None]:
    """What pyarrow's parser finds wrong, with column and line."""
    name = text.path.name
    try:
        yield
    except arrow().ArrowInvalid as error:
        bad = re.search(r"CSV column #(\d+): .*conversion error to .*: invalid value '(.*)'", str(error), re.DOTALL)
        if bad:
            column, value = text.names[int(bad[1])], bad[2]
            wanted = "true or false" if kinds.get(column) == "boolean" else "numbers"
            where = _line_of(text, int(bad[1]), value)
            raise TableError(
                f"{name}: column {column!r} must be {wanted}, but is {value!r:.60}{where}; correct it, or write NA"
            ) from error
        long = f"a row is longer than {BLOCK:,} bytes" if "straddl" in str(error) else str(error).splitlines()[0]
        raise TableError(f"{name}: {_trouble(text) or long}; correct the file, or give another --delimiter") from error
    if text.ended and text.quotes % 2:  # rows may have gone into one cell, unseen
        where = _trouble(text)
        if where:
            raise TableError(f"{name}: {where}; correct the file")


def csv_options(text: DelimitedText, columns: Sequence[str], kinds: Mapping[str, str] | None) -> dict[str, Any]:
    pa, source = arrow(), arrow(".csv")
    typed = {"number": pa.float64(), "boolean": pa.bool_()}
    types = None
    if kinds is not None:  # a stream would type a column by its first block
        types = {name: typed.get(kinds.get(name, ""), pa.string()) for name in columns}
    return {
        "read_options": source.ReadOptions(column_names=text.names, block_size=BLOCK),
        "parse_options": source.ParseOptions(delimiter=text.delimiter, newlines_in_values=True),
        "convert_options": source.ConvertOptions(
            column_types=types, include_columns=columns, null_values=NULLS, strings_can_be_null=kinds is None
        ),
    }


def text_is_long(path: Path) -> bool:
    """Whether a quote that is left open could fill the memory: packed text may be of any length."""
    return suffixes(path)[1] != "" or path.stat().st_size > LONG_TEXT


def with_codes(text: DelimitedText, table: Any) -> Any:
    """A table in which whole numbers with leading zeros, such as the zip code 01002, are the text they were."""
    pa, compute = arrow(), arrow(".compute")
    whole = [field.name for field in table.schema if pa.types.is_integer(field.type)]
    if not (text.padded and whole):
        return table
    with text.again() as fresh:
        options = csv_options(fresh, whole, None)
        options["convert_options"].column_types = {name: pa.string() for name in whole}
        texts = arrow(".csv").read_csv(fresh, **options)
    for name in whole:
        if compute.any(compute.match_substring_regex(texts.column(name), r"^\s*[-+]?0[0-9]")).as_py():
            table = table.set_column(table.schema.get_field_index(name), name, texts.column(name))
    return table


def with_missing(batch: Any, kinds: Mapping[str, str]) -> Any:
    """A stream's batch in which NA is missing in the columns of `kinds`; elsewhere it may be Namibia."""
    pa, compute = arrow(), arrow(".compute")
    columns = []
    for field, values in zip(batch.schema, batch.columns, strict=True):
        if field.type == pa.string():
            words = text_array(pa, [*NULLS] if field.name in kinds else [""])
            values = compute.if_else(compute.is_in(values, value_set=words), pa.nulls(1, pa.string())[0], values)
        columns.append(values)
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)
