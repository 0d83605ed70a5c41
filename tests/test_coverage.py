"""Coverage by simulation: each replication restated by hand, and every count from the records."""

import json
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.linear_model import Ridge

import gbpl
from gbpl import MLP, FitConfig, GBPLNet, PerAction, coverage_study
from gbpl.coverage import CoverageStudy, Replication
from gbpl.datasets import MultiActionDesign, OneDimensionalDesign

ROWS, FRESH, START, LEVEL = 90, 200, 5, 0.8
NET = GBPLNet(
    committee=2, zeta=[1.0, 0.1], model=MLP(hidden=(8,)), outcome_model=PerAction(Ridge()), nuisance_folds=2,
    fit_config=FitConfig(max_epochs=8, learning_rate=0.03), progress=False,
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """A log as a user has it, with costs by label, weights and groups."""

    x: np.ndarray
    outcome: np.ndarray
    action: np.ndarray
    propensity: np.ndarray
    outcome_mean: np.ndarray
    cost: dict[str, float]
    sample_weight: np.ndarray
    groups: np.ndarray


class OwnDesign:
    """Any object with `sample` will do; its actions have names."""

    def sample(self, n: int, *, seed: int) -> Sample:
        rng = np.random.default_rng(seed)
        x, action = rng.normal(size=(n, 2)), rng.integers(0, 2, n)
        mean = np.column_stack([np.zeros(n), x[:, 0]]) + 1.0
        outcome = mean[np.arange(n), action] + rng.normal(size=n)
        weight = rng.uniform(0.5, 2.0, n)
        names = np.array(["none", "some"])[action]
        cost = {"none": 0.0, "some": 0.3}
        return Sample(x, outcome, names, np.full(n, 0.5), mean, cost, weight, np.arange(n) // 3)


DESIGNS = {
    "plain": (MultiActionDesign("DGP2", n_actions=3, n_features=4), 3),
    "own": (OwnDesign(), 2),
}


@cache
def counted(name: str) -> CoverageStudy:
    design, replications = DESIGNS[name]
    return coverage_study(
        design, n=ROWS, replications=replications, estimator=NET, level=LEVEL, evaluation_rows=FRESH, start=START,
        together=2,
    )  # fmt: skip


def by_hand(name: str, seed: int) -> tuple[GBPLNet, np.ndarray, np.ndarray]:
    """The policy, the mean outcomes of its decisions on new rows, net of costs, and those of each action."""
    design = DESIGNS[name][0]
    sample, fresh = design.sample(ROWS, seed=seed), design.sample(FRESH, seed=10**6)
    policy, means = clone(NET).set_params(random_state=seed), fresh.outcome_mean
    if name == "plain":
        policy.fit(sample.x, sample.outcomes)
    else:
        given = {name: getattr(sample, name) for name in ("action", "propensity", "cost", "sample_weight", "groups")}
        policy.fit(sample.x, sample.outcome, **given)
        means = means - [0.0, 0.3]
    place = [policy.actions_.tolist().index(label) for label in policy.predict(fresh.x)]
    return policy, means[np.arange(FRESH), place], means


@pytest.mark.parametrize("name", DESIGNS)
def test_a_replication_restated(name: str) -> None:
    """As one fit alone, though two were fitted as a stack."""
    study = counted(name)
    assert [one.seed for one in study.replications] == list(range(START, START + DESIGNS[name][1]))
    one = study.replications[1]
    policy, mine, means = by_hand(name, START + 1)
    weight = DESIGNS[name][0].sample(FRESH, seed=10**6).sample_weight if name == "own" else np.ones(FRESH)
    worth, single = np.average(mine, weights=weight), np.average(means, axis=0, weights=weight)
    value, gains = policy.cross_fitted_value(), policy.gains()
    assert_allclose(one.value, [value.estimate, value.se, *value.interval(LEVEL), worth], rtol=1e-5)
    expected = np.column_stack([gains.estimates, gains.ses, gains.intervals(LEVEL), worth - single])
    assert_allclose(one.gains, expected, rtol=1e-4, atol=1e-6)
    bands = gains.bands(LEVEL)
    assert one.band == np.all((bands[:, 0] <= worth - single) & (worth - single <= bands[:, 1]))
    assert one.chance == pytest.approx(gains.chance, rel=1e-4)
    assert one.better == np.all(worth > single)
    assert one.regret == pytest.approx(np.average(means.max(axis=1), weights=weight) - worth, abs=1e-9)
    rows = replace(value, dependence=None, allowance=0.0, inflation=0.0)
    assert one.half == pytest.approx(np.sqrt(2.0) * rows.se, rel=1e-5), "learning on one half, judging on the other"
    assert min(one.seconds) > 0.0


# -- what is counted ------------------------------------------------------------------------------------------------


def made(**changes: Any) -> Replication:
    gains = ((0.5, 0.2, 0.1, 0.9, 0.4), (0.3, 0.2, -0.1, 0.7, 0.8))
    given = {
        "seed": 0, "value": (1.0, 0.5, 0.2, 1.8, 1.5), "gains": gains, "band": True, "chance": 0.93, "better": True,
        "half": 1.0, "regret": 0.1, "seconds": (2.0, 1.0),
    }  # fmt: skip
    return Replication(**given | changes)


MADE = CoverageStudy(
    0.9,
    (
        made(),
        made(value=(1.0, 0.25, 0.6, 1.4, 1.5), band=False, better=False, regret=0.3, seconds=(4.0, 3.0)),
        made(chance=0.97, value=(2.0, 1.0, 1.5, 2.5, 1.5)),
        made(chance=0.5, gains=((0.5, 0.2, 0.1, 0.9, 0.0),) * 2, better=False, seconds=(3.0, 2.0)),
    ),
)


def test_every_count_from_the_records() -> None:
    records = MADE.records()
    covered = [one["value"][2] <= one["value"][4] <= one["value"][3] for one in records]
    assert covered == [True, False, True, True]
    assert_allclose(MADE.value_coverage, [0.75, np.std(covered, ddof=1) / 2])
    # The first gain is covered in three of four, the second never: the two of a replication count as one.
    each = [0.5, 0.5, 0.5, 0.0]
    assert_allclose(MADE.gain_coverage, [np.mean(each), np.std(each, ddof=1) / 2])
    assert MADE.worst_gain_coverage == 0.0
    assert_allclose(MADE.band_coverage, [0.75, np.std([1, 0, 1, 1], ddof=1) / 2])
    z = [-1.0, -2.0, 0.5, -1.0]
    assert_allclose(MADE.z, [np.mean(z), np.std(z, ddof=1)])
    assert [MADE.said(chance) for chance in (0.4, 0.9, 0.95, 0.99)] == [(4, 2), (3, 2), (1, 1), (0, 0)]
    assert MADE.width == pytest.approx(np.mean([0.5, 0.25, 1.0, 0.5]))
    assert_allclose(MADE.regret, [0.15, np.std([0.1, 0.3, 0.1, 0.1], ddof=1) / 2])


def test_the_numbers_by_name_and_in_words() -> None:
    numbers = MADE.to_dict()
    assert (numbers["replications"], numbers["level"]) == (4, 0.9)
    assert [numbers["value_coverage"], numbers["value_coverage_se"]] == list(MADE.value_coverage)
    assert [numbers["gain_coverage"], numbers["gain_coverage_se"]] == list(MADE.gain_coverage)
    assert [numbers["z_mean"], numbers["z_sd"], numbers["width"]] == [*MADE.z, MADE.width]
    assert [numbers["said_90"], numbers["said_95"]] == [(3, 2), (1, 1)]
    assert (numbers["seconds_fit"], numbers["seconds_held_out"]) == (2.5, 1.5)  # medians
    text = str(MADE)
    assert text.startswith("4 replications, 90 % intervals")
    assert "value covered        0.750" in text
    assert "said > 90 % better   3 times, right 2 times" in text
    assert "Replication" not in repr(MADE)


def test_studies_are_added_and_kept() -> None:
    first, second = CoverageStudy(0.9, MADE.replications[:1]), CoverageStudy(0.9, MADE.replications[1:])
    both = first + second
    assert len(both) == 4
    assert both.to_dict() == MADE.to_dict()
    back = CoverageStudy.of_records(json.loads(json.dumps(MADE.records())), 0.9)
    assert back.to_dict() == MADE.to_dict()
    with pytest.raises(ValueError, match=r"levels 0.9 and 0.8 cannot be added"):
        first + replace(second, level=0.8)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"replications": 1}, "replications must be >= 2 and together >= 1, got 1 and 1"),
        ({"together": 0}, "replications must be >= 2 and together >= 1, got 100 and 0"),
        ({"level": 1.0}, "level must be between 0 and 1, got 1.0"),
        ({"level": 0.0}, "level must be between 0 and 1, got 0.0"),
        ({"estimator": GBPLNet(committee=None)}, "coverage_study needs a committee"),
    ],
)
def test_bad_requests_are_refused_before_any_fit(wrong: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gbpl.coverage.fit_many", None)
    with pytest.raises(ValueError, match=message):
        coverage_study(OneDimensionalDesign(), **wrong)


def test_the_template_is_left_as_it_is() -> None:
    before = NET.get_params()
    counted("own")
    assert NET.get_params() == before
    assert not hasattr(NET, "params_")


def test_where_the_names_live() -> None:
    assert "coverage_study" in gbpl.__all__
    with pytest.warns(DeprecationWarning, match=r"gbpl\.CoverageStudy is now gbpl\.coverage\.CoverageStudy"):
        assert gbpl.CoverageStudy is CoverageStudy
