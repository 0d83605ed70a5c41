"""Real data sets by name against numbers restated here, their roles, and the simulated e-mail campaign."""

from __future__ import annotations

import dataclasses
import gzip
import inspect
import math
import pickle
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.data import FOLDER, data_file, data_package

import gbpl.datasets
from gbpl import FitConfig, FullFeedback, GBPLNet, Linear, LoggedFeedback
from gbpl.datasets import (
    DATA_DIR_VARIABLE,
    BinaryDesign,
    Dataset,
    DataUnavailableError,
    Design,
    EmailDesign,
    KnownWelfare,
    LoggedDesign,
    MultiActionDesign,
    OneDimensionalDesign,
    SemiSyntheticDesign,
    catalog,
    load,
)
from gbpl.datasets.classes import log_propensity

FILES = {
    "jtpa": "jtpa_kt.csv",
    "jtpa_covariates": "jtpa_kt_covariates.csv",
    "hillstrom": "hillstrom.csv",
    "optdigits": "optdigits.csv",
    "vehicle": "vehicle.csv",
    "open_bandit": "obd_random_men.csv",
}
CARRIED = {"nsw": "causaldata", "thornton_hiv": "causaldata", "french": "linearmodels"}
HERE = ("digits", "digits_logged", "email")
REGRESSION = ("yacht", "energy_efficiency")
DESIGNS = {
    "BinaryDesign", "MultiActionDesign", "OneDimensionalDesign", "SemiSyntheticDesign", "LoggedDesign", "EmailDesign",
}  # fmt: skip


@pytest.fixture(autouse=True)
def _no_folder_but_the_one_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_DIR_VARIABLE, raising=False)


@cache
def get(name: str, **options: Any) -> Dataset:
    """The set, or a skip that says what is missing. Its frame is shared: not to be changed."""
    if name in CARRIED:
        data_package(CARRIED[name])
    if name in FILES or name in REGRESSION:
        options["data_dir"] = data_file(FILES.get(name, f"{name}.csv")).parent
    return load(name, **options)


def column(data: Dataset, name: str | None) -> np.ndarray:
    assert name is not None
    return data.frame[name].to_numpy()


def roles(data: Dataset) -> list[str]:
    single = [data.outcome, data.action, data.time, data.propensity if isinstance(data.propensity, str) else None]
    return [*data.features, *data.controls, *(data.outcomes or []), *(name for name in single if name is not None)]


# What holds of every set


@pytest.mark.parametrize("name", [*CARRIED, *HERE, *FILES, *REGRESSION])
def test_every_column_has_one_role_and_frames_agree(name: str) -> None:
    data, other = get(name), get(name, as_frame="polars")
    assert isinstance(data.frame, pd.DataFrame)
    assert isinstance(other.frame, pl.DataFrame)
    assert sorted(data.frame.columns) == sorted(other.frame.columns) == sorted(roles(data))
    (entry,) = (entry for entry in catalog(data_dir=FOLDER) if entry.name == name)
    assert data.n_rows == other.n_rows == len(data.frame) == entry.rows
    assert entry.available
    actions = len(data.outcomes) if data.outcomes else len(np.unique(column(data, data.action)))
    assert actions == entry.actions
    assert (data.description, data.reference) == (entry.description, entry.reference)
    assert len(data.reference) > 10
    assert "\n" not in data.description
    assert data.source
    for part in data.frame.columns:
        assert_array_equal(column(data, part), column(other, part))
        assert not pd.isna(data.frame[part]).any()
    kinds = {str(kind) for kind in other.frame.dtypes}
    assert kinds <= {"Int64", "Float64", "String", "Datetime(time_unit='us', time_zone=None)"}
    assert {field.name: getattr(data, field.name) for field in dataclasses.fields(data) if field.name != "frame"} == {
        field.name: getattr(other, field.name) for field in dataclasses.fields(data) if field.name != "frame"
    }


@pytest.mark.parametrize("name", ["digits", "digits_logged", "email", "nsw"])
def test_arrow_tables_hold_the_same(name: str) -> None:
    data, other = get(name), get(name, as_frame="arrow")
    assert other.frame.column_names == list(data.frame.columns)
    assert other.n_rows == data.n_rows
    for part in data.frame.columns:
        assert_array_equal(other.frame[part].to_numpy(), data.frame[part].to_numpy())
    if name != "email":  # its features are text
        for key, value in data.arguments().items():
            assert_array_equal(np.asarray(other.arguments()[key]), np.asarray(value))


