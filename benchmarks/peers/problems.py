"""What a replication is made of: a log that methods learn from, test rows, and what actions are worth there.

Three kinds: a design of which rows are drawn, a table of outcomes under every action of which a logging policy shows
one, and a real trial of which one half is learned from and the other judges.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gbpl.datasets import LoggedDesign, load
from gbpl.datasets.samples import unit_rows

sys.path.append(str(Path(__file__).resolve().parents[1]))
from designs import Simple

__all__ = ["Problem", "Tables", "classification", "design", "file_trial", "regret", "simple", "table", "trial"]

TEST_ROWS = 10_000
TRAINING_ROWS = 3_000  # at most, of a table or a trial: so many more would take hours in all
LOG_STRENGTH = 0.5  # of the guesses at a class: the smallest chance of one is about 0.01
JUDGE_FOLDS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """What a method sees; and the truth at the test rows, which it must not: `outcome_mean` and `best`.

    `best` is the value to which regret is measured: of the best action of each row where means are known, of the best
    single action in a trial, where `outcome_mean` are doubly robust scores.
    """

    x: np.ndarray  # row feature
    action: np.ndarray  # row
    outcome: np.ndarray  # row
    propensity: np.ndarray  # row action: e_a(x), exact
    x_test: np.ndarray  # test feature
    propensity_test: np.ndarray  # test action: the logging policy is a known function
    outcome_mean: np.ndarray  # test action
    best: float


@dataclass(frozen=True, slots=True)
class Tables:
    """Where tables come from: a folder of files that the user names, and packages in environments of their own."""

    files: Path | None
    package: Callable[[str, int], dict[str, np.ndarray]]  # of a source and a setting


def design(
    kind: type, name: str, n: int, strength: float, clip: float, test_rows: int, seed: int, _: Tables
) -> Problem:
    """One of the paper's designs through a logging policy; design, policy and rows are drawn with the seed."""
    drawn = kind(name, index_seed=seed)
    log = LoggedDesign(drawn, strength=strength, clip=clip, index_seed=seed)
    sample, fresh = log.sample(n, seed=seed), drawn.sample(test_rows, seed=10**6 + seed)
    return Problem(
        sample.x, sample.action, sample.outcome, sample.propensity, fresh.x, log.propensity(fresh.x),
        fresh.outcome_mean, float(fresh.outcome_mean.max(axis=1).mean()),
    )  # fmt: skip


def simple(drawn: Simple, n: int, strength: float, seed: int, _: Tables) -> Problem:
    """One of `benchmarks/designs.py`; strength 0 logs every action equally often."""
    x, outcomes, mean = drawn.draw(n + TEST_ROWS, seed)
    rows = np.arange(len(x))
    return _logged(x, outcomes, mean, rows[:n], rows[n:], x, strength, seed)


