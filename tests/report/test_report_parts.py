"""Sections that are there where their part is: a budget, a small rule, groups, explained rows, several outcomes."""

from __future__ import annotations

import copy
import random
import re
from html import unescape

import numpy as np
import pytest
from support.report import places, three_actions
from support.report_parts import budget, everything, scorecard, small_rule

from gbpl.report import render
from gbpl.report.budget import interpolated
from gbpl.report.page import document
from gbpl.report.reading import read
from gbpl.report.several import guard_line, percent_signed

PARTS = {"budget": "budget", "small_rule": "rule", "by_group": "groups", "explained": "explained", "several": "several"}


def section(html: str, name: str) -> str:
    start = html.index(f'<section id="{name}"')
    text = re.sub(r"<[^>]+>", " ", html[start : html.index("</section>", start)])
    return re.sub(r" (?=[.,:;)])", "", " ".join(unescape(text).split()))


@pytest.mark.parametrize("part", PARTS)
def test_a_section_is_there_where_its_part_is(part: str) -> None:
    html = render(three_actions() | {part: everything()[part]})
    assert f'<section id="{PARTS[part]}"' in html
    assert f'<a href="#{PARTS[part]}">' in html
    for name in set(PARTS.values()) - {PARTS[part]}:
        assert f'<section id="{name}"' not in html
        assert f'href="#{name}"' not in html
    for none in (None, {}):
        assert f'<section id="{PARTS[part]}"' not in render(three_actions() | {part: none})
    script = html[html.rindex("<script>") :]
    assert ("budget-slide" in script) == (part == "budget")
    assert ("data-search" in script) == (part == "explained")


def test_the_asked_budget_is_a_point_of_its_own() -> None:
    summary = three_actions()
    part = budget(summary)
    part["at"] |= {"gain": 0.06, "price": 0.123}
    html = render(summary | {"budget": part})
    said = section(html, "budget")
    assert "With the 2,003 asked for: a gain of +0.0600 per row (90 % interval for this budget alone" in said
    assert "is +0.0600 per row" in said
    assert "The last place brings 0.12" in said
    part["asked"] = 9000.0
    assert "Of the 9,000 asked for, 2,003 can be spent to advantage" in section(
        render(summary | {"budget": part}), "budget"
    )


def test_interpolation_is_that_of_numpy() -> None:
    rng = np.random.default_rng(0)
    spend = np.sort(rng.uniform(0.0, 3.0, 12))
    columns = {key: rng.normal(size=12) for key in ("gain", "low", "high", "lot", "price")}
    shares = rng.dirichlet(np.ones(3), 12)
    knots = [
        {"spend": float(spend[i]), "shares": shares[i].tolist(), **{key: float(v[i]) for key, v in columns.items()}}
        for i in range(12)
    ]
    for at in [*rng.uniform(-0.5, 3.5, 30), *spend]:
        now = interpolated(knots, float(at))
        for key, values in columns.items():
            assert now[key] == pytest.approx(np.interp(at, spend, values))
        np.testing.assert_allclose(now["shares"], [np.interp(at, spend, shares[:, a]) for a in range(3)])


def test_a_rule_takes_the_place_of_the_imitating_tree() -> None:
    html = render(three_actions() | {"small_rule": small_rule()})
    assert "The policy in a few questions" not in html
    assert "This small tree decides as the policy does" not in html
    said = section(html, "rule")
    assert "It is worth 0.2143 per row (95 % interval 0.2041 to 0.2245)" in said
    assert "gives away against the policy: 0.0071 per row, about 45 for 6,400 rows" in said
    even = small_rule()
    even["price"] |= {"estimate": -0.001, "low": -0.007, "high": 0.005}
    unshown = section(render(three_actions() | {"small_rule": even}), "rule")
    assert "It is not shown to give anything away: the policy is worth \u22120.0010 per row more" in unshown
    assert "If history \u2264 212.5 and segment is new: give Womens E-Mail" in said
    assert "does not use zip_code, gives Mens E-Mail the more, the larger age is" in said
    assert "The policy in a few questions" in render(three_actions())


def test_a_scorecard_is_a_table_of_points() -> None:
    html = render(three_actions() | {"small_rule": scorecard()})
    table = html[html.index('<table id="t-card"') :]
    cells = re.findall(r"<t[dh](?: [^>]*)?>(?:<bdi>)?([^<]*)", table[: table.index("</table>")])
    assert cells == ["Points", "No E-Mail", "Mens E-Mail", "Womens E-Mail", "to start with", "0", "\u22122", "\u22121",
                     "if history &gt; 212.5", "0", "3", "1", "if segment is new", "0", "0", "2"]  # fmt: skip


def test_groups_have_intervals_and_bands() -> None:
    said = section(render(everything()), "groups")
    assert "gains differ (p < 0.001); it is not shown that shares differ (p = 0.200)" in said
    assert "+$0.0400 $0.0219 to $0.0581 $0.0136 to $0.0664" in said  # Web: 0.04 -+ 1.645 and 2.4 times 0.011
    assert "differ by at most 10 %. Without the bound they would differ by 31 %" in said


def test_the_stairs_lead_to_the_gain_of_the_row() -> None:
    summary = everything()
    summary["explained"]["rows"][0]["others"] = {"columns": 3, "contribution": 0.01}
    summary["explained"]["rows"][0]["gain"] += 0.01
    html = render(summary)
    label = re.search(r'aria-label="What moves the gain: ([^"]*)"', html)
    assert label is not None
    numbers = [float(part.rsplit(": ", 1)[1].rstrip(".").replace("\u2212", "-")) for part in label[1].split("; ")]
    assert numbers[0] + sum(numbers[1:-1]) == pytest.approx(numbers[-1])
    assert "all other columns: 0.01" in label[1]


def test_guards_in_words() -> None:
    guard = everything()["several"]["guards"][0]
    said = str(guard_line(guard)["says"])
    assert said == "complaints changes by 0.0040, at most 0.0073 by its limit; allowed is at most 0.01."
    lower = guard_line(
        guard | {"sign": ">=", "relative": True, "change": -0.02, "limit": -0.05, "bound": -0.03, "holds": False}
    )
    assert "at least \u22125\u00a0% by its limit" in str(lower["says"])
    assert (lower["word"], lower["key"]) == ("Not shown", "failed")
    assert percent_signed(None) == "\u2013"


@pytest.mark.parametrize("part", PARTS)
def test_null_anywhere_leaves_a_page(part: str) -> None:
    """No missing number of a part keeps the rest from being told."""
    whole = three_actions() | {part: everything()[part]}
    every = list(places(whole[part], (part,)))
    for path in random.Random(1).sample(every, min(40, len(every))):
        made = copy.deepcopy(whole)
        inner = made
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = None
        assert "</html>" in document(made), path
        assert read(made).summary[part] is not None or path == (part,)
