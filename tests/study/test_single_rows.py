"""No single row, nor a group of few, is in what a study leaves behind: policy file, report and summary."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli import people, quick_learn

from gbpl.study.who import by_feature, review
from gbpl.tables.encoder import Encoder
from gbpl.tables.parts import SMALLEST_GROUP

ROLES: dict[str, Any] = {
    "outcome": "earnings",
    "action": "arm",
    "propensity": 0.5,
    "features": ["age", "salary", "city"],
}


@pytest.fixture(scope="module")
def table() -> dict[str, Any]:
    """People with a salary that is theirs alone; the last of them lives where nobody else does."""
    made, rng = people(160), np.random.default_rng(3)
    city = rng.choice(["Bath", "York", "Hull"], 160, p=[0.5, 0.45, 0.05]).astype(object)
    city[-1] = "Xanadu"
    age = np.append(made["age"][:-1], 87.0)
    return made | {"salary": np.round(rng.uniform(20_000, 90_000, 160), 2), "city": city, "age": age}


def _written(number: float) -> set[str]:
    return {repr(float(number)), f"{number:,.2f}", f"{number:.2f}", f"{number:,.10g}", f"{number:.10g}"}


def _check_explained(study: Any, age: float) -> None:
    """Neither the explanations nor what was seen of a feature give the highest age away."""
    rows = study.summary["explained"]["rows"]
    assert len(rows) > 2
    assert min(row["rows"] for row in rows) >= SMALLEST_GROUP
    values = [one["value"] for row in rows for one in row["contributions"] if one["column"] == "age"]
    changes = [change for row in rows for flip in row["flips"] for change in flip["changes"]]
    values += [change[end] for change in changes for end in ("from", "to") if change["column"] == "age"]
    assert values
    assert all(float(value) < age for value in values)
    place = study.policy.encoder.names.index("age")
    assert study.policy.seen.high[place] < age


def test_a_single_deferred_row_is_in_no_file(table: dict[str, Any], tmp_path: Path) -> None:
    first = quick_learn(table, **ROLES)
    levels = np.unique(first.decisions.disagreement)
    study = quick_learn(table, **ROLES, defer=float(levels[-2:].mean()))
    assert 1 <= study.decisions.deferred.sum() < 10, "few people are deferred"
    assert study.summary["review"] == []
    _check_explained(study, 87.0)
    study.save(tmp_path / "p.gbpl")
    study.report(tmp_path / "r.html")
    for file in ("p.gbpl", "r.html"):
        text = (tmp_path / file).read_bytes().decode("latin-1")
        assert "Xanadu" not in text, file
        assert not re.search(r"(?<![\d.])87(?:\.0)?(?![\d.%])", json.dumps(study.summary["who"])), "the highest age"
        numbers = set(re.findall(r"\d[\d,]*\.?\d*", text))
        for salary in table["salary"].tolist():
            assert not numbers & _written(salary), f"{salary} is in {file}"


def test_what_a_study_says_of_parts_it_says_of_ten_rows_or_more(table: dict[str, Any]) -> None:
    study = quick_learn(table, **ROLES)
    bins = [part for feature in study.summary["who"] for part in feature["bins"]]
    assert min(part["rows"] for part in bins) >= SMALLEST_GROUP
    assert min(node["rows"] for node in study.summary["tree"]["nodes"]) >= SMALLEST_GROUP
    curve, n = study.summary["disagreement"]["curve"], 160
    groups: dict[float, int] = {}
    for point in reversed(curve):
        groups.setdefault(point["welfare"], round(point["share"] * n))  # how many are handed over at that value
    counts = list(groups.values())
    assert len(counts) > 2
    assert np.diff(counts).min() >= SMALLEST_GROUP
    assert min(group["rows"] for group in study.summary["calibration"]["groups"]) >= SMALLEST_GROUP
    assert study.summary["settings"]["smallest_group"] == SMALLEST_GROUP
    small = quick_learn(table, **ROLES, smallest_group=1)
    labels = {part["label"] for feature in small.summary["who"] for part in feature["bins"]}
    assert "Xanadu" in labels, "groups of one are shown if the user wants them"
    with pytest.raises(ValueError, match="smallest_group must be a whole number >= 1, got 0"):
        quick_learn(table, **ROLES, smallest_group=0)


@pytest.mark.parametrize("gone", [0, 3, 30])
def test_parts_hold_every_row_once_however_rare_a_value_is(gone: int) -> None:
    rng = np.random.default_rng(1)
    children: list[Any] = rng.choice([0, 1, 2, 3], 200, p=[0.6, 0.3, 0.08, 0.02]).tolist()
    town: list[Any] = rng.choice(["a", "b", "c", "d"], 200, p=[0.6, 0.34, 0.04, 0.02]).tolist()
    for row in range(gone):
        children[row] = town[row] = None
    frame = {"children": children, "town": town}
    encoder = Encoder.fit(frame)[0]
    given, kept = rng.integers(2, size=200), np.ones(200, bool)
    for part in by_feature(frame, encoder, kept, given, np.zeros(200, bool), 2):
        rows = [one["rows"] for one in part["bins"]]
        assert sum(rows) == 200
        assert min(rows) >= SMALLEST_GROUP
        taken = sum(one["shares"][1] * one["rows"] for one in part["bins"])
        np.testing.assert_allclose(taken, given.sum())
        assert ("(missing)" in [one["label"] for one in part["bins"]]) == (gone == 30)


def test_means_of_few_rows_for_review_are_not_given() -> None:
    x = np.random.default_rng(0).normal(size=(100, 1))
    encoder = Encoder.fit({"salary": x[:, 0].tolist()})[0]
    for count, shown in ((1, False), (9, False), (10, True), (90, True), (91, False)):
        assert bool(review(x, encoder, np.arange(100) < count)) == shown, count
