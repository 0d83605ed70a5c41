"""A file decided batch by batch is the table decided at once, in bounded memory, whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.cli import SUFFIXES, changed, people, read, snapshot, tiny_policy, write

import gbpl.study.decide_file
from gbpl import TableError
from gbpl.study.decide_file import Decided, decide_file

ROWS = 2500
TRIAL = people(ROWS)
POLICY = tiny_policy(TRIAL)
MADE = ("action", "share of draws for none", "share of draws for treat", "disagreement", "deferred", "expected gain")


@pytest.mark.parametrize("source", SUFFIXES)
@pytest.mark.parametrize("target", SUFFIXES)
def test_the_same_numbers_as_deciding_the_whole_table(source: str, target: str, tmp_path: Path) -> None:
    data, out = write(tmp_path / f"in{source}", TRIAL), tmp_path / f"out{target}"
    decided = decide_file(POLICY, data, out, keep=["person"])
    expected = POLICY.decide(TRIAL)
    assert len(set(expected.action.tolist())) == 2, "one action for all would prove nothing"
    written = read(out)
    assert written.column_names == ["row", "person", *MADE]
    assert written["row"].to_pylist() == list(range(ROWS))
    assert written["person"].to_pylist() == TRIAL["person"]
    for name, values in expected.to_dict().items():
        if values.dtype.kind == "f":
            assert_allclose(written[name].to_numpy(), values, rtol=1e-12)
        else:
            assert_array_equal(written[name].to_numpy(zero_copy_only=False), values)
    assert decided.rows == ROWS
    assert decided.taken == {label: int(np.sum(expected.action == label)) for label in ("none", "treat")}
    assert decided.deferred == int(expected.deferred.sum()) > 0
    assert decided.gain == pytest.approx(expected.expected_gain.sum())


@pytest.mark.parametrize("source", SUFFIXES)
@pytest.mark.parametrize("rows", [1000, 999, 7])
def test_where_batches_end_does_not_matter(
    source: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    age = TRIAL["age"].copy()
    age[[3, 1000, 2499]] = np.nan
    sex = np.where(np.arange(ROWS) % 500 == 499, "x", TRIAL["sex"])
    data = write(tmp_path / f"in{source}", changed(TRIAL, age=pa.array(age, from_pandas=True), sex=sex))
    whole = decide_file(POLICY, data, tmp_path / "whole.csv", keep=["person"])
    monkeypatch.setattr(gbpl.study.decide_file, "ROWS", rows)
    parts = decide_file(POLICY, data, tmp_path / "parts.csv", keep=["person"])
    expected, decided = read(tmp_path / "whole.csv"), read(tmp_path / "parts.csv")
    # Products of single precision end in other digits where a block has another shape.
    assert_allclose(decided["expected gain"].to_numpy(), expected["expected gain"].to_numpy(), atol=1e-5)
    assert decided.drop_columns("expected gain").equals(expected.drop_columns("expected gain"))
    assert parts.to_dict() == whole.to_dict() | {"mean_expected_gain": pytest.approx(whole.gain / ROWS)}
    assert parts.counts == {"missing age": 3, "new level of sex": 5}


def test_counts_as_json() -> None:
    assert Decided().to_dict()["mean_expected_gain"] is None
    decided = Decided(rows=4, deferred=1, gain=2.0)
    decided.taken.update(["a", "a", "b", "b"])
    assert decided.to_dict() == {
        "rows": 4, "actions": {"a": 2, "b": 2}, "deferred": 1, "mean_expected_gain": 0.5, "review_value": None,
        "filled_in": {},
    }  # fmt: skip


def test_only_what_is_needed_is_read(tmp_path: Path) -> None:
    """A column of lists beside the features is in nobody's way."""
    data = write(tmp_path / "in.parquet", changed(TRIAL, history=[[1, 2]] * ROWS))
    assert decide_file(POLICY, data, tmp_path / "out.parquet").rows == ROWS