@cache
def _classes(name: str, files: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """Features, and a column for each class, 1 where it is the row's."""
    data = load(name, data_dir=files)
    return data.frame[data.features].to_numpy(np.float64), data.frame[data.outcomes].to_numpy(np.float64)


def classification(name: str, seed: int, tables: Tables) -> Problem:
    """A classification of gbpl.datasets, one guess a row.

    The features of the guesses are those of the rows less their means, over one scale for all, their root mean
    square, as in `digits_logged`: a pixel that is hardly ever black does not count for more than the others.
    """
    x, right = _classes(name, tables.files)
    train, test = _halves(len(x), seed)
    centred = x - x[train].mean(axis=0)
    z = centred / np.sqrt(np.mean(centred[train] ** 2))
    return _logged(x, right, right, train, test, z, LOG_STRENGTH, seed)


def table(source: str, settings: int, n: int, seed: int, tables: Tables) -> Problem:
    """A table of a package, by the number of the replication where it has several settings.

    The features of the logging policy are the standardised ones of the rows, cut at three standard deviations.
    """
    arrays = tables.package(source, seed % settings)
    x = arrays["x"]
    train, test = _halves(len(x), seed)
    train = train[:n]
    scale = x[train].std(axis=0)
    z = np.clip((x - x[train].mean(axis=0)) / np.where(scale > 0, scale, 1.0), -3.0, 3.0)
    return _logged(x, arrays["outcomes"], arrays["outcome_mean"], train, test[:TEST_ROWS], z, LOG_STRENGTH, seed)


def _halves(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    train, test = np.array_split(np.random.default_rng([seed, 0]).permutation(count), 2)
    return train, test


def _logged(
    x: np.ndarray, outcomes: np.ndarray, mean: np.ndarray, train: np.ndarray, test: np.ndarray, z: np.ndarray,
    strength: float, seed: int,
) -> Problem:  # fmt: skip
    """e_a(x) = exp(s z'w_a) / sum over b of exp(s z'w_b), w_a unit vectors from the seed, and an action from it."""
    index, guess = (np.random.default_rng([seed, key]) for key in (1, 2))
    propensity = softmax(strength * z @ unit_rows(outcomes.shape[1], x.shape[1], index).T, axis=1)
    u = guess.random((len(train), 1))
    action = np.sum(u >= np.cumsum(propensity[train], axis=1)[:, :-1], axis=1)
    return Problem(
        x[train], action, outcomes[train, action], propensity[train], x[test], propensity[test], mean[test],
        float(mean[test].max(axis=1).mean()),
    )  # fmt: skip


def trial(source: str, seed: int, tables: Tables) -> Problem:
    """A random half of a trial, and the other half as its judge."""
    return _judged(seed=seed, **tables.package(source, 0))


def file_trial(name: str, outcome: str | None, seed: int, tables: Tables) -> Problem:
    """The same of a trial of gbpl.datasets, text as dummies."""
    options = {} if outcome is None else {"outcome": outcome}
    data = load(name, data_dir=tables.files, **options)
    x = np.column_stack([column for feature in data.features for column in _numbers(data.frame[feature].to_numpy())])
    names, action = np.unique(data.frame[data.action].to_numpy(), return_inverse=True)
    chance: Any = data.propensity  # of action 1 of two, or the same for all
    row = [1.0 - chance, chance] if len(names) == 2 else [chance] * len(names)
    outcomes = data.frame[data.outcome].to_numpy(np.float64)
    return _judged(x, action, outcomes, np.tile(row, (len(x), 1)), seed)


def _numbers(column: np.ndarray) -> list[np.ndarray]:
    if column.dtype.kind in "biuf":
        return [column.astype(np.float64)]
    return [(column == value).astype(np.float64) for value in np.unique(column.astype(str))[1:]]


def _judged(x: np.ndarray, action: np.ndarray, outcome: np.ndarray, propensity: np.ndarray, seed: int) -> Problem:
    train, test = _halves(len(x), seed)
    train = train[:TRAINING_ROWS]
    scores = judge(x[test], action[test], outcome[test], propensity[test], seed)
    best = float(scores.mean(axis=0).max())
    return Problem(
        x[train], action[train], outcome[train], propensity[train], x[test], propensity[test], scores, best
    )  # fmt: skip


def judge(x: np.ndarray, action: np.ndarray, outcome: np.ndarray, propensity: np.ndarray, seed: int) -> np.ndarray:
    """m_a(x) + 1[A = a] (Y - m_a(x)) / e_a(x), m_a a ridge regression of the other folds.

    Unbiased whatever m_a is, because the chances are known; the regression takes away noise.
    """
    model = np.zeros(propensity.shape)
    for fit, rest in KFold(JUDGE_FOLDS, shuffle=True, random_state=seed).split(x):
        for a in range(propensity.shape[1]):
            rows = fit[action[fit] == a]
            ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-1, 4, 11)))
            model[rest, a] = ridge.fit(x[rows], outcome[rows]).predict(x[rest])
    taken = action[:, None] == np.arange(propensity.shape[1])
    return model + taken * (outcome[:, None] - model) / propensity


def regret(action: np.ndarray, outcome_mean: np.ndarray, best: float) -> float:
    """best less the mean over rows of gamma of the action chosen."""
    rows, count = outcome_mean.shape
    if action.shape != (rows,) or not np.isin(action, np.arange(count)).all():
        raise ValueError(
            f"a method must choose one of 0 to {count - 1} for each of {rows} rows, got shape {action.shape} with "
            f"values such as {np.unique(action)[:4].tolist()}; give columns of the propensities"
        )
    return best - float(np.mean(outcome_mean[np.arange(rows), action.astype(np.int64)]))
