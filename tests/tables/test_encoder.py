"""Raw tables as features: what is learned of columns, and rows encoded one like the other."""

from __future__ import annotations

import datetime as dt
import json
import math
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.frames import frames, mixed_columns

from gbpl import Encoder, TableError
from gbpl.tables.features import CategoryColumn, NumberColumn

DAY = dt.date(2024, 2, 29)


# Frames


@pytest.mark.parametrize("library", list(frames(mixed_columns())))
def test_every_library_gives_the_same(library: str) -> None:
    expected, told = Encoder.fit(mixed_columns())
    want, counted = expected.apply(mixed_columns())
    frame = frames(mixed_columns())[library]
    encoder, notes = Encoder.fit(frame)
    got, counts = encoder.apply(frame)
    assert (encoder, notes) == (expected, told)
    np.testing.assert_array_equal(got, want)
    assert counts == counted == {"missing age": 58, "missing region": 37}
    assert got.dtype == np.float64
    assert got.flags.c_contiguous


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (np.zeros((2, 2)), "a table is a pandas or polars DataFrame.*got ndarray"),
        (pl.LazyFrame({"a": [1]}), "a lazy one collected.*got LazyFrame"),
        (pd.Series([1]), "got Series"),
        ({"a": 3}, "column 'a' is the single value 3; give a list"),
        ({"a": "abc"}, "column 'a' is the single value 'abc'"),
        ({"a": [1, 2], "b": [1, 2], "c": [1]}, "column 'a' has 2 rows, but 'c' has 1"),
        ({"a": np.zeros((2, 2))}, r"column 'a' has shape \(2, 2\)"),
        ({}, "no column is left"),
        ({"a": []}, "no rows"),
    ],
)
def test_what_is_no_table(frame: Any, message: str) -> None:
    with pytest.raises(TableError, match=message):
        Encoder.fit(frame)


def test_infinite_values_are_refused_with_their_place() -> None:
    with pytest.raises(TableError, match=r"column 'x' has 2 infinite value.* first in row 1;"):
        Encoder.fit({"x": [1.0, np.inf, -np.inf], "y": [1, 2, 3]})
    encoder, _ = Encoder.fit({"x": [1.0, 2.0, 3.0]})
    with pytest.raises(TableError, match=r"column 'x' has 1 infinite value.* first in row 101;"):
        encoder.apply({"x": [0.0, np.inf]}, first_row=100)


def test_integers_beyond_every_float_are_refused() -> None:
    with pytest.raises(TableError, match=r"column 'x' has an integer beyond the range.*row 1"):
        Encoder.fit({"x": [1, 10**400]})
    _, notes = Encoder.fit({"x": np.array([2**60, 3, 5])})
    assert notes == ["column 'x': integers beyond 2**53 are rounded to the nearest float"]


# What is learned


def test_missing_numbers_take_the_median_and_a_mark() -> None:
    encoder, notes = Encoder.fit({"age": [1, None, 2, 10, None, 4]})
    assert encoder.names == ["age", "age is missing"]
    assert notes == ["column 'age': missing in 2 row(s), filled with 3, the median; 'age is missing' marks them"]
    x, counts = encoder.apply({"age": [None, 7]})
    assert x.tolist() == [[3.0, 1.0], [7.0, 0.0]]
    assert counts == {"missing age": 1}


def test_median_does_not_overflow() -> None:
    encoder, _ = Encoder.fit({"x": [1e308, 1.7e308, None, 1e308, 1.7e308]})
    assert encoder.parts[0].fill == 1.35e308


def test_numbers_missing_only_later_take_the_median_without_a_mark() -> None:
    encoder, notes = Encoder.fit({"age": [1, 2, 9]})
    x, counts = encoder.apply({"age": [None, 5]})
    assert notes == []
    assert x.tolist() == [[2.0], [5.0]]
    assert counts == {"missing age": 1}


