"""Simulated designs with known truth (appendices on experimental details and on counterfactual settings).

The designs of the paper: its binary and its multi-action ones, the one-dimensional example of its posterior
visualization, and any of them seen through a logging policy. Each knows its conditional means, so regret can be had
exactly. They are the formulas of the text as written; some of the paper's tables come from others.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from scipy.special import expit, softmax

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "BinaryDesign",
    "Design",
    "LoggedDesign",
    "LoggedSample",
    "MultiActionDesign",
    "OneDimensionalDesign",
    "Sample",
]

NAMES = ("DGP1", "DGP2", "DGP3")

# Keys of the streams beside the rows' own default_rng(seed). Were they that stream too, w would be the first row of
# features wherever index_seed is the seed, and the logging policy would know the effect of DGP1.
OUTCOME_INDEX, LOGGING_INDEX, LOGGED_ACTION = 1, 2, 3


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Features, realized outcomes of every action, and their conditional means."""

    x: Float[np.ndarray, "row feature"]
    outcomes: Float[np.ndarray, "row action"]
    outcome_mean: Float[np.ndarray, "row action"]


@dataclass(frozen=True, slots=True, eq=False)
class LoggedSample:
    """What a logging policy leaves: features, one action a row, its outcome, and the propensities e_a(x).

    `outcomes` and `outcome_mean`, of every action, are the truth to judge with: a learner must not see them.
    """

    x: Float[np.ndarray, "row feature"]
    action: Int[np.ndarray, " row"]
    outcome: Float[np.ndarray, " row"]
    propensity: Float[np.ndarray, "row action"]
    outcomes: Float[np.ndarray, "row action"]
    outcome_mean: Float[np.ndarray, "row action"]


@runtime_checkable
class Design(Protocol):
    """A design is any object with these: what `LoggedDesign` needs of the one behind it."""

    @property
    def n_features(self) -> int:
        """Columns of x."""
        ...

    @property
    def n_actions(self) -> int:
        """Columns of the outcomes."""
        ...

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_a(x) = E[Y(a) | X = x]."""
        ...

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        ...


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}; try 'DGP2'")


def _check_whole(name: str, value: int, low: int, remedy: str) -> None:
    if not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name} must be a whole number >= {low}, got {value!r}; {remedy}")


def _check_features(n_features: int) -> None:
    _check_whole("n_features", n_features, 4, "the formulas use four features, the paper has 10")


def _check_index_seed(index_seed: int) -> None:
    # None would draw another index at every call, and the truth would not be that of the sample.
    _check_whole("index_seed", index_seed, 0, "try 0")


def _stream(seed: int, key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key,)))


def _unit_rows(count: int, n_features: int, rng: np.random.Generator) -> Float[np.ndarray, "count feature"]:
    """Independent directions, uniform on the sphere; the first ones stay as they are when there are more."""
    w = rng.standard_normal((count, n_features))
    return w / np.linalg.norm(w, axis=1, keepdims=True)


def _baseline(name: str, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
    """gamma_0(x) of the binary designs, which is b(x) of the multi-action ones."""
    match name:
        case "DGP1":
            return x[:, 0] + 0.5 * x[:, 1] ** 2 - 0.25 * x[:, 2] * x[:, 3]
        case "DGP2":
            return 0.5 * np.sin(x[:, 0]) + 0.3 * x[:, 1] - 0.2 * x[:, 2] ** 2
        case _:
            return 0.2 * x[:, 0] - 0.1 * x[:, 1] + 0.1 * np.tanh(x[:, 2])


@dataclass(frozen=True, slots=True)
class BinaryDesign:
    """DGP1 (smooth, linear index), DGP2 (sine of two features) or DGP3 (a step) of the paper.

    X is standard normal, Y(a) = gamma_a(X) + standard normal noise. `index_seed` draws the unit-norm vector w of DGP1.

    >>> BinaryDesign("DGP2").sample(3, seed=0).outcomes.shape
    (3, 2)
    """

    name: str = "DGP2"
    n_features: int = 10
    index_seed: int = 0

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_features(self.n_features)
        _check_index_seed(self.index_seed)

    @property
    def n_actions(self) -> int:
        """Two."""
        return 2

    def baseline(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """gamma_0(x), the mean outcome of action 0."""
        return _baseline(self.name, x)

    def effect(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """tau(x), the mean gap between action 1 and action 0."""
        match self.name:
            case "DGP1":
                w = np.random.default_rng(self.index_seed).standard_normal(self.n_features)
                return 2.0 * np.tanh(x @ (w / np.linalg.norm(w)) / np.sqrt(self.n_features))
            case "DGP2":
                return 1.5 * np.sin(x[:, 0] + x[:, 1])
            case _:
                return 2.5 * ((x[:, 0] > 0) - 0.5 + 0.2 * x[:, 1])

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_0(x) and gamma_0(x) + tau(x)."""
        low = self.baseline(x)
        return np.column_stack([low, low + self.effect(x)])

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, self.n_features))
        mean = self.outcome_mean(x)
        return Sample(x, mean + rng.standard_normal((n, 2)), mean)


