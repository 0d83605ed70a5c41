"""Several outcomes in a study and on the command line: columns, rows, comparisons, summary, words and refusals."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.cli import run
from support.policies import small_study_net

import gbpl
import gbpl.study.study
from gbpl import TableError, learn
from gbpl.report.schema import check_summary

ROLES: dict[str, Any] = {"outcome": "spend", "action": "mail", "propensity": 0.5}
N = 260


def frame(lost: int = 0) -> pd.DataFrame:
    """Mail raises spend where age is high, and complaints for everybody, most where income is high."""
    rng = np.random.default_rng(0)
    made = pd.DataFrame({"age": rng.normal(size=N), "income": rng.normal(size=N), "mail": rng.choice(["no", "yes"], N)})
    mail = (made["mail"] == "yes").to_numpy()
    made["spend"] = mail * (0.8 + made["age"]) + 0.3 * rng.normal(size=N)
    made["complaints"] = 0.2 + mail * (0.3 + 0.3 * made["income"]) + 0.1 * rng.normal(size=N)
    made.loc[:lost, "complaints"] = np.nan if lost else made.loc[:lost, "complaints"]
    return made


def net() -> Any:
    return small_study_net(zeta="auto", progress=False)


@pytest.fixture(scope="module")
def study() -> Any:
    return learn(frame(lost=4), **ROLES, guard={"complaints": "<=0.1"}, estimator=net())


def test_the_guarded_column_is_no_feature_and_rows_without_it_are_left_out(study: Any) -> None:
    data = study.summary["data"]
    assert data["features"] == ["age", "income"]
    assert (data["rows"], data["dropped"]) == (N - 5, 5)
    assert "5 rows without an outcome (complaints) left out" in data["notes"]
    assert study.summary["warnings"] == []
    new = frame().drop(columns=["complaints", "spend", "mail"])
    assert len(study.policy.decide(new).action) == N  # decided without it


def test_the_summary_has_the_front_and_the_guards(study: Any) -> None:
    told = study.summary["several"]
    check_summary(study.summary)
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert (told["kind"], told["outcomes"], told["fallback"]) == ("guard", ["spend", "complaints"], False)
    assert told["guards"][0]["holds"]
    assert told["guards"][0]["limit"] <= 0.1
    chosen = told["front"][told["chosen"]]
    assert chosen["chosen"]
    assert study.summary["welfare"]["estimate"] == pytest.approx(chosen["outcomes"][0]["value"])


def test_what_breaks_the_guards_is_no_alternative(study: Any) -> None:
    """Mail for everybody has the most spend, and three times the complaints that are allowed: it is not advised."""
    told = study.summary["several"]
    assert told["allowed"] == [0]
    single = [item for item in study.summary["alternatives"] if item["action"] is not None]
    assert [item["label"] for item in single] == ["everybody gets no"]
    assert single[0]["best"]
    assert "everybody mail = yes" not in study.summary["advice"]["text"]
    assert any("giving everybody yes is left out" in note for note in study.summary["data"]["notes"])


def test_a_saved_study_decides_as_the_chosen_policy(study: Any, tmp_path: Path) -> None:
    study.save(tmp_path / "p.gbpl")
    loaded = gbpl.load(tmp_path / "p.gbpl")
    assert loaded.decide(frame()).action.tolist() == study.policy.decide(frame()).action.tolist()
    assert loaded.summary["several"]["chosen"] == study.summary["several"]["chosen"]


def test_weights_are_one_objective() -> None:
    study = learn(frame(), **ROLES, outcome_weights={"complaints": -5}, estimator=net())
    told = study.summary["several"]
    assert (told["kind"], told["guards"], told["allowed"]) == ("weights", [], [0, 1])
    assert told["front"][1]["weights"] == {"spend": 1.0, "complaints": -5.0}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"guard": {"complaint": "<=0.1"}}, "complaint"),
        ({"guard": {"complaints": "<0.1"}}, "must be a sign and a bound"),
        ({"guard": {"complaints": "<=0.1"}, "features": ["age", "complaints"]}, "column 'complaints' has two roles"),
        ({"guard": {"complaints": "<=0.1"}, "outcome_weights": {"complaints": -1}}, "give one of them"),
        ({"guard": {"complaints": "<=0.1"}, "capacity": {"yes": 0.2}}, "capacity does not go with guard"),
        ({"guard": {"complaints": "<=0.1"}, "check": True}, "check does not go with guard"),
        ({"guard": {"spend": "<=0.1"}}, "name another column than the outcome 'spend'"),
        ({"guard": {"mail": "<=0.1"}}, "column 'mail' has two roles"),
        ({"guard": {"complaints": "<=0.1"}, "estimator": small_study_net()}, "need zeta='auto'"),
    ],
)
def test_wrong_wishes_are_refused_before_any_work(given: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TableError), match=message):
        learn(frame(), **{**ROLES, "estimator": net(), **given})


def test_full_feedback_is_for_fit_several() -> None:
    table = {"a": np.arange(30.0), "b": -np.arange(30.0), "x": np.arange(30.0)[::-1], "c": np.ones(30)}
    with pytest.raises(TableError, match=r"use gbpl\.fit_several"):
        learn(table, outcomes=["a", "b"], guard={"c": "<=0.1"})


# -- command line -----------------------------------------------------------------------------------------


def test_guards_on_the_command_line(
    study: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gbpl.study.study, "learn", functools.partial(learn, estimator=net()))
    frame(lost=4).to_csv(tmp_path / "t.csv", index=False)
    roles = ("--outcome", "spend", "--action", "mail", "--propensity", "1/2", "--out", tmp_path / "out")
    done = run(capsys, "fit", tmp_path / "t.csv", *roles, "--guard", "complaints<=0.1")
    assert done.code == 0, done.err
    words = " ".join(done.out.split())
    assert "The guard complaints<=0.1 holds" in words
    assert "Change of each outcome from everybody gets no" in words
    told = json.loads((tmp_path / "out" / "summary.json").read_text())["several"]
    assert told["guards"][0]["text"] == "complaints<=0.1"
    assert told["chosen"] == study.summary["several"]["chosen"]
    assert told["guards"][0]["limit"] == pytest.approx(study.summary["several"]["guards"][0]["limit"], rel=1e-3)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--guard", "complaints<0.1"], "a guard must be COLUMN<=NUMBER"),
        (["--guard", "complaints<=0.1", "complaints<=0.2"], "--guard names 'complaints' twice"),
        (["--guard", "complaint<=0.1"], "complaint"),
        (["--guard", "complaints<=0.1", "--weight-outcome", "complaints=-5"], "give one of them"),
        (["--guard", "complaints<=0.1", "--guard-against", "all"], "against must be one of"),
        (
            ["--weight-outcome", "complaints"],
            "--weight-outcome must be COLUMN=NUMBER, such as --weight-outcome complaints=-5",
        ),
    ],
)
def test_wrong_words_are_refused_before_the_table_is_read(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame().to_csv(tmp_path / "t.csv", index=False)
    roles = ("--outcome", "spend", "--action", "mail", "--propensity", "1/2", "--out", tmp_path / "out")
    done = run(capsys, "fit", tmp_path / "t.csv", *roles, *words)
    assert done.code == 2
    assert message in done.words
    assert not (tmp_path / "out").exists()
