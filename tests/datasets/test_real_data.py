"""Values of fixed policies on real trials and logs against plain arithmetic, and fits that run on them (section 7)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.linear_model import LinearRegression, Ridge
from support.data import data_file
from support.policies import small_logged_net

from gbpl import MLP, CrossFit, FitConfig, LoggedFeedback, PerAction, WithAction, policy_value

LINEAR = CrossFit(outcome_model=PerAction(LinearRegression()))


def read_csv(name: str) -> pd.DataFrame:
    return pd.read_csv(data_file(name))


def two_sample_error(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.sqrt(one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)))


# -- JTPA: two arms, training offered to two of three ------------------------------------------------------

COST = 774.0


@pytest.fixture(scope="module")
def jtpa() -> pd.DataFrame:
    return read_csv("jtpa_kt.csv")


@pytest.fixture(scope="module")
def trial(jtpa: pd.DataFrame) -> LoggedFeedback:
    return LoggedFeedback.from_frame(
        jtpa, outcome="earnings", action="D", features=["prevearn", "edu"], propensity=2 / 3, cost={1: COST}
    )


def test_jtpa_arms(jtpa: pd.DataFrame, trial: LoggedFeedback) -> None:
    earned = {arm: rows.to_numpy(float) for arm, rows in jtpa.groupby("D")["earnings"]}
    for arm, chance, cost in ((1, 2 / 3, COST), (0, 1 / 3, 0.0)):
        mean = policy_value(arm, trial, estimator="snipw")
        assert_allclose(mean.estimate, earned[arm].mean() - cost, rtol=1e-12)
        assert_allclose(mean.se, earned[arm].std() / np.sqrt(len(earned[arm])), rtol=0.001)
        weighted = policy_value(arm, trial, estimator="ipw")
        assert_allclose(weighted.estimate, earned[arm].sum() / chance / len(jtpa) - cost, rtol=1e-12)
        robust = policy_value(arm, trial, nuisances=LINEAR)
        assert abs(robust.estimate - mean.estimate) < 2 * robust.se
        assert robust.se < 1.001 * mean.se  # earnings before explain earnings after
        assert weighted.se > mean.se  # its normaliser is right on average only


def test_jtpa_effect_is_the_difference_in_means(jtpa: pd.DataFrame, trial: LoggedFeedback) -> None:
    treated, control = (jtpa.loc[jtpa["D"] == arm, "earnings"].to_numpy(float) for arm in (1, 0))
    difference = treated.mean() - control.mean() - COST
    exact = policy_value(1, trial, estimator="snipw", baseline=0)
    assert_allclose(exact.estimate, difference, rtol=1e-9)
    assert_allclose(exact.se, two_sample_error(treated, control), rtol=0.02)
    for estimator in ("dr", "ipw", "dm"):
        value = policy_value(1, trial, estimator=estimator, baseline=0, nuisances=LINEAR)
        assert abs(value.estimate - difference) < 2 * value.se
    assert difference + COST > 2 * exact.se > difference  # training raises earnings; whether it pays is open


def test_jtpa_against_the_trial_itself(jtpa: pd.DataFrame, trial: LoggedFeedback) -> None:
    """The log's own policy paid for training too."""
    paid = jtpa["earnings"] - COST * jtpa["D"]
    gain = policy_value(1, trial, estimator="snipw", baseline="logging")
    assert_allclose(gain.estimate, policy_value(1, trial, estimator="snipw").estimate - paid.mean(), rtol=1e-9)
    coin = np.tile([1 / 3, 2 / 3], (len(jtpa), 1))
    same = policy_value(coin, trial, estimator="ipw", rule="randomized", baseline="logging")
    # Every ratio is one; what is left is that the trial treated 66.5 % and not two thirds.
    assert_allclose(same.estimate, -COST * (2 / 3 - jtpa["D"].mean()), rtol=1e-6)


