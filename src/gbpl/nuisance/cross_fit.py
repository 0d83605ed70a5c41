"""Cross-fitted models of the log: mean outcomes and propensities, each row judged by models that never saw it.

`CrossFit` holds the settings and runs them; what it gives is arrays. The score formulas are in `pseudo_outcomes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import has_fit_parameter

from gbpl.feedback.full import Standardizer
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.pseudo_outcomes import clip_propensity, doubly_robust, ipw, of_logged_action
from gbpl.fitting.apply import member_outputs
from gbpl.fitting.members import Member, fold_rows
from gbpl.fitting.stack import FitConfig, StackFit, StackProblem, fit_stacks
from gbpl.models.adapters import as_model
from gbpl.models.base import ScoreModel
from gbpl.models.networks import MLP
from gbpl.nuisance.averaged import additive_means, averaged_propensity, convex_weights, forest_means
from gbpl.runtime.devices import DeviceName
from gbpl.runtime.warn import warn

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

__all__ = [
    "CrossFit", "CrossFitting", "EstimatedPropensityWarning", "Nuisances", "PerAction", "WithAction",
    "check_construction", "cross_fit",
]  # fmt: skip

CONSTRUCTIONS = ("dr", "ipw", "centered_ipw", "dm")
AUTO_CLIP = 0.02  # over the number of actions: 0.01 for two, a fiftieth of what a uniform log would give each


class EstimatedPropensityWarning(UserWarning):
    """Propensities were not given and have been estimated."""


@dataclass(frozen=True, slots=True)
class MaskedSquare:
    """Squared loss of the output that belongs to the action taken: one network, an output for each action."""

    n_actions: int

    @property
    def n_raw(self) -> int:
        return self.n_actions

    def row_loss(self, raw: Array, target: tuple[Array, Array], zeta: Array) -> Float[Array, " row"]:
        outcome, action = target
        numbers = action.astype(np.int32)  # targets travel as floats
        taken = jax.nn.one_hot(numbers, self.n_actions, dtype=raw.dtype)
        return 0.5 * ((raw * taken).sum(axis=-1) - outcome) ** 2


@dataclass(frozen=True, slots=True, eq=False)
class PerAction:
    """A scikit-learn regressor fitted once for each action, on the rows that took it (a "T-learner")."""

    regressor: Any

    def predict_means(
        self, x: np.ndarray, outcome: np.ndarray, action: np.ndarray, weights: np.ndarray | None, new: np.ndarray,
        count: int,
    ) -> Float[np.ndarray, "row action"]:  # fmt: skip
        columns = []
        for number in range(count):
            rows = action == number
            fitted = _fitted(self.regressor, x[rows], outcome[rows], None if weights is None else weights[rows])
            columns.append(_predicted(fitted, new))
        return np.column_stack(columns)


@dataclass(frozen=True, slots=True, eq=False)
class WithAction:
    """A scikit-learn regressor fitted once, with the action as further 0/1 columns (an "S-learner")."""

    regressor: Any

    def predict_means(
        self, x: np.ndarray, outcome: np.ndarray, action: np.ndarray, weights: np.ndarray | None, new: np.ndarray,
        count: int,
    ) -> Float[np.ndarray, "row action"]:  # fmt: skip
        kinds = np.eye(count)
        fitted = _fitted(self.regressor, np.hstack([x, kinds[action]]), outcome, weights)
        return np.column_stack(
            [_predicted(fitted, np.hstack([new, np.tile(kinds[number], (len(new), 1))])) for number in range(count)]
        )


def _fitted(learner: Any, x: np.ndarray, y: np.ndarray, weights: np.ndarray | None) -> Any:
    made = clone(learner)
    if weights is None:
        return made.fit(x, y)
    if not has_fit_parameter(made, "sample_weight"):
        raise ValueError(
            f"{type(made).__name__} takes no sample_weight; bring a learner that does, or leave sample_weight out"
        )
    return made.fit(x, y, sample_weight=weights)


def _predicted(fitted: Any, x: np.ndarray) -> Float[np.ndarray, " row"]:
    """Predicted mean; that of a classifier is the sum of its classes times their probabilities."""
    if is_classifier(fitted):
        return fitted.predict_proba(x) @ np.asarray(fitted.classes_, np.float64)
    return np.asarray(fitted.predict(x), np.float64).reshape(len(x))


@dataclass(frozen=True, slots=True, eq=False)
class Nuisances:
    """What the log's models say of each row, from folds that row was not in.

    `propensity` is as given or estimated, a column for each action or one number a row; `logged_propensity` is that
    of the action taken after clipping. `means` has the predicted mean of each action, or with `"centered_ipw"` one
    column, the regression on x alone; None if no model was needed. `fold_means` has, for each of the `outer` folds, the
    means by models that learned from no row of that fold: what a policy judged on the fold may learn from. `shares`
    says what each of several learners counts in the means, where they are an average.
    """

    feedback: LoggedFeedback
    propensity: Float[np.ndarray, "row action"] | Float[np.ndarray, " row"]
    clip: float
    estimated: bool
    means: Float[np.ndarray, "row column"] | None = None
    fold_means: Float[np.ndarray, "fold row column"] | None = None
    shares: Mapping[str, float] | None = None

    @property
    def outcome_mean(self) -> Float[np.ndarray, "row action"] | None:
        """Predicted mean outcome of each action; None where there is no model of each."""
        return None if self.means is None or self.means.shape[1] == 1 else self.means

    @property
    def logged_propensity(self) -> Float[np.ndarray, " row"]:
        """Of the action taken, clipped."""
        clipped = clip_propensity(self.propensity, self.clip)
        return clipped if clipped.ndim == 1 else of_logged_action(clipped, self.feedback.action)

    def pseudo_outcomes(
        self, construction: str, *, correction: float = 1.0, fold: int | None = None
    ) -> Float[np.ndarray, "row action"]:
        """The n x K table of one of the constructions, net of costs.

        `correction` shrinks that of the doubly robust one: gamma + correction (Y~ - gamma). With `fold` the models saw
        no row of that outer fold.
        """
        log, count = self.feedback, len(self.feedback.actions)
        check_construction(construction)
        if construction == "ipw":
            table = ipw(log.outcome, log.action, self.logged_propensity, count)
            return table if log.cost is None else table - log.cost
        means = self.means
        if means is None or (means.shape[1] == 1) != (construction == "centered_ipw"):
            raise ValueError(f"these nuisances have no model for {construction!r}; run the cross-fitting for it")
        if fold is not None:
            if self.fold_means is None:
                raise ValueError(f"fold is {fold}, but the cross-fitting was run without outer folds")
            means = self.fold_means[fold]
        if construction == "centered_ipw":
            table = ipw(log.outcome, log.action, self.logged_propensity, count, center=means[:, 0])
        else:
            table = np.array(means)
            if construction == "dr" and correction > 0.0:
                robust = doubly_robust(log.outcome, log.action, self.logged_propensity, table)
                table = robust if correction == 1.0 else table + correction * (robust - table)
        return table if log.cost is None else table - log.cost


def check_construction(name: str) -> None:
    if name not in CONSTRUCTIONS:
        raise ValueError(f"pseudo_outcome must be one of {', '.join(CONSTRUCTIONS)}, got {name!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossFit:
    """How outcome means and propensities are estimated.

    folds, repeats : parts the rows are dealt into (actions balanced, groups together), and how often anew
    outcome_model : None for the network with a masked loss, "auto" for the average of it, a forest and an additive
        regression (`gbpl.nuisance.averaged`), a score model such as `MLP(hidden=(32,))`, a scikit-learn regressor (or
        classifier, for outcomes such as 0/1) or `PerAction(...)`, or `WithAction(...)`. With "auto" a propensity that
        is not given is an average too, of logistic regression and a forest
    clip : propensities below are raised to it; "auto" is 0.02 over the number of actions
    committee, validation_fraction : networks averaged within each fold, each stopped on its own part of the other
        rows; with None one network, stopped on that share of them
    """

    folds: int = 5
    repeats: int = 1
    outcome_model: Any = None
    clip: float | str = "auto"
    committee: int | None = 5
    validation_fraction: float = 0.2
    seed: int = 0
    fit_config: FitConfig | None = None
    device: DeviceName = "auto"
    progress: bool | None = None

    def __post_init__(self) -> None:
        for name, least, hint in (("folds", 2, "try 5"), ("repeats", 1, "try 1")):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
                raise ValueError(f"nuisance_{name} must be a whole number >= {least}, got {value!r}; {hint}")
        if not (isinstance(self.clip, str) and self.clip == "auto"):
            good = isinstance(self.clip, int | float | np.number) and 0.0 <= float(self.clip) < 0.5
            if not good:
                raise ValueError(f"clip must be 'auto' or a number in [0, 0.5), got {self.clip!r}; try 0.01")
        if self.committee is not None and not (isinstance(self.committee, int | np.integer) and self.committee >= 2):
            raise ValueError(f"committee must be a whole number >= 2, or None for one network, got {self.committee!r}")
        if not 0.0 < self.validation_fraction < 1.0:
            raise ValueError(f"validation_fraction must be in (0, 1), got {self.validation_fraction}; try 0.2")
        model = self.outcome_model
        if isinstance(model, type):
            raise TypeError(f"outcome_model must be an object, got the class {model.__name__}; add brackets")
        if isinstance(model, str) and model != "auto":
            raise TypeError(
                f"outcome_model must be 'auto', None, a score model such as gbpl.MLP() or a regressor, got {model!r}"
            )
        if not (model is None or isinstance(model, str | PerAction | WithAction) or hasattr(model, "predict")):
            as_model(model)

    def clip_for(self, count: int) -> float:
        """The clip level for so many actions."""
        clip = AUTO_CLIP / count if isinstance(self.clip, str) else float(self.clip)
        if clip * count >= 1.0:
            raise ValueError(
                f"clip must be below 1/{count} with {count} actions, got {clip}; try {AUTO_CLIP / count:g}"
            )
        return clip

    def run(
        self,
        feedback: LoggedFeedback,
        construction: str = "dr",
        *,
        outer: list[Int[np.ndarray, " row"]] | None = None,
    ) -> Nuisances:
        """Estimate what a construction needs and the log does not say.

        Without `outer`, rows are dealt into `folds` parts, and each part is predicted by models of the others. With
        `outer` (the folds of a committee), each of these is predicted by models of the others, and so are the `folds`
        parts of what is outside it, by models that saw neither: the second level is `fold_means`.
        """
        return cross_fit([CrossFitting(self, feedback, construction, outer)])[0]

    def _seeds(self, *key: int, count: int) -> list[int]:
        return [int(seed) for seed in np.random.SeedSequence([self.seed, *key]).generate_state(count)]

    def _deal(self, feedback: LoggedFeedback) -> list[list[Int[np.ndarray, " row"]]]:
        """Folds of every row, anew for each repeat; each has every action."""
        if len(feedback) < 2 * self.folds:
            raise ValueError(f"too few rows for {self.folds} nuisance folds: n_samples={len(feedback)}; use fewer")
        dealt = [
            fold_rows(len(feedback), self.folds, seed=seed, strata=feedback.action, groups=feedback.groups)
            for seed in self._seeds(7, count=self.repeats)
        ]
        for folds in dealt:
            for fold in folds:
                _check_every_action(feedback, fold, f"one of {self.folds} nuisance folds")
        return dealt

    def _jobs(self, feedback: LoggedFeedback, dealt: list[list[np.ndarray]], *, nested: bool) -> list[_Job]:
        """What to fit, in full before any fit, so that an action missing somewhere is found at once."""
        jobs, rows = [], np.arange(len(feedback), dtype=np.int32)
        for repeat, folds in enumerate(dealt):
            for number, held in enumerate(folds):
                _check_every_action(feedback, held, f"fold {number} of {len(folds)}")
                rest = np.setdiff1d(rows, held, assume_unique=True)
                seed = self._seeds(repeat, number, count=1)[0]
                parts = self._parts(feedback, rest, seed, nested=nested)
                for place, part in enumerate(parts):
                    known = np.setdiff1d(rest, part, assume_unique=True)
                    _check_every_action(feedback, known, f"the {len(known)} rows outside two folds")
                    share = 1.0 / (len(parts) * len(dealt))
                    jobs.append(_Job(number, held, part, known, share, (seed + place) % 2**31))
        return jobs

    def _parts(
        self, feedback: LoggedFeedback, rest: Int[np.ndarray, " row"], seed: int, *, nested: bool
    ) -> list[Int[np.ndarray, " row"]]:
        """Parts of the rows outside a fold: each is left out of one model, which stops on it if it is a network."""
        if not nested and self._learner() is not None:
            return [rest[:0]]
        count = self.folds if nested else self.committee or max(2, round(1.0 / self.validation_fraction))
        groups = None if feedback.groups is None else feedback.groups[rest]
        if groups is not None:
            count = max(2, min(count, len(np.unique(groups))))
        dealt = fold_rows(len(rest), min(count, len(rest)), seed=seed, strata=feedback.action[rest], groups=groups)
        parts = [rest[part] for part in dealt]
        return parts if nested or self.committee else parts[:1]

    def _learner(self) -> PerAction | WithAction | None:
        """The scikit-learn outcome model, or None for a network."""
        model = self.outcome_model
        if isinstance(model, PerAction | WithAction):
            return model
        return PerAction(model) if model is not None and hasattr(model, "predict") else None

    @property
    def averages(self) -> bool:
        """Whether several learners are asked."""
        return isinstance(self.outcome_model, str)

    def _propensity(self, feedback: LoggedFeedback, dealt: list[list[np.ndarray]]) -> Float[np.ndarray, "row action"]:
        x, learner = feedback.context, feedback.classifier
        if learner is None and self.averages:
            return averaged_propensity(feedback, dealt, seed=self._seeds(9, count=1)[0] % 2**31)[0]
        if learner is None:
            x, learner = Standardizer.fit(x, np.arange(len(x))).apply(x), LogisticRegression(max_iter=1000)
        table = np.zeros((len(feedback), len(feedback.actions)))
        for folds in dealt:
            for fold in folds:
                known = np.setdiff1d(np.arange(len(feedback)), fold, assume_unique=True)
                weights = None if feedback.weights is None else feedback.weights[known]
                fitted = _fitted(learner, x[known], feedback.action[known], weights)
                table[fold] += fitted.predict_proba(x[fold]) / len(dealt)
        return table


@dataclass(frozen=True, slots=True, eq=False)
class CrossFitting:
    """One run of `CrossFit.run`: its settings and its arguments."""

    settings: CrossFit
    feedback: LoggedFeedback
    construction: str = "dr"
    outer: list[Int[np.ndarray, " row"]] | None = None

    def plan(self) -> _Plan:
        """Everything but the outcome models, in full before any of them is fitted."""
        check_construction(self.construction)
        settings, feedback = self.settings, self.feedback
        propensity, modelled = feedback.propensity, self.construction != "ipw"
        clip = settings.clip_for(len(feedback.actions))
        dealt: list[list[np.ndarray]] = []
        if propensity is None or (modelled and self.outer is None):
            dealt = settings._deal(feedback)
        jobs: list[_Job] = []
        if modelled:
            levels = dealt if self.outer is None else [self.outer] * settings.repeats
            jobs = settings._jobs(feedback, levels, nested=self.outer is not None)
        if propensity is None:
            propensity = settings._propensity(feedback, dealt)
            if feedback.classifier is None:
                how = "multinomial logistic regression" + (" averaged with a forest" if settings.averages else "")
                _tell_estimated(feedback, propensity, how)
        common = self.construction == "centered_ipw"
        action = np.zeros_like(feedback.action) if common else feedback.action
        folds = (dealt[0] if dealt else []) if self.outer is None else self.outer
        return _Plan(self, propensity, clip, jobs, action, 1 if common else len(feedback.actions), folds)


class _Plan(NamedTuple):
    """The models of one run: a job each, with `columns` outputs."""

    fitting: CrossFitting
    propensity: Float[np.ndarray, "..."]
    clip: float
    jobs: list[_Job]
    action: Int[np.ndarray, " row"]
    columns: int
    folds: list[Int[np.ndarray, " row"]]

    @property
    def spread(self) -> tuple[float, float]:
        """Mean and standard deviation of the outcome, the latter zero where it is constant."""
        outcome = self.fitting.feedback.outcome
        level, spread = float(outcome.mean()), float(outcome.std())
        return level, spread if spread > 1e-12 * abs(level) else 0.0

    def stack(self) -> StackProblem:
        """The jobs as members of a stack, each stopped on its part."""
        feedback, w = self.fitting.feedback, self.fitting.feedback.weights
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
        target = ((feedback.outcome - level) / spread).astype(np.float32), self.action.astype(np.int32)
        return StackProblem(x, target, members)

    def by_network(
        self, model: ScoreModel, problem: StackProblem, stack: StackFit
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Means of the held rows and of the part of each job."""
        level, spread = self.spread
        for number, job in enumerate(self.jobs):
            new = np.concatenate([job.held, job.part])
            outputs = member_outputs(model, stack.select([number]), problem.x[new])[0]
            told = level + spread * outputs.astype(np.float64)
            yield told[: len(job.held)], told[len(job.held) :]

    def by_learner(self, learner: PerAction | WithAction) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same, by scikit-learn models."""
        feedback = self.fitting.feedback
        x, y = feedback.context, feedback.outcome
        for job in self.jobs:
            weights = None if feedback.weights is None else feedback.weights[job.known]
            new = np.concatenate([job.held, job.part])
            told = learner.predict_means(
                x[job.known], y[job.known], self.action[job.known], weights, x[new], self.columns
            )
            yield told[: len(job.held)], told[len(job.held) :]

    def constant(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The same, where the outcome never varies."""
        level, _ = self.spread
        for job in self.jobs:
            yield np.full((len(job.held), self.columns), level), np.full((len(job.part), self.columns), level)

    def nuisances(self, predictions: Iterator[tuple[np.ndarray, np.ndarray]]) -> Nuisances:
        feedback, outer, repeats = self.fitting.feedback, self.fitting.outer, self.fitting.settings.repeats
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
        return Nuisances(feedback, self.propensity, self.clip, feedback.propensity is None, means, fold_means)

    def averaged(self, network: Nuisances) -> Nuisances:
        """The network's means averaged with those of other learners, by what each is off the rows it did not see."""
        feedback = self.fitting.feedback
        assert network.means is not None
        told = {"network": (network.means, network.fold_means)}
        told["forest"] = forest_means(feedback, self.folds, seed=self.fitting.settings._seeds(8, count=1)[0] % 2**31)
        told["additive"] = additive_means(feedback, self.folds)
        rows = np.arange(len(feedback))
        shares = convex_weights(
            np.column_stack([means[rows, feedback.action] for means, _ in told.values()]),
            feedback.outcome, feedback.weights,
        )  # fmt: skip
        means: Any = sum(share * part for share, (part, _) in zip(shares, told.values(), strict=True))
        fold_means: Any = None
        if network.fold_means is not None:
            fold_means = sum(share * part for share, (_, part) in zip(shares, told.values(), strict=True))
        named = dict(zip(told, shares.tolist(), strict=True))
        return replace(network, means=means, fold_means=fold_means, shares=named)


