"""A monitor: its numbers restated, its verdicts, its error budget, drift, and its state."""

import json
import math

import numpy as np
import pytest
from support.cli import tiny_policy

from gbpl.certificates.betting import Wealth
from gbpl.watch.budget import CALIBRATION, DRIFT, GAIN, LATER, VALUE, version_budget
from gbpl.watch.drift import Drift
from gbpl.watch.losses import BETS, Losses

LABELS = ("none", "treat")


def log(rows, gain=0.0, seed=0, noise=0.1):
    """A log with changing propensities; `gain` is what the action treat adds."""
    rng = np.random.default_rng(seed)
    table = {"age": rng.uniform(20.0, 60.0, rows), "sex": rng.choice(["f", "m"], rows)}
    chance = 0.2 + 0.6 * rng.random(rows)
    treated = rng.random(rows) < chance
    outcome = np.clip(0.4 + gain * treated + noise * rng.normal(size=rows), 0.0, 1.0)
    return table, outcome, np.where(treated, "treat", "none"), np.where(treated, chance, 1.0 - chance)


@pytest.fixture(scope="module")
def policy():
    return tiny_policy(log(400)[0])


def watch(policy, parts, **settings):
    monitor = policy.monitor(outcome_range=(0.0, 1.0), **settings)
    table, outcome, action, propensity = parts
    monitor.update(table, outcome, action=action, propensity=propensity)
    return monitor


def test_bounds_are_those_of_centred_values_bet_on_row_by_row(policy):
    parts = log(300)
    table, y, action, e = parts
    reading = watch(policy, parts).reading()
    chosen = policy.decide(table).action
    guess, slack = np.array([(0.5 + y[:i].sum()) / (1.0 + i) for i in range(300)]), 2.0  # room for a propensity of 0.25
    value, gain = np.zeros(300), np.ones(300)
    for i in range(300):
        of_treat = e[i] if action[i] == "treat" else 1.0 - e[i]
        of_chosen = of_treat if chosen[i] == "treat" else 1.0 - of_treat
        share = min(1.0, slack / max(1e-9, guess[i] * (1.0 / of_chosen - 1.0)))
        weight = (action[i] == chosen[i]) / e[i]
        value[i] = weight * y[i] + share * guess[i] * (1.0 - weight)
        if chosen[i] == "treat":  # the baseline is none
            fall = max(guess[i] / of_treat, (1.0 - guess[i]) / (1.0 - of_treat)) - 1.0
            share = min(1.0, slack / max(1e-9, fall))
            plain = y[i] / e[i] if action[i] == "treat" else (1.0 - y[i]) / e[i]
            centred = 1.0 + (1.0 if action[i] == "treat" else -1.0) / e[i] * (y[i] - guess[i])
            gain[i] = plain + share * (centred - plain)
    budget = version_budget(0.05, 1)
    wanted = Wealth.start().add(value + slack).lower(budget * VALUE[0]) - slack
    assert reading.value.lower == pytest.approx(max(0.0, float(wanted)), abs=1e-9)
    wanted = Wealth.start().add(gain + slack).lower(budget * GAIN[0]) - slack - 1.0
    assert reading.gain.lower == pytest.approx(float(wanted), abs=1e-9)
    assert 0.0 < (chosen == "treat").mean() < 1.0
    shares = {part["action"]: part["share"] for part in reading.by_action}
    assert shares["treat"] == pytest.approx((chosen == "treat").mean())


def test_the_budget_of_all_versions_and_all_statements_is_the_failure_probability():
    assert sum(version_budget(0.05, k) for k in range(1, 200_000)) == pytest.approx(0.05, rel=1e-5)
    assert math.fsum([*GAIN, *VALUE, *CALIBRATION, LATER, DRIFT]) == pytest.approx(1.0)


def test_a_policy_that_gains_is_promoted_and_rolled_back_once_it_loses(policy):
    monitor = watch(policy, log(4000, gain=0.3, seed=1))
    reading = monitor.reading()
    assert reading.verdict == "promote"
    assert 0 < reading.verdict_row < 4000
    assert reading.gain.lower > 0.0
    assert "Promote: at row" in str(reading)
    table, outcome, action, propensity = log(4000, gain=-0.3, seed=2)
    reading = monitor.update(table, outcome, action=action, propensity=propensity)
    assert reading.verdict == "roll back"
    assert 4000 < reading.verdict_row < 8000
    assert reading.gain.estimate == pytest.approx(0.0, abs=0.05)  # over all rows it is even
    assert f"promoted at row {reading.promoted_row:,}, had begun to lose" in reading.sentence()


