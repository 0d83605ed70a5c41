"""The paper's two regression sets: from a folder, from OpenML (never over the network), and what they are worth."""

from __future__ import annotations

import csv
import http.client
import json
import math
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.utils import Bunch
from support.data import data_file

import gbpl.datasets.openml
from gbpl.datasets import LoggedDesign, SemiSyntheticDesign
from gbpl.datasets.files import DATA_DIR_VARIABLE, DataUnavailableError
from gbpl.datasets.openml import SETS, load_regression

ROWS = {"yacht": 308, "energy_efficiency": 768}
COLUMNS = {
    "yacht": [
        "longitudinal_position", "prismatic_coefficient", "length_displacement_ratio", "beam_draught_ratio",
        "length_beam_ratio", "froude_number", "residuary_resistance",
    ],
    "energy_efficiency": [
        "relative_compactness", "surface_area", "wall_area", "roof_area", "overall_height", "orientation",
        "glazing_area", "glazing_area_distribution", "heating_load",
    ],
}  # fmt: skip
MEAN = {"yacht": 10.4954, "energy_efficiency": 22.3072}  # of the response


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**given: Any) -> None:
        raise AssertionError("a test asked OpenML")

    monkeypatch.setattr(gbpl.datasets.openml, "fetch_openml", refuse)
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)


def table_like(name: str) -> np.ndarray:
    """As many rows and columns as the set has, and a response with its mean."""
    table = np.random.default_rng(7).normal(size=(ROWS[name], len(COLUMNS[name])))
    table[:, -1] += MEAN[name] - table[:, -1].mean()
    return table


def write_csv(path: Path, header: list[str], table: Any, **options: Any) -> Path:
    with path.open("w", newline="", encoding=options.pop("encoding", "utf-8")) as file:
        lines = csv.writer(file, **options)
        lines.writerow(header)
        lines.writerows(np.asarray(table).tolist())
    return path


def openml(monkeypatch: pytest.MonkeyPatch, header: list[str], table: np.ndarray, **more: Any) -> list[dict[str, Any]]:
    """An OpenML that answers with this table; what it was asked."""
    asked: list[dict[str, Any]] = []

    def answer(**given: Any) -> Bunch:
        asked.append(given)
        return Bunch(**{"data": table, "feature_names": header, "categories": {}, "target": None, **more})

    monkeypatch.setattr(gbpl.datasets.openml, "fetch_openml", answer)
    return asked


# A folder


@pytest.mark.parametrize("name", SETS)
def test_a_table_is_read_from_a_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_like(name)
    write_csv(tmp_path / f"{name}.csv", COLUMNS[name], table)
    x, y, names = loaded = load_regression(name, data_dir=tmp_path)
    assert_array_equal(x, table[:, :-1])
    assert_array_equal(y, table[:, -1])
    assert list(names) == COLUMNS[name][:-1]
    assert (loaded.x is x, loaded.y is y, loaded.feature_names is names) == (True, True, True)
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path))
    assert_array_equal(load_regression(name).x, x)
    assert_array_equal(load_regression(name, data_dir=str(tmp_path)).y, y)


def test_columns_are_found_by_name_and_others_left_out(tmp_path: Path) -> None:
    table = table_like("yacht")
    order = [6, 2, 0, 1, 3, 5, 4]
    header = ["boat", *(COLUMNS["yacht"][i] for i in order)]
    header[3] = " Longitudinal-Position "
    rows = [[f"boat, {i}", *row] for i, row in enumerate(table[:, order].tolist())]
    with write_csv(tmp_path / "yacht.csv", header, [], encoding="utf-8-sig").open("a", newline="") as file:
        csv.writer(file).writerows([*rows, []])  # and a blank line at the end
    x, y, _ = load_regression("yacht", data_dir=tmp_path)
    assert_array_equal(np.column_stack([x, y]), table)


