"""The foil: the update with negative welfare, which the introduction argues against, beside the surrogate's.

Three comparisons, none of them printed in the paper. `posterior`: both posteriors of one small model on the
one-dimensional design, drawn by NUTS, at several loss scales, units of the outcomes and priors. `chain`: SGLD from the
MAP of the example's network, four times as long as in the paper. The others: zeta selected by welfare, by the reduced
loss (appendix G.3) and by the full one, on the binary designs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.datasets import BinaryDesign, OneDimensionalDesign
from gbpl.decisions.rules import disagreement
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import member_policies
from gbpl.fitting.members import Member
from gbpl.fitting.stack import StackProblem
from gbpl.models.splines import Splines
from gbpl.paper.experiments.catalog import FOIL
from gbpl.paper.experiments.protocol import Settings, outcome_scale
from gbpl.paper.experiments.records import Record
from gbpl.path.out_of_fold import OutOfFold, select_by_reduced_loss, select_weights
from gbpl.posterior.nuts import NUTS
from gbpl.posterior.problem import PosteriorWarning, Problem
from gbpl.posterior.sgld import SGLD
from gbpl.surrogates import Binary, NegativeWelfare, Surrogate
from gbpl.value.welfare import regret

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = [
    "CASES", "CHAIN", "DESIGN", "METHODS", "POSTERIOR", "SELECTION", "STEPS", "TRIALS", "VARIATIONS", "ZETAS",
    "run",
]  # fmt: skip

POSTERIOR, CHAIN, SELECTION = "posterior", "chain", ("DGP1", "DGP2", "DGP3")
CASES = (POSTERIOR, CHAIN, *SELECTION)
TRIALS = 12
AT_MOST = {POSTERIOR: 8, CHAIN: 4}  # trials of what takes longer
DESIGN = OneDimensionalDesign()
ROWS, POINTS, DRAWS, WARMUP = 900, 2000, 400, 300  # 900 are the example's rows to train on
MODEL = Splines(knots=8)  # eight weights, for which NUTS mixes
METHODS: tuple[tuple[str, str, Surrogate, float], ...] = (
    ("negative welfare", "", NegativeWelfare(), 1.0),
    ("surrogate", "1.0", Binary(), 1.0),
    ("surrogate", "0.1", Binary(), 0.1),
)
STEPS = (0, 3600, 14_400)  # the second is as long as the paper's chain
WEAK_PRIOR = 100.0
ZETAS = (10.0, 3.0, 1.0, 0.1, 0.01, 0.001)  # the paper's grid and two above it
OBSERVED, TEST = 1000, 10_000


@dataclass(frozen=True, slots=True)
class Variation:
    """A loss scale, a unit and a level of the outcomes, and a prior; zeta and eta do not follow the unit."""

    eta: float = 1.0
    unit: float = 1.0
    level: float = 0.0
    prior_sd: float = 1.0

    def of(self, outcomes: Float[np.ndarray, "row action"]) -> Float[np.ndarray, "row action"]:
        return self.unit * outcomes + self.level


VARIATIONS: Mapping[str, Variation] = {
    "eta 0.25": Variation(eta=0.25),
    "eta 1": Variation(),
    "eta 4": Variation(eta=4.0),
    "eta 16": Variation(eta=16.0),
    "outcomes times 10": Variation(unit=10.0),
    "outcomes plus 5": Variation(level=5.0),
    "prior sd 3": Variation(prior_sd=3.0),
}


def run(case: str, part: str, numbers: Sequence[int], settings: Settings) -> dict[str, list[Record]]:
    """Lines of some trials of a case; there is one part."""
    numbers = [number for number in numbers if number < AT_MOST.get(case, number + 1)]
    if case == POSTERIOR:
        return {FOIL: [line for number in numbers for line in _posteriors(number, settings)]}
    if case == CHAIN:
        return {FOIL: _chains(numbers, settings)}
    return {FOIL: _selections(case, numbers, settings)}


# -- both posteriors ----------------------------------------------------------------------------------------


def _posteriors(number: int, settings: Settings) -> list[Record]:
    sample = DESIGN.sample(settings.rows(ROWS), seed=number)
    fresh = DESIGN.sample(POINTS, seed=10**6 + number)
    standardizer = Standardizer.fit(sample.x, np.arange(len(sample.x), dtype=np.int32))
    lines = []
    for name, variation in VARIATIONS.items():
        for method, zeta, surrogate, value in METHODS:
            problem = Problem(
                model=MODEL, surrogate=surrogate, x=standardizer.apply(sample.x),
                target=np.asarray(surrogate.target(variation.of(sample.outcomes)), np.float32), weights=None,
                zeta=value, eta=variation.eta, prior_sd=variation.prior_sd, params=MODEL.init(jax.random.key(0), 1, 1),
            )  # fmt: skip
            raw, quality = _draws(problem, standardizer.apply(fresh.x), number, settings)
            best = surrogate.population_policy(variation.of(fresh.outcome_mean), value)
            values = _measured(raw, fresh.outcome_mean, np.asarray(best)[:, 1])
            lines.append(Record(name, method, zeta, number, {**values, "rhat": quality}))
    return lines


def _draws(problem: Problem, x: np.ndarray, seed: int, settings: Settings) -> tuple[np.ndarray, float]:
    """Raw outputs of draws on rows, and the largest R-hat of outputs and log density."""
    sampler = NUTS(problem, warmup=20 if settings.quick else WARMUP)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # the quality is in the record
        draws = sampler.sample(20 if settings.quick else DRAWS, seed=seed)
    raw = np.asarray(sampler.raw(draws, jnp.asarray(x)), np.float64)[..., 0]
    return raw, float(sampler.diagnostics["max_rhat"])


def _measured(
    raw: Float[np.ndarray, "draw row"], means: Float[np.ndarray, "row action"], best: Float[np.ndarray, " row"]
) -> dict[str, float]:
    """What draws decide, how they differ, and whether the interval covers the welfare of the loss's own best policy."""
    tau = means[:, 1] - means[:, 0]
    treated = (np.tanh(raw) + 1.0) / 2.0
    p, chosen = np.mean(raw >= 0, axis=0), treated.mean(axis=0) >= 0.5
    optimum = np.mean(np.maximum(tau, 0.0))
    welfare = np.mean(treated * tau, axis=1)  # above that of nobody treated
    low, high = np.quantile(welfare, [0.025, 0.975])
    return {
        "regret": float(optimum - np.mean(chosen * tau)),
        "draw_regret": float(optimum - np.mean((raw >= 0) * tau)),
        "spread": float(np.mean(treated.std(axis=0))),
        "disagreement": float(np.mean(disagreement(np.column_stack([1.0 - p, p])))),
        "width": float(high - low),
        "covered": float(low <= np.mean(best * tau) <= high),
        "score": float(np.sqrt(np.mean(raw**2))),
        "saturated": float(np.mean(np.abs(np.tanh(raw)) > 0.99)),
    }