def test_a_policy_that_loses_is_rolled_back_and_one_that_does_neither_is_watched(policy):
    worse = watch(policy, log(4000, gain=-0.3, seed=3)).reading()
    assert worse.verdict == "roll back"
    assert worse.promoted_row is None
    assert worse.gain.upper < 0.0
    assert watch(policy, log(2000, seed=4)).reading().verdict == "keep watching"


def test_rows_in_pieces_through_json_give_the_same_state(policy):
    parts = log(1500, gain=0.3, seed=5)
    table, outcome, action, propensity = parts
    whole = watch(policy, parts)
    pieces = policy.monitor(outcome_range=(0.0, 1.0))
    for first, last in ((0, 1), (1, 700), (700, 700), (700, 1500)):
        rows = slice(first, last)
        some = {name: column[rows] for name, column in table.items()}
        pieces.update(some, outcome[rows], action=action[rows], propensity=propensity[rows])
        pieces = policy.monitor(state=json.loads(json.dumps(pieces.state())))
    assert pieces.reading().sentence() == whole.reading().sentence()
    one, other = whole.version, pieces.version
    np.testing.assert_array_equal(other.wealth.log_stakes[:4], one.wealth.log_stakes[:4])
    np.testing.assert_allclose(other.wealth.log_stakes, one.wealth.log_stakes, rtol=1e-9)  # expected gains are float32
    np.testing.assert_array_equal(other.drift.wealth.log_stakes, one.drift.wealth.log_stakes)
    assert [row[0] for row in other.history] == [row[0] for row in one.history]
    assert (other.promoted, other.rolled_back) == (one.promoted, one.rolled_back)


def test_a_refit_goes_on_with_the_budget_and_begins_its_own_evidence(policy):
    monitor = watch(policy, log(500, gain=0.3, seed=6))
    state = json.loads(json.dumps(monitor.state()))
    other = tiny_policy(log(400)[0], ("age",))
    with pytest.raises(ValueError, match="not the policy that was watched so far; if it takes that one's place"):
        other.monitor(state=state)
    second = other.monitor(state=state, refit=True)
    assert second.version.number == 2
    assert second.version.budget == pytest.approx(0.05 * 6.0 / (4.0 * math.pi**2))
    assert second.reading().rows == 0
    assert second.ended[0]["rows"] == 500
    again = other.monitor(state=json.loads(json.dumps(second.state())), refit=True)  # a scheduler may say so every time
    assert again.version.number == 2


def test_expected_gains_that_are_too_high_are_found(policy):
    monitor = watch(policy, log(6000, gain=0.0, seed=7))
    table = log(6000, seed=7)[0]
    expected = policy.decide(table).expected_gain.clip(-1.0, 1.0).mean()
    reading = monitor.reading()
    assert reading.surplus.estimate == pytest.approx(-expected, abs=0.03)
    assert reading.surplus.upper < 0.0
    assert any("gains less than it expects, found at row" in alarm for alarm in reading.alarms)
    assert reading.surplus_row <= 6000


def test_drift_is_found_in_the_feature_that_moved_alone(policy):
    rows = log(3000, seed=8)
    assert watch(policy, rows).reading().alarms == [] or "features" not in " ".join(
        watch(policy, rows).reading().alarms
    )
    rows[0]["age"] = rows[0]["age"] + 6.0  # half a standard deviation
    moved = {part["feature"]: part["moved"] for part in watch(policy, rows).reading().drift}
    assert moved["age"] is not None
    assert moved["sex=m"] is None


def test_drift_rarely_cries_wolf_at_the_edge_of_its_limits_and_a_wrong_constant_is_found(monkeypatch):
    rng = np.random.default_rng(9)
    z = np.where(rng.random((200, 1000)) < 0.02, 7.0, 0.0) + 0.06  # mean 0.2 in bursts, mean square 1

    def found():
        moved = 0
        for stream in z:
            drift = Drift.start(1)
            for part in np.split(stream, 5):
                drift.add(part[:, None])
                drift.look(0.1)
            moved += bool(drift.moved)
        assert drift.shifts()[0] == pytest.approx(0.2, abs=0.15)
        return moved / 200

    limit = 0.1 + 3.0 * math.sqrt(0.1 * 0.9 / 200)
    assert found() <= limit
    monkeypatch.setattr("gbpl.watch.drift.NULL", np.array([10.0, 10.0, 0.5])[:, None])  # no tolerance at all
    assert found() > limit


