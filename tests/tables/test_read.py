"""Files of tables: what is read, what is refused and why, and batches in little memory."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from gbpl import Encoder, TableError
from gbpl.tables import delimited
from gbpl.tables.read import open_batches, read_table

N = 1000
TABLE = pa.table(
    {
        "x": pa.array([None if i % 9 == 0 else i / 7 for i in range(N)]),
        "whole": pa.array(range(N)),
        "région": pa.array(
            [None if i % 5 == 0 else ["nörd", "a,b", 'say "hi"', "two\nlines"][i % 4] for i in range(N)]
        ),
        "yes": pa.array([i % 3 == 0 for i in range(N)]),
        "day": pa.array([dt.date(2024, 1, 1 + i % 28) for i in range(N)]),
    }
)
KINDS = {"x": "number", "whole": "number", "région": "category", "yes": "boolean"}


def csv_bytes(delimiter: str = ",") -> bytes:
    lines = [delimiter.join(TABLE.column_names)]
    for row in TABLE.to_pylist():
        cells = ["" if v is None else f"{v}" if not isinstance(v, str) else v.replace('"', '""') for v in row.values()]
        cells[2] = f'"{cells[2]}"' if cells[2] else ""
        lines.append(delimiter.join(cells))
    return ("\n".join(lines) + "\n").encode()


def zstd(data: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(data)
    return sink.getvalue().to_pybytes()


def stream_file(path: Path) -> None:
    with ipc.new_stream(path, TABLE.schema) as sink:
        sink.write_table(TABLE, max_chunksize=300)


def giant_file(path: Path, **options: Any) -> None:
    with ipc.new_file(path, TABLE.schema, options=ipc.IpcWriteOptions(**options)) as sink:
        sink.write_batch(TABLE.combine_chunks().to_batches()[0])


FILES: dict[str, Callable[[Path], Any]] = {
    "t.csv": lambda path: path.write_bytes(csv_bytes()),
    "semicolon.csv": lambda path: path.write_bytes(csv_bytes(";")),
    "bar.TXT": lambda path: path.write_bytes(csv_bytes("|")),
    "tab.tsv": lambda path: path.write_bytes(csv_bytes("\t")),
    "bom.csv": lambda path: path.write_bytes(b"\xef\xbb\xbf" + csv_bytes()),
    "crlf.csv": lambda path: path.write_bytes(csv_bytes().replace(b"\n", b"\r\n").replace(b"two\r\n", b"two\n")),
    "t.csv.gz": lambda path: path.write_bytes(gzip.compress(csv_bytes())),
    "members.csv.gz": lambda path: path.write_bytes(
        gzip.compress(csv_bytes()[:900]) + gzip.compress(csv_bytes()[900:])
    ),
    "t.csv.bz2": lambda path: path.write_bytes(bz2.compress(csv_bytes())),
    "t.tsv.zst": lambda path: path.write_bytes(zstd(csv_bytes("\t"))),
    "one.parquet": lambda path: pq.write_table(TABLE, path),
    "groups.pq": lambda path: pq.write_table(TABLE, path, row_group_size=70),
    "t.feather": lambda path: feather.write_feather(TABLE, path, chunksize=170),
    "giant.arrow": giant_file,
    "packed.ipc": lambda path: giant_file(path, compression="zstd"),
    "stream.arrow": stream_file,
}


def made_file(folder: Path, name: str) -> Path:
    FILES[name](folder / name)
    return folder / name


def written(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def gathered(path: Path, **options: Any) -> dict[str, list[Any]]:
    with open_batches(path, **options) as batches:
        return pa.Table.from_batches(list(batches)).to_pydict()


@pytest.mark.parametrize("name", FILES)
def test_every_format_holds_the_same_table(tmp_path: Path, name: str) -> None:
    path = made_file(tmp_path, name)
    table = read_table(path)
    assert table.schema.names == TABLE.schema.names
    assert table.schema.types == TABLE.schema.types
    assert table.to_pydict() == TABLE.to_pydict()
    part = read_table(str(path), columns=["yes", "x"])
    assert part.schema.names == ["yes", "x"]
    assert part.to_pydict() == TABLE.select(["yes", "x"]).to_pydict()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("rows", [64, 65_536])
def test_every_format_in_batches(tmp_path: Path, name: str, rows: int) -> None:
    path = made_file(tmp_path, name)
    wanted = ["yes", "région", "x", "whole"]
    with open_batches(path, columns=wanted, kinds=KINDS, rows=rows) as batches:
        assert batches.names == TABLE.schema.names
        assert batches.total_rows == (None if path.suffix not in (".parquet", ".pq", ".feather", ".arrow", ".ipc") or
                                      name == "stream.arrow" else N)  # fmt: skip
        parts = list(batches)
        again = list(batches)
    assert all(isinstance(part, pa.RecordBatch) and 0 < part.num_rows <= rows for part in parts)
    assert all(part.schema.names == wanted for part in parts)
    together = pa.Table.from_batches(parts)
    assert together.to_pydict() == TABLE.select(wanted).to_pydict()
    assert pa.Table.from_batches(again).equals(together)


@pytest.mark.parametrize("name", FILES)
def test_batches_are_encoded_as_the_whole_table(tmp_path: Path, name: str) -> None:
    path = made_file(tmp_path, name)
    encoder, _ = Encoder.fit(read_table(path), ["x", "région", "yes"])
    whole, _ = encoder.apply(TABLE)
    with open_batches(path, columns=encoder.columns, kinds=encoder.arrow_types(), rows=99) as batches:
        parts = [encoder.apply(batch)[0] for batch in batches]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_all_columns_unless_named(tmp_path: Path) -> None:
    assert gathered(made_file(tmp_path, "giant.arrow")) == TABLE.to_pydict()
    assert gathered(written(tmp_path, "a,b\n1,x\n")) == {"a": ["1"], "b": ["x"]}


def test_what_is_missing_in_text(tmp_path: Path) -> None:
    words = ["", "NA", "N/A", "NaN", "nan", "null", "NULL", "None", ".", '""', '"NA"', " NA", "NA ", " . "]
    text = "i,number,text\n" + "".join(f"1,{word},{word}\n" for word in words) + "1,2.5,x\n1,3,na\n"
    table = read_table(written(tmp_path, text))
    assert table.column("number").to_pylist() == [None] * len(words) + [2.5, 3.0]
    assert table.column("text").to_pylist() == [None] * len(words) + ["x", "na"]
    assert gathered(tmp_path / "t.csv", kinds={"number": "number"})["number"] == [None] * len(words) + [2.5, 3.0]


def test_what_is_missing_in_a_column_that_is_only_copied(tmp_path: Path) -> None:
    words = ["NA", " NA ", '"NA"', "None", ".", " ", "", '""', "x"]
    text = "decides,copied\n" + "".join(f"{word},{word}\n" for word in words)
    got = gathered(written(tmp_path, text), kinds={"decides": "category"})
    assert got["decides"] == [None] * 8 + ["x"]
    assert got["copied"] == ["NA", " NA ", "NA", "None", ".", " ", None, None, "x"]


def test_a_column_is_not_typed_by_its_first_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 64)
    text = "id,level,x\n" + "1,10,1\n" * 50 + "2,ten,1.5\n" + "03,,\n"
    got = gathered(written(tmp_path, text), kinds={"x": "number", "level": "category"})
    assert got["level"] == ["10"] * 50 + ["ten", None]
    assert got["x"] == [1.0] * 50 + [1.5, None]
    assert got["id"][-1] == "03"  # nothing said of it: text as it stands


def test_lines_within_a_cell_may_lie_in_two_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 100)
    path = made_file(tmp_path, "t.csv")
    assert read_table(path).to_pydict() == TABLE.to_pydict()
    assert gathered(path)["région"] == TABLE.column("région").to_pylist()


@pytest.mark.parametrize("block", range(40, 50))
def test_line_ends_within_a_cell_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    monkeypatch.setattr(delimited, "BLOCK", block)
    path = written(tmp_path, "a,b\r\n" + '1,"x\r\ny\rz\n"\r\n' * 40)
    assert gathered(path)["b"] == read_table(path).column("b").to_pylist() == ["x\r\ny\rz\n"] * 40


@pytest.mark.parametrize(
    ("text", "names", "cells"),
    [
        ("a;b\n1,5;2\n", ["a", "b"], {"a": ["1,5"], "b": [2]}),
        ('"a,x";b\n1;2\n', ["a,x", "b"], {"a,x": [1], "b": [2]}),
        ('"a\nb",c\n1,"x\ny"\n', ["a\nb", "c"], {"a\nb": [1], "c": ["x\ny"]}),
        ("\n,\na,b\n\n1,2\n\n", ["a", "b"], {"a": [1], "b": [2]}),
        ("a,,b,\n1,2,3,\n", ["a", "column 2", "b", "column 4"], {"column 2": [2], "column 4": [None]}),
        ("a\n1\n", ["a"], {"a": [1]}),
        ("a,b\r1,2\r", ["a", "b"], {"a": [1], "b": [2]}),
        ("a,b\n1,2", ["a", "b"], {"a": [1], "b": [2]}),
        ('a,b\n5" pipe,"say ""x"""\n', ["a", "b"], {"a": ['5" pipe'], "b": ['say "x"']}),
    ],
)
def test_headers_and_quotes(tmp_path: Path, text: str, names: list[str], cells: dict[str, list[Any]]) -> None:
    table = read_table(written(tmp_path, text))
    assert table.schema.names == names
    assert {name: table.column(name).to_pylist() for name in cells} == cells


