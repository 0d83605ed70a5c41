"""The report in a real browser: controls against NumPy, names as text, within everybody's reach, and no network."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from support.report import HOSTILE, PROBABILITIES, ten_actions, three_actions, two_actions, watched
from support.report_parts import EXAMPLES, everything

from gbpl.report import numbers, render, render_watch
from gbpl.report.advice import advice
from gbpl.report.reading import read

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip
SECTIONS = (
    "decision", "welfare", "alternatives", "who", "disagreement", "check", "calibration", "certificate", "zeta",
    "record",
)  # fmt: skip
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


def needed(reason: str) -> None:
    """Skip, or fail where the browser must be there."""
    if os.environ.get("GBPL_NEED_BROWSER") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        needed("playwright is not installed")
    executable = shutil.which("chromium")
    if executable is None:
        needed("there is no chromium on the path")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    paths = {name: folder / f"{name}.html" for name in EXAMPLES}
    for name, path in paths.items():
        path.write_text(render(EXAMPLES[name]()), encoding="utf-8")
    paths["watched"] = folder / "watched.html"
    paths["watched"].write_text(render_watch(watched()), encoding="utf-8")
    return paths


@dataclass
class Visit:
    """A page, and all that went wrong on it or was asked for by it."""

    page: Any
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return " ".join(self.page.locator(selector).first.inner_text().split())

    def cell(self, row: int, name: str) -> str:
        return self.text(f'#t-alternatives [data-row="{row}"] [data-cell="{name}"]')

    def set(self, selector: str, value: str) -> None:
        """As a reader does: type, or move the slider; both end in a change."""
        self.page.locator(selector).fill(value)
        self.page.locator(selector).dispatch_event("change")


Opener = Callable[..., Visit]


class Pages:
    """Pages that a test has left, to be loaded anew by the next one that asks for the same kind."""

    def __init__(self, browser: Any) -> None:
        self.browser, self.free = browser, {}

    def take(self, options: dict[str, Any]) -> Any:
        kept = self.free.setdefault(json.dumps(options, sort_keys=True), [])
        return kept.pop() if kept else self.browser.new_context(**options).new_page()

    def give_back(self, page: Any, options: dict[str, Any]) -> None:
        self.free[json.dumps(options, sort_keys=True)].append(page)


@pytest.fixture(scope="module")
def pages(browser: Any) -> Pages:
    return Pages(browser)


@pytest.fixture
def visit(pages: Pages, written: dict[str, Path]) -> Iterator[Opener]:
    taken = []

    def open_page(name: str, **options: Any) -> Visit:
        options = {"viewport": DESK} | options
        page = pages.take(options)
        found = Visit(page)

        def dismiss(dialog: Any) -> None:
            found.dialogs.append(dialog.message)
            dialog.dismiss()

        heard = {
            "request": lambda request: found.requests.append(request.url),
            "console": lambda message: found.errors.append(message.text),
            "pageerror": lambda error: found.errors.append(str(error)),
            "dialog": dismiss,
        }
        for event, hear in heard.items():
            page.on(event, hear)
        taken.append((page, options, heard))
        page.goto(written[name].as_uri())
        return found

    yield open_page
    for page, options, heard in taken:
        page.goto("about:blank")
        for event, hear in heard.items():
            page.remove_listener(event, hear)
        page.emulate_media(media="null")
        pages.give_back(page, options)


def written_as(value: float, places: int) -> str:
    return f"{abs(value):,.{places}f}" if round(value, places) >= 0 else f"\u2212{abs(value):,.{places}f}"


def span(quantiles: Any, level: float, places: int) -> str:
    low, high = np.interp([0.5 - level / 2, 0.5 + level / 2], PROBABILITIES, quantiles)
    return f"{written_as(low, places)} to {written_as(high, places)}"


# Nothing goes wrong, and nothing goes out


@pytest.mark.parametrize("name", EXAMPLES)
def test_no_errors_no_requests(visit: Opener, name: str, written: dict[str, Path]) -> None:
    found = visit(name)
    found.page.wait_for_load_state("networkidle")
    assert found.errors == []
    assert found.dialogs == []
    assert found.requests == [written[name].as_uri()]


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("viewport", [DESK, PHONE, {"width": 320, "height": 600}], ids=["desk", "phone", "small"])
def test_no_sideways_scroll(visit: Opener, name: str, viewport: dict[str, int]) -> None:
    page = visit(name, viewport=viewport).page
    page.evaluate("() => document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
    outside = page.evaluate(
        """() => [...document.querySelectorAll('main *')].filter((e) => {
             const box = e.getBoundingClientRect();
             return box.width > 0 && box.right > innerWidth + 1
               && !e.closest('.scroll, .hidden, .clip, .legend, .costs, svg, figcaption.above');
           }).map((e) => e.outerHTML.slice(0, 80))"""
    )
    assert outside == []


@pytest.mark.parametrize("viewport", [DESK, PHONE], ids=["desk", "phone"])
@pytest.mark.parametrize("name", ["two_actions", "three_actions", "ten_actions", "everything"])
def test_labels_do_not_overlap(visit: Opener, name: str, viewport: dict[str, int]) -> None:
    """Texts of a chart keep apart, before and after the costs have moved its axes."""
    found = visit(name, viewport=viewport)
    found.page.evaluate("() => document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    script = """() => [...document.querySelectorAll('svg.plot')].flatMap((svg) => {
        const texts = [...svg.querySelectorAll('text')].filter((t) => t.getBoundingClientRect().width > 0);
        return texts.flatMap((a, i) => texts.slice(i + 1).filter((b) => {
          const [p, q] = [a.getBoundingClientRect(), b.getBoundingClientRect()];
          return p.left < q.right - 1 && q.left < p.right - 1 && p.top < q.bottom - 3 && q.top < p.bottom - 3;
        }).map((b) => `${svg.id}: ${a.textContent} / ${b.textContent}`));
      })"""
    assert found.page.evaluate(script) == []
    found.set("#cost-1", "123456" if name == "two_actions" else "0.031")
    assert found.page.evaluate(script) == []


# Controls


@pytest.mark.parametrize("level", [50, 80, 99])
def test_level(visit: Opener, level: int) -> None:
    summary, found = two_actions(), visit("two_actions")
    found.set("#level", str(level))
    worth = span(summary["welfare"]["quantiles"], level / 100, 0)
    gain = span(summary["alternatives"][1]["gain_quantiles"], level / 100, 0)
    assert f"({worth})" in found.text("#s-mean")
    assert f"({level} % interval {gain};" in found.text("#s-gain")
    assert f"the {level} % interval runs from {worth}" in found.text("#s-welfare")
    assert found.text('#welfare [data-show="span"]') == worth
    assert f"({level} % interval {gain})" in found.text("#s-short")
    for row, item in enumerate(summary["alternatives"]):
        assert found.cell(row, "span") == span(item["gain_quantiles"], level / 100, 0)
    assert found.text("#level-out") == f"{level} %"
    assert worth in found.page.locator("#density").get_attribute("aria-label")
    spoken = found.page.locator("#spoken").inner_text()
    assert spoken.startswith(
        f"{level}\u00a0% intervals. Worth 16,357, {worth}. Gain over arm = 1 105, {gain}, chance 82"
    )
    assert found.errors == []


def test_level_moves_marks(visit: Opener) -> None:
    """Ends of the forest's lines and of the error bars, in the units of their axes."""
    summary, found = two_actions(), visit("two_actions")
    quantiles = [item["gain_quantiles"] for item in summary["alternatives"]]
    ends = np.array([np.interp([0.005, 0.995], PROBABILITIES, q) for q in quantiles])
    low, high = min(ends.min(), 0.0), max(ends.max(), 0.0)
    low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
    groups = summary["calibration"]["groups"]
    for level in (95, 60):
        found.set("#level", str(level))
        for row, q in enumerate(quantiles):
            line = found.page.locator(f'#forest [data-reach="{row}"]')
            drawn = [float(line.get_attribute(x).rstrip("%")) for x in ("x1", "x2")]
            wanted = np.interp([0.5 - level / 200, 0.5 + level / 200], PROBABILITIES, q)
            np.testing.assert_allclose(drawn, 100 * (wanted - low) / (high - low), atol=0.01)
        lines = found.page.locator("#calibration svg[data-low] [data-se]")
        svg = found.page.locator("#calibration svg[data-low]").first
        bottom, top = (float(svg.get_attribute(f"data-{side}")) for side in ("low", "high"))
        for i, group in enumerate(groups):
            drawn = sorted(float(lines.nth(i).get_attribute(y)) for y in ("y1", "y2"))
            reach = NormalDist().inv_cdf(0.5 + level / 200) * group["se"]
            wanted = [190 * (1 - (group["estimate"] + side * reach - bottom) / (top - bottom)) for side in (1, -1)]
            np.testing.assert_allclose(drawn, wanted, atol=0.02)
        inside = sum(
            abs(g["expected"] - g["estimate"]) <= NormalDist().inv_cdf(0.5 + level / 200) * g["se"] for g in groups
        )
        assert f"In {inside} of 5 groups" in found.text("#s-groups")