def test_jtpa_rule_by_hand(jtpa: pd.DataFrame, trial: LoggedFeedback) -> None:
    """Training for those with twelve years of school or less."""
    rule = (jtpa["edu"] <= 12).astype(int).to_numpy()
    agree = jtpa["D"].to_numpy() == rule
    chance = np.where(rule == 1, 2 / 3, 1 / 3)
    earned = jtpa["earnings"].to_numpy(float)
    by_hand = np.sum(agree / chance * earned) / np.sum(agree / chance) - COST * rule.mean()
    assert_allclose(policy_value(rule, trial, estimator="snipw").estimate, by_hand, rtol=1e-12)


def test_jtpa_fit(jtpa: pd.DataFrame) -> None:
    rows = jtpa.sample(1500, random_state=0)
    features, earned, offered = rows[["prevearn", "edu"]], rows["earnings"], rows["D"]
    fitted = small_logged_net(zeta="auto").fit(features, earned, action=offered, propensity=2 / 3, cost={1: COST})
    value = fitted.cross_fitted_value()
    assert np.isfinite([value.estimate, value.se]).all()
    paid = (earned - COST * offered).to_numpy()
    assert abs(value.estimate - paid.mean()) < 5 * value.se
    assert value.se < 2 * paid.std() / np.sqrt(1500)  # at most a third of the rows speak of a choice
    assert not fitted.overlap_.weak
    assert fitted.overlap_.counts.tolist() == [int((offered == 0).sum()), int((offered == 1).sum())]
    assert fitted.feature_names_in_.tolist() == ["prevearn", "edu"]
    rest = jtpa.drop(rows.index).head(1500)
    parts: dict[str, Any] = {"action": rest["D"], "propensity": 2 / 3, "cost": {1: COST}}
    everybody = fitted.value(rest[["prevearn", "edu"]], rest["earnings"], **parts, estimator="snipw", baseline=1)
    decided = fitted.predict(rest[["prevearn", "edu"]])
    if (decided == 1).all():
        assert (everybody.estimate, everybody.se) == (0.0, 0.0)
    else:
        assert abs(everybody.estimate) < 5 * everybody.se


# -- Hillstrom: three e-mails, a third of the customers each ----------------------------------------------

ARMS = ["Mens E-Mail", "No E-Mail", "Womens E-Mail"]
FEATURES = ["recency", "history", "mens", "womens", "newbie"]


@pytest.fixture(scope="module")
def mails() -> pd.DataFrame:
    return read_csv("hillstrom.csv")


@pytest.fixture(scope="module")
def campaign(mails: pd.DataFrame) -> LoggedFeedback:
    return LoggedFeedback.from_frame(mails, outcome="visit", action="segment", features=FEATURES, propensity=1 / 3)


def test_hillstrom_arms(mails: pd.DataFrame, campaign: LoggedFeedback) -> None:
    assert campaign.actions.tolist() == ARMS
    visits = {arm: rows.to_numpy(float) for arm, rows in mails.groupby("segment")["visit"]}
    nuisances = LINEAR.run(campaign)
    for arm in ARMS:
        mean = policy_value(arm, campaign, estimator="snipw")
        assert_allclose(mean.estimate, visits[arm].mean(), rtol=1e-12)
        weighted = policy_value(arm, campaign, estimator="ipw")
        assert_allclose(weighted.estimate, 3 * visits[arm].sum() / len(mails), rtol=1e-12)
        robust = policy_value(arm, campaign, nuisances=nuisances)
        assert abs(robust.estimate - mean.estimate) < 2 * robust.se
        for other in ARMS:
            gain = policy_value(arm, campaign, estimator="snipw", baseline=other)
            assert_allclose(gain.estimate, visits[arm].mean() - visits[other].mean(), rtol=1e-9, atol=1e-12)
            if other != arm:
                assert_allclose(gain.se, two_sample_error(visits[arm], visits[other]), rtol=0.02)


