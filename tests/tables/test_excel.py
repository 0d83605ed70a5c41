"""Excel workbooks in and out: the same table as in a CSV file, text that stays text, cells that are named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import openpyxl
import pytest

from gbpl.tables.frames import TableError
from gbpl.tables.read import open_batches, read_table
from gbpl.tables.write import open_writer


def book(path: Path, *rows: list[object]) -> Path:
    made = openpyxl.Workbook()
    for row in rows:
        made.active.append(row)
    made.save(path)
    return path


def test_a_workbook_is_the_table_that_its_csv_file_is(tmp_path: Path) -> None:
    rows = [["age", "city", "vip", "paid"], [31, "Bonn", True, 1.5], [None, "NA", False, 2], [40, "Ulm", True, 3]]
    path = book(tmp_path / "t.xlsx", *rows, [None, None, None, None])
    text = "\n".join(",".join("" if cell is None else str(cell) for cell in row) for row in rows)
    (tmp_path / "t.csv").write_text(text)
    made, wanted = read_table(path), read_table(tmp_path / "t.csv")
    assert made.column_names == wanted.column_names
    assert made.to_pylist() == wanted.to_pylist()
    with open_batches(path, columns=["paid", "age"], rows=2) as batches:
        assert batches.total_rows == 3
        assert [batch.num_rows for batch in batches] == [2, 1]
        assert [row["paid"] for batch in batches for row in batch.to_pylist()] == [1.5, 2.0, 3.0]


def test_numbers_beside_text_are_text(tmp_path: Path) -> None:
    assert read_table(book(tmp_path / "t.xlsx", ["n"], [1], ["Total"]))["n"].to_pylist() == ["1", "Total"]


def test_decisions_are_written_and_no_text_becomes_a_formula(tmp_path: Path) -> None:
    path = tmp_path / "d.xlsx"
    with open_writer(path) as writer:
        writer.write({"row": np.arange(2), "action": np.array(["=cmd|' /C calc'!A0", "wait"]), "gain": [0.5, np.nan]})
        writer.write({"row": np.arange(2, 3), "action": np.array(["wait"]), "gain": [1.0]})
    sheet = openpyxl.load_workbook(path).active
    assert sheet["B2"].data_type == "s"
    assert [cell.value for cell in sheet["B"]] == ["action", "=cmd|' /C calc'!A0", "wait", "wait"]
    assert read_table(path)["gain"].to_pylist() == [0.5, None, 1.0]


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"the first sheet of e.xlsx is empty"):
        read_table(book(tmp_path / "e.xlsx"))
    with pytest.raises(TableError, match=r"column 2 of the first sheet of h.xlsx has no name"):
        read_table(book(tmp_path / "h.xlsx", ["a", None, "b"], [1, 2, 3]))
    with pytest.raises(TableError, match="has columns but no rows"):
        read_table(book(tmp_path / "n.xlsx", ["a", "b"]))
    with pytest.raises(TableError, match=r"h2.xlsx has two columns named 'a'"):
        read_table(book(tmp_path / "h2.xlsx", ["a", "a"], [1, 2]))
    wrong = openpyxl.Workbook()
    wrong.active.append(["a"])
    wrong.active.append(["#DIV/0!"])
    wrong.active["A2"].data_type = "e"
    wrong.save(tmp_path / "w.xlsx")
    with pytest.raises(TableError, match=r"cell A2 of w.xlsx, row 2, is #DIV/0!; correct it first"):
        read_table(tmp_path / "w.xlsx")
    (tmp_path / "b.xlsx").write_bytes(b"PK\x03\x04 no book")
    with pytest.raises(TableError, match=r"b.xlsx is not an Excel workbook that can be read"):
        read_table(tmp_path / "b.xlsx")