def test_kept_columns_stay_as_they_are(tmp_path: Path) -> None:
    codes = [f"{number:05d}" for number in range(ROWS)]
    data = write(tmp_path / "in.csv", changed(TRIAL, person=codes))
    decide_file(POLICY, data, tmp_path / "out.parquet", keep=["person", "earnings", "person"])
    written = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert written.column_names[:3] == ["row", "person", "earnings"]
    assert written["person"].to_pylist() == codes, "00007 is not 7"


def test_a_kept_code_that_looks_like_a_missing_value_stays(tmp_path: Path) -> None:
    """NA is Namibia; only for the columns that decide is it no value."""
    codes = ["NA", "FR", "None", ".", ""] * (ROWS // 5)
    data = tmp_path / "in.csv"
    rows = zip(TRIAL["age"], TRIAL["sex"], codes, strict=True)
    data.write_text("age,sex,country\n" + "".join(f"{age},{sex},{code}\n" for age, sex, code in rows))
    decide_file(POLICY, data, tmp_path / "out.parquet", keep=["country"])
    kept = [code or "" for code in pyarrow.parquet.read_table(tmp_path / "out.parquet")["country"].to_pylist()]
    assert kept == codes


def test_kept_columns_of_any_type(tmp_path: Path) -> None:
    data = write(
        tmp_path / "in.parquet", changed(TRIAL, seen=pa.array([[1, 2]] * ROWS), day=pa.array([0] * ROWS, pa.date32()))
    )
    decide_file(POLICY, data, tmp_path / "out.parquet", keep=["seen", "day"])
    written = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert written["seen"].to_pylist()[0] == [1, 2]
    assert written.schema.field("day").type == pa.date32()


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_defer(level: float, tmp_path: Path) -> None:
    data = write(tmp_path / "in.parquet", TRIAL)
    decided = decide_file(POLICY, data, tmp_path / "out.parquet", defer=level)
    assert decided.deferred == int((POLICY.decide(TRIAL).disagreement > level).sum())
    assert sum(read(tmp_path / "out.parquet")["deferred"].to_pylist()) == decided.deferred


def test_a_policy_without_draws_defers_nothing(tmp_path: Path) -> None:
    data = write(tmp_path / "in.csv", TRIAL)
    decided = decide_file(tiny_policy(TRIAL, draws=0), data, tmp_path / "out.csv")
    assert decided.to_dict()["deferred"] is None
    assert read(tmp_path / "out.csv").column_names == ["row", "action", "expected gain"]


def test_prices_of_a_capacity_hold_row_by_row(tmp_path: Path) -> None:
    policy = tiny_policy(TRIAL, prices=(0.0, 0.4))
    data = write(tmp_path / "in.csv", TRIAL)
    decided = decide_file(policy, data, tmp_path / "out.csv")
    assert 0 < decided.taken["treat"] == int(np.sum(policy.decide(TRIAL).action == "treat"))
    assert decided.taken["treat"] < decide_file(POLICY, data, tmp_path / "out.csv").taken["treat"]


def test_numbers_as_labels(tmp_path: Path) -> None:
    policy = tiny_policy(TRIAL, actions=(0, 1))
    decided = decide_file(policy, write(tmp_path / "in.csv", TRIAL), tmp_path / "out.csv")
    assert set(decided.taken) == {0, 1}
    assert set(read(tmp_path / "out.csv")["action"].to_pylist()) == {0, 1}


def test_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gbpl.study.decide_file, "ROWS", 1000)
    heard: list[tuple[int, int | None]] = []
    write(tmp_path / "in.parquet", TRIAL)
    decide_file(POLICY, tmp_path / "in.parquet", tmp_path / "out.csv", progress=lambda *how: heard.append(how))
    assert heard == [(1000, ROWS), (2000, ROWS), (ROWS, ROWS)]
    write(tmp_path / "in.csv", TRIAL)
    heard.clear()
    decide_file(POLICY, tmp_path / "in.csv", tmp_path / "out.csv", progress=lambda *how: heard.append(how))
    assert heard[-1] == (ROWS, None), "a text file does not say how long it is"


