"""Cross-fitting: models of a log, each row predicted by models that never saw it (section 7).

`CrossFit` holds the settings and runs them; its result is arrays (`Nuisances`). The score formulas are in
`feedback.pseudo_outcomes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from gbpl.feedback.content import content_order
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.pseudo_outcomes import of_logged_action
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.members import fold_rows, outside
from gbpl.fitting.stack import FitConfig
from gbpl.models.adapters import as_model
from gbpl.nuisance.averaged import averaged_propensity
from gbpl.nuisance.learners import PerAction, WithAction, fitted
from gbpl.nuisance.nuisances import Nuisances, check_construction
from gbpl.nuisance.plan import Job, Plan, fit_plans
from gbpl.runtime.devices import DeviceName
from gbpl.runtime.warn import warn

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["CrossFit", "EstimatedPropensityWarning", "Nuisances", "warn_estimated"]

# Folds, and rows per action, from which on a model learns from enough of them without two folds (docs/design.md)
FOLDS_IN_PAIRS, ROWS_IN_PAIRS = 5, 750
AUTO_CLIP = 0.02  # over the number of actions: 0.01 for two, a fiftieth of what a uniform log would give each


class EstimatedPropensityWarning(UserWarning):
    """Propensities were not given and have been estimated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossFit:
    """How outcome means and propensities are estimated.

    folds, repeats : parts that the rows are divided into (actions balanced, groups together), and how often; outside an
        outer fold these are the other outer folds where there are at least as many, and five, and 750 rows per action
    outcome_model : None for the network with a masked loss, "auto" for the average of two networks, a forest and an
        additive regression (`gbpl.nuisance.averaged`), a score model such as `MLP(hidden=(32,))`, a scikit-learn
        regressor (or classifier, for outcomes such as 0/1) or `PerAction(...)`, or `WithAction(...)`. With "auto" a
        propensity that is not given is an average too, of logistic regression and a forest
    clip : propensities below it are raised to it; "auto" is 0.02 over the number of actions
    committee, validation_fraction : networks averaged within each fold, each stopped by its own part of the other
        rows; with None one network, stopped by that share of them
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
        """The clip level for `count` actions."""
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
        """Estimate what a construction needs and the log does not hold.

        Without `outer`, rows are divided into `folds` parts, and each part is predicted by models of the others. With
        `outer` (the folds of a committee), each of these is predicted by models of the others, and so are the `folds`
        parts of the rows outside it, by models that saw neither: the second level is `fold_means`.
        """
        return fit_plans([self.plan(feedback, construction, outer=outer)])[0]

    def plan(
        self,
        feedback: LoggedFeedback,
        construction: str = "dr",
        *,
        outer: list[Int[np.ndarray, " row"]] | None = None,
    ) -> Plan:
        """Everything but the outcome models, before any of them is fitted."""
        check_construction(construction)
        propensity, modelled = feedback.propensity, construction != "ipw"
        clip = self.clip_for(len(feedback.actions))
        dealt: list[list[np.ndarray]] = []
        if propensity is None or (modelled and outer is None):
            dealt = self._deal(feedback)
        jobs: list[Job] = []
        if modelled:
            levels = dealt if outer is None else [outer] * self.repeats
            jobs = self._jobs(feedback, levels, nested=outer is not None)
        if propensity is None:
            propensity = self._propensity(feedback, dealt)
            if feedback.classifier is None:
                how = "multinomial logistic regression" + (" averaged with a forest" if self.averages else "")
                warn_estimated(feedback, propensity, how)
        common = construction == "centered_ipw"
        action = np.zeros_like(feedback.action) if common else feedback.action
        folds = (dealt[0] if dealt else []) if outer is None else outer
        columns = 1 if common else len(feedback.actions)
        return Plan(self, feedback, propensity, clip, jobs, action, columns, folds, outer)

    def seeds(self, *key: int, count: int) -> list[int]:
        """Seeds of one part of the work."""
        return [int(seed) for seed in np.random.SeedSequence([self.seed, *key]).generate_state(count)]

    def _deal(self, feedback: LoggedFeedback) -> list[list[Int[np.ndarray, " row"]]]:
        """Folds of the rows, one set per repeat; each fold has every action."""
        if len(feedback) < 2 * self.folds:
            raise ValueError(f"too few rows for {self.folds} nuisance folds: n_samples={len(feedback)}; use fewer")
        order, strata = content_order(feedback)
        dealt = [
            fold_rows(len(feedback), self.folds, seed=seed, strata=strata, groups=feedback.groups, order=order)
            for seed in self.seeds(7, count=self.repeats)
        ]
        for folds in dealt:
            for fold in folds:
                _check_every_action(feedback, fold, f"one of {self.folds} nuisance folds")
        return dealt

    def _jobs(self, feedback: LoggedFeedback, dealt: list[list[np.ndarray]], *, nested: bool) -> list[Job]:
        """All fits to make, listed before the first, so that an action missing somewhere is noticed at once.

        Where there are folds and rows enough, a fit leaves out two folds, once for each: the same rows and seed, and
        only what stops it differs.
        """
        jobs, (_, rank) = [], content_order(feedback)
        assert rank is not None
        for repeat, folds in enumerate(dealt):
            few = len(feedback) < ROWS_IN_PAIRS * len(feedback.actions)
            in_pairs = nested and not few and len(folds) >= max(self.folds, FOLDS_IN_PAIRS)
            for number, held in enumerate(folds):
                _check_every_action(feedback, held, f"fold {number} of {len(folds)}")
                if in_pairs:
                    others = [other for other in range(len(folds)) if other != number]
                    parts = [(folds[other], outside(folds, number, other)) for other in others]
                    seeds = [self.seeds(repeat, *sorted((number, other)), count=1)[0] for other in others]
                else:
                    rest, seed = outside(folds, number), self.seeds(repeat, number, count=1)[0]
                    dealt_parts = self._parts(feedback, rest, rank[rest], seed, nested=nested)
                    parts = [(part, rest[~np.isin(rest, part)]) for part in dealt_parts]
                    seeds = [seed + place for place in range(len(parts))]
                for (part, known), own in zip(parts, seeds, strict=True):
                    _check_every_action(feedback, known, f"the {len(known)} rows outside two folds")
                    jobs.append(Job(number, held, part, known, 1.0 / (len(parts) * len(dealt)), own % 2**31))
        return jobs

    def _parts(
        self, feedback: LoggedFeedback, rest: Int[np.ndarray, " row"], strata: Int[np.ndarray, " row"], seed: int, *,
        nested: bool,
    ) -> list[Int[np.ndarray, " row"]]:  # fmt: skip
        """Parts of the rows outside a fold: each is left out of one model, which stops by it if it is a network."""
        if not nested and self.learner is not None:
            return [rest[:0]]
        count = self.folds if nested else self.committee or max(2, round(1.0 / self.validation_fraction))
        groups = None if feedback.groups is None else feedback.groups[rest]
        if groups is not None:
            count = max(2, min(count, len(np.unique(groups))))
        dealt = fold_rows(len(rest), min(count, len(rest)), seed=seed, strata=strata, groups=groups)
        parts = [rest[part] for part in dealt]
        return parts if nested or self.committee else parts[:1]

    @property
    def learner(self) -> PerAction | WithAction | None:
        """The scikit-learn outcome model, or None for a network."""
        model = self.outcome_model
        if isinstance(model, PerAction | WithAction):
            return model
        return PerAction(model) if model is not None and hasattr(model, "predict") else None

    @property
    def averages(self) -> bool:
        """Whether several learners are averaged."""
        return isinstance(self.outcome_model, str)

    def _propensity(self, feedback: LoggedFeedback, dealt: list[list[np.ndarray]]) -> Float[np.ndarray, "row action"]:
        x, learner = feedback.context, feedback.classifier
        if learner is None and self.averages:
            return averaged_propensity(feedback, dealt, seed=self.seeds(9, count=1)[0] % 2**31)[0]
        if learner is None:
            x, learner = Standardizer.fit(x, np.arange(len(x))).apply(x), LogisticRegression(max_iter=1000)
        table = np.zeros((len(feedback), len(feedback.actions)))
        for folds in dealt:
            for fold in folds:
                known = np.concatenate([other for other in folds if other is not fold])
                weights = None if feedback.weights is None else feedback.weights[known]
                model = fitted(learner, x[known], feedback.action[known], weights)
                table[fold] += model.predict_proba(x[fold]) / len(dealt)
        return table


def _check_every_action(feedback: LoggedFeedback, rows: Int[np.ndarray, " row"], where: str) -> None:
    missing = np.flatnonzero(np.bincount(feedback.action[rows], minlength=len(feedback.actions)) == 0)
    if len(missing):
        label, taken = feedback.actions.tolist()[missing[0]], int(np.sum(feedback.action == missing[0]))
        together = ", with groups kept together" if feedback.groups is not None else ""
        raise ValueError(
            f"{where} has no row with action {label!r}, which is taken in {taken} of {len(feedback)} rows{together}; "
            "use fewer folds (committee, nuisance_folds), or leave the action out"
        )


def warn_estimated(feedback: LoggedFeedback, propensity: Float[np.ndarray, "row action"], how: str) -> None:
    """Say that propensities were estimated, and how well they predict the actions."""
    likelihood = np.log(np.maximum(of_logged_action(propensity, feedback.action), 1e-300))
    shares = np.bincount(feedback.action) / len(feedback)
    warn(
        f"no propensity was given: it is estimated by cross-fitted {how} (log-likelihood "
        f"per row {likelihood.mean():.3f}, with constant shares {np.sum(shares * np.log(shares)):.3f}). If the actions "
        "were randomized, give their probabilities; to choose the model, and not see this, give a classifier",
        EstimatedPropensityWarning,
    )