def test_a_delimiter_may_be_given(tmp_path: Path) -> None:
    assert read_table(written(tmp_path, "a,b;c\n1,2;3\n"), delimiter=";").schema.names == ["a,b", "c"]
    assert read_table(written(tmp_path, "a,b\tc\n1,2\t3\n"), delimiter="tab").schema.names == ["a,b", "c"]
    assert read_table(written(tmp_path, "a,b;c\n1,2;3\n", "t.tsv"), delimiter=";").schema.names == ["a,b", "c"]
    with pytest.raises(TableError, match=r"delimiter must be one character.*got '\|\|'"):
        read_table(tmp_path / "t.csv", delimiter="||")


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "utf-16-le", "utf-8-sig", "shift_jis"])
def test_other_encodings(tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 63)  # characters are cut in two
    word = "ソ表" if encoding == "shift_jis" else "é'ü"
    text = f"{word},b\n" + "".join(f"{word}{i},{i}\n" for i in range(200))
    path = written(tmp_path, (("\ufeff" if encoding == "utf-16-le" else "") + text).encode(encoding))
    assert read_table(path, encoding=encoding).column(word).to_pylist() == [f"{word}{i}" for i in range(200)]
    assert gathered(path, encoding=encoding)[word] == [f"{word}{i}" for i in range(200)]