# -- a network's chain --------------------------------------------------------------------------------------


def _chains(numbers: Sequence[int], settings: Settings) -> list[Record]:
    """Root mean square raw output on the training rows as SGLD goes on from the MAP, for two priors."""
    lines = []
    for method, zeta, surrogate, value in METHODS[:2]:
        for prior_sd in (1.0, WEAK_PRIOR):
            problems = [_stacked(number, surrogate, value, prior_sd, settings) for number in numbers]
            stacks = settings.fit(problems, surrogate, network=settings.posterior_network, batch_size=128)
            for number, (x, target, (member,)), stack in zip(numbers, problems, stacks, strict=True):
                problem = Problem(
                    model=settings.posterior_network, surrogate=surrogate, x=x[member.train],
                    target=target[member.train], weights=None, zeta=member.zeta, eta=member.eta,
                    prior_sd=prior_sd, params=jax.tree.map(lambda leaf: leaf[0], stack.params),
                )  # fmt: skip
                values = _along(problem, number, settings)
                lines.append(Record(f"chain, prior sd {prior_sd:g}", method, zeta, number, values))
    return lines


def _stacked(number: int, surrogate: Surrogate, zeta: float, prior_sd: float, settings: Settings) -> StackProblem:
    """The example's rows, 0.75 of them to train on; zeta and eta = 1 in units of the outcome scale."""
    sample = DESIGN.sample(settings.rows(1200), seed=number)
    scale, rows = outcome_scale(sample.outcomes), np.arange(len(sample.x), dtype=np.int32)
    cut = round(0.75 * len(rows))
    member = Member(rows[:cut], rows[cut:], zeta=zeta / scale, eta=scale, prior_sd=prior_sd, seed=number)
    target = np.asarray(surrogate.target(sample.outcomes / scale), np.float32)
    return StackProblem(sample.x.astype(np.float32), target, [member])


