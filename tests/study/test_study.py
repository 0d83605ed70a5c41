"""A study is the estimator on the numbers of a table; its summary restates the mathematics of values out of fold."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm, t
from support.policies import small_study_net

import gbpl
from gbpl import Encoder, GBPLNet, Linear
from gbpl.certificates.certify import hold_out_rows
from gbpl.runtime.warn import collected
from gbpl.study.numbers import LEVELS, StudyNumbers
from gbpl.study.study import _prices
from gbpl.study.summary import PROBABILITIES
from gbpl.tables.frames import TableError
from gbpl.value.dependence import DRAWS

N = 240
KEYS = [
    "format", "title", "created", "data", "roles", "actions", "default", "unit", "welfare", "alternatives", "bands",
    "moments", "who", "tree", "disagreement", "review", "reviewed", "budget", "overlap", "sensitivity", "zeta_path",
    "calibration", "certificate",
    "settings", "versions", "seconds", "check", "warnings", "explained", "several", "by_group", "small_rule", "advice",
]  # fmt: skip


def frame(seed: int = 0, actions=("control", "mail"), lost: int = 0) -> pd.DataFrame:
    """`N` rows with an outcome and `lost` without; who gains depends on age and region."""
    rng = np.random.default_rng(seed)
    n = N + lost
    made = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n).astype(float),
            "sex": rng.choice(["f", "m"], n),
            "vip": rng.random(n) < 0.3,
            "noise": rng.normal(size=n),
            "arm": np.array(actions)[rng.permutation(np.arange(n) % len(actions))],
        }
    )
    made.loc[rng.permutation(n)[: n // 10], "age"] = np.nan
    number = np.array([list(actions).index(label) for label in made["arm"]])
    gain = (made["age"].fillna(40.0) - 45.0) / 20.0 + (made["sex"] == "m")
    made["earnings"] = 3.0 + number * gain + rng.normal(size=n)
    made.loc[rng.permutation(n)[:lost], "earnings"] = np.nan
    return made


ROLES = {"outcome": "earnings", "action": "arm", "propensity": 0.5}
COST = {"mail": 0.25}


@pytest.fixture(scope="module")
def study():
    return gbpl.learn(frame(lost=11), **ROLES, cost=COST, defer=0.6, estimator=small_study_net(), source="jtpa.csv")


@pytest.fixture(scope="module")
def own_choices(study):
    """Decisions by fits without the row's fold, from their own deviations; a one for the action."""
    deviation = study.fitted._training.held_out.deviation
    return np.eye(2)[(deviation[:, 1] >= deviation[:, 0]).astype(int)]


def se(values):
    return np.std(values, ddof=1) / np.sqrt(len(values))


