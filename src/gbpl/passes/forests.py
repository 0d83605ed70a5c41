"""Forests beside the networks in passes: trees of the sample, last layers of all rows (sections 4.2 and 6).

Where to split needs few rows, what to do in a leaf many. So the trees of a forest are grown on the rows of the sample
outside its fold, and so is a first last layer, w_0, at the minimum of its objective. One pass over all rows then gives
the gradient of the objective at w_0 on all of them, and

    w = w_0 - H^{-1} gradient,

with H the Gauss-Newton precision by the sample: one Newton step from an estimate that is consistent is as good as the
minimum over all rows, to first order (Le Cam 1956; van der Vaart 1998, section 5.7). Where the sample is all rows, the
gradient is zero and w_0 is the minimum. Nothing looks at the rows of the fold.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from scipy.optimize import minimize

from gbpl.fitting.apply import filled
from gbpl.fitting.stack import FittedMember, StackFit, StackProblem, collect_stack
from gbpl.models.basis import leaf_numbers, leaf_sums
from gbpl.models.networks import Linear
from gbpl.passes.chunks import Passes, ReadChunk
from gbpl.passes.fold_outputs import FoldOutputs
from gbpl.passes.outcome_models import OutcomeTables
from gbpl.path.plan import Plan, scaled_targets
from gbpl.posterior.precision import last_layer_precision
from gbpl.posterior.problem import Problem
from gbpl.runtime.devices import quick_jit
from gbpl.runtime.pipeline import ahead
from gbpl.runtime.threads import in_threads, one_thread
from gbpl.surrogates import Surrogate
from gbpl.trees.forest import ForestFeatures
from gbpl.trees.grow import Binned

if TYPE_CHECKING:
    from jaxtyping import Array, Bool, Float, Int

__all__ = ["Forest", "ForestMembers", "ForestPolicies"]

STEPS, CLOSE = 200, 1e-5  # of the first last layer: most steps, and the slope at which it is close enough
STEP = 1_024  # rows are padded to multiples of it, so that the folds share what is compiled
SHORTEST = 1 / 32  # step that is tried
TRUSTED = 2.0  # times as far may the loss of the sample bend as its curvature says, or the step is too long
ROUNDING = 1e-5  # of a loss in float32


@dataclass(frozen=True, slots=True, eq=False)
class Forest:
    """Trees of the rows of the sample outside a fold, by one of the tables, and the `places` of its members.

    `numbers` are those of the rows it was grown on, sorted, and `bags` says which trees saw which of them. Features are
    computed on the `device`, or in numpy where there is none: gathers are slower in XLA on a CPU.
    """

    model: ForestFeatures
    fold: int
    table: int
    places: list[int]
    trees: dict[str, np.ndarray]
    numbers: Int[np.ndarray, " row"]
    bags: Bool[np.ndarray, "tree row"]
    device: jax.Device | None = None

    def features(
        self, x: Float[np.ndarray, "row feature"], numbers: Int[np.ndarray, " row"]
    ) -> Float[np.ndarray, "row component"]:
        """Features of rows by all trees; of rows that it was grown on, by those that did not see them."""
        phi = self._by_all(x)
        place = np.minimum(np.searchsorted(self.numbers, numbers), len(self.numbers) - 1)
        grown_on = np.flatnonzero(self.numbers[place] == numbers)
        if len(grown_on):
            phi[grown_on] = self.model.unseen_features(self.trees, x[grown_on], self.bags[:, place[grown_on]])
        return phi

    def _by_all(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row component"]:
        feature, threshold, value = self.trees.values()
        if self.device is None or not len(x):
            return leaf_sums(value, leaf_numbers(feature.astype(np.int32), threshold, x))
        padded = filled(x, 1 << (len(x) - 1).bit_length())  # few shapes are compiled
        trees, placed = jax.device_put((self.trees, padded), self.device)
        return np.array(_features(trees, placed, model=self.model))[: len(x)]


class ForestMembers:
    """The members of one forest model of a plan; `learn` fits them, and `stack` has them.

    `last` are their last layers, with the bias as the last row. Those of the `whole` sample leave no fold out.
    """

    def __init__(self, plan: Plan, place: int, passes: Passes, *, whole: bool = False) -> None:
        self.plan, self.passes, self.place = plan, passes, place
        self.members = plan.of_model(place)
        if whole:
            self.members = [replace(member, fold=-1) for member in self.members if member.fold == 0]
        self.model: Any = plan.problem.settings.models[place]
        self.last: dict[int, Float[np.ndarray, "basis raw"]] = {}
        self.loss = np.zeros(len(self.members))
        self.forests: list[Forest] = []

    def learn(self, outcomes: OutcomeTables) -> None:
        """Grow the trees and fit the last layers."""
        self._take_rows(outcomes)
        self.forests = [forest for forest, _ in self._grown()]
        self._refit(outcomes)
        del self.rows

    def of_sample(self, outcomes: OutcomeTables) -> Float[np.ndarray, "entry row action"]:
        """Policies of the members of the whole sample on the rows they were fitted to, by trees that saw them not."""
        self._take_rows(outcomes)
        surrogate, policies = self.plan.surrogate, {}
        for forest, phi in self._grown():
            basis = _with_one(phi)
            for number in forest.places:
                raw = (basis @ self.last[number]).astype(np.float32)
                policies[number] = np.asarray(surrogate.policy(surrogate.scores(raw)))
        return np.stack([policies[number] for number in range(len(self.members))])

    def _take_rows(self, outcomes: OutcomeTables) -> None:
        """The rows that trees are grown on, with members that name those outside their fold."""
        grown, weight = self.passes.grown, self.passes.grown.chunk.weight
        target = scaled_targets(self.plan.surrogate, outcomes.of(grown), self.plan.scale)
        folds = {member.fold or 0 for member in self.members}
        outside = {fold: np.flatnonzero(grown.fold != fold).astype(np.int32) for fold in folds}
        members = []
        for member in self.members:
            train = outside[member.fold or 0]
            weights = None if weight is None else weight[train]
            members.append(replace(member, train=train, weights=weights, validation=train[:0]))
        self.rows = StackProblem(grown.x, target, members)
        n = self.passes.source.n_rows - len(self.passes.sample.x)
        self.thinning = n / len(grown.x)  # of these rows

    @property
    def stack(self) -> StackFit:
        """The members in the order of the plan."""
        of_member = {number: forest for forest in self.forests for number in forest.places}
        fitted = []
        for number in range(len(self.members)):
            last, loss = self.last[number].astype(np.float32), np.array([self.loss[number]])
            params = [of_member[number].trees, {"weight": last[:-1], "bias": last[-1]}]
            fitted.append(FittedMember(params, 1, float(loss[0]), loss, np.empty(0)))
        return collect_stack(self.members, fitted)

    # -- the sample ---------------------------------------------------------------------------------------

    def _grown(self) -> Iterator[tuple[Forest, Float[np.ndarray, "row component"]]]:
        """Every forest, with the features of the rows it was grown on."""
        binned, devices = Binned.of(self.rows.x), cycle(self.passes.devices)
        together: dict[int, dict[int, list[int]]] = {}
        for number, member in enumerate(self.members):
            together.setdefault(member.fold or 0, {}).setdefault(member.table, []).append(number)
        grow = partial(self.model.grow, self.rows, binned)
        for fold, by_table in together.items():  # beside a GPU cores are free for the forests of a fold
            firsts = [self.rows.members[places[0]] for places in by_table.values()]
            each = map(grow, firsts) if self.passes.on_cpu else in_threads(grow, firsts)
            for (table, places), member, (trees, phi) in zip(by_table.items(), firsts, each, strict=True):
                numbers = self.passes.grown.chunk.number[member.train]
                bags = self.model.bags(member.seed, len(numbers))
                device = None if self.passes.on_cpu else next(devices)
                forest = Forest(self.model, fold, table, places, trees, numbers, bags, device)
                self._begin(forest, phi[member.train])
                yield forest, phi[member.train]
                self.passes.tidy()

    def _begin(self, forest: Forest, phi: Float[np.ndarray, "row component"]) -> None:
        """The last layers at the minimum of their objectives on the sample."""
        jobs = zip(forest.places, cycle(self.passes.devices))
        with one_thread(), self._pool() as pool:
            list(pool.map(lambda job: self._minimised(self._problem(job[0], forest, phi), *job), jobs))

    def _problem(self, number: int, forest: Forest, phi: Float[np.ndarray, "row component"]) -> Problem:
        """A member's posterior by the sample, each row of which stands for many."""
        plan, rows, member = self.plan, self.rows, self.rows.members[number]
        weights = None if member.weights is None else member.weights / np.mean(member.weights)
        layer = self.last.get(number, np.zeros((phi.shape[1] + 1, plan.surrogate.n_raw)))
        return Problem(
            self.model, plan.surrogate, rows.x[member.train],
            rows.target[member.table * len(rows.x) + member.train], weights, member.zeta, member.eta * self.thinning,
            member.prior_sd, [forest.trees, {"weight": layer[:-1], "bias": layer[-1]}], phi=phi,
        )  # fmt: skip

    def _minimised(self, problem: Problem, number: int, device: jax.Device) -> None:
        """By quasi-Newton steps in coordinates in which the features have unit second moments."""
        n, ridge = len(problem), _ridge(problem)
        basis = _with_one(problem.phi).astype(np.float64)
        weight = np.ones(n) if problem.weights is None else problem.weights
        moments = (basis * weight[:, None]).T @ basis / n
        moments[np.diag_indices_from(moments)] += max(ridge, 1e-9 * float(np.max(np.diag(moments))))
        root = scipy.linalg.cholesky(moments, lower=True)
        turned = scipy.linalg.solve_triangular(root, basis.T, lower=True).T.astype(np.float32)
        data = _Rows.of(turned, problem.target, weight / n, -(-n // STEP) * STEP, device)

        def back(v: np.ndarray) -> Float[np.ndarray, "basis raw"]:
            return scipy.linalg.solve_triangular(root, v.reshape(len(root), -1), lower=True, trans="T")

        def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
            loss, slope = data.sums(v.reshape(1, len(root), -1), [problem.zeta], problem.surrogate)
            w = back(v)
            penalty = scipy.linalg.solve_triangular(root, ridge * w, lower=True)
            return loss[0] + 0.5 * ridge * float(np.sum(w**2)), (slope[0] + penalty).ravel()

        start = np.zeros(len(root) * problem.surrogate.n_raw)
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS, "gtol": CLOSE})
        self.last[number] = back(found.x)

    # -- all rows -----------------------------------------------------------------------------------------

    def _refit(self, outcomes: OutcomeTables) -> None:
        """One Newton step of every last layer, by a pass over all rows."""
        raw, basis = self.plan.surrogate.n_raw, self.model.components + 1
        slopes = np.zeros((len(self.members), basis, raw))
        losses, weights, rows = (np.zeros(len(self.members)) for _ in range(3))
        jobs = list(zip(self.forests, cycle(self.passes.devices)))

        def add(job: tuple[Forest, jax.Device], read: ReadChunk, targets: np.ndarray) -> None:
            (forest, device), places = job, job[0].places
            own = np.flatnonzero(read.fold != forest.fold)
            weight = np.ones(len(own)) if read.chunk.weight is None else read.chunk.weight[own].astype(np.float64)
            phi = forest.features(read.x[own], read.chunk.number[own])
            size = -(-len(read.x) // STEP) * STEP
            data = _Rows.of(_with_one(phi), targets[forest.table][own], weight, size, device)
            zetas = [self.members[number].zeta for number in places]
            loss, slope = data.sums(np.stack([self.last[number] for number in places]), zetas, self.plan.surrogate)
            losses[places] += loss
            slopes[places] += slope
            weights[places] += weight.sum()
            rows[places] += len(own)

        with one_thread(), self._pool() as pool:
            for read, tables in ahead(outcomes.in_order()):
                targets = scaled_targets(self.plan.surrogate, tables, self.plan.scale).reshape(
                    len(tables), len(read.x), -1
                )
                list(pool.map(lambda job, read=read, targets=targets: add(job, read, targets), jobs))
                self.passes.tidy()
        self.loss = losses / weights
        slopes *= (rows / weights)[:, None, None]  # weights of mean one
        for forest in self.forests:
            phi = self._as_all_rows(forest)
            for number in forest.places:
                self._step(self._problem(number, forest, phi), number, slopes[number])

    def _as_all_rows(self, forest: Forest) -> Float[np.ndarray, "row component"]:
        """Features of the rows that it was grown on as those of all rows are: by all trees, but for a share of them.

        Of all rows it has seen one in `thinning`, whose features are by fewer trees, and vary more.
        """
        member = self.rows.members[forest.places[0]]
        x = self.rows.x[member.train]
        phi = forest.features(x, np.full(len(x), -1))
        seen = np.random.default_rng([member.seed, 13]).random(len(x)) * self.thinning < 1.0
        phi[seen] = forest.features(x[seen], forest.numbers[seen])
        return phi

    def _step(self, problem: Problem, number: int, slope: Float[np.ndarray, "basis raw"]) -> None:
        """A Newton step against the slope of the sum of all rows' losses, halved until the sample's curvature holds."""
        member, start = self.members[number], self.last[number]
        prior = 1.0 / member.prior_sd**2
        precision = last_layer_precision(problem, scale=problem.eta, prior=prior)
        gradient = member.eta * slope + prior * start
        step = -precision.solve(gradient.reshape(-1, 1)).reshape(start.shape)
        expected = -0.5 * float(np.sum(gradient * step))
        weight = np.ones(len(problem)) if problem.weights is None else problem.weights
        size = -(-len(problem) // STEP) * STEP
        data = _Rows.of(_with_one(problem.phi), problem.target, weight, size, self.passes.devices[0])

        def along(length: float) -> tuple[float, float]:
            """The objective of the sample on the way, and its slope there."""
            w = start + length * step
            value, slopes = data.sums(w[None], [problem.zeta], problem.surrogate)
            whole = problem.eta * value[0] + 0.5 * prior * float(np.sum(w**2))
            return float(whole), float(np.sum((problem.eta * slopes[0] + prior * w) * step))

        (here, slope_here), length = along(0.0), 1.0
        while along(length)[0] - here - length * slope_here > TRUSTED * length**2 * expected + ROUNDING * abs(here):
            length /= 2.0
            if length < SHORTEST:
                return
        self.last[number] = start + length * step

    # -- rows of the folds --------------------------------------------------------------------------------

    def policies(self) -> ForestPolicies:
        """Policies of the members on the rows of their folds."""
        return ForestPolicies(self)

    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(max(len(self.passes.devices), os.cpu_count() or 1))


class ForestPolicies:
    """Policies of forest members on rows of the fold that they have not learned from, entry by entry."""

    def __init__(self, of: ForestMembers) -> None:
        settings, members = of.plan.problem.settings, of.members
        self.folds, self.place = of.passes.folds, of.place
        self.forests = {(forest.fold, forest.table): forest for forest in of.forests}
        entries = sorted({member.entry for member in members if member.entry is not None})
        place = {(member.fold, member.entry): number for number, member in enumerate(members)}
        table = {entry: members[place[0, entry]].table for entry in entries}
        self.tables = sorted(set(table.values()))
        self.entries = [[entry for entry in entries if table[entry] == own] for own in self.tables]
        self.outputs = []
        for own in self.entries:
            last = np.stack([[of.last[place[fold, entry]] for entry in own] for fold in range(self.folds)])
            params = [{"weight": last[:, :, :-1].astype(np.float32), "bias": last[:, :, -1].astype(np.float32)}]
            self.outputs.append(FoldOutputs(params, Linear(), of.passes.devices, settings.surrogate))

    def start(self, read: ReadChunk) -> list[Any]:
        """Begin with some rows; `finish` waits for them."""
        pending = []
        for table, outputs in zip(self.tables, self.outputs, strict=True):
            phi: np.ndarray | None = None
            for fold in range(self.folds):
                own = np.flatnonzero(read.fold == fold)
                part = self.forests[fold, table].features(read.x[own], read.chunk.number[own])
                phi = np.empty((len(read.x), part.shape[1]), np.float32) if phi is None else phi
                phi[own] = part
            assert phi is not None
            pending.append(outputs.start(phi, read.fold))
        return pending

    def finish(self, pending: list[Any], n: int) -> Float[np.ndarray, "entry row action"]:
        """Policies in the order of the entries."""
        parts = [outputs.finish(asked, n) for outputs, asked in zip(self.outputs, pending, strict=True)]
        order = np.argsort([entry for own in self.entries for entry in own])
        return np.concatenate(parts)[order]


def _with_one(phi: Any) -> Float[np.ndarray, "row basis"]:
    return np.column_stack([phi, np.ones(len(phi), np.float32)])


def _ridge(problem: Problem) -> float:
    """Of |w|^2 / 2 beside the mean loss."""
    return 1.0 / (problem.prior_sd**2 * problem.eta * len(problem))


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Rows on a device, padded with rows of weight zero."""

    basis: Any
    target: Any
    weight: Any

    @classmethod
    def of(cls, basis: np.ndarray, target: np.ndarray, weight: np.ndarray, size: int, device: jax.Device) -> _Rows:
        parts = basis.astype(np.float32), target, weight.astype(np.float32)
        return cls(*(jax.device_put(filled(part, size), device) for part in parts))

    def sums(
        self, last: Float[np.ndarray, "entry basis raw"], zetas: list[float], surrogate: Surrogate
    ) -> tuple[Float[np.ndarray, " entry"], Float[np.ndarray, "entry basis raw"]]:
        """Weighted sums of the losses at each of several last layers, and their slopes."""
        given = last.astype(np.float32), np.array(zetas, np.float32)
        loss, slope = _sums(*given, self.basis, self.target, self.weight, surrogate=surrogate)
        return np.asarray(loss, np.float64), np.asarray(slope, np.float64)


@partial(quick_jit, static_argnames="model")
def _features(trees: dict[str, Array], x: Array, *, model: ForestFeatures) -> Array:
    return model.features([trees], x)


@partial(quick_jit, static_argnames="surrogate")
def _sums(last: Array, zetas: Array, basis: Array, target: Array, weight: Array, *, surrogate: Surrogate) -> Any:
    def total(w: Array, zeta: Array) -> Array:
        raw = jnp.matmul(basis, w, precision=jax.lax.Precision.HIGHEST)
        return jnp.sum(weight * surrogate.row_loss(raw, target, zeta))

    return jax.vmap(jax.value_and_grad(total))(last, zetas)
