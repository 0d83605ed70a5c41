"""What a sample has, what a design must have, and the streams of random numbers they share (experimental details)."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "Design",
    "KnownWelfare",
    "LoggedSample",
    "Sample",
    "check_index_seed",
    "check_whole",
    "stream",
    "unit_rows",
]

# Keys of the streams beside the rows' own default_rng(seed). Were they that stream too, w would be the first row of
# features wherever index_seed is the seed, and the logging policy would know the effect of DGP1.
OUTCOME_INDEX, LOGGING_INDEX, LOGGED_ACTION, SHIFT_INDEX = 1, 2, 3, 4


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Features, realized outcomes of every action, and their conditional means."""

    x: Float[np.ndarray, "row feature"]
    outcomes: Float[np.ndarray, "row action"]
    outcome_mean: Float[np.ndarray, "row action"]


@dataclass(frozen=True, slots=True, eq=False)
class LoggedSample:
    """What a logging policy leaves: features, one action per row, its outcome, and the propensities e_a(x).

    `outcomes` and `outcome_mean`, of every action, are the truth to compare with: a learner must not see them.
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


@runtime_checkable
class KnownWelfare(Protocol):
    """A design that knows the welfare of rules under it. All designs of this package do."""

    def optimal_welfare(self) -> float:
        """E[max_a gamma_a(X)]."""
        ...

    def oracle_welfare(self) -> float:
        """E[max_a Y(a)]."""
        ...

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """E[Y(a)]."""
        ...


def check_whole(name: str, value: int, low: int, remedy: str) -> None:
    if not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name} must be a whole number >= {low}, got {value!r}; {remedy}")


def check_index_seed(index_seed: int) -> None:
    # None would draw another index at every call, and the truth would not be that of the sample.
    check_whole("index_seed", index_seed, 0, "try 0")


def stream(seed: int, key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key,)))


def unit_rows(count: int, n_features: int, rng: np.random.Generator) -> Float[np.ndarray, "count feature"]:
    """Independent directions, uniform on the sphere; the first ones stay as they are when there are more."""
    w = rng.standard_normal((count, n_features))
    return w / np.linalg.norm(w, axis=1, keepdims=True)