def test_booleans_are_zero_and_one() -> None:
    encoder, _ = Encoder.fit({"b": [True, None, True, False]})
    assert encoder.names == ["b", "b is missing"]
    assert encoder.arrow_types() == {"b": "boolean"}
    assert encoder.kinds == ["number", "missing"]
    assert encoder.apply({"b": [True, False, None]})[0].tolist() == [[1, 0], [0, 0], [1, 1]]
    assert encoder.apply({"b": np.array([1.0, 0.0, np.nan])})[0].tolist() == [[1, 0], [0, 0], [1, 1]]


def test_two_levels_need_one_feature() -> None:
    encoder, _ = Encoder.fit({"sex": ["m", "f", "f", "m", "m", "f"]})
    assert encoder.names == ["sex=m"]
    x, counts = encoder.apply({"sex": ["f", "m", "x", None]})
    assert x.tolist() == [[0], [1], [0], [0]]
    assert counts == {"new level of sex": 1, "missing sex": 1}


def test_levels_are_sorted_and_missing_is_one() -> None:
    encoder, notes = Encoder.fit({"r": ["s", "n", None] * 3})
    assert encoder.names == ["r=n", "r=s", "r=(missing)"]
    assert notes == ["column 'r': missing in 3 row(s), a level of its own, '(missing)'"]
    x, counts = encoder.apply({"r": ["s", None, "new"]})
    assert x.tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert counts == {"missing r": 1, "new level of r": 1}


