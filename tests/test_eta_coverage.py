"""Coverage by simulation: the study restated replication by replication (appendix on welfare uncertainty)."""

import re
from functools import cache

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge

from gbpl import MLP, FitConfig, GBPLNet, PerAction, welfare
from gbpl.datasets import BinaryDesign, LoggedDesign, MultiActionDesign, OneDimensionalDesign
from gbpl.eta_coverage import EtaCoverage, eta_coverage

ETAS, LEVELS = (0.5, 4.0, 100.0), (0.5, 0.9)
ROWS, FRESH, DRAWS, START = 100, 150, 60, 20
ZETA = 1.5
NET = GBPLNet(
    zeta=ZETA, eta=1.0, committee=2, model=MLP((8,)), outcome_model=PerAction(Ridge()), nuisance_folds=2,
    fit_config=FitConfig(max_epochs=15),
)  # fmt: skip
DESIGNS = {
    "plain": (OneDimensionalDesign(), 3),
    "logged": (LoggedDesign(OneDimensionalDesign(), strength=0.1), 2),
    "three actions": (MultiActionDesign("DGP2", n_actions=3, n_features=4), 2),
}


@cache
def coverage_of(name, of=None):
    design, replications = DESIGNS[name]
    return eta_coverage(
        design, ETAS, levels=LEVELS, estimator=NET, of=of, n=ROWS, evaluation_rows=FRESH, draws=DRAWS, start=START,
        replications=replications,
    )  # fmt: skip


