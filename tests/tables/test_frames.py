"""Frames of every library: names, rows, and columns as plain arrays."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.frames import frames, mixed_columns

from gbpl import TableError
from gbpl.tables.frames import column, column_names, is_missing, nearest, require_columns, rows_of


@pytest.mark.parametrize("library", list(frames(mixed_columns())))
def test_names_rows_and_columns(library: str) -> None:
    frame = frames(mixed_columns(30))[library]
    assert column_names(frame) == ["age", "income", "region", "sex", "member"]
    assert rows_of(frame) == 30
    age, region, member = (column(frame, name) for name in ("age", "region", "member"))
    assert age.dtype == np.float64
    np.testing.assert_array_equal(age, np.array(mixed_columns(30)["age"], float))
    assert region.tolist() == mixed_columns(30)["region"]
    assert member.tolist() == mixed_columns(30)["member"]
    assert member.dtype == bool
    np.testing.assert_array_equal(is_missing(region), [value is None for value in mixed_columns(30)["region"]])


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        ([1, 2], np.array([1, 2])),
        ([1, None], np.array([1.0, np.nan])),
        ([Decimal("1.5"), None], np.array([1.5, np.nan])),
        (pa.array([Decimal("1.5"), None]), np.array([1.5, np.nan])),
        (pl.Series([Decimal("1.5"), None]), np.array([1.5, np.nan])),
        (pd.Series([1, None], dtype="Int64"), np.array([1.0, np.nan])),
        (pd.Categorical([3, 4]), np.array([3, 4])),
        (pd.Series(pd.Categorical([3, None])), np.array([3.0, np.nan])),
        (pa.array([3, None]).dictionary_encode(), np.array([3.0, np.nan])),
        (np.ma.array([1, 2], mask=[False, True]), np.array([1.0, np.nan])),
        (np.array([12, 24], "m8[h]"), np.array([0.5, 1.0])),
        (pa.array([dt.timedelta(hours=12), None]), np.array([0.5, np.nan])),
        ([10**30, 1], np.array([1e30, 1.0])),
        (range(2), np.array([0, 1])),
    ],
)
def test_column_of_numbers(values: Any, wanted: np.ndarray) -> None:
    got = column({"x": values}, "x")
    assert got.dtype == wanted.dtype
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("values", "wanted"),
    [
        (pa.array([True, None]), [True, None]),
        (pd.Series([True, None], dtype="boolean"), [True, None]),
        (pl.Series([True, None]), [True, None]),
        (pd.Series(["a", None]), ["a", None]),
        (pd.Series(["a", float("nan")], dtype=object), ["a", None]),
        (pd.Series(["a", pd.NA], dtype=object), ["a", None]),
        (pa.chunked_array([pa.array(["b", None]).dictionary_encode(), pa.array(["a"]).dictionary_encode()]),
         ["b", None, "a"]),
        (pa.DictionaryArray.from_arrays(pa.array([0, 1, None], pa.uint8()), pa.array(["x", None])), ["x", None, None]),
        (pl.Series(["a", None], dtype=pl.Categorical), ["a", None]),
        (pa.nulls(2), [None, None]),
        ([1, "a"], [1, "a"]),
        ([[1], None], [[1], None]),
    ],
)  # fmt: skip
def test_column_of_objects(values: Any, wanted: list[Any]) -> None:
    got = column({"x": values}, "x")
    assert got.dtype == object
    assert got.tolist() == wanted


def test_numeric_column_names_become_text() -> None:
    frame = pd.DataFrame(np.arange(6).reshape(3, 2))
    assert column_names(frame) == ["0", "1"]
    assert column(frame, "1").tolist() == [1, 3, 5]
    assert column({1: [5, 6]}, "1").tolist() == [5, 6]


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame([[1, 2]], columns=["a", "a"]),
        pa.table([[1], [2]], names=["a", "a"]),
        {1: [1], "1": [2]},
    ],
)
def test_a_name_belongs_to_one_column(frame: Any) -> None:
    with pytest.raises(TableError, match=r"2 columns are named '(a|1)'.*rename"):
        column_names(frame)


def test_nearest_column() -> None:
    with pytest.raises(
        TableError,
        match=r"^jtpa.csv has no column 'earning'; did you mean 'earnings'\? Its columns are 'age', 'earnings'$",
    ):
        require_columns(["age", "earning"], ["age", "earnings"], "jtpa.csv")
    with pytest.raises(TableError, match=r"no column 'AGE'; did you mean 'age'\?"):
        require_columns(["AGE"], ["age", "earnings"], "x")
    with pytest.raises(TableError, match=r"no column ' Age'; did you mean 'age '\?"):
        require_columns([" Age"], ["age ", "earnings"], "x")
    with pytest.raises(TableError, match=r"no column 'zzz'; its columns are 'c0', .*'c9' and 2 more$"):
        require_columns(["zzz"], [f"c{i}" for i in range(12)], "x")
    with pytest.raises(TableError, match=r"no column 'p' \(nor 'q'\); it has no columns"):
        require_columns(["p", "q"], [], "x")
    with pytest.raises(TableError, match=r"no column 'earnings'; did you mean 'EARNINGS'\?"):
        require_columns(["earnings"], ["AGE", "EARNINGS"], "x")
    require_columns(["age"], ["age"], "x")
    assert nearest("Treet", ["wait", "treat"]) == "; did you mean 'treat'?"
    assert nearest(7, ["wait", "treat"]) == ""


def test_one_column_that_looks_like_a_header() -> None:
    with pytest.raises(TableError, match=r"no column 'age'; its columns are 'age;sex'; .*, such as --delimiter ';'$"):
        require_columns(["age"], ["age;sex"], "x.csv")
    with pytest.raises(TableError, match=r"; give another delimiter, such as --delimiter tab$"):
        require_columns(["age"], ["last, first\tage\tsex"], "x.csv")
    with pytest.raises(TableError, match=r"no column 'ages'; did you mean 'age'\? Its columns are 'age'$"):
        require_columns(["ages"], ["age"], "x.csv")
    with pytest.raises(TableError, match=r"; did you mean 'age, in years'\? Its columns are"):
        require_columns(["age in years"], ["age, in years", "sex"], "x.csv")