def pulls(fitted: GBPLNet) -> np.ndarray:
    """What the dependence of folds adds for each row of two actions: E[z 1{f + t z >= 0}] (Y(1) - Y(0)), f shrunk."""
    held, scores = fitted._training.held_out, fitted.pseudo_outcomes_
    gap = np.diff(held.deviation.astype(np.float64), axis=1)
    variance = np.array([-1.0, 1.0]) @ held.covariance @ [-1.0, 1.0]
    gap *= np.sqrt(max(0.0, 1.0 - variance / np.mean(gap**2)))
    half = np.random.default_rng(0).standard_normal(DRAWS // 2)
    z = np.r_[half, -half]
    return np.mean(z * (gap + np.sqrt(variance) * z >= 0.0), axis=1) * (scores[:, 1] - scores[:, 0])


def learning(mine: np.ndarray, pull: np.ndarray) -> float:
    """The variance that having learned from the rows adds: sum v_i^2 / (n (n - 1)), and 0.12 of that of the rows."""
    return np.sum(pull**2) / (len(pull) * (len(pull) - 1)) + 0.12 * se(mine) ** 2


def fitted_by_hand(raw: pd.DataFrame, fresh: GBPLNet, encoder: Encoder, **given) -> GBPLNet:
    known = raw["earnings"].notna().to_numpy()
    x = encoder.apply(raw)[0][known]
    fresh.set_params(actions=["control", "mail"])
    return fresh.fit(x, raw["earnings"].to_numpy()[known], action=raw["arm"].to_numpy(str)[known], **given)


# -- the same numbers as by hand ------------------------------------------------------------------------------------


def test_a_study_is_the_estimator_on_the_encoded_columns(study):
    raw = frame(lost=11)
    encoder = study.policy.encoder
    assert encoder.names == ["age", "age is missing", "sex=m", "vip", "noise"]
    mine = fitted_by_hand(raw, small_study_net(), encoder, propensity=0.5, cost=COST)
    x = encoder.apply(raw)[0]
    assert_array_equal(study.fitted.predict_proba(x), mine.predict_proba(x))
    assert_array_equal(study.fitted.pseudo_outcomes_, mine.pseudo_outcomes_)
    assert_allclose(study.policy.predict_proba(raw), mine.predict_proba(x), atol=1e-6)
    assert mine.predict_proba(x).std() > 0.02, "a constant policy would prove nothing"


def test_welfare_and_gains_are_means_of_doubly_robust_scores(study, own_choices):
    summary, scores = study.summary, study.fitted.pseudo_outcomes_
    raw = frame(lost=11).dropna(subset=["earnings"])
    mine = np.sum(own_choices * scores, axis=1)
    more = learning(mine, pulls(study.fitted))
    assert_allclose(summary["welfare"]["estimate"], mine.mean())
    assert_allclose(summary["welfare"]["se"], se(mine))
    assert_allclose(summary["welfare"]["spread"], np.sqrt(more))
    assert 0.12 * se(mine) ** 2 < more < 0.5 * se(mine) ** 2, "folds depend on each other, within reason"
    assert summary["welfare"]["net_of_cost"] is True
    logged = raw["earnings"].to_numpy() - 0.25 * (raw["arm"] == "mail").to_numpy()
    for item, other in zip(summary["alternatives"], [scores[:, 0], scores[:, 1], logged], strict=True):
        assert_allclose([item["value"], item["se"]], [other.mean(), se(other)])
        error = np.sqrt(se(mine - other) ** 2 + learning(mine - other, pulls(study.fitted)))
        assert_allclose([item["gain"], item["gain_se"]], [(mine - other).mean(), error])
    labels = [item["label"] for item in summary["alternatives"]]
    assert labels == ["everybody gets control", "everybody gets mail", "as logged"]
    assert [item["action"] for item in summary["alternatives"]] == [0, 1, None]
    best = int(np.argmax(scores.mean(axis=0)))
    assert [item["best"] for item in summary["alternatives"]] == [best == 0, best == 1, False]
    # The scores themselves: gamma_a + 1{A = a} (Y - gamma_a) / e - cost_a, gamma from the other fold.
    nuisances = study.fitted._training.nuisances
    took = np.eye(2)[(raw["arm"] == "mail").astype(int)]
    gamma = nuisances.outcome_mean
    expected = gamma + took * (raw["earnings"].to_numpy()[:, None] - gamma) / 0.5 - [0.0, 0.25]
    assert_allclose(scores, expected, rtol=1e-6)


def test_moments_give_every_error_and_other_costs(study, own_choices):
    summary, scores = study.summary, study.fitted.pseudo_outcomes_
    mine = np.sum(own_choices * scores, axis=1)
    influence = np.column_stack([mine, scores, own_choices])
    pull = pulls(study.fitted)
    folds = np.sum(pull**2) / (N * (N - 1)) * np.outer(np.eye(5)[0], np.eye(5)[0])
    mean, covariance = np.array(summary["moments"]["mean"]), np.array(summary["moments"]["covariance"])
    assert_allclose(mean, influence.mean(axis=0))
    assert_allclose(covariance, 1.12 * np.cov(influence.T) / N + folds, atol=1e-15)
    for number, item in enumerate(summary["alternatives"][:2]):
        contrast = np.eye(5)[0] - np.eye(5)[1 + number]
        assert_allclose(contrast @ mean, item["gain"])
        assert_allclose(np.sqrt(contrast @ covariance @ contrast), item["gain_se"])
    # Mail for 1.0 more, control for 0.5 less: the same decisions, other worth.
    shift = np.array([-0.5, 1.0])
    moved = np.sum(own_choices * (scores - shift), axis=1)
    at = np.r_[1.0, 0.0, 0.0, -shift]
    assert_allclose([at @ mean, at @ covariance @ at], [moved.mean(), se(moved) ** 2 + learning(moved, pull)])
    for number in (0, 1):
        against = at - np.eye(5)[1 + number]
        gains = moved - (scores[:, number] - shift[number])
        assert_allclose(against @ mean + shift[number], gains.mean())
        assert_allclose(against @ covariance @ against, se(gains) ** 2 + learning(gains, pull))


def test_chances_and_quantiles_are_normal(study, own_choices):
    summary = study.summary
    assert_allclose(PROBABILITIES, (np.arange(201) + 0.5) / 201)
    welfare = summary["welfare"]
    total = np.hypot(welfare["se"], welfare["spread"])
    assert_allclose(welfare["quantiles"], welfare["estimate"] + total * norm.ppf(PROBABILITIES))
    for item in summary["alternatives"]:
        assert_allclose(item["gain_quantiles"], item["gain"] + item["gain_se"] * norm.ppf(PROBABILITIES))
        assert_allclose(item["chance"], norm.cdf(item["gain"] / item["gain_se"]))
        assert abs(item["chance"] - np.mean(np.array(item["gain_quantiles"]) > 0.0)) < 1 / 201
    draws = study.fitted.population_welfare(own_choices).values
    assert abs(np.mean(draws) - welfare["estimate"]) < 0.1 * total
    assert_allclose(np.std(draws), total, rtol=0.1)


def test_bands_contain_the_gains_over_all_actions_at_once(study):
    """Of draws from the covariance of the gains, as many lie wholly within the reach as the level says."""
    bands, moments = study.summary["bands"], study.summary["moments"]
    assert_allclose(bands["level"], np.arange(50, 100) / 100)
    contrast = np.column_stack([np.ones(2), -np.eye(2), np.zeros((2, 2))])
    covariance = contrast @ np.array(moments["covariance"]) @ contrast.T
    gains = np.random.default_rng(1).multivariate_normal(np.zeros(2), covariance, 200_000)
    furthest = np.max(np.abs(gains) / np.sqrt(np.diag(covariance)), axis=1)
    inside = [np.mean(furthest <= reach) for reach in bands["reach"]]
    assert_allclose(inside, bands["level"], atol=0.012)
    assert (np.diff(bands["reach"]) > 0.0).all()
    assert (np.array(bands["reach"]) > norm.ppf(0.5 + np.array(bands["level"]) / 2)).all(), "wider than one by one"


def test_rows_and_roles_are_told(study):
    data = study.summary["data"]
    assert (data["rows"], data["dropped"], data["feedback"]) == (N, 11, "logged")
    assert (data["outcome"], data["action"], data["outcomes"]) == ("earnings", "arm", None)
    assert data["propensity"] == "0.5 for mail, given"
    assert data["features"] == ["age", "sex", "vip", "noise"]
    assert any("missing in" in note for note in data["notes"])
    assert "11 rows without an outcome (earnings) left out" in data["notes"]
    assert study.summary["title"] == "jtpa.csv: who should get which action (arm)"
    raw = frame(lost=11).dropna(subset=["earnings"])
    for number, item in enumerate(study.summary["actions"]):
        assert item["label"] == ["control", "mail"][number]
        assert item["cost"] == [0.0, 0.25][number]
        assert item["logged_rows"] == (raw["arm"] == item["label"]).sum()
        assert_allclose(item["share"], np.mean(study.decisions.action == item["label"]))
        assert item["capacity"] is None
    assert study.summary["settings"]["defer"] == study.summary["disagreement"]["level"] == 0.6
    assert study.summary["settings"]["random_state"] == 4
    assert list(study.summary) == KEYS


def test_decide_gives_the_decisions_of_the_study_and_of_rows_without_outcome(study):
    raw = frame(lost=11)
    decided = study.policy.decide(raw)
    assert len(decided) == N + 11
    known = raw["earnings"].notna().to_numpy()
    for name in ("action", "draw_share", "disagreement", "deferred", "expected_gain"):
        assert_array_equal(getattr(decided, name)[known], getattr(study.decisions, name))
    assert_array_equal(study.decisions.deferred, study.decisions.disagreement > 0.6)
    assert_array_equal(decided.action, study.fitted.predict(study.policy.encoder.apply(raw)[0]))


def test_a_saved_study_is_the_same(study, tmp_path):
    study.save(tmp_path / "p.gbpl")
    loaded = gbpl.load(tmp_path / "p.gbpl")
    assert loaded.summary == study.summary
    assert loaded.rule == study.policy.rule
    assert_array_equal(loaded.decide(frame(lost=11)).draw_share, study.policy.decide(frame(lost=11)).draw_share)
    assert study.report().startswith("<!")


# -- disagreement and calibration -----------------------------------------------------------------------------------


def test_the_curve_runs_from_the_default_action_to_the_policy(study, own_choices):
    scores = study.fitted.pseudo_outcomes_
    mine, usual, pull = np.sum(own_choices * scores, axis=1), scores[:, 0], pulls(study.fitted)
    numbers = StudyNumbers(study.fitted, np.argmax(own_choices, axis=1), 0)
    split = np.linspace(0.01, 1.0, N)
    given = np.arange(N) % 2
    summary = numbers.disagreement(split, given, 0.5)
    first, last = summary["curve"][0], summary["curve"][-1]
    assert [first["level"], last["level"]] == [0.0, 1.0]
    assert first["share"] == 1.0
    assert_allclose([first["welfare"], first["se"]], [usual.mean(), se(usual)])
    assert last["share"] == 0.0
    assert_allclose([last["welfare"], last["se"]], [mine.mean(), np.sqrt(se(mine) ** 2 + learning(mine, pull))])
    for point in summary["curve"]:
        kept = split <= point["level"]
        mixed = np.where(kept, mine, usual)
        inflated = (1.0 + 0.12 * kept.mean()) * se(mixed) ** 2  # by the share that the policy decides
        error = np.sqrt(inflated + np.sum(pull[kept] ** 2) / (N * (N - 1)))
        assert_allclose([point["welfare"], point["se"]], [mixed.mean(), error])
        assert_allclose(point["share"], np.mean(split > point["level"]))
    assert np.sum(summary["counts"], axis=1).tolist() == [N // 2, N // 2]
    assert_allclose(summary["counts"][0], np.histogram(split[::2], summary["edges"])[0])


def test_the_studys_own_curve_is_of_its_disagreement(study):
    summary, split = study.summary["disagreement"], study.decisions.disagreement
    for point in summary["curve"]:
        assert_allclose(point["share"], np.mean(split > point["level"]))
    assert_allclose(summary["curve"][-1]["welfare"], study.summary["welfare"]["estimate"])
    assert np.sum(summary["counts"]) == N
    deferred = {part["feature"]: part for part in study.summary["who"]}["sex"]["bins"]
    mean = sum(one["rows"] * one["deferred"] for one in deferred) / N
    assert_allclose(mean, study.decisions.deferred.mean())
    assert bool(study.summary["review"]) == (0 < study.decisions.deferred.sum() < N)


def test_calibration_groups_set_what_was_expected_beside_what_came(study):
    deviation = study.fitted._training.held_out.deviation
    scores = study.fitted.pseudo_outcomes_
    slope = study.fitted.gain_slope_.slope
    assert slope > 0.0
    expected = slope * (deviation[:, 1] - deviation[:, 0]).astype(np.float64)  # sums of float32 have few digits
    came = scores[:, 1] - scores[:, 0]
    order = np.argsort(expected, kind="stable")
    groups = study.summary["calibration"]["groups"]
    assert [group["rows"] for group in groups] == [N // 5] * 5
    for number, group in enumerate(groups):
        rows = order[number * N // 5 : (number + 1) * N // 5]
        assert_allclose(group["expected"], expected[rows].mean(), rtol=1e-5)
        assert_allclose([group["estimate"], group["se"]], [came[rows].mean(), se(came[rows])])
    eta = study.fitted.calibrate_eta()
    assert study.summary["calibration"]["eta"] == eta.eta
    assert_allclose(study.summary["calibration"]["coverage"]["eta"], eta.grid)


@pytest.mark.parametrize("weighted", [False, True])
def test_where_zetas_are_averaged_calibration_says_how_sure_the_policy_is(weighted):
    """By draws around the effects out of fold: groups of rows, what they expect of the first two actions, what came."""
    raw = frame().assign(w=np.random.default_rng(1).uniform(0.5, 2.0, N))
    given = {"weight": "w", "features": ["age", "sex", "noise", "vip"]} if weighted else {}
    raw = raw if weighted else raw.drop(columns="w")
    study = gbpl.learn(raw, **ROLES, **given, estimator=small_study_net(zeta="auto"))
    summary = study.summary["calibration"]
    assert [summary[key] for key in ("eta", "eta_note", "coverage")] == [None, None, None]
    assert [group["rows"] for group in summary["groups"]] == [N // 5] * 5
    fitted = study.fitted
    effects = fitted.expected_gain()
    drawn = np.concatenate([part for _, part in fitted.posterior().effects(fitted._training.feedback.x)], axis=1)
    around = drawn - drawn.mean(axis=0) + effects
    chance = np.mean(around[:, :, 1] > around[:, :, 0], axis=0)
    first = (chance > 0.5).astype(int)
    sign, came = np.where(first == 1, 1.0, -1.0), fitted.pseudo_outcomes_[:, 1] - fitted.pseudo_outcomes_[:, 0]
    said = np.maximum(chance, 1.0 - chance)
    weight = raw["w"].to_numpy() if weighted else np.ones(N)
    order = np.argsort(said, kind="stable")
    assert list(summary["reliability"][0]) == ["said", "expected", "estimate", "se", "rows"]
    assert np.mean(sign * effects[:, 1] >= 0.0) > 0.95
    for number, group in enumerate(summary["reliability"]):
        rows = order[number * N // 5 : (number + 1) * N // 5]
        part, gained = weight[rows] / weight[rows].sum(), (sign * came)[rows]
        assert_allclose(group["said"], part @ said[rows], atol=1e-6)
        assert_allclose(group["expected"], part @ (sign * effects[:, 1])[rows], atol=1e-5)
        error = np.sqrt(np.sum((part * (gained - part @ gained)) ** 2) * len(rows) / (len(rows) - 1))
        assert_allclose([group["estimate"], group["se"]], [part @ gained, error])
        assert group["rows"] == len(rows)
    assert "Is it right when it is sure?" in study.report()
    assert "Is it right when it is sure?" not in gbpl.learn(frame(), **ROLES, estimator=small_study_net()).report()


# -- capacity -------------------------------------------------------------------------------------------------------


def test_capacity_is_kept_inside_and_out_of_fold():
    raw = frame(lost=7)
    limited = gbpl.learn(raw, **ROLES, capacity={"MAIL": 0.21}, estimator=small_study_net())
    free = gbpl.learn(raw, **ROLES, estimator=small_study_net())
    assert free.summary["actions"][1]["share"] > 0.3, "a limit that does not bind would prove nothing"
    summary = limited.summary
    assert 0.19 < summary["actions"][1]["share"] <= 0.21
    assert 0.19 < summary["moments"]["mean"][4] <= 0.21, "out of fold too"
    assert summary["actions"][1]["capacity"] == 0.21
    assert_array_equal(limited.fitted.params_[0]["weight"], free.fitted.params_[0]["weight"])
    again = limited.policy.decide(raw)
    assert_array_equal(again.action[raw["earnings"].notna()], limited.decisions.action)
    mail, kept = limited.decisions.action == "mail", raw["earnings"].notna().to_numpy()
    gain = limited.policy.expected_gain(raw)[kept]
    assert gain[mail, 1].min() > limited.policy.rule.prices[1] > gain[~mail, 1].max()
    assert limited.policy.rule.prices[0] == 0.0
    assert (gain[:, 0] == 0.0).all()
    assert summary["settings"]["prices"] == list(limited.policy.rule.prices)
    # Held out: in each fold those of largest gain, as a fit that did not see the fold expects it.
    outside, chosen = limited.fitted.expected_gain()[:, 1], np.zeros(N, bool)
    folds = limited.fitted._training.held_out.folds
    assert_array_equal(np.sort(np.concatenate(folds)), np.arange(N))
    for fold in folds:
        assert np.mean(outside[fold] >= 0.0) > 0.21, "the limit binds in every fold"
        chosen[fold] = outside[fold] >= np.sort(outside[fold])[-int(0.21 * len(fold))]
    scores = limited.fitted.pseudo_outcomes_
    assert_allclose(summary["welfare"]["estimate"], np.where(chosen, scores[:, 1], scores[:, 0]).mean())
    loose = gbpl.learn(raw, **ROLES, capacity={"mail": 0.99}, estimator=small_study_net())
    assert_array_equal(loose.decisions.action, free.decisions.action)
    assert loose.policy.rule.prices == (0.0, 0.0)


def test_another_default_turns_gains_round():
    one = gbpl.learn(frame(), **ROLES, estimator=small_study_net())
    other = gbpl.learn(frame(), **ROLES, default="mail", capacity={"control": 0.3}, estimator=small_study_net())
    assert other.summary["default"] == 1
    assert other.policy.rule.default == 1
    assert other.summary["actions"][0]["share"] <= 0.3
    raw = frame()
    assert_allclose(other.policy.expected_gain(raw)[:, 0], -one.policy.expected_gain(raw)[:, 1])
    taken = other.decisions.action == "mail"
    assert (other.decisions.expected_gain[taken] == 0.0).all()
    assert other.summary["disagreement"]["curve"][0]["welfare"] != one.summary["disagreement"]["curve"][0]["welfare"]


def test_without_a_slope_a_capacity_leaves_the_default():
    """Where the order is not borne out, nobody is told to gain: with a limit that binds, everybody stays."""
    for seed in range(20):
        raw = frame(seed)
        raw["earnings"] = np.random.default_rng(seed + 50).normal(size=N)
        study = gbpl.learn(raw, **ROLES, capacity={"mail": 0.05}, estimator=small_study_net())
        if study.fitted.gain_slope_.slope == 0.0 and any(study.policy.rule.prices):
            break
    else:
        pytest.fail("no sample without a slope")
    assert set(study.decisions.action) == {"control"}
    assert any("do not bear out" in note for note in study.summary["data"]["notes"])
    assert study.summary["moments"]["mean"][4] == 0.0
    zero = np.zeros((4, 3))
    assert _prices(zero, np.array([0, 0, 0, 1]), 0.0, {1: 0.5}, 2).tolist() == [0.0, 0.0, 0.0], "within the limit"
    prices = _prices(zero, np.array([1, 1, 0, 2]), 0.0, {1: 0.4}, 2)
    assert prices[2] == 0.0
    assert min(prices[:2]) > 0.0


def test_without_a_limit_the_policy_decides_whatever_the_slope():
    for seed in range(20):
        raw = frame(seed)
        raw["earnings"] = np.random.default_rng(seed + 50).normal(size=N)
        study = gbpl.learn(raw, **ROLES, estimator=small_study_net())
        if study.fitted.gain_slope_.slope == 0.0 and len(set(study.decisions.action)) == 2:
            break
    else:
        pytest.fail("no sample without a slope")
    assert_allclose(study.summary["welfare"]["estimate"], study.fitted.cross_fitted_value().estimate)
    assert (study.decisions.expected_gain == 0.0).all()


# -- frames of any library ------------------------------------------------------------------------------------------


def test_frames_of_every_library_give_the_same_numbers(study):
    raw = frame(lost=11)
    arrow = pa.Table.from_pandas(raw)
    plain = {name: arrow[name].to_pylist() for name in arrow.column_names}
    expected = {name: value for name, value in study.summary.items() if name != "seconds"}
    for other in (pl.from_pandas(raw), arrow, plain, raw.astype({"sex": "category", "arm": "category"})):
        learned = gbpl.learn(other, **ROLES, cost=COST, defer=0.6, estimator=small_study_net(), source="jtpa.csv")
        assert {name: value for name, value in learned.summary.items() if name != "seconds"} == expected
        assert_array_equal(learned.decisions.action, study.decisions.action)


# -- every case is plain JSON ---------------------------------------------------------------------------------------


def three_arms(**changed):
    return frame(1, ("a", "b", "c")).assign(**changed)


def outcome_columns(count: int) -> pd.DataFrame:
    rng = np.random.default_rng(6)
    x = rng.normal(size=(N, 5))  # as many features as `frame` has
    made = pd.DataFrame(x, columns=list("stuvz"))
    for action in range(count):
        made[f"y{action}"] = action * x[:, 0] - action**2 / 4 + rng.normal(size=N)
    return made


HALVES = {"0": 0.5, 1: 0.5}
FULL = {"outcomes": ["y0", "y1"]}
WEIGHTS = np.random.default_rng(8).uniform(0.5, 3.0, N)
HOMES = np.random.default_rng(9).permutation(np.arange(N) // 8)  # so that folds have the size they have without
CASES = {
    "two actions": lambda: (frame(), ROLES),
    "estimated propensities": lambda: (frame(), ROLES | {"propensity": None}),
    "propensity column": lambda: (frame().assign(p=0.5), ROLES | {"propensity": "p"}),
    "controls": lambda: (frame().assign(help=HOMES), ROLES | {"controls": ["help"]}),
    "constant outcome": lambda: (frame().assign(earnings=2.0), ROLES),
    "one action for all": lambda: (frame().assign(earnings=lambda f: 99.0 * (f["arm"] == "mail")), ROLES),
    "three actions": lambda: (three_arms(), ROLES | {"propensity": 1 / 3}),
    "three, two limited": lambda: (three_arms(), ROLES | {"propensity": 1 / 3, "capacity": {"b": 0.1, "c": 0.2}}),
    "weights": lambda: (frame().assign(w=WEIGHTS), ROLES | {"weight": "w"}),
    "groups": lambda: (frame().assign(h=HOMES), ROLES | {"group": "h"}),
    "both": lambda: (frame().assign(h=HOMES, w=WEIGHTS), ROLES | {"group": "h", "weight": "w"}),
    "boolean actions": lambda: (frame().assign(arm=lambda f: f["arm"] == "mail"), ROLES | {"cost": {"true": 1}}),
    "whole numbers": lambda: (frame(actions=(0, 1)), ROLES | {"cost": {"1": 1}, "default": "1", "propensity": HALVES}),
    "full": lambda: (outcome_columns(2), FULL | {"cost": {"y1": 0.5}}),
    "full, three, limited": lambda: (outcome_columns(3), {"outcomes": ["y0", "y1", "y2"], "capacity": {"y2": 0.1}}),
    "full, weights": lambda: (outcome_columns(2).assign(w=WEIGHTS), FULL | {"weight": "w"}),
    "hostile names": lambda: (
        frame(actions=("<b>", "\U0001f600 'x'")).rename(columns={"noise": "<script>\n"}), ROLES
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_summary_is_plain_json(name):
    raw, given = CASES[name]()
    study = gbpl.learn(raw, **given, estimator=small_study_net())
    summary = study.summary
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert list(summary) == KEYS
    count = len(summary["actions"])
    assert_allclose(sum(item["share"] for item in summary["actions"]), 1.0)
    assert len(summary["alternatives"]) == count + ("action" in given)
    assert len(summary["moments"]["mean"]) == 1 + 2 * count
    assert np.shape(summary["moments"]["covariance"]) == (1 + 2 * count, 1 + 2 * count)
    assert sum(item["best"] for item in summary["alternatives"]) == 1
    for item in summary["actions"]:
        assert item["capacity"] is None or item["share"] <= item["capacity"]
    for part in summary["who"]:
        assert sum(one["rows"] for one in part["bins"]) == N
    assert summary["several"] is None
    assert (summary["overlap"] is None) == ("outcomes" in given)
    assert (summary["sensitivity"] is None) == (given.get("propensity", 1) is not None)
    assert all(0.0 <= item["chance"] <= 1.0 for item in summary["alternatives"])
    assert_array_equal(study.policy.decide(raw).action, study.decisions.action)
    assert type(summary["actions"][0]["label"]) is str
    if name == "one action for all":
        assert summary["tree"]["fidelity"] is None
        assert summary["actions"][1]["share"] == 1.0
        same = summary["alternatives"][1]
        assert (same["gain"], same["chance"]) == (0.0, 0.5)
        assert 0.0 < same["gain_se"] <= summary["welfare"]["spread"]  # folds may depend on each other, and no more
    if name == "constant outcome":
        assert summary["welfare"]["estimate"] == pytest.approx(2.0)


@pytest.mark.parametrize("name", ["weights", "groups", "both"])
def test_errors_are_weighted_and_by_group(name):
    raw, given = CASES[name]()
    study = gbpl.learn(raw, **given, estimator=small_study_net())
    summary, scores = study.summary, study.fitted.pseudo_outcomes_
    deviation = study.fitted._training.held_out.deviation
    chosen = (deviation[:, 1] >= deviation[:, 0]).astype(int)
    weight = WEIGHTS / WEIGHTS.sum() if "weight" in given else np.full(N, 1 / N)

    def judged(values, *added):
        """Mean and standard error; columns of `added` have their squares, summed over groups, in the variance."""
        terms = weight[:, None] * np.column_stack([values - weight @ values, *added])
        if "group" in given:
            terms = np.stack([np.bincount(HOMES, column) for column in terms.T], axis=1)
        return weight @ values, np.sqrt(np.sum(terms**2) * len(terms) / (len(terms) - 1))

    mine = scores[np.arange(N), chosen]
    pull = pulls(study.fitted)

    def learned(values):
        return judged(values, pull, np.sqrt(0.12) * (values - weight @ values))

    welfare = summary["welfare"]
    assert_allclose([welfare["estimate"], welfare["se"]], judged(mine))
    assert_allclose(np.hypot(welfare["se"], welfare["spread"]), learned(mine)[1])
    mean, covariance = np.array(summary["moments"]["mean"]), np.array(summary["moments"]["covariance"])
    for number, item in enumerate(summary["alternatives"][:2]):
        assert_allclose([item["gain"], item["gain_se"]], learned(mine - scores[:, number]))
        contrast = np.eye(5)[0] - np.eye(5)[1 + number]
        assert_allclose(np.sqrt(contrast @ covariance @ contrast), item["gain_se"], atol=1e-12)
        freedom = HOMES.max() if "group" in given else np.inf  # Student's t for groups
        assert_allclose(item["chance"], t.cdf(item["gain"] / item["gain_se"], freedom))
        assert_allclose(item["gain_quantiles"], item["gain"] + item["gain_se"] * t.ppf(PROBABILITIES, freedom))
    shares = [judged(chosen == action) for action in (0, 1)]
    assert_allclose([mean[3:], np.sqrt(np.diag(covariance)[3:] / 1.12)], np.transpose(shares), atol=1e-12)
    order = np.argsort(deviation[:, 1] - deviation[:, 0], kind="stable")
    for number, group in enumerate(summary["calibration"]["groups"]):
        rows = order[number * N // 5 : (number + 1) * N // 5]
        came, part = (scores[:, 1] - scores[:, 0])[rows], weight[rows] / weight[rows].sum()
        terms = part * (came - part @ came)
        terms = np.bincount(np.unique(HOMES[rows], return_inverse=True)[1], terms) if "group" in given else terms
        error = np.sqrt(np.sum(terms**2) * len(terms) / (len(terms) - 1))
        assert_allclose([group["estimate"], group["se"]], [part @ came, error])
    curve = summary["disagreement"]["curve"][3]
    away = study.decisions.disagreement > curve["level"]
    mixed = np.where(away, scores[:, 0], mine)
    inflated = np.sqrt(0.12 * (weight @ ~away)) * (mixed - weight @ mixed)  # by the share that the policy decides
    assert_allclose([curve["welfare"], curve["se"]], judged(mixed, np.where(away, 0.0, pull), inflated))


def test_rows_of_weight_zero_are_left_out(study):
    """Beside them the same rows give the same study."""
    extra = frame(5).head(9).assign(w=0.0)
    raw = pd.concat([extra.iloc[:4], frame().assign(w=2.0), extra.iloc[4:]], ignore_index=True)
    with_zeros = gbpl.learn(
        raw, **ROLES, weight="w", features=["age", "sex", "noise", "vip"], estimator=small_study_net()
    )
    assert "9 rows of weight 0 (w) left out" in with_zeros.summary["data"]["notes"]
    assert with_zeros.summary["data"]["rows"] == N == len(with_zeros.decisions)
    assert len(with_zeros.policy.decide(raw)) == N + 9


def test_thirty_four_actions():
    rng = np.random.default_rng(3)
    n = 34 * 7
    arms = np.array([f"site {k:02}" for k in range(34)])[np.arange(n) % 34]
    raw = {"x": rng.normal(size=n), "arm": arms, "earnings": rng.normal(size=n)}
    limits = {f"site {k:02}": 0.03 for k in range(1, 34, 4)}
    study = gbpl.learn(
        raw, **ROLES | {"propensity": 1 / 34}, capacity=limits, estimator=small_study_net(model=Linear())
    )
    json.dumps(study.summary, allow_nan=False)
    assert len(study.summary["actions"]) == 34
    assert all(item["capacity"] is None or item["share"] <= 0.03 for item in study.summary["actions"])
    assert len(study.summary["alternatives"]) == 35


# -- certificates, notes --------------------------------------------------------------------------------------------


def test_the_policy_that_is_shipped_is_certified_within_its_capacity():
    """By hand: its decisions, prices and all, for the rows held out, and their inverse propensity values."""
    table = frame()
    study = gbpl.learn(
        table, **ROLES, cost=COST, capacity={"mail": 0.21}, outcome_range=(-20, 20.0), estimator=small_study_net()
    )
    certificate = study.summary["certificate"]
    assert certificate == study.policy.certificate
    assert certificate["of"] == "policy"
    assert certificate["outcome_range"] == [-20.0, 20.0], "the log's outcomes, costs apart"
    assert certificate["learned"] + certificate["n"] == len(table)
    assert study.summary["data"]["rows"] == certificate["learned"]
    assert "held out to certify" in " ".join(study.summary["data"]["notes"])
    assert any(study.policy.rule.prices)
    _, held = hold_out_rows(len(table), None, 0.5, 0)
    rows = table.iloc[held]
    decided = study.policy.decide(rows).action
    taken, outcome = rows[ROLES["action"]].to_numpy(), rows[ROLES["outcome"]].to_numpy(float)
    paid = np.array([COST.get(label, 0.0) for label in decided])
    weighted = np.where(decided == taken, (outcome + 20.0) / 0.5, 0.0) - 20.0 - paid
    error = weighted.std() / np.sqrt(len(rows))
    assert abs(certificate["estimate"] - weighted.mean()) < 3 * error
    json.dumps(study.summary, allow_nan=False)


@pytest.mark.parametrize(
    ("propensity", "message"), [(None, "propensities are estimated"), (0.9, "actions do not follow the propensities")]
)
def test_a_certificate_without_right_propensities_is_refused_before_the_fit(propensity, message, monkeypatch):
    monkeypatch.setattr(GBPLNet, "fit", None)
    with pytest.raises(TableError, match=message):
        gbpl.learn(frame(), **ROLES | {"propensity": propensity}, certify=True, outcome_range=(-20, 20))


def test_groups_and_weights_are_certified():
    table = frame().assign(h=HOMES, w=WEIGHTS)
    study = gbpl.learn(
        table, **ROLES, group="h", weight="w", certify=True, outcome_range=(-20, 20), estimator=small_study_net()
    )
    certificate = study.summary["certificate"]
    assert certificate["n"] == len(np.unique(HOMES)) // 2
    assert -20.0 <= certificate["lower"] < certificate["estimate"] < certificate["upper"]


def test_a_certificate_of_full_feedback_is_net_of_costs():
    study = gbpl.learn(
        outcome_columns(2), **FULL, cost={"y0": 1, "y1": 3}, certify=0.3, outcome_range=(-20, 20),
        estimator=small_study_net(),
    )  # fmt: skip
    certificate = study.summary["certificate"]
    assert certificate["outcome_range"] == [-23.0, 19.0]
    assert certificate["n"] == round(0.3 * N)
    assert gbpl.learn(frame(), **ROLES, estimator=small_study_net()).summary["certificate"] is None


@pytest.fixture(scope="module")
def observed():
    """A log whose propensities nobody knows."""
    return gbpl.learn(frame(), **ROLES | {"propensity": None}, cost=COST, estimator=small_study_net())


def test_hidden_confounding_is_bounded_where_propensities_are_estimated(observed):
    said, policy = observed.summary["sensitivity"], observed.fitted
    found = policy.sensitivity((1.0, 5.0))
    assert said["baseline"] == found.baseline
    ends = [row["gain"]["lower"] for row in (said["gammas"][0], said["gammas"][-1])]
    assert_allclose(ends, [bound.estimate for bound in found.gain_lower])
    assert_allclose(ends[0], policy.cross_fitted_value(baseline=found.baseline).estimate)
    assert [item["label"] for item in said["against"]] == [item["label"] for item in observed.summary["alternatives"]]
    logged = policy.cross_fitted_value(baseline="logging").estimate
    assert_allclose(said["against"][-1]["gain"], logged)


def test_hidden_confounding_is_of_decisions_within_capacities():
    roles = ROLES | {"propensity": None, "capacity": {"mail": 0.2}}
    study = gbpl.learn(frame(), **roles, estimator=small_study_net())
    assert_allclose(study.summary["sensitivity"]["gammas"][0]["lower"], study.summary["welfare"]["estimate"])


def test_what_is_said_becomes_a_note(observed):
    study = observed
    notes = study.summary["data"]["notes"]
    assert sum("estimated" in note for note in notes) == 1
    assert study.summary["data"]["propensity"] == "estimated from the features"
    notes = ["first"]

    def speak():
        with collected(notes):
            for text, kind in (("careful", UserWarning), ("old", DeprecationWarning), ("careful", UserWarning)):
                warnings.warn(text, kind, stacklevel=1)
            warnings.warn("first", UserWarning, stacklevel=1)

    with pytest.warns(DeprecationWarning, match="old") as outside:
        speak()
    assert notes == ["first", "careful"]
    assert len(outside) == 1


def test_levels_run_from_nobody_to_everybody():
    assert LEVELS.tolist() == pytest.approx([k / 20 for k in range(21)])