@pytest.mark.parametrize("as_frame", ["pandas", "polars"])
@pytest.mark.parametrize(
    "name", ["nsw", "thornton_hiv", "digits", "digits_logged", "french", "jtpa_covariates", "vehicle", "yacht"]
)
def test_arguments_are_those_of_fit(name: str, as_frame: str) -> None:
    data = get(name, as_frame=as_frame)
    given = data.arguments()
    assert set(given) <= set(inspect.signature(GBPLNet.fit).parameters)
    assert list(given["X"].columns) == data.features
    if data.outcomes is not None:
        assert list(given) == ["X", "y"]
        full = FullFeedback.of(given["X"], given["y"])
        assert full.actions.tolist() == data.outcomes
        assert_array_equal(full.outcomes, data.frame[data.outcomes].to_numpy())
        return
    assert list(given)[:4] == ["X", "y", "action", "propensity"]
    assert ("controls" in given) == bool(data.controls)
    log = LoggedFeedback.of(given.pop("X"), given.pop("y"), given.pop("action"), **given, cost=data.cost)
    assert_array_equal(log.outcome, column(data, data.outcome))
    assert_array_equal(log.actions[log.action], column(data, data.action))
    assert (log.propensity is None) == (name == "thornton_hiv")


@pytest.mark.parametrize("name", ["email", "hillstrom", "open_bandit"])
def test_text_among_the_features_is_named(name: str) -> None:
    data = get(name)
    with pytest.raises(ValueError, match=r"must be numbers, got text in \w+, .*; encode the frame first") as caught:
        data.arguments()
    numbers = [part for part in data.features if data.frame[part].to_numpy().dtype.kind in "if"]
    assert f"dataclasses.replace(data, features={numbers})" in str(caught.value)
    assert list(dataclasses.replace(data, features=numbers).arguments()["X"].columns) == numbers


def test_a_policy_is_fitted_to_what_arguments_give() -> None:
    data = get("nsw")
    policy = GBPLNet(
        model=Linear(), committee=2, nuisance_folds=2, outcome_model=Linear(), zeta=10_000.0, random_state=0,
        fit_config=FitConfig(max_epochs=2), progress=False, device="cpu",
    ).fit(**data.arguments())  # fmt: skip
    assert policy.actions_.tolist() == [0, 1]
    assert policy.feature_names_in_.tolist() == data.features


def test_short_repr() -> None:
    assert (
        repr(load("digits_logged"))
        == "<Dataset digits_logged: 1,797 rows, 64 features, outcome 'right', action 'guess'>"
    )
    assert repr(load("digits")) == "<Dataset digits: 1,797 rows, 64 features, outcomes of 10 actions>"


# Trials


def test_nsw_is_the_sample_of_dehejia_and_wahba() -> None:
    data = get("nsw")
    assert (data.outcome, data.action, data.cost) == ("re78", "treat", None)
    assert data.features == ["age", "educ", "black", "hisp", "marr", "nodegree", "re74", "re75"]
    earned, treated = column(data, "re78"), column(data, "treat") == 1
    assert (treated.sum(), (~treated).sum()) == (185, 260)
    assert_allclose([earned[treated].mean(), earned[~treated].mean()], [6349.14, 4554.80], atol=0.01)
    assert_allclose(earned[treated].mean() - earned[~treated].mean(), 1794.34, atol=0.005)
    assert data.propensity == 185 / 445
    assert "185 of 445" in data.notes[0]


def test_thornton_has_the_draw_and_who_came() -> None:
    data = get("thornton_hiv")
    came, paid = column(data, "got"), column(data, "any") == 1
    assert ((~paid).sum(), paid.sum()) == (621, 2204)
    assert_allclose([came[~paid].mean(), came[paid].mean()], [0.3398, 0.7908], atol=1e-4)  # 34 percent, in the paper
    assert (data.outcome, data.action, data.features) == ("got", "any", ["distvct", "age"])
    assert data.propensity is None
    # What the notes say of the shares, and so why the village is a control
    assert data.controls == ["villnum"]
    high = column(data, "villnum") > 100
    assert_allclose([1 - paid[~high].mean(), 1 - paid[high].mean()], [0.14, 0.37], atol=0.005)
    assert "14 %" in data.notes[1]
    assert "37 %" in data.notes[1]
    assert data.notes[0].startswith("2,825 of 4,820 people: 1,986 have no draw")


