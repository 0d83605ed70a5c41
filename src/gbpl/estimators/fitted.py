"""What a fitted policy can do: say how sure it is, estimate its own value, decide, and be saved (sections 6 to 8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from gbpl.certificates.bounds import Moments
from gbpl.certificates.certificate import DRAWS, Certificate, CertificateSettings
from gbpl.certificates.certify import cross_fitted_certificate, fresh_certificate, held_out_certificate
from gbpl.certificates.theorem import RiskBound, risk_bound
from gbpl.checks.finding import CheckReport
from gbpl.decisions.budget import WithinBudget
from gbpl.decisions.decisions import Rule
from gbpl.decisions.gain import GainInterval, GainSlope
from gbpl.decisions.reliability import Reliability, reliability
from gbpl.decisions.rule_settings import RuleSettings
from gbpl.estimators.base import Policy
from gbpl.estimators.budget import curve_of_policy, within
from gbpl.estimators.check import check_training
from gbpl.estimators.groups import training_table
from gbpl.estimators.small_rule import SmallRuleFit, columns_of, fit_small_rule
from gbpl.estimators.summary import PolicySummary, summarize_policy
from gbpl.estimators.training import AUTO_CALIBRATION, Training
from gbpl.fitting.apply import combined_deviation, has_last_layer, policy_of_deviation
from gbpl.frozen.explain import Explanation
from gbpl.frozen.file import SavedPolicy
from gbpl.frozen.freeze import freeze
from gbpl.frozen.seen import FEWEST, Seen
from gbpl.posterior.committee import CommitteePosterior
from gbpl.posterior.effect import Effect
from gbpl.posterior.eta import EtaChoice
from gbpl.posterior.posterior import Draws, Posterior
from gbpl.posterior.problem import PosteriorError
from gbpl.surrogates import Surrogate
from gbpl.tables.encoder import Encoder
from gbpl.tables.parts import SMALLEST_GROUP, check_smallest_group
from gbpl.value.by_group import GroupTable
from gbpl.value.curve import BudgetCurve
from gbpl.value.estimate import Value, check_estimator_name, needs_outcome_model
from gbpl.value.gains import Gains, gains_over
from gbpl.value.sensitivity import GAMMAS, Sensitivity
from gbpl.watch.monitor import Monitor

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["FittedPolicy"]


class FittedPolicy(Policy):
    """A policy of members that were fitted along a path, with the methods that need the `_training` set by `fit`."""

    zeta: Any
    eta: Any
    pseudo_outcome: str
    surrogate_: Surrogate
    model_: Any
    params_: Any
    member_weights_: Float[np.ndarray, " member"]
    gain_slope_: GainSlope | None
    effect_: Effect | None
    _training: Training

    def training(self, remedy: str, error: type[ValueError] = ValueError) -> Training:
        """What the fit has kept; a policy without its training rows is refused, with a remedy."""
        check_is_fitted(self)
        training: Training | None = getattr(self, "_training", None)
        if training is None:
            raise error(f"this policy was loaded without its training rows; {remedy}")
        return training

    # -- how sure -----------------------------------------------------------------------------------------

    def calibrate_eta(self, method: str = AUTO_CALIBRATION, **options: Any) -> EtaChoice:
        """The loss scale from the data, and the curve it was chosen from.

        `method` is `"information_matching"` (what `eta="auto"` uses), `"refit_matching"` or `"safe_bayes"`; options go
        to the function of that name in `posterior.eta`. `posterior(eta=choice.eta)` uses a choice; the fit stays as it
        is.
        """
        return self.training("calibrate eta where it was fitted", PosteriorError).calibrated(method, **options)

    def posterior(
        self, method: str | None = None, *, eta: float | None = None, refits: int = 100, seed: int = 0,
        engine: str = "local", **options: Any,
    ) -> Posterior:  # fmt: skip
        """The generalized posterior over policies, by one of several methods.

        By default, where zetas are averaged (`zeta="auto"`), a draw is the whole committee with other weights, in
        outcome units (`"committee"`, see `gbpl.posterior.committee`): its action probabilities are the probabilities
        that an action is the best one. The others draw members of a committee, or the one network of a given zeta, from
        exp(-eta sum loss) times the prior: `"last_layer"` (the default at a given zeta or eta), `"laplace"` (all
        weights; `structure`), `"exact"` (linear, unsquashed scores), `"sgld"`, `"nuts"`, `"variational"` (`family`) or
        `"bootstrap"` (`refits`); other options go to the method, see `gbpl.posterior`. Their decisions are those of the
        mixture over the members, each with its own training rows; the welfare of draws is the committee's where its
        members can be drawn jointly.
        `eta`, in the units of the estimator's `eta`, replaces `eta_` for the draws; the fit stays as it is.
        For a model whose features are fixed once grown (`ForestFeatures`), methods over all weights draw the last
        layer. The bootstrap's refits are made here, or by another `engine` (`runtime.engines`) such as `"ray"`.
        """
        training = self.training("make its posterior where it was fitted", PosteriorError)
        return training.posterior(method, eta=eta, refits=refits, seed=seed, engine=engine, **options)

    def certificate(
        self, X: Any = None, y: Any = None, *, outcome_range: Any = None, failure_probability: float = 0.05,
        of: str = "policy", rule: str = "deterministic", share: float = 0.5, seed: int = 0, action: Any = None,
        propensity: Any = None, controls: Any = None, cost: Any = None, sample_weight: Any = None, groups: Any = None,
        draws: int = 200, folds: int = 2, method: str = "last_layer", **options: Any,
    ) -> Certificate:  # fmt: skip
        """What the policy is worth at least, and gains at least, with probability 1 - failure_probability.

        The bounds hold for any number of rows and any distribution of them (`gbpl.certificates`). With rows, given as
        in `fit`, they are about this policy, which must not have learned from them. Without rows, a `share` of those of
        the fit is held out, and they are about a clone that learned from the others: `certificate.policy`.

        `outcome_range` is the lowest and highest value an outcome can take, before costs (with full feedback and no
        rows: after them), known without the data; the highest may be infinite. Rows, or groups of them, must be
        independent, and propensities known. Weights count, up to the largest that was learned from.

        With `of="draws"` they are about draws from the posterior, of which the rows choose (PAC-Bayes): `draws` from
        each of five loss scales by `method` and its options, and without rows each of `folds` parts certifies those of
        a clone fitted on the others.
        """
        training = self.training("certify it where it was fitted")
        settings = CertificateSettings(
            outcome_range=outcome_range, failure_probability=failure_probability, of=of, rule=rule, share=share,
            draws=draws, seed=seed, folds=folds, method=method, options=options,
        )  # fmt: skip
        settings.check_model(training.fit.problems()[0])
        given: dict[str, Any] = {
            "action": action, "propensity": propensity, "controls": controls, "sample_weight": sample_weight,
            "groups": groups,
        }  # fmt: skip
        if X is None and training.judged is not None:
            raise ValueError(
                "a certificate without rows repeats the fit to one outcome, and this policy learned from "
                "several; give new rows"
            )
        if X is None:
            own = training.feedback if training.nuisances is None else training.nuisances.feedback
            if own.cut:
                raise ValueError(
                    f"{own.cut} outcome(s) were cut before the fit, and a certificate is of outcomes as they are; fit "
                    "with outliers='keep', or give new rows"
                )
            if any(part is not None for part in (y, cost, *given.values())):
                raise ValueError("y, action and so on are given without X; give X too, or nothing for the fit's rows")
            certified = cross_fitted_certificate if of == DRAWS else held_out_certificate
            return certified(self, training.feedback, training.nuisances, settings)
        data = self._read_new(X=X, y=y, **given, cost=None if action is None else cost)
        validate_data(self, data.source, reset=False, skip_check_array=True)
        return fresh_certificate(self, data, cost, settings)

    def risk_bound(
        self, *, outcome_range: Any = None, moments: Moments | None = None, rate: float | None = None,
        failure_probability: float = 0.05, method: str = "laplace", draws: int = 200, seed: int = 0, **options: Any,
    ) -> RiskBound:  # fmt: skip
        """The paper's PAC-Bayes theorem for this fit: its surrogate risk from both sides, welfare, regret (section 8).

        The posterior is that of the networks at the zeta with the largest share, Gaussian over all weights (`method`
        and its options), the prior N(0, prior_sd^2). The loss has a range by `outcome_range`, or sub-exponential or
        sub-Gaussian constants by `moments` (`certificates.bounds.Moments`), known in advance. The `rate` t is fixed in
        advance; None for the best of a grid, whose rates share the failure probability. For full feedback, or inverse
        propensity weighted pseudo-outcomes of a log with known propensities.
        """
        training = self.training("bound its risk where it was fitted")
        known = training.nuisances
        if known is not None and (known.estimated or known.means is not None):
            raise ValueError(
                f"the theorem needs independent losses, and with pseudo_outcome={self.pseudo_outcome!r} models of the "
                "same rows are in them; fit with pseudo_outcome='ipw' and known propensities, or use certificate"
            )
        if known is not None and outcome_range is not None:  # of Y 1[A = a] / e_a
            most = 1.0 / float(known.logged_propensity.min())
            outcome_range = min(0.0, outcome_range[0] * most), max(0.0, outcome_range[1] * most)
        fit, problems = training.fit, training.fit.problems()
        shares: dict[Any, float] = {}
        for problem, share in zip(problems, fit.shares.tolist(), strict=True):
            shares[problem.model, problem.zeta] = shares.get((problem.model, problem.zeta), 0.0) + share
        best = max(shares, key=lambda key: shares[key])
        chosen = [
            (problem, share / shares[best])
            for problem, share in zip(problems, fit.shares.tolist(), strict=True)
            if (problem.model, problem.zeta) == best
        ]
        return risk_bound(
            chosen, fit.x, fit.target[: len(fit.x)], scale=fit.scale, outcome_range=outcome_range, moments=moments,
            rate=rate, failure_probability=failure_probability, method=method, draws=draws, seed=seed, options=options,
        )  # fmt: skip

    # -- deciding -----------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row action"]:
        """The randomized policy: one probability per action, columns in the order of `actions_`.

        The most probable action is that of `predict`: the probabilities are in the order of the estimated outcomes.
        """
        return policy_of_deviation(self._deviation(X))

    def _deviation(self, X: Any) -> Float[np.ndarray, "row action"]:
        x = self._standardized(X)
        deviation = combined_deviation(self.model_, self.surrogate_, self.params_, self.member_weights_, x)
        return deviation if self.effect_ is None else self.effect_.deviation(deviation)

    def expected_gain(self, X: Any = None, *, default: Any = None, level: float | None = None) -> Any:
        """The expected gain of each action over the `default` one (the first if None), in outcome units.

        It is slope (d_a(x) - d_default(x)), where d is the policy's deviation from uniform and the slope outcome units
        per unit of it (`gain_slope_`), hence in the order of `predict_proba`. Where zetas are averaged it is the
        posterior's mean. Without `X`: for the rows of the fit, by fits that saw nothing of their fold.

        With a `level` it is a `GainInterval` of such tables: `gain`, and the ends `low` and `high` of intervals that
        contain the gain of an action for a row with that probability, over rows.
        """
        check_is_fitted(self)
        if self.gain_slope_ is None:
            raise ValueError("expected_gain needs a committee, got committee=None; its slope is estimated out of fold")
        number = self._action_number(default)
        if X is not None:
            gain = self.gain_slope_.gains(self._deviation(X), number)
        else:
            held = self.training("give X").held_out
            unit = self.gain_slope_.slope if self.effect_ is None else 1.0
            gain = unit * (held.gain - held.gain[:, [number]]).astype(np.float64)
        if level is None:
            return gain
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must be between 0 and 1, got {level}; try 0.9")
        low, high = self._gain_ends(X, level, number)
        return GainInterval(gain, np.minimum(low, gain), np.maximum(high, gain))

    def _gain_ends(self, X: Any, level: float, default: int) -> tuple[np.ndarray, np.ndarray]:
        training = self.training("ask for intervals where it was fitted")
        posterior = training.posterior()
        if not isinstance(posterior, CommitteePosterior):
            raise ValueError(
                f"intervals of gains need zeta='auto', eta='auto' and a committee, got zeta={self.zeta!r} and "
                f"eta={self.eta!r}; leave level out, or fit with those"
            )
        return posterior.gain_interval(training.feedback.x if X is None else X, level, default)

    def reliability(self, *, groups: int = 5) -> Reliability:
        """Whether rows of which the policy is sure gain what they should, by their own outcomes.

        Rows of the fit are divided into `groups` by the probability that their most probable action is the best; each
        group's expected gain stands beside the estimated one (`decisions.reliability`, `plots.plot_reliability`).
        Effects are those of fits that saw nothing of the row's fold, with the spread of the whole posterior.
        """
        training = self._committee_training("reliability", "dr")
        posterior = training.posterior()
        if not isinstance(posterior, CommitteePosterior):
            raise ValueError(
                f"reliability needs zeta='auto', eta='auto' and a committee, got zeta={self.zeta!r} and "
                f"eta={self.eta!r}; fit with those"
            )
        feedback, gain = training.feedback, self.expected_gain()
        probability = posterior.probability_around(feedback.x, gain)
        return reliability(
            probability, gain, feedback.outcomes, weights=feedback.weights, groups=feedback.groups, count=groups
        )

    def decision_function(self, X: Any) -> Float[np.ndarray, "..."]:
        """Scores: f in [-1, 1] for two actions (action 1 where f >= 0), else one column per score.

        They are those of `predict_proba` where zetas are averaged. At a given zeta, `surrogate_.policy(scores)` is the
        members' mixture of the randomized policies of sections 4 and 5, which for the baseline gap differs from
        `predict_proba`, whose order is that of the gaps.
        """
        check_is_fitted(self)
        if self.effect_ is None:
            x = self._standardized(X)
            deviation = combined_deviation(
                self.model_, self.surrogate_, self.params_, self.member_weights_, x, mixture=True
            )
        else:
            deviation = self._deviation(X)
        scores = np.asarray(self.surrogate_.scores_of_policy(policy_of_deviation(deviation)))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def explain(
        self, X: Any, *, fixed: Sequence[str] = (), default: Any = None, level: float = 0.9, seed: int = 0
    ) -> Explanation:
        """Why one row is decided as it is: how sure, what each action brings, what moved it, and what would flip it.

        Gains are over the `default` action (the first if None); the rest is as in `SavedPolicy.explain`.
        """
        number = self._action_number(default)
        frozen = self.frozen()
        return frozen.with_study(rule=Rule(number), encoder=frozen.encoder, summary=None).explain(
            X, fixed=fixed, level=level, seed=seed
        )

    def _action_number(self, label: Any) -> int:
        check_is_fitted(self)
        labels = self.actions_.tolist()
        if label is not None and label not in labels:
            raise ValueError(f"default must be one of the actions {labels}, got {label!r}")
        return 0 if label is None else labels.index(label)

    def small_rule(self, kind: str = "tree", size: int | None = None, **constraints: Any) -> SmallRuleFit:
        """A tree (of depth `size`, 1 to 4), threshold or scorecard learned by welfare, with its price: `SmallRuleFit`.

        Constraints are those of `decisions.rule_settings.RuleSettings`: `leaves`, `without`, `monotone`, `min_share`.
        Scores are those of the fit, net of costs. The price is the value of the policy less the rule's, both on rows
        that nothing of either saw; `splits` say how often other samples would ask the same questions.
        """
        settings = RuleSettings(kind=kind, size=size, **constraints)
        training = self._committee_training("small_rule", "dr")
        names = getattr(self, "feature_names_in_", [f"feature {j}" for j in range(training.feedback.x.shape[1])])
        encoder = getattr(self, "encoder_", None)
        return fit_small_rule(training, settings, columns_of([str(name) for name in names], encoder), encoder)

    # -- value --------------------------------------------------------------------------------------------

    def sensitivity(
        self, gammas: Sequence[float] = GAMMAS, *, baseline: Any = None, level: float = 0.95
    ) -> Sensitivity:
        """How much hidden confounding would change the policy's value and its gain over a baseline.

        For each Gamma, bounds that hold if an unrecorded confounder changed the odds of an action by a factor of at
        most Gamma (`gbpl.value.confounding`); at Gamma = 1 they are `cross_fitted_value`, whose decisions these are of.
        `breakdown` is the Gamma at which the gain may be gone, for the policy and, as `row_breakdown`, for each row of
        the fit. `baseline` is as in `value`; None is the best single action. For logged feedback only.
        """
        training = self._committee_training("sensitivity", "dr")
        return training.sensitivity(baseline, gammas, level)

    def cross_fitted_value(
        self, policy: Any = None, *, estimator: str = "dr", rule: str = "deterministic", baseline: Any = None
    ) -> Value:
        """The value of the policy, from the rows it learned from, each decided by a fit that saw nothing of its fold.

        For each fold the whole fit is repeated without it: members, stopping, the choice of zetas and models, levels
        and outcome models (`path.held_out`), at the first call. The standard error counts the rows, that the fits of
        different folds depend on each other (`value.dependence`), and that they learned from fewer rows than the
        policy, for which the value is raised by what the posterior expects of the others (docs/calibration.md).

        `baseline` is as in `value`. A `policy` derived from the held-out one by a rule (under a capacity, say), one
        label or row of probabilities for each row, is evaluated instead, or a single label: everybody gets it.
        """
        training = self._committee_training("cross_fitted_value", estimator)
        if policy is not None and np.ndim(policy) == 0:  # one action for everybody was not learned
            return training.evaluator(estimator).value(policy, rule=rule, baseline=baseline)
        decided = training.untouched if policy is None else policy
        return training.value(decided, estimator=estimator, rule=rule, baseline=baseline)

    def gains(self, policy: Any = None, *, estimator: str = "dr", rule: str = "deterministic") -> Gains:
        """Gains of the policy over giving everybody one action, for each action, from rows that nothing of it saw.

        Intervals one by one and bands for all actions together, and the chance that it is better than every single
        action (`value.gains`); `policy`, `estimator` and `rule` are as in `cross_fitted_value`.
        """
        training = self._committee_training("gains", estimator)
        value = self.cross_fitted_value(policy, estimator=estimator, rule=rule)
        single = [option for option in training.evaluator(estimator).alternatives() if option.action is not None]
        return gains_over(value, [option.label for option in single], [option.value for option in single])

    def population_welfare(
        self, policy: Any = None, *, rule: str = "deterministic", estimator: str = "dr", baseline: Any = None,
        draws: int = 4000, seed: int = 0,
    ) -> Draws:  # fmt: skip
        """Draws of the policy's welfare in the population: `cross_fitted_value` plus its error.

        The error is normal, or Student's t where rows come in groups. With a `baseline` it is the gain over that; draws
        with the same seed belong together. `policy` is as in `cross_fitted_value`.
        """
        self._committee_training("population_welfare", estimator)
        if draws < 1:
            raise ValueError(f"draws must be >= 1, got {draws}; try 4000")
        value = self.cross_fitted_value(policy, estimator=estimator, rule=rule, baseline=baseline)
        error = np.random.default_rng([seed, 3]).standard_normal(draws)
        if np.isfinite(value.freedom):
            error *= np.sqrt(value.freedom / np.random.default_rng([seed, 4]).chisquare(value.freedom, draws))
        what = "population welfare" if baseline is None else "gain in population welfare"
        return Draws(value.estimate + value.se * error, f"{what} of the {rule} policy")

    def budget_curve(
        self, *, cost: Any = None, cost_outcome: Any = None, default: Any = None, order: Any = None,
        everyone: bool = False,
    ) -> BudgetCurve:  # fmt: skip
        """Gain over the `default` action against what is spent, per row, from rows that nothing of the policy saw.

        `cost` is what each action takes from the budget, in a unit of its own: a mapping, one number per action, or a
        table; 1 for every action but the default one if None, so that the spend is the share treated. `cost_outcome`
        has instead what was spent on each row of the fit, of which the mean by action is estimated. `order` is another
        order to compare with: `"lot"`, which knows no features, or expected gains, one row per row. With `everyone`
        the curve goes on where nothing is gained (docs/budget.md).
        """
        training = self._committee_training("budget_curve", "dr")
        return curve_of_policy(
            self, training, cost=cost, cost_outcome=cost_outcome, default=default, order=order, everyone=everyone
        )

    def within_budget(
        self, X: Any, budget: float, *, cost: Any = None, default: Any = None, draws: int | None = None, seed: int = 0
    ) -> WithinBudget:
        """Who of these rows gets what of a total `budget`, the price of the last place, and what is spent.

        `cost` is as in `budget_curve`, for these rows. `decisions.inclusion` is the posterior probability that a row
        is in: the share of draws by which it gets another action than the default one, each within the same budget;
        None where zetas are not averaged.
        """
        check_is_fitted(self)
        return within(self, X, budget, cost=cost, default=default, draws=draws, seed=seed)

    def summary(self) -> PolicySummary:
        """The policy on one page, as text, in a notebook, or with `to_latex`: rows, clusters, seeds, values, gains.

        Values and gains are those of `cross_fitted_value` and `gains`; what they assume is listed.
        """
        self._committee_training("summary", "dr")
        return summarize_policy(self)

    def check(self, *, names: Sequence[str] | None = None, seed: int = 0, progress: bool | None = None) -> CheckReport:
        """Try to break the result on the rows of the fit: a `CheckReport` with a verdict in words for each test.

        Balance of the log given the propensities, columns that copy the outcome or follow from the action, shuffled
        actions, outcomes of noise, a random common cause, other seeds, fewer rows, and one column left out at a time
        (docs/check.md). `names` has one name per feature; features of one name, such as the categories of a column,
        are left out together.
        """
        training = self._committee_training("check", "ipw")
        if training.judged is not None:
            raise ValueError("check repeats the fit to one outcome, and this policy learned from several; check that")
        count = training.feedback.x.shape[1]
        if names is None:
            names = [str(name) for name in getattr(self, "feature_names_in_", [f"feature {j}" for j in range(count)])]
        if len(names) != count:
            raise ValueError(f"names must have one name for each of {count} features, got {len(names)}")
        return check_training(training, names, construction=self.pseudo_outcome, seed=seed, progress=progress)

    def by_group(
        self, column: Any, *, name: str = "group", policy: Any = None, given: Any = None, default: Any = None,
        estimator: str = "dr", smallest_group: int = SMALLEST_GROUP,
    ) -> GroupTable:  # fmt: skip
        """Shares of the actions, values and gains by group, with bands for all groups together (docs/groups.md).

        `column` has one label or number per row of the fit, or is the name of a feature; numbers are cut into parts,
        and rare labels put together, so that no group has fewer rows than `smallest_group`. Gains are over the
        `default` action (the first if None). `policy` is as in `cross_fitted_value`; `given`, for shares, are the
        actions of the rows by the policy to be used, its own if None.
        """
        training = self._committee_training("by_group", estimator)
        return training_table(
            training, column, name=name, names=getattr(self, "feature_names_in_", ()), policy=policy, given=given,
            default=default, estimator=estimator, smallest=check_smallest_group(smallest_group),
        )  # fmt: skip

    def _committee_training(self, asked: str, estimator: str) -> Training:
        check_is_fitted(self)
        check_estimator_name(estimator)
        training = self.training("use value on new rows")
        if training.fit.deviation is None:
            raise ValueError(f"{asked} needs a committee, got committee=None; use value on new rows")
        nuisances = training.nuisances
        if nuisances is not None and needs_outcome_model(estimator) and nuisances.outcome_mean is None:
            raise ValueError(
                f"estimator={estimator!r} needs an outcome model, and pseudo_outcome={self.pseudo_outcome!r} has "
                "none; use 'ipw' or 'snipw'"
            )
        return training

    # -- keeping ------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        """Without the training rows: a saved policy does not carry people's data."""
        rows = ("_training", "pseudo_outcomes_")
        return {name: value for name, value in super().__getstate__().items() if name not in rows}

    def frozen(self, *, draws: int = 400, encoder: Encoder | None = None, smallest_group: int = FEWEST) -> SavedPolicy:
        """The policy without its training rows: what `save` writes, deciding with numpy alone.

        `draws` from the posterior are kept with it if the training rows are still available; 0 for none. So are, for
        each feature, rounded ends of its values that at least `smallest_group` rows lie beyond. With the `encoder` that
        made its features of a table, it takes such tables.
        """
        check_is_fitted(self)
        encoder = getattr(self, "encoder_", None) if encoder is None else encoder
        if encoder is not None and len(encoder.names) != self.n_features_in_:
            raise ValueError(
                f"the encoder makes {len(encoder.names)} features, and the policy was fitted to "
                f"{self.n_features_in_}; give the encoder whose features it was fitted to"
            )
        if draws < 0:
            raise ValueError(f"draws must be >= 0, got {draws}; try 400")
        training: Training | None = getattr(self, "_training", None)
        here = training is not None and (training.averages or has_last_layer(self.model_))
        names = getattr(self, "feature_names_in_", None)
        return freeze(
            self.model_, self.surrogate_, self.params_, self.member_weights_, self.standardizer_, self.actions_,
            feature_names=None if names is None else [str(name) for name in names],
            posterior=self.posterior() if draws and here else None, draws=draws, gain=self.gain_slope_,
            effect=self.effect_, encoder=encoder,
            fingerprint=getattr(self, "fingerprint_", None),
            seen=None if training is None else Seen.of(training.feedback.x, smallest_group),
        )  # fmt: skip

    def monitor(self, **settings: Any) -> Monitor:
        """Bounds on the policy's value and gain while data arrive; settings are those of `SavedPolicy.monitor`."""
        return self.frozen(draws=0).monitor(**settings)

    def save(self, path: Any, *, draws: int = 400) -> None:
        """Write the policy to one file: arrays as safetensors, the rest as JSON, no rows and no code.

        `gbpl.load` reads it, decides with numpy alone and gives the same numbers to 1e-6.
        """
        self.frozen(draws=draws).save(path)

    def to_onnx(self, path: Any, *, encoder: Encoder | None = None, encoded: bool = False) -> None:
        """Write the policy as an ONNX file, for programs without Python; `gbpl.to_onnx` says what it holds.

        With the `encoder` that made its features of a table, its inputs are the raw columns of such a table.
        """
        self.frozen(draws=0, encoder=encoder).to_onnx(path, encoded=encoded)

    def to_sql(
        self, *, dialect: str = "duckdb", table: str = "people", keep: Sequence[str] = (),
        encoder: Encoder | None = None,
    ) -> str:  # fmt: skip
        """The policy as one SQL query, for where the rows are (`gbpl.to_sql`); `encoder` is as in `to_onnx`."""
        return self.frozen(draws=0, encoder=encoder).to_sql(dialect=dialect, table=table, keep=keep)

    def to_python(self, *, encoder: Encoder | None = None) -> str:
        """The policy as a Python file without numpy (`gbpl.to_python`); `encoder` is as in `to_onnx`."""
        return self.frozen(draws=0, encoder=encoder).to_python()
