"""Designs with known truth for studies of what users read: strong and weak effects, none, rare events, heavy tails.

A case is a name of `CASES`: a design, the number of rows, and how it is seen (full feedback, or a log whose
propensities are known or estimated). `sample(case, seed)` draws what a user has; `fresh(case)` new rows with their mean
outcomes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax

from gbpl.datasets import BinaryDesign, MultiActionDesign, OneDimensionalDesign

__all__ = ["CASES", "Case", "fresh", "sample"]

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
    seen: str  # "full", "randomized", "logged" (propensities vary with x, known) or "estimated"


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
    strength = 0.0 if case.seen == "randomized" else 0.7
    propensity = 0.9 * softmax(strength * x @ direction, axis=1) + 0.1 / count
    action = np.sum(rng.random((len(x), 1)) >= np.cumsum(propensity, axis=1)[:, :-1], axis=1)
    log = {"y": outcomes[np.arange(len(x)), action], "action": action}
    return x, log if case.seen == "estimated" else log | {"propensity": propensity}


def fresh(case: Case, rows: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """New rows, the same in every replication, and their mean outcomes."""
    x, _, mean = case.design.draw(rows, FRESH_SEED)
    return x, mean
