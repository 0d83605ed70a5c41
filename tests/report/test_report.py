"""The report without a browser: what is in the page, what is not, and the numbers and words it is made of."""

from __future__ import annotations

import base64
import copy
import doctest
import hashlib
import json
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest
from support.report import HOSTILE, PROBABILITIES, three_actions, tiny, two_actions
from support.report_parts import EXAMPLES

from gbpl.report import numbers, render, svg, words
from gbpl.report.intervals import density_curve
from gbpl.report.markup import Sentence, tag
from gbpl.report.tree import grown, rules

VOID = {"meta", "link", "input", "br", "img", "hr"}
SECTIONS = (
    "decision", "welfare", "alternatives", "who", "disagreement", "check", "calibration", "certificate", "zeta",
    "record",
)  # fmt: skip


class Page(HTMLParser):
    """Elements with their attributes, the text of the page, and what is wrong with its nesting."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.visible: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append((name, dict(attributes)))
        if len(dict(attributes)) != len(attributes):
            self.wrong.append(f"{name} has an attribute twice")
        if name not in VOID:
            self.open.append(name)
        if name == "script":
            self.scripts.append("")

    def handle_endtag(self, name: str) -> None:
        if not self.open or self.open.pop() != name:
            self.wrong.append(f"</{name}> at {self.getpos()}")

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif self.open and self.open[-1] != "style":
            self.visible.append(data)

    @property
    def text(self) -> str:
        return " ".join("".join(self.visible).split())

    def ids(self) -> list[str]:
        return [str(attributes["id"]) for _, attributes in self.elements if "id" in attributes]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {name: render(make()) for name, make in EXAMPLES.items()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_page_is_whole_and_stands_alone(pages: dict[str, str], name: str) -> None:
    html = pages[name]
    page = Page(html)
    assert html.startswith("<!DOCTYPE html>")
    assert not page.open
    assert not page.wrong
    assert len(page.ids()) == len(set(page.ids()))
    links = [a[key] for _, a in page.elements for key in ("src", "href", "action", "data", "poster") if key in a]
    assert all(link and (link.startswith("#") or link == "data:,") for link in links)
    assert set(links) - {"data:,"} <= {f"#{found}" for found in page.ids()}
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert {n for n, _ in page.elements} & {"iframe", "object", "embed", "img", "base"} == set()
    assert [n for n, _ in page.elements].count("script") == 2
    assert not [a for _, a in page.elements if any(key.startswith("on") for key in a)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_section_says_something(pages: dict[str, str], name: str) -> None:
    html = pages[name]
    logged = ((EXAMPLES[name]().get("data") or {}).get("feedback")) == "logged"
    asked = {"small_rule": "rule", "by_group": "groups"}
    parts = {asked.get(key, key) for key, value in EXAMPLES[name]().items() if value}
    wanted = [
        "decision",
        *(section for section in ("budget", "several") if section in parts),
        *SECTIONS[1:4],
        *(section for section in ("rule", "groups", "explained") if section in parts),
        *SECTIONS[4:7],
        *(["overlap"] if logged else []),
        *(["confounding"] if EXAMPLES[name]().get("sensitivity") else []),
        *SECTIONS[7:],
    ]
    starts = [html.index(f'<section id="{section}"') for section in wanted]
    assert starts == sorted(starts)
    assert html.count("<section ") == len(wanted)
    for section, start in zip(wanted, starts, strict=True):
        body = html[start : html.index("</section>", start)]
        sentence = re.search(r'<p class="(?:says|lead)"[^>]*>(.+?)</p>', body, re.DOTALL)
        assert sentence is not None, section
        assert len(Page(sentence[0]).text) > 20, section


@pytest.mark.parametrize("name", EXAMPLES)
def test_tables_are_rectangles(pages: dict[str, str], name: str) -> None:
    for table in re.findall(r"<table.*?</table>", pages[name], re.DOTALL):
        rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
        assert len({len(re.findall(r"<t[hd][ >]", row)) for row in rows}) == 1


@pytest.mark.parametrize("name", EXAMPLES)
def test_pictures_are_described(pages: dict[str, str], name: str) -> None:
    for element, attributes in Page(pages[name]).elements:
        if element == "svg" and attributes.get("role") == "img":
            assert len(attributes["aria-label"] or "") > 10
        elif element == "svg" and attributes.get("class") in ("swatch", "definitions"):
            assert attributes["aria-hidden"] == "true"


@pytest.mark.parametrize("name", EXAMPLES)
def test_policy_of_the_page_allows_its_script_only(pages: dict[str, str], name: str) -> None:
    page = Page(pages[name])
    content = next(a["content"] for n, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert content is not None
    assert "default-src 'none'" in content
    assert f"script-src 'sha256-{digest}'" in content
    assert "script-src 'unsafe" not in content
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", page.scripts[1])
    assert not set(page.scripts[0]) & set("<>&\u2028\u2029")
    json.loads(page.scripts[0])


def test_same_summary_same_bytes() -> None:
    summary = three_actions()
    before = copy.deepcopy(summary)
    assert render(summary) == render(json.loads(json.dumps(summary)))
    assert summary == before


@pytest.mark.parametrize("name", ["two_actions", "three_actions", "ten_actions"])
def test_size(pages: dict[str, str], name: str) -> None:
    assert len(pages[name].encode()) < 300_000


def test_hostile_names_are_text(pages: dict[str, str]) -> None:
    page = Page(pages["hostile"])
    for name in HOSTILE:
        assert " ".join(name.split()) in page.text
    ordinary = {n for n, _ in Page(pages["three_actions"]).elements} | {
        n for n, _ in Page(pages["two_actions"]).elements
    }
    assert {n for n, _ in page.elements} <= ordinary
    assert "49" not in re.findall(r"gives (\S+)", page.text)


def test_control_characters_and_lone_surrogates_can_be_written() -> None:
    summary = two_actions() | {"title": "a\x00b\x1b\ud800c"}
    html = render(summary)
    assert "a\ufffdb\ufffd\ufffdc" in html
    html.encode("utf-8")


NUMBERS = {"smallest_propensity", "outside_by_action", "welfare", "welfare_se", "weight", "coverage", "shares"}


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every field of a summary, and the first number of columns that may have holes; of records the first two."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*at, key)
            yield from paths(item, (*at, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for place, item in enumerate(value[:2]):
            yield from paths(item, (*at, place))
    elif isinstance(value, list) and at[-1] in NUMBERS:
        yield (*at, 0)


def without(summary: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(summary)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return changed


def test_null_anywhere() -> None:
    """No null, at any place, keeps the rest from being told."""
    summary = three_actions() | {name: two_actions()[name] for name in ("certificate", "check")}
    summary["calibration"] = two_actions()["calibration"] | {"reliability": summary["calibration"]["reliability"]}
    summary["who"] = summary["who"][:2]
    summary["check"] = summary["check"] | {"findings": summary["check"]["findings"][:1]}
    summary["bands"] = {name: values[:2] for name, values in summary["bands"].items()}
    hidden = summary["sensitivity"]
    summary["sensitivity"] = hidden | {"gammas": hidden["gammas"][:2], "against": hidden["against"][:1]}
    for path in paths(summary):
        if path == ("format",):
            continue
        html = render(without(summary, path, None))
        left_out = path[0] == "sensitivity" and "h-confounding" not in html
        assert html.count("<section ") == 12 - left_out, path
        assert ">None<" not in html or path[-1] in ("label", "feature", "best_action"), path


def test_not_a_number_is_unknown() -> None:
    html = render(without(two_actions(), ("welfare", "estimate"), float("nan")))
    assert "nan" not in Page(html).text.lower().split()


@pytest.mark.parametrize(("summary", "error"), [({}, ValueError), ({"format": 2}, ValueError), ([], TypeError)])
def test_other_formats_are_refused(summary: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="must be"):
        render(summary)


def test_missing_jinja_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r"pip install 'gbpl\[cli\]'"):
        render(two_actions())


# Words


@pytest.mark.parametrize(
    ("chance", "key"),
    [(1.0, "clear"), (0.975, "clear"), (0.9749, "likely"), (0.9, "likely"), (0.8999, "unsettled"), (0.5, "unsettled"),
     (0.1, "unsettled"), (0.0999, "unlikely"), (0.0, "unlikely"), (None, "unknown")],
)  # fmt: skip
def test_verdict(chance: float | None, key: str) -> None:
    assert words.verdict(chance)[0] == key


def at_chance(chance: float) -> str:
    summary = two_actions()
    summary["alternatives"][1] |= {"chance": chance, "gain": 104.7}
    return Page(render(summary)).text


def test_decision_in_one_paragraph() -> None:
    text = at_chance(0.824)
    assert "The policy gives arm = 1 to 79 of 100 rows and arm = 0 to 21 of 100." in text
    assert "the mean of earnings less costs is 16,357 (" in text
    unsettled = (
        "The data do not show whether the policy beats giving everybody arm = 1: the estimated gain is +105 per row"
    )
    assert unsettled in text
    assert "chance that it beats every single action: 82 %" in text
    assert "The policy clearly beats giving everybody arm = 1: it gains +105" in at_chance(0.99)
    assert "The policy probably beats giving everybody arm = 1" in at_chance(0.93)
    assert "probably no better than giving everybody arm = 1" in at_chance(0.05)
    assert "chance that it beats every single action: >99.9 %" in at_chance(1.0)  # an estimate never is sure


def test_headline_compares_with_every_single_action() -> None:
    """Its chance is the smallest over single actions, that of the log apart; bands are gains -+ reach times errors."""
    summary = three_actions()
    for item, chance in zip(summary["alternatives"], (0.931, 0.999, 0.998, 0.2), strict=True):
        item["chance"] = chance
    html = render(summary)
    assert "chance that it beats every single action: 93.1 %" in Page(html).text
    assert "93.1" in re.search(r'data-show="chance">([^<]*)<', html)[1]
    reach = dict(zip(summary["bands"]["level"], summary["bands"]["reach"], strict=True))[0.95]
    cells = re.findall(r'data-cell="band"[^>]*>([^<]*)<', html)
    shown = [cell.replace(",", "").replace("\u2212", "-") for cell in cells]
    for cell, item in zip(shown[:3], summary["alternatives"], strict=False):
        ends = [item["gain"] + side * reach * item["gain_se"] for side in (-1, 1)]
        assert [float(end) for end in cell.split(" to ")] == pytest.approx(ends, abs=5.1e-5)
    assert shown[3] == "\u2013", "the log's policy is no single action"
    assert "data-cell" in render(summary | {"bands": None}), "summaries of earlier versions have none"


def test_one_action(pages: dict[str, str]) -> None:
    text = Page(pages["one_action"]).text
    assert "The policy gives everybody treat." in text
    assert "This is the same as giving everybody treat, so there is nothing to gain over it." in text
    assert "nothing for a tree to split" in text


def test_interval_is_of_the_quantiles() -> None:
    summary = two_actions()
    low, high = np.interp([0.025, 0.975], PROBABILITIES, summary["welfare"]["quantiles"])
    assert f"runs from {low:,.0f} to {high:,.0f}" in Page(render(summary)).text


def test_review_counts_rows() -> None:
    summary = two_actions()
    entry = next(e for e in summary["disagreement"]["curve"] if e["level"] == 0.5)
    rows = round(entry["share"] * 9223)
    assert f"{rows:,} of 9,223 rows" in Page(render(summary)).text


def test_threshold_off_the_curve() -> None:
    """The nearest level that the curve knows is told as such; the table of close calls is at the threshold itself."""
    summary = two_actions()
    summary["disagreement"]["level"] = 0.37
    text = Page(render(summary)).text
    assert "with a disagreement above 0.35" in text
    assert "rows for review at a threshold of 0.37" in text
    summary["disagreement"]["curve"].insert(8, summary["disagreement"]["curve"][7] | {"level": 0.37})
    html = render(summary)
    assert "with a disagreement above 0.37" in Page(html).text
    assert 'id="defer" min="0.0" max="1.0" step="0.01" value="0.37"' in html


def test_fidelity_in_words() -> None:
    summary = two_actions()
    summary["tree"]["fidelity"] = 0.94
    assert "decides as the policy does in 94 of 100 rows" in Page(render(summary)).text


def test_full_feedback_has_no_overlap(pages: dict[str, str]) -> None:
    text = Page(pages["ten_actions"]).text
    assert "Overlap" not in text
    assert "hidden from the log" not in text
    assert "hidden from the log" in Page(pages["two_actions"]).text


def test_certificate_or_how_to_get_one(pages: dict[str, str]) -> None:
    assert "--certify --outcome-range" in Page(pages["three_actions"]).text
    text = Page(pages["two_actions"]).text
    assert "this policy is worth 14,028 per row or more" in text
    assert "No gain over giving everybody" in text
    assert "is certified: it is at least \u2212132" in text
    assert "Gain over what was done, at least" in text
    before = {"lower": 12218.0, "failure_probability": 0.05, "best_action": "1", "best_action_lower": 13864.0}
    older = Page(render(two_actions() | {"certificate": before})).text  # as files of an earlier version have it
    assert "policies drawn from the posterior are worth 12,218 per row or more" in older
    assert "13,864 can be certified" in older


def in_calibration(html: str) -> Page:
    start = html.index('<section id="calibration"')
    end = "</section>"
    return Page(html[start : html.index(end, start) + len(end)])


def test_whether_it_is_right_when_it_is_sure() -> None:
    """A dot with its interval for each group, a dashed line through what was expected, and a table of the numbers."""
    summary = three_actions()
    groups = summary["calibration"]["reliability"]
    page = in_calibration(render(summary))
    assert "Is it right when it is sure?" in page.text
    (chart,) = [a for _, a in page.elements if str(a.get("aria-label")).startswith("Gain by how sure the policy is")]
    for group in groups:
        for name, value in (("expected", group["expected"]), ("estimated", group["estimate"])):
            assert f"{name} {numbers.number(value)}" in str(chart["aria-label"])
        assert f"{numbers.percent(group['said'])} sure" in str(chart["aria-label"])
    low, high = float(str(chart["data-low"])), float(str(chart["data-high"]))
    after = page.elements[page.elements.index(("svg", chart)) :]
    dots = [float(str(a["cy"])) for name, a in after if name == "circle"]
    height = (dots[0] - dots[-1]) / (groups[-1]["estimate"] - groups[0]["estimate"]) * (high - low)
    wanted = [height * (high - group["estimate"]) / (high - low) for group in groups]
    np.testing.assert_allclose(dots, wanted, atol=0.05)
    assert len([a for name, a in after if name == "line" and a.get("class") == "diagonal"]) == len(groups) - 1
    assert len([a for _, a in after if "data-se" in a]) == len(groups)
    table = next(a for name, a in after if name == "table")
    assert table["id"] == "t-sure"
    assert "The spread of the posterior is that between folds, zetas and models." in page.text
    assert "eta" not in page.text.split()


def test_nothing_is_said_of_sureness_that_is_not_known() -> None:
    for page in (render(two_actions()), render(without(three_actions(), ("calibration", "reliability"), []))):
        assert "Is it right when it is sure?" not in page
        assert "t-sure" not in page


@pytest.mark.parametrize("key", ["said", "expected", "estimate", "se", "rows"])
@pytest.mark.parametrize("value", [None, 0.0, -1.0, 1e300, float("nan"), float("inf")])
def test_strange_numbers_of_sureness_leave_a_page(key: str, value: float | None) -> None:
    for place in (0, 4):
        html = render(without(three_actions(), ("calibration", "reliability", place, key), value))
        page = in_calibration(html)
        assert not page.open
        assert not page.wrong
        assert "Is it right when it is sure?" in page.text
        assert not {"nan", "inf"} & {word.strip("(),.;%").lower() for word in page.text.split()}
        known = [str(a[end]) for _, a in page.elements for end in ("x1", "x2", "y1", "y2", "cx", "cy") if end in a]
        assert all(np.isfinite(float(number.rstrip("%"))) for number in known)


def test_one_group_or_groups_equally_sure_are_drawn() -> None:
    summary = three_actions()
    groups = summary["calibration"]["reliability"]
    alike = [group | {"said": 0.5, "expected": 0.0, "estimate": 0.0, "se": 0.0} for group in groups]
    for some in (groups[:1], alike, [{}, groups[1]]):
        html = render(without(summary, ("calibration", "reliability"), some))
        assert "Is it right when it is sure?" in in_calibration(html).text


def test_capacity_is_told() -> None:
    summary = two_actions()
    summary["actions"][1]["capacity"] = 0.3
    assert "At most 30 % of the rows can get arm = 1." in Page(render(summary)).text.replace("\u00a0", " ")


def test_costs_need_moments() -> None:
    assert 'id="cost-0"' in render(two_actions())
    assert 'id="cost-0"' not in render(two_actions() | {"moments": None})
    assert 'id="cost-0"' not in render(tiny())


def test_importance_and_features_fold() -> None:
    summary = three_actions()
    html = render(summary)
    assert "3 more features" in html
    first, second, third = (item["feature"] for item in summary["who"][:3])
    assert f"The decision turns most on {first}, {second}, then {third}." in Page(html).text


# Numbers


@pytest.mark.parametrize(
    ("value", "places", "text"),
    [(16120.3, None, "16,120"), (620.0, None, "620"), (0.1868, None, "0.1868"), (0.00123456, None, "0.001235"),
     (1234567.0, None, "1,234,567"), (9999.6, None, "10,000"), (0.0, None, "0"), (-0.0, None, "0"), (2.5, 0, "3"),
     (-2.5, 0, "\u22123"), (0.125, 2, "0.13"), (-0.0004, 2, "0.00"), (1e15, None, "1e15"), (1.5e-11, None, "1.5e-11"),
     (-1234.5, 1, "\u22121,234.5"), (float("nan"), None, "\u2013"), (None, 2, "\u2013"), (620.0, 1, "620.0")],
)  # fmt: skip
def test_number(value: float | None, places: int | None, text: str) -> None:
    assert numbers.number(value, places) == text


@pytest.mark.parametrize(
    ("share", "text"),
    [(0.0, "0 %"), (1.0, "100 %"), (0.5, "50 %"), (0.0832, "8.3 %"), (0.08, "8 %"), (0.9852, "98.5 %"),
     (1e-5, "<0.1 %"), (0.99996, ">99.9 %"), (None, "\u2013")],
)  # fmt: skip
def test_percent(share: float | None, text: str) -> None:
    assert numbers.percent(share).replace("\u00a0", " ") == text


@pytest.mark.parametrize(
    ("error", "places"), [(160.2, 0), (2.5, 1), (0.0131, 3), (0.0994, 3), (0.0996, 2), (None, None)]
)
def test_places_show_two_digits_of_the_error(error: float | None, places: int | None) -> None:
    assert numbers.decimal_places(error) == places


def test_quantiles_are_linear_between() -> None:
    values = np.sort(np.random.default_rng(0).normal(size=201))
    for probability in (0.001, 0.025, 0.3333, 0.5, 0.995, 0.9999):
        wanted = np.interp(probability, PROBABILITIES, values)
        assert numbers.quantile(values.tolist(), probability) == pytest.approx(wanted, abs=1e-12)


def test_doctests() -> None:
    assert doctest.testmod(numbers).failed == 0


def test_density_is_that_of_the_draws() -> None:
    """Of normal draws: highest at the mean; mean and standard deviation by its own weights are theirs."""
    z = np.array(two_actions()["welfare"]["quantiles"])
    curve = density_curve(z.tolist())
    assert curve is not None
    x, height = np.array(curve.x), np.array(curve.height)
    mean = np.average(x, weights=height)
    sd = np.sqrt(np.average((x - mean) ** 2, weights=height))
    assert mean == pytest.approx(z.mean(), rel=1e-6)
    assert sd == pytest.approx(z.std(), rel=0.06)
    assert x[height.argmax()] == pytest.approx(z.mean(), abs=0.1 * z.std())
    assert density_curve([3.0] * 201) is None


@pytest.mark.parametrize(
    ("low", "high"), [(0.0, 1.0), (15750.0, 16970.0), (-0.012, 0.048), (-3e8, 1.9e9), (1e-7, 3e-7)]
)
def test_ticks_are_round_and_inside(low: float, high: float) -> None:
    ticks = svg.Scale(low, high).ticks()
    values = np.array([value for value, _ in ticks])
    assert 2 <= len(ticks) <= 6
    assert values.min() >= low - 1e-9 * (high - low)
    assert values.max() <= high + 1e-9 * (high - low)
    assert np.allclose(np.diff(values), np.diff(values)[0])
    for value, label in ticks:
        assert float(label.replace(",", "").replace("\u2212", "-")) == pytest.approx(value, abs=1e-9 * (high - low))


# Parts


def test_elements_and_sentences_escape() -> None:
    assert tag("text", "<b>", x="3%", class_='a"b', data_row=2, skip=None).__html__() == (
        '<text x="3%" class="a&quot;b" data-row="2">&lt;b&gt;</text>'
    )
    sentence = Sentence("{a:name} gains {b:b} ({c})", {"a": "<i>", "b": "3", "c": "{a}"})
    assert sentence.__html__() == "<bdi>&lt;i&gt;</bdi> gains <b>3</b> ({a})"
    assert str(sentence) == "<i> gains 3 ({a})"


def node(number: int, feature: str | None, question: str | None, left: int | None, right: int | None) -> dict[str, Any]:
    return {"id": number, "feature": feature, "text": question, "left": left, "right": right, "rows": 10,
            "action": number % 2, "share": 0.9}  # fmt: skip


def test_rules_of_the_tree() -> None:
    tree = {"nodes": [
        node(0, "a <= b", "a <= b <= 3", 1, 2), node(1, None, None, None, None), node(2, "sex=f", "sex is not f", 3, 4),
        node(3, None, None, None, None), node(4, "bmi is missing", "bmi is known", 5, 6),
        node(5, None, None, None, None), node(6, None, None, None, None),
    ]}  # fmt: skip
    root = grown(tree)
    assert root is not None
    assert (root.depth, root.leaves) == (3, 4)
    found = {rule.conditions: rule.leaf.action for rule in rules(root)}
    high = "a <= b > 3"
    assert found == {
        ("a <= b \u2264 3",): 1,
        (high, "sex is f", "bmi is known"): 1,
        (high, "sex is f", "bmi is missing"): 0,
        (high, "sex is not f"): 1,
    }
    assert grown({"nodes": [node(0, "x", "x <= 1", 0, 0)]}) is not None  # a node that is its own child ends somewhere


def test_a_question_without_consequence_is_not_asked() -> None:
    """A tree whose leaves on both sides give the same action is that action."""

    def node(number: int, action: int, left: int | None = None, right: int | None = None) -> dict[str, Any]:
        asked = {"feature": "age", "text": None if left is None else f"age <= {number}", "left": left, "right": right}
        return {"id": number, **asked, "rows": 10, "action": action, "share": 1.0}

    root = grown({"nodes": [node(0, 0, 1, 2), node(1, 0, 3, 4), node(2, 1), node(3, 0), node(4, 0)]})
    assert root is not None
    assert [(rule.conditions, rule.leaf.action) for rule in rules(root)] == [(("age \u2264 0",), 0), (("age > 0",), 1)]
    alike = grown({"nodes": [node(0, 0, 1, 2), node(1, 0), node(2, 0)]})
    assert alike is not None
    assert alike.depth == 0


def test_a_title_and_words_explained() -> None:
    html = render(two_actions() | {"title": "Spring trial"})
    text = Page(html).text
    assert text.count("Spring trial") == 2
    assert "A propensity is the probability with which an action was taken" in text
    for word in ("disagreement", "propensity", "zeta", "eta"):
        assert f"<dt>{word}</dt><dd>" in html, word


def test_names_are_cut_in_the_middle() -> None:
    assert svg.shorten("everybody gets " + "x" * 300 + "end", 20) == "everybody…xxxxxxxend"
    assert svg.shorten("漢字" * 20, 9) == "漢字…漢字"
    assert svg.shorten(" a\n b ", 20) == "a b"


def test_a_check_is_told_test_by_test() -> None:
    html = render(two_actions())
    body = html[html.index('<section id="check"') : html.index('<section id="calibration"')]
    assert "Of 3 tests that tried to break the result, 1 failed and 1 left a doubt." in body
    assert [verdict for verdict in re.findall(r'class="badge (\w+)"', body)] == ["passed", "failed", "doubt"]
    assert "<script>" not in body
    passed = two_actions()
    passed["check"]["findings"] = passed["check"]["findings"][:1]
    assert "1 tests" not in render(passed)
    assert "Nothing tried to break the result" in render(three_actions())