@pytest.mark.parametrize(
    ("rows", "count", "kept"),
    [(199, 2, False), (199, 3, True), (200, 9, False), (200, 10, True), (4000, 19, False), (4000, 20, True)],
)
def test_rare_levels_are_merged(rows: int, count: int, kept: bool) -> None:
    values = ["a", "b"] * (rows // 2 + 1)
    values = values[: rows - count] + ["rare"] * count
    encoder, notes = Encoder.fit({"c": values})
    assert encoder.names == (["c=a", "c=b", "c=rare"] if kept else ["c=a", "c=b", "c=(other)"])
    limit = {199: 3, 200: 10, 4000: 20}[rows]
    merged = f"column 'c': 1 of 3 levels merged into '(other)': those in fewer than {limit} rows ({count} rows in all)"
    assert notes == ([] if kept else [merged])


def test_new_levels_go_where_rare_ones_went() -> None:
    encoder, _ = Encoder.fit({"c": ["a"] * 5 + ["b"] * 5 + ["z"]})
    x, counts = encoder.apply({"c": ["a", "z", "new", None]})
    assert encoder.names == ["c=a", "c=b", "c=(other)"]
    assert x.tolist() == [[1, 0, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]]
    assert counts == {"rare or new level of c": 2, "missing c": 1}


def test_thirty_levels_are_kept_the_most_frequent() -> None:
    values = [f"l{level:02d}" for level in range(40) for _ in range(20 + (level % 2))]
    encoder, notes = Encoder.fit({"c": values})
    odd, even = [f"c=l{level:02d}" for level in range(1, 40, 2)], [f"c=l{level:02d}" for level in range(0, 20, 2)]
    assert encoder.names == [*sorted(odd + even), "c=(other)"]
    assert "10 of 40 levels merged" in notes[0]
    assert "all but 30 (200 rows in all)" in notes[0]


def test_levels_called_like_ours_stay_apart() -> None:
    values = ["(other)"] * 5 + ["(missing)"] * 5 + ["(other 2)"] * 5 + ["rare", None, None]
    encoder, notes = Encoder.fit({"c": values})
    assert encoder.names == ["c=(missing)", "c=(other 2)", "c=(other)", "c=(other 3)", "c=(missing 2)"]
    assert "merged into '(other 3)'" in notes[0]
    x, _ = encoder.apply({"c": ["(other)", "(missing)", "(other 2)", "rare", None]})
    assert x.argmax(axis=1).tolist() == [2, 0, 1, 3, 4]
    assert (x.sum(axis=1) == 1).all()


def test_every_feature_has_a_name_of_its_own() -> None:
    table = {
        "a": ["b=c", "d", "e"] * 4,
        "a=b": ["c", "d", "f"] * 4,
        "a=d": [1, 2, 4] * 4,
        "age": [1, None, 2] * 4,
        "age is missing": [1, 5, 2] * 4,
    }
    encoder, _ = Encoder.fit(table)
    assert encoder.names == [
        "a=b=c", "a=d", "a=e", "a=b=c (2)", "a=b=d", "a=b=f", "a=d (2)", "age", "age is missing", "age is missing (2)",
    ]  # fmt: skip
    assert encoder.kinds == ["category"] * 6 + ["number", "number", "missing", "number"]
    assert len(encoder.names) == encoder.apply(table)[0].shape[1]


def test_values_that_read_the_same_are_one_level() -> None:
    encoder, notes = Encoder.fit({"c": [1, "1", 1.0, "x", "x", "x"]})
    assert encoder.parts == (CategoryColumn("c", ("1", "x"), False, False),)
    assert notes == ["column 'c': holds float, int, str, read as text"]


def test_levels_that_no_row_has_do_not_count() -> None:
    declared = pd.Categorical(["a", "b", "c"] * 3, categories=["z", "c", "b", "a", "y"])
    for values in (declared, pa.DictionaryArray.from_arrays(pa.array([0, 1, 3] * 3), pa.array(["a", "b", "z", "c"]))):
        encoder, notes = Encoder.fit({"c": values})
        assert encoder.parts == (CategoryColumn("c", ("a", "b", "c"), False, False),)
        assert notes == []


def test_a_table_without_names_of_features_says_what_it_left_out() -> None:
    n = 120
    table: dict[str, Any] = {
        "id": list(range(n)),
        "name": [f"person {i}" for i in range(n)],
        "when": [DAY] * n,
        "nothing": [None] * n,
        "same": ["x"] * n,
        "three": [3] * n,
        "tags": [[i] for i in range(n)],
        "z": [1j * i for i in range(n)],
        "comment": [f"text {i % 100}" for i in range(n)],
        "many": [f"l{i // 2}" for i in range(n)],
        "x": [math.sin(i) for i in range(n)],
        "y": list(range(n)),
    }
    encoder, notes = Encoder.fit(table, exclude=["y"])
    assert encoder.columns == ["x"]
    assert notes == [
        "column 'id' left out: every value is different",
        "column 'name' left out: every value is different",
        "column 'when' left out: it holds dates",
        "column 'nothing' left out: it has no value in any of the 120 rows",
        "column 'same' left out: every row has 'x'",
        "column 'three' left out: every row has 3",
        "column 'tags' left out: it holds lists or records, not one plain value per row",
        "column 'z' left out: it holds complex numbers, not one plain value per row",
        "column 'comment' left out: free text, 100 different values in 120 rows",
        "column 'many' left out: each of its 60 levels is rare",
    ]


def test_features_named_are_used_and_noted() -> None:
    table = {
        "id": list(range(100)), "same": ["x"] * 100, "name": [f"p{i}" for i in range(100)], "three": [3] * 100,
    }  # fmt: skip
    encoder, notes = Encoder.fit(table, ["three", "id", "same", "name"])
    assert encoder.names == ["three", "id", "same=x", "name=(other)"]
    assert notes == [
        "column 'three': every row has 3; used, as it was asked for",
        "column 'id': every value is different; used, as it was asked for",
        "column 'same': every row has 'x'; used, as it was asked for",
        "column 'name': every value is different; used, as it was asked for",
        "column 'name': 100 of 100 levels merged into '(other)': those in fewer than 3 rows (100 rows in all)",
    ]
    assert Encoder.fit(table, "id")[0].columns == ["id"]


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (["agee"], r"the table has no column 'agee'; did you mean 'age'\?"),
        (["when"], "column 'when' cannot be a feature: it holds dates; turn it into a number"),
        (["tags"], "column 'tags' cannot be a feature: it holds lists or records.*; make one column per part"),
        (["none"], "column 'none' cannot be a feature: it has no value in any of the 3 rows; leave it out"),
        (["age", "age"], "column 'age' is a feature and named once more"),
        (["y"], "column 'y' is a feature and named once more"),
        ([], "no column is left for the features: none is named"),
    ],
)
def test_features_that_cannot_be_used(features: list[str], message: str) -> None:
    table = {"age": [1, 2, 3], "when": [DAY] * 3, "tags": [[1]] * 3, "none": [None] * 3, "y": [1, 2, 3]}
    with pytest.raises(TableError, match=message):
        Encoder.fit(table, features, exclude=["y"])


