"""`gbpl export` writes what the functions write, and says what does not go together."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.cli import people, run, tiny_policy
from support.exports import small_rules

from gbpl import load, to_python, to_sql


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("export")
    tiny_policy(people(60)).save(folder / "p.gbpl")
    small_rules()["tree of depth 4"].save(folder / "rule.json")
    return folder / "p.gbpl", folder / "rule.json"


def test_texts_are_printed_or_written(capsys, files, tmp_path):
    policy, rule = files
    words = ["--to", "sql", "--dialect", "sqlite", "--table", "cust omers", "--keep", "id", "age"]
    done = run(capsys, "export", policy, *words)
    expected = to_sql(load(policy), dialect="sqlite", table="cust omers", keep=["id", "age"]) + ";\n"
    assert (done.code, done.out) == (0, expected)
    written = tmp_path / "decide.sql"
    done = run(capsys, "export", policy, *words, "-o", written)
    assert done.code == 0
    assert "Written" in done.out
    assert written.read_text(encoding="utf-8") == expected
    assert run(capsys, "export", policy, "--to", "python").out == to_python(load(policy))
    small = small_rules()["tree of depth 4"]
    assert run(capsys, "export", rule, "--to", "sql").out == small.to_sql() + ";\n"
    assert json.loads(run(capsys, "export", rule, "--to", "json").out) == small.to_conditions()
    done = run(capsys, "export", rule, "--to", "json", "--flag", "offer", "-o", tmp_path / "flags.json", "--json")
    assert json.loads(done.out)["to"] == "json"
    assert json.loads((tmp_path / "flags.json").read_text(encoding="utf-8")) == small.to_conditions(flag="offer")


def test_onnx_is_a_file(capsys, files, tmp_path):
    pytest.importorskip("onnx")
    for number, file in enumerate(files):
        assert run(capsys, "export", file, "--to", "onnx", "-o", tmp_path / f"{number}.onnx").code == 0
        assert (tmp_path / f"{number}.onnx").stat().st_size > 100


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "java"], "--to must be one of sql, python, json, onnx, got 'java'; try sql"),
        (["--to", "python", "--keep", "id"], "--keep is for --to sql, got --to python; leave it out"),
        (["--to", "sql", "--flag", "offer"], "--flag is for --to json, got --to sql; leave it out"),
        (["--to", "onnx"], "--to onnx needs a file to write; give one with -o"),
        (["--to", "sql", "--json"], "--json needs a file to write; give one with -o"),
        (["--to", "sql", "--dialect", "oracle"], "dialect must be one of duckdb, sqlite, got 'oracle'"),
        (["--to", "json"], "a whole policy is no list of conditions"),
        (["--to", "sql", "--rule"], "has no small rule, which --rule asks for; learn one with gbpl fit --rule tree:2"),
    ],
)
def test_what_does_not_go_together_is_said(capsys, files, words, said):
    done = run(capsys, "export", files[0], *words)
    assert done.code == 2
    assert said in done.words
    assert done.out == ""
