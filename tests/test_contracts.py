"""What every surrogate and every model owes: fitted, frozen, exported, drawn from and certified, or refused by name.

A new surrogate or model class is one file, and one line here.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import gbpl
from gbpl import (
    MLP,
    BaselineGap,
    Binary,
    BoostedScore,
    FitConfig,
    ForestFeatures,
    FullVector,
    GBPLNet,
    Linear,
    NegativeWelfare,
    RandomFeatures,
    Splines,
    Surrogate,
)
from gbpl.certificates import bounds
from gbpl.models.numpy_form import Networks, layer_matrix
from gbpl.value.welfare import deterministic

N = 64
RNG = np.random.default_rng(0)
X, NEW = RNG.normal(size=(N, 3)), RNG.normal(size=(N, 3))


def outcomes(x: np.ndarray, count: int) -> np.ndarray:
    """Between 0 and 1."""
    return 0.5 + 0.5 * np.sin(x[:, :1] + 1.5 * np.arange(count))


# -- classes that gbpl does not know --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Arctan(Surrogate):
    """Two actions, score 2/pi arctan(raw): no formula of files, no range for bounds."""

    penalty_scale = 0.25
    welfare_factor = 0.5
    n_actions = 2
    n_raw = 1
    squashing = None

    def target(self, outcomes: Any) -> Any:
        return outcomes[..., 1:] - outcomes[..., :1]

    def scores(self, raw: Any) -> Any:
        return 2.0 / jnp.pi * jnp.arctan(raw)

    def policy(self, scores: Any) -> Any:
        return jnp.concatenate([1.0 - scores, 1.0 + scores], axis=-1) / 2.0

    def scores_of_policy(self, policy: Any) -> Any:
        return 2.0 * policy[..., 1:] - 1.0

    def outcomes(self, scores: Any, zeta: float) -> Any:
        return jnp.concatenate([-zeta * scores, zeta * scores], axis=-1) / 2.0

    def population_policy(self, outcome_mean: Any, zeta: float) -> Any:
        return self.policy(jnp.clip(self.target(outcome_mean) / zeta, -1.0, 1.0))


@dataclass(frozen=True, slots=True)
class Clipped(Arctan):
    """The same with the score clip(raw, -1, 1), which files have a formula for."""

    squashing = "clip"
    penalty_range = (0.0, 1.0)

    def scores(self, raw: Any) -> Any:
        return jnp.clip(raw, -1.0, 1.0)

    def _loss_range(self, low: float, high: float, zeta: float) -> tuple[float, float]:
        return 0.0, (high - low + zeta) ** 2 / (2.0 * zeta)


@dataclass(frozen=True, slots=True)
class Squares:
    """Linear in x^2: no numpy form, hence no file."""

    def init(self, key: Any, n_features: int, n_raw: int) -> Any:
        return {"w": jnp.zeros((n_features, n_raw))}

    def apply(self, params: Any, x: Any) -> Any:
        return (x * x) @ params["w"]


@dataclass(frozen=True, slots=True)
class Sigmoids:
    """Linear in tanh(x): a last layer, and a numpy form."""

    def init(self, key: Any, n_features: int, n_raw: int) -> Any:
        return [{"weight": jnp.zeros((n_features, n_raw)), "bias": jnp.zeros(n_raw)}]

    def features(self, params: Any, x: Any) -> Any:
        return jnp.tanh(x)

    def apply(self, params: Any, x: Any) -> Any:
        return self.features(params, x) @ params[-1]["weight"] + params[-1]["bias"]

    def frozen(self, params: Any, n_features: int) -> Networks:
        last = np.asarray(layer_matrix(params[-1]), np.float32)
        layer = np.concatenate([np.eye(n_features), np.zeros((1, n_features))]).astype(np.float32)
        return Networks((np.repeat(layer[None], len(last), axis=0),), last)


# -- every surrogate and every model, and what each refuses ---------------------------------------------------------

SURROGATES: dict[Surrogate, set[str]] = {
    Binary(): set(),
    Binary(huber=0.3): set(),
    Binary(squash=False): {"loss range"},
    BaselineGap(3): set(),
    FullVector(3): set(),
    FullVector(3, squash=False): {"loss range"},
    NegativeWelfare(): {"last layer"},
    NegativeWelfare(3): {"last layer"},
    Clipped(): set(),
    Arctan(): {"frozen", "loss range", "penalty range"},
}
MODELS: dict[Any, set[str]] = {
    MLP(hidden=(4,)): set(),
    Linear(): set(),
    RandomFeatures(n_features=8): set(),
    Splines(knots=4): {"kron"},
    ForestFeatures(trees=4, depth=2, components=3): set(),
    Sigmoids(): {"kron"},
    Squares(): {"frozen", "last layer", "kron"},
    BoostedScore(rounds=3, min_leaf=5): {"frozen", "last layer", "kron"},
}
CASES = [*((surrogate, Linear()) for surrogate in SURROGATES), *((Binary(), model) for model in MODELS)]
OF_CASES = pytest.mark.parametrize(
    ("surrogate", "model"), list(dict.fromkeys(CASES)), ids=lambda part: type(part).__name__
)


def refused(what: str, surrogate: Surrogate, model: Any) -> str:
    """The name of the class that refuses it, or nothing."""
    if what in SURROGATES[surrogate]:
        return type(surrogate).__name__
    return type(model).__name__ if what in MODELS[model] else ""


@cache
def fitted(surrogate: Surrogate, model: Any) -> GBPLNet:
    config = FitConfig(max_epochs=3, batch_size=32)
    zeta: Any = "auto" if surrogate.linear else 0.5
    policy = GBPLNet(zeta=zeta, surrogate=surrogate, model=model, committee=2, fit_config=config, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*its scores call the best")
        return policy.fit(X, outcomes(X, surrogate.n_actions))


# -- the contract ---------------------------------------------------------------------------------------------------


@OF_CASES
def test_a_policy_is_frozen_or_refused_by_name(surrogate: Surrogate, model: Any, tmp_path: Path) -> None:
    policy = fitted(surrogate, model)
    expected = policy.predict_proba(NEW)
    assert expected.shape == (N, surrogate.n_actions)
    assert_allclose(expected.sum(axis=1), 1.0, atol=1e-5)
    assert_array_equal(policy.predict(NEW), policy.actions_[deterministic(expected)])
    if name := refused("frozen", surrogate, model):
        with pytest.raises(
            ValueError,
            match=rf"a policy of (the surrogate {name} is not|{name} holds code, which is neither) saved.*pickle",
        ):
            policy.frozen(draws=0)
        return
    without_draws = bool(refused("last layer", surrogate, model))
    frozen = policy.frozen(draws=0 if without_draws else 20)
    assert_allclose(frozen.predict_proba(NEW), expected, atol=1e-6)
    frozen.save(tmp_path / "policy")
    loaded = gbpl.load(tmp_path / "policy")
    assert_array_equal(loaded.predict_proba(NEW), frozen.predict_proba(NEW))
    assert_array_equal(loaded.decide(NEW).action, frozen.decide(NEW).action)
    if not without_draws:
        assert_array_equal(loaded.action_probability(NEW), frozen.action_probability(NEW))
    gbpl.to_onnx(loaded, tmp_path / "policy.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "policy.onnx", providers=["CPUExecutionProvider"])
    probability, action = session.run(None, {"features": NEW})
    assert_allclose(probability, expected, atol=1e-5)
    assert np.mean(policy.actions_[action] != loaded.decide(NEW).action) < 0.05


@pytest.mark.parametrize("surrogate", SURROGATES, ids=lambda part: type(part).__name__)
def test_the_rule_is_in_the_order_of_the_estimated_outcomes(surrogate: Surrogate) -> None:
    policy = RNG.dirichlet(np.ones(surrogate.n_actions), 400)
    advantage = surrogate.advantage(policy)
    assert isinstance(advantage, np.ndarray)
    estimated = np.asarray(surrogate.outcomes(surrogate.scores_of_policy(policy), 1.0))
    assert_allclose(advantage, estimated - estimated.mean(axis=1, keepdims=True), atol=1e-6)
    assert_allclose(surrogate.advantage(jnp.asarray(policy)), advantage, atol=1e-6)
    assert_array_equal(surrogate.reordered(policy), policy.argmax(axis=1) != estimated.argmax(axis=1))


@OF_CASES
def test_a_posterior_is_drawn_or_refused_by_name(surrogate: Surrogate, model: Any) -> None:
    policy = fitted(surrogate, model)
    if name := refused("last layer", surrogate, model):
        with pytest.raises(gbpl.PosteriorError, match=f"{name}.*'bootstrap'"):
            policy.posterior()
        with pytest.raises(gbpl.PosteriorError, match=name):
            policy.certificate(NEW, outcomes(NEW, surrogate.n_actions), outcome_range=(0, 1), of="draws")
        posterior = policy.posterior("bootstrap", refits=2)
    else:
        posterior = policy.posterior()
    drawn = posterior.welfare(NEW, outcomes(NEW, surrogate.n_actions), draws=2)
    assert ((drawn.values >= 0.0) & (drawn.values <= 1.0)).all()
    assert_allclose(posterior.action_probability(NEW, draws=2).sum(axis=1), 1.0)


@pytest.mark.parametrize("surrogate", [FullVector(3), Arctan()], ids=lambda part: type(part).__name__)
def test_policies_are_certified(surrogate: Surrogate) -> None:
    certificate = fitted(surrogate, Linear()).certificate(
        NEW, outcomes(NEW, surrogate.n_actions), outcome_range=(0, 1), of="draws", draws=2
    )
    assert 0.0 <= certificate.lower <= certificate.estimate <= 1.0


@pytest.mark.parametrize("surrogate", SURROGATES, ids=lambda part: type(part).__name__)
def test_bounds_know_a_surrogate_or_refuse_it_by_name(surrogate: Surrogate) -> None:
    name = type(surrogate).__name__
    if "loss range" in SURROGATES[surrogate]:
        with pytest.raises(ValueError, match=name):
            bounds.surrogate_range(surrogate, (0.0, 1.0), 0.5)
    else:
        low, high = bounds.surrogate_range(surrogate, (0.0, 1.0), 0.5)
        table = RNG.integers(0, 2, (N, surrogate.n_actions)).astype(float)
        scores = surrogate.scores(jnp.asarray(5.0 * RNG.normal(size=(N, surrogate.n_raw))))
        loss = np.asarray(surrogate.loss(scores, surrogate.target(table), 0.5))
        assert (loss >= low - 1e-5).all()
        assert (loss <= high + 1e-5).all()
    if "penalty range" in SURROGATES[surrogate]:
        with pytest.raises(ValueError, match=f"{name}.penalty_range"):
            bounds.welfare_from_penalized(0.0, 0.5, surrogate)
    else:
        low, high = bounds.penalty_range(surrogate)
        policy = jnp.asarray(RNG.dirichlet(np.full(surrogate.n_actions, 0.3), N))
        size = np.sum(np.asarray(surrogate.scores_of_policy(policy)) ** 2, axis=1)
        assert (size >= low - 1e-5).all()
        assert (size <= high + 1e-5).all()


@pytest.mark.parametrize("surrogate", SURROGATES, ids=lambda part: type(part).__name__)
def test_a_scaled_surrogate_has_the_same_loss(surrogate: Surrogate) -> None:
    """Outcomes and zeta divided by a scale divide the loss by it."""
    table, raw = RNG.normal(size=(N, surrogate.n_actions)), jnp.asarray(RNG.normal(size=(N, surrogate.n_raw)))
    whole = surrogate.loss(surrogate.scores(raw), surrogate.target(table), 0.5)
    scaled = surrogate.scaled(4.0)
    assert type(scaled) is type(surrogate)
    part = scaled.loss(scaled.scores(raw), scaled.target(table / 4.0), 0.125)
    assert_allclose(4.0 * np.asarray(part), np.asarray(whole), rtol=1e-4)


@pytest.mark.parametrize("model", MODELS, ids=lambda part: type(part).__name__)
def test_kron_is_for_dense_layers(model: Any) -> None:
    policy = fitted(Binary(), model)
    if "kron" in MODELS[model]:
        with pytest.raises(gbpl.PosteriorError, match=type(model).__name__):
            policy.posterior("laplace", structure="kron")
    else:
        policy.posterior("laplace", structure="kron")


def test_unknown_classes_learn_in_passes(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    x = np.random.default_rng(1).normal(size=(1000, 2))
    table = dict(zip("ab", x.T, strict=True)) | dict(zip(("none", "mail"), outcomes(x, 2).T, strict=True))
    parquet.write_table(pyarrow.table(table), tmp_path / "rows.parquet")
    config = FitConfig(max_epochs=2, batch_size=64)
    policy = GBPLNet(zeta=0.5, surrogate=Clipped(), model=Sigmoids(), committee=2, fit_config=config, random_state=0)
    policy.fit_parquet(tmp_path / "rows.parquet", outcomes=["none", "mail"], features=["a", "b"])
    assert_allclose(policy.frozen(draws=5).predict_proba(x), policy.predict_proba(x), atol=1e-6)
