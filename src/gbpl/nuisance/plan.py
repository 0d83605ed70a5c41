"""The outcome models of a cross-fitting: planned in full, then fitted together (section 7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbpl.feedback.content import content_order
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import member_outputs
from gbpl.fitting.convergence import warn_if_unfinished
from gbpl.fitting.members import Member
from gbpl.fitting.stack import StackFit, StackProblem, fit_stacks
from gbpl.models.adapters import as_model
from gbpl.models.base import ScoreModel
from gbpl.models.networks import MLP
from gbpl.nuisance.averaged import KNOTS, additive_means, convex_weights, earned_weights, forest_means
from gbpl.nuisance.learners import MaskedSquare, PerAction, WithAction
from gbpl.nuisance.nuisances import Nuisances
from gbpl.runtime.threads import beside, few_threads

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from gbpl.nuisance.cross_fit import CrossFit

    Means = tuple[Float[np.ndarray, "held action"], Float[np.ndarray, "part action"]]

__all__ = ["Job", "Plan", "fit_plans"]

# Beside a forest and an additive regression: smooth units where means are smooth, kinks where they are nearly 0 or 1
AUTO_NETWORKS = {"network": MLP(hidden=(64, 64)), "relu network": MLP(hidden=(64, 64), activation="relu")}
OPTIONAL = "relu network"  # in the average where it earns its place
PROMISING = 1.0  # standard errors for which the first few fits of it are enough to make the others


class Job(NamedTuple):
    """One outcome model: it learns from `known`, and predicts `held` (fold `number`, with a share) and `part`."""

    number: int
    held: Int[np.ndarray, " row"]
    part: Int[np.ndarray, " row"]
    known: Int[np.ndarray, " row"]
    share: float
    seed: int


class Plan(NamedTuple):
    """Everything about one run but its outcome models: one job per model, with `columns` outputs.

    With `outer` folds each job also predicts its part for the policies that are evaluated on the outer fold.
    """

    settings: CrossFit
    feedback: LoggedFeedback
    propensity: Float[np.ndarray, "..."]
    clip: float
    jobs: list[Job]
    action: Int[np.ndarray, " row"]
    columns: int
    folds: list[Int[np.ndarray, " row"]]
    outer: list[Int[np.ndarray, " row"]] | None

    @property
    def rank(self) -> Int[np.ndarray, " output"]:
        """The place of each action among the outputs of a network: by the rows that took it, whatever it is called."""
        rank = np.zeros(self.columns, np.int32)
        if self.columns > 1:
            _, ranks = content_order(self.feedback)
            assert ranks is not None
            rank[self.action] = ranks
        return rank

    @property
    def spread(self) -> tuple[float, float]:
        """Mean and standard deviation of the outcome, the latter zero where it is constant."""
        outcome = self.feedback.outcome
        level, spread = float(outcome.mean()), float(outcome.std())
        return level, spread if spread > 1e-12 * abs(level) else 0.0

    def stack(self) -> StackProblem:
        """The jobs as members of a stack, each stopped by its part."""
        feedback, w = self.feedback, self.feedback.weights
        rows = np.arange(len(feedback), dtype=np.int32)
        x = Standardizer.fit(feedback.context, rows, w).apply(feedback.context)
        members = [
            Member(
                job.known,
                job.part,
                weights=None if w is None else w[job.known],
                validation_weights=None if w is None else w[job.part],
                seed=job.seed,
            )
            for job in self.jobs
        ]
        level, spread = self.spread
        target = ((feedback.outcome - level) / spread).astype(np.float32), self.rank[self.action].astype(np.int32)
        return StackProblem(x, target, members)

    @property
    def first(self) -> list[int]:
        """The places of the jobs of as few trainings as predict every row by a model that did not see it."""
        by_training: dict[int, list[int]] = {}  # twins have one seed
        for place, job in enumerate(self.jobs):
            by_training.setdefault(job.seed, []).append(place)
        left, places = {job.number for job in self.jobs}, []
        while left:
            most = max(by_training.values(), key=lambda own: len(left & {self.jobs[place].number for place in own}))
            left -= {self.jobs[place].number for place in most}
            places += most
        return sorted(places)

    def by_network(
        self, model: ScoreModel, problem: StackProblem, stack: StackFit, places: Sequence[int]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Means of the held rows and of the part of the jobs in these places, by the members of a stack in turn."""
        (level, spread), rank = self.spread, self.rank
        for number, job in enumerate(self.jobs[place] for place in places):
            new = np.concatenate([job.held, job.part])
            outputs = member_outputs(model, stack.select([number]), problem.x[new])[0][:, rank]
            means = level + spread * outputs.astype(np.float64)
            yield means[: len(job.held)], means[len(job.held) :]

    def by_learner(self, learner: PerAction | WithAction) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same, by scikit-learn models; one that leaves out two folds is fitted once for both."""
        feedback = self.feedback
        x, y = feedback.context, feedback.outcome
        of_twin: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # whose held rows are this one's part
        for job in self.jobs:
            if job.seed in of_twin:
                yield of_twin.pop(job.seed)
                continue
            weights = None if feedback.weights is None else feedback.weights[job.known]
            new = np.concatenate([job.held, job.part])
            means = learner.predict_means(
                x[job.known], y[job.known], self.action[job.known], weights, x[new], self.columns
            )
            of_held, of_part = means[: len(job.held)], means[len(job.held) :]
            of_twin[job.seed] = of_part, of_held
            yield of_held, of_part

    def constant(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same, where the outcome never varies."""
        level, _ = self.spread
        for job in self.jobs:
            yield np.full((len(job.held), self.columns), level), np.full((len(job.part), self.columns), level)

    def nuisances(self, predictions: Iterator[tuple[np.ndarray, np.ndarray]]) -> Nuisances:
        feedback, outer, repeats = self.feedback, self.outer, self.settings.repeats
        means = fold_means = None
        if self.jobs:
            means = np.zeros((len(feedback), self.columns))
            if outer is not None:
                fold_means = np.zeros((len(outer), *means.shape))
            for job, (of_held, of_part) in zip(self.jobs, predictions, strict=True):
                means[job.held] += job.share * of_held
                if fold_means is not None:
                    fold_means[job.number, job.part] += of_part / repeats
            if outer is not None and fold_means is not None:
                for number, fold in enumerate(outer):
                    fold_means[number, fold] = means[fold]
        return Nuisances(
            feedback, self.propensity, self.clip, feedback.propensity is None, means, fold_means, folds=self.folds
        )

    def networks(self) -> dict[str, Any]:
        """Networks of the outcomes, by name: several are averaged, where two folds can be left out of others."""
        settings = self.settings
        if not settings.averages:
            return {"network": as_model(MLP() if settings.outcome_model is None else settings.outcome_model)}
        count = len(AUTO_NETWORKS) if self.columns > 1 and len(self.folds) > 2 else 1
        return dict(islice(AUTO_NETWORKS.items(), count))

    def promising(self, tried: Mapping[int, Means], smooth: Nuisances, others: Mapping[str, Any]) -> bool:
        """Whether the optional network may earn its place, by its `first` jobs, beside the other learners.

        Where not, its other jobs are left out. Where it may, it is judged by all of them, and for each fold by models
        and rows that know nothing of it.
        """
        feedback, rows = self.feedback, np.arange(len(self.feedback))
        means: Any = np.empty((len(feedback), self.columns))
        for place, (of_held, _) in tried.items():
            means[self.jobs[place].held] = of_held
        tables = [means, smooth.means, *(part for part, _ in others.values())]
        predictions = np.column_stack([part[rows, feedback.action] for part in tables])
        return bool(earned_weights(predictions, feedback.outcome, feedback.weights, 0, least=PROMISING)[0] > 0.0)

    def by_others(self) -> dict[str, Any]:
        """Means of the learners that are averaged with networks, by name."""
        seed = self.settings.seeds(8, count=1)[0] % 2**31
        with few_threads(KNOTS * self.feedback.context.shape[1]):
            forest = forest_means(self.feedback, self.folds, seed=seed)
            return {"forest": forest, "additive": additive_means(self.feedback, self.folds)}

    def averaged(self, networks: Mapping[str, Nuisances], others: Mapping[str, Any]) -> Nuisances:
        """The networks' means averaged with those of other learners, by their errors on rows they did not see."""
        feedback, network = self.feedback, next(iter(networks.values()))
        by_learner: dict[str, Any] = {name: (part.means, part.fold_means) for name, part in networks.items()}
        by_learner |= others
        rows, names = np.arange(len(feedback)), list(by_learner)

        def shares_by(tables: Sequence[Any], known: Int[np.ndarray, " row"]) -> Float[np.ndarray, " learner"]:
            predictions = np.column_stack([means[known, feedback.action[known]] for means in tables])
            weights = None if feedback.weights is None else feedback.weights[known]
            if OPTIONAL not in names:
                return convex_weights(predictions, feedback.outcome[known], weights)
            return earned_weights(predictions, feedback.outcome[known], weights, names.index(OPTIONAL))

        shares = shares_by([part for part, _ in by_learner.values()], rows)
        means: Any = sum(share * part for share, (part, _) in zip(shares, by_learner.values(), strict=True))
        fold_means: Any = None
        if network.fold_means is not None:
            fold_means = np.zeros_like(network.fold_means)
            for number, fold in enumerate(self.outer or ()):  # by rows and models that know nothing of the fold
                tables = [part[number] for _, part in by_learner.values() if part is not None]
                own = shares_by(tables, np.setdiff1d(rows, fold, assume_unique=True))
                fold_means[number] = sum(share * table for share, table in zip(own, tables, strict=True))
        named = dict.fromkeys([*self.networks(), *others], 0.0) | dict(zip(by_learner, shares.tolist(), strict=True))
        return replace(network, means=means, fold_means=fold_means, shares=named)


