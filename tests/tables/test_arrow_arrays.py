"""Arrays between numpy and pyarrow are those of pyarrow's own conversions."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gbpl.tables.arrow_arrays import from_plain, is_plain, text_array, to_plain

NUMBERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def number_array(kind: str, gaps: bool) -> Any:
    values = [None if gaps and row % 7 == 3 else row % 50 for row in range(100)]
    return pa.array(np.arange(100) % 50 if not gaps else values).cast(getattr(pa, kind)())


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize("kind", [*NUMBERS, "bool_"])
def test_to_numpy(kind: str, gaps: bool) -> None:
    whole = number_array("int8" if kind == "bool_" else kind, gaps)
    whole = (
        pa.array([None if value is None else value % 3 == 0 for value in whole.to_pylist()])
        if kind == "bool_"
        else whole
    )
    assert is_plain(whole)
    for start, rows in ((0, 100), (0, 3), (3, 1), (5, 20), (8, 8), (63, 37), (50, 0)):
        part = whole.slice(start, rows)
        got, wanted = to_plain(part), part.to_numpy(zero_copy_only=False)
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)
    for chunks in ([whole], [whole.slice(1, 2), whole.slice(4, 40)], [whole.slice(0, 3), whole.slice(0, 0)], []):
        together = pa.chunked_array(chunks, whole.type)
        got, wanted = to_plain(together), together.to_numpy()
        assert got.dtype == wanted.dtype
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("values", [["a"], [b"a"], [[1]], [None], [dt.date(2024, 1, 1)]])
def test_other_arrays_are_not_plain(values: list[Any]) -> None:
    assert not is_plain(pa.array(values))


@pytest.mark.parametrize(
    "values",
    [
        *(np.arange(20).astype(kind) for kind in NUMBERS),
        np.array([1.5, np.nan, -np.inf, -0.0]),
        np.array([1.5, np.nan], np.float32),
        np.arange(20)[::3],
        np.arange(12.0).reshape(3, 4)[:, 1],
        np.arange(20) % 3 == 0,
        (np.arange(20) % 3 == 0)[1::2],
        np.array(["wait", "", "é'ü", "ソ" * 50]),
        np.array(["wait", None, ""], object),
        np.zeros(0),
        np.zeros(0, bool),
    ],
)
def test_from_numpy(values: np.ndarray) -> None:
    got, wanted = from_plain(pa, values), pa.array(values, from_pandas=True)
    got.validate(full=True)
    assert got.type == wanted.type
    assert got.null_count == wanted.null_count
    assert got.equals(wanted)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1, "a"], object),
        np.array([None, None], object),
        np.array(["a", np.nan], object),
        np.array([b"a"]),
        np.array(["2024-01-01"], "M8[D]"),
        np.zeros((2, 2)),
        np.array([1.0], ">f8"),
        np.array([1.0], np.longdouble),
        np.array([1j]),
    ],
)
def test_the_rest_is_left_to_pyarrow(values: np.ndarray) -> None:
    assert from_plain(pa, values) is None


def test_text() -> None:
    made = text_array(pa, ["", None, "a"])
    made.validate(full=True)
    assert made.to_pylist() == ["", None, "a"]
    with pytest.raises(UnicodeEncodeError):
        text_array(pa, ["\ud800"])
