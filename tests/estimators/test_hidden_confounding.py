"""Learning for hidden confounding, and what a fitted policy says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.linear_model import LinearRegression, LogisticRegression

import gbpl.nuisance.confounding
from gbpl import MLP, FitConfig, GBPLNet, fit_many
from gbpl.nuisance.confounding import Confounding

N = 300


@pytest.fixture(autouse=True)
def _few_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gbpl.nuisance.confounding, "TREES", 10)


def learner(**changes: Any) -> GBPLNet:
    given: dict[str, Any] = {
        "model": MLP(hidden=(8,)), "committee": 3, "zeta": 1.0, "nuisance_folds": 3,
        "outcome_model": LinearRegression(), "fit_config": FitConfig(max_epochs=15), "random_state": 0,
        "progress": False,
    }  # fmt: skip
    return GBPLNet(**given | changes)


def log(seed: int = 0) -> dict[str, Any]:
    """Action 1 is better by 0.8 and far more variable; nothing else matters."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, 2))
    action = rng.integers(0, 2, N)
    y = 0.8 * action + np.where(action == 1, 2.0, 0.2) * rng.normal(size=N)
    return {"X": x, "y": y, "action": action, "propensity": LogisticRegression()}


@pytest.fixture(scope="module")
def fitted() -> GBPLNet:
    return learner().fit(**log())


def test_no_confounding_leaves_a_fit_as_it_was(fitted: GBPLNet) -> None:
    again = learner(confounding=1).fit(**log())
    assert_array_equal(again.pseudo_outcomes_, fitted.pseudo_outcomes_)
    assert_array_equal(again.predict_proba(log()["X"]), fitted.predict_proba(log()["X"]))
    nuisances = fitted.training("").nuisances
    assert nuisances is not None
    assert_array_equal(fitted.pseudo_outcomes_, nuisances.pseudo_outcomes("dr"))


def test_sensitivity_at_one_is_the_cross_fitted_value(fitted: GBPLNet) -> None:
    found = fitted.sensitivity((1.0, 2.0), baseline=0)
    assert_array_equal(found.lower[0].influence, fitted.cross_fitted_value().influence)
    gain = fitted.cross_fitted_value(baseline=0)
    assert_array_equal(found.gain_lower[0].influence, gain.influence)
    assert found.gain_lower[1].estimate < gain.estimate < found.gain_upper[1].estimate
    assert found.row_breakdown.shape == (N,)
    same = fitted.training("").untouched.argmax(axis=1) == 0
    assert_array_equal(np.isnan(found.row_breakdown), same)


def test_the_least_a_policy_can_be_worth_is_learned() -> None:
    many = fit_many(
        [learner(), learner(confounding=5.0), learner(confounding=5.0, confounding_baseline=1)], [log()] * 3
    )
    shares = [policy.predict(log()["X"]).mean() for policy in many]
    assert shares[0] > 0.6  # better on average
    assert shares[1] < 0.5 * shares[0]  # what is variable can be far worse among those who did not get it
    assert shares[2] > 0.8  # and so nothing is surely better than it
    known = Confounding(many[1].training("").nuisances, many[1].training("").fit.settings.seed)  # type: ignore[arg-type]
    assert_allclose(many[1].pseudo_outcomes_, known.scores(5.0))
    assert np.all(many[2].pseudo_outcomes_[:, 1] == 0.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"confounding": 0.5}, "confounding must be a finite number >= 1, got 0.5"),
        ({"confounding": "2"}, "confounding must be a finite number >= 1, got '2'"),
        ({"confounding": 2.0, "pseudo_outcome": "ipw"}, "needs a model of each action's outcome"),
        ({"confounding_baseline": 0}, "confounding_baseline is 0, but confounding=1 has no bounds"),
        ({"confounding": 2.0, "confounding_baseline": 7}, r"must be one of the actions \[0, 1\], got 7"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learner(**settings).fit(**log())


def test_full_feedback_is_refused_by_name(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(60, 1)), rng.normal(size=(60, 2))
    with pytest.raises(ValueError, match=r"confounding=1\.5 is for logged feedback"):
        learner(confounding=1.5).fit(x, y)
    with pytest.raises(ValueError, match="sensitivity is for logged feedback"):
        learner(fit_config=FitConfig(max_epochs=1)).fit(x, y).sensitivity()
    with pytest.raises(ValueError, match=r"confounding=1\.5 needs all rows in memory"):
        learner(confounding=1.5).fit_parquet(tmp_path / "none.parquet", outcome="y", action="a")


def test_a_policy_without_an_outcome_model_has_no_bounds() -> None:
    policy = learner(pseudo_outcome="ipw", outcome_model=None, fit_config=FitConfig(max_epochs=1)).fit(**log())
    with pytest.raises(ValueError, match="needs an outcome model"):
        policy.sensitivity()