@pytest.mark.parametrize("read", [read_table, gathered])
@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"^t.csv is empty: it has no header and no rows$"),
        (b" \n\n", "t.csv has no header"),
        (b"a,b,a\n1,2,3\n", r"two columns named 'a' \(columns 1 and 3\); rename one"),
        (b"column 2,\n1,2\n", "two columns named 'column 2'"),
        (b"a,b\n1,2\n3\n4,5\n", r"line 3 has 1 cell\(s\), but the header has 2; correct the file"),
        (b'a,b\n"1\n2",3\n\n4,5,6\n', r"line 5 has 3 cell\(s\), but the header has 2"),
        (b'"x\ny",b\n1,2\n4,5,6\n', r"line 4 has 3 cell\(s\)"),
        (b'a,b\n1,2\n3,"4\n5,6\n7,8\n', "a quote opened in line 3 is not closed"),
        (b'a,"b\n1,2\n', "a first row that does not end; is a quote left open"),
        (b"a,b\n1,caf\xe9\n", r"is not UTF-8: byte 9, in line 2, is 0xe9; .* --encoding latin-1"),
        (b"\xef\xbb\xbfa,b\n1,caf\xe9\n", r"byte 12, in line 2, is 0xe9"),
        (b"caf\xe9,b\n1,2\n", "byte 3, in line 1"),
        (b"a,b\n1,2\n3,\xc3", "byte 10, in line 3, is 0xc3"),
        ("a,b\n1,2\n".encode("utf-16"), "is UTF-16 text; give its encoding: --encoding utf-16"),
        ("a,b\n1,2\n".encode("utf-16-be"), "a NUL byte in line 1: .* --encoding utf-16"),
        (b"a,b\n1,2\n3,\0\n", "a NUL byte in line 3"),
        (b"PAR1....PAR1", "is a Parquet file; rename it"),
        (b"PK\x03\x04....", "is a zip or Excel file; rename it to .xlsx, or export it as CSV"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0), "is compressed; rename it to end in .gz"),
    ],
)
def test_text_that_cannot_be_read(tmp_path: Path, read: Callable[[Path], Any], content: bytes, message: str) -> None:
    with pytest.raises(TableError, match=message):
        read(written(tmp_path, content))


