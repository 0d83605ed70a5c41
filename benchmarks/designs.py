"""Designs with known truth for studies of what users read: strong and weak effects, none, rare events, heavy tails.

A case is a name of `CASES`: a design, the number of rows, and how it is seen (full feedback, or a log whose
propensities are known or estimated). `sample(case, seed)` draws what a user has; `fresh(case)` new rows with their mean
outcomes. `STUDIES` are designs as `gbpl.coverage_study` takes them, with the number of rows of each.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from gbpl.datasets import BinaryDesign, MultiActionDesign, OneDimensionalDesign
from gbpl.datasets.samples import unit_rows

__all__ = ["CASES", "STUDIES", "Case", "Seen", "Simple", "fresh", "sample"]

FRESH_SEED = 10**6


@dataclass(frozen=True)
class Simple:
    """Mean outcomes of K actions as a function of normal features, and noise of some kind."""

    kind: str
    n_actions: int
    n_features: int = 6
    noise: str = "normal"

    def means(self, x: np.ndarray) -> np.ndarray:
        n, zero = len(x), np.zeros(len(x))
        base = 0.5 * x[:, -1]
        match self.kind:
            case "null":
                return np.column_stack([base] * self.n_actions)
            case "constant":
                return np.column_stack([base, base + 0.1])
            case "weak":
                return np.column_stack([zero, 0.1 * x[:, 0], zero + 0.05])
            case "rates":
                low = 0.1 + 0.05 / (1.0 + np.exp(-x[:, 1]))
                return np.column_stack([low, low + 0.05 * (x[:, 0] > 0), low + 0.025])
            case "steps":
                effect = np.where((x[:, 0] > 0) ^ (x[:, 1] > 0), 0.8, -0.8) + 0.4 * (x[:, 2] > 0.5)
                return np.column_stack([base, base + effect])
            case "xor":
                return np.column_stack([base, base + np.where((x[:, 0] > 0) ^ (x[:, 1] > 0), 1.0, -1.0)])
            case "linear-sine":  # x'w_a / 2 + sin(2 x'v_a) / 2, with unit vectors that never change
                w, v = (unit_rows(self.n_actions, self.n_features, np.random.default_rng(key)).T for key in (101, 102))
                return 0.5 * (x @ w + np.sin(2.0 * (x @ v)))
            case "tails":
                return np.column_stack([base, base + np.sin(x[:, 0] + x[:, 1])])
            case "many":
                angles = np.arange(self.n_actions) * 2 * np.pi / self.n_actions
                return 0.5 * (np.outer(x[:, 0], np.cos(angles)) + np.outer(x[:, 1], np.sin(angles))) + np.zeros((n, 1))
            case _:
                raise ValueError(self.kind)

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, self.n_features))
        mean = self.means(x)
        if self.kind == "rates":
            return x, (rng.random(mean.shape) < mean).astype(float), mean
        noise = rng.standard_t(2.5, mean.shape) if self.noise == "tails" else rng.standard_normal(mean.shape)
        return x, mean + noise, mean


@dataclass(frozen=True)
class Paper:
    """One of the paper's designs."""

    design: Any

    @property
    def n_actions(self) -> int:
        return self.design.n_actions

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        drawn = self.design.sample(n, seed=seed)
        return drawn.x, drawn.outcomes, drawn.outcome_mean


class Case(NamedTuple):
    design: Any
    n: int
    seen: str  # "full", "randomized", "logged" (propensities vary with x, known), "weak overlap" or "estimated"


CASES: dict[str, Case] = {
    "DGP1 full 1000": Case(Paper(BinaryDesign("DGP1")), 1000, "full"),
    "DGP2 full 500": Case(Paper(BinaryDesign("DGP2")), 500, "full"),
    "DGP2 full 2000": Case(Paper(BinaryDesign("DGP2")), 2000, "full"),
    "DGP3 logged 1000": Case(Paper(BinaryDesign("DGP3")), 1000, "logged"),
    "DGP3 full 3000": Case(Paper(BinaryDesign("DGP3")), 3000, "full"),
    "DGP2 estimated 1000": Case(Paper(BinaryDesign("DGP2")), 1000, "estimated"),
    "five DGP1 logged 1500": Case(Paper(MultiActionDesign("DGP1")), 1500, "logged"),
    "five DGP2 full 1000": Case(Paper(MultiActionDesign("DGP2")), 1000, "full"),
    "five DGP3 full 1000": Case(Paper(MultiActionDesign("DGP3")), 1000, "full"),
    "one-dimensional full 500": Case(Paper(OneDimensionalDesign()), 500, "full"),
    "null randomized 1000": Case(Simple("null", 2), 1000, "randomized"),
    "constant randomized 1500": Case(Simple("constant", 2), 1500, "randomized"),
    "weak three randomized 1500": Case(Simple("weak", 3), 1500, "randomized"),
    "rates three randomized 1500": Case(Simple("rates", 3), 1500, "randomized"),
    "steps logged 1000": Case(Simple("steps", 2), 1000, "logged"),
    "tails randomized 1500": Case(Simple("tails", 2, noise="tails"), 1500, "randomized"),
    "ten actions randomized 1500": Case(Simple("many", 10), 1500, "randomized"),
}