def test_hillstrom_rule_by_hand(mails: pd.DataFrame, campaign: LoggedFeedback) -> None:
    """The e-mail of what a customer bought before."""
    rule = np.where(mails["mens"] == 1, "Mens E-Mail", "Womens E-Mail")
    got = mails[(mails["segment"] == "Mens E-Mail") & (mails["mens"] == 1)]["visit"]
    others = mails[(mails["segment"] == "Womens E-Mail") & (mails["mens"] == 0)]["visit"]
    by_hand = (got.sum() + others.sum()) / (len(got) + len(others))
    value = policy_value(rule, campaign, estimator="snipw")
    assert_allclose(value.estimate, by_hand, rtol=1e-12)
    gain = policy_value(rule, campaign, estimator="snipw", baseline="logging")
    assert_allclose(gain.estimate, by_hand - mails["visit"].mean(), rtol=1e-9)
    robust = policy_value(rule, campaign, nuisances=LINEAR)
    assert abs(robust.estimate - by_hand) < 2 * robust.se


def test_hillstrom_fit(mails: pd.DataFrame) -> None:
    """Labels are strings throughout, and a mail beats none."""
    rows = mails.sample(2000, random_state=0)
    cost = {"Mens E-Mail": 0.001, "Womens E-Mail": 0.001}
    fitted = small_logged_net(zeta=[3.0, 0.3], outcome_model=LinearRegression())
    fitted.fit(rows[FEATURES], rows["visit"], action=rows["segment"], propensity=1 / 3, cost=cost)
    assert fitted.actions_.tolist() == ARMS
    assert set(fitted.predict(mails[FEATURES])) <= set(ARMS)
    gain = policy_value(
        fitted, LoggedFeedback.from_frame(
            mails.drop(rows.index), outcome="visit", action="segment", features=FEATURES, propensity=1 / 3
        ),
        estimator="snipw", baseline="No E-Mail",
    )  # fmt: skip
    assert gain.estimate > 3 * gain.se


# -- Open Bandit: 34 items in three positions -------------------------------------------------------------


def bandit_log(rows: pd.DataFrame, **options: Any) -> LoggedFeedback:
    kinds = pd.get_dummies(rows[[f"user_feature_{i}" for i in range(4)]], dtype=float)
    x = np.column_stack([kinds.to_numpy(), rows["position"].to_numpy(float)])
    return LoggedFeedback.of(x, rows["click"], rows["item_id"], propensity=rows["propensity_score"], **options)


@pytest.fixture(scope="module")
def uniform() -> pd.DataFrame:
    return read_csv("obd_random_men.csv")


@pytest.fixture(scope="module")
def thompson() -> pd.DataFrame:
    return read_csv("obd_bts_men.csv")


def test_open_bandit_uniform_policy_on_its_own_log(uniform: pd.DataFrame) -> None:
    log = bandit_log(uniform)
    assert log.actions.tolist() == list(range(34))
    chances = np.full((len(uniform), 34), 1 / 34)
    for estimator in ("snipw", "ipw"):
        value = policy_value(chances, log, estimator=estimator, rule="randomized")
        assert_allclose(value.estimate, uniform["click"].mean(), rtol=1e-9)
        gain = policy_value(chances, log, estimator=estimator, rule="randomized", baseline="logging")
        assert_allclose((gain.estimate, gain.se), 0.0, atol=1e-12)
    for item in (0, 7, 33):
        clicks = uniform.loc[uniform["item_id"] == item, "click"]
        assert_allclose(policy_value(item, log, estimator="snipw").estimate, clicks.mean(), rtol=1e-9, atol=1e-15)


def test_open_bandit_thompson_sampling_from_the_uniform_log(uniform: pd.DataFrame, thompson: pd.DataFrame) -> None:
    """Its chances by position, as frequencies of its own log; what it earned there is the truth, with its error."""
    counts = thompson.groupby(["position", "item_id"]).size().unstack(fill_value=0).reindex(columns=range(34))
    shares = counts.div(counts.sum(axis=1), axis=0)
    chances = shares.loc[uniform["position"]].to_numpy()
    value = policy_value(chances, bandit_log(uniform), estimator="snipw", rule="randomized")
    clicks = thompson["click"]
    assert abs(value.estimate - clicks.mean()) < 3 * np.hypot(value.se, clicks.std() / np.sqrt(len(clicks)))