def population_minimiser(means):
    """The target at zeta: clip(gap / zeta) for two actions, means / zeta projected on the simplex for more."""
    if means.shape[1] == 2:
        f = np.clip((means[:, 1] - means[:, 0]) / ZETA, -1, 1)
        return np.column_stack([1 - f, 1 + f]) / 2
    points = means / ZETA
    low, high = points.min(axis=1, keepdims=True) - 1, points.max(axis=1, keepdims=True)
    for _ in range(60):
        middle = (low + high) / 2
        above = np.maximum(points - middle, 0).sum(axis=1, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.maximum(points - low, 0)


@cache
def pieces(name, of=None):
    """What each replication's target and fit are worth, and the ends of its intervals."""
    (design, replications), target, worth, ends = DESIGNS[name], [], [], []
    for seed in range(START, START + replications):
        sample, fresh = design.sample(ROWS, seed=seed), design.sample(FRESH, seed=1_000_000 + seed)
        policy = clone(NET).set_params(random_state=seed)
        if name == "logged":
            policy.fit(sample.x, sample.outcome, action=sample.action, propensity=sample.propensity)
        else:
            policy.fit(sample.x, sample.outcomes)
        target.append(welfare(population_minimiser(fresh.outcome_mean), fresh.outcome_mean))
        worth.append(welfare(policy.predict_proba(fresh.x), fresh.outcome_mean))
        for eta in ETAS:
            posterior = policy.posterior("last_layer", eta=eta)
            asked = {"rule": "randomized", "of": of, "draws": DRAWS, "seed": seed}  # as the target is played
            values = posterior.welfare(fresh.x, fresh.outcome_mean, **asked).values
            ends += [np.quantile(values, [(1 - level) / 2, (1 + level) / 2]) for level in LEVELS]
    return np.array(target), np.array(worth), np.array(ends).reshape(replications, len(ETAS), len(LEVELS), 2)


def held(ends, values):
    inside = [(e[..., 0] <= v) & (v <= e[..., 1]) for e, v in zip(ends, values, strict=True)]
    return np.mean(inside, axis=0)


@pytest.mark.parametrize(
    ("name", "of"), [("plain", None), ("plain", "member"), ("logged", None), ("three actions", None)]
)
def test_a_study_restated(name, of):
    measured, (target, worth, ends) = coverage_of(name, of), pieces(name, of)
    np.testing.assert_allclose(measured.ends, ends, atol=1e-6)
    np.testing.assert_allclose(measured.coverage, held(ends, target))
    np.testing.assert_allclose(measured.width, np.mean(ends[..., 1] - ends[..., 0], axis=0), atol=1e-6)
    assert measured.shortfall == pytest.approx(np.mean(target - worth), abs=1e-6)
    np.testing.assert_allclose(measured.of_fits, held(ends, target - np.mean(target - worth)))
    assert (measured.etas, measured.levels, measured.replications) == (ETAS, LEVELS, DESIGNS[name][1])
    assert np.isfinite(measured.ends).all()


def test_what_the_restatement_tells_apart():
    """The tiny study is one in which the two coverages differ, and neither is all or nothing."""
    measured = coverage_of("plain")
    assert measured.shortfall > 0
    assert not np.array_equal(measured.coverage, measured.of_fits)
    assert 0 < measured.of_fits.mean() < 1
    assert not np.array_equal(coverage_of("plain", "member").ends, measured.ends)


def test_wider_levels_cover_more_and_larger_etas_are_narrower():
    measured = coverage_of("plain")
    for table in (measured.coverage, measured.of_fits):
        assert table.shape == (3, 2)
        assert ((table >= 0) & (table <= 1)).all()
        assert (np.diff(table, axis=1) >= 0).all()
    assert (np.diff(measured.width, axis=1) > 0).all()
    assert (np.diff(measured.width, axis=0) < 0).all()
    np.testing.assert_allclose(measured.width[1] / measured.width[2], 5, rtol=0.25)  # one over the root of eta


def made_study(coverage):
    coverage = np.array(coverage)
    return EtaCoverage(
        etas=(1.0, 2.0, 4.0),
        levels=(0.5, 0.9),
        coverage=coverage,
        width=np.array([[0.3, 0.6], [0.2, 0.4], [0.1, 0.2]]),
        of_fits=coverage + 0.05,
        shortfall=0.1,
        replications=100,
        ends=np.zeros((100, 3, 2, 2)),
    )


def test_the_closest_eta():
    measured = made_study([[0.8, 0.95], [0.55, 0.91], [0.49, 0.8]])
    assert measured.closest() == 2.0  # 0.91 is closest to 0.9
    assert measured.closest(0.5) == 4.0
    with pytest.raises(ValueError, match=re.escape("level must be one of 0.5, 0.9, got 0.8")):
        measured.closest(0.8)


def test_a_study_as_a_table():
    measured = made_study([[0.8, 0.95], [0.55, 0.91], [0.49, 0.8]])
    columns = measured.to_dict()
    assert list(columns) == ["eta", "level", "coverage", "se", "width", "of_fits"]
    assert columns["eta"] == [1.0, 1.0, 2.0, 2.0, 4.0, 4.0]
    assert columns["level"] == [0.5, 0.9] * 3
    assert columns["coverage"] == [0.8, 0.95, 0.55, 0.91, 0.49, 0.8]
    assert columns["width"] == [0.3, 0.6, 0.2, 0.4, 0.1, 0.2]
    np.testing.assert_allclose(columns["of_fits"], [0.85, 1.0, 0.6, 0.96, 0.54, 0.85])
    np.testing.assert_allclose(columns["se"][:2], [np.sqrt(0.8 * 0.2 / 100), np.sqrt(0.95 * 0.05 / 100)])
    assert all(type(value) is float for column in columns.values() for value in column)
    lines = str(measured).splitlines()
    assert lines[0].split() == ["eta", "50", "%", "90", "%"]
    assert lines[2].split() == ["2", "0.550", "(0.2)", "0.910", "(0.4)"]
    assert lines[-1] == "coverage (width), 100 replications"
    assert "ends" not in repr(measured)


def test_the_template_is_left_as_it_is():
    before = NET.get_params()
    coverage_of("plain")
    assert NET.get_params() == before
    assert not hasattr(NET, "params_")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"eta_grid": []}, "eta_grid must hold numbers > 0"),
        ({"eta_grid": [1.0, 0.0]}, "eta_grid must hold numbers > 0"),
        ({"eta_grid": [np.inf]}, "eta_grid must hold numbers > 0"),
        ({"eta_grid": [np.nan]}, "eta_grid must hold numbers > 0"),
        ({"levels": []}, "levels must lie between 0 and 1"),
        ({"levels": [0.9, 1.0]}, "levels must lie between 0 and 1"),
        ({"levels": [0.0]}, "levels must lie between 0 and 1"),
        ({"replications": 1}, "replications must be >= 2, got 1"),
        ({"estimator": GBPLNet()}, "the estimator must have one zeta, .* got 'auto'"),
        ({"estimator": GBPLNet(zeta=[1.0, 0.1])}, "the estimator must have one zeta"),
    ],
)
def test_bad_requests_are_refused_before_any_fit(wrong, message, monkeypatch):
    monkeypatch.setattr(GBPLNet, "fit", None)
    with pytest.raises(ValueError, match=message):
        eta_coverage(BinaryDesign(), **{"eta_grid": [1.0], **wrong})


def test_the_default_estimator_has_zeta_and_eta_one(monkeypatch):
    seen = []

    def fit(self, *data):
        seen.append(self)
        raise InterruptedError

    monkeypatch.setattr(GBPLNet, "fit", fit)
    with pytest.raises(InterruptedError):
        eta_coverage(OneDimensionalDesign(), [1.0], start=7)
    assert seen[0].get_params() == {**GBPLNet().get_params(), "zeta": 1.0, "eta": 1.0, "random_state": 7}