@pytest.mark.parametrize("level", [0.0, 0.35, 0.95, 1.0])
def test_defer(visit: Opener, level: float) -> None:
    summary, found = three_actions(), visit("three_actions")
    found.set("#defer", str(level))
    entry = min(summary["disagreement"]["curve"], key=lambda e: abs(e["level"] - level))
    rows = round(6400 * entry["share"])
    low, high = (entry["welfare"] + side * NormalDist().inv_cdf(0.975) * entry["se"] for side in (-1, 1))
    text = found.text("#s-defer")
    if entry["share"] > 0:
        assert f"above {level:.2f}, {rows:,} rows" in text
        assert f"worth {entry['welfare']:.4f} per row (95 % interval {low:.4f} to {high:.4f})" in text
    else:
        assert f"above {level:.2f}, no row goes to a person" in text
    assert found.text("#defer-out") == f"{level:.2f}"
    assert found.page.locator('#histogram [data-mark="threshold"]').get_attribute("x") == f"{100 * level:g}%"
    ring = found.page.locator('#deferral [data-mark="chosen"]')
    assert float(ring.get_attribute("cx").rstrip("%")) == pytest.approx(100 * level)
    review = found.text("#s-review")
    assert review.startswith(f"{rows:,} of 6,400 rows") if entry["share"] > 0 else review.startswith("No row has")