def test_jtpa_and_its_covariates() -> None:
    data, wide = get("jtpa"), get("jtpa_covariates")
    earned, offered = column(data, "earnings"), column(data, "D") == 1
    assert (offered.sum(), (~offered).sum()) == (6133, 3090)
    assert_allclose(earned[offered].mean() - earned[~offered].mean(), 1176.97, atol=0.005)
    assert data.propensity == wide.propensity == 2 / 3
    assert data.cost == wide.cost == {0: 0.0, 1: 774.0}
    assert data.features == ["prevearn", "edu"]
    assert wide.features[:2] == data.features
    assert len(wide.features) == 14
    assert not {"training", "f2sms", "recid", "site"} & set(wide.frame.columns)  # after the offer, or no number
    for name in roles(data):
        assert_array_equal(column(data, name), column(wide, name))


def test_hillstrom_has_three_arms_and_three_outcomes() -> None:
    known = {"visit": [0.182757, 0.106167, 0.151400], "conversion": [0.012531, 0.005726, 0.008837]}
    known["spend"] = [1.422617, 0.652789, 1.077202]
    arms = ["Mens E-Mail", "No E-Mail", "Womens E-Mail"]
    for outcome, means in known.items():
        data = get("hillstrom", outcome=outcome)
        assert (data.outcome, data.action, data.propensity) == (outcome, "segment", 1 / 3)
        assert not (set(known) - {outcome}) & set(data.frame.columns)  # an outcome is not a feature
        found = data.frame.groupby("segment")[outcome].mean()
        assert found.index.tolist() == arms
        assert_allclose(found, means, atol=1e-6)


def test_open_bandit_is_logged_at_random() -> None:
    data = get("open_bandit")
    assert (data.outcome, data.action, data.propensity) == ("click", "item_id", "propensity_score")
    assert_allclose(column(data, "propensity_score"), 1 / 34)
    assert column(data, "click").sum() == 46
    assert data.frame["user_feature_0"].nunique() == 3


# Classes


@pytest.mark.parametrize(("name", "counts"), [
    ("digits", [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]),
    ("optdigits", [554, 571, 557, 572, 568, 558, 558, 566, 554, 562]),
    ("vehicle", [218, 212, 217, 199]),
])  # fmt: skip
def test_one_class_a_row_is_right(name: str, counts: list[int]) -> None:
    data = get(name)
    labels = ["bus", "opel", "saab", "van"] if name == "vehicle" else [str(digit) for digit in range(10)]
    assert data.outcomes == labels
    outcomes = data.frame[labels].to_numpy()
    assert_array_equal(outcomes.sum(axis=1), 1)
    assert_array_equal(np.unique(outcomes), [0, 1])
    assert outcomes.sum(axis=0).tolist() == counts
    assert data.action is data.outcome is data.propensity is None


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    data, known = load("digits"), load_digits()
    assert data.outcomes is not None
    assert_array_equal(data.frame[data.features].to_numpy(), known.data)
    assert_array_equal(data.frame[data.outcomes].to_numpy().argmax(axis=1), known.target)


def test_logged_digits_have_their_true_propensities() -> None:
    data, full = load("digits_logged"), load("digits")
    x, guess, chance = column(data, data.features[0]), column(data, "guess"), column(data, "propensity")
    assert_array_equal(x, column(full, full.features[0]))
    truth = full.frame[full.outcomes].to_numpy()
    assert_array_equal(column(data, "right"), truth[np.arange(1797), guess])
    table = log_propensity(data.frame[data.features].to_numpy(float), 10)
    assert_allclose(table.sum(axis=1), 1.0)
    assert_allclose(chance, table[np.arange(1797), guess])
    assert table.min() > 0.005
    assert table.std(axis=0).min() > 0.03  # the guesses go by the picture
    # The softmax, restated: log ratios of two actions are linear in the centred pixels, with weights on a sphere
    z = data.frame[data.features].to_numpy(float)
    z = (z - z.mean(axis=0)) / math.sqrt(z.var(axis=0).mean())
    for a in range(1, 10):
        gap = np.log(table[:, a] / table[:, 0])
        weights, *_ = np.linalg.lstsq(z, gap, rcond=None)
        assert_allclose(z @ weights, gap, atol=1e-9)
        assert np.linalg.norm(weights) < 1  # half the difference of two unit vectors
    # As drawn from them: counts of each guess, and each guess among its likely half
    taken = guess[:, None] == np.arange(10)
    for rows in (np.ones(1797, bool), table[:, 0] > np.median(table[:, 0])):
        error = np.sqrt((table[rows] * (1 - table[rows])).sum(axis=0))
        assert np.all(np.abs((taken[rows] - table[rows]).sum(axis=0)) < 4 * error)