def _along(problem: Problem, seed: int, settings: Settings) -> dict[str, float]:
    """Size of the scores at each of `STEPS`, and of the weights."""
    thin = 10 if settings.quick else STEPS[1]
    sampler = SGLD(problem, burn_in=0, thin=thin, chains=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # one chain, whose drift is what is looked at
        draws = sampler.sample(STEPS[-1] // STEPS[1], seed=seed)
    every = jax.tree.map(lambda first, later: np.concatenate([np.asarray(first)[None], later]), problem.params, draws)
    raw = np.asarray(sampler.raw(every, jnp.asarray(problem.x)), np.float64)[..., 0]
    norm = np.sqrt(sum(np.sum(np.reshape(leaf, (len(raw), -1)) ** 2.0, axis=1) for leaf in jax.tree.leaves(every)))
    places = {step: step // STEPS[1] for step in STEPS}
    score = {f"score {step}": float(np.sqrt(np.mean(raw[place] ** 2))) for step, place in places.items()}
    return score | {f"norm {step}": float(norm[place]) for step, place in places.items()}


# -- which zeta ---------------------------------------------------------------------------------------------


def _selections(case: str, numbers: Sequence[int], settings: Settings) -> list[Record]:
    """The zeta that each criterion picks on the rows to stop on, and the regret of its rule."""
    design, surrogate = BinaryDesign(case), Binary()
    samples = [design.sample(settings.rows(OBSERVED), seed=number) for number in numbers]
    problems, standardizers = [], []
    for number, sample in zip(numbers, samples, strict=True):
        scale, rows = outcome_scale(sample.outcomes), np.arange(len(sample.x), dtype=np.int32)
        cut = round(0.8 * len(rows))
        base = Member(rows[:cut], rows[cut:], eta=scale, seed=number)
        standardizers.append(Standardizer.fit(sample.x, rows[:cut]))
        target = np.asarray(surrogate.target(sample.outcomes / scale), np.float32)
        members = [replace(base, zeta=zeta / scale) for zeta in ZETAS]
        problems.append(StackProblem(standardizers[-1].apply(sample.x), target, members))
    lines: list[Record] = []
    fits = zip(numbers, samples, problems, standardizers, settings.fit(problems, surrogate), strict=True)
    for number, sample, problem, standardizer, stack in fits:
        test = design.sample(TEST, seed=10**6 + number)
        held = problem.members[0].validation
        stopped, new = (
            np.asarray(member_policies(settings.network, surrogate, stack.params, rows))
            for rows in (problem.x[held], standardizer.apply(test.x))
        )
        rules = np.eye(2)[(new[..., 1] >= 0.5).astype(int)]
        lost = [regret(policy, test.outcome_mean) for policy in rules]
        picks = _picked(stopped, sample.outcomes[held]) | {"least regret": int(np.argmin(lost))}
        for method, place in picks.items():
            lines.append(Record(case, method, "", number, {"picked": ZETAS[place], "regret": lost[place]}))
    return lines


def _picked(
    policies: Float[np.ndarray, "zeta row action"], outcomes: Float[np.ndarray, "row action"]
) -> dict[str, int]:
    """Place in the grid of what each criterion picks."""
    zetas = np.array(ZETAS)
    sums = OutOfFold(zetas, Binary())
    sums.add(policies, outcomes, None)
    path, gap = sums.path(), (outcomes[:, 1] - outcomes[:, 0])[:, None]
    scores = 2.0 * policies[..., 1].T - 1.0
    full = np.mean(0.5 * (gap / np.sqrt(zetas) - np.sqrt(zetas) * scores) ** 2, axis=0)
    return {
        "welfare": int(np.argmax(select_weights(path))),
        "reduced loss": int(np.argmax(select_by_reduced_loss(path))),
        "full loss": int(np.argmin(full)),
    }
