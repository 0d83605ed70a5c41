"""Columns of text that look like numbers are named with the cell, and other text is left in peace."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import TableError
from gbpl.tables.read import read_table

AGES = np.random.default_rng(0).integers(18, 90, 200).tolist()


@pytest.mark.parametrize(
    ("cells", "cell"),
    [
        ([*AGES, "Total"], "row 200 has 'Total' (1 such row(s)); write NA"),
        (["?" if age < 25 else age for age in AGES], "has '?'"),
        ([f"{age},000" for age in AGES], f"row 0 has '{AGES[0]},000' (200 such row(s)); write plain numbers"),
        ([*AGES[:-1], f"{AGES[-1]},000"], f"row 199 has '{AGES[-1]},000' (1 such row(s)); write plain numbers"),
        ([f"{age} %" for age in AGES], f"row 0 has '{AGES[0]} %'"),
        ([f"${age}" for age in AGES], f"row 0 has '${AGES[0]}'"),
        ([f"{age},5" for age in AGES], f"row 0 has '{AGES[0]},5'"),
        ([f"{age}\u00a0" for age in AGES], f"row 0 has '{AGES[0]}\\xa0'"),
        ([f"1\u00a0{age:03}" for age in AGES], "looks like numbers"),
    ],
    ids=["total", "question mark", "thousands", "one of thousands", "percent", "money", "comma", "blank", "groups"],
)
def test_a_cell_that_turns_numbers_into_text_is_named(cells: list[Any], cell: str, tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("age;sex\n" + "".join(f'"{c}";{"fm"[n % 2]}\n' for n, c in enumerate(cells)), encoding="utf-8")
    for table in (
        read_table(file),
        {"age": [str(c) for c in cells], "sex": ["f", "m"] * 100 + ["f"] * (len(cells) - 200)},
    ):
        with pytest.raises(TableError, match="column 'age' looks like numbers, but") as caught:
            Encoder.fit(table)
        assert cell in str(caught.value)


@pytest.mark.parametrize(
    ("cells", "note"),
    [
        (
            ["0", "1", "2", "3+"] * 50,
            "column 'c' looks like numbers, but row 3 has '3+' (50 such row(s)), so it is read",
        ),
        ([str(age) for age in AGES], "column 'c' looks like numbers, but is text, read as categories"),
        ([*"12345"] * 40, None),
        (["18-24", "25-34", "65+", "35-44"] * 50, None),
        ([f"0{age}" for age in AGES], None),
        (["V27", "250.01", "E11", "I10"] * 50, None),
        (["+49 151 1234567", "+49 151 7654321"] * 100, None),
        (["yes", "no"] * 100, None),
    ],
    ids=["children", "ages as text", "few codes", "bands", "codes", "diagnoses", "telephones", "words"],
)
def test_categories_stay_categories_and_doubtful_ones_are_noted(cells: list[str], note: str | None) -> None:
    _, notes = Encoder.fit({"c": cells, "x": AGES})
    said = [one for one in notes if "looks like numbers" in one]
    assert (note is None and not said) or (note is not None and note in said[0])