def test_losses_are_the_sum_of_gamblers_who_begin_at_different_rows(monkeypatch):
    monkeypatch.setattr("gbpl.watch.losses.EVERY", 5)
    values = np.random.default_rng(10).exponential(1.3, 23)
    sizes, total = np.array(BETS.sizes), np.zeros(24)
    for number, start in enumerate(range(0, 23, 5), 1):
        share = 1.0 / math.log2(number + 1) - 1.0 / math.log2(number + 2)
        growth = np.cumprod((1.0 + values[start:, None] * sizes) / (1.0 + 1.1 * sizes), axis=0)
        total += share * growth[-1]
    state, _ = Losses.start(1.1).add(values[:7], 0.05)
    state, _ = Losses.from_json(json.loads(json.dumps(state.to_json()))).add(values[7:], 0.05)
    np.testing.assert_allclose(state.log_growth + state.log_pool, np.log(total), rtol=1e-9, atol=1e-9)
    evidence = math.log(np.dot(total, BETS.shares))
    assert Losses.start(1.1).add(values, math.exp(-evidence) * (1.0 + 1e-9))[1] in range(1, 24)


def test_losses_rarely_cry_wolf_and_a_wrong_constant_is_found():
    rng, limit = np.random.default_rng(11), 0.1 + 3.0 * math.sqrt(0.1 * 0.9 / 300)
    values = 4.0 * (rng.random((300, 600)) < 0.25)
    assert np.mean([Losses.start(1.0).add(stream, 0.1)[1] > 0 for stream in values]) <= limit
    assert np.mean([Losses.start(0.8).add(stream, 0.1)[1] > 0 for stream in values]) > limit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outcome": np.array([0.5, 1.5])}, "outcome is 1.5 in row 1, outside its range 0 to 1"),
        ({"outcome": np.array([np.nan, 0.5])}, "outcome is missing or infinite in row 0"),
        ({"action": ["treat", "pill"]}, "names the action 'pill'"),
        ({"action": ["treat", None]}, "action is missing in row 1"),
        ({"propensity": np.array([0.5, 0.0])}, "propensity is 0 for the action taken in row 1"),
        ({"propensity": np.array([[0.5, 0.5], [0.5, 0.6]])}, "propensities of row 1 sum to 1.1"),
        ({"propensity": None}, "need the propensities of the log"),
        ({"propensity": {"treat": 0.5}}, "does not name the action 'none'"),
        ({"outcome": np.array([0.5])}, "must have the same rows"),
    ],
)
def test_rows_that_break_the_promise_are_refused_and_nothing_is_taken(policy, change, message):
    monitor = policy.monitor(outcome_range=(0.0, 1.0))
    rows = {"outcome": np.array([0.5, 0.5]), "action": ["treat", "none"], "propensity": 0.5} | change
    with pytest.raises(ValueError, match=message):
        monitor.update({"age": [30.0, 40.0], "sex": ["f", "m"]}, **rows)
    assert monitor.reading().rows == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "outcome_range must be the lowest and the highest value"),
        ({"outcome_range": (1.0, 0.0)}, "the lower one first, got 1 0"),
        ({"outcome_range": (0.0, 1.0), "baseline": "pill"}, "names the action 'pill'"),
        ({"outcome_range": (0.0, 1.0), "failure_probability": 5.0}, r"in \(0, 1\), got 5"),
        ({"outcome_range": (0.0, 1.0), "least_propensity": 0.0}, "least_propensity must be in"),
    ],
)
def test_wrong_settings_are_refused(policy, settings, message):
    with pytest.raises(ValueError, match=message):
        policy.monitor(**settings)


def test_what_was_agreed_on_cannot_change(policy):
    state = policy.monitor(outcome_range=(0.0, 1.0)).state()
    policy.monitor(state=state, outcome_range=(0, 1), baseline="none")
    for change, message in (
        (
            {"outcome_range": (0.0, 2.0)},
            r"outcome_range was \(0.0, 1.0\) when the watch began, and is now \(0.0, 2.0\)",
        ),
        ({"baseline": "logging"}, "baseline was none when the watch began, and is now logging"),
        ({"failure_probability": 0.1}, "failure_probability was 0.05"),
        ({"cost": {"treat": 1.0}}, "costs was"),
    ):
        with pytest.raises(ValueError, match=message):
            policy.monitor(state=state, **change)


def test_costs_and_cuts_and_the_logging_baseline(policy):
    parts = log(800, gain=0.3, seed=10)
    free = watch(policy, parts).reading()
    dear = watch(policy, parts, cost={"treat": 0.5}).reading()
    assert dear.gain.estimate == pytest.approx(free.gain.estimate - 0.5 * free.by_action[1]["share"], abs=0.05)
    logged = watch(policy, parts, baseline="logging").reading()
    assert logged.baseline == "what the log did"
    assert logged.value == free.value
    table, outcome, action, propensity = parts
    cut = policy.monitor(outcome_range=(0.0, 0.6), cut=True)
    reading = cut.update(table, outcome, action=action, propensity=propensity)
    assert 0.0 <= reading.value.lower <= reading.value.estimate <= reading.value.upper <= 0.6
