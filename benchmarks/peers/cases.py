"""The cases that methods are compared on: designs with a known truth, and classification with one guess a row.

    binary/DGP{1,2,3}/{500,2000,8000}        two actions, 10 features, a logging index of strength 1 clipped at 0.05
    binary/DGP{1,3}/3000                     the same, the sample size that figures are quoted for
    multi/DGP{1,2,3}/{2000,8000}             five actions, the same strength, never clipped
    weak/DGP2/6000                           two actions, strength 2.5, no clipping: weak overlap
    digits, optdigits, vehicle               a random half to learn from, one guess a row, 1 if it is right

Replication r draws its design, its logging policy and its rows with seed r. Regret is that of the chosen actions on
test rows under the known conditional means: 10,000 fresh rows of a design, the other half of a classification, where it
is the error rate.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.special import softmax

from gbpl.datasets import BinaryDesign, LoggedDesign, MultiActionDesign, load
from gbpl.datasets.samples import unit_rows

__all__ = ["CASES", "Case", "Problem", "regret", "stored"]

TEST_ROWS = 10_000
FEW, MANY = 3, 5  # replications, of large cases and of the others
LOG_STRENGTH = 0.5  # of the guesses at a class: the smallest chance of one is about 0.01


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What a method sees, and `outcome_mean`, the truth at the test rows, which it must not."""

    x: np.ndarray  # row feature
    action: np.ndarray  # row
    outcome: np.ndarray  # row
    propensity: np.ndarray  # row action: e_a(x), exact
    x_test: np.ndarray  # test feature
    propensity_test: np.ndarray  # test action: the logging policy is a known function
    outcome_mean: np.ndarray  # test action


@dataclass(frozen=True, slots=True)
class Case:
    """A name, how many replications it has unless asked for, and how one is drawn from its seed and the data folder."""

    name: str
    replications: int
    draw: Callable[[int, Path | None], Problem]


def _design(kind: type, name: str, n: int, strength: float, clip: float, seed: int, _: Path | None) -> Problem:
    design = kind(name, index_seed=seed)
    log = LoggedDesign(design, strength=strength, clip=clip, index_seed=seed)
    sample, fresh = log.sample(n, seed=seed), design.sample(TEST_ROWS, seed=10**6 + seed)
    return Problem(
        sample.x, sample.action, sample.outcome, sample.propensity, fresh.x, log.propensity(fresh.x), fresh.outcome_mean
    )


@cache
def _classes(name: str, data_dir: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Features, and a column for each class, 1 where it is the row's."""
    data = load(name, data_dir=data_dir)
    return data.frame[data.features].to_numpy(np.float64), data.frame[data.outcomes].to_numpy(np.float64)


def _classification(name: str, seed: int, data_dir: Path | None) -> Problem:
    """e_a(x) = exp(z'w_a / 2) / sum over b of exp(z'w_b / 2), as in `digits_logged`, but w_a from the seed.

    z are the features less their means, over one scale for all, their root mean square; both of the training half.
    """
    x, right = _classes(name, data_dir)
    split, index, guess = (np.random.default_rng([seed, key]) for key in range(3))
    order = split.permutation(len(x))
    train, test = np.array_split(order, 2)
    centre = x[train].mean(axis=0)
    scale = np.sqrt(np.mean((x[train] - centre) ** 2))
    w = unit_rows(right.shape[1], x.shape[1], index)
    propensity = softmax(LOG_STRENGTH * ((x - centre) / scale) @ w.T, axis=1)
    u = guess.random((len(train), 1))
    action = np.sum(u >= np.cumsum(propensity[train], axis=1)[:, :-1], axis=1)
    return Problem(
        x[train], action, right[train, action], propensity[train], x[test], propensity[test], right[test]
    )  # fmt: skip


def _case(folder: str, kind: type, name: str, n: int, strength: float = 1.0, clip: float = 0.05) -> Case:
    draw = partial(_design, kind, name, n, strength, clip)
    return Case(f"{folder}/{name}/{n}", MANY if n <= 3000 else FEW, draw)


DESIGNS = ("DGP1", "DGP2", "DGP3")
CASES = {
    case.name: case
    for case in (
        *(_case("binary", BinaryDesign, name, n) for name in DESIGNS for n in (500, 2000, 8000)),
        *(_case("binary", BinaryDesign, name, 3000) for name in ("DGP1", "DGP3")),
        *(_case("multi", MultiActionDesign, name, n) for name in DESIGNS for n in (2000, 8000)),
        _case("weak", BinaryDesign, "DGP2", 6000, strength=2.5, clip=0.0),
        *(Case(name, MANY, partial(_classification, name)) for name in ("digits", "optdigits", "vehicle")),
    )
}


def stored(case: Case, seed: int, folder: Path, data_dir: Path | None) -> tuple[Path, Path]:
    """Two files, drawn if they are not there: what methods see, and the truth at the test rows."""
    seen, truth = (folder / kind / case.name / f"{seed}.npz" for kind in ("problems", "truths"))
    if not (seen.exists() and truth.exists()):
        problem = case.draw(seed, data_dir)
        names = ("x", "action", "outcome", "propensity", "x_test", "propensity_test")
        _save(truth, outcome_mean=problem.outcome_mean)
        _save(seen, **{name: getattr(problem, name) for name in names})
    return seen, truth


def _save(path: Path, **arrays: np.ndarray) -> None:
    """Whole or not at all: an interrupted run must not leave half a file to be read by the next."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part.npz")
    np.savez(part, **arrays)
    os.replace(part, path)


def regret(action: np.ndarray, outcome_mean: np.ndarray) -> float:
    """mean over rows of max_a gamma_a(x) - gamma of the action chosen."""
    rows, count = outcome_mean.shape
    if action.shape != (rows,) or not np.isin(action, np.arange(count)).all():
        raise ValueError(
            f"a method must choose one of 0 to {count - 1} for each of {rows} rows, got shape {action.shape} with "
            f"values such as {np.unique(action)[:4].tolist()}; give columns of the propensities"
        )
    return float(np.mean(outcome_mean.max(axis=1) - outcome_mean[np.arange(rows), action.astype(np.int64)]))