@dataclass
class Recomputed:
    """Worth, and value, gain, quantiles, band and chance of each single action, at other costs: by linearity."""

    worth: float
    quantiles: np.ndarray
    values: np.ndarray
    gains: np.ndarray
    gain_quantiles: list[np.ndarray]
    bands: list[tuple[float, float]]
    chances: list[float]


def recompute(summary: dict[str, Any], costs: list[float], level: float = 0.95) -> Recomputed:
    k = len(summary["actions"])
    change = np.array(costs) - [action["cost"] for action in summary["actions"]]
    mean, covariance = np.array(summary["moments"]["mean"]), np.array(summary["moments"]["covariance"])
    reach = np.interp(level, summary["bands"]["level"], summary["bands"]["reach"])

    def sd(u: np.ndarray) -> float:
        return float(np.sqrt(u @ covariance @ u))

    def moved(quantiles: list[float], shift: float, ratio: float) -> np.ndarray:
        q = np.array(quantiles)
        return q.mean() + shift + (q - q.mean()) * ratio

    policy, before = np.r_[1.0, np.zeros(k), -change], np.r_[1.0, np.zeros(2 * k)]
    shift = -change @ mean[1 + k :]
    values, gains, gain_quantiles, bands, chances = [], [], [], [], []
    for a in range(k):
        item, single = summary["alternatives"][a], np.eye(1 + 2 * k)[1 + a]
        values.append(item["value"] - change[a])
        gains.append(item["gain"] + shift + change[a])
        now = sd(policy - single)
        gain_quantiles.append(moved(item["gain_quantiles"], shift + change[a], now / sd(before - single)))
        bands.append((gains[-1] - reach * now, gains[-1] + reach * now))
        chances.append(NormalDist().cdf(gains[-1] / now))
    return Recomputed(
        summary["welfare"]["estimate"] + shift,
        moved(summary["welfare"]["quantiles"], shift, sd(policy) / sd(before)),
        np.array(values),
        np.array(gains),
        gain_quantiles,
        bands,
        chances,
    )


def at_costs(summary: dict[str, Any], costs: list[float]) -> dict[str, Any]:
    """The summary of the same policy had the costs been others: what the advice of the page must follow."""
    wanted, k = recompute(summary, costs), len(costs)
    change = np.array(costs) - [action["cost"] for action in summary["actions"]]
    best, moments = int(np.argmax(wanted.values)), summary["moments"]
    changed = []
    for a, item in enumerate(summary["alternatives"][:k]):
        low, high = wanted.bands[a]
        reach = np.interp(0.95, summary["bands"]["level"], summary["bands"]["reach"])
        numbers_of = {"value": wanted.values[a], "gain": wanted.gains[a], "gain_se": (high - low) / (2 * reach)}
        sure = {"gain_quantiles": wanted.gain_quantiles[a].tolist(), "chance": wanted.chances[a], "best": a == best}
        changed.append(item | numbers_of | sure)
    mean = np.array(moments["mean"]) - np.r_[0.0, change, np.zeros(k)]
    moments = moments | {"mean": mean.tolist()}
    return summary | {"alternatives": changed, "moments": moments}


@pytest.mark.parametrize(
    ("name", "make", "costs", "places"),
    [
        ("two_actions", two_actions, [0.0, 300.0], 0),
        ("two_actions", two_actions, [0.0, 1500.0], 0),
        ("three_actions", three_actions, [0.0, 0.02, 0.05], 4),
        ("ten_actions", ten_actions, [0.1, 0.0, 0.05, 0.3, 0.0, 0.0, 0.02, 0.4, 0.0, 0.25], 4),
    ],
)
def test_costs(visit: Opener, name: str, make: Callable[[], dict[str, Any]], costs: list[float], places: int) -> None:
    summary, found = make(), visit(name)
    found.set("#level", "90")
    for a, cost in enumerate(costs):
        found.set(f"#cost-{a}", str(cost))
    wanted = recompute(summary, costs, 0.9)
    best = int(np.argmax(wanted.values))
    assert found.text('#welfare [data-show="value"]') == written_as(wanted.worth, places)
    assert found.text('#welfare [data-show="span"]') == span(wanted.quantiles, 0.9, places)
    assert f": {numbers.amount(wanted.gains[best], places, signed=True)} per row" in found.text("#s-short")
    found.set("#level", "95")
    said = " ".join(str(advice(read(at_costs(summary, costs)))).split())
    assert f"{found.text('#s-advice')} {found.text('#s-reason')}" == said
    found.set("#level", "90")
    assert f"(90 % interval {span(wanted.gain_quantiles[best], 0.9, places)})" in found.text("#s-short")
    sure = min(wanted.chances)  # of being better than every single action
    assert found.text('.answers [data-show="chance"]') == numbers.chance(sure).replace("\u00a0", " ")
    for a in range(len(costs)):
        assert found.cell(a, "value") == written_as(wanted.values[a], places)
        assert found.cell(a, "gain") == written_as(wanted.gains[a], places)
        assert found.cell(a, "span") == span(wanted.gain_quantiles[a], 0.9, places)
        assert found.cell(a, "band") == " to ".join(written_as(end, places) for end in wanted.bands[a])
        assert found.cell(a, "chance") == numbers.chance(wanted.chances[a]).replace("\u00a0", " ")
        assert found.page.locator(f'[data-row="{a}"] .tagged').is_visible() == (a == best)
    words = ((0.975, "clearly"), (0.9, "probably beats"), (0.1, "do not show"), (0.0, "no better"))
    key = next(key for least, key in words if sure >= least)
    assert key in found.text("#s-verdict")
    notice = found.text("#changed")
    for a, cost in enumerate(costs):
        before = summary["actions"][a]["cost"]
        assert (f"costs {numbers.number(cost)} instead of {numbers.number(before)}." in notice) == (cost != before)
    if summary["data"]["feedback"] == "logged":
        for name in ("gain", "span", "band", "chance"):  # the moments do not hold the log's policy
            assert found.cell(len(costs), name) == "\u2013"
    estimate = found.page.locator("#density .estimate").get_attribute("x1")
    assert 40 < float(estimate.rstrip("%")) < 60
    assert found.errors == []