def fit_plans(plans: Sequence[Plan]) -> list[Nuisances]:
    """Fit the outcome models of several runs: networks of those that share their settings are one stack."""
    done: dict[int, Nuisances] = {}
    together: dict[_Key, list[int]] = {}
    for number, plan in enumerate(plans):
        settings, learner = plan.settings, plan.settings.learner
        if learner is not None or not plan.jobs:
            done[number] = plan.nuisances(plan.by_learner(learner) if learner is not None else iter(()))
        elif plan.spread[1] == 0.0:
            done[number] = plan.nuisances(plan.constant())
        else:
            for name, model in plan.networks().items():
                width = plan.feedback.context.shape[1]
                key = _Key(name, model, plan.columns, settings.fit_config, settings.device, settings.progress, width)
                together.setdefault(key, []).append(number)
    by_network: dict[int, dict[str, Nuisances]] = {}
    waiting = {number for numbers in together.values() for number in numbers}
    with beside() as hand:  # numpy leaves time to compile the networks and train them
        others = {n: hand(plans[n].by_others) for n in sorted(waiting) if len(plans[n].networks()) > 1}
        for key, numbers in together.items():
            places: dict[int, Sequence[int]] = {number: range(len(plans[number].jobs)) for number in numbers}
            made: dict[int, dict[int, Means]] = {number: {} for number in numbers}
            if key.name == OPTIONAL:
                made = _predicted(plans, key, {number: plans[number].first for number in numbers})
                places = {
                    number: [place for place in places[number] if place not in tried]
                    for number, tried in made.items()
                    if plans[number].promising(tried, by_network[number]["network"], others[number].result())
                }
            for number, by_job in _predicted(plans, key, places).items():
                plan, by_job = plans[number], made[number] | by_job
                nuisances = plan.nuisances(by_job[place] for place in range(len(plan.jobs)))
                by_network.setdefault(number, {})[key.name] = nuisances
        for number, networks in by_network.items():
            alone = number not in others
            done[number] = networks["network"] if alone else plans[number].averaged(networks, others[number].result())
    return [done[number] for number in range(len(plans))]


class _Key(NamedTuple):
    """What the outcome networks of one stack share."""

    name: str
    model: ScoreModel
    columns: int
    config: Any
    device: Any
    progress: bool | None
    width: int


def _predicted(plans: Sequence[Plan], key: _Key, places: Mapping[int, Sequence[int]]) -> dict[int, dict[int, Means]]:
    """What networks of the jobs in some places of some plans predict, by place, fitted as one stack."""
    if not places:
        return {}
    problems = []
    for number, own in places.items():
        x, target, members = plans[number].stack()
        problems.append(StackProblem(x, target, [members[place] for place in own]))
    stacks = fit_stacks(
        problems, MaskedSquare(key.columns), key.model, config=key.config, device=key.device, progress=key.progress
    )
    made: dict[int, dict[int, Means]] = {}
    for (number, own), problem, stack in zip(places.items(), problems, stacks, strict=True):
        plan = plans[number]
        names = [f"fold {plan.jobs[place].number}" for place in own]
        warn_if_unfinished(stack, key.config, names, what="the fit of the outcome models")
        made[number] = dict(zip(own, plan.by_network(key.model, problem, stack, own), strict=True))
    return made