def test_logged_digits_give_the_value_of_other_policies() -> None:
    data = load("digits_logged")
    right, guess, chance = (column(data, name) for name in ("right", "guess", "propensity"))
    uniform = 0.1 / chance * right
    error = uniform.std() / math.sqrt(1797)
    assert abs(uniform.mean() - 0.1) < 4 * error < 0.1
    shares = load("digits").frame[[str(digit) for digit in range(10)]].mean().to_numpy()
    for digit in range(10):
        value = (guess == digit) / chance * right
        assert abs(value.mean() - shares[digit]) < 4 * value.std() / math.sqrt(1797)
    assert guess[:12].tolist() == [3, 5, 4, 2, 2, 6, 8, 9, 0, 4, 5, 6]  # the same rows for everybody
    assert right.sum() == 141


# Portfolios

INDUSTRIES = ["NoDur", "Durbl", "Manuf", "Enrgy", "Chems", "BusEq", "Telcm", "Utils", "Shops", "Hlth", "Money", "Other"]


def raw_french() -> pd.DataFrame:
    return data_package("linearmodels.datasets.french").load()


def test_french_has_all_returns_and_the_months_before() -> None:
    data, raw = get("french"), raw_french()
    assert data.time == "month"
    assert data.outcomes == INDUSTRIES
    month = data.frame["month"]
    assert month.is_monotonic_increasing
    assert (str(month.iloc[0])[:10], str(month.iloc[-1])[:10]) == ("1950-01-01", "2017-03-01")
    assert_array_equal(data.frame[INDUSTRIES], raw[INDUSTRIES][12:])
    for row in (0, 1, 400, 806):
        now = row + 12  # its place among the raw months
        seen = data.frame.iloc[row]
        for name in [*INDUSTRIES, "MktRF"]:
            past = [float(raw[name][now - lag]) for lag in range(12, 0, -1)]
            mean = sum(past) / 12
            assert seen[f"{name}_last"] == past[-1]
            assert_allclose(seen[f"{name}_momentum"], math.prod(1 + r for r in past[:-1]) - 1, atol=1e-12)
            assert_allclose(seen[f"{name}_volatility"], math.sqrt(sum((r - mean) ** 2 for r in past) / 11))
        for name in ("SMB", "HML", "Mom", "RF"):
            assert seen[f"{name}_last"] == raw[name][now - 1]