def sample(case: Case, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
    """Features, and the other arguments of `fit`."""
    x, outcomes, _ = case.design.draw(case.n, seed)
    if case.seen == "full":
        return x, {"y": outcomes}
    count = case.design.n_actions
    rng = np.random.default_rng([seed, 7])
    direction = np.random.default_rng(77).standard_normal((x.shape[1], count))
    direction /= np.linalg.norm(direction, axis=0)
    strength, even = {"randomized": (0.0, 0.1), "weak overlap": (2.5, 0.04)}.get(case.seen, (0.7, 0.1))
    propensity = (1.0 - even) * softmax(strength * x @ direction, axis=1) + even / count
    action = np.sum(rng.random((len(x), 1)) >= np.cumsum(propensity, axis=1)[:, :-1], axis=1)
    log = {"y": outcomes[np.arange(len(x)), action], "action": action}
    return x, log if case.seen == "estimated" else log | {"propensity": propensity}


def fresh(case: Case, rows: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """New rows, the same in every replication, and their mean outcomes."""
    x, _, mean = case.design.draw(rows, FRESH_SEED)
    return x, mean


@dataclass(frozen=True)
class Seen:
    """A case as `gbpl.coverage_study` takes it: what a user has, and the mean outcomes.

    `extra` is "weights" (people over-sampled by their first feature, and weighted back), "groups" (of ten rows, which
    share half of the noise and the first feature) or "costs" (0.1 for every action but the first).
    """

    case: Case
    extra: str | None = None

    def sample(self, n: int, *, seed: int) -> SimpleNamespace:
        case = self.case._replace(n=n)
        if self.extra == "weights":  # a row is kept with a probability that its weight undoes
            case = case._replace(design=_Tilted(case.design))
        elif self.extra == "groups":
            case = case._replace(design=_Grouped(case.design))
        x, given = sample(case, seed)
        _, _, mean = case.design.draw(n, seed)
        names = {"outcomes" if "action" not in given else "outcome": given.pop("y")}
        made = SimpleNamespace(x=x, outcome_mean=mean, **names, **given)
        if self.extra == "weights":
            made.sample_weight = 1.0 / _kept(x)
        elif self.extra == "groups":
            made.groups = np.arange(n) // GROUP
        elif self.extra == "costs":
            made.cost = np.array([0.0] + [0.1] * (mean.shape[1] - 1))
        return made


GROUP = 10


def _kept(x: np.ndarray) -> np.ndarray:
    return 0.2 + 0.8 / (1.0 + np.exp(-2.0 * x[:, 0]))


@dataclass(frozen=True)
class _Tilted:
    """Rows of a design kept with probability `_kept`."""

    design: Any

    @property
    def n_actions(self) -> int:
        return self.design.n_actions

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, outcomes, mean = self.design.draw(6 * n + 100, seed)
        rows = np.flatnonzero(np.random.default_rng([seed, 8]).random(len(x)) < _kept(x))[:n]
        return x[rows], outcomes[rows], mean[rows]


@dataclass(frozen=True)
class _Grouped:
    """Groups of rows that share their first feature and half of the variance of their noise."""

    design: Any

    @property
    def n_actions(self) -> int:
        return self.design.n_actions

    def draw(self, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x, outcomes, mean = self.design.draw(n, seed)
        noise = outcomes - mean
        first = np.arange(n) // GROUP * GROUP
        x[:, 0] = x[first, 0]
        mean = self.design.means(x)
        return x, mean + np.sqrt(0.5) * (noise + noise[first]), mean


STUDIES: dict[str, tuple[Seen, int]] = {
    "no effect, n = 1,000": (Seen(Case(Simple("null", 2), 0, "randomized")), 1000),
    "three actions, weak, n = 1,500": (Seen(Case(Simple("weak", 3), 0, "randomized")), 1500),
    "rates 0.1 to 0.2, three arms, n = 2,000": (Seen(Case(Simple("rates", 3), 0, "randomized")), 2000),
    "five actions, n = 2,000": (Seen(Case(Paper(MultiActionDesign("DGP1")), 0, "logged")), 2000),
    "steps, n = 1,000": (Seen(Case(Simple("steps", 2), 0, "logged")), 1000),
    "estimated propensities, n = 1,500": (Seen(Case(Paper(BinaryDesign("DGP3")), 0, "estimated")), 1500),
    "DGP2, n = 1,000": (Seen(Case(Paper(BinaryDesign("DGP2")), 0, "logged")), 1000),
    "constant effect, n = 2,000": (Seen(Case(Simple("constant", 2), 0, "randomized")), 2000),
    "weights, n = 1,000": (Seen(Case(Simple("tails", 2), 0, "randomized"), "weights"), 1000),
    "groups of 10, n = 1,500": (Seen(Case(Simple("tails", 2), 0, "randomized"), "groups"), 1500),
    "costs, three actions, n = 1,500": (Seen(Case(Simple("weak", 3), 0, "randomized"), "costs"), 1500),
    "weak overlap, n = 1,500": (Seen(Case(Simple("tails", 2), 0, "weak overlap")), 1500),
    "full feedback, n = 500": (Seen(Case(Paper(BinaryDesign("DGP2")), 0, "full")), 500),
    "full feedback, no effect, n = 500": (Seen(Case(Simple("null", 3), 0, "full")), 500),
    "n = 300": (Seen(Case(Simple("tails", 2), 0, "randomized")), 300),
    "heavy tails, n = 1,000": (Seen(Case(Simple("tails", 2, noise="tails"), 0, "randomized")), 1000),
}