def test_costs_move_the_forest(visit: Opener) -> None:
    summary, found = two_actions(), visit("two_actions")
    found.set("#cost-1", "5000")
    wanted = recompute(summary, [0.0, 5000.0])
    ends = np.array([np.interp([0.005, 0.995], PROBABILITIES, q) for q in wanted.gain_quantiles])
    low, high = min(ends.min(), 0.0), max(ends.max(), 0.0)
    low, high = low - 0.04 * (high - low), high + 0.04 * (high - low)
    for row, gain in enumerate(wanted.gains):
        drawn = found.page.locator(f'#forest [data-point="{row}"]').get_attribute("cx")
        assert float(drawn.rstrip("%")) == pytest.approx(100 * (gain - low) / (high - low), abs=0.01)
    ticks = found.page.locator("#forest .axis text")
    for i in range(ticks.count()):
        value = float(ticks.nth(i).text_content().replace(",", "").replace("\u2212", "-"))
        place = float(ticks.nth(i).get_attribute("x").rstrip("%"))
        assert place == pytest.approx(100 * (value - low) / (high - low), abs=0.01)
    assert not found.page.locator('#forest [data-point="2"]').is_visible()


@pytest.mark.parametrize(
    ("name", "make", "costs", "places"),
    [("two_actions", two_actions, [0.0, 1500.0], 0), ("ten_actions", ten_actions, [0.02 * a for a in range(10)], 4)],
)
def test_costs_move_the_first_screen(
    visit: Opener, name: str, make: Callable[[], dict[str, Any]], costs: list[float], places: int
) -> None:
    """Options against the default, the two bars and the dots, from the moments and quantiles by NumPy."""
    summary, found = make(), visit(name)
    for a, cost in enumerate(costs):
        found.set(f"#cost-{a}", str(cost))
    wanted, k = recompute(summary, costs), len(costs)
    order = sorted(range(1, k), key=lambda a: (-wanted.values[a], a))[:3]  # the default is the first action
    gains = [wanted.gains[0], *(wanted.values[a] - wanted.values[0] for a in order)]
    written = found.page.locator("#options [data-written]").all_text_contents()
    assert written == [numbers.amount(gain, places, signed=True) for gain in gains]
    covariance = np.array(summary["moments"]["covariance"])[1 : 1 + k, 1 : 1 + k]
    svg = found.page.locator("#options")
    ticks = [(float(t.text_content().replace(",", "").replace("\u2212", "-")), t.get_attribute("x"))
             for t in svg.locator(".axis text").all()]  # fmt: skip
    (a, xa), (b, xb) = ticks[0], ticks[-1]
    slope = (float(xb.rstrip("%")) - float(xa.rstrip("%"))) / (b - a)
    for row, action in enumerate(order, 1):
        u = np.eye(k)[action] - np.eye(k)[0]
        reach = NormalDist().inv_cdf(0.975) * np.sqrt(u @ covariance @ u)
        line = svg.locator(f'[data-reach="{row}"]')
        drawn = [float(line.get_attribute(x).rstrip("%")) for x in ("x1", "x2")]
        ends = [gains[row] - reach, gains[row] + reach]
        np.testing.assert_allclose(drawn, [float(xa.rstrip("%")) + slope * (end - a) for end in ends], atol=0.05)
    said = advice(read(at_costs(summary, costs)))
    best = int(np.argmax(wanted.values))
    alone = said.key == "single"
    pair = [wanted.values[0], wanted.values[best] if alone else wanted.worth]
    assert found.page.locator("#bars [data-bar-value]").all_text_contents() == [written_as(v, places) for v in pair]
    widths = [float(found.page.locator(f'#bars [data-bar="{i}"]').get_attribute("width").rstrip("%")) for i in range(3)]
    np.testing.assert_allclose(widths, 100 * np.abs([*pair, pair[1] - pair[0]]) / max(np.abs(pair)), atol=0.01)
    assert found.text('[data-show="brings"]') == numbers.amount(pair[1] - pair[0], places, signed=True)
    dots = np.interp((np.arange(20) + 0.5) / 20, PROBABILITIES, wanted.gain_quantiles[best])
    assert found.page.locator("#dots .hollow").count() == (dots <= 0).sum()
    assert f"{(dots > 0).sum()} are above zero" in found.page.locator("#dots").get_attribute("aria-label")
    assert found.errors == []


