"""The paper's trials: splits, what is measures, what is selected, and that a trial does not depend on its block."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gbpl import GBPL, MLP, FitConfig
from gbpl.datasets import BinaryDesign, LoggedDesign, MultiActionDesign, OneDimensionalDesign
from gbpl.paper.experiments import posterior, studies
from gbpl.paper.experiments.full import full_records, losses_of, scaled_tables
from gbpl.paper.experiments.logged import logged_records
from gbpl.paper.experiments.protocol import (
    ZETAS,
    Settings,
    Trial,
    cross_validated,
    default_records,
    measures,
    outcome_scale,
    split,
)
from gbpl.paper.experiments.records import Records

QUICK = Settings(quick=True, device="cpu")


def trial(number: int, n: int = 120, design: object = None) -> Trial:
    sample = (design or BinaryDesign("DGP2")).sample(n, seed=number)  # type: ignore[attr-defined]
    return Trial(number, *split(sample), True)


def test_split_is_six_two_two_without_overlap() -> None:
    sample = BinaryDesign("DGP1").sample(500, seed=1)
    observed, train, test = split(sample)
    assert (train, len(observed.x), len(test.x)) == (300, 400, 100)
    assert_allclose(np.concatenate([observed.outcomes, test.outcomes]), sample.outcomes)
    rows = Trial(0, observed, train, test, True).rows
    assert [len(part) for part in rows] == [300, 100]
    assert not np.intersect1d(*rows).size


def test_the_settings_are_the_papers() -> None:
    settings = Settings()
    assert settings.network == MLP((128, 128), activation="relu")
    assert settings.posterior_network == MLP((64, 64), activation="relu")
    assert settings.config == FitConfig(learning_rate=1e-3, max_epochs=200, patience=20)
    assert settings.config.batch_shape(3000)[1] <= 128
    assert ZETAS == (1.0, 0.1, 0.01, 0.001)


def test_judged_by_hand() -> None:
    observed = BinaryDesign("DGP2").sample(4, seed=0)
    test = type(observed)(observed.x, np.array([[0, 1], [2, 0], [3, 4], [0, 0.5]]), np.array([[0, 1.0]] * 4))
    policy = np.array([[0.0, 1], [1, 0], [1, 0], [0, 1]])
    realized = measures(Trial(0, observed, 3, test, True), policy)
    assert realized["welfare"] == pytest.approx((1 + 2 + 3 + 0.5) / 4)
    assert realized["regret"] == pytest.approx((0 + 0 + 1 + 0) / 4)
    assert realized["mean_regret"] == pytest.approx(2 / 4)
    assert realized["agreement"] == pytest.approx(2 / 4)
    known = measures(Trial(0, observed, 3, test, False), policy)
    assert (known["welfare"], known["regret"]) == pytest.approx((0.5, 0.5))


def test_zeta_is_selected_by_validation_welfare() -> None:
    found = [{"welfare": float(i)} for i in range(4)]
    lines = cross_validated("c", "GBPLNet", trial(3), [0.1, 0.4, 0.2, 0.3], found)
    assert [line.zeta for line in lines] == ["1.0", "0.1", "0.01", "CV"]
    assert lines[-1].values == {"welfare": 1.0, "picked": 0.1}
    assert {line.trial for line in lines} == {3}


def test_outcome_scale_is_the_root_mean_square_gap() -> None:
    outcomes = np.random.default_rng(0).normal(size=(50, 2)) * 3.0 + 7.0
    assert outcome_scale(outcomes) == pytest.approx(np.sqrt(np.mean((outcomes[:, 1] - outcomes[:, 0]) ** 2)))


def test_tables_keep_gaps_and_the_plug_in_its_levels() -> None:
    from gbpl.fitting.losses import OneOf

    losses = losses_of(["GBPLNet", "PluginReg"], 2)
    objective = OneOf(tuple(losses.values()))
    outcomes = np.random.default_rng(1).normal(size=(6, 2)) + 100.0
    values, codes = scaled_tables(objective, [(0, outcomes), (1, outcomes)], [2.0, 2.0])
    gap = (outcomes[:, 1] - outcomes[:, 0]) / 2.0
    for table in (values[:6], values[6:]):
        assert_allclose(table[:, 1] - table[:, 0], gap, atol=1e-6)
    assert_allclose(values[:6].sum(axis=1), 0.0, atol=1e-6)
    assert_allclose(values[6:], (outcomes - outcomes.mean()) / 2.0, atol=1e-5)
    assert codes.tolist() == [0.0] * 6 + [1.0] * 6


@pytest.mark.parametrize("kind", ["full", "logged", "default"])
def test_a_trial_does_not_depend_on_its_block(kind: str) -> None:
    def lines(numbers: list[int]) -> Records:
        if kind == "logged":
            trials = [studies._synthetic_log(BinaryDesign("DGP2"), 120, number) for number in numbers]
            return Records(logged_records([("c", 0.05)], trials, QUICK, direct=True))
        trials = [trial(number) for number in numbers]
        if kind == "default":
            return Records(default_records("c", trials, QUICK))
        return Records(full_records("c", trials, ["GBPLNet", "DiffReg", "PluginReg", "WeightedLogistic"], QUICK))

    alone, together = lines([1]), lines([0, 1, 2])
    assert alone.rows() == together.rows()
    for row in alone.rows():
        assert_allclose(alone.of(*row, "welfare")[0], together.of(*row, "welfare")[1], atol=0.05)
        assert alone.trials(*row) == [1]
    assert len({tuple(np.round(together.of(*row, "welfare"), 6)) for row in together.rows()}) > 1 or kind == "default"


def test_many_actions_are_judged_as_randomized_policies() -> None:
    """zeta = 1 shrinks towards uniform: with K = 5 that costs welfare, and a rule would not show it."""
    settings = Settings(device="cpu", patience=5)
    trials = [trial(number, 1500, MultiActionDesign("DGP3")) for number in range(2)]
    records = Records(full_records("c", trials, ["DirectWelfare", "GBPLNet"], settings))
    shrunk, sharp = (records.of("c", "GBPLNet", zeta, "welfare").mean() for zeta in ("1.0", "0.01"))
    assert sharp > shrunk + 0.02


def test_logs_of_a_trial() -> None:
    made = studies._synthetic_log(BinaryDesign("DGP2"), 500, 4)
    assert made.propensity is not None
    assert made.propensity.shape == (400, 2)
    assert made.propensity.min() >= 0.05
    log = LoggedDesign(BinaryDesign("DGP2"), clip=0.05, index_seed=4).sample(500, seed=4)
    assert_allclose(made.propensity, log.propensity[:400])
    data = made.data()
    assert_allclose(data["y"], log.outcome[:400])
    weak = studies._curve(2, 1000, logged=True, strength=studies.WEAK_INDEX, clip=0.0)
    assert weak.propensity is not None
    assert weak.propensity.min() < 0.01
    assert weak.train == 800
    assert len(weak.test.x) == 10_000


def test_the_default_row_is_the_estimators_default() -> None:
    policy = Settings(device="cpu").default(7)
    assert type(policy) is GBPL
    changed = {name for name, value in policy.get_params().items() if value != type(policy)().get_params()[name]}
    assert changed == {"device", "progress", "random_state"}


def test_truths_belong_to_their_designs() -> None:
    found = studies.truths(QUICK, [("synthetic-binary", "DGP1"), ("synthetic-binary", "DGP1 unscaled"),
                                   ("weak-overlap", "0.05"), ("uq-evaluation", "4")])  # fmt: skip
    assert found["synthetic-binary", "DGP1 unscaled"]["oracle"] > found["synthetic-binary", "DGP1"]["oracle"]
    assert found["weak-overlap", "0.05"]["optimal"] == BinaryDesign("DGP2").optimal_welfare()
    assert found["uq-evaluation", "4"]["optimal"] == OneDimensionalDesign().optimal_welfare()


def test_variances_are_those_of_welfare_over_trials() -> None:
    """The best rule on 2,000 test samples of 50 rows: their variance is that of a row over 50."""
    truth = studies.truths(QUICK, [("synthetic-binary", "DGP3"), ("posterior-threshold-rules", "0.05")])
    design, made = BinaryDesign("DGP3"), truth["synthetic-binary", "DGP3"]
    sample = design.sample(100_000, seed=9)
    rows = np.where(design.effect(sample.x) > 0, sample.outcomes[:, 1], sample.outcomes[:, 0])
    assert rows.reshape(2000, 50).mean(axis=1).var() == pytest.approx(made["row_variance"] / 50, rel=0.1)
    assert made["test_rows"] == 1000
    assert made["between"] < 1e-12  # no vector is drawn in DGP3
    x, means = posterior._population()
    known = truth["posterior-threshold-rules", "0.05"]
    assert means.max(axis=1).var() == pytest.approx(known["row_variance"], rel=0.03)  # by means, without noise
    assert (known["test_rows"], len(x)) == (2000, 20_000)
    assert means.max(axis=1).mean() == pytest.approx(known["optimal"], abs=1e-6)


# -- the posterior studies ----------------------------------------------------------------------------------


def test_welfare_and_target_by_hand() -> None:
    means = np.array([[0.0, 0.5], [1.0, -1.0], [0.2, 0.2]])
    f = np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]])
    assert_allclose(posterior.randomized_welfare(f, means), [(0.5 + 1.0 + 0.2) / 3, (0.25 + 0.0 + 0.2) / 3])
    tau = means[:, 1] - means[:, 0]
    by_hand = np.mean(means[:, 0] + (np.clip(tau, -1, 1) + 1) / 2 * tau)
    assert posterior.target_welfare(means) == pytest.approx(by_hand)


def test_decisions_by_hand() -> None:
    means = np.column_stack([np.zeros(5), [0.3, -0.2, 0.1, 0.4, -0.5]])
    p1 = np.array([0.99, 0.02, 0.55, 0.25, 0.8])
    chosen = np.array([True, False, True, True, True])
    tables = posterior.decision_records("m", "z", 0, np.column_stack([1 - p1, p1]), chosen, means)
    groups = {line.case: line.values for line in tables["action-disagreement"]}
    assert [groups[case]["points"] for case in "12345"] == [2, 0, 2, 0, 1]  # u = 0.02, 0.04, 0.9, 0.5, 0.4
    assert "regret" not in groups["2"]
    assert groups["3"]["regret"] == pytest.approx(0.25)  # the last row errs: 0.5 of two rows
    assert groups["5"]["agreement"] == 1.0
    rules = {line.case: line.values for line in tables["posterior-threshold-rules"]}
    assert rules["0.05"]["welfare"] == pytest.approx(0.3 / 5)  # only the first row is treated
    assert rules["0.30"]["welfare"] == pytest.approx((0.3 - 0.5) / 5)
    assert rules["0.30"]["map"] == pytest.approx((0.3 + 0.1 + 0.4 - 0.5) / 5)
    assert rules["0.20"]["uncertain"] == pytest.approx(3 / 5)  # 0.55, 0.25 and 0.8 itself
    assert rules["0.05"]["change"] == pytest.approx(3 / 5)
    assert rules["0.05"]["regret"] == pytest.approx((0.3 + 0.1 + 0.4 - 0.3) / 5)


def test_the_default_is_judged_on_its_own_rule() -> None:
    """Its target is the population welfare of what `predict` does, and its interval is that of its users."""
    (line,) = posterior.default_records("uq-evaluation", [3], 1000, QUICK, decisions=False)["uq-evaluation"]
    sample = OneDimensionalDesign().sample(200, seed=1003)
    policy = QUICK.default(1003).fit(sample.x, sample.outcomes)
    fresh = OneDimensionalDesign().sample(200_000, seed=1)
    worth = np.mean(fresh.outcome_mean[np.arange(200_000), policy.predict(fresh.x)])
    assert line.values["target"] == line.values["welfare"] == pytest.approx(worth, abs=0.01)
    low, high = np.quantile(policy.population_welfare(seed=1003).values, [0.05, 0.95])
    assert (line.values["low90"], line.values["high90"]) == pytest.approx((low, high), abs=1e-3)


def test_numbers_of_the_example_by_hand() -> None:
    draws = np.array([[0.0, 0.2, 0.9, 1.0], [0.2, 0.4, 0.9, 0.8]])
    arrays = {"draws": draws, "target": np.array([0.0, 0.6, 1.0, -1.0]), "welfare": np.arange(401) / 400}
    numbers = posterior._example_numbers(arrays | {"validation_loss": np.array(0.3)})
    assert numbers["miss"] == pytest.approx((0.1 + 0.3) / 2)
    assert numbers["edge"] == pytest.approx(0.9)
    assert numbers["band"] == pytest.approx(0.95 * 0.2)
    assert numbers["edge_band"] == pytest.approx(0.95 * (0.0 + 0.2) / 2)
    assert (numbers["low"], numbers["high"], numbers["welfare_mean"]) == pytest.approx((0.025, 0.975, 0.5))


def test_ends_are_quantiles() -> None:
    draws = np.arange(401) / 400
    ends = posterior.interval_ends(draws)
    assert (ends["low90"], ends["high90"]) == pytest.approx((0.05, 0.95))
    assert (ends["low50"], ends["high50"]) == pytest.approx((0.25, 0.75))