def test_a_role_that_is_not_there_is_refused() -> None:
    with pytest.raises(TableError, match=r"no column 'earning'; did you mean 'earnings'\?"):
        Encoder.fit({"earnings": [1, 2, 3], "x": [3, 1, 2]}, exclude=["earning"])


def test_nothing_left_says_why() -> None:
    with pytest.raises(TableError, match="no column is left for the features: column 'a' left out: every row has 1"):
        Encoder.fit({"a": [1, 1]})


# Applying


def reference(encoder: Encoder, table: dict[str, list[Any]]) -> list[list[float]]:
    """Row by row, value by value."""
    rows = []
    for row in range(len(next(iter(table.values())))):
        out: list[float] = []
        for part in encoder.parts:
            value = table[part.name][row]
            if isinstance(part, NumberColumn):
                out.append(part.fill if value is None else float(value))
                out += [float(value is None)] if part.missing else []
                continue
            slots = [*part.levels, *([None] if part.missing else [])]
            if part.other:
                slots.insert(len(part.levels), "any other")
                if value not in part.levels and (value is not None or not part.missing):
                    value = "any other"
            hot = [float(slot == value and type(slot) is type(value)) for slot in slots]
            two = len(part.levels) == 2 and not part.other and not part.missing
            out += hot[1:] if two else hot
        rows.append(out)
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_apply_against_plain_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = mixed_columns(300, seed)
    table["pet"] = rng.choice(["cat", "dog", "fox", "emu"], 300, p=[0.5, 0.47, 0.02, 0.01]).tolist()
    encoder, _ = Encoder.fit(table)
    fresh = mixed_columns(80, seed + 100)
    fresh["pet"] = rng.choice(["cat", "dog", "fox", "gnu", None], 80).tolist()
    fresh["region"][3] = "west"
    fresh["income"][4] = None
    x, _ = encoder.apply(fresh)
    assert x.tolist() == reference(encoder, fresh)


@pytest.mark.parametrize("library", list(frames(mixed_columns())))
def test_batches_and_whole_are_identical(library: str) -> None:
    encoder, _ = Encoder.fit(mixed_columns())
    frame = frames(mixed_columns(seed=1))[library]
    whole, counted = encoder.apply(frame)
    parts, counts = [], Counter[str]()
    for start in (0, 1, 2, 150, 151, 399):
        stop = {0: 1, 1: 2, 2: 150, 150: 151, 151: 399, 399: 400}[start]
        if isinstance(frame, dict):
            piece: Any = {name: values[start:stop] for name, values in frame.items()}
        elif isinstance(frame, pd.DataFrame):
            piece = frame.iloc[start:stop]
        else:
            piece = frame.slice(start, stop - start)
        x, found = encoder.apply(piece, first_row=start)
        parts.append(x)
        counts += found
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert counts == counted


def test_mixed_columns_do_not_depend_on_their_neighbours() -> None:
    mixed = [1, "a", 2.5, True, Decimal("1.50"), 10**20, None, DAY]
    encoder, _ = Encoder.fit({"c": mixed * 5}, ["c"])
    whole, _ = encoder.apply({"c": mixed})
    alone = [encoder.apply({"c": [value]})[0][0] for value in mixed]
    np.testing.assert_array_equal(alone, whole)
    assert (whole.sum(axis=1) == 1).all()
    assert encoder.apply({"c": np.array([1])})[0].tolist() == whole[:1].tolist()
    assert encoder.apply({"c": np.array([1.0])})[0].tolist() == whole[:1].tolist()


