"""Mangled tables, policies and options: each is refused with what is wrong and what to do, and nothing is touched."""

from __future__ import annotations

import datetime
import errno
import io
import json
import os
import pickle
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from support.calls import forbid_calls
from support.cli import Done, changed, command, people, quick_learn, run, snapshot, tiny_policy, write
from support.report import two_actions

import gbpl.estimators.gbplnet
import gbpl.frozen.file
import gbpl.runtime.files
import gbpl.study.study
from gbpl import CrossFit
from gbpl.cli.fit import NAMES

HERE = Path.cwd()  # PYTHONPATH may be relative to it
N = 120
TRIAL = people(N)
ROLES = ("--outcome", "earnings", "--action", "arm", "--propensity", "0.5")
OUT = ("--out", "result")
DECIDE = ("-o", "out.csv")
OLD = b"result of last year"

# -- mangling ---------------------------------------------------------------------------------------------------------

Content = bytes | Callable[[Path], None]


def trial_table(**changes: Any) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in changed(TRIAL, **changes).items()})


def text(**changes: Any) -> bytes:
    sink = io.BytesIO()
    pyarrow.csv.write_csv(trial_table(**changes), sink)
    return sink.getvalue()


def parquet(**changes: Any) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(trial_table(**changes), sink)
    return sink.getvalue()


def feather(**changes: Any) -> bytes:
    sink = io.BytesIO()
    pyarrow.feather.write_feather(trial_table(**changes), sink)
    return sink.getvalue()


def lines(*some: str) -> bytes:
    return "\n".join(some).encode() + b"\n"


def first(values: Any, value: Any, row: int = 0) -> list[Any]:
    """The values with one of them replaced."""
    changed = list(values)
    changed[row] = value
    return changed


def policy(**options: Any) -> bytes:
    return _saved(tiny_policy(TRIAL, **options))


def _saved(made: Any) -> bytes:
    return gbpl.frozen.file._content(made)


def flipped(data: bytes, place: float) -> bytes:
    """One bit of a byte, at a share of the file."""
    at = int(place * (len(data) - 1))
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


def newer() -> bytes:
    """A policy of the format after this one's, its checksum right."""
    data = policy()
    assert data.count(b'format\\": 1') == 1
    return data.replace(b'format\\": 1', b'format\\": 6')


@dataclass(frozen=True)
class Case:
    """A command, the files it finds, and words that its message must have."""

    argv: tuple[str, ...]
    words: tuple[str, ...]
    files: dict[str, Content | str] = field(default_factory=dict)
    code: int = 2


def fit(data: bytes | None, *words: str, name: str = "bad.csv", options: tuple[str, ...] = ROLES) -> Case:
    return Case(("fit", name, *options, *OUT), words, {} if data is None else {name: data})


def fit_with(*options: str, words: tuple[str, ...], roles: tuple[str, ...] = ROLES) -> Case:
    return Case(("fit", "good.csv", *roles, *OUT, *options), words)


def decide(data: bytes | None, *words: str, name: str = "bad.csv", options: tuple[str, ...] = DECIDE) -> Case:
    return Case(("decide", "policy.gbpl", name, *options), words, {} if data is None else {name: data})


def by(made: bytes, *words: str) -> Case:
    return Case(("decide", "bad.gbpl", "good.csv", *DECIDE), ("bad.gbpl", *words), {"bad.gbpl": made})


def evaluate(data: bytes | None, *words: str, options: tuple[str, ...] = ()) -> Case:
    name = "good.csv" if data is None else "bad.csv"
    return Case(("evaluate", "policy.gbpl", name, *options), words, {} if data is None else {name: data})


GOOD, POLICY = text(), policy()
DAMAGED = ("damaged, or was never a policy", "save it again")
UTF16 = GOOD.decode().encode("utf-16")
BIG = first(map(str, TRIAL["age"]), "1" + "0" * 400)