def test_the_place_of_a_byte_is_that_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 50)
    content = b"a,b\n" + b"1,\xc3\xa9\n" * 99 + b"1,\xe9\n"
    with pytest.raises(TableError, match=f"byte {len(content) - 2}, in line 101, is 0xe9"):
        read_table(written(tmp_path, content))


@pytest.mark.parametrize("name", ["t.csv", "t.tsv.zst", "t.parquet", "t.feather", "stream.arrow"])
def test_no_rows(tmp_path: Path, name: str) -> None:
    empty = TABLE.slice(0, 0)
    path = tmp_path / name
    if name == "t.parquet":
        pq.write_table(empty, path)
    elif name == "t.feather":
        feather.write_feather(empty, path)
    elif name == "stream.arrow":
        with ipc.new_stream(path, empty.schema):
            pass
    else:
        content = csv_bytes("\t" if "tsv" in name else ",").partition(b"\n")[0] + b"\n\n"
        path.write_bytes(zstd(content) if name.endswith("zst") else content)
    with pytest.raises(TableError, match=f"{name} has (a header|columns) but no rows"):
        read_table(path)
    with open_batches(path) as batches:
        assert list(batches) == []
        assert batches.names == TABLE.schema.names


def test_files_that_are_not_there(tmp_path: Path) -> None:
    written(tmp_path, "a\n1\n", "people.csv")
    with pytest.raises(TableError, match=r"poeple.csv does not exist; did you mean 'people.csv'\?"):
        read_table(tmp_path / "poeple.csv")
    with pytest.raises(TableError, match=r"zzz.parquet does not exist$"):
        read_table(tmp_path / "zzz.parquet")
    with pytest.raises(TableError, match=r"does not exist, nor does its folder .*nowhere$"):
        read_table(tmp_path / "nowhere" / "people.csv")
    with pytest.raises(TableError, match="is a folder; name a file in it"):
        read_table(tmp_path)
    for name in ("people.ods", "people", "people.parquet.gz", "people.gz"):
        with pytest.raises(TableError, match=rf"{name} ends in .*, so its format is not known; those read are \.csv, "):
            read_table(written(tmp_path, "a\n1\n", name))