@pytest.mark.parametrize(("family", "count"), [("industry", 12), ("size_value", 9), ("size_momentum", 9)])
def test_french_features_do_not_see_their_month(family: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other returns from month t on change no feature of t or before, and do change those of t + 1."""
    raw = raw_french()
    before = load("french", outcome=family)
    assert before.outcomes is not None
    assert len(before.outcomes) == count
    for row in (0, 300, 805):
        changed = raw.copy()
        values = raw.columns.drop("dates")
        changed.loc[row + 12 :, values] = changed.loc[row + 12 :, values] * -1.5 + 0.01
        monkeypatch.setattr("linearmodels.datasets.french.load", lambda changed=changed: changed)
        after = load("french", outcome=family)
        assert_array_equal(after.frame[before.features][: row + 1], before.frame[before.features][: row + 1])
        for step in (1, 2)[: 806 - row]:  # momentum leaves the last month out
            moved = after.frame[before.features].iloc[row + step] != before.frame[before.features].iloc[row + step]
            assert moved.all() if step == 2 else (moved != moved.index.str.endswith("_momentum")).all()
        assert (after.frame[before.outcomes].iloc[row] != before.frame[before.outcomes].iloc[row]).all()


# The simulated campaign


def chance_of_visit(
    recency: float, u: float, mens: int, womens: int, newbie: int, place: str, channel: str
) -> list[float]:
    """The three arms, from the numbers of the module's text; recency in months, u the standardized log history."""
    r = (recency - 6.5) / 3.45
    base = -2.75 - 0.30 * r + 0.25 * u + 0.60 * mens + 0.55 * womens - 0.50 * newbie
    base += {"Suburban": 0.0, "Urban": -0.10, "Rural": 0.40}[place]
    base += {"Phone": 0.0, "Web": 0.15, "Multichannel": 0.10}[channel]
    men = 0.45 + 0.30 * r - 0.40 * r * r + 0.20 * u + 0.60 * mens - 0.10 * womens
    women = 0.40 + 0.30 * r - 0.40 * r * r - 0.20 * u - 0.15 * mens + 0.65 * womens + 0.15 * (channel == "Web")
    return [1 / (1 + np.exp(-(base + more))) for more in (0.0, men, women)]


@pytest.mark.parametrize("as_frame", ["pandas", "polars"])
def test_email_frames_are_uniform_trials_of_the_sample(as_frame: str) -> None:
    design = EmailDesign()
    table, sample = design.frame(30_000, seed=5, as_frame=as_frame), design.sample(30_000, seed=5)
    assert isinstance(table, pd.DataFrame if as_frame == "pandas" else pl.DataFrame)
    part = {name: table[name].to_numpy() for name in table.columns}
    assert list(part) == [
        "recency", "history", "mens", "womens", "zip_code", "newbie", "channel", "segment", "visit",
    ]  # fmt: skip
    x = design.numeric(table)
    assert_allclose(x, sample.x, atol=0.01)  # history is rounded to cents
    assert_allclose(np.exp(5 + sample.x[:, 1]), part["history"], atol=0.00501)
    for row in range(50):
        u = float(sample.x[row, 1])
        names = ("mens", "womens", "newbie", "zip_code", "channel")
        known = chance_of_visit(part["recency"][row], u, *(part[name][row] for name in names))
        assert_allclose(sample.outcome_mean[row], known, rtol=1e-10)
    assert design.actions == ("No E-Mail", "Mens E-Mail", "Womens E-Mail")
    arm = np.array([design.actions.index(label) for label in part["segment"]])
    assert_array_equal(part["visit"], sample.outcomes[np.arange(30_000), arm])
    for a in range(3):
        assert abs((arm == a).mean() - 1 / 3) < 4 * math.sqrt(2 / 9 / 30_000)
        value = 3 * (arm == a) * part["visit"] - design.action_welfare()[a]
        assert abs(value.mean()) < 4 * value.std() / math.sqrt(30_000)
    assert np.abs(np.corrcoef(np.column_stack([arm == 1, arm == 2, sample.x]).T)[:2, 2:]).max() < 4 / math.sqrt(30_000)


def test_email_customers_have_the_shares_of_the_text() -> None:
    table = EmailDesign().frame(100_000, seed=1)
    both = table["mens"] + 2 * table["womens"]
    shares = [
        *((both == kind, share) for kind, share in ((1, 0.45), (2, 0.45), (3, 0.10), (0, 0.0))),
        *((table["recency"] == month, 1 / 12) for month in range(1, 13)),
        *(
            (table["zip_code"] == place, share)
            for place, share in (("Urban", 0.40), ("Suburban", 0.45), ("Rural", 0.15))
        ),
        *((table["channel"] == way, share) for way, share in (("Web", 0.44), ("Phone", 0.44), ("Multichannel", 0.12))),
        (table["newbie"] == 1, 0.5),
        (np.log(table["history"]) < 5, 0.5),
        (np.log(table["history"]) < 4, 0.158655),
    ]
    for found, share in shares:
        assert abs(found.mean() - share) <= 4 * math.sqrt(share * (1 - share) / 100_000)


@pytest.mark.parametrize("outcome", ["visit", "spend"])
def test_email_truth_is_that_of_a_simulation(outcome: str) -> None:
    design = EmailDesign(outcome)
    rows = 400_000
    sample = design.sample(rows, seed=3)
    assert isinstance(design, Design)
    assert isinstance(design, KnownWelfare)
    for found, value in (
        (sample.outcomes.max(axis=1), design.oracle_welfare()),
        (sample.outcome_mean.max(axis=1), design.optimal_welfare()),
        *zip(sample.outcomes.T, design.action_welfare(), strict=True),
    ):
        assert abs(found.mean() - value) < 4 * found.std() / math.sqrt(rows)
    noise = sample.outcomes - sample.outcome_mean
    for weight in (1.0, sample.x[:, 1], sample.x[:, 0], sample.x[:, 2]):
        for a in range(3):
            assert abs((weight * noise[:, a]).mean()) < 4 * (weight * noise[:, a]).std() / math.sqrt(rows)
    best = np.bincount(sample.outcome_mean.argmax(axis=1), minlength=3) / rows
    assert best.min() > 0.1  # every arm is best for some
    assert design.optimal_welfare() > 1.2 * design.action_welfare().max()


@pytest.mark.parametrize("outcome", ["visit", "spend"])
def test_email_optimum_by_plain_enumeration(outcome: str) -> None:
    """The trapezoid rule over history, for every kind of customer."""
    u = np.linspace(-8.0, 8.0, 4001)
    density = np.exp(-(u**2) / 2) / math.sqrt(2 * math.pi) * (u[1] - u[0])
    worth = 1.0 if outcome == "visit" else 0.1 * 60 * np.exp(0.3 * u)
    best, each = 0.0, np.zeros(3)
    for recency in range(1, 13):
        for (mens, womens), bought in (((1, 0), 0.45), ((0, 1), 0.45), ((1, 1), 0.1)):
            for place, living in (("Urban", 0.4), ("Suburban", 0.45), ("Rural", 0.15)):
                for channel, way in (("Web", 0.44), ("Phone", 0.44), ("Multichannel", 0.12)):
                    for newbie in (0, 1):
                        share = bought * living * way / 24
                        mean = np.array(chance_of_visit(recency, u, mens, womens, newbie, place, channel)) * worth
                        best += share * float(density @ mean.max(axis=0))
                        each += share * (mean @ density)
    design = EmailDesign(outcome)
    assert_allclose(design.action_welfare(), each, rtol=1e-10)
    assert_allclose(design.optimal_welfare(), best, rtol=1e-6)
    assert design.oracle_welfare() == design.optimal_welfare()


def test_email_potential_outcomes_go_together() -> None:
    visit, spend = EmailDesign().sample(50_000, seed=2), EmailDesign("spend").sample(50_000, seed=2)
    assert_array_equal(visit.x, spend.x)
    likelier = visit.outcome_mean[:, 1] >= visit.outcome_mean[:, 2]
    assert np.all(visit.outcomes[likelier, 1] >= visit.outcomes[likelier, 2])
    assert np.all(visit.outcomes[~likelier, 1] <= visit.outcomes[~likelier, 2])
    assert np.all(spend.outcomes[visit.outcomes == 0] == 0)
    buyers = (spend.outcomes > 0).sum() / visit.outcomes.sum()
    assert abs(buyers - 0.1) < 0.02
    assert (np.unique(visit.outcomes) == [0, 1]).all()


def test_email_can_be_logged() -> None:
    logged = LoggedDesign(EmailDesign(), strength=0.5)
    seen = logged.sample(4000, seed=0)
    assert logged.optimal_welfare() == EmailDesign().optimal_welfare()
    taken = seen.action[:, None] == np.arange(3)
    gap = taken / seen.propensity * seen.outcome[:, None] - seen.outcomes
    assert np.all(np.abs(gap.mean(axis=0)) < 4 * gap.std(axis=0) / math.sqrt(4000))
    with pytest.raises(ValueError, match=r"outcome must be one of visit, spend, got 'visits'; did you mean 'visit'\?"):
        EmailDesign("visits")
    with pytest.raises(ValueError, match=r"n must be a whole number >= 1, got 0"):
        EmailDesign().sample(0, seed=0)


def test_the_email_set_is_the_design_with_seed_zero() -> None:
    for outcome in ("visit", "spend"):
        data = load("email", outcome=outcome)
        pd.testing.assert_frame_equal(data.frame, EmailDesign(outcome).frame(10_000, seed=0))
        assert (data.outcome, data.action, data.propensity) == (outcome, "segment", 1 / 3)


def test_regression_sets_have_made_outcomes() -> None:
    data = get("yacht")
    x = data.frame[data.features].to_numpy()
    assert_allclose(x.mean(axis=0), 0, atol=1e-12)
    outcomes = data.frame[["0", "1"]].to_numpy()
    design = SemiSyntheticDesign(x, outcomes[:, 0])
    assert_allclose(np.diff(outcomes, axis=1), np.diff(design.outcome_mean(x), axis=1), atol=1e-12)


# Files and packages that are not there


def write_file(path: Path, text: str) -> None:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_not_there_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = FILES[name].replace(".", r"\.")
    remedy = rf"set GBPL_DATA_DIR \(or data_dir= in Python\) to a folder with {file} or {file}\.gz, from \w"
    with pytest.raises(DataUnavailableError, match=rf"{name} needs the file {file}, and no folder is named; {remedy}"):
        load(name)
    with pytest.raises(OSError, match=rf"{name} needs the file {file}, and it is not in {tmp_path}; {remedy}"):
        load(name, data_dir=tmp_path)
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(DataUnavailableError, match=rf"it is not in {tmp_path}/none; set"):
        load(name)
    assert not next(entry for entry in catalog() if entry.name == name).available


@pytest.mark.parametrize("end", ["", ".gz"])
def test_files_are_read_from_the_folder_named(end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_file(tmp_path / f"jtpa_kt.csv{end}", "\ufeffD, earnings ,prevearn,edu,other\n1,10,2.5,12,x\n\n0,0,,11,y\n")
    for options in ({"data_dir": tmp_path}, {"data_dir": str(tmp_path)}, {}):
        if not options:
            monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path))
        data = load("jtpa", **options)
        assert data.frame.to_dict("list")["D"] == [1, 0]
        assert_array_equal(column(data, "prevearn"), [2.5, np.nan])
        assert sorted(data.frame.columns) == ["D", "earnings", "edu", "prevearn"]
    assert next(entry for entry in catalog(data_dir=tmp_path) if entry.name == "jtpa").available
    monkeypatch.setenv(DATA_DIR_VARIABLE, str(tmp_path / "elsewhere"))
    assert load("jtpa", data_dir=tmp_path).n_rows == 2  # what is said in the call comes first


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "D,earnings,edu\n1,2,3\n",
            r"jtpa_kt\.csv has no column 'prevearn'; .*'D', 'earnings', 'edu'",
        ),
        ("", r"jtpa_kt\.csv is empty: it has no header"),
        ("D,earnings,prevearn,edu\n1,2,3,4\n1,2,3\n", r"jtpa_kt\.csv: line 3 has 3 cell\(s\), but the header has 4"),
        ("D,earnings,prevearn,edu\n", r"jtpa_kt\.csv has a header but no rows"),
    ],
)
def test_a_wrong_file_is_named_with_its_rule(text: str, message: str, tmp_path: Path) -> None:
    write_file(tmp_path / "jtpa_kt.csv", text)
    with pytest.raises(ValueError, match=message):
        load("jtpa", data_dir=tmp_path)