def test_integer_levels_survive_missing_values() -> None:
    encoder, _ = Encoder.fit({"c": pd.Categorical([1, 2, 3] * 4)})
    want = np.eye(3)[[0, 2]].tolist()
    for values in ([1, 3, None], pd.Series([1, 3, None]), pa.array([1, 3, None]), ["1", "3", None]):
        assert encoder.apply({"c": values})[0][:2].tolist() == want


def test_columns_are_found_by_name_and_others_ignored() -> None:
    encoder, _ = Encoder.fit(mixed_columns())
    fresh = mixed_columns(50, 3)
    more = {"extra": [[1]] * 50, **dict(reversed(fresh.items())), "also": [None] * 50}
    np.testing.assert_array_equal(encoder.apply(more)[0], encoder.apply(fresh)[0])
    with pytest.raises(TableError, match=r"the table has no column 'income'; did you mean 'Income'\?"):
        encoder.apply({("Income" if name == "income" else name): values for name, values in fresh.items()})


def test_no_rows_no_features() -> None:
    encoder, _ = Encoder.fit(mixed_columns())
    x, counts = encoder.apply(pa.table(mixed_columns()).slice(0, 0))
    assert x.shape == (0, len(encoder.names))
    assert counts == {}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1", "2"], "column 'age' held numbers when the policy was learned, but is the text '1' in row 40;"),
        ([None, "old"], "is the text 'old' in row 41; bring numbers"),
        ([1, "old"], "is the text 'old' in row 41"),
        (pa.array([None, "old"]), "is the text 'old' in row 41"),
        (pd.Series([None, "old"]), "is the text 'old' in row 41"),
        (pl.Series([None, "old"]), "is the text 'old' in row 41"),
        (pd.Categorical([1, 2]), "is the text '1' in row 40"),
        ([DAY, DAY], "now holds dates"),
        (np.array(["2024", "2025"], "M8[D]"), "now holds dates"),
        ([[1], [2]], "now holds lists or records"),
        (["x" * 100, "y"], "is the text 'x{39} in row 40"),
    ],
)
def test_numbers_that_are_numbers_no_more(values: Any, message: str) -> None:
    encoder, _ = Encoder.fit({"age": [1, 5, 9]})
    with pytest.raises(TableError, match=message):
        encoder.apply({"age": values}, first_row=40)


def test_booleans_and_categories_of_another_kind() -> None:
    encoder, _ = Encoder.fit({"b": [True, False, True], "c": ["a", "b", "a"]}, ["b"])
    with pytest.raises(TableError, match=r"column 'b' held true and false .* but is 2 in row 1"):
        encoder.apply({"b": [1, 2]})
    with pytest.raises(TableError, match=r"column 'b' held true and false .* is the text 'true' in row 0"):
        encoder.apply({"b": ["true", "false"]})
    encoder, _ = Encoder.fit({"c": ["a", "b", "c"] * 5})
    with pytest.raises(
        TableError, match=r"column 'c' held categories .* now holds dates; bring its levels, such as 'a'"
    ):
        encoder.apply({"c": np.array(["2024"], "M8[D]")})
    with pytest.raises(TableError, match="now holds lists or records"):
        encoder.apply({"c": [["a"]]})


@pytest.mark.parametrize(
    "values", [[None, None], np.full(2, np.nan), pa.nulls(2), pa.array([None] * 2, pa.string()), pl.Series([None] * 2),
               pa.array([None] * 2, pa.date32()), pd.Series([None] * 2, dtype="Int64"), pd.Series([pd.NaT] * 2)]
)  # fmt: skip
def test_a_batch_without_a_value_is_missing_whatever_its_type(values: Any) -> None:
    encoder, _ = Encoder.fit({"age": [1, None, 9, 3, 8], "c": ["a", "a", "a", "b", None]})
    x, counts = encoder.apply({"age": values, "c": values})
    assert encoder.names == ["age", "age is missing", "c=a", "c=(other)", "c=(missing)"]
    assert x.tolist() == [[5.5, 1, 0, 0, 1]] * 2
    assert counts == {"missing age": 2, "missing c": 2}