def cross_fit(fittings: Sequence[CrossFitting]) -> list[Nuisances]:
    """Several runs at once: the networks of those that share their settings are one stack."""
    plans = [fitting.plan() for fitting in fittings]
    found: dict[int, Nuisances] = {}
    together: dict[tuple, list[int]] = {}
    for number, plan in enumerate(plans):
        settings, learner = plan.fitting.settings, plan.fitting.settings._learner()
        if learner is not None or not plan.jobs:
            found[number] = plan.nuisances(plan.by_learner(learner) if learner is not None else iter(()))
        elif plan.spread[1] == 0.0:
            found[number] = plan.nuisances(plan.constant())
        else:
            network = settings.outcome_model is None or settings.averages
            model = as_model(MLP() if network else settings.outcome_model)
            width = plan.fitting.feedback.context.shape[1]
            key = model, plan.columns, settings.fit_config, settings.device, settings.progress, width
            together.setdefault(key, []).append(number)
    for (model, columns, config, device, progress, _), numbers in together.items():
        problems = [plans[number].stack() for number in numbers]
        stacks = fit_stacks(problems, MaskedSquare(columns), model, config=config, device=device, progress=progress)
        for number, problem, stack in zip(numbers, problems, stacks, strict=True):
            plan = plans[number]
            found[number] = plan.nuisances(plan.by_network(model, problem, stack))
            if plan.fitting.settings.averages and columns > 1 and len(plan.folds) > 2:  # two left out must leave some
                found[number] = plan.averaged(found[number])
    return [found[number] for number in range(len(plans))]