def at_budget(summary: dict[str, Any], total: float) -> dict[str, float]:
    """Linear between the points of the curve, the asked budget being one of them."""
    part = summary["budget"]
    at, spend = part["at"], np.array(part["spend"])
    place = np.searchsorted(spend, at["spend"])
    whole = {"x": np.insert(spend, place, at["spend"])}
    for key in ("gain", "low", "high", "price"):
        own = at[key] if key in ("gain", "price") else np.interp(at["spend"], spend, part[key])
        whole[key] = np.insert(np.array(part[key]), place, own)
    return {key: float(np.interp(total / part["rows"], whole["x"], values)) for key, values in whole.items()}


@pytest.mark.parametrize("total", [0.0, 777.0, 2003.2, 4000.0, 5120.0])
@pytest.mark.parametrize("control", ["#budget-box", "#budget-slide"])
def test_budget(visit: Opener, total: float, control: str) -> None:
    summary, found = everything(), visit("everything")
    found.set(control, str(total))
    total = float(found.page.locator("#budget-box").input_value())  # the slider has steps
    wanted, rows = at_budget(summary, total), summary["budget"]["rows"]
    text = found.text("#s-budget")
    assert text.startswith(f"With {numbers.number(total)} in all, {numbers.number(total / rows)} per customer")
    gain = numbers.amount(wanted["gain"], 4, "$", signed=True)
    assert f"is {gain} per customer, {numbers.amount(wanted['gain'] * rows, None, '$', signed=True)} in all" in text
    low, high = (numbers.amount(wanted[key], 4, "$") for key in ("low", "high"))
    assert f"from {low} to {high} per customer (90 %)" in text
    assert f"brings {numbers.amount(numbers.two_digits(wanted['price']), None, '$')} for each unit" in text
    chart = found.page.locator("#budget-chart")
    low, high = (float(chart.get_attribute(f"data-{end}")) for end in ("bottom", "top"))
    here = chart.locator('[data-mark="here"]')
    assert float(here.get_attribute("cx").rstrip("%")) == pytest.approx(100 * total / 5120, abs=0.01)
    assert float(here.get_attribute("cy")) == pytest.approx(
        220 * (high - wanted["gain"] * rows) / (high - low), abs=0.02
    )
    shares = [rect.get_attribute("width").rstrip("%") for rect in found.page.locator("#budget-bar rect").all()]
    spend = total / rows
    np.testing.assert_allclose([float(s) for s in shares], [100 - 75 * spend, 50 * spend, 25 * spend], atol=0.01)
    assert found.errors == []


def test_a_bad_budget_is_told_and_reset_brings_the_asked_one_back(visit: Opener) -> None:
    found = visit("everything")
    before = found.text("#s-budget")
    for bad in ("", "-1", "1e9"):
        found.set("#budget-box", bad)
        assert found.text("#bad-budget") == "A budget must be a number from 0 to 5,120; 2,003 is shown."
        assert found.text("#s-budget") == before
    found.set("#budget-box", "1000")
    assert found.page.locator("#budget-slide").input_value() == "1020"  # the nearest step
    assert not found.page.locator("#bad-budget").is_visible()
    assert found.text("#s-budget") != before
    found.page.locator("#reset").click()
    assert found.text("#s-budget") == before == visit("everything", java_script_enabled=False).text("#s-budget")


def test_search_finds_explained_rows(visit: Opener) -> None:
    found = visit("everything")
    rows = found.page.locator(".explain")
    for words, hits in (("close", [1]), ("MENS mail", [0, 1, 2]), ("recency 4", [1]), ("nobody", []), ("", [0, 1, 2])):
        found.page.locator("#search").fill(words)
        assert [i for i in range(3) if rows.nth(i).is_visible()] == hits, words
        assert found.text("#search-found") == (f"{len(hits)} of 3 rows." if words else "")
    found.page.locator("#search").fill("close")
    assert found.page.locator("#gains-1").is_visible()  # the first hit is opened
    assert found.errors == []


def test_navigation_works_without_script_and_stays_in_sight(visit: Opener) -> None:
    for viewport in (DESK, PHONE):
        found = visit("everything", viewport=viewport, java_script_enabled=False)
        links = found.page.locator("nav a")
        assert links.count() == 17
        found.page.locator('nav a[href="#budget"]').click()
        box = found.page.locator("#h-budget").bounding_box()
        menu = found.page.locator("nav").bounding_box()
        assert 0 <= menu["y"] < 30
        assert 0 <= box["y"] < viewport["height"] / 2
        if viewport == PHONE:
            assert box["y"] >= menu["y"] + menu["height"]
        assert found.page.locator("nav .legend").is_visible()


def test_a_cleared_or_negative_cost_is_told_and_that_of_the_fit_used(visit: Opener) -> None:
    found = visit("two_actions")
    before = found.text("#decision .answers")
    found.set("#cost-1", "3000")
    assert found.text("#decision .answers") != before
    for bad in ("", "-5"):
        found.set("#cost-1", bad)
        assert found.page.locator("#cost-1").get_attribute("aria-invalid") == "true"
        assert found.text("#bad-costs") == (
            "arm = 1: a cost must be a number of 0 or more; 774, that of the fit, is used."
        )
        assert found.text("#decision .answers") == before
        assert not found.page.locator("#changed").is_visible()
    found.set("#cost-1", "774")
    assert not found.page.locator("#bad-costs").is_visible()
    found.set("#cost-1", "")
    found.page.locator("#reset").click()
    assert found.page.locator("#cost-1").input_value() == "774"
    assert found.page.locator("#cost-1").get_attribute("aria-invalid") is None


