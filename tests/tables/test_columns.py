"""What a column holds, whatever it came as."""

from __future__ import annotations

import datetime as dt
from typing import Any
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from gbpl.tables.columns import Kind, kind_of, read_column

DAY = dt.date(2024, 2, 29)


def kind_in(values: Any, name: str) -> Kind:
    return kind_of(read_column(values, name), name)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2, None], "number"),
        ([1.5, 2], "number"),
        ([True, False], "boolean"),
        ([True, None], "boolean"),
        (pl.Series([True, None]), "boolean"),
        ([True, 2], "number"),
        (["a", "b"], "category"),
        ([b"a", b"b"], "category"),
        (["1", "2.5", None], "category"),
        ([1, "a"], "category"),
        ([True, "a"], "category"),
        ([DAY, "unknown"], "category"),
        ([UUID(int=1), UUID(int=2)], "category"),
        (pd.Categorical([1, 2]), "category"),
        ([dt.timedelta(1), None], "number"),
        ([DAY, None], "date"),
        ([dt.datetime(2024, 1, 1), pd.NaT], "date"),
        ([dt.time(1)], "date"),
        (pd.Series(pd.period_range("2024-01", periods=2, freq="M")), "date"),
        (np.array(["2024", "NaT"], "M8[D]"), "date"),
        (pd.Series(pd.to_datetime(["2024-01-01"], utc=True)), "date"),
        (pa.array([DAY, None]), "date"),
        (pa.array([dt.datetime(2024, 1, 1)], pa.timestamp("us", "UTC")), "date"),
        (pl.Series([DAY]), "date"),
        ([None, float("nan"), pd.NA, pd.NaT], "empty"),
        (np.full(3, np.nan), "empty"),
        (pa.nulls(3), "empty"),
        (pa.array([None], pa.timestamp("s")), "empty"),
        ([3, 3], "constant"),
        (["a", "a"], "constant"),
        ([b"a", "a"], "constant"),
        ([3, None, 3], "number"),
        (["a", None], "category"),
        ([[1], [2]], "nested"),
        ([{"a": 1}], "nested"),
        (pa.array([[1], None]), "nested"),
        (pl.Series([{"a": 1}]), "nested"),
        ([1j, 2], "nested"),
        (np.array([1j]), "nested"),
        ([2**60, 3], "number"),
        ([10**300, 3], "number"),
        (np.array([2**64 - 1, 0], np.uint64), "number"),
    ],
)
def test_kind(values: Any, kind: str) -> None:
    assert kind_in(values, "x") is Kind(kind)


@pytest.mark.parametrize(
    ("values", "name", "kind"),
    [
        (list(range(20)), "x", "identifier"),
        (list(range(19)), "x", "number"),
        (list(range(40, 0, -1)), "x", "identifier"),
        ([*range(20), None], "x", "identifier"),
        ([2 * i for i in range(20)], "x", "number"),
        ([2 * i for i in range(20)], "id", "identifier"),
        ([2 * i for i in range(20)], "person_id", "identifier"),
        ([2 * i for i in range(20)], "recid", "identifier"),
        ([2 * i for i in range(20)], "personID", "identifier"),
        ([2 * i for i in range(20)], "humid", "number"),
        ([i + 0.5 for i in range(20)], "id", "number"),
        ([0, *range(19)], "id", "number"),
        ([f"p{i}" for i in range(20)], "x", "identifier"),
        ([f"p{i}" for i in range(19)], "x", "category"),
        ([f"p{i}" for i in range(51)] + ["p0"], "x", "text"),
        ([f"p{i}" for i in range(50)] + ["p0"], "x", "category"),
        ([f"p{i}" for i in range(60)] * 2, "x", "category"),
    ],
)
def test_identifiers_and_free_text(values: list[Any], name: str, kind: str) -> None:
    assert kind_in(values, name) is Kind(kind)
    assert kind_in(pa.array(values), name) is Kind(kind)
