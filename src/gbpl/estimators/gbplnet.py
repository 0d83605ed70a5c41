"""GBPLNet: the paper's neural form of policy learning, as a scikit-learn estimator (section 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from gbpl.checks.screen import screened
from gbpl.checks.suspicion import warn_of
from gbpl.decisions.gain import GainSlope, gain_slope
from gbpl.estimators.base import check_positive
from gbpl.estimators.fitted import FittedPolicy
from gbpl.estimators.settings import (
    DEFAULT_SELECTION,
    check_confounding,
    check_correction,
    confounding_of,
    selection_of,
    surrogate_for,
    zetas_for,
)
from gbpl.estimators.together import Request, fit_together
from gbpl.estimators.training import Training
from gbpl.feedback.fingerprint import Fingerprint
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.read import FEW_ROWS
from gbpl.fitting.apply import has_last_layer
from gbpl.fitting.config import FitConfig
from gbpl.models.adapters import as_model
from gbpl.models.networks import MLP
from gbpl.models.splines import Splines
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.nuisances import check_construction
from gbpl.nuisance.off_policy import overlap_of
from gbpl.passes.fit import fit_large
from gbpl.passes.parquet import ParquetRows
from gbpl.passes.rows import FEW_GROUPS, ArrayRows, RowSource
from gbpl.path.plan import PathSettings
from gbpl.runtime.keywords import answer_keywords
from gbpl.surrogates import Surrogate
from gbpl.tables.roles import Roles
from gbpl.trees.forest import ForestFeatures
from gbpl.value.overlap import warn_if_weak

if TYPE_CHECKING:
    from gbpl.feedback.read import Feedback

__all__ = ["GBPLNet"]

LARGE = 200_000  # rows beyond which models learn in passes, and a sample of the rows is kept
CORRECTIONS = (1.0, 0.0)  # of correction="auto"; policies are weighed by the first
NETWORK, BESIDE = MLP(hidden=(64, 64)), (ForestFeatures(),)  # the models of model="auto"
FEW, BESIDE_MANY = 5, (ForestFeatures(depth=7, components=128),)  # of more actions than these there is more to tell
OPTIONAL = (Splines(knots=5, curve_sd=0.3),)  # where they earn their place
WIDE = MLP()  # the network of model="auto" in passes
STEPS = FitConfig(learning_rate=2e-3, patience=6, tolerance=2e-3)  # and their training


class GBPLNet(FittedPolicy):
    """Learn who gets which action, with a neural score and the squared-loss surrogate for welfare.

    Parameters
    ----------
    zeta : "auto", a number > 0, or a list of numbers
        Strength of the quadratic penalty, in outcome units; it sets how far the policy is shrunk towards uniform
        and where the fit stands between regression (large) and direct welfare maximisation (small). From a list, one is
        selected (`zeta_selection`). `"auto"` fits the path 10, 3, 1, 0.1, 0.001 times the outcome scale
        and averages the scores, each zeta weighted by the probability that it is the best.
    zeta_selection : {"welfare", "reduced_loss"}
        By what one of a list of zetas is selected, out of fold: the welfare of the rule, or the least reduced loss
        (appendix G.3 of the paper names both). The second is there for comparison: whatever the policy, that loss is
        smaller at a smaller zeta, so it goes to the small end of the list (docs/paper.md).
    eta : "auto" or a number > 0
        Scale of the loss in the generalized posterior exp(-eta sum loss) times the prior, per outcome unit.
        `"auto"` fits with one over the outcome scale, which makes the fit independent of the unit of the outcomes (eta
        enters the fit only through the prior), and draws posteriors at the scale that `calibrate_eta` finds.
    prior_sd : number > 0
        Standard deviation of the Gaussian prior on the weights, the only regulariser:
        |w|^2 / (2 prior_sd^2 eta n) is added to the mean loss.
    surrogate : {"auto", "binary", "gap", "full", "welfare"} or a surrogate
        A name, or an object such as `BaselineGap(3, baseline=2)`. `"auto"` is binary for two actions, full vector
        for more. `"gap"` takes the first action as baseline. `"welfare"` is negative welfare itself, for comparison: it
        has no zeta, and its posterior is drawn by `"sgld"`, `"nuts"` or `"bootstrap"`.
    model : None, "auto" or a score model
        `MLP()` if None. `"auto"` puts forests (`ForestFeatures`) beside the networks, each weighted by the probability
        that it is the best, as zetas are, and curves of single features (`Splines`) where they are clearly the best;
        `GBPL` is the estimator with that default. Also `Linear()`, `Splines()`, `RandomFeatures()`, `ForestFeatures()`,
        `BoostedScore()`, a pair of functions (init, apply), a Flax module, or a function that builds an Equinox module.
    committee : int >= 2 or None
        Members are fitted across that many folds, each stopped by its own fold, and their scores averaged. None fits
        one network with a validation split, as in the paper.
    validation_fraction : number in (0, 1)
        Share of rows that stop the fit, and weigh the zetas, when `committee` is None. A linear score without squashing
        is solved instead of trained, and then learns from these rows too.
    actions : list or None
        Labels of the actions, in order. If None: the columns' names (0, 1, ... if there are none), or with logged
        feedback the labels in the data, sorted.
    pseudo_outcome : {"dr", "ipw", "centered_ipw", "dm"}
        With logged feedback: doubly robust, inverse propensity as in the paper, the same around a regression of the
        outcome on the features, or the outcome model alone.
    outcome_model : None, "auto", a score model or a scikit-learn regressor
        With logged feedback: the model of the mean outcomes; `"auto"` is the average of two networks (smooth and
        ReLU), a forest and an additive regression with the smallest out-of-fold error. A regressor is fitted for each
        action (`PerAction(regressor)`) or once with the action as a feature (`WithAction(regressor)`); None is the
        network with a masked loss.
    nuisance_folds : int
        With logged feedback: parts of the cross-fitting, actions balanced and groups together. Outcome models leave
        out two folds of the committee at a time where it has as many (docs/logged.md).
    nuisance_repeats : int
        How often the cross-fitting is repeated, with other parts.
    correction : "auto" or a number in [0, 1]
        With `pseudo_outcome="dr"`: the share of the correction (Y - gamma) / e that is learned from. 1 is the doubly
        robust table, 0 the outcome model. `"auto"` fits both and averages them as it does zetas, each weighted by the
        probability that its out-of-fold, doubly robust welfare is the best.
    clip : "auto" or a number in [0, 1/K)
        Propensities below it are raised to it, and the others in the row shrunk so that they sum to one; `"auto"` is
        0.02 / K.
    confounding : number >= 1
        With logged feedback: how far hidden confounding may change the odds of an action (`gbpl.value.confounding`).
        Above 1 the policy learns from lower bounds of the outcomes, and so maximises the least that it can be worth:
        `pseudo_outcomes_`, `zeta_path_` and expected gains are then of these bounds. Values stay those without
        confounding; `sensitivity` has their bounds.
    confounding_baseline : label or None
        With `confounding` above 1: learn from lower bounds of the gain over this action instead, so that it is left
        only where another one is surely better.
    outliers : {"cut", "keep"}
        `"cut"`: a few outcomes so far from all others that they would decide alone, or extreme tails on both sides, are
        cut, with a warning that names the rows (`gbpl.feedback.tails`). Skewed outcomes and rare events are not
        touched. A surrogate with a `huber` threshold keeps them, since its loss is robust.
    fit_config : FitConfig or None; learning rate, batch size, patience and so on
    random_state : int or RandomState or None
        Folds, initial weights and batch order.
    device : {"auto", "cpu", "gpu"}
        Where the networks are fitted; `"auto"` is a GPU if there is one and it is expected to save more time than
        compiling for it takes: small fits stay on the host (`gbpl.fitting.placement`).
    progress : bool or None
        Show a progress line for fits longer than two seconds; None shows it where somebody can see it.

    Attributes
    ----------
    actions_ : labels, in the order of the columns of `predict_proba`
    zeta_ : the selected zeta, or the one with the largest weight
    zeta_path_ : `ZetaPath`, out-of-fold welfare per zeta
    eta_, outcome_scale_ : scale of the loss in the fit, and the root mean square difference of two actions' outcomes
    surrogate_, model_ : what was fitted
    params_, member_weights_ : parameters with a leading member axis, and the weight of each member
    history_ : one dict per member: its zeta and fold, losses per epoch, best epoch
    gain_slope_ : gain in outcome per unit of the policy's deviation from uniform, out of fold; None without a committee
    effect_ : where zetas are averaged, what is played: the committee's deviation times a slope, and levels (`Effect`)
    pseudo_outcomes_ : with logged feedback, the n x K table of scores, net of costs; not kept when pickled
    overlap_ : with logged feedback, the `OverlapReport`

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> Y = np.column_stack([np.zeros(200), X[:, 0]]) + 0.1 * rng.normal(size=(200, 2))
    >>> policy = GBPLNet(actions=["wait", "treat"], random_state=0).fit(X, Y)
    >>> policy.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    ['treat', 'wait']
    """

    def __init__(
        self,
        *,
        zeta: float | Sequence[float] | str = "auto",
        zeta_selection: str = DEFAULT_SELECTION,
        eta: float | str = "auto",
        prior_sd: float = 1.0,
        surrogate: str | Surrogate = "auto",
        model: Any = None,
        committee: int | None = 5,
        validation_fraction: float = 0.2,
        actions: Sequence[Any] | None = None,
        pseudo_outcome: str = "dr",
        outcome_model: Any = None,
        correction: float | str = "auto",
        nuisance_folds: int = 5,
        nuisance_repeats: int = 1,
        clip: float | str = "auto",
        confounding: float = 1.0,
        confounding_baseline: Any = None,
        outliers: str = "cut",
        fit_config: FitConfig | None = None,
        random_state: Any = None,
        device: str = "auto",
        progress: bool | None = None,
    ) -> None:
        self.zeta = zeta
        self.zeta_selection = zeta_selection
        self.eta = eta
        self.prior_sd = prior_sd
        self.surrogate = surrogate
        self.model = model
        self.committee = committee
        self.validation_fraction = validation_fraction
        self.actions = actions
        self.pseudo_outcome = pseudo_outcome
        self.outcome_model = outcome_model
        self.correction = correction
        self.nuisance_folds = nuisance_folds
        self.nuisance_repeats = nuisance_repeats
        self.clip = clip
        self.confounding = confounding
        self.confounding_baseline = confounding_baseline
        self.outliers = outliers
        self.fit_config = fit_config
        self.random_state = random_state
        self.device = device
        self.progress = progress

    # -- fitting ------------------------------------------------------------------------------------------

    @answer_keywords
    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        action: Any = None,
        propensity: Any = None,
        controls: Any = None,
        cost: Any = None,
        sample_weight: Any = None,
        groups: Any = None,
        outcome_gap: Any = None,
    ) -> GBPLNet:
        """Learn a policy from features and outcomes.

        Without `action`, `y` has one column per action; of two actions `outcome_gap`, the outcome of the second less
        that of the first, is enough. A table of pseudo-outcomes from elsewhere goes in the same way.

        With `action` (one label per row), `y` is the outcome of that action, one number per row. `propensity` is then a
        number (a randomized trial: the probability of the second of two actions, or of each of more), a mapping from
        label to probability, one number per row (of the action taken), one column per action, a scikit-learn
        classifier to cross-fit, or None: it is then estimated by logistic regression, with a warning. The policy sees
        `X`; models of outcomes and propensities see `X` and `controls`. `X` may also be a `LoggedFeedback`, which holds
        all of these.

        `cost` is what each action costs, a mapping from label or one number per action. Rows of one of the `groups`
        stay in one fold. Only the ratios of `sample_weight` matter, and rows of weight zero are left out.

        Beyond 200,000 rows the same models learn in passes over the rows (`gbpl.passes`). A sample of 65,536 rows (at
        most one in five) is kept that nothing learns from, and posterior and values are computed from it (the last
        layer's precision is a sum over all rows, up to three actions). With `controls`, `confounding` or fewer than
        1,000 `groups` all rows are kept.
        """
        feedback = self.read_training(
            X=X, y=y, action=action, propensity=propensity, controls=controls, cost=cost, sample_weight=sample_weight,
            groups=groups, outcome_gap=outcome_gap,
        )  # fmt: skip
        return self.fit_feedback(feedback)

    def fit_feedback(self, feedback: Feedback) -> GBPLNet:
        """`fit`, from data that have been read and looked at."""
        self._check_settings()
        if self._learns_in_passes(feedback):
            training = self._fit_in_passes(ArrayRows(feedback))
        else:
            (training,) = fit_together([self.request(feedback)])
        self.remember(training, feedback.source)
        if len(training.feedback) < len(feedback):  # it keeps a sample
            self.fingerprint_ = Fingerprint.of(feedback)
        return self

    def fit_parquet(
        self,
        paths: Any,
        *,
        outcome: str | None = None,
        action: str | None = None,
        outcomes: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        exclude: Sequence[str] = (),
        propensity: str | float | Mapping[Any, float] | None = None,
        weight: str | None = None,
        group: str | None = None,
        cost: Mapping[Any, float] | None = None,
    ) -> GBPLNet:
        """Learn from Parquet files of any size, in memory that does not grow with them (`gbpl.passes`).

        Columns are named as in `gbpl.learn`; without `propensity` it is estimated. Networks learn in passes over
        shuffled row groups, and so do their outcome models; forests take their splits from a sample and the rest from
        sums over all rows; out-of-fold welfare is computed likewise. Another sample of 65,536 rows (at most one in
        five), each of which stands for many, is kept for posterior, values and the report: nothing learns from it.
        `encoder_` turns rows of such a table into the features that `predict` takes.
        """
        self._check_settings()
        if self.confounding > 1.0:
            raise ValueError(f"confounding={self.confounding!r} needs all rows in memory; use fit, or leave it at 1")
        roles = Roles(
            outcome=outcome, action=action, outcomes=outcomes, features=features, exclude=exclude,
            propensity=propensity, weight=weight, group=group,
        )  # fmt: skip
        rows = ParquetRows(paths, roles, cost=cost, actions=self.actions)
        if rows.n_rows >= FEW_ROWS:
            warn_of(screened(rows.sample(), cut=False)[1])
        self.remember(self._fit_in_passes(rows), None)
        self.fingerprint_ = Fingerprint.of(self._training.rows, rows=rows.n_rows)
        self.encoder_ = rows.encoder
        self.n_features_in_ = rows.n_features
        return self

    def _learns_in_passes(self, feedback: Feedback) -> bool:
        """Whether there are so many rows that a sample is enough for posteriors and values."""
        if len(feedback) <= LARGE or self.committee is None or self.confounding > 1.0:
            return False
        if feedback.groups is not None and len(np.unique(feedback.groups)) < FEW_GROUPS:
            return False
        if isinstance(feedback, LoggedFeedback) and feedback.controls is not None:
            return False
        network = self.outcome_model is None or isinstance(self.outcome_model, str)
        return network and has_last_layer(self.score_model)

    def _fit_in_passes(self, rows: RowSource) -> Training:
        settings = self.path_settings(len(rows.actions), self._drawn_seed())
        if self.averages_models:  # with so many rows a wider network pays, and its steps need not be few
            settings = replace(settings, model=WIDE, beside=BESIDE, optional=(), config=self.fit_config)
        done = fit_large(
            rows, settings, folds=self.committee or 0, construction=self.pseudo_outcome,
            corrections=self._corrections(), nuisance=self.cross_fit_settings(settings.seed),
        )  # fmt: skip
        return Training(done.fit, done.feedback, done.nuisances)

    def request(self, feedback: Feedback) -> Request:
        """The fit to some rows, with its seeds drawn."""
        seed = self._drawn_seed()
        settings = self.path_settings(len(feedback.actions), seed)
        folds = self.stopping_folds(feedback, seed)
        gamma, baseline = confounding_of(self.confounding, self.confounding_baseline, feedback)
        return Request(
            feedback, folds, settings, self.cross_fit_settings(seed), self.pseudo_outcome, self._corrections(), gamma,
            baseline,
        )  # fmt: skip

    def remember(self, training: Training, source: Any) -> None:
        """Set all learned attributes; `source` are the features as they were given, None for files."""
        if source is not None:
            validate_data(self, source, skip_check_array=True)  # n_features_in_, feature_names_in_
        for name in ("pseudo_outcomes_", "overlap_", "encoder_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        fit, feedback, nuisances = training.fit, training.feedback, training.nuisances
        self.actions_ = feedback.actions
        self.zeta_path_ = fit.path
        self.zeta_ = fit.path.main_zeta
        self.eta_, self.outcome_scale_ = fit.eta, fit.scale
        self.surrogate_, self.model_ = fit.settings.surrogate, fit.model
        self.standardizer_ = fit.standardizer
        self.params_, self.member_weights_ = fit.params, fit.policy_weights
        self.history_ = fit.history
        self.gain_slope_ = self.effect_ = None
        if fit.effect is not None:
            self.effect_, self.gain_slope_ = fit.effect.mean, GainSlope(fit.effect.mean.unit, fit.effect.unit_se)
        elif fit.deviation is not None:
            self.gain_slope_ = gain_slope(fit.deviation, feedback.outcomes, feedback.weights)
        self._training = training
        kept = training.rows
        self.fingerprint_ = Fingerprint.of(kept, rows=round(len(kept) * fit.thinning))
        if nuisances is not None:
            self.pseudo_outcomes_ = feedback.outcomes
            self.overlap_ = overlap_of(nuisances, feedback.outcomes, fit.out_of_fold)
            warn_if_weak(self.overlap_)

    # -- settings -----------------------------------------------------------------------------------------

    def _drawn_seed(self) -> int:
        """The seed of a fit, drawn from `random_state`."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    @property
    def _steps(self) -> FitConfig | None:
        return STEPS if self.averages_models and self.fit_config is None else self.fit_config

    @property
    def score_model(self) -> Any:
        """The first of the models that are fitted."""
        return as_model(NETWORK if self.averages_models else MLP() if self.model is None else self.model)

    def path_settings(self, count: int, seed: int) -> PathSettings:
        """Settings of the fit for `count` actions; `eta` and `zetas` are None if they follow from the data."""
        eta, zetas = self.checked_constants()
        surrogate = surrogate_for(self.surrogate, count)
        return PathSettings(
            surrogate=surrogate,
            model=self.score_model,
            zetas=zetas_for(surrogate, zetas),
            select=selection_of(self.zeta_selection, zetas, surrogate),
            eta=eta,
            prior_sd=self.prior_sd,
            committee=bool(self.committee),
            seed=seed,
            config=self._steps,
            device=self.device,
            progress=self.progress,
            beside=(BESIDE_MANY if count > FEW else BESIDE) if self.averages_models else (),
            optional=OPTIONAL if self.averages_models else (),
        )

    def _corrections(self) -> tuple[float, ...]:
        """Shares of the doubly robust correction that are learned from; policies are weighed by the first."""
        if self.pseudo_outcome != "dr":
            return (1.0,)
        return CORRECTIONS if isinstance(self.correction, str) else (float(self.correction),)

    def cross_fit_settings(self, seed: int) -> CrossFit:
        device: Any = self.device
        return CrossFit(
            folds=self.nuisance_folds,
            repeats=self.nuisance_repeats,
            outcome_model=self.outcome_model,
            clip=self.clip,
            committee=self.committee,
            validation_fraction=self.validation_fraction,
            seed=seed,
            fit_config=self._steps,
            device=device,
            progress=self.progress,
        )

    @property
    def averages_models(self) -> bool:
        """Whether several models are fitted and averaged."""
        if isinstance(self.model, str) and self.model != "auto":
            raise TypeError(f"model must be 'auto', None or a score model such as gbpl.MLP(), got {self.model!r}")
        return isinstance(self.model, str)

    @property
    def cuts(self) -> bool:
        robust = isinstance(self.surrogate, Surrogate) and self.surrogate.huber < float("inf")
        return self.outliers == "cut" and not robust

    def _check_settings(self) -> None:
        if self.outliers not in ("cut", "keep"):
            raise ValueError(f"outliers must be 'cut' or 'keep', got {self.outliers!r}")
        self.checked_constants()
        super()._check_settings()

    def checked_constants(self) -> tuple[float | None, list[float] | None]:
        """eta and the zetas, None for "auto"; wrong values are refused before looking at data."""
        zetas: list[float] | None = None
        if not (isinstance(self.zeta, str) and self.zeta == "auto"):
            listed = [self.zeta] if isinstance(self.zeta, str) or not np.iterable(self.zeta) else list(self.zeta)
            hint = "try 0.1, a list such as [1, 0.1, 0.01], or 'auto'"
            zetas = [check_positive("zeta", value, hint) for value in listed]
            if not zetas or len(set(zetas)) != len(zetas):
                raise ValueError(f"zeta must list at least one value, each once, got {self.zeta}")
        eta = None
        if not (isinstance(self.eta, str) and self.eta == "auto"):
            eta = check_positive("eta", self.eta, "try 1.0, or 'auto'")
        check_construction(self.pseudo_outcome)
        check_correction(self.correction, self.pseudo_outcome)
        check_confounding(self.confounding, self.confounding_baseline, self.pseudo_outcome)
        return eta, zetas
