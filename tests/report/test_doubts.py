"""What could be wrong, on one list: each verdict by its own rule, worst first, with a word and a section to read."""

from __future__ import annotations

import re
from math import comb
from typing import Any

import pytest
from support.report import EXAMPLES, three_actions, two_actions
from support.report_parts import everything

from gbpl.report import render
from gbpl.report.doubts import at_least, doubts
from gbpl.report.reading import read


def listed(summary: dict[str, Any]) -> dict[str, str]:
    return {one.name: one.key for one in doubts(read(summary))["rows"]}


def test_the_worst_comes_first_and_every_line_has_a_word_and_a_section() -> None:
    made = two_actions() | {"warnings": [{"sentence": "a column copies the outcome"}]}
    found = doubts(read(made))
    assert [one.key for one in found["rows"]] == sorted(
        (one.key for one in found["rows"]), key=["failed", "doubt", "open", "passed"].index
    )
    assert found["rows"][0].name == "The data"
    html = render(made)
    for one in found["rows"]:
        assert f'id="{one.link}"' in html
        assert f'<li class="{one.key}"><span class="light" aria-hidden="true">{one.mark}</span>' in html
        assert f'<span class="word">{one.word}.</span>' in html


def test_tests_and_overlap() -> None:
    made = two_actions()
    assert listed(made)["Attempts to break it"] == "failed"
    made["check"]["findings"] = [one for one in made["check"]["findings"] if one["verdict"] != "failed"]
    assert listed(made)["Attempts to break it"] == "doubt"
    made["check"]["findings"] = made["check"]["findings"][:1]
    assert listed(made)["Attempts to break it"] == "passed"
    assert listed(made | {"check": None})["Attempts to break it"] == "open"
    assert listed(made)["Overlap"] == "passed"
    assert listed(three_actions())["Overlap"] == "doubt"
    assert "Overlap" not in listed(EXAMPLES["ten_actions"]())  # nobody logged anything


@pytest.mark.parametrize(("limit", "key"), [(1.0, "doubt"), (1.3, "doubt"), (2.0, "passed"), (None, "passed")])
def test_hidden_causes_by_the_factor_that_would_hide_the_gain(limit: float | None, key: str) -> None:
    made = three_actions()
    made["sensitivity"] |= {"breakdown_limit": limit}
    assert listed(made)["Hidden causes"] == key
    known = two_actions() | {"sensitivity": None}
    assert listed(known)["Hidden causes"] == "passed"
    known["overlap"] |= {"estimated": True}
    assert listed(known)["Hidden causes"] == "open"


def test_groups_leave_a_doubt_where_so_many_misses_are_rare() -> None:
    for misses, tries in ((0, 5), (1, 5), (2, 5), (3, 20), (5, 5)):
        below = sum(comb(tries, k) * 0.05**k * 0.95 ** (tries - k) for k in range(misses))
        assert at_least(misses, tries, 0.05) == pytest.approx(1.0 - below)
    for misses, key in ((0, "passed"), (1, "passed"), (2, "doubt")):
        made = three_actions()
        for place, group in enumerate(made["calibration"]["groups"]):
            group |= {"expected": 1.0, "estimate": 1.0 + 2.0 * (place < misses), "se": 1.0}
        assert listed(made)["Expected gains"] == key


def test_guards_bounds_and_certificates_are_on_the_list_where_there_are_any() -> None:
    made = everything()
    assert listed(made)["Guards"] == "passed"
    assert listed(made)["Groups"] == "passed"
    made["several"]["guards"][0]["holds"] = False
    made["by_group"]["bound"]["held_out_gap"] = 0.2
    assert listed(made)["Guards"] == "failed"
    assert listed(made)["Groups"] == "doubt"
    assert listed(two_actions())["Certificate"] == "doubt"
    sure = two_actions()
    sure["certificate"]["gain"]["lower"] = 10.0
    assert listed(sure)["Certificate"] == "passed"
    assert not {"Guards", "Groups", "Certificate"} & set(listed(three_actions()))


def test_nothing_known_is_said_to_be_so() -> None:
    rows = doubts(read(EXAMPLES["nothing"]()))["rows"]
    assert [one.key for one in rows] == ["open"]
    assert len(re.findall(r'<ul class="lights" id="lights">', render(EXAMPLES["nothing"]()))) == 1
