"""The worked examples run as they are, and find what their pages say they find."""

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.data import data_package

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "docs" / "examples"
CARRIED = {"treatment_choice": "causaldata", "portfolio": "linearmodels"}
NAMES = ["treatment_choice", "email_targeting", "many_actions", "portfolio", "defer"]
INCLUDED = re.compile(r'^-+8<-+ "([^"]+)"$', re.MULTILINE)


def example(name: str) -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """What `main` of an example returns, run once, with its pictures in the folder `figures`."""
    results: dict[str, Any] = {}

    def run(name: str, **given: Any) -> Any:
        if name in CARRIED:
            data_package(CARRIED[name])
        if name not in results:
            folder = tmp_path_factory.mktemp(name)
            results[name] = example(name).main(figures=folder, **given)
            assert [path.name for path in folder.iterdir()] == [f"{name}.png"]
        return results[name]

    return run


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


def test_treatment_choice_keeps_to_its_places(ran: Callable[..., Any], tmp_path: Path) -> None:
    results = ran("treatment_choice", data_dir=tmp_path)  # an empty folder: the trials of packages only
    assert set(results) == {"thornton_hiv", "nsw"}
    for name, part in results.items():
        assert 0.45 <= part["places"] <= 0.5, name
        line = part["curve"]
        assert line["rule"][0] == line["lot"][0] == 0.0
        assert line["rule"][-1] == pytest.approx(line["lot"][-1])  # all of them: there is nothing to choose
        assert all(low <= rule <= high for low, rule, high in zip(line["low"], line["rule"], line["high"], strict=True))


def test_treatment_choice_says_what_is_settled_and_what_is_not(ran: Callable[..., Any], tmp_path: Path) -> None:
    cash, work = (ran("treatment_choice", data_dir=tmp_path)[name]["gains"] for name in ("thornton_hiv", "nsw"))
    assert cash["everybody against nobody"]["verdict"] == "better"
    assert cash["everybody against nobody"]["estimate"] == pytest.approx(0.45 - 0.2, abs=0.03)  # Thornton's 0.45
    assert cash["half by the rule against half by lot"]["verdict"] == "not settled"
    assert work["everybody against nobody"]["verdict"] == "not settled"
    assert work["everybody against nobody"]["estimate"] == pytest.approx(1794 - 1000, abs=250)  # difference of means


def test_email_policy_is_truly_better_than_every_single_arm(ran: Callable[..., Any], tmp_path: Path) -> None:
    results = ran("email_targeting", data_dir=tmp_path)
    truth, lines = results["truth"], results["lines"]
    assert results["source"] == "email"
    assert max(truth.values()) == truth["best"]
    alone = [value for label, value in truth.items() if label.startswith("everybody")]
    assert len(alone) == 3
    assert truth["the policy"] > max(alone) + 0.75 * (truth["best"] - max(alone))
    for line in lines:
        assert line["ends"][0] < line["truth"] < line["ends"][1], line["label"]
    for line in lines[1:]:
        assert line["gain_ends"][0] < line["true_gain"] < line["gain_ends"][1], line["label"]
        assert line["chance"] > 0.99
    assert sum(results["shares"].values()) == pytest.approx(1.0)


def test_digits_are_read_from_guesses(ran: Callable[..., Any]) -> None:
    policies, log = (ran("many_actions")[part] for part in ("policies", "log"))
    assert log["hits"] < 0.1 * log["rows"]  # worse than guessing at random
    for name in ("dr", "ipw", "dm"):
        assert policies[name]["accuracy"] > 0.75 > 7 * log["truth"], name
        assert policies[name]["log"]["low"] - 0.05 < policies[name]["accuracy"] < policies[name]["log"]["high"], name
    labels = policies["labels, 1,200 rows"]["accuracy"]
    assert labels > 0.95
    assert policies["dr"]["accuracy"] < labels - 0.03  # what it costs to have one guess per picture
    assert policies["dr"]["accuracy"] == pytest.approx(policies["labels, 120 rows"]["accuracy"], abs=0.06)