# -- files: whole, or as they were ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", SUFFIXES)
@pytest.mark.parametrize("source", SUFFIXES)
def test_a_bad_value_in_the_last_batch_leaves_everything_as_it_was(
    source: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gbpl.study.decide_file, "ROWS", 500)
    age = TRIAL["age"].copy()
    age[-3] = np.inf
    data = write(tmp_path / f"in{source}", changed(TRIAL, age=age))
    (tmp_path / f"out{target}").write_bytes(b"what was there")
    before, heard = snapshot(tmp_path), []
    with pytest.raises(TableError, match=r"'age'.*infinite.*row 2497"):
        decide_file(POLICY, data, tmp_path / f"out{target}", progress=lambda *how: heard.append(how))
    assert heard, "some batches were decided before"
    assert snapshot(tmp_path) == before
    with pytest.raises(TableError, match="row 2497"):
        decide_file(POLICY, data, tmp_path / f"new{target}")
    assert snapshot(tmp_path) == before, "no file where there was none"


def test_an_interrupt_leaves_everything_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gbpl.study.decide_file, "ROWS", 500)
    data = write(tmp_path / "in.csv", TRIAL)
    before = snapshot(tmp_path)

    def pressed(done: int, total: int | None) -> None:
        if done >= 1500:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        decide_file(POLICY, data, tmp_path / "out.csv", progress=pressed)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_input_is_never_the_output(suffix: str, tmp_path: Path) -> None:
    data = write(tmp_path / f"in{suffix}", TRIAL)
    (tmp_path / f"link{suffix}").symlink_to(data)
    os.link(data, tmp_path / f"hard{suffix}")
    before = snapshot(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in (f"in{suffix}", f"link{suffix}", f"hard{suffix}", f"sub/../in{suffix}"):
        with pytest.raises(TableError, match="is the file that is read; write to another"):
            decide_file(POLICY, data, tmp_path / name)
    (tmp_path / "sub").rmdir()
    assert snapshot(tmp_path) == before


def test_refusals(tmp_path: Path) -> None:
    data = write(tmp_path / "in.csv", TRIAL)
    header = tmp_path / "header.csv"
    header.write_text("age,sex\n")
    before = snapshot(tmp_path)
    for keep, message in (
        (["persn"], r"in.csv has no column 'persn'; did you mean 'person'\?"),
        (["sex", "row"], "in.csv has no column 'row'"),
    ):
        with pytest.raises(TableError, match=message):
            decide_file(POLICY, data, tmp_path / "out.csv", keep=keep)
    with pytest.raises(TableError, match=r"header.csv has no rows; there is nothing to decide"):
        decide_file(POLICY, header, tmp_path / "out.csv")
    with pytest.raises(ValueError, match=r"defer must be in \[0, 1\], got 2"):
        decide_file(POLICY, data, tmp_path / "out.csv", defer=2.0)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("name", ["row", "action", "expected gain"])
def test_a_kept_column_must_not_hide_a_decision(name: str, tmp_path: Path) -> None:
    data = write(tmp_path / "in.csv", changed(TRIAL, **{name: np.arange(ROWS)}))
    with pytest.raises(TableError, match=f"column '{name}' to keep has the name of a decision's column; rename it"):
        decide_file(POLICY, data, tmp_path / "out.csv", keep=[name])
    assert not (tmp_path / "out.csv").exists()


# -- policies without an encoder --------------------------------------------------------------------------------------


def test_a_policy_of_named_numbers_reads_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gbpl.study.decide_file, "ROWS", 400)
    policy = tiny_policy(TRIAL, ["earnings", "age"], encoded=False)
    x = np.column_stack([TRIAL["earnings"], TRIAL["age"]])
    for suffix in (".csv", ".parquet"):  # other columns beside, in another order
        decide_file(policy, write(tmp_path / f"in{suffix}", TRIAL), tmp_path / "out.parquet")
        assert_array_equal(read(tmp_path / "out.parquet")["action"].to_pylist(), policy.decide(x).action)
    age = TRIAL["age"].copy()
    age[1234] = np.nan
    data = write(tmp_path / "gap.parquet", changed(TRIAL, age=age))
    with pytest.raises(TableError, match=r"'age' is missing or infinite in row 1234.*fill it in, or drop the row"):
        decide_file(policy, data, tmp_path / "no.csv")
    data = write(tmp_path / "text.parquet", changed(TRIAL, age=TRIAL["sex"]))
    with pytest.raises(TableError, match=r"'age' must be numbers, as in the fit.*encode it first"):
        decide_file(policy, data, tmp_path / "no.csv")
    assert not (tmp_path / "no.csv").exists()


