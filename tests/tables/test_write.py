"""Tables written to files: what is written comes back, and a failure leaves what was there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gbpl import TableError
from gbpl.tables.read import open_batches, read_table
from gbpl.tables.write import check_output, open_writer

ROWS = {
    "label": np.array(["wait", None, 'say "x", y', "=1+2"], object),
    "gain": np.array([0.1, np.nan, -1e300, 3.0]),
    "row": np.arange(4),
    "deferred": np.array([True, False, True, False]),
}
BACK = {
    "label": ["wait", None, 'say "x", y', "=1+2"] * 2,
    "gain": [0.1, None, -1e300, 3.0] * 2,
    "row": [0, 1, 2, 3] * 2,
    "deferred": [True, False, True, False] * 2,
}
FULL = r"^o.parquet cannot be written: No space left on device; make room, or choose another place$"
OUTPUTS = ["o.csv", "o.tsv", "o.parquet", "o.pq", "o.feather", "o.arrow", "o.IPC"]


@pytest.mark.parametrize("name", OUTPUTS)
def test_what_is_written_comes_back(tmp_path: Path, name: str) -> None:
    with open_writer(tmp_path / name) as writer:
        writer.write(ROWS)
        writer.write(pa.RecordBatch.from_pandas(pd.DataFrame(ROWS), schema=writer.schema))
        assert not (tmp_path / name).exists()
    assert writer.rows == 8
    assert read_table(tmp_path / name).to_pydict() == BACK
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_failure_leaves_what_was_there(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text("precious")

    def fail(error: BaseException | None) -> None:
        with open_writer(path) as writer:
            writer.write(ROWS)
            if error is not None:
                raise error
            writer.write({"label": ROWS["label"]})

    for error in (OSError("disk"), KeyboardInterrupt(), ValueError("x")):
        with pytest.raises(type(error)):
            fail(error)
    with pytest.raises(TableError, match=r"has the columns .*, but a batch has \['label'\]"):
        fail(None)
    with pytest.raises(TableError, match="not written: there were no rows"), open_writer(path):
        pass
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == [name]


def test_a_failure_at_the_very_end_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "o.parquet"
    path.write_text("precious")

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "close", refuse)
    with (
        pytest.raises(TableError, match=FULL),
        open_writer(path) as writer,
    ):
        writer.write(ROWS)
    monkeypatch.undo()
    monkeypatch.setattr(os, "replace", refuse)
    with (
        pytest.raises(TableError, match=FULL),
        open_writer(path) as writer,
    ):
        writer.write(ROWS)
    assert path.read_text() == "precious"
    assert os.listdir(tmp_path) == ["o.parquet"]


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_schema_alone_makes_an_empty_table(tmp_path: Path, name: str) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string())])
    with open_writer(tmp_path / name, schema):
        pass
    with open_batches(tmp_path / name) as batches:
        assert batches.names == ["a", "b"]
        assert list(batches) == []


@pytest.mark.parametrize("name", OUTPUTS)
def test_batches_of_arrow_arrays(tmp_path: Path, name: str) -> None:
    with open_writer(tmp_path / name) as writer:
        for levels in (["b", None], ["c", "b"]):
            coded = pa.array(levels).dictionary_encode()
            writer.write({"coded": coded, "chunks": pa.chunked_array([coded]), "later": np.array([None, None], object)})
        writer.write({"coded": ["d"], "chunks": ["e"], "later": np.array(["x"], object)})
    assert read_table(tmp_path / name).to_pydict() == {
        "coded": ["b", None, "c", "b", "d"],
        "chunks": ["b", None, "c", "b", "e"],
        "later": [None] * 4 + ["x"],
    }


@pytest.mark.parametrize(
    "batch", [{"a": np.array([1, "x"], object)}, {"a": [1], "b": [1, 2]}, {"a": [[1]]}, {"a": np.zeros((2, 2))}]
)
def test_what_no_table_holds(tmp_path: Path, batch: dict[str, Any]) -> None:
    with pytest.raises(TableError, match=r"o.csv"), open_writer(tmp_path / "o.csv") as writer:
        writer.write(batch)
    assert os.listdir(tmp_path) == []


def test_a_column_keeps_its_type(tmp_path: Path) -> None:
    with open_writer(tmp_path / "o.csv") as writer:
        writer.write({"a": [1]})
        with pytest.raises(TableError, match="does not fit the table"):
            writer.write({"a": ["x"]})
        writer.write({"a": [2.0]})
    assert read_table(tmp_path / "o.csv").to_pydict() == {"a": [1, 2]}
    with pytest.raises(TableError, match="with block"):
        writer.write({"a": [1]})


def test_outputs_that_cannot_be(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a\n1\n")
    (tmp_path / "folder.csv").mkdir()
    os.link(path, tmp_path / "hard.csv")
    (tmp_path / "soft.csv").symlink_to(path)
    for open_it in (check_output, open_writer):
        with pytest.raises(TableError, match=r"o.ods ends in '.ods', so its format is not known; those written are"):
            open_it(tmp_path / "o.ods")
        with pytest.raises(TableError, match=r"o ends in nothing"):
            open_it(tmp_path / "o")
        with pytest.raises(TableError, match=r"there is no folder .*nowhere, so o.csv cannot .*; make it first"):
            open_it(tmp_path / "nowhere" / "o.csv")
        with pytest.raises(TableError, match=r"folder.csv is a folder; name a file in it"):
            open_it(tmp_path / "folder.csv")
        for same in (path, tmp_path / "hard.csv", tmp_path / "soft.csv", tmp_path / "folder.csv" / ".." / "t.csv"):
            with pytest.raises(TableError, match="is the file that is read; write to another"):
                open_it(same, inputs=[tmp_path / "o.csv", path])
    assert check_output(tmp_path / "new.csv", [path]) == tmp_path / "new.csv"
    assert path.read_text() == "a\n1\n"