# Stored


def stored() -> dict[str, Any]:
    return Encoder.fit(mixed_columns())[0].to_json()


def test_round_trip_is_exact() -> None:
    table = mixed_columns()
    table["income"][0] = 0.1 + 0.2
    encoder, _ = Encoder.fit(table)
    again = Encoder.from_json(json.loads(json.dumps(encoder.to_json(), allow_nan=False)))
    assert again == encoder
    np.testing.assert_array_equal(again.apply(table)[0], encoder.apply(table)[0])
    assert encoder.arrow_types() == {
        "age": "number", "income": "number", "region": "category", "sex": "category", "member": "boolean",
    }  # fmt: skip


def changed(path: tuple[Any, ...], value: Any) -> Callable[[dict[str, Any]], Any]:
    def change(told: dict[str, Any]) -> Any:
        here: Any = told
        for key in path[:-1]:
            here = here[key]
        here[path[-1]] = value
        return told

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda told: None,
        lambda told: [told],
        lambda told: {**told, "more": 1},
        lambda told: {"columns": told["columns"]},
        changed(("format",), 3),
        changed(("format",), True),
        changed(("format",), "1"),
        changed(("columns",), []),
        changed(("columns",), {}),
        changed(("columns", 0), None),
        changed(("columns", 0), "age"),
        changed(("columns", 0, "kind"), "date"),
        changed(("columns", 0, "kind"), ["number"]),
        changed(("columns", 0, "kind"), "category"),
        changed(("columns", 0, "name"), 3),
        changed(("columns", 0, "name"), "income"),
        changed(("columns", 0, "fill"), float("nan")),
        changed(("columns", 0, "fill"), float("inf")),
        changed(("columns", 0, "fill"), 10**400),
        changed(("columns", 0, "fill"), "3"),
        changed(("columns", 0, "fill"), None),
        changed(("columns", 0, "fill"), True),
        changed(("columns", 0, "missing"), 1),
        changed(("columns", 0, "span"), [1.0]),
        changed(("columns", 0, "span"), [2.0, 1.0]),
        changed(("columns", 0, "span"), [0.0, float("nan")]),
        changed(("columns", 0, "span"), None),
        changed(("columns", 0, "extra"), 1),
        changed(("columns", 4, "fill"), 2.0),
        changed(("columns", 2, "levels"), "north"),
        changed(("columns", 2, "levels"), ["b", "a"]),
        changed(("columns", 2, "levels"), ["a", "a"]),
        changed(("columns", 2, "levels"), ["a", 3]),
        changed(("columns", 2, "levels"), [f"{i:03d}" for i in range(31)]),
        changed(("columns", 2, "other"), None),
        changed(("columns", 2, "missing"), 0),
        changed(("columns", 3, "levels"), []),
    ],
)
def test_anything_else_is_refused(change: Callable[[dict[str, Any]], Any]) -> None:
    assert Encoder.from_json(stored()).to_json() == stored()
    with pytest.raises(TableError, match=r"not a stored encoder: .*; save the policy again"):
        Encoder.from_json(change(stored()))


def test_whole_fills_may_be_stored_as_integers() -> None:
    whole = Encoder.from_json(changed(("columns", 0, "fill"), 3)(stored())).parts[0]
    assert isinstance(whole, NumberColumn)
    assert whole.fill == 3.0


def test_numpy_alone_applies_an_encoder() -> None:
    code = (
        "import sys, json\n"
        "from gbpl.tables.encoder import Encoder\n"
        "encoder = Encoder.from_json(json.loads(sys.argv[1]))\n"
        "encoder.apply({name: [None, None] for name in encoder.columns})\n"
        "Encoder.fit({'a': [1, 2, 3], 'b': ['x', 'y', 'x']})\n"
        "heavy = {'pandas', 'polars', 'pyarrow', 'sklearn', 'scipy', 'jax'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, json.dumps(stored())], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