def test_a_file_of_classes_needs_them(tmp_path: Path) -> None:
    write_file(tmp_path / "vehicle.csv", "x1,x2\n1,2\n")
    with pytest.raises(ValueError, match=r"vehicle\.csv has no column 'class'; its columns are 'x1', 'x2'"):
        load("vehicle", data_dir=tmp_path)
    write_file(tmp_path / "vehicle.csv", "x1,class\n1,van\n2,bus\n3,van\n")
    data = load("vehicle", data_dir=tmp_path)
    assert (data.features, data.outcomes) == (["x1"], ["bus", "van"])
    assert data.frame["van"].tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("name", "options", "package", "install"),
    [
        ("nsw", {}, "causaldata", r"'gbpl\[data\]'"),
        ("thornton_hiv", {}, "causaldata", r"'gbpl\[data\]'"),
        ("french", {}, "linearmodels", r"'gbpl\[data\]'"),
        ("digits", {"as_frame": "polars"}, "polars", "polars"),
        ("digits", {}, "pandas", "pandas"),
    ],
)
def test_a_missing_package_says_what_to_install(
    name: str, options: dict[str, str], package: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in [*sys.modules, package]:
        if module.split(".")[0] == package:
            monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"needs the package {package}, which cannot .*: pip install {install}$"):
        load(name, **options)
    if name in CARRIED:
        entry = next(entry for entry in catalog() if entry.name == name)
        assert not entry.available
        assert entry.needs == f"pip install 'gbpl[data]' (the package {package})"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "nws"}, r"name must be one of nsw, .*, got 'nws'; did you mean 'nsw'\?; catalog\(\) says"),
        ({"name": "Hillstrom"}, r"did you mean 'hillstrom'\?"),
        ({"name": "digit_logged"}, r"did you mean 'digits_logged'\?"),
        ({"name": "zzz"}, r"got 'zzz'; try 'nsw'"),
        ({"name": None}, r"got None"),
        ({"name": "BinaryDesign"}, r"got the design 'BinaryDesign'; draw from it: BinaryDesign\(\"DGP2\"\)\.sample"),
        ({"name": "digits", "as_frame": "panda"}, r"one of pandas, polars, arrow, got 'panda'; did you mean"),
        ({"name": "jtpa", "as_frame": "numpy"}, r"as_frame must be one of pandas, polars, arrow, got 'numpy'"),
        ({"name": "digits", "outcome": "right"}, r"digits has one outcome, got outcome='right'; leave it out"),
        ({"name": "hillstrom", "outcome": "visits"}, r"outcome must be one of visit, conversion, spend, got 'visits'"),
        ({"name": "french", "outcome": "size"}, r"outcome must be one of industry, size_value, size_momentum"),
    ],
)
def test_a_wrong_value_is_named_with_its_rule_and_a_remedy(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load(**given)


def test_the_catalog_says_how_to_make_each() -> None:
    entries = catalog()
    names = [entry.name for entry in entries]
    assert set(names) == {*CARRIED, *HERE, *FILES, *REGRESSION, *DESIGNS}
    assert len(names) == len(set(names))
    for entry in entries:
        assert entry.kind in ("trial", "logged", "classification", "portfolio", "simulated")
        assert entry.description
        assert entry.needs
        assert (entry.rows is None) == (entry.name in DESIGNS)
    here = vars(gbpl.datasets) | {"x": np.arange(20.0).reshape(10, 2), "y": np.arange(10.0)}
    for entry in entries:
        if entry.needs == "nothing":
            assert entry.available
            made = eval(entry.make, dict(here))
            assert isinstance(made, Dataset) == (entry.name not in DESIGNS)
            if entry.name in DESIGNS:
                assert entry.actions in (None, made.outcomes.shape[1])
        else:
            assert entry.make == f'load("{entry.name}")'


# The package


def test_importing_it_brings_no_optional_package_and_designs_travel(tmp_path: Path) -> None:
    designs = [
        BinaryDesign("DGP1"), MultiActionDesign(n_actions=3), OneDimensionalDesign(), EmailDesign("spend"),
        LoggedDesign(BinaryDesign()), SemiSyntheticDesign(np.eye(4), np.arange(4.0)),
    ]  # fmt: skip
    (tmp_path / "designs").write_bytes(pickle.dumps([designs, [design.sample(4, seed=1) for design in designs]]))
    (tmp_path / "data").write_bytes(pickle.dumps(dataclasses.replace(load("digits"), frame=None)))
    code = f"""
import pickle, sys
import gbpl.datasets
heavy = {{"pandas", "polars", "causaldata", "linearmodels", "sklearn", "jax", "pyarrow", "statsmodels"}}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert "sklearn.datasets" not in sys.modules
designs, samples = pickle.load(open({str(tmp_path / "designs")!r}, "rb"))
for design, sample in zip(designs, samples):
    assert (design.sample(4, seed=1).outcomes == sample.outcomes).all()
assert pickle.load(open({str(tmp_path / "data")!r}, "rb")).name == "digits"
gbpl.datasets.catalog()
assert not (heavy - {{"pandas", "pyarrow", "sklearn", "jax"}}) & set(sys.modules)
print("fine")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr


def test_every_public_name_is_there() -> None:
    assert DATA_DIR_VARIABLE == "GBPL_DATA_DIR"
    assert all(hasattr(gbpl.datasets, name) for name in gbpl.datasets.__all__)
