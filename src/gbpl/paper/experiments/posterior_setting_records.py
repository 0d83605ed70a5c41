"""Runs of the one-dimensional posterior studies under other settings: the example, intervals and decisions."""

from __future__ import annotations

import warnings
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.datasets import Sample
from gbpl.paper.experiments.catalog import EXAMPLE, TABLES
from gbpl.paper.experiments.posterior import (
    DESIGN,
    OBSERVED,
    PAPER,
    SURROGATE,
    TEST,
    TRAIN,
    decision_records,
    drawn_scores,
    fitted_problems,
    interval_ends,
    randomized_welfare,
    target_welfare,
)
from gbpl.paper.experiments.posterior_settings import DECISIONS, INTERVALS, SGLD_SETTINGS, PosteriorSetting
from gbpl.paper.experiments.protocol import Settings, outcome_scale
from gbpl.paper.experiments.records import Record
from gbpl.posterior.problem import PosteriorError, PosteriorWarning, Problem
from gbpl.posterior.sgld import SGLD

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["DECISION_TABLES", "example_lines", "interval_lines", "setting_case"]

EXAMPLE_RUNS, REPLICATIONS = 5, 40
FIRST_SEED = 1000  # of the interval table: these are its first replications
DECISION_TABLES = ("action-disagreement", "posterior-threshold-rules")
DRAWS = 300  # of SGLD


def setting_case(table: str, case: str, name: str) -> str:
    """The case of a setting's lines; the example has no cases."""
    return f"{table} {case}: {name}" if case else f"{table}: {name}"


# -- the example --------------------------------------------------------------------------------------------


def example_lines(settings: Settings) -> list[Record]:
    """Mean and 95 % interval of welfare by SGLD on the test rows, of a few runs under every setting."""
    observed, lines = settings.rows(OBSERVED), []
    runs = range(2 if settings.quick else EXAMPLE_RUNS)
    samples = [DESIGN.sample(observed + TEST, seed=run) for run in runs]
    problems = fitted_problems([(_rows(sample, slice(observed)), run) for run, sample in enumerate(samples)], settings)
    for run, (sample, problem) in enumerate(zip(samples, problems, strict=True)):
        test = _rows(sample, slice(observed, None))

        @cache
        def scores(
            eta: float, prior_sd: float, step_size: float, thin: int,
            problem: Problem = problem, x: np.ndarray = test.x, run: int = run,
        ) -> np.ndarray:  # fmt: skip
            return _sgld(replace(problem, eta=eta * problem.eta, prior_sd=prior_sd), step_size, thin, x, run, settings)

        for setting in SGLD_SETTINGS:
            f = scores(setting.eta, setting.prior_sd, setting.step_size, setting.thin)
            outcomes = test.outcome_mean if setting.realized is False else test.outcomes
            played = f if setting.welfare == "randomized" else np.where(f >= 0, 1.0, -1.0)
            values = _summary(randomized_welfare(played, outcomes)) if len(f) else {}
            lines.append(Record(setting_case(EXAMPLE, "", setting.name), *PAPER, run, values))
    return lines


def _rows(sample: Sample, rows: slice) -> Sample:
    return Sample(sample.x[rows], sample.outcomes[rows], sample.outcome_mean[rows])


def _sgld(
    problem: Problem, step_size: float, thin: int, x: Float[np.ndarray, "row feature"], seed: int, settings: Settings
) -> Float[np.ndarray, "draw row"]:
    """f of each draw on each row; no draws where the chain ran away."""
    short = {"burn_in": 50} if settings.quick else {}
    problem = replace(problem, params=jax.tree.map(np.asarray, problem.params))
    sampler = SGLD(problem, chains=1, step_size=step_size, thin=1 if settings.quick else thin, **short)
    # A chain is thousands of tiny steps, one after the other: work of the host, whatever device there is.
    with jax.default_device(jax.local_devices(backend="cpu")[0]), warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # one chain of the paper's length mixes badly
        try:
            draws = sampler.sample(DRAWS, seed=seed)
        except PosteriorError:
            return np.empty((0, len(x)))
    return np.asarray(SURROGATE.scores(sampler.raw(draws, jnp.asarray(x, np.float32))))[..., 0]


def _summary(welfare: Float[np.ndarray, " draw"]) -> dict[str, float]:
    low, high = np.quantile(welfare, [0.025, 0.975])
    return {"welfare_mean": float(welfare.mean()), "low": float(low), "high": float(high), "width": float(high - low)}


