"""The one-dimensional posterior studies: welfare intervals, action disagreement, threshold rules, and the example.

One network per replication is fitted to x itself, at eta = 1. Its last layer is drawn from the generalized Gauss-Newton
approximation at each eta, 400 times, and every draw decides 2,000 new points with known means. Intervals are of the
randomized policy's welfare, and what they should cover is that of the population target clip(tau / zeta, -1, 1), played
in the same way.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.datasets import OneDimensionalDesign, Sample
from gbpl.decisions.rules import disagreement, threshold_rule
from gbpl.estimators.many import fit_many, hold_out_many
from gbpl.fitting.members import Member
from gbpl.fitting.stack import StackProblem
from gbpl.paper.experiments.catalog import AUTO, DEFAULT, LEVELS, TABLES
from gbpl.paper.experiments.protocol import Settings, outcome_scale
from gbpl.paper.experiments.records import Record
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.problem import PosteriorWarning, Problem
from gbpl.posterior.sgld import SGLD
from gbpl.surrogates import Binary

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = [
    "decision_records", "default_records", "drawn_scores", "example", "example_records", "fitted_problems",
    "interval_ends", "posterior_records", "randomized_welfare", "target_welfare",
]  # fmt: skip

DESIGN, SURROGATE, ZETA = OneDimensionalDesign(), Binary(), 1.0
OBSERVED, TRAIN, TEST = 1200, 0.75, 300  # 0.6, 0.2 and 0.2 of 1500; the last are used by the example only
POINTS, DRAWS = 2000, 400
DECISION_ETA = 4.0  # of disagreement and threshold rules: the one calibrated before
PAPER = ("GBPLNet", "1.0")


def fitted_problems(
    fits: Sequence[tuple[Sample, int]], settings: Settings, *, eta: float = 1.0, prior_sd: float = 1.0
) -> list[Problem]:
    """The generalized posterior of a network for each sample and seed, at one eta, all fitted as one stack."""
    problems = []
    for sample, seed in fits:
        scale = outcome_scale(sample.outcomes)
        rows = np.arange(len(sample.x), dtype=np.int32)
        cut = round(TRAIN * len(rows))
        member = Member(rows[:cut], rows[cut:], zeta=ZETA / scale, eta=eta * scale, prior_sd=prior_sd, seed=seed)
        target = np.asarray(SURROGATE.target(sample.outcomes / scale), np.float32)
        problems.append(StackProblem(sample.x.astype(np.float32), target, [member]))
    stacks = settings.fit(problems, SURROGATE, network=settings.posterior_network, batch_size=128)
    posteriors = []
    for (x, target, (member,)), stack in zip(problems, stacks, strict=True):
        params = jax.tree.map(lambda leaf: leaf[0], stack.params)
        posteriors.append(
            Problem(
                model=settings.posterior_network, surrogate=SURROGATE, x=x[member.train], target=target[member.train],
                weights=None, zeta=member.zeta, eta=member.eta, prior_sd=member.prior_sd, params=params,
            )
        )  # fmt: skip
    return posteriors


def _sample(seed: int, settings: Settings) -> Sample:
    return DESIGN.sample(settings.rows(OBSERVED), seed=seed)


def drawn_scores(problem: Problem, eta: float, x: Float[np.ndarray, "row feature"], seed: int) -> np.ndarray:
    """f of each draw on each row, at a loss scale of eta."""
    posterior = LastLayer(replace(problem, eta=eta * problem.eta))
    raw = posterior.raw(posterior.sample(DRAWS, seed=seed), jnp.asarray(x))
    return np.asarray(SURROGATE.scores(raw))[..., 0]


def randomized_welfare(
    f: Float[np.ndarray, "*draw row"], means: Float[np.ndarray, "row action"]
) -> Float[np.ndarray, "*draw"]:
    """Welfare of (f + 1) / 2, for each draw."""
    return np.mean(means[:, 0] + (np.asarray(f, np.float64) + 1.0) / 2.0 * (means[:, 1] - means[:, 0]), axis=-1)


def target_welfare(means: Float[np.ndarray, "row action"]) -> float:
    return float(randomized_welfare(np.clip((means[:, 1] - means[:, 0]) / ZETA, -1.0, 1.0), means))


def interval_ends(draws: Float[np.ndarray, " draw"]) -> dict[str, float]:
    ends: dict[str, float] = {}
    for level in LEVELS:
        low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
        ends |= {f"low{round(100 * level)}": float(low), f"high{round(100 * level)}": float(high)}
    return ends


def posterior_records(
    intervals: str, numbers: Sequence[int], start: int, settings: Settings, *, decisions: bool
) -> dict[str, list[Record]]:
    """Lines of an interval table, and of disagreement and threshold rules if asked for; trial t has seed start + t."""
    tables: dict[str, list[Record]] = {intervals: []}
    if decisions:
        tables |= {"action-disagreement": [], "posterior-threshold-rules": []}
    problems = fitted_problems([(_sample(start + number, settings), start + number) for number in numbers], settings)
    for number, problem in zip(numbers, problems, strict=True):
        seed = start + number
        fresh = DESIGN.sample(POINTS, seed=10**6 + seed)
        x, means = fresh.x.astype(np.float32), fresh.outcome_mean
        point = np.asarray(SURROGATE.scores(problem.model.apply(problem.params, jnp.asarray(x))))[:, 0]
        for case in TABLES[intervals].cases:
            f = drawn_scores(problem, float(case), x, seed)
            values = {
                "target": target_welfare(means),
                "welfare": float(randomized_welfare(point, means)),
                **interval_ends(randomized_welfare(f, means)),
            }
            tables[intervals].append(Record(case, *PAPER, number, values))
            if decisions and float(case) == DECISION_ETA:
                p = np.mean(f >= 0, axis=0)
                for name, lines in decision_records(
                    *PAPER, number, np.column_stack([1 - p, p]), point >= 0, means
                ).items():
                    tables[name] += lines
    return tables


def decision_records(
    method: str, zeta: str, number: int, p: Float[np.ndarray, "row action"], chosen: np.ndarray, means: np.ndarray
) -> dict[str, list[Record]]:
    """Lines of the disagreement and of the threshold table, from action probabilities and the point decision."""
    tau = means[:, 1] - means[:, 0]
    best, u = tau >= 0, disagreement(p)
    lost = np.abs(tau) * (chosen != best)
    group = np.minimum((u / 0.2 + 1e-9).astype(int), 4)
    groups = []
    for place, case in enumerate(TABLES["action-disagreement"].cases):
        mine = group == place
        values = {"points": float(mine.sum())}
        if mine.any():
            columns = {"disagreement": u, "agreement": chosen == best, "margin": np.abs(tau), "regret": lost}
            values |= {name: float(np.mean(column[mine])) for name, column in columns.items()}
        groups.append(Record(case, method, zeta, number, values))

    def welfare(treated: np.ndarray) -> float:
        return float(np.mean(np.where(treated, means[:, 1], means[:, 0])))

    optimum, of_map, rules = welfare(best), welfare(chosen), []
    for case in TABLES["posterior-threshold-rules"].cases:
        alpha = float(case)
        treated = threshold_rule(p, alpha=alpha).action == 1
        values = {
            "welfare": welfare(treated),
            "map": of_map,
            "difference": welfare(treated) - of_map,
            "uncertain": float(np.mean((p[:, 1] >= alpha) & (p[:, 1] <= 1 - alpha))),
            "change": float(np.mean(treated != chosen)),
            "regret": optimum - welfare(treated),
        }
        rules.append(Record(case, method, zeta, number, values))
    return {"action-disagreement": groups, "posterior-threshold-rules": rules}


def default_records(
    intervals: str, numbers: Sequence[int], start: int, settings: Settings, *, decisions: bool
) -> dict[str, list[Record]]:
    """`GBPL()`: its interval, and its rule with what its draws say of it if asked for.

    It averages over zetas, so the paper's target, which belongs to one zeta, is not its own. The interval is the one
    its users read: of the population welfare of the rule it has learned, from the rows of the fit alone.
    """
    tables: dict[str, list[Record]] = {intervals: []}
    if decisions:
        tables |= {"action-disagreement": [], "posterior-threshold-rules": []}
    samples = [_sample(start + number, settings) for number in numbers]
    policies = [settings.default(start + number) for number in numbers]
    policies = fit_many(policies, [{"X": sample.x, "y": sample.outcomes} for sample in samples])
    hold_out_many(policies)
    x, means = _population()
    for number, policy in zip(numbers, policies, strict=True):
        seed = start + number
        worth = float(np.mean(means[np.arange(len(x)), policy.predict(x)]))
        drawn = policy.population_welfare(seed=seed)
        tables[intervals].append(
            Record(AUTO, *DEFAULT, number, {"target": worth, "welfare": worth, **interval_ends(drawn.values)})
        )
        if decisions:
            fresh = DESIGN.sample(POINTS, seed=10**6 + seed)
            p = policy.posterior().action_probability(fresh.x, draws=DRAWS, seed=seed)
            chosen = policy.predict(fresh.x) == 1
            for name, lines in decision_records(*DEFAULT, number, p, chosen, fresh.outcome_mean).items():
                tables[name] += lines
    return tables


def _population() -> tuple[np.ndarray, np.ndarray]:
    """Features at 20,000 evenly spaced quantiles of their distribution, and the means there: welfare to about 1e-4."""
    x = -2.5 + 5.0 * (np.arange(20_000) + 0.5)[:, None] / 20_000
    return x, DESIGN.outcome_mean(x)


def example_records(numbers: Sequence[int], settings: Settings) -> list[Record]:
    """What the text says of its one run, of runs with other seeds; trial 0 is the one of the figures."""
    return [Record("", *PAPER, number, _example_numbers(example(settings, seed=number))) for number in numbers]


def _example_numbers(arrays: dict[str, np.ndarray]) -> dict[str, float]:
    """Loss, welfare mean and interval, and of the scores how near their mean is to the target and how wide their band.

    `miss` is the mean distance of posterior mean and target where the target is inside (-1, 1), `edge` the mean size of
    the posterior mean where it is on the boundary; `band` and `edge_band` are widths of the pointwise 95 % band near
    the decision boundary (the target within 1/2 of zero) and where the target is on the boundary.
    """
    low, high = np.quantile(arrays["welfare"], [0.025, 0.975])
    below, above = np.quantile(arrays["draws"], [0.025, 0.975], axis=0)
    mean, size = arrays["draws"].mean(axis=0), np.abs(arrays["target"])
    return {
        "validation_loss": float(arrays["validation_loss"]),
        "welfare_mean": float(np.mean(arrays["welfare"])),
        "low": float(low),
        "high": float(high),
        "miss": float(np.mean(np.abs(mean - arrays["target"])[size < 1])),
        "edge": float(np.mean(np.abs(mean)[size == 1])),
        "band": float(np.mean((above - below)[size < 0.5])),
        "edge_band": float(np.mean((above - below)[size == 1])),
    }


def example(settings: Settings, *, seed: int = 0) -> dict[str, np.ndarray]:
    """One run of SGLD with the paper's settings, as arrays: scores on a grid, welfare on 300 test rows, both points."""
    observed = settings.rows(OBSERVED)
    sample = DESIGN.sample(observed + TEST, seed=seed)
    learned = Sample(sample.x[:observed], sample.outcomes[:observed], sample.outcome_mean[:observed])
    (problem,) = fitted_problems([(learned, seed)], settings)
    held, test = slice(round(TRAIN * observed), observed), slice(observed, None)
    sampler = SGLD(problem, chains=1, **({"burn_in": 50, "thin": 1} if settings.quick else {}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # one chain of the paper's length mixes badly
        draws = sampler.sample(300, seed=seed)

    def f(x: np.ndarray) -> np.ndarray:
        return np.asarray(SURROGATE.scores(sampler.raw(draws, jnp.asarray(x, np.float32))))[..., 0]

    def at_map(x: np.ndarray) -> np.ndarray:
        return np.asarray(SURROGATE.scores(problem.model.apply(problem.params, jnp.asarray(x, np.float32))))[:, 0]

    grid = np.linspace(-2.5, 2.5, 201)
    taken = f(sample.x[test]) >= 0
    welfare = np.where(taken, sample.outcomes[test, 1], sample.outcomes[test, 0]).mean(axis=1)
    gap = sample.outcomes[held, 1] - sample.outcomes[held, 0]
    return {
        "grid": grid,
        "draws": f(grid[:, None]),
        "map": at_map(grid[:, None]),
        "target": np.clip(DESIGN.effect(grid[:, None]) / ZETA, -1.0, 1.0),
        "welfare": welfare,
        "at_1": f(np.array([[1.0]]))[:, 0],
        "at_2": f(np.array([[2.0]]))[:, 0],
        "validation_loss": np.array(0.5 * np.mean((gap - at_map(sample.x[held])) ** 2)),
    }