@pytest.mark.parametrize("read", [read_table, gathered])
@pytest.mark.parametrize("name", ["one.parquet", "t.feather", "giant.arrow", "packed.ipc", "stream.arrow", "t.csv.gz",
                                  "t.csv.bz2", "t.tsv.zst"])  # fmt: skip
def test_files_cut_short(tmp_path: Path, name: str, read: Callable[[Path], Any]) -> None:
    path = made_file(tmp_path, name)
    whole = path.read_bytes()
    for keep in (len(whole) - 30, len(whole) // 2, 12, 5):
        path.write_bytes(whole[:keep])
        with pytest.raises(TableError, match=r"cannot be read|that can be read|no header"):
            read(path)
    path.write_bytes(b"")
    with pytest.raises(TableError, match="is empty"):
        read(path)


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "t.feather", "t.csv.gz"])
def test_files_of_another_format(tmp_path: Path, name: str) -> None:
    with pytest.raises(TableError, match=f"{name} (is not|cannot)"):
        read_table(written(tmp_path, csv_bytes(), name))


def test_columns_that_a_file_lacks(tmp_path: Path) -> None:
    for name in ("t.csv", "one.parquet", "giant.arrow", "stream.arrow"):
        path = made_file(tmp_path, name)
        with pytest.raises(TableError, match=rf"{name} has no column 'Region'; did you mean 'région'\?"):
            read_table(path, columns=["Region"])
        with pytest.raises(TableError, match=rf"{name} has no column 'Region'"):
            open_batches(path, columns=["x", "Region"])
        with pytest.raises(TableError, match=r"no column of .* is asked for"):
            open_batches(path, columns=[])
    with pytest.raises(TableError, match="rows must be >= 1, got 0"):
        open_batches(path, rows=0)


@pytest.mark.parametrize("name", ["twice.parquet", "twice.arrow"])
def test_names_twice_in_other_formats(tmp_path: Path, name: str) -> None:
    twice = pa.table([[1], [2]], names=["a", "a"])
    path = tmp_path / name
    if path.suffix == ".parquet":
        pq.write_table(twice, path)
    else:
        with ipc.new_file(path, twice.schema) as sink:
            sink.write_table(twice)
    with pytest.raises(TableError, match="two columns named 'a'"):
        read_table(path)


def test_old_feather_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="Feather file of version 1; write it again"):
        read_table(written(tmp_path, b"FEA1" + bytes(60), "old.feather"))


def test_unknown_encoding(tmp_path: Path) -> None:
    path = written(tmp_path, "a\n1\n")
    with pytest.raises(TableError, match=r"encoding 'latin1x' is not known; did you mean 'latin-1'\?"):
        read_table(path, encoding="latin1x")
    with pytest.raises(TableError, match="encoding 'base64' is not known"):
        read_table(path, encoding="base64")


@pytest.mark.parametrize(
    ("bad", "kinds", "message"),
    [
        ("1,old", {"b": "number"}, "column 'b' must be numbers, but is 'old' in line 503; correct it, or write NA"),
        ("1, o'k ", {"b": "number"}, "column 'b' must be numbers, but is \"o'k\" in line 503"),
        ("1,2", {"a": "number", "b": "boolean"}, "column 'b' must be true or false, but is '2' in line 503"),
    ],
)
def test_bad_values_are_placed(tmp_path: Path, bad: str, kinds: dict[str, str], message: str) -> None:
    path = written(tmp_path, "a,b\n" + "1,1\n" * 500 + "\n" + bad + "\n" + "1,1\n")
    with open_batches(path, columns=["b"], kinds=kinds) as batches, pytest.raises(TableError, match=message):
        list(batches)


def test_breaking_off_leaves_nothing_open(tmp_path: Path) -> None:
    for name in FILES:
        path = made_file(tmp_path, name)
        before = len(os.listdir("/proc/self/fd"))
        with open_batches(path, rows=10) as batches:
            next(iter(batches))
        assert len(os.listdir("/proc/self/fd")) == before