def test_portfolio_weights_are_portfolios_and_follow_zeta(ran: Callable[..., Any]) -> None:
    results = ran("portfolio")
    for name, weights in results["weights"].items():
        assert np.all(weights >= 0), name
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, atol=1e-5, err_msg=name)
    by_zeta = [results["measures"][f"gbpl, zeta {zeta}"]["assets"] for zeta in (0.01, 0.03, 0.1, 0.3)]
    assert by_zeta == sorted(by_zeta)
    assert by_zeta[0] < 8
    assert by_zeta[-1] > 11
    np.testing.assert_allclose(results["posterior"]["weights"].sum(axis=1), 1.0, atol=1e-5)


def test_portfolio_does_not_look_ahead(ran: Callable[..., Any]) -> None:
    module = example("portfolio")
    before = ran("portfolio")["weights"]
    data = module.months()
    parts = module.windows(data["year"], 7)[:2]
    rng, row = np.random.default_rng(0), np.arange(len(data["y"]))[:, None]
    held = parts[1][1]  # what is known when its months begin may be used, what they bring may not
    y = np.where(row >= held[0], rng.normal(size=data["y"].shape), data["y"])
    x = np.where(row > held[-1], rng.normal(size=data["x"].shape), data["x"])
    fits = module.fit_windows(x, y, parts, ("auto",), False)
    after = module.weights_of(fits["auto"], x, parts)
    np.testing.assert_allclose(after, before["gbpl, zeta auto"][: len(after)], atol=1e-4)
    np.testing.assert_array_equal(module.mean_variance(y[parts[1][0]], 4.0), before["mean-variance"][len(after) - 1])


def test_portfolio_measures_are_those_of_the_textbook() -> None:
    module = example("portfolio")
    rng = np.random.default_rng(0)
    returns, bill = 0.01 + 0.05 * rng.normal(size=(1200, 2)), np.full(1200, 0.002)
    weights = {"equal": np.full((1200, 2), 0.5), "first": np.tile([1.0, 0.0], (1200, 1))}
    measures = module.measures(weights, returns, bill)
    excess = returns[:, 0] - 0.002
    assert measures["first"]["mean"] == pytest.approx(12 * excess.mean())
    assert measures["first"]["sharpe"] == pytest.approx(np.sqrt(12) * excess.mean() / excess.std())
    assert measures["first"]["mean se"] == pytest.approx(
        12 * excess.std() / np.sqrt(1200), rel=0.15
    )  # independent months
    assert measures["first"]["mean gain"] == pytest.approx(6 * (returns[:, 0] - returns[:, 1]).mean())
    assert measures["first"]["turnover"] == 0.0
    assert measures["equal"]["turnover"] > 0.0
    assert measures["equal"]["assets"] == pytest.approx(2.0)
    covariance, mean = np.cov(returns.T), returns.mean(axis=0)
    best = module.mean_variance(returns, 4.0)
    assert best.sum() == pytest.approx(1.0)
    pull = (mean + mean.mean()) / 2 / 4.0
    free = (covariance[1, 1] - covariance[0, 1] + pull[0] - pull[1]) / (
        covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]
    )
    assert best[0] == pytest.approx(free, abs=0.02)  # two assets: the first-order condition, but for the shrinkage


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
    first, *middle, last = (part["wrong"] for part in results["groups"])  # in between, some 200 patients in a group
    assert first < 0.1 < 0.15 < min(middle) <= max(middle) < last  # 0.15 is the clinician's rate


def test_threshold_rule_harms_fewer_and_costs_welfare(ran: Callable[..., Any]) -> None:
    lines = ran("defer")["careful"]
    for name in ("treated", "harmed"):
        assert [line[name] for line in lines] == sorted(line[name] for line in lines)
    assert all(line["harmed"] < line["alpha"] for line in lines)  # what the rule promises
    assert 3.0 * lines[0]["harmed"] < lines[-1]["harmed"]
    assert lines[0]["gain"] < -0.01
    assert lines[0]["gain"] == min(line["gain"] for line in lines)
