"""Other readings of the synthetic designs, one change of the text at a time, for the tables no stated design explains.

The list was fixed before any distance of it was computed. `known` says why a reading was expected to be near all the
same. None of them is used anywhere else: the tables are run on the designs as stated, however near a reading comes.
Counting features from zero changes nothing, as they are independent and alike, and is not a reading.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.datasets.baseline import NAMES, baseline_mean
from gbpl.datasets.samples import OUTCOME_INDEX, Sample, stream

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["READINGS", "STATED", "ReadDesign", "Reading", "readings_of"]

N_FEATURES, N_ACTIONS = 10, 5
FEW_ROWS = 2000  # of which 400 are the test: the printed variances are those of 370 to 520 rows


@dataclass(frozen=True, slots=True)
class ReadDesign:
    """A synthetic design with every part of its text that a reading may change as a field; the defaults are as stated.

    `n_actions` is 2 or 5. `index_seed` draws w, or w_a for every action. `baseline` is "stated", "none", or "before",
    where the square belongs to the feature before. `bracket` is "stated", or "moved" to the next place where one can
    close. `coding` is what multiplies tau for actions 0 and 1. `first` numbers the actions; without `shift` the term
    in a is left out.
    """

    name: str
    n_actions: int = 2
    n_features: int = N_FEATURES
    index_seed: int = 0
    divided: bool = True
    unit_norm: bool = True
    uniform: bool = False
    noise_sd: float = 1.0
    baseline: str = "stated"
    bracket: str = "stated"
    coding: tuple[float, float] = (0.0, 1.0)
    first: int = 1
    shift: bool = True

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_a(x)."""
        low = self._low(x)[:, None]
        return low + (np.outer(self._effect(x), self.coding) if self.n_actions == 2 else self._gains(x))

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        shape = (n, self.n_features)
        x = rng.uniform(-1.0, 1.0, shape) if self.uniform else rng.standard_normal(shape)
        mean = self.outcome_mean(x)
        return Sample(x, mean + self.noise_sd * rng.standard_normal(mean.shape), mean)

    def _low(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        if self.baseline == "none":
            return np.zeros(len(x))
        if self.baseline == "before" and self.name == "DGP1":
            return x[:, 0] ** 2 + 0.5 * x[:, 1] - 0.25 * x[:, 2] * x[:, 3]
        if self.baseline == "before" and self.name == "DGP2":
            return 0.5 * np.sin(x[:, 0]) + 0.3 * x[:, 1] ** 2 - 0.2 * x[:, 2]
        return baseline_mean(self.name, x)

    def _indices(self, x: Float[np.ndarray, "row feature"], count: int) -> Float[np.ndarray, "row index"]:
        """x'w, before it is divided."""
        w = stream(self.index_seed, OUTCOME_INDEX).standard_normal((count, self.n_features))
        return x @ (w / np.linalg.norm(w, axis=1, keepdims=True) if self.unit_norm else w).T

    @property
    def _divisor(self) -> float:
        return math.sqrt(self.n_features) if self.divided else 1.0

    def _effect(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """tau(x) of two actions."""
        moved = self.bracket == "moved"
        match self.name:
            case "DGP1":
                index = self._indices(x, 1)[:, 0]
                return 2.0 * np.tanh(index) / self._divisor if moved else 2.0 * np.tanh(index / self._divisor)
            case "DGP2":
                return 1.5 * (np.sin(x[:, 0]) + x[:, 1] if moved else np.sin(x[:, 0] + x[:, 1]))
            case _:
                step = x[:, 0] > 0
                return 2.5 * step - 0.5 + 0.2 * x[:, 1] if moved else 2.5 * (step - 0.5 + 0.2 * x[:, 1])

    def _gains(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_a(x) - b(x) of more actions."""
        a = float(self.shift) * np.arange(self.first, self.first + self.n_actions)
        z, moved = self._indices(x, self.n_actions) / self._divisor, self.bracket == "moved"
        match self.name:
            case "DGP1":
                return 1.5 * (np.sin(z) + 0.3 * a if moved else np.sin(z + 0.3 * a))
            case "DGP2":
                return 2.0 * (np.tanh(z) - 0.2 * a if moved else np.tanh(z - 0.2 * a))
            case _:
                return 1.0 * (z + 0.1 * a > 0) if moved else (z > 0) + 0.1 * a


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read the text: what is `quote`d, what it is `read` as, and what that changes of the design.

    `cases` are the designs it changes. `n` is the number of rows in a trial, where it is not the stated one; with
    `anew` the index vectors are drawn in every trial; with `exact` welfare and regret are those of conditional means.
    """

    name: str
    quote: str
    read: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    cases: tuple[str, ...] = NAMES
    n: int | None = None
    anew: bool = False
    exact: bool = False
    known: str = ""

    def design(self, case: str, n_actions: int, *, index_seed: int) -> ReadDesign:
        """The design of a case under this reading."""
        return replace(ReadDesign(case, n_actions), index_seed=index_seed, **self.changes)


STATED = Reading("stated", "", "the design as written")

_NOISE = "independent eps ~ N(0, 1)"
_VARIANCE = "the printed variances were known to be those of 370 to 520 test rows"
_ORACLE = "its oracle was known to be near print"
_FOR_ALL = (
    Reading("no baseline", "the baseline outcome mean is", "left out of the outcomes", {"baseline": "none"}),
    Reading("noise sd 0.5", _NOISE, "a standard deviation of 0.5", {"noise_sd": 0.5}),
    Reading("noise sd 2", _NOISE, "a standard deviation of 2", {"noise_sd": 2.0}),
    Reading("uniform features", "from a standard normal distribution", "uniform on (-1, 1)", {"uniform": True}),
    Reading(
        "conditional means", "computed on a held-out test set using the realized potential outcomes",
        "welfare and regret of conditional means, as in the learning curves", exact=True,
    ),
    Reading(
        "2,000 rows", "n = 5000 (6000, 8000) observations", "2,000 in all, 400 of them to test on", n=FEW_ROWS,
        known=_VARIANCE,
    ),
)  # fmt: skip
_SQUARE = Reading(
    "square before", "0.5 x_2^2 - 0.25 x_3 x_4 (DGP1); 0.3 x_2 - 0.2 x_3^2 (DGP2)",
    "the square on the feature before: x_1^2 + 0.5 x_2; 0.3 x_2^2 - 0.2 x_3", {"baseline": "before"},
    ("DGP1", "DGP2"), known=f"in DGP2 {_ORACLE}",
)  # fmt: skip


def _of_indices(cases: tuple[str, ...], steps: tuple[str, ...], known: str) -> tuple[Reading, ...]:
    """Readings of the index vectors: those of their size where `cases` have one, of their draw also in `steps`."""
    every = (*cases, *steps)
    return (
        Reading("not divided", "x'w / sqrt(d)", "x'w", {"divided": False}, cases, known=known),
        Reading("w anew", "a fixed (a random) unit-norm vector", "drawn in every trial", {}, every, anew=True),
        Reading(
            "w normal", "unit-norm vector", "standard normal, x'w / sqrt(d), drawn in every trial",
            {"unit_norm": False}, cases, anew=True,
            known=known and "a random w was thought to explain the printed variance of DGP1",
        ),
        Reading(
            "w normal, not divided", "unit-norm vector; x'w / sqrt(d)", "standard normal, x'w, drawn in every trial",
            {"unit_norm": False, "divided": False}, cases, anew=True,
        ),
        Reading("d = 5", "d = 10", "five features", {"n_features": 5}, every),
    )  # fmt: skip


_TOGETHER = {"divided": False, "baseline": "before"}
_READ_TOGETHER = "not divided, square before and 2,000 rows at once"
_AT_ONCE = Reading(
    "together", "those above", _READ_TOGETHER, _TOGETHER, ("DGP1", "DGP2"), FEW_ROWS, known="made of what was known"
)

BINARY: tuple[Reading, ...] = (
    STATED,
    *_of_indices(("DGP1",), (), f"with two actions {_ORACLE}"),
    _SQUARE,
    *_FOR_ALL,
    Reading(
        "bracket moved", "tanh(x'w / sqrt(d)); sin(x_1 + x_2); 2.5 (1[x_1 > 0] - 0.5 + 0.2 x_2)",
        "tanh(x'w) / sqrt(d); sin(x_1) + x_2; 2.5 1[x_1 > 0] - 0.5 + 0.2 x_2", {"bracket": "moved"},
    ),
    Reading(
        "actions -1 and 1", "Y(1) = gamma_0(X) + tau(X) + eps_1",
        "Y = gamma_0 + a tau + eps with a = -1 or 1, as scores are",
        {"coding": (-1.0, 1.0)},
    ),
    Reading(
        "gamma_0 in the middle", "Y(0) = gamma_0(X) + eps_0",
        "the middle of both means: gamma_0 - tau / 2 and gamma_0 + tau / 2",
        {"coding": (-0.5, 0.5)},
    ),
    _AT_ONCE,
)  # fmt: skip

MULTI: tuple[Reading, ...] = (
    STATED,
    *_of_indices(("DGP1", "DGP2"), ("DGP3",), ""),
    _SQUARE,
    *_FOR_ALL,
    Reading(
        "bracket moved", "sin(x'w_a / sqrt(d) + 0.3 a); tanh(x'w_a / sqrt(d) - 0.2 a); 1[x'w_a / sqrt(d) > 0] + 0.1 a",
        "sin(x'w_a / sqrt(d)) + 0.3 a; tanh(x'w_a / sqrt(d)) - 0.2 a; 1[x'w_a / sqrt(d) + 0.1 a > 0]",
        {"bracket": "moved"},
    ),
    Reading("actions from 0", "a in {1, ..., K}", "a = 0, ..., K - 1 in the formulas", {"first": 0}),
    Reading(
        "no shift", "+ 0.3 a; - 0.2 a; + 0.1 a", "left out", {"shift": False},
        known="a rough sum had put its oracle in DGP1 near print",
    ),
    _AT_ONCE,
    Reading(
        "together, noise sd 0.5, no shift", "those above", f"{_READ_TOGETHER}, noise of sd 0.5, no term in a",
        {**_TOGETHER, "noise_sd": 0.5, "shift": False}, n=FEW_ROWS,
        known="a rough sum from the printed oracles and regrets had pointed to it",
    ),
)  # fmt: skip

READINGS: Mapping[str, tuple[Reading, ...]] = {
    "synthetic-binary": BINARY,
    "synthetic-K": MULTI,
    "cf-synthetic-binary": BINARY,
    "cf-synthetic-K": MULTI,
}


def readings_of(table: str, case: str) -> list[Reading]:
    """Those that change a design of a table, the stated one first."""
    return [reading for reading in READINGS[table] if case in reading.cases]