class _Job(NamedTuple):
    """One outcome model: it learns from `known` and speaks of `held` (fold `number`, with a share) and of `part`."""

    number: int
    held: Int[np.ndarray, " row"]
    part: Int[np.ndarray, " row"]
    known: Int[np.ndarray, " row"]
    share: float
    seed: int


def _check_every_action(feedback: LoggedFeedback, rows: Int[np.ndarray, " row"], where: str) -> None:
    missing = np.flatnonzero(np.bincount(feedback.action[rows], minlength=len(feedback.actions)) == 0)
    if len(missing):
        label, taken = feedback.actions.tolist()[missing[0]], int(np.sum(feedback.action == missing[0]))
        together = ", with groups kept together" if feedback.groups is not None else ""
        raise ValueError(
            f"{where} has no row with action {label!r}, which is taken in {taken} of {len(feedback)} rows{together}; "
            "use fewer folds (committee, nuisance_folds), or leave the action out"
        )


def _tell_estimated(feedback: LoggedFeedback, propensity: Float[np.ndarray, "row action"], how: str) -> None:
    likelihood = np.log(np.maximum(of_logged_action(propensity, feedback.action), 1e-300))
    shares = np.bincount(feedback.action) / len(feedback)
    warn(
        f"no propensity was given: it is estimated by cross-fitted {how} (log-likelihood a "
        f"row {likelihood.mean():.3f}, with constant shares {np.sum(shares * np.log(shares)):.3f}). If the actions "
        "were randomized, give their probabilities; to choose the model, and not see this, give a classifier",
        EstimatedPropensityWarning,
    )
