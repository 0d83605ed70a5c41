"""What a fit keeps for posteriors and values: its members, the table they were weighed by, the models of a log.

It is dropped when a policy is pickled or saved, because it holds the training rows. Results that are needed often are
computed once and kept.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.estimators.base import check_positive
from gbpl.feedback.full import FullFeedback
from gbpl.fitting.apply import combined_deviation, has_last_layer, policy_of_deviation
from gbpl.nuisance.confounding import Confounding, sensitivity
from gbpl.nuisance.nuisances import Nuisances
from gbpl.nuisance.off_policy import log_evaluator
from gbpl.path.held_out import HeldOut, hold_out, out_of_fold
from gbpl.path.path import PathFit
from gbpl.path.plan import PathProblem
from gbpl.posterior.bootstrap import Bootstrap, fit_bootstrap
from gbpl.posterior.committee import CommitteePosterior
from gbpl.posterior.eta import EtaChoice, information_matching, refit_matching, safe_bayes
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.methods import METHODS, member_posterior
from gbpl.posterior.posterior import Posterior
from gbpl.posterior.problem import PosteriorError
from gbpl.value.dependence import fold_dependence
from gbpl.value.estimate import Value
from gbpl.value.evaluate import Evaluator
from gbpl.value.sensitivity import Sensitivity
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float, Int

    from gbpl.feedback.read import Feedback

__all__ = ["AUTO_CALIBRATION", "LEARNED", "Training", "hold_out_together"]

CALIBRATIONS: dict[str, Callable[..., EtaChoice]] = {
    "information_matching": information_matching,
    "refit_matching": refit_matching,
    "safe_bayes": safe_bayes,
}
AUTO_CALIBRATION = "information_matching"  # of eta="auto"
KEPT_POSTERIOR = 100 << 20  # bytes of precisions up to which the default posterior is kept
DRAWS = 400
LEARNED = 0.12  # of the variance of rows, what learning from them adds in any design; see `Training.learned`
EXTRAPOLATED = 1.5  # posterior means are shrunk, and so is what they say that more rows decide better; by simulation


class Training:
    """A fit: `feedback` has the outcomes, or pseudo-outcomes, that its members were weighed by.

    `problem` makes what was fitted, to fit it again without each fold; None where members learned in passes. Where it
    learned from an objective of several outcomes, `judged_by` has the one by which its policies are evaluated.
    """

    judged: FullFeedback | Nuisances | None = None

    def __init__(
        self,
        fit: PathFit,
        feedback: FullFeedback,
        nuisances: Nuisances | None,
        problem: Callable[[], PathProblem] | None = None,
    ) -> None:
        self.fit, self.feedback, self.nuisances, self.problem = fit, feedback, nuisances, problem
        self._posterior: Posterior | None = None
        self._dependence: dict[tuple[str, str], Float[np.ndarray, "row direction"]] = {}
        self._gained: dict[str, Float[np.ndarray, " row"]] = {}

    def judged_by(self, outcome: FullFeedback | Nuisances) -> Training:
        """The same fit, its policies evaluated by one outcome of the same rows."""
        made = copy(self)
        made.judged, made._dependence, made._gained = outcome, {}, {}
        made.nuisances = outcome if isinstance(outcome, Nuisances) else None
        made.__dict__.pop("_confounding", None)
        return made

    @property
    def rows(self) -> Feedback:
        """The rows, with the outcomes by which policies are evaluated."""
        if self.nuisances is not None:
            return self.nuisances.feedback
        return self.judged if isinstance(self.judged, FullFeedback) else self.feedback

    def evaluator(self, estimator: str) -> Evaluator:
        """Evaluates policies of the training rows by their own outcomes."""
        rows = self.rows
        if isinstance(rows, FullFeedback):
            return Evaluator.of_outcomes(replace(rows, source=rows.x))
        assert self.nuisances is not None
        return log_evaluator(rows, self.nuisances, estimator)

    def objective_evaluator(self) -> Evaluator:
        """Evaluates by what was learned from, in whose unit expected gains are: the outcome, or an objective."""
        return self.evaluator("dr") if self.judged is None else Evaluator.of_outcomes(self.feedback)

    # -- value --------------------------------------------------------------------------------------------

    @cached_property
    def held_out(self) -> HeldOut:
        """The policy of each row by a fit that saw nothing of its fold: the path fitted again without each fold."""
        return out_of_fold(self.fit) if self.problem is None else hold_out([self.problem()])[0]

    @cached_property
    def untouched(self) -> Float[np.ndarray, "row action"]:
        """Action probabilities of the policy of each row by a fit that saw nothing of its fold."""
        return policy_of_deviation(self.held_out.deviation)

    def value(self, policy: Any, *, estimator: str, rule: str, baseline: Any = None) -> Value:
        """Value on the rows of the fit of a policy that was made of `held_out`, with the error of learning it."""
        evaluator = self.evaluator(estimator)
        value = evaluator.value(policy, rule=rule, baseline=baseline)
        own = np.array_equal(evaluator.table(policy, rule), evaluator.table(self.untouched, rule))
        return self.learned(value, estimator, rule, own=own)

    def learned(self, value: Value, estimator: str, rule: str, *, own: bool = True) -> Value:
        """A value of held-out decisions as that of the policy that learned from all rows.

        The error counts that folds depend on each other (`value.dependence`), and that outcome models, zetas, models
        and levels were learned from these rows too: by simulation (docs/calibration.md) errors are then larger by a
        sixteenth than the rows alone say, whatever the design. The fits without a fold learned from fewer rows. By the
        posterior mean of the effects, what was learned from all rows decides better by

            sum_a (delta_a(x) - delta_a^held(x)) theta_a(x),

        of which one and a half times is added to each row's value, because posterior means are shrunk
        (docs/calibration.md); half of what is added is allowed for in the error, as no row has checked it. Not so for
        decisions that are not the policy's `own`, such as those within a capacity. For one of several outcomes, of
        whose effects there is no posterior, theta are its predicted means, and it is added once; with full feedback
        nothing is added.
        """
        key = estimator, rule
        if key not in self._dependence:
            held, evaluator = self.held_out, self.evaluator(estimator)
            count = len(evaluator.actions)
            constant = [np.broadcast_to(row, (evaluator.n, count)) for row in np.eye(count)]
            single = np.stack([evaluator.value_of(table).influence for table in constant], axis=1)

            def play(scores: np.ndarray, rows: slice) -> np.ndarray:
                return _played(scores, held.unit[rows, None], rule)

            self._dependence[key] = fold_dependence(held.gain, held.covariance, single, play)
        more = self._more(rule) if own else np.zeros(len(value.influence))
        mean = float(np.average(more, weights=value.weights))
        return replace(
            value, influence=value.influence + more, dependence=self._dependence[key], allowance=0.5 * abs(mean),
            inflation=LEARNED,
        )  # fmt: skip

    def _more(self, rule: str) -> Float[np.ndarray, " row"]:
        """What the policy gains on each row over the held-out one, by the posterior mean of the effects; kept."""
        if rule not in self._gained:
            self._gained[rule] = self._found_more(rule)
        return self._gained[rule]

    def _found_more(self, rule: str) -> Float[np.ndarray, " row"]:
        fit, held = self.fit, self.held_out
        if fit.effect is None:
            return np.zeros(len(fit.x))
        units = np.full((len(fit.x), 1), fit.effect.mean.unit), held.unit[:, None]
        parts = zip((self._effects, held.gain), units, strict=True)
        ours, theirs = (_played(part, unit, rule) for part, unit in parts)
        return self.gained(ours, theirs)

    @cached_property
    def _deviation(self) -> Float[np.ndarray, "row action"]:
        """The policy of the fit to all rows on these rows, as deviations from uniform."""
        fit = self.fit
        committee = combined_deviation(fit.model, fit.settings.surrogate, fit.params, fit.policy_weights, fit.x)
        return committee if fit.effect is None else fit.effect.mean.deviation(committee)

    @property
    def decided(self) -> Int[np.ndarray, " row"]:
        """Column numbers of the actions that the policy gives the rows it learned from."""
        return deterministic(self._deviation)

    @property
    def _effects(self) -> Float[np.ndarray, "row action"]:
        """Posterior mean of the effects, in outcome units, by the fit to all rows."""
        assert self.fit.effect is not None
        return self._deviation * self.fit.effect.mean.unit

    def gained(
        self, ours: Float[np.ndarray, "row action"], theirs: Float[np.ndarray, "row action"]
    ) -> Float[np.ndarray, " row"]:
        """What decisions gain over others on each row, by the posterior mean of the effects; zero where none is known.

        It is divided by the doubt in that mean, and multiplied for its shrinkage (`learned`). No row has checked it:
        half of it is an allowance in errors.
        """
        effect = self.fit.effect
        if effect is None:
            return np.zeros(len(ours))
        expected = EXTRAPOLATED * self._effects / effect.doubt if self.judged is None else self._expected()
        return np.sum((ours - theirs) * expected, axis=1)

    def _expected(self) -> Float[np.ndarray, "row action"]:
        """Predicted mean of each action, net of costs, of one of several outcomes; zero where nothing predicts it."""
        if self.nuisances is None or self.nuisances.outcome_mean is None:
            return np.zeros(self.feedback.outcomes.shape)
        return self.nuisances.pseudo_outcomes("dr", correction=0.0)

    def sensitivity(self, baseline: Any, gammas: Sequence[float], level: float, policy: Any = None) -> Sensitivity:
        """Bounds of the untouched policy's value, or another's, under hidden confounding."""
        if self.nuisances is None:
            raise ValueError(
                "sensitivity is for logged feedback; here the outcomes of every action are given, and nothing is hidden"
            )
        decided = self.untouched if policy is None else policy
        return sensitivity(
            self._confounding, self.evaluator("dr"), decided, baseline=baseline, gammas=gammas, level=level,
            learned=partial(self.learned, estimator="dr", rule="deterministic", own=policy is None),
        )  # fmt: skip

    @cached_property
    def _confounding(self) -> Confounding:
        assert self.nuisances is not None
        return Confounding(self.nuisances, self.fit.settings.seed)

    # -- how sure -----------------------------------------------------------------------------------------

    @cached_property
    def auto_eta(self) -> EtaChoice:
        """The loss scale of `eta="auto"`."""
        return CALIBRATIONS[AUTO_CALIBRATION](self.fit)

    def calibrated(self, method: str, **options: Any) -> EtaChoice:
        """The loss scale by one of the methods of `posterior.eta`."""
        if method not in CALIBRATIONS:
            raise ValueError(f"method must be one of {', '.join(CALIBRATIONS)}, got {method!r}")
        if method == AUTO_CALIBRATION and not options:
            return self.auto_eta
        return CALIBRATIONS[method](self.fit, **options)

    @property
    def averages(self) -> bool:
        """Whether zetas are averaged and no eta is given, so that the posterior is that of the whole committee."""
        return self.fit.effect is not None and self.fit.settings.eta is None

    @cached_property
    def _of_committee(self) -> CommitteePosterior:
        return CommitteePosterior(self.fit, self.feedback.actions, default_draws=DRAWS)

    def posterior(
        self, method: str | None = None, *, eta: float | None = None, refits: int = 100, seed: int = 0,
        engine: str = "local", **options: Any,
    ) -> Posterior:  # fmt: skip
        """The posterior over policies by one of the methods; the default one is kept if it is small."""
        if method is None:
            method = CommitteePosterior.method if self.averages and eta is None and not options else LastLayer.method
        if method == CommitteePosterior.method:
            if not self.averages or eta is not None or options:
                raise PosteriorError(
                    "the 'committee' posterior takes no eta nor options and needs zeta='auto', eta='auto' and a "
                    "committee; use method='last_layer'"
                )
            return self._of_committee
        if method not in METHODS:
            names = sorted([*METHODS, CommitteePosterior.method])
            raise PosteriorError(f"method must be one of {', '.join(names)}, got {method!r}")
        plain = method == LastLayer.method and eta is None and not options
        if plain and self._posterior is not None:
            return self._posterior
        fit, bootstrap = self.fit, method == Bootstrap.method
        problems = self._problems(eta, calibrated=not bootstrap)
        if bootstrap:
            if refits < 2 or options:
                raise PosteriorError(
                    f"the bootstrap takes `refits` >= 2 and `seed`, got {refits} and {sorted(options)}"
                )
            settings = fit.settings
            parts: Any = fit_bootstrap(
                problems, fit.members, (fit.x, fit.target), shares=fit.shares, refits=refits, seed=seed,
                config=settings.config, device=settings.device, progress=settings.progress, engine=engine,
            )  # fmt: skip
        else:
            parts = [member_posterior(method, problem, **options) for problem in problems]
        made = Posterior(
            parts,
            fit.shares,
            standardizer=fit.standardizer,
            surrogate=fit.surrogate,
            actions=self.feedback.actions,
            policy_weights=fit.policy_weights,
            default_draws=refits if bootstrap else DRAWS,
        )
        if plain and sum(part.precision.nbytes for part in parts) <= KEPT_POSTERIOR:
            self._posterior = made
        return made

    def _problems(self, eta: float | None, *, calibrated: bool) -> list[Any]:
        """The members' posteriors at a given loss scale, that of the fit, or the calibrated one of `eta="auto"`."""
        fit = self.fit
        problems = fit.problems()
        if eta is not None:
            scaled = check_positive("eta", eta, "try 1.0") * fit.scale * fit.thinning
            return [replace(problem, eta=scaled) for problem in problems]
        if fit.settings.eta is not None or not calibrated or not has_last_layer(fit.model):
            return problems
        try:
            precision = self.auto_eta.precision * fit.scale**2 * fit.thinning
        except PosteriorError:  # all policies have the same welfare: nothing to match
            return problems
        return [replace(problem, eta=precision * problem.zeta) for problem in problems]


def _played(
    scores: Float[np.ndarray, "*draw row action"], unit: Float[np.ndarray, "row 1"], rule: str
) -> Float[np.ndarray, "*draw row action"]:
    """What a rule makes of expected effects in outcome units."""
    count = scores.shape[-1]
    if rule == "deterministic":
        return np.eye(count)[deterministic(scores)]
    return policy_of_deviation((scores / unit).reshape(-1, count)).reshape(scores.shape)


def hold_out_together(trainings: Sequence[Training]) -> None:
    """Make what is held out of several fits as one stack, as `held_out` would for each."""
    waiting = [one for one in trainings if "held_out" not in one.__dict__]
    again = {number: one.problem() for number, one in enumerate(waiting) if one.problem is not None}
    for number, made in zip(again, hold_out(list(again.values())), strict=True):
        waiting[number].__dict__["held_out"] = made  # as the cached property would keep it