MEASURE = """
import sys
import pyarrow.csv, pyarrow.parquet, pyarrow.ipc
from gbpl.tables.read import open_batches

def memory(key):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(key))

before, rows, total = memory("VmRSS"), 0, 0.0
with open_batches(sys.argv[1], columns=["x0", "x1", "x2"], kinds={"x0": "number"}) as batches:
    for batch in batches:
        rows += batch.num_rows
        total += float(batch.column("x0").to_numpy(zero_copy_only=False).sum())
        batch.column("x2")[0]
print(rows, total, memory("VmHWM") - before)
"""


def big_file(path: Path, rows: int) -> None:
    """Three columns of eight bytes; text of 30 bytes a row."""
    if path.suffix == ".csv":
        line = b"1.0000000,2.0000000,3.0000000\n"
        with path.open("wb") as sink:
            sink.write(b"x0,x1,x2\n")
            for _ in range(rows // 10_000):
                sink.write(line * 10_000)
        return
    table = pa.table({"x0": np.ones(rows), "x1": np.arange(rows), "x2": np.arange(rows) / 7})
    if path.suffix == ".arrow":
        with ipc.new_file(path, table.schema) as sink:
            sink.write_batch(table.to_batches()[0])
    else:
        pq.write_table(table, path, row_group_size=rows if "one" in path.name else 100_000, compression="none",
                       use_dictionary=False)  # fmt: skip


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="measures memory as Linux tells it")
@pytest.mark.parametrize("name", ["one.parquet", "groups.parquet", "giant.arrow", "t.csv"])
def test_batches_need_little_memory(tmp_path: Path, name: str) -> None:
    rows = 6_000_000
    path = tmp_path / name
    big_file(path, rows)
    size = path.stat().st_size / 2**20
    done = subprocess.run([sys.executable, "-c", MEASURE, str(path)], capture_output=True, text=True, check=True)
    path.unlink()
    read, total, used = (float(word) for word in done.stdout.split())
    assert (read, total) == (rows, rows)
    assert size > 135
    assert used < (140 if name == "t.csv" else 90), f"{used:.0f} MB to go through a file of {size:.0f} MB"


def test_pyarrow_is_asked_for_when_needed(tmp_path: Path) -> None:
    path = written(tmp_path, "a\n1\n")
    code = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"
        "from gbpl.tables.read import read_table\n"
        "try:\n"
        "    read_table(sys.argv[1])\n"
        "except ImportError as error:\n"
        "    sys.exit(0 if \"pip install 'gbpl[cli]'\" in str(error) else str(error))\n"
        "sys.exit('read without pyarrow')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_codes_with_leading_zeros_are_not_numbers(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"people{suffix}"
    text = "zip,age,month\n" + "".join(
        f"{code},{20 + n},{n % 12 + 1:02}\n" for n, code in enumerate(["01002", "94110"] * 30)
    )
    file.write_bytes(gzip.compress(text.encode()) if suffix.endswith("gz") else text.encode())
    table = read_table(file)
    assert [str(kind) for kind in table.schema.types] == ["string", "int64", "string"]
    assert table.column("zip").to_pylist()[:2] == ["01002", "94110"]
    encoder, notes = Encoder.fit(table)
    assert encoder.names[0] == "zip=94110"
    assert "column 'zip': codes such as '01002' are read as categories" in notes


def test_a_quote_left_open_is_found_before_packed_text_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "people.csv.gz"
    file.write_bytes(gzip.compress(b"x,y\n" + b"1,abc\n" * 300_000 + b'2,"open\n' + b"1,abc\n" * 10))
    read: list[Any] = []
    monkeypatch.setattr("pyarrow.csv.read_csv", lambda *_, **__: read.append(1))
    with pytest.raises(TableError, match="a quote opened in line 300002 is not closed"):
        read_table(file)
    assert not read
