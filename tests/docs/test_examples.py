"""The worked examples run as they are, and find what their pages say; test_portfolio_example.py has the longest."""

import re
from collections.abc import Callable
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from support.data import data_file
from support.examples import ROOT, example, run_once, small_learners

PAGES = ROOT / "docs" / "examples"
NAMES = ["treatment_choice", "email_targeting", "many_actions", "portfolio", "defer"]
INCLUDED = re.compile(r'^-+8<-+ "([^"]+)"$', re.MULTILINE)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    return run_once(tmp_path_factory)


# Pages and scripts.


def test_every_example_has_a_page_and_every_page_an_example() -> None:
    assert {path.stem for path in (ROOT / "examples").glob("*.py")} == set(NAMES)
    assert {path.stem for path in PAGES.glob("*.md")} == {*NAMES, "index"}
    listed = (PAGES / "index.md").read_text(encoding="utf-8")
    assert all(f"({name}.md)" in listed for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_page_shows_its_script_and_pictures_that_are_there(name: str) -> None:
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert INCLUDED.findall(text) == [f"examples/{name}.py"]
    pictures = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert pictures
    for picture in pictures:
        assert (PAGES / picture).stat().st_size <= 80_000, picture


@pytest.mark.parametrize("name", NAMES)
def test_script_says_what_it_takes(name: str) -> None:
    script = (ROOT / "examples" / f"{name}.py").read_text(encoding="utf-8")
    usage = re.search(rf"^    python examples/{name}\.py(.*)$", script, re.MULTILINE)
    assert usage is not None
    assert set(re.findall(r"--[a-z-]+", usage[1])) == set(re.findall(r'add_argument\("(--[a-z-]+)"', script)) - {
        "--seed"
    }


# What each finds.


NSW = "nsw at 1000 dollars per person"


def test_treatment_choice_says_what_is_settled_and_what_is_not(ran: Callable[..., Any], tmp_path: Path) -> None:
    results = ran("treatment_choice", data_dir=tmp_path)  # an empty folder: the trial of a package only
    assert set(results) == {NSW}
    lines = results[NSW]["lines"]
    assert lines["everybody"]["gain"].estimate == pytest.approx(1794 - 1000, abs=250)  # difference of means
    assert lines["everybody"]["sample"] == pytest.approx(1794 - 1000, abs=30)
    for name, part in lines.items():
        low, high = part["gain"].interval()
        assert low < 0 < high, name
        assert part["more"].estimate == pytest.approx(part["gain"].estimate - lines["everybody"]["gain"].estimate)
    for name in ("quadrant", "line", "tree, depth 2"):  # they maximise what the sample says, and other rows say less
        assert lines[name]["sample"] > lines["everybody"]["sample"]
        assert lines[name]["gain"].estimate < lines[name]["sample"] - 300


def separable(points: np.ndarray, inside: np.ndarray) -> bool:
    """Whether a line has the points `inside` on one side and the others on the other."""
    signed = np.where(inside, 1.0, -1.0)[:, None] * np.column_stack([points, np.ones(len(points))])
    return linprog(np.zeros(3), A_ub=-signed, b_ub=-np.ones(len(points)), bounds=[(None, None)] * 3).status == 0


def test_treatment_choice_searches_its_classes_exhaustively() -> None:
    module, rng = example("treatment_choice"), np.random.default_rng(0)
    for _ in range(3):
        x, gain = rng.integers(4, size=(9, 2)).astype(float), rng.normal(size=9)  # points in line, and some twice
        points, where = np.unique(x, axis=0, return_inverse=True)
        weight = np.bincount(where.ravel(), gain)
        every = [np.array(part, bool) for part in product((0, 1), repeat=len(points))]
        found = gain[module.line(x, gain)(x)].sum()
        assert found == pytest.approx(max(weight[part].sum() for part in every if separable(points, part)))
        turned = [x * sign for sign in product((1.0, -1.0), repeat=2)]
        limits = range(-4, 4)
        corners = [(z[:, 0] <= i) & (z[:, 1] <= j) for z in turned for i in limits for j in limits]
        one = gain[module.staircase(x, gain, 1)(x)].sum()
        assert one == pytest.approx(max(gain[corner].sum() for corner in corners))
        falling = [
            np.array(cut) for cut in combinations_with_replacement(range(4, -5, -1), 4)
        ]  # with the first feature
        levels = [(z[:, 0] - z[:, 0].min()).astype(int) for z in turned]
        below = [z[:, 1] < cut[level] for z, level in zip(turned, levels, strict=True) for cut in falling]
        many = gain[module.staircase(x, gain, 4)(x)].sum()
        assert many == pytest.approx(max(gain[part].sum() for part in below))
        assert one - 1e-9 <= gain[module.staircase(x, gain, 2)(x)].sum() <= many + 1e-9


def test_treatment_choice_finds_the_rules_of_the_literature() -> None:
    """Kitagawa and Tetenov's class, cost and objective on their data: welfare gains per person and shares treated."""
    module, table = example("treatment_choice"), np.genfromtxt(data_file("jtpa_kt.csv"), delimiter=",", names=True)
    x = np.column_stack([table["edu"], table["prevearn"]])
    known = {0.0: ((1180, 1.0), (1340, 0.95), (1364, 0.96)), 774.0: ((404, 1.0), (643, 0.80), (792, 0.69))}
    for cost, expected in known.items():
        gain = module.empirical_gains(table["earnings"], table["D"], 2 / 3, cost)
        treated = [np.ones(len(x), bool), module.staircase(x, gain, 1)(x), module.line(x, gain)(x)]
        assert [(round((gain * part).mean()), round(part.mean(), 2)) for part in treated] == list(expected)


def test_email_policy_is_truly_better_than_every_single_arm(ran: Callable[..., Any], tmp_path: Path) -> None:
    results = ran("email_targeting", data_dir=tmp_path, customers=4_000)
    truth, lines = results["truth"], results["lines"]
    assert results["source"] == "email"
    assert max(truth.values()) == truth["best"]
    alone = [value for label, value in truth.items() if label.startswith("everybody")]
    assert len(alone) == 3
    assert truth["the policy"] > max(alone) + 0.85 * (truth["best"] - max(alone))
    for line in lines:
        assert line["ends"][0] < line["truth"] < line["ends"][1], line["label"]
    for line in lines[1:]:
        assert line["gain_ends"][0] < line["true_gain"] < line["gain_ends"][1], line["label"]
        assert line["chance"] > 0.99
    assert sum(results["shares"].values()) == pytest.approx(1.0)
    assert results["shares"]["No E-Mail"] == pytest.approx(0.149, abs=0.04)  # whom the best possible rule leaves alone


def test_digits_are_read_from_guesses_by_small_learners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example as it is, but for half of the rows to learn from and small networks and forests."""
    small_learners(monkeypatch)
    module = example("many_actions")
    monkeypatch.setattr(module, "TRAIN", 600)
    results = module.main(figures=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["many_actions.png"]
    policies, log = results["policies"], results["log"]
    assert log["rows"] == 600
    assert log["hits"] < 0.1 * log["rows"]
    for name in ("dr", "ipw", "dm"):
        assert policies[name]["accuracy"] > 0.6 > 5 * log["truth"], name
        assert policies[name]["log"]["low"] < policies[name]["accuracy"] < policies[name]["log"]["high"], name
    assert min(policies["dr"]["accuracy"], policies["dm"]["accuracy"]) > policies["ipw"]["accuracy"] + 0.03
    assert policies["dr"]["inside"]["estimate"] < policies["dr"]["accuracy"]
    assert policies["dr"]["accuracy"] < policies["labels, 600 rows"]["accuracy"] - 0.03


@pytest.mark.slow
def test_digits_are_read_from_guesses(ran: Callable[..., Any]) -> None:
    policies, log = (ran("many_actions")[part] for part in ("policies", "log"))
    assert log["hits"] < 0.1 * log["rows"]  # worse than guessing at random
    for name in ("dr", "ipw", "dm"):
        assert policies[name]["accuracy"] > 0.8 > 10 * log["truth"], name
        assert policies[name]["log"]["low"] < policies[name]["accuracy"] < policies[name]["log"]["high"], name
    assert min(policies["dr"]["accuracy"], policies["dm"]["accuracy"]) > policies["ipw"]["accuracy"] + 0.03
    assert policies["dr"]["inside"]["estimate"] < policies["dr"]["accuracy"]  # its fits have fewer right guesses
    labels = policies["labels, 1,200 rows"]["accuracy"]
    assert labels > 0.95
    assert policies["dr"]["accuracy"] < labels - 0.03  # what it costs to have one guess per picture
    assert policies["dr"]["accuracy"] == pytest.approx(policies["labels, 120 rows"]["accuracy"], abs=0.06)


def test_deferring_is_as_its_level_says_and_beats_lots(ran: Callable[..., Any]) -> None:
    results = ran("defer")
    split, known = results["disagreement"], results["known"]
    assert known["best"] > known["rule"] > max(known["wait"], known["treat"])
    for cost, curve in results["curves"].items():
        for line in curve:
            assert line["share"] == pytest.approx(np.mean(split > line["level"]))
            assert line["welfare"] == pytest.approx(known["rule"] + line["gain"])
            assert line["perfect"] >= line["welfare"] - 1e-12
        middle = [line for line in curve if 0.02 < line["share"] < 0.9]
        assert middle
        assert all(line["welfare"] > line["by_lot"] for line in middle), cost
    gains = [max(line["gain"] for line in results["curves"][cost]) for cost in sorted(results["curves"])]
    assert gains == sorted(gains, reverse=True)  # dearer time, less to gain
    assert known["clinician"] - known["rule"] < results["curves"][0.0][0]["gain"] < 0 < gains[0]  # some, not everybody
    wrong = [part["wrong"] for part in results["groups"]]
    assert wrong == sorted(wrong)
    assert wrong[0] < 0.05
    assert wrong[1] < 0.15 < wrong[2]  # the clinician's rate
    for part in results["groups"]:  # half the disagreement is how often the rule should be wrong
        assert part["wrong"] == pytest.approx((part["low"] + part["high"]) / 4, abs=0.1)


def test_threshold_rule_harms_fewer_and_costs_welfare(ran: Callable[..., Any]) -> None:
    lines = ran("defer")["careful"]
    for name in ("treated", "harmed"):
        assert [line[name] for line in lines] == sorted(line[name] for line in lines)
    assert all(line["harmed"] < line["alpha"] for line in lines)  # what the rule promises
    assert 3.0 * lines[0]["harmed"] < lines[-1]["harmed"]
    assert lines[0]["harmed"] < 0.01
    assert lines[0]["gain"] < -0.05
    assert lines[0]["gain"] == min(line["gain"] for line in lines)