def test_the_argument_goes_before_the_environment_and_that_before_openml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = {}
    for place, shift in (("argument", 1.0), ("environment", 2.0)):
        (tmp_path / place).mkdir()
        tables[place] = table_like("yacht") + shift
        write_csv(tmp_path / place / "yacht.csv", COLUMNS["yacht"], tables[place])
    asked = openml(monkeypatch, COLUMNS["yacht"], table_like("yacht"))
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "environment"))
    both = load_regression("yacht", data_dir=tmp_path / "argument")
    assert_array_equal(both.y, tables["argument"][:, -1])
    assert_array_equal(load_regression("yacht").y, tables["environment"][:, -1])
    assert not asked
    for empty in (True, False):  # an empty variable is none
        if empty:
            monkeypatch.setenv(DATA_DIR_VARIABLE, "")
        else:
            monkeypatch.delenv(DATA_DIR_VARIABLE)
        assert_array_equal(load_regression("yacht").y, table_like("yacht")[:, -1])
    assert len(asked) == 2


def test_a_home_folder_may_be_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_csv(tmp_path / "yacht.csv", COLUMNS["yacht"], table_like("yacht"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(load_regression("yacht", data_dir="~").x) == 308


REMEDY = (
    r"set GBPL_DATA_DIR or --data-dir .* folder with yacht\.csv, .* longitudinal_position, .*, residuary_resistance"
)


def test_a_folder_without_the_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    openml(monkeypatch, COLUMNS["yacht"], table_like("yacht"))  # a folder that was named is not passed over
    with pytest.raises(DataUnavailableError, match=rf"there is no yacht\.csv in {tmp_path}; {REMEDY}"):
        load_regression("yacht", data_dir=tmp_path)
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(OSError, match=r"there is no yacht\.csv in .*nowhere; set GBPL_DATA_DIR"):
        load_regression("yacht")


def test_a_wrong_table_is_named_with_its_rule_and_a_remedy(tmp_path: Path) -> None:
    path, columns, table = tmp_path / "yacht.csv", COLUMNS["yacht"], table_like("yacht")
    write_csv(path, [*columns[:2], "other", *columns[3:]], table)
    with pytest.raises(ValueError, match=rf"{path} has no column length_displacement_ratio, .*'other'.*{REMEDY}"):
        load_regression("yacht", data_dir=tmp_path)
    write_csv(path, columns, table[:-1])
    with pytest.raises(ValueError, match=rf"{path} has 307 rows, yacht has 308; {REMEDY}"):
        load_regression("yacht", data_dir=tmp_path)
    write_csv(path, columns, table[:0])
    with pytest.raises(ValueError, match=r"has 0 rows, yacht has 308"):
        load_regression("yacht", data_dir=tmp_path)
    path.write_text("")
    with pytest.raises(ValueError, match=r"yacht\.csv is empty: it has no header"):
        load_regression("yacht", data_dir=tmp_path)
    write_csv(path, columns, np.where(np.arange(308)[:, None] == 4, np.nan, table))
    with pytest.raises(ValueError, match=r"must have finite numbers, got \[nan, .* in row 4; set"):
        load_regression("yacht", data_dir=tmp_path)
    wrong = {
        r"column 'residuary_resistance' must be numbers, but is 'fast' in line 4; correct it": [*table[2, :-1], "fast"],
        r"line 4 has 6 cell\(s\), but the header has 7; correct the file": table[2, :-1],
    }
    for message, row in wrong.items():
        write_csv(path, columns, table[:2])
        with path.open("a", newline="") as file:
            csv.writer(file).writerow(row)
        with pytest.raises(ValueError, match=rf"yacht\.csv: {message}"):
            load_regression("yacht", data_dir=tmp_path)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"name must be one of yacht, energy_efficiency, got 'boston'; try 'yacht'"):
        load_regression("boston")


# OpenML


@pytest.mark.parametrize(("name", "data_id"), [("yacht", 42370), ("energy_efficiency", 44960)])
def test_openml_is_asked_without_pandas_and_once(name: str, data_id: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_like(name)
    extra = np.column_stack([table, np.arange(len(table))])
    asked = openml(monkeypatch, [*COLUMNS[name], "cooling_load"], extra)
    x, y, names = load_regression(name)
    assert_array_equal(np.column_stack([x, y]), table)
    assert list(names) == COLUMNS[name][:-1]
    assert len(asked) == 1
    assert asked[0]["data_id"] == data_id
    assert asked[0]["as_frame"] is False
    assert asked[0]["parser"] == "liac-arff"


def test_openml_columns_go_by_name_or_else_by_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_like("yacht")
    openml(monkeypatch, [column.title() for column in reversed(COLUMNS["yacht"])], table[:, ::-1])
    assert_array_equal(load_regression("yacht").x, table[:, :-1])
    openml(monkeypatch, [f"V{i}" for i in range(1, 8)], table, categories=None)
    loaded = load_regression("yacht")
    assert_array_equal(loaded.x, table[:, :-1])
    assert list(loaded.feature_names) == COLUMNS["yacht"][:-1]
    for wrong in (table[:, ::-1], table[:, :-1]):  # the response is not last, or not there
        openml(monkeypatch, [f"V{i}" for i in range(1, wrong.shape[1] + 1)], wrong)
        with pytest.raises(ValueError, match=rf"OpenML's data set 42370 must have the columns .*'v1'.*{REMEDY}"):
            load_regression("yacht")


def test_openml_categories_become_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_like("energy_efficiency")
    codes = np.arange(768) % 4
    table[:, 5] = codes
    openml(monkeypatch, COLUMNS["energy_efficiency"], table, categories={"orientation": ["2", "3", "5", "4"]})
    assert_array_equal(load_regression("energy_efficiency").x[:, 5], np.array([2, 3, 5, 4])[codes])


def test_openml_with_other_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    openml(monkeypatch, COLUMNS["yacht"], table_like("yacht")[:300])
    with pytest.raises(ValueError, match=rf"OpenML's data set 42370 has 300 rows, yacht has 308; {REMEDY}"):
        load_regression("yacht")


@pytest.mark.parametrize(
    "error",
    [
        urllib.error.URLError("Name or service not known"),
        urllib.error.HTTPError("https://openml.org", 503, "busy", None, None),
        TimeoutError("timed out"),
        ConnectionResetError(104, "reset"),
        http.client.IncompleteRead(b"half"),
        json.JSONDecodeError("not OpenML's answer", "<html>", 0),
    ],
    ids=lambda error: type(error).__name__,
)
def test_no_network_says_what_to_do(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**given: Any) -> None:
        raise error

    monkeypatch.setattr(gbpl.datasets.openml, "fetch_openml", fail)
    cause = type(error).__name__
    message = rf"yacht is not available from OpenML \(data id 42370\): {cause}: .*; {REMEDY}, .*run once with network"
    with pytest.raises(DataUnavailableError, match=message) as caught:
        load_regression("yacht")
    assert caught.value.__cause__ is error
    assert isinstance(caught.value, OSError)


# The sets themselves


@pytest.mark.parametrize("name", SETS)
def test_the_sets_are_those_of_the_paper(name: str) -> None:
    x, y, names = load_regression(name, data_dir=data_file(f"{name}.csv").parent)
    assert x.shape == (ROWS[name], len(COLUMNS[name]) - 1)
    assert list(names) == COLUMNS[name][:-1]
    assert_allclose(y.mean(), MEAN[name], atol=1e-4)
    if name == "energy_efficiency":
        assert_allclose(x[:, 1], x[:, 2] + 2 * x[:, 3])  # surface_area = wall_area + 2 roof_area
    sample = SemiSyntheticDesign(x, y).sample(seed=0)
    assert_allclose(sample.x.mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(sample.x.std(axis=0), 1.0)
    seen = LoggedDesign(SemiSyntheticDesign(x, y)).sample(len(x), seed=0)
    assert set(seen.action) == {0, 1}


# Welfare mean and variance of DiffReg, all but the oracle's: 100 trials, one draw of w, c and the test rows each
@pytest.mark.parametrize(
    ("name", "mean", "variance"), [("yacht", 0.3465, 0.0234), ("energy_efficiency", 0.3569, 0.0295)]
)
def test_the_best_rule_is_worth_what_the_paper_prints(name: str, mean: float, variance: float) -> None:
    x, y, _ = load_regression(name, data_dir=data_file(f"{name}.csv").parent)
    best = [
        SemiSyntheticDesign(x, y, index_seed=i).sample(round(0.2 * len(x)), seed=i).outcomes.max(axis=1).mean()
        for i in range(1000)
    ]
    error = math.sqrt(variance / 100 + np.var(best) / 1000)
    assert abs(np.mean(best) - mean) < 3 * error
    assert abs(np.mean(best) - 0.20) > 6 * error  # what w of unit norm would give
    # A variance of 100 normal trials has a relative error of sqrt(2 / 99): no more than 3 of them away
    assert abs(math.log(np.var(best) / variance)) < 3 * math.sqrt(2 / 99 + 2 / 999)