@dataclass(frozen=True, slots=True)
class MultiActionDesign:
    """DGP1 (sine), DGP2 (tanh) or DGP3 (steps) of the paper with K actions.

    With the actions numbered a = 1, ..., K (column a - 1) and z_a = x'w_a / sqrt(d),

        DGP1  gamma_a(x) = b(x) + 1.5 sin(z_a + 0.3 a)
        DGP2  gamma_a(x) = b(x) + 2 tanh(z_a - 0.2 a)
        DGP3  gamma_a(x) = b(x) + 1[z_a > 0] + 0.1 a

    X is standard normal, Y(a) = gamma_a(X) + standard normal noise. `index_seed` draws the unit-norm vectors w_a, the
    same for the three designs; the first ones stay when `n_actions` grows.

    >>> MultiActionDesign("DGP3", n_actions=4).sample(3, seed=0).outcomes.shape
    (3, 4)
    """

    name: str = "DGP1"
    n_actions: int = 5
    n_features: int = 10
    index_seed: int = 0

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_whole("n_actions", self.n_actions, 2, "the paper has 5")
        _check_features(self.n_features)
        _check_index_seed(self.index_seed)

    def baseline(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """b(x), which all actions share: it moves welfare but no decision."""
        return _baseline(self.name, x)

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_a(x)."""
        w = _unit_rows(self.n_actions, self.n_features, _stream(self.index_seed, OUTCOME_INDEX))
        z = x @ w.T / np.sqrt(self.n_features)
        a = np.arange(1, self.n_actions + 1)
        low = self.baseline(x)[:, None]
        match self.name:
            case "DGP1":
                return low + 1.5 * np.sin(z + 0.3 * a)
            case "DGP2":
                return low + 2.0 * np.tanh(z - 0.2 * a)
            case _:
                return low + (z > 0) + 0.1 * a

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, self.n_features))
        mean = self.outcome_mean(x)
        return Sample(x, mean + rng.standard_normal(mean.shape), mean)


@dataclass(frozen=True, slots=True)
class OneDimensionalDesign:
    """The paper's posterior example: X uniform on [-2.5, 2.5], tau(x) = 1.2 sin(x), noise of sd 0.6.

    >>> OneDimensionalDesign().effect(np.array([[0.0]]))
    array([0.])
    """

    @property
    def n_features(self) -> int:
        """One."""
        return 1

    @property
    def n_actions(self) -> int:
        """Two."""
        return 2

    def effect(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """tau(x) = 1.2 sin(x)."""
        return 1.2 * np.sin(x[:, 0])

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_0(x) = 0.2 x + 0.2 sin(1.5 x), and gamma_0(x) + tau(x)."""
        low = 0.2 * x[:, 0] + 0.2 * np.sin(1.5 * x[:, 0])
        return np.column_stack([low, low + self.effect(x)])

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        x = rng.uniform(-2.5, 2.5, (n, 1))
        mean = self.outcome_mean(x)
        return Sample(x, mean + 0.6 * rng.standard_normal((n, 2)), mean)


@dataclass(frozen=True, slots=True)
class LoggedDesign:
    """A design seen through a stochastic logging policy with random linear indices.

    With s = `strength` and unit-norm w drawn from `index_seed` (not the w of the design behind it),

        two actions   e_1(x) = sigmoid(s x'w), clipped to [clip, 1 - clip]; clip = 0 leaves it as it is
        K > 2         e_a(x) = exp(s x'w_a) / sum over b of exp(s x'w_b), never clipped, as in the text: `clip` is for
                      two actions only

    The actions are drawn from these propensities, the clipped ones where they are clipped, so they are exact. s = 0
    logs every action equally often. Two designs that differ in strength or clip see the same rows for one seed.

    The weak-overlap design of the paper has a stronger index and no clipping when it is generated:

    >>> weak = LoggedDesign(BinaryDesign("DGP2"), strength=2.5, clip=0.0)
    >>> seen = weak.sample(6000, seed=0)
    >>> seen.outcome.shape, seen.propensity.shape
    ((6000,), (6000, 2))
    """

    design: Design
    strength: float = 1.0
    clip: float = 0.05
    index_seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.design, type) or not isinstance(self.design, Design):
            raise ValueError(
                "design must have n_features, n_actions, outcome_mean and sample, got "
                f'{self.design!r:.80}; try BinaryDesign("DGP2")'
            )
        strength, clip = self.strength, self.clip
        if not (isinstance(strength, numbers.Real) and math.isfinite(strength) and strength >= 0):
            raise ValueError(
                f"strength must be a finite number >= 0, got {strength!r}; try 1.0, or 2.5 for weak overlap"
            )
        if not (isinstance(clip, numbers.Real) and 0 <= clip < 0.5):
            raise ValueError(f"clip must be in [0, 0.5), got {clip!r}; try 0.05, or 0 for no clipping")
        _check_index_seed(self.index_seed)

    def propensity(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """e_a(x) = P(A = a | X = x)."""
        count = self.design.n_actions
        rng = _stream(self.index_seed, LOGGING_INDEX)
        if count > 2:
            return softmax(self.strength * (x @ _unit_rows(count, self.design.n_features, rng).T), axis=1)
        logit = self.strength * (x @ _unit_rows(1, self.design.n_features, rng)[0])
        # Each column from its own sigmoid: 1 - e_1 would round to zero where e_1 is near one.
        return np.clip(np.column_stack([expit(-logit), expit(logit)]), self.clip, 1.0 - self.clip)

    def sample(self, n: int, *, seed: int) -> LoggedSample:
        """Draw n independent rows: those of design.sample(n, seed=seed), and one action for each."""
        truth = self.design.sample(n, seed=seed)
        propensity = self.propensity(truth.x)
        u = _stream(seed, LOGGED_ACTION).random((n, 1))
        # The last bound is one but for rounding, so it is left out: an action beyond it does not exist.
        action = np.sum(u >= np.cumsum(propensity, axis=1)[:, :-1], axis=1)
        outcome = np.take_along_axis(truth.outcomes, action[:, None], axis=1)[:, 0]
        return LoggedSample(truth.x, action, outcome, propensity, truth.outcomes, truth.outcome_mean)