# -- intervals, disagreement and threshold rules ------------------------------------------------------------


def interval_lines(settings: Settings) -> list[Record]:
    """Lines of the interval table under every setting, and of the two tables on decisions under theirs."""
    numbers = range(2 if settings.quick else REPLICATIONS)
    lines: list[Record] = []
    for setting in INTERVALS:
        for case in TABLES["uq-evaluation"].cases:
            lines += _intervals(setting, case, numbers, settings)
    for setting in DECISIONS:
        lines += _decided(setting, numbers, settings)
    _replications.cache_clear()
    return lines


@cache
def _replications(
    numbers: range, settings: Settings, observed: int, standardized: bool, eta: float, prior_sd: float
) -> list[tuple[Problem, Sample]]:
    """Fits of all replications with these, and their samples as the network sees them."""
    samples = [DESIGN.sample(settings.rows(observed), seed=FIRST_SEED + number) for number in numbers]
    if standardized:
        samples = [Sample(_standard(sample.x, sample.x), sample.outcomes, sample.outcome_mean) for sample in samples]
    fits = [(sample, FIRST_SEED + number) for number, sample in zip(numbers, samples, strict=True)]
    problems = fitted_problems(fits, settings, eta=eta, prior_sd=prior_sd)
    return [
        (replace(problem, eta=problem.eta / eta), sample) for problem, sample in zip(problems, samples, strict=True)
    ]


def _standard(x: Float[np.ndarray, "row 1"], observed: Float[np.ndarray, "row 1"]) -> Float[np.ndarray, "row 1"]:
    train = observed[: round(TRAIN * len(observed))]
    return (x - train.mean()) / train.std()


def _drawn(
    setting: PosteriorSetting, eta: float, number: int, problem: Problem, observed: Sample, settings: Settings
) -> tuple[Float[np.ndarray, "draw row"], np.ndarray, Sample]:
    """f of each draw on new points, that of the point estimate, and the points."""
    seed = FIRST_SEED + number
    fresh = DESIGN.sample(setting.points, seed=10**6 + seed)
    x = fresh.x
    if setting.standardized:
        x = _standard(x, DESIGN.sample(settings.rows(setting.observed), seed=seed).x)
    if setting.every_row:
        target = np.asarray(SURROGATE.target(observed.outcomes / outcome_scale(observed.outcomes)), np.float32)
        problem = replace(problem, x=observed.x.astype(np.float32), target=target)
    point = np.asarray(SURROGATE.scores(problem.model.apply(problem.params, jnp.asarray(x, np.float32))))[:, 0]
    return drawn_scores(problem, setting.eta * eta, x.astype(np.float32), seed), point, fresh


def _fits(setting: PosteriorSetting, eta: float, numbers: range, settings: Settings) -> list[tuple[Problem, Sample]]:
    fit_eta = eta if setting.refit else 1.0
    return _replications(numbers, settings, setting.observed, setting.standardized, fit_eta, setting.prior_sd)


def _intervals(setting: PosteriorSetting, case: str, numbers: range, settings: Settings) -> list[Record]:
    eta, lines = float(case), []
    for number, (problem, observed) in zip(numbers, _fits(setting, eta, numbers, settings), strict=True):
        f, _, fresh = _drawn(setting, eta, number, problem, observed, settings)
        means = fresh.outcome_mean
        counted = fresh.outcomes if setting.realized else means
        if setting.welfare == "rule":
            f, target = np.where(f >= 0, 1.0, -1.0), float(means.max(axis=1).mean())
        else:
            target = target_welfare(means)
        values = {"target": target, **interval_ends(randomized_welfare(f, counted))}
        lines.append(Record(setting_case("uq-evaluation", case, setting.name), *PAPER, number, values))
    return lines


def _decided(setting: PosteriorSetting, numbers: range, settings: Settings) -> list[Record]:
    lines = []
    for number, (problem, observed) in zip(numbers, _fits(setting, 1.0, numbers, settings), strict=True):
        f, point, fresh = _drawn(setting, 1.0, number, problem, observed, settings)
        p = np.mean(f >= 0, axis=0)
        made = decision_records(*PAPER, number, np.column_stack([1 - p, p]), point >= 0, fresh.outcome_mean)
        for table in DECISION_TABLES:
            lines += [
                Record(setting_case(table, line.case, setting.name), *PAPER, number, line.values)
                for line in made[table]
            ]
    return lines