CASES: dict[str, Case] = {
    # Files that are no tables.
    "missing file": fit(None, "nowhere.csv does not exist", name="nowhere.csv"),
    "missing file, nearly named": fit(None, "goood.csv does not exist", "did you mean 'good.csv'", name="goood.csv"),
    "missing folder": fit(None, "nor does its folder", "elsewhere", name="elsewhere/a.csv"),
    "folder as file": fit(None, "result is a folder", "name a file", name="result"),
    "unknown suffix": fit(b"x", "'.ods'", "those read are .csv", ".parquet", name="bad.ods"),
    "no workbook": fit(b"x", "bad.xlsx is not an Excel workbook that can be read", name="bad.xlsx"),
    "no suffix": fit(GOOD, "format is not known", ".csv", name="bad"),
    "empty file": fit(b"", "bad.csv is empty", "no header"),
    "empty parquet": fit(b"", "bad.parquet is empty", name="bad.parquet"),
    "blank lines only": fit(b"\n\n  \n", "bad.csv", "no header"),
    "header only": fit(lines("age,arm,earnings"), "bad.csv", "header but no rows"),
    "one row": fit(lines("age,arm,earnings", "31,treat,5"), "1 complete row", "at least 20"),
    "ten rows": fit(b"".join(GOOD.splitlines(True)[:11]), "10 complete row(s)", "at least 20"),
    "parquet without rows": fit(
        parquet(**{name: pa.array([], pa.float64()) for name in TRIAL}), "bad.parquet has columns but no rows",
        name="bad.parquet",
    ),
    "parquet without columns": fit(
        parquet(**dict.fromkeys(TRIAL)), "bad.parquet has no column", "no columns", name="bad.parquet"
    ),
    "truncated parquet": fit(parquet()[:-200], "bad.parquet", "damaged or cut short", name="bad.parquet"),
    "wrong magic": fit(b"PARX" + parquet()[4:-4] + b"PARX", "bad.parquet", "not a Parquet", name="bad.parquet"),
    "damaged pages": fit(
        parquet()[:20] + b"\xff" * 400 + parquet()[420:], "bad.parquet", "damaged or cut short", name="bad.parquet"
    ),
    "CSV called parquet": fit(GOOD, "bad.parquet is not a Parquet file", name="bad.parquet"),
    "parquet called CSV": fit(parquet(), "bad.csv is a Parquet file", "rename it to .parquet"),
    "feather called CSV": fit(feather(), "bad.csv is an Arrow file", "rename it to .arrow"),
    "Excel called CSV": fit(b"PK\x03\x04" + bytes(200), "zip or Excel", "export it as CSV"),
    "gzip called CSV": fit(b"\x1f\x8b\x08" + bytes(50), "compressed", "rename it to end in .gz"),
    "gzip cut short": fit(b"\x1f\x8b\x08" + bytes(50), "bad.csv.gz", "damaged or cut short", name="bad.csv.gz"),
    "damaged feather": fit(feather()[:-300], "bad.feather", "damaged or cut short", name="bad.feather"),
    "feather of noise": fit(b"ARROW1" + bytes(range(256)) * 4, "bad.feather", "not an Arrow", name="bad.feather"),
    # Text that cannot be read as asked.
    "UTF-16": fit(UTF16, "UTF-16", "--encoding utf-16"),
    "UTF-16 without a mark": fit(GOOD.decode().encode("utf-16-le"), "--encoding utf-16"),
    "Latin-1": fit(
        text(sex=["größe"] * N).decode().encode("latin-1"), "not UTF-8", "0xf6", "line 2", "--encoding latin-1"
    ),
    "NUL bytes": fit(GOOD.replace(b"31", b"3\x00", 1), "NUL byte in line", "--encoding"),
    "unknown encoding": fit_with("--encoding", "utf-9", words=("'utf-9' is not known", "utf-8")),
    "bad delimiter": fit_with("--delimiter", "ab", words=("delimiter must be one character", "'ab'")),
    "wrong delimiter": fit_with("--delimiter", ";", words=("no column 'earnings'", "such as --delimiter ','")),
    "wrong delimiter, ragged": fit(
        b"a;b;c\n1;2;3\n1,5;2;3;4\n" * 30, "no column 'earnings'", options=(*ROLES, "--delimiter", ";")
    ),
    "duplicate columns": fit(lines("age,arm,arm,earnings", "1,a,b,2"), "two columns named 'arm'", "rename one"),
    "ragged row": fit(GOOD + b"p,1\n", "line 122 has 2 cell(s)", "header has 5", "correct the file"),
    "unclosed quote": fit(GOOD + b'"p,1,f,treat,2\n', "quote opened in line 122 is not closed", "correct"),
    "unclosed quote in the header": fit(b'"age,arm,earnings\n1,a,2\n', "bad.csv", "quote left open"),
    # Columns that do not hold what they must.
    "no such column": fit_with(
        "--outcome", "earning", words=("good.csv has no column 'earning'", "did you mean 'earnings'"),
        roles=("--action", "arm"),
    ),
    "text outcome": fit(text(earnings=["high", "low"] * 60), "outcome 'earnings' must be numbers", "'high'", "row 0"),
    "one word in the outcome": fit(
        text(earnings=first(map(str, TRIAL["earnings"]), "lots", 7)), "outcome 'earnings'", "'lots'", "row 7"
    ),
    "dates as outcome": fit(
        parquet(earnings=[datetime.date(2020, 1, 1)] * N), "outcome 'earnings' must be numbers", name="bad.parquet"
    ),
    "lists as outcome": fit(parquet(earnings=[[1.0]] * N), "outcome 'earnings' must be numbers", name="bad.parquet"),
    "infinite outcome": fit(
        text(earnings=first(TRIAL["earnings"], np.inf, 5)), "outcome 'earnings' is infinite in row 5", "correct or drop"
    ),
    "outcome of 10**400": fit(text(earnings=BIG), "outcome 'earnings'", "row 0"),
    "no outcome at all": fit(text(earnings=[""] * N), "outcome 'earnings' is missing in every row", "name the column"),
    "amounts as action": fit(text(arm=TRIAL["earnings"]), "action 'arm' must be a label", "turn amounts into levels"),
    "dates as action": fit(
        parquet(arm=[datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)] * 60), "action 'arm'", "date",
        "convert them", name="bad.parquet",
    ),
    "lists as action": fit(parquet(arm=[[1], [2]] * 60), "action 'arm'", "list", "convert", name="bad.parquet"),
    "no action at all": fit(text(arm=["NA"] * N), "action 'arm' is missing in every row"),
    "one action": fit(text(arm=["treat"] * N), "every row took the action 'treat'", "bring rows with another"),
    "5,000 actions": fit(
        b"age,arm,earnings\n" + b"".join(b"%d,a%d,1\n" % (i % 50, i) for i in range(5000)), "5,000 different values",
        "at most 100", "merge rare actions",
    ),
    "labels spelled twice": fit(text(arm=["treat", "Treat ", "none"] * 40), "'treat'", "'Treat '", "spell it one way"),
    "action seen in rows without outcome only": fit(
        text(arm=["none"] * 119 + ["treat"], earnings=first(map(str, TRIAL["earnings"]), "", 119)),
        "every row took the action 'none'",
    ),
    "dates as only features": fit(
        parquet(age=None, sex=None, person=[datetime.date(2020, 1, 1 + i % 28) for i in range(N)]),
        "no column is left for the features", "'person'", "dates", name="bad.parquet",
    ),
    "dates asked for": fit(
        parquet(sex=[datetime.date(2020, 1, 1)] * N), "'sex' cannot be a feature", "dates", "turn it into a number",
        name="bad.parquet", options=(*ROLES, "--features", "age", "sex"),
    ),
    "lists asked for": fit(
        parquet(sex=[[1, 2]] * N), "'sex' cannot be a feature", "lists", "make one column per part",
        name="bad.parquet", options=(*ROLES, "--features", "sex"),
    ),
    "empty features": fit(
        text(age=[""] * N, sex=[""] * N, person=[""] * N), "no column is left for the features", "no value in any"
    ),
    "constant features": fit(
        text(age=[1] * N, sex=["f"] * N, person=["p"] * N), "no column is left for the features", "every row has"
    ),
    "infinite feature": fit(text(age=first(TRIAL["age"], -np.inf, 9)), "'age'", "infinite", "row 9", "missing"),
    "feature of 10**400": fit(text(age=BIG), "'age'", "row 0"),
    "only an identifier": fit(
        text(age=None, sex=None), "no column is left for the features", "every value is different"
    ),
    "negative weights": fit(
        text(w=first([1.0] * N, -2.0)), "weight", "-2", options=(*ROLES, "--weight", "w")
    ),
    "weights of zero": fit(text(w=[0.0] * N), "weight", options=(*ROLES, "--weight", "w")),
    "infinite weight": fit(text(w=first([1.0] * N, np.inf)), "weight", options=(*ROLES, "--weight", "w")),
    "words as weights": fit_with("--weight", "sex", words=("weight 'sex' must be numbers", "row 0")),
    "one group": fit(text(g=["a"] * N), "group", options=(*ROLES, "--group", "g")),
    "propensity above one": fit(text(p=first([0.5] * N, 1.5)), "propensit", "1.5", options=(*ROLES[:-1], "p")),
    "propensity of zero": fit(text(p=first([0.5] * N, 0.0)), "propensit", "0", options=(*ROLES[:-1], "p")),
    "propensity in words": fit_with(
        "--propensity", "sex", words=("propensity 'sex' must be numbers",), roles=ROLES[:-2]
    ),
    # Options.
    "propensity number above one": fit_with("--propensity", "1.5", words=("propensit", "1.5"), roles=ROLES[:-2]),
    "propensity that is nothing": fit_with(
        "--propensity", "nan", words=("propensit", "nan"), roles=ROLES[:-2]
    ),
    "propensity of an unknown column": fit_with(
        "--propensity", "perso", words=("no column 'perso'", "did you mean 'person'"), roles=ROLES[:-2]
    ),
    "propensities that do not sum to one": fit_with(
        "--propensity", "treat=0.5", "none=0.4", words=("propensit", "sum to 1", "0.4"), roles=ROLES[:-2]
    ),
    "propensities of some actions": fit_with(
        "--propensity", "treat=0.5", words=("propensit", "none"), roles=ROLES[:-2]
    ),
    "propensities of an unknown action": fit_with(
        "--propensity", "treat=0.5", "non=0.5", words=("'non'", "did you mean 'none'"), roles=ROLES[:-2]
    ),
    "cost without an action": fit_with("--cost", "774", words=("--cost must be ACTION=NUMBER", "'774'")),
    "cost that is no number": fit_with("--cost", "treat=lots", words=("--cost must be ACTION=NUMBER", "'treat=lots'")),
    "infinite cost": fit_with("--cost", "treat=inf", words=("cost of 'treat' must be a finite number", "inf")),
    "cost by zero": fit_with("--cost", "treat=1/0", words=("--cost must be ACTION=NUMBER", "'treat=1/0'")),
    "cost of an unknown action": fit_with(
        "--cost", "tret=5", words=("'tret'", "the actions are none, treat", "did you mean 'treat'")
    ),
    "cost twice": fit_with("--cost", "treat=5", "treat=6", words=("--cost names 'treat' twice", "once")),
    "capacity above one": fit_with("--capacity", "treat=20", words=("capacity of 'treat'", "between 0 and 1", "20")),
    "negative capacity": fit_with("--capacity", "treat=-0.1", words=("capacity of 'treat'", "between 0 and 1", "-0.1")),
    "capacity of the default action": fit_with(
        "--capacity", "none=0.5", words=("'none'", "the default action", "limit another one")
    ),
    "unknown default": fit_with("--default", "trea", words=("'trea'", "did you mean 'treat'")),
    "defer above one": fit_with("--defer", "1.5", words=("--defer must be from 0 to 1", "1.5", "0.8")),
    "defer that is nothing": fit_with("--defer", "nan", words=("--defer must be from 0 to 1", "nan")),
    "defer in words": fit_with("--defer", "often", words=("--defer", "'often'")),
    "outcome range turned round": fit_with(
        "--outcome-range", "5", "1", words=("--outcome-range", "lower one first", "5 1")
    ),
    "outcome range without a beginning": fit_with(
        "--outcome-range", "-inf", "0", words=("--outcome-range", "lower one first", "-inf")
    ),
    "certificate without a range": fit_with("--certify", words=("--outcome-range", "lowest", "highest")),
    "outcome beyond its range": fit_with("--outcome-range", "0", "1", words=("outcome", "0", "1", "range")),
    "negative seed": fit_with("--seed", "-1", words=("--seed must be a whole number from 0", "-1")),
    "large seed": fit_with("--seed", str(2**70), words=("--seed must be a whole number", str(2**70))),
    "seed in words": fit_with("--seed", "lucky", words=("--seed", "'lucky'")),
    "features naming the outcome": fit_with(
        "--features", "age", "earnings", words=("'earnings' has two roles", "leave it out of the other")
    ),
    "feature twice": fit_with("--features", "age", "age", words=("'age'", "role")),
    "outcomes of one column": fit_with("--outcomes", "earnings", words=("two columns or more", "earnings"), roles=()),
    "outcomes beside an action": fit_with("--outcomes", "earnings", "age", words=("outcomes", "no meaning with it")),
    "outcomes in words": fit_with("--outcomes", "earnings", "sex", words=("'sex' must be numbers",), roles=()),
    "no outcome named": fit_with(words=("outcome is not named", "give outcome and action"), roles=()),
    "no action named": fit_with(words=("action is not named",), roles=ROLES[:2]),
    "data last": Case(
        ("fit", "--features", "age", "sex", "good.csv"),
        ("DATA comes first", "--features", "'good.csv'", "fit good.csv --features age sex"),
    ),
    "option without a value": fit_with("--features", words=("--features needs a value",)),
    "unknown option": fit_with("--outcom", "y", words=("No such option", "--outcom")),
    "unknown command": Case(("fitt", "good.csv"), ("No such command 'fitt'",)),
    # Where to write.
    "output folder that is a file": Case(
        ("fit", "good.csv", *ROLES, "--out", "good.csv"), ("good.csv is a file", "name a folder")
    ),
    "output folder in a missing one": Case(
        ("fit", "good.csv", *ROLES, "--out", "a/b"), ("there is no folder a", "make it first")
    ),
    "output where a folder is": Case(
        ("fit", "good.csv", *ROLES, "--out", "taken"), ("taken/report.html is a folder",), {"taken/report.html/x": b""}
    ),
    "data in the place of a result": Case(
        ("fit", "result/decisions.csv", *ROLES, *OUT), ("result/decisions.csv would be written over", "another --out")
    ),
    # New rows.
    "new rows lack a column": decide(text(age=None, aeg=TRIAL["age"]), "no column 'age'", "did you mean 'aeg'"),
    "text where numbers were": decide(
        text(age=first(map(str, TRIAL["age"]), "old", 3)), "'age' must be numbers", "'old'", "line 5", "NA"
    ),
    "text where numbers were, parquet": decide(
        parquet(age=["old"] * N), "'age' held numbers", "'old'", "row 0", name="bad.parquet"
    ),
    "lists where categories were": decide(parquet(sex=[[1]] * N), "'sex' held categories", "lists", name="bad.parquet"),
    "infinity in new rows": decide(text(age=first(TRIAL["age"], np.inf, 8)), "'age'", "infinite", "row 8"),
    "no new rows": decide(lines("age,sex"), "bad.csv has no rows", "nothing to decide"),
    "kept column is not there": decide(GOOD, "no column 'persn'", "'person'", options=(*DECIDE, "--keep", "persn")),
    "output of unknown suffix": decide(GOOD, "'.xls'", ".csv", ".parquet", options=("-o", "out.xls")),
    "output without suffix": decide(GOOD, "format is not known", options=("-o", "out")),
    "output is the input": decide(GOOD, "bad.csv is the file that is read", options=("-o", "bad.csv")),
    "output is a folder": decide(GOOD, "result is a folder", options=("-o", "result")),
    "output in a missing folder": decide(GOOD, "there is no folder a", "make it first", options=("-o", "a/b.csv")),
    "output is a device": decide(GOOD, "/dev/full", "not a file that can be replaced", options=("-o", "/dev/full")),
    "output is not named": decide(GOOD, "--out", options=()),
    "decide, defer above one": decide(GOOD, "--defer must be from 0 to 1", "2", options=(*DECIDE, "--defer", "2")),
    # Policies.
    "missing policy": Case(("decide", "no.gbpl", "good.csv", *DECIDE), ("there is no file no.gbpl", "gbpl fit")),
    "policy is a folder": Case(
        ("decide", "result", "good.csv", *DECIDE), ("result is not a file", "result/policy.gbpl")
    ),
    "policy is empty": by(b"", *DAMAGED),
    "policy is a table": by(GOOD, *DAMAGED),
    "policy is a pickle": by(pickle.dumps({"weights": [1.0]}), *DAMAGED),
    "policy cut short": by(POLICY[:-100], *DAMAGED),
    "policy of a few bytes": by(POLICY[:5], *DAMAGED),
    "policy with more behind it": by(POLICY + b"more", *DAMAGED),
    **{f"policy with a flipped bit at {place:.0%}": by(flipped(POLICY, place), *DAMAGED)
       for place in (0.0, 0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)},
    "policy with an endless header": by(struct.pack("<Q", 2**60) + b"{}", *DAMAGED, "header claims"),
    "policy of a newer format": by(newer(), "has format 6", "reads up to 5", "install a newer gbpl"),
    "policy without a summary": Case(
        ("report", "bad.gbpl", "-o", "page.html"), ("no summary", "gbpl fit"),
        {"bad.gbpl": _saved(tiny_policy(TRIAL).with_study(rule=tiny_policy(TRIAL).rule, encoder=None, summary=None))},
    ),
    "report of a damaged policy": Case(
        ("report", "bad.gbpl", "-o", "page.html"), ("bad.gbpl", *DAMAGED), {"bad.gbpl": flipped(POLICY, 0.6)}
    ),
    "report that is no page": Case(("report", "policy.gbpl", "-o", "page.pdf"), ("'page.pdf'", "ends in .html")),
    "report over the policy": Case(("report", "policy.gbpl", "-o", "policy.gbpl"), ("'policy.gbpl'", ".html")),
    "report in a missing folder": Case(("report", "policy.gbpl", "-o", "a/b.html"), ("no folder a", "make it first")),
    # Judging.
    "an action the policy does not know": evaluate(text(arm=["treat", "none", "call"] * 40), "call"),
    "evaluate without the outcome": evaluate(text(earnings=None, earning=TRIAL["earnings"]), "no column 'earnings'",
                                             "did you mean 'earning'"),
    "evaluate by an unknown estimator": evaluate(None, "estimator", "'best'", "dr", options=("--estimator", "best")),
    "evaluate at an unknown cost": evaluate(None, "'tret'", "did you mean 'treat'", options=("--cost", "tret=1")),
    "evaluate with outcomes of three": evaluate(
        text(a=TRIAL["age"], b=TRIAL["age"], c=TRIAL["age"]), "outcomes names 3 columns", "none", "treat",
        options=("--outcomes", "a", "b", "c"),
    ),
    "evaluate with propensities above one": evaluate(None, "propensit", "3", options=("--propensity", "3")),
    "compare other actions": Case(
        ("compare", "policy.gbpl", "other.gbpl", "good.csv"), ("'none', 'treat'", "'a', 'b'", "like"),
        {"other.gbpl": policy(actions=("a", "b"))},
    ),
    "compare with a damaged one": Case(
        ("compare", "policy.gbpl", "bad.gbpl", "good.csv"), ("bad.gbpl", *DAMAGED), {"bad.gbpl": POLICY[:-9]}
    ),
    # Data sets.
    "unknown data set": Case(("datasets", "nws"), ("no data set 'nws'", "did you mean 'nsw'")),
    "data set to an unknown suffix": Case(("datasets", "email", "-o", "a.xls"), ("'.xls'", ".csv")),
    "which data set": Case(("datasets", "-o", "a.csv"), ("no data set is named", "a.csv", "give a name")),
    "demo of few rows": Case(("demo", "--rows", "5"), ("--rows must be from 200", "got 5")),
    "demo of a word": Case(("demo", "--rows", "many"), ("--rows", "'many'")),
}  # fmt: skip


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a good table, a policy, and an earlier result; nothing may be trained there."""
    monkeypatch.chdir(tmp_path)
    forbid_calls(monkeypatch, (gbpl.estimators.gbplnet, "fit_together"), (CrossFit, "run"))
    (tmp_path / "good.csv").write_bytes(GOOD)
    (tmp_path / "policy.gbpl").write_bytes(POLICY)
    (tmp_path / "out.csv").write_bytes(b"decisions of last year")
    (tmp_path / "result").mkdir()
    for name in NAMES.values():
        (tmp_path / "result" / name).write_bytes(OLD)
    return tmp_path


def lay(room: Path, files: dict[str, Any]) -> None:
    for name, content in files.items():
        (room / name).parent.mkdir(parents=True, exist_ok=True)
        (room / name).write_bytes(content)


def refused(done: Done, *words: str, code: int = 2) -> None:
    assert done.code == code, done
    assert "Traceback" not in done.err
    assert done.out == ""
    for word in words:
        assert word in done.words, (word, done.words)
    assert done.words.startswith("error: ")
    assert done.err.count("\n") == 1, "one message, on one line where it is piped"


@pytest.mark.parametrize("name", CASES)
def test_refused(name: str, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES[name]
    lay(room, case.files)
    before = snapshot(room)
    refused(run(capsys, *case.argv), *case.words, code=case.code)
    assert snapshot(room) == before


def test_there_are_many() -> None:
    assert len(CASES) >= 120


@pytest.mark.parametrize(
    "name",
    [
        "missing file", "unclosed quote", "one action", "capacity above one", "data last", "unknown option",
        "defer in words", "policy cut short", "an action the policy does not know", "compare other actions",
        "unknown data set",
    ],
)  # fmt: skip
def test_an_error_as_json_is_one_line(name: str, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES[name]
    lay(room, case.files)
    before = snapshot(room)
    done = run(capsys, case.argv[0], *(["--json"] if name == "data last" else []), *case.argv[1:], "--json")
    answer = json.loads(done.err)
    assert done.err.count("\n") == 1
    assert (done.out, done.code, answer["code"]) == ("", 2, 2)
    for word in case.words:
        assert word in answer["error"]
    assert snapshot(room) == before


def test_a_process_of_its_own(room: Path) -> None:
    lay(room, {"bad.csv": UTF16})
    before = snapshot(room)
    words = command("fit", room / "bad.csv", *ROLES, "--out", room / "result")
    done = subprocess.run(words, capture_output=True, text=True, cwd=HERE)
    refused(Done(done.returncode, done.stdout, done.stderr), "bad.csv is UTF-16 text", "--encoding utf-16")
    assert snapshot(room) == before


# -- the disk ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def learned(room: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which `gbpl fit` has learned at once, and has only to write."""
    summary = {"warnings": [], "advice": None, "reviewed": None, "unit": None} | two_actions()
    summary["alternatives"] = [{"share": 1.0} | one for one in summary["alternatives"]]
    made = tiny_policy(TRIAL, summary=summary)
    study = gbpl.study.study.Study(None, made, made.decide(TRIAL), summary)  # type: ignore[arg-type]
    monkeypatch.setattr(gbpl.study.study, "learn", lambda *_, **__: study)
    return room


