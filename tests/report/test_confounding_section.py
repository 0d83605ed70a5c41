"""The section on hidden confounding: the sentence for each case, and what is left out."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from support.report import example

from gbpl.report import render
from gbpl.report.confounding import confounding, confounding_words
from gbpl.report.reading import read


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    return example(
        seed=0, rows=300, labels=["wait", "call"], features=["age"], effect=1.0, noise=1.0, level=5.0, spread=0.05,
        costs=[0.0, 0.0], ahead=[0.0, 0.2], logged=True, outcome="sales", source="log.csv", propensities=[0.5, 0.5],
    )  # fmt: skip


def changed(summary: dict[str, Any], *, gain: float = 1.0, low: float = 0.5, **numbers: Any) -> dict[str, Any]:
    made = deepcopy(summary)
    made["sensitivity"] |= {"baseline": "call", **numbers}
    made["sensitivity"]["gammas"][0]["gain"] |= {"lower": gain, "low": low}
    return made


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (
            {"breakdown": 1.4, "breakdown_limit": 1.1},
            "Hidden confounding that changes the odds of an action by a factor of 1.40 or more could explain the whole "
            "gain over giving everybody call. With the error of the estimate counted, a factor of 1.10 is enough to "
            "leave it in doubt (95 % level).",
        ),
        (
            {"breakdown": None, "breakdown_limit": None},
            "No hidden confounding that changes the odds of an action by a factor of up to 20 could explain the whole "
            "gain over giving everybody call. That holds with the error of the estimate counted (95 % level).",
        ),
        (
            {"breakdown": 1.2, "breakdown_limit": 1.0, "low": -0.5},
            "Hidden confounding that changes the odds of an action by a factor of 1.20 or more could explain the whole "
            "gain over giving everybody call. Even without any, the gain is not certain (95 % level).",
        ),
        (
            {"breakdown": 1.0, "breakdown_limit": 1.0, "gain": -0.1, "low": -0.5},
            "There is no gain over giving everybody call that hidden confounding would have to explain.",
        ),
    ],
)
def test_the_answer_in_words(summary: dict[str, Any], numbers: dict[str, Any], said: str) -> None:
    made = changed(summary, **numbers)
    assert str(confounding_words(read(made))).replace("\xa0", " ") == said
    assert "how much would flip it" in render(made)


def test_table_of_breakdowns(summary: dict[str, Any]) -> None:
    against = [
        {"label": "a", "gain": 1.0, "breakdown": 2.345, "breakdown_limit": 1.0},
        {"label": "b", "gain": 1.0, "breakdown": None, "breakdown_limit": 1.5},
        {"label": "c", "gain": -1.0, "breakdown": 1.0, "breakdown_limit": 1.0},
    ]
    view = confounding(read(changed(summary, against=against)))
    assert view is not None
    written = [[cell.text for cell in row[2:]] for row in view["against"]]
    assert written == [["2.35", "not certain"], ["over 20", "1.50"], ["no gain", "no gain"]]


def test_left_out_where_nothing_was_computed(summary: dict[str, Any]) -> None:
    for part in (None, {}, {"gammas": []}, {"gammas": [{"gamma": 1.0, "gain": None}]}):
        made = summary | {"sensitivity": part}
        assert confounding(read(made)) is None
        assert "h-confounding" not in render(made)
    older = {name: part for name, part in summary.items() if name != "sensitivity"}
    assert "h-confounding" not in render(older)


def test_says_what_the_policy_was_learned_for(summary: dict[str, Any]) -> None:
    made = summary | {"settings": summary["settings"] | {"confounding": 1.5}}
    assert "learned for a Gamma of 1.5" in render(made)
    assert "learned for a Gamma" not in render(summary)