@pytest.mark.parametrize("name", ["two_actions", "ten_actions", "hostile"])
def test_reset(visit: Opener, name: str) -> None:
    """Back to what the page says without any script, word for word and mark for mark."""
    found, plain = visit(name), visit(name, java_script_enabled=False)
    found.set("#level", "66")
    found.set("#defer", "0.2")
    found.set("#cost-0", "3.5")
    assert found.text("main") != plain.text("main")
    found.page.locator("#reset").click()
    for selector in (
        ".advice",
        ".answers",
        "#s-welfare",
        "#s-alternatives",
        "#s-defer",
        "#s-groups",
        "#t-alternatives tbody",
    ):
        assert found.text(selector) == plain.text(selector), selector
    assert not found.page.locator("#changed").is_visible()
    for chart in ("#options", "#bars", "#dots", "#density", "#forest", "#deferral", "#histogram svg.plot"):
        (words, places), (plain_words, plain_places) = marks(found.page, chart), marks(plain.page, chart)
        assert words == plain_words, chart
        np.testing.assert_allclose(places, plain_places, atol=0.06, err_msg=chart)  # the path is written to tenths


def marks(page: Any, selector: str) -> tuple[list[str], list[float]]:
    """Names and words of a chart's elements, and all numbers in their places."""
    found = page.locator(selector).evaluate(
        """(svg) => [...svg.querySelectorAll('*')].map((e) => [
             [e.tagName, e.children.length ? '' : e.textContent, e.getAttribute('class') ?? '', e.style.display],
             ['x', 'x1', 'x2', 'cx', 'y1', 'y2', 'cy', 'd'].map((key) => e.getAttribute(key) ?? '')])"""
    )
    words = ["|".join(name) for name, _ in found]
    return words, [float(n) for _, places in found for n in re.findall(r"-?\d+(?:\.\d+)?", " ".join(places))]


def test_print_opens_details_and_hides_controls(visit: Opener) -> None:
    found = visit("three_actions", color_scheme="dark")
    found.page.emulate_media(media="print")
    found.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert not found.page.locator("#controls").is_visible()
    assert not found.page.locator("nav").is_visible()
    assert found.page.locator("details:not([open])").count() == 0
    assert found.page.locator("#t-zeta").is_visible()
    assert found.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    found.page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert found.page.locator("details[open]").count() == 0


# Everybody can use it


def test_sort_by_keyboard(visit: Opener) -> None:
    found = visit("two_actions")
    head = found.page.locator("#t-alternatives thead th").nth(1)
    names = found.page.locator("#t-alternatives tbody th")

    def column() -> list[str]:
        return [" ".join(names.nth(i).inner_text().split()[:3]) for i in range(names.count())]

    values = {"the policy": 2e9} | {item["label"]: item["value"] for item in two_actions()["alternatives"]}
    head.locator("button").focus()
    found.page.keyboard.press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    values["the policy"] = two_actions()["welfare"]["estimate"]
    assert column() == sorted(values, key=lambda name: -values[name])
    found.page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") == "ascending"
    assert column() == sorted(values, key=lambda name: values[name])
    assert "Sorted by Value, ascending" in found.page.locator("#spoken").inner_text()
    found.set("#cost-1", "5774")  # the order is kept up as values change
    wanted = recompute(two_actions(), [0.0, 5774.0])
    assert wanted.values[1] < wanted.worth < wanted.values[0]
    assert column() == ["everybody gets 1", "the policy", "everybody gets 0", "as logged"]
    assert found.page.locator("#t-alternatives th[aria-sort]").count() == 1