@pytest.mark.parametrize("estimator", ["ipw", "snipw"])
def test_open_bandit_uniform_policy_from_the_other_log(
    uniform: pd.DataFrame, thompson: pd.DataFrame, estimator: str
) -> None:
    """Uneven propensities, one number a row; about 69 clicks say little, and the error says so."""
    chances = np.full((len(thompson), 34), 1 / 34)
    value = policy_value(chances, bandit_log(thompson), estimator=estimator, rule="randomized")
    clicks = uniform["click"]
    error = np.hypot(value.se, clicks.std() / np.sqrt(len(clicks)))
    assert abs(value.estimate - clicks.mean()) < 3 * error
    ratio = 1 / 34 / np.maximum(thompson["propensity_score"], 0.02 / 34)
    total = ratio.sum() if estimator == "snipw" else len(thompson)
    assert_allclose(value.estimate, np.sum(ratio * thompson["click"]) / total, rtol=1e-9)


def test_open_bandit_fit(uniform: pd.DataFrame) -> None:
    rows = uniform.sample(3000, random_state=0)
    with pytest.warns(UserWarning, match="few events: only 12 of 3,000 outcomes|of 12 in all, and 23 have none"):
        fitted = small_logged_net(zeta=0.3, outcome_model=WithAction(LinearRegression())).fit(bandit_log(rows))
    assert len(fitted.overlap_.actions) == len(fitted.overlap_.counts) == 34
    assert fitted.overlap_.counts.sum() == 3000
    assert fitted.overlap_.smallest_propensity.min() == pytest.approx(1 / 34)
    assert len(fitted.overlap_.reasons()) == 1
    assert fitted.pseudo_outcomes_.shape == (3000, 34)
    value = fitted.cross_fitted_value(estimator="snipw", rule="randomized")
    assert abs(value.estimate - rows["click"].mean()) < 5 * value.se


# -- classification as bandit feedback --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "train", "outcome_model", "least"),
    [("vehicle.csv", 600, MLP(hidden=(32,)), 0.45), ("optdigits.csv", 2000, Ridge(100.0), 0.7)],
    ids=["vehicle", "optdigits"],
)
def test_classes_learned_from_right_or_wrong(name: str, train: int, outcome_model: Any, least: float) -> None:
    """A class drawn at random and whether it was the right one: uniform earns 1/K, the policy much more."""
    rows = read_csv(name).sample(frac=1.0, random_state=0)
    x, truth = rows.drop(columns="class").to_numpy(float), rows["class"].to_numpy()
    labels = np.unique(truth)
    tried = np.random.default_rng(0).choice(labels, len(truth))
    right, chance = (tried == truth).astype(float), 1 / len(labels)
    config = FitConfig(max_epochs=60, learning_rate=0.01)
    fitted = small_logged_net(zeta=[3.0, 0.3], model=MLP(hidden=(32,)), outcome_model=outcome_model, fit_config=config)
    fitted.fit(x[:train], right[:train], action=tried[:train], propensity=chance)
    assert fitted.actions_.tolist() == labels.tolist()
    x, truth, tried, right = (part[train:] for part in (x, truth, tried, right))
    worth = fitted.value(x, (truth[:, None] == labels).astype(float))
    assert_allclose(worth.estimate, np.mean(fitted.predict(x) == truth))
    assert worth.estimate > least
    logged = fitted.value(x, right, action=tried, propensity=chance, estimator="snipw")
    assert abs(logged.estimate - worth.estimate) < 4 * logged.se
    inside = fitted.cross_fitted_value()  # of networks that saw half of the rows
    assert 1.5 * chance < inside.estimate < worth.estimate + 3 * inside.se
