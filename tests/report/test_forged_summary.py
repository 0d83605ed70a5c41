"""Summaries that somebody has changed: refused by name in report, evaluate and load, or shown; never a raw error."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import support.report as examples
from support.cli import people, run, tiny_policy, write
from support.report import places

from gbpl import load
from gbpl.frozen.file import SavedPolicyError
from gbpl.report import render
from gbpl.report.schema import check_summary

GONE = object()
VALUES = (None, "x", -1, 1e308, 1e200, [], {}, True, [None], {"a": 1}, 10**400, float("nan"), GONE)
SAMPLE = 250  # of 8,600 changes; another seed tries others


def changed(text: str, place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(text)
    node: Any = made
    for key in place[:-1]:
        node = node[key]
    if value is GONE:
        del node[place[-1]]
    else:
        node[place[-1]] = value
    return made


@pytest.mark.parametrize("make", [examples.two_actions, examples.three_actions])
def test_changed_summaries_are_shown_or_refused_by_name(make: Any) -> None:
    text = json.dumps(make())
    every = [(place, value) for place in places(json.loads(text)) for value in VALUES]
    for place, value in random.Random(7).sample(every, SAMPLE // 2):
        said = ""
        try:
            page = render(changed(text, place, value))
        except ValueError as error:
            said = str(error)
        assert "the summary" in said if said else "</html>" in page, f"{place} = {value!r:.20}: {said}"


def test_what_is_wrong_is_named() -> None:
    text = json.dumps(examples.two_actions())
    for place, value, words in (
        (("actions", 0, "share"), "half", r"actions\[0\].share must be a number, got 'half'"),
        (("who", 0, "bins"), 3, r"who\[0\].bins must be a list, got 3"),
        (("data", "rows"), 2.5, "data.rows must be a whole number, got 2.5"),
        (("welfare",), "good", "welfare must be a table, got 'good'"),
    ):
        with pytest.raises(ValueError, match=f"the summary is damaged: {words}"):
            render(changed(text, place, value))
    check_summary(json.loads(text))


def test_a_policy_with_a_forged_summary_is_not_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = people(60)
    data = write(tmp_path / "new.csv", table)
    fine = tiny_policy(table).summary
    assert fine is not None
    for change in (
        {"roles": "all"}, {"roles": {"outcome": 3}}, {"roles": {"sudo": "rm"}}, {"actions": ["a", "b"]},
        {"actions": [{"label": 1}]}, {"actions": [{"label": "a", "cost": "free"}]}, {"actions": {"label": "a"}},
    ):  # fmt: skip
        tiny_policy(table, summary={**fine, **change}).save(tmp_path / "p.gbpl")
        with pytest.raises(SavedPolicyError, match="the summary is damaged"):
            load(tmp_path / "p.gbpl")
        for command in (
            ("evaluate", tmp_path / "p.gbpl", data),
            ("report", tmp_path / "p.gbpl", "-o", tmp_path / "r.html"),
        ):
            done = run(capsys, *command)
            assert done.code == 2
            assert "the summary is damaged" in done.words