def full(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", range(1, 5))
def test_a_full_disk_at_any_moment_of_a_fit(
    call: int, learned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Policy, report and decisions are each put in place in a hidden folder, which then takes the place of the old."""
    replace, calls = os.replace, iter(range(1, 100))
    monkeypatch.setattr(os, "replace", lambda *names: full() if next(calls) == call else replace(*names))
    exchanged = gbpl.runtime.files._exchanged
    if call == 4:
        monkeypatch.setattr(gbpl.runtime.files, "_exchanged", full)
    before = snapshot(learned)
    refused(run(capsys, "fit", "good.csv", *ROLES, *OUT), "cannot be written", "No space left on device")
    assert snapshot(learned) == before
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(gbpl.runtime.files, "_exchanged", exchanged)
    assert run(capsys, "fit", "good.csv", *ROLES, *OUT).code == 0
    assert not {name for name in NAMES.values() if (learned / "result" / name).read_bytes() == OLD}


def test_a_full_disk_leaves_no_new_folder(
    learned: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "rename", full)
    before = snapshot(learned)
    refused(run(capsys, "fit", "good.csv", *ROLES, "--out", "fresh"), "fresh", "cannot be written")
    assert snapshot(learned) == before


def test_what_else_is_in_the_folder_stays(learned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(learned, {"result/notes.txt": b"mine"})
    assert run(capsys, "fit", "good.csv", *ROLES, *OUT).code == 0
    assert sorted(path.name for path in (learned / "result").iterdir()) == sorted([*NAMES.values(), "notes.txt"])
    assert (learned / "result" / "notes.txt").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "argv",
    [("decide", "policy.gbpl", "good.csv", "-o", "out.csv"), ("decide", "policy.gbpl", "good.csv", "-o", "new.parquet"),
     ("report", "page.gbpl", "-o", "page.html"), ("datasets", "email", "-o", "out.csv")],
)  # fmt: skip
def test_a_full_disk(
    argv: tuple[str, ...], room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lay(room, {"page.html": b"page of last year", "page.gbpl": policy(summary=two_actions())})
    before = snapshot(room)
    monkeypatch.setattr(os, "replace", full)
    refused(run(capsys, *argv), argv[-1], "cannot be written", "No space left on device")
    assert snapshot(room) == before


@pytest.mark.skipif(os.name == "nt", reason="limits of a process are of Unix")
def test_a_file_that_cannot_grow(room: Path) -> None:
    """A real failure in the middle of a file: the system allows 16 kB and the decisions have more."""
    lay(room, {"many.csv": text(**{name: list(values) * 10 for name, values in TRIAL.items()})})
    before = snapshot(room)
    limit = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2**14, 2**14));"
    limited = f"{limit} from gbpl.cli import main; main(sys.argv[1:])"
    words = [str(word) for word in ("decide", room / "policy.gbpl", room / "many.csv", "-o", room / "out.csv")]
    done = subprocess.run([sys.executable, "-c", limited, *words], capture_output=True, text=True, cwd=HERE)
    refused(Done(done.returncode, done.stdout, done.stderr), "out.csv", "cannot be written", "File too large")
    assert snapshot(room) == before


@pytest.mark.parametrize(
    ("argv", "place"),
    [(("fit", "good.csv", *ROLES, *OUT), "result"), (("fit", "good.csv", *ROLES, "--out", "fresh"), "."),
     (("report", "page.gbpl", "-o", "page.html"), ".")],
)  # fmt: skip
def test_a_folder_that_is_not_to_be_written_to(
    argv: tuple[str, ...],
    place: str,
    learned: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lay(learned, {"page.gbpl": policy(summary=two_actions())})
    before = snapshot(learned)
    monkeypatch.setattr(os, "access", lambda path, mode: not (mode & os.W_OK and Path(path) == Path(place)))
    refused(run(capsys, *argv), f"the folder {place} cannot be written to", "choose another")
    assert snapshot(learned) == before


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_decide_into_a_folder_that_is_not_to_be_written_to(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (room / "result").chmod(0o500)
    refused(
        run(capsys, "decide", "policy.gbpl", "good.csv", "-o", "result/a.csv"), "the folder result", "choose another"
    )
    (room / "result").chmod(0o700)


# -- odd, but right ---------------------------------------------------------------------------------------------------

ODD = {
    "a byte order mark": b"\xef\xbb\xbf" + GOOD,
    "semicolons": GOOD.replace(b",", b";"),
    "tabs": GOOD.replace(b",", b"\t"),
    "lines of Windows": GOOD.replace(b"\n", b"\r\n"),
    "no line end at the end": GOOD.rstrip(b"\n"),
    "blank lines": GOOD.replace(b"\n", b"\n\n", 1) + b"\n",
}


@pytest.mark.parametrize("name", ODD)
def test_odd_text_is_read(name: str, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "decide", "policy.gbpl", "good.csv", "-o", "right.csv").code == 0
    lay(room, {"odd.csv": ODD[name]})
    done = run(capsys, "decide", "policy.gbpl", "odd.csv", "-o", "odd.out.csv")
    assert (done.code, done.err) == (0, "")
    assert (room / "odd.out.csv").read_bytes() == (room / "right.csv").read_bytes()


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "cp1252", "shift_jis"])
def test_other_encodings_by_name(encoding: str, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sex = ["男" if encoding in ("utf-16", "shift_jis") else "größe"] * N
    lay(room, {"odd.csv": text(person=sex).decode().encode(encoding)})
    argv = ("decide", "policy.gbpl", "odd.csv", "-o", "out.csv", "--keep", "person", "--encoding", encoding)
    assert run(capsys, *argv).code == 0
    assert sex[0] in (room / "out.csv").read_text(encoding="utf-8")


def test_missing_values_and_new_levels_are_told(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(room, {"odd.csv": text(age=first(map(str, TRIAL["age"]), "NA"), sex=first(TRIAL["sex"], "x", 1))})
    done = run(capsys, "decide", "policy.gbpl", "odd.csv", "-o", "out.csv")
    assert done.code == 0
    assert "1 missing age" in done.out
    assert "1 new level of sex" in done.out


def test_a_column_without_a_name_is_called_by_its_place(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    named = {"column 1": TRIAL["age"], "sex": TRIAL["sex"]}
    lay(room, {"p.gbpl": _saved(tiny_policy(named, list(named)))})
    lay(room, {"odd.csv": lines(",sex", *(f"{age},{sex}" for age, sex in zip(*named.values(), strict=True)))})
    assert run(capsys, "decide", "p.gbpl", "odd.csv", "-o", "odd.out.csv").code == 0
    write(room / "right.parquet", named)
    assert run(capsys, "decide", "p.gbpl", "right.parquet", "-o", "right.csv").code == 0
    assert (room / "odd.out.csv").read_bytes() == (room / "right.csv").read_bytes()


def test_integers_beyond_64_bits_are_numbers(room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lay(room, {"odd.csv": text(age=first(map(str, TRIAL["age"]), str(2**70)))})
    lay(room, {"same.csv": text(age=first(TRIAL["age"], 2.0**70))})
    for name in ("odd", "same"):
        assert run(capsys, "decide", "policy.gbpl", f"{name}.csv", "-o", f"{name}.out.csv").code == 0
    assert (room / "odd.out.csv").read_bytes() == (room / "same.out.csv").read_bytes()


HOSTILE = [
    "<script>alert(1)</script>", "../../etc/passwd", "[red]", "[/]", ":smile:", "new\nline", "👩🏽\u200d🚀", "=cmd()",
    "x" * 300, "\x1b[31mred", "{{7*7}}", "' or 1=1", "a=b", "back\\slash\\", "\u202emimes",
]  # fmt: skip


def test_hostile_names_are_only_names(
    room: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A feature called <script> decides like any other: shown as it is, escaped in the page, and no folder is left."""
    monkeypatch.undo()
    monkeypatch.chdir(room)
    monkeypatch.setattr(gbpl.study.study, "learn", quick_learn)
    rng = np.random.default_rng(0)
    labels = np.array(["[bold]x[/]", "<b>y</b>"])[rng.integers(0, 2, N)]
    columns = {name: rng.normal(size=N) for name in HOSTILE} | {"=1+1": rng.normal(size=N), "[act]": labels}
    write(room / "[data] <i>.parquet", {name: values for name, values in columns.items()})
    roles = ("--outcome", "=1+1", "--action", "[act]", "--propensity", "<b>y</b>=0.5", "[bold]x[/]=0.5")
    done = run(capsys, "fit", "[data] <i>.parquet", *roles, "--cost", "[bold]x[/]=0.01", "--features", *HOSTILE, *OUT)
    assert done.code == 0, done.err
    assert "[bold]x[/]" in done.out
    assert "<b>y</b>" in done.out
    assert "[data] <i>.parquet" in done.out
    assert not re.search("[\x00-\x09\x0b-\x1f\u202e]", done.out), "nothing that steers a terminal"
    page = (room / "result" / "report.html").read_text(encoding="utf-8")
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert" not in page
    assert "<b>y</b>" not in page
    assert json.loads((room / "result" / "summary.json").read_text())["data"]["features"] == HOSTILE
    done = run(capsys, "decide", "result/policy.gbpl", "[data] <i>.parquet", "-o", "[out].csv", "--keep", *HOSTILE[:3])
    assert done.code == 0, done.err
    assert "[bold]x[/]" in done.out
    assert "Written: [out].csv" in done.out
    header = (room / "[out].csv").read_text(encoding="utf-8").splitlines()[0]
    assert "share of draws for [bold]x[/]" in header
    assert sorted(path.name for path in room.iterdir()) == sorted(
        ["[data] <i>.parquet", "[out].csv", "good.csv", "out.csv", "policy.gbpl", "result"]
    )


@pytest.mark.parametrize("name", ["[red]a", ":smile:", "\x1b[2Jcleared", "a\nb", "b\udcff"])
def test_hostile_file_names_in_messages(name: str, room: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "fit", f"{name}.csv", *ROLES, *OUT)
    refused(done, "does not exist")
    assert "\x1b" not in done.err
    assert name.encode("unicode_escape").decode() in done.err
