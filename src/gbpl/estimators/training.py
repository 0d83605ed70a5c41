"""What a fit keeps for posteriors and values: its members, the table they were weighed by, the models of a log.

It is dropped when a policy is pickled or saved, because it holds the training rows. Results that are needed often are
computed once and kept.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.estimators.base import check_positive
from gbpl.feedback.full import FullFeedback
from gbpl.fitting.apply import has_last_layer
from gbpl.nuisance.confounding import Confounding, sensitivity
from gbpl.nuisance.nuisances import Nuisances
from gbpl.nuisance.off_policy import log_evaluator
from gbpl.path.path import PathFit
from gbpl.posterior.bootstrap import Bootstrap, fit_bootstrap
from gbpl.posterior.committee import CommitteePosterior
from gbpl.posterior.eta import EtaChoice, information_matching, refit_matching, safe_bayes
from gbpl.posterior.influence import estimated_outcomes
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.methods import METHODS, member_posterior
from gbpl.posterior.posterior import Posterior
from gbpl.posterior.problem import PosteriorError
from gbpl.posterior.refits import Refits, refit
from gbpl.value.evaluate import Evaluator
from gbpl.value.sensitivity import Sensitivity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float

__all__ = ["AUTO_CALIBRATION", "Training"]

CALIBRATIONS: dict[str, Callable[..., EtaChoice]] = {
    "information_matching": information_matching,
    "refit_matching": refit_matching,
    "safe_bayes": safe_bayes,
}
AUTO_CALIBRATION = "information_matching"  # of eta="auto"
SPREAD_ROWS = 4_000  # of the posterior's share in the population welfare
SPREAD_REFITS = 20  # at least, for the same share of a model without a last layer
KEPT_POSTERIOR = 100 << 20  # bytes of Cholesky factors up to which the default posterior is kept
DRAWS = 400


class Training:
    """A fit: `feedback` has the outcomes, or pseudo-outcomes, that its members were weighed by."""

    def __init__(self, fit: PathFit, feedback: FullFeedback, nuisances: Nuisances | None) -> None:
        self.fit, self.feedback, self.nuisances = fit, feedback, nuisances
        self._posterior: Posterior | None = None
        self._refits: dict[str, Refits] = {}
        self._spreads: dict[tuple[str, int, int], Float[np.ndarray, " draw"]] = {}

    def evaluator(self, estimator: str) -> Evaluator:
        """Evaluates policies of the training rows by their own outcomes."""
        if self.nuisances is None:
            return Evaluator.of_outcomes(replace(self.feedback, source=self.feedback.x))
        return log_evaluator(self.nuisances.feedback, self.nuisances, estimator)

    @cached_property
    def untouched(self) -> Float[np.ndarray, "row action"]:
        """Policy of each row by members that neither trained nor stopped on its fold: another fit."""
        return self.fit.untouched()

    def sensitivity(self, baseline: Any, gammas: Sequence[float], level: float, policy: Any = None) -> Sensitivity:
        """Bounds of the untouched policy's value, or another's, under hidden confounding."""
        if self.nuisances is None:
            raise ValueError(
                "sensitivity is for logged feedback; here the outcomes of every action are given, and nothing is hidden"
            )
        decided = self.untouched if policy is None else policy
        return sensitivity(
            self._confounding, self.evaluator("dr"), decided, baseline=baseline, gammas=gammas, level=level
        )

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
        if plain and sum(part.root.nbytes for part in parts) <= KEPT_POSTERIOR:
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

    def spread(self, rule: str, draws: int, seed: int) -> Float[np.ndarray, " draw"]:
        """Welfare of posterior draws of the committee on training rows, less its mean; computed once.

        Outcomes are those that the committee estimates: the rows' own have been used in the fit. At a given zeta
        and without a last layer there is no such draw, and the spread is that of refits.
        """
        if not self.averages and not has_last_layer(self.fit.model):
            return self._refitted_spread(rule, draws, seed)
        key = rule, min(draws, DRAWS), seed
        if key not in self._spreads:
            fit = self.fit
            rows = np.random.default_rng([seed, 2]).permutation(len(fit.x))[:SPREAD_ROWS]
            outcomes = estimated_outcomes(fit)[rows] * fit.scale
            welfare = self.posterior().welfare(
                self.feedback.x[rows], outcomes, rule=rule, draws=key[1], seed=seed,
                sample_weight=None if self.feedback.weights is None else self.feedback.weights[rows],
            )  # fmt: skip
            self._spreads[key] = welfare.values - welfare.values.mean()
        return self._spreads[key]

    def _refitted_spread(self, rule: str, draws: int, seed: int) -> Float[np.ndarray, " draw"]:
        """Draws with the variance of the committee's welfare over refits with random row weights; refitted once."""
        fit = self.fit
        if rule not in self._refits:
            self._refits[rule] = refit(fit, refits=max(SPREAD_REFITS, len(fit.every)), rule=rule)
        made = self._refits[rule]
        sd = np.sqrt(made.variance / fit.thinning) * fit.scale
        return sd * np.random.default_rng([seed, 2]).standard_t(made.freedom, draws)
