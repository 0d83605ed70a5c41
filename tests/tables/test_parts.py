"""Parts of a column: they partition the rows, have enough of them, and find later rows again."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gbpl.tables.frames import TableError
from gbpl.tables.parts import OTHER, Parts

rng = np.random.default_rng(0)
COLUMNS = {
    "numbers": rng.normal(size=300),
    "whole numbers": rng.integers(18, 40, 300),
    "few numbers": rng.integers(0, 3, 300),
    "numbers with gaps": np.where(rng.random(300) < 0.2, np.nan, rng.lognormal(8.0, 1.0, 300)),
    "few gaps": np.where(np.arange(300) < 3, np.nan, rng.normal(size=300)),
    "text": rng.choice(["a", "b", "c"], 300),
    "rare text": np.array([f"t{k}" for k in rng.integers(0, 60, 300)]),
    "text with gaps": np.where(rng.random(300) < 0.2, None, rng.choice(["a", "b"], 300)),
    "booleans": rng.random(300) < 0.4,
    "one value": np.full(300, 7.0),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_parts_have_enough_rows_and_find_them_again(name):
    values = COLUMNS[name]
    parts = Parts.of(values, 10)
    place = parts.place(values)
    assert np.bincount(place, minlength=len(parts.names)).min() >= 10
    some = rng.permutation(300)[:40]
    assert (parts.place(values[some]) == place[some]).all()
    again = Parts.from_json(json.loads(json.dumps(parts.to_json())))
    assert again == parts
    assert (again.place(values) == place).all()


@pytest.mark.parametrize("column", ["numbers", "whole numbers"])
def test_cuts_are_those_of_the_names(column):
    values = COLUMNS[column]
    parts = Parts.of(values)
    place = parts.place(values)
    for at, name in enumerate(parts.names):
        low = float(name.split("above ")[1].split(" to ")[0]) if "above" in name else -np.inf
        high = float(name.split("to ")[1]) if "to" in name else np.inf
        assert ((values > low) & (values <= high) == (place == at)).all()


def test_new_levels_go_to_the_others_or_nowhere():
    known, rare = Parts.of(COLUMNS["text"]), Parts.of(COLUMNS["rare text"])
    assert known.place(np.array(["a", "new"], object)).tolist() == [0, -1]
    assert known.place(np.array(["b", None], object)).tolist() == [1, -1]
    assert rare.names[-1] == OTHER
    assert rare.place(np.array(["new"])).tolist() == [len(rare.names) - 1]
    few = Parts.of(COLUMNS["few numbers"])
    assert few.place(np.array([2.0, 0.5])).tolist() == [2, -1]
    assert few.place(np.array(["2", "x"])).tolist() == [2, -1]  # a file may hold numbers as text


def test_numbers_that_are_no_longer_numbers_are_refused():
    with pytest.raises(TableError, match="now holds other values; bring numbers"):
        Parts.of(COLUMNS["numbers"]).place(np.array(["much", "little"]))


@pytest.mark.parametrize(
    "change",
    [{"kind": "x"}, {"names": [1]}, {"cuts": ["a"]}, {"cuts": [2.0, 1.0]}, {"missing": 9}, {"others": -1}, {"more": 1},
     {"levels": ["a"] * 9}],
)  # fmt: skip
def test_what_is_no_stored_column_is_refused(change):
    stored = Parts.of(COLUMNS["text"]).to_json()
    with pytest.raises(TableError, match="no stored column of groups"):
        Parts.from_json(stored | change)