def test_a_policy_of_a_nameless_array_is_refused(tmp_path: Path) -> None:
    policy = tiny_policy(TRIAL, ["age"], encoded=False)
    del policy.feature_names_in_
    with pytest.raises(TableError, match=r"array without names.*fit it to a frame, or with gbpl fit"):
        decide_file(policy, write(tmp_path / "in.csv", TRIAL), tmp_path / "out.csv")


# -- memory -----------------------------------------------------------------------------------------------------------

BOUND = 300  # MB: Python, numpy and pyarrow have 130 before the first row
MEASURE = r"""
    import re, sys
    from pathlib import Path
    from gbpl.frozen.file import load
    from gbpl.study.decide_file import decide_file
    found = decide_file(load(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())  # ru_maxrss has the parent's too
    print(found.rows, int(peak[1]) // 1024)
    assert not {"jax", "sklearn", "scipy", "pandas"} & set(sys.modules), "numpy and pyarrow are enough"
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc has the peak")
@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_large_file_takes_little_memory(suffix: str, tmp_path: Path) -> None:
    """200 MB in one row group or batch, of which the policy needs two columns of sixteen."""
    rows, path = 1_500_000, tmp_path / f"in{suffix}"
    rng = np.random.default_rng(0)
    wide = pa.table({f"x{number}": rng.random(rows) for number in range(16)})
    if suffix == ".parquet":
        pyarrow.parquet.write_table(wide, path, row_group_size=rows, compression="none")
    else:
        pyarrow.feather.write_feather(wide, path, compression="uncompressed", chunksize=rows)
    assert path.stat().st_size > 190e6
    small = {name: rng.random(100) for name in ("x0", "x9")}
    tiny_policy(small, ["x0", "x9"], draws=4).save(tmp_path / "policy.gbpl")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEASURE), tmp_path / "policy.gbpl", path, tmp_path / "out.parquet"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    decided, peak = map(int, done.stdout.split())
    assert decided == rows
    assert peak < BOUND, f"{peak} MB"


def test_cells_that_a_spreadsheet_would_run_are_counted(tmp_path: Path) -> None:
    table = people(30)
    table["person"] = ["=cmd|' /C calc'!A0", "@sum", "-1", "+x", *table["person"][4:]]
    data = write(tmp_path / "new.csv", table)
    policy = tiny_policy(table, actions=("=none", "treat"))
    decided = decide_file(policy, data, tmp_path / "out.csv", keep=["person"])
    said = {name.partition(" begin as a formula")[0]: count for name, count in decided.counts.items()}
    assert said == {"cell(s) of 'action'": decided.taken["=none"], "cell(s) of 'person'": 3}
    assert not decide_file(policy, data, tmp_path / "out.parquet", keep=["person"]).counts, "no spreadsheet opens it"


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_long_labels_are_not_repeated_in_memory(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """2,400 rows with labels of 30,000 letters: 72 MB of text, of which a few are held at a time."""
    monkeypatch.setattr("gbpl.study.decide_file.ROWS", 1000)
    monkeypatch.setattr("gbpl.tables.write.MOST_BYTES", 1 << 21)
    labels = "a" * 30_000, "b" * 30_000
    table = people(2400)
    policy = tiny_policy(table, actions=labels)
    data, short = write(tmp_path / "new.csv", table), tiny_policy(table, actions=("a", "b"))
    assert policy.actions_.dtype == object
    tracemalloc.start()
    decided = decide_file(policy, data, tmp_path / f"out{suffix}")
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 20e6, "numpy's array of labels alone would have 120 kB per row"
    taken = read(tmp_path / f"out{suffix}").column("action").to_pylist()
    assert [label[0] for label in taken] == short.decide(table).action.tolist()
    assert {len(label) for label in taken} == {30_000}
    assert sum(decided.taken.values()) == 2400
