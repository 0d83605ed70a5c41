"""The small rule of a study: in the summary, in the saved policy, on the command line, and refused before the fit."""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.cli import people, quick_estimator, quick_learn, run, write

import gbpl
import gbpl.study.study
from gbpl import SmallRule, learn
from gbpl.report.schema import check_summary

TRIAL = people(240)
ROLES = {"outcome": "earnings", "action": "arm", "propensity": 0.5}


def no_fit(*args, **kwargs):
    raise AssertionError("the fit began")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"small_rule": "tree:9"}, "from 1 to 4"),
        ({"small_rule": {"without": ["shoe"]}}, "no feature"),
        ({"small_rule": {"monotone": {"age": "fax"}}}, "no action"),
        ({"small_rule": "tree:2", "capacity": {"treat": 0.2}}, "capacity"),
    ],
)
def test_refused_before_the_fit(given, why, monkeypatch):
    monkeypatch.setattr("gbpl.estimators.gbplnet.GBPLNet.fit_feedback", no_fit)
    with pytest.raises(ValueError, match=why):
        learn(TRIAL, **ROLES, **given)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("rule")
    write(made / "trial.csv", TRIAL)
    return made


def test_command_line_and_learn(folder, monkeypatch, capsys):
    """The same rule from both; the policy carries it, and rule.json decides as it does."""
    monkeypatch.setattr(gbpl.study.study, "learn", quick_learn)
    argv = ["fit", folder / "trial.csv", "--outcome", "earnings", "--action", "arm", "--propensity", "1/2", "--rule"]
    done = run(capsys, *argv, "tree:2", "--rule-monotone", "age=treat", "--seed", "3", "--out", folder / "made")
    assert done.code == 0, done.err
    assert "Small rule" in done.out
    assert "against the full policy" in done.out
    told = json.loads((folder / "made" / "summary.json").read_text())["small_rule"]
    settings = {"kind": "tree", "size": 2, "monotone": {"age": "treat"}}
    study = learn(TRIAL, **ROLES, small_rule=settings, seed=3, estimator=quick_estimator(3))
    assert study.summary["small_rule"] == told
    check_summary(study.summary)
    rule, carried = SmallRule.load(folder / "made" / "rule.json"), gbpl.load(folder / "made" / "policy.gbpl").small_rule
    assert carried is not None
    assert rule.predict(TRIAL).tolist() == carried.predict(TRIAL).tolist()
    assert str(rule) == told["text"]
    encoded = rule.encode(TRIAL)
    younger = {**TRIAL, "age": np.asarray(TRIAL["age"]) - 20}
    assert np.all((rule.predict(younger) == "treat") <= (rule.predict(TRIAL) == "treat"))
    shares = [np.mean(rule.predict(encoded) == label) for label in rule.actions_]
    assert told["shares"] == pytest.approx(shares)
    assert all(node["rows"] >= 10 for node in told["nodes"])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--rule", "bush"), "must be one of"),
        (("--rule", "tree:two"), "such as tree:2"),
        (("--rule-leaves", "3"), "add --rule"),
        (("--rule", "tree:2", "--rule-monotone", "age"), "COLUMN=ACTION"),
    ],
)
def test_wrong_words(words, why, folder, capsys):
    done = run(
        capsys, "fit", folder / "trial.csv", "--outcome", "earnings", "--action", "arm", *words, "--out", folder / "no"
    )
    assert done.code != 0
    assert why in done.err