def test_sort_puts_unknown_last(visit: Opener) -> None:
    found = visit("three_actions")
    head = found.page.locator("#t-alternatives thead th").nth(2)
    for direction in ("descending", "ascending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        assert found.text("#t-alternatives tbody tr:last-child th") == "the policy"


def test_tab_reaches_everything(visit: Opener) -> None:
    page = visit("two_actions").page
    wanted = page.evaluate(
        """() => { const all = [...document.querySelectorAll('a[href], button, input, summary, [tabindex="0"]')]
             .filter((e) => e.checkVisibility());
             all.forEach((e, i) => { e.dataset.stop = i; }); return all.length; }"""
    )
    stops = []
    for _ in range(wanted):
        page.keyboard.press("Tab")
        stops.append(page.evaluate("Number(document.activeElement.dataset.stop ?? -1)"))
    assert stops == list(range(wanted))  # in the order of the page, and no trap
    assert wanted > 30


def test_keyboard_moves_sliders(visit: Opener) -> None:
    found = visit("two_actions")
    found.page.locator("#level").focus()
    found.page.keyboard.press("ArrowLeft")
    assert found.text("#level-out") == "94 %"
    assert found.page.locator("#level").get_attribute("aria-valuetext") == "94\u00a0%"
    found.page.locator("#defer").focus()
    found.page.keyboard.press("ArrowRight")
    assert found.text("#defer-out") == "0.55"


SIGHTS = [  # `everything` has all that `three_actions` has, and `hostile_everything` all of `hostile`
    ("everything", DESK, "light"),
    ("everything", PHONE, "dark"),
    ("two_actions", PHONE, "light"),
    ("ten_actions", DESK, "dark"),
    ("tiny", PHONE, "dark"),
    ("hostile_everything", PHONE, "dark"),
]
MORE_SIGHTS = [
    ("everything", DESK, "dark"),
    ("everything", PHONE, "light"),
    ("two_actions", DESK, "light"),
    ("two_actions", PHONE, "dark"),
    ("ten_actions", DESK, "light"),
    ("ten_actions", PHONE, "dark"),
    ("three_actions", DESK, "light"),
    ("three_actions", PHONE, "dark"),
    ("hostile", PHONE, "light"),
]


@pytest.mark.parametrize(
    ("name", "viewport", "scheme"),
    [*SIGHTS, *(pytest.param(*sight, marks=pytest.mark.slow) for sight in MORE_SIGHTS)],
)
def test_axe(visit: Opener, name: str, viewport: dict[str, int], scheme: str) -> None:
    try:
        from axe_playwright_python.sync_playwright import Axe
    except ImportError:
        needed("axe_playwright_python is not installed")
    page = visit(name, viewport=viewport, color_scheme=scheme).page
    page.evaluate("() => document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    if page.locator("#cost-0").count():
        page.locator("#cost-0").fill("1")  # the notice is judged too
    response = Axe().run(page).response
    assert [(v["id"], v["nodes"][0]["html"][:200]) for v in response["violations"]] == []


@pytest.mark.parametrize(
    ("viewport", "scheme"),
    [(DESK, "light"), (PHONE, "dark"), ({"width": 320, "height": 600}, "light")],
    ids=["desk", "phone", "small"],
)
def test_the_page_of_a_watched_policy(visit: Opener, viewport: dict[str, int], scheme: str) -> None:
    test_no_sideways_scroll(visit, "watched", viewport)
    test_axe(visit, "watched", viewport, scheme)
    found = visit("watched", viewport=viewport, color_scheme=scheme)
    assert (found.errors, found.dialogs, len(found.requests)) == ([], [], 1)
    assert found.page.evaluate("window.__hacked") is None
    assert found.page.locator("script").count() == 0
    assert "<script>window.__hacked = 1</script>" in found.text(".lead")
    assert found.page.locator("svg.plot").count() == 2


def test_colours_stand_out(visit: Opener) -> None:
    """Bars and lines have 3 to 1 against the page, text of charts 4.5 to 1 (axe does not judge pictures)."""
    for scheme in ("light", "dark"):
        page = visit("ten_actions", color_scheme=scheme).page
        names = [f"c{i}" for i in range(8)] + ["accent", "ink", "quiet", "warn", "good"]
        colours = page.evaluate(
            """(names) => { const style = getComputedStyle(document.documentElement);
                 return [...names, 'ground'].map((n) => style.getPropertyValue('--' + n)); }""",
            names,
        )
        *tested, ground = [luminance(colour.strip()) for colour in colours]
        for name, light in zip(names, tested, strict=True):
            ratio = (max(light, ground) + 0.05) / (min(light, ground) + 0.05)
            assert ratio >= (3.0 if name.startswith("c") else 4.5), (scheme, name, ratio)


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return float(np.dot([0.2126, 0.7152, 0.0722], linear))


@pytest.mark.parametrize("name", ["two_actions", "tiny"])
def test_without_javascript(visit: Opener, name: str) -> None:
    found = visit(name, java_script_enabled=False)
    for section in SECTIONS:
        assert found.page.locator(f"#{section} h2").is_visible()
        assert len(found.text(f"#{section} .says")) > 20
    assert not found.page.locator("#controls").is_visible()
    assert found.page.locator("button:visible").count() == 0
    if name == "two_actions":
        for chart in ("#density", "#forest", "#deferral", "#zeta svg.plot", "#calibration svg.plot"):
            assert found.page.locator(chart).first.is_visible()


# Names are text


@pytest.mark.parametrize("name", [pytest.param("hostile", marks=pytest.mark.slow), "hostile_everything"])
def test_hostile_names(visit: Opener, name: str) -> None:
    found = visit(name)
    if name == "hostile_everything":
        found.set("#budget-box", "100")
        found.page.locator("#search").fill("<script>")
    found.set("#level", "80")
    found.set("#cost-0", "0.3")
    found.set("#defer", "0.3")
    found.page.locator("#reset").click()
    page = found.page
    page.evaluate("() => document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for button in page.locator("th button").all():
        button.click()
    assert found.dialogs == []
    assert found.errors == []
    assert len(found.requests) == 1
    assert page.evaluate("window.__hacked") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert page.locator("style").count() == 1
    assert page.title().split() == HOSTILE[9].split()
    assert "{{7*7}}" in found.text("#decision")
    shown = page.evaluate("() => [...document.querySelectorAll('bdi')].map((e) => e.textContent)")
    for name in HOSTILE:
        assert any(name in text for text in shown), name


def test_right_to_left_names_stay_in_place(visit: Opener) -> None:
    """A name that turns the writing round does so to itself alone."""
    page = visit("hostile").page
    assert all(page.evaluate("() => [...document.querySelectorAll('bdi')].map((e) => getComputedStyle(e).unicodeBidi)"))
    row = page.locator("#t-review tbody tr", has_text="מימין").first
    name, kept = row.locator("th").bounding_box(), row.locator("td").first.bounding_box()
    assert name["x"] < kept["x"]
    assert re.fullmatch(r"[\d.,%\u2212\s]+", row.locator("td").first.inner_text())


# The same numbers in both languages


def test_numbers_are_written_alike(visit: Opener) -> None:
    rng = np.random.default_rng(0)
    values = [0.0, -0.0, 0.5, 1.5, 2.5, -2.5, 0.125, 999.95, 9999.5, 9999.6, 1e15, -1e15, 999999999999999.0, 1e21,
              1e-10, 1.5e-11, 5e-324, 0.1 + 0.2, 1 / 3, -1234567.891, 0.045, 1.005, 1e300]  # fmt: skip
    values += (rng.normal(size=300) * 10.0 ** rng.uniform(-12, 16, 300)).tolist()
    values += rng.integers(-40, 40, 60).astype(float).tolist() + (rng.integers(-400, 400, 60) / 8).tolist()
    shares = [0.0, 1.0, 0.0005, 0.001, 0.0999, 0.1, 0.9, 0.9001, 0.999, 0.9991, 1e-9, *rng.uniform(size=200).tolist()]
    quantiles = np.sort(rng.normal(size=201)).tolist()
    levels = [0.5, 0.66, 0.9, 0.95, 0.99]
    scales = [(0.0, 1.0), (15750.0, 16970.0), (-0.012, 0.048), (-3e8, 1.9e9), (1e-7, 3e-7), (-116.3, 1142.7)]
    source = "".join(
        files("gbpl.report").joinpath(f"{part}.js").read_text(encoding="utf-8") for part in ("numbers", "charts")
    )
    page = visit("tiny").page
    answer = page.evaluate(
        f"""([values, shares, quantiles, levels, scales]) => {{ {source}
          return {{
            free: values.map((v) => number(v)),
            fixed: values.map((v) => [0, 1, 2, 4].map((p) => number(v, p))),
            percent: shares.map(percent), chance: shares.map(chance),
            unknown: [number(null), percent(null), chance(null)],
            interval: levels.map((l) => interval(quantiles, l)),
            reach: levels.map(reach), cdf: values.map((v) => normalCdf(v)),
            ticks: scales.map(([low, high]) => ticks(low, high)),
          }}; }}""",
        [values, shares, quantiles, levels, scales],
    )
    assert answer["free"] == [numbers.number(v) for v in values]
    assert answer["fixed"] == [[numbers.number(v, p) for p in (0, 1, 2, 4)] for v in values]
    assert answer["percent"] == [numbers.percent(v) for v in shares]
    assert answer["chance"] == [numbers.chance(v) for v in shares]
    assert answer["unknown"] == [numbers.UNKNOWN] * 3
    np.testing.assert_allclose(answer["interval"], [numbers.interval(quantiles, level) for level in levels], atol=1e-12)
    np.testing.assert_allclose(answer["reach"], [NormalDist().inv_cdf(0.5 + level / 2) for level in levels], atol=1e-12)
    np.testing.assert_allclose(answer["cdf"], [NormalDist().cdf(v) for v in values], atol=1e-11)
    from gbpl.report.svg import Scale

    assert json.loads(json.dumps(answer["ticks"])) == [
        [[pytest.approx(value, rel=1e-12, abs=1e-12), label] for value, label in Scale(*scale).ticks()]
        for scale in scales
    ]


# On a phone, and out of the page


def test_nothing_is_cut_at_390_pixels_and_no_line_crosses_a_label(visit: Opener) -> None:
    found = visit("three_actions", viewport={"width": 390, "height": 844})
    cells = found.page.locator("#t-alternatives [data-cell]")
    boxes = [cells.nth(i).bounding_box() for i in range(cells.count())]
    assert all(box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
    assert found.text('#t-alternatives [data-row="0"] [data-cell="span"]').count(" to ") == 1
    crossed = found.page.evaluate(
        """() => [...document.querySelectorAll('#forest [data-mark="zero"]')].flatMap((line) => {
             const l = line.getBoundingClientRect();
             return [...document.querySelectorAll('#forest text')].filter((t) => {
               const b = t.getBoundingClientRect();
               const beside = l.left >= b.right || l.right <= b.left;
               return b.width > 0 && !beside && l.top < b.bottom - 3 && l.bottom > b.top + 3;
             }).map((t) => t.textContent);
           })"""
    )
    assert crossed == []


def test_tables_are_downloaded_and_marks_have_tooltips(visit: Opener) -> None:
    found = visit("two_actions")
    with found.page.expect_download() as waiting:
        found.page.locator("#c-alternatives button.download").click()
    assert waiting.value.suggested_filename == "alternatives.csv"
    lines = Path(waiting.value.path()).read_text(encoding="utf-8-sig").splitlines()
    summary = two_actions()
    assert lines[0].startswith("Who gets what")
    assert f"{summary['alternatives'][0]['gain']:.6g}"[:6] in lines[2]
    assert found.page.locator(".shares rect title").count() > 0
    assert found.page.locator('th[title="Chance that the policy is better than this"]').count() == 1
    assert found.errors == []
