"""GBPLNet: the scikit-learn face over all of it (section 6)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gbpl.certificates.certificate import Certificate, CertificateSettings, cross_fitted_certificate, fresh_certificate
from gbpl.decisions.gain import GainSlope, gain_slope
from gbpl.estimators.base import Policy, check_positive
from gbpl.feedback.full import FullFeedback, align_outcomes
from gbpl.feedback.logged import LoggedFeedback
from gbpl.fitting.apply import combined_deviation, has_last_layer, policy_of_deviation
from gbpl.fitting.stack import FitConfig
from gbpl.frozen.file import SavedPolicy
from gbpl.frozen.freeze import freeze
from gbpl.models.adapters import as_model
from gbpl.models.networks import MLP
from gbpl.nuisance.cross_fit import CrossFit, CrossFitting, Nuisances, check_construction, cross_fit
from gbpl.nuisance.off_policy import compare, overlap_of, value_from
from gbpl.passes.fit import fit_large
from gbpl.passes.parquet import ParquetRows
from gbpl.passes.rows import ArrayRows, RowSource
from gbpl.path.grid import auto_path
from gbpl.path.path import PathFit, fit_paths
from gbpl.path.plan import PathProblem, PathSettings, Table
from gbpl.posterior.eta import EtaChoice, estimated_outcomes, information_matching, refit_matching, safe_bayes
from gbpl.posterior.methods import METHODS, Bootstrap, LastLayer, PosteriorError, fit_bootstrap, member_posterior
from gbpl.posterior.posterior import Draws, Posterior
from gbpl.runtime.engines import in_chunks
from gbpl.surrogates import BaselineGap, Binary, FullVector, Surrogate
from gbpl.tables.roles import Roles
from gbpl.trees.forest import ForestFeatures
from gbpl.value.estimate import Value, check_estimator_name, logged_value, mean_value
from gbpl.value.overlap import warn_if_weak

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["GBPLNet", "fit_many"]

CALIBRATIONS: dict[str, Callable[..., EtaChoice]] = {
    "information_matching": information_matching,
    "refit_matching": refit_matching,
    "safe_bayes": safe_bayes,
}
AUTO_CALIBRATION = "information_matching"  # of eta="auto"
SPREAD_ROWS, SPREAD_DRAWS = 4_000, 400  # of the posterior's share in the population welfare
KEPT_POSTERIOR = 100 << 20  # bytes of Cholesky factors up to which the default posterior is kept
FITS_A_TASK = 8
LARGE = 200_000  # rows beyond which networks learn in passes, and a sample of the rows is kept
CORRECTIONS = (1.0, 0.0)  # of correction="auto"; the first judges
BESIDE = (ForestFeatures(),)  # the network in model="auto"


@dataclass(frozen=True, slots=True, eq=False)
class _Training:
    """What posteriors and values need of the fit."""

    fit: PathFit
    feedback: FullFeedback
    nuisances: Nuisances | None
    untouched: list[Float[np.ndarray, "row action"]] = field(default_factory=list)  # once it has been asked for
    choice: list[EtaChoice] = field(default_factory=list)  # of eta="auto", once it has been asked for
    posterior: list[Posterior] = field(default_factory=list)  # the default one, likewise, if it is small
    spread: dict[tuple[str, int, int], np.ndarray] = field(default_factory=dict)  # of population welfare, likewise


@dataclass(frozen=True, slots=True, eq=False)
class _Prepared:
    """A fit that is about to begin; `nuisances` are those of an earlier fit to the same log, where there are any."""

    policy: GBPLNet
    source: Any
    feedback: FullFeedback | LoggedFeedback
    folds: list[Int[np.ndarray, " row"]]
    settings: PathSettings
    fitting: CrossFitting | None
    nuisances: Nuisances | None = None


def fit_many(policies: Sequence[GBPLNet], data: Sequence[Mapping[str, Any]], *, engine: str = "local") -> list[GBPLNet]:
    """Fit several policies, each to its own data (the arguments of `GBPLNet.fit` by name), as one stack.

    Each becomes what `policy.fit(**data)` makes it, to float32 rounding. For simulation studies: a hundred fits on
    small samples cost little more than their arithmetic. Policies of different networks or settings take turns.

    By another `engine` (`runtime.engines`), such as `"ray"`, they are fitted in tasks of eight. What comes back
    decides, but has left its training rows behind: no posterior, no calibration. Warnings of workers are not heard.

    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(2, 50, 1)), rng.normal(size=(2, 50, 2))
    >>> fast = FitConfig(max_epochs=2)
    >>> fitted = fit_many([GBPLNet(random_state=r, fit_config=fast) for r in range(2)],
    ...                   [{"X": X[r], "y": Y[r]} for r in range(2)])
    >>> [policy.predict_proba([[0.0]]).shape for policy in fitted]
    [(1, 2), (1, 2)]
    """
    if len(policies) != len(data) or len({id(policy) for policy in policies}) != len(policies):
        raise ValueError(
            f"fit_many needs a policy of its own for each data set, got {len(policies)} policies for {len(data)}; "
            "make copies with sklearn.base.clone"
        )
    names = ("X", "y", "action", "propensity", "controls", "cost", "sample_weight", "groups")
    for given in data:
        unknown = sorted(set(given) - set(names))
        if unknown or "X" not in given:
            raise ValueError(f"data must have X, and may have {', '.join(names[1:])}, as in fit; got {sorted(given)}")
    if engine != "local":
        pairs = list(zip(policies, data, strict=True))
        back = in_chunks(_fit_pairs, pairs, engine=engine, size=FITS_A_TASK, device=policies[0].device)
        for policy, fitted in zip(policies, back, strict=True):
            policy.__dict__.update(fitted.__dict__)
        return list(policies)
    prepared = [
        policy._prepared(*(given.get(name) for name in names)) for policy, given in zip(policies, data, strict=True)
    ]
    _fit_together(prepared)
    return list(policies)


def _fit_pairs(pairs: Sequence[tuple[GBPLNet, Mapping[str, Any]]]) -> list[GBPLNet]:
    return fit_many([policy for policy, _ in pairs], [given for _, given in pairs])


def _fit_together(prepared: Sequence[_Prepared]) -> None:
    nuisances = [p.nuisances for p in prepared]
    waiting = [i for i, p in enumerate(prepared) if p.fitting is not None and p.nuisances is None]
    fittings = [fitting for i in waiting if (fitting := prepared[i].fitting) is not None]
    for number, found in zip(waiting, cross_fit(fittings), strict=True):
        nuisances[number] = found
    problems = [p.policy._problem(p, known) for p, known in zip(prepared, nuisances, strict=True)]
    fits = fit_paths(problems)
    for p, problem, known, fitted in zip(prepared, problems, nuisances, fits, strict=True):
        p.policy._finish(p, problem, known, fitted)


class GBPLNet(Policy):
    """Learn who gets which action, with a neural score and the squared-loss surrogate for welfare.

    Parameters
    ----------
    zeta : "auto", a number > 0, or a list of numbers
        Strength of the quadratic penalty, in outcome units; it sets how far the policy is shrunk towards uniform
        and where the fit stands between regression (large) and direct welfare maximisation (small). A list is
        selected from by welfare out of fold. `"auto"` fits the path 10, 3, 1, 0.1, 0.001 times the outcome scale
        and averages the scores, each zeta weighted by the probability that it is the best.
    eta : "auto" or a number > 0
        Scale of the loss in the generalized posterior exp(-eta sum loss) times the prior, per outcome unit.
        `"auto"` fits with one over the outcome scale, which makes the fit independent of the unit of the outcomes (it
        counts there only through the prior), and draws posteriors at the scale that `calibrate_eta` finds.
    prior_sd : number > 0
        Standard deviation of the Gaussian prior on the weights, the only regulariser:
        |w|^2 / (2 prior_sd^2 eta n) beside the mean loss.
    surrogate : {"auto", "binary", "gap", "full"} or a surrogate
        One such as `BaselineGap(3, baseline=2)` may be given itself. `"auto"` is binary for two actions, full vector
        for more. `"gap"` takes the first action as baseline.
    model : None, "auto" or a score model
        `MLP()` if None. `"auto"` puts forests (`ForestFeatures`) beside the networks, each weighted by the probability
        that it is the best, as zetas are; `GBPL` is the estimator with that default. Also `Linear()`, `Splines()`,
        `RandomFeatures()`, `ForestFeatures()`, `BoostedScore()`, a pair of functions (init, apply), a Flax module, or
        a function that builds an Equinox module.
    committee : int >= 2 or None
        Members fitted across that many folds, each stopped on its own fold, scores averaged. None fits one
        network with a validation split, as in the paper.
    validation_fraction : number in (0, 1)
        Share of rows that stop the fit when `committee` is None.
    actions : list or None
        Labels of the actions, in order; if None the columns' names (0, 1, ... if there are none), or with logged
        feedback the labels found, sorted.
    pseudo_outcome : {"dr", "ipw", "centered_ipw", "dm"}
        With logged feedback: doubly robust, inverse propensity as in the paper, the same around a regression of the
        outcome on the features, or the outcome model alone.
    outcome_model : None, "auto", a score model or a scikit-learn regressor
        With logged feedback: the model of the mean outcomes; `"auto"` is the average of a network, a forest and an
        additive regression that is least off out of fold. One for all actions or as `PerAction(regressor)` or
        `WithAction(regressor)` says; None is the network with a masked loss.
    nuisance_folds : int
        With logged feedback: parts of the cross-fitting, actions balanced and groups together.
    nuisance_repeats : int
        How often the cross-fitting is done anew, with other parts.
    correction : "auto" or a number in [0, 1]
        With `pseudo_outcome="dr"`: the share of the correction (Y - gamma) / e that is learned from. 1 is the doubly
        robust table, 0 the outcome model. `"auto"` fits both and averages them as it does zetas, each weighted by the
        probability that its doubly robust welfare out of fold is the best.
    clip : "auto" or a number in [0, 1/K)
        Propensities below are raised to it, the others of the row shrunk to sum to one; `"auto"` is 0.02 / K.
    fit_config : FitConfig or None
        Learning rate, batch size, patience and so on.
    random_state : int or RandomState or None
        Folds, initial weights and batch order.
    device : {"auto", "cpu", "gpu"}
        Where the networks are fitted; `"auto"` is a GPU if there is one.
    progress : bool or None
        Draw a progress line for fits longer than two seconds; None where somebody can see it.

    Attributes
    ----------
    actions_ : labels, in the order of the columns of `predict_proba`
    zeta_ : the zeta selected, or of largest weight
    zeta_path_ : `ZetaPath`, welfare out of fold per zeta
    eta_, outcome_scale_ : scale of the loss in the fit, and the root mean square difference of two actions' outcomes
    surrogate_, model_ : what was fitted
    params_, member_weights_ : parameters with a leading member axis, and what each member counts
    history_ : a dict a member: its zeta and fold, losses per epoch, best epoch
    gain_slope_ : what a unit of the policy's deviation from uniform is worth, out of fold; None without a committee
    pseudo_outcomes_ : with logged feedback, the n x K table of scores, net of costs. Not kept when the policy is
        pickled, like every other row of the training data
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
        fit_config: FitConfig | None = None,
        random_state: Any = None,
        device: str = "auto",
        progress: bool | None = None,
    ) -> None:
        self.zeta = zeta
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
        self.fit_config = fit_config
        self.random_state = random_state
        self.device = device
        self.progress = progress

    # -- fitting ------------------------------------------------------------------------------------------

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
    ) -> GBPLNet:
        """Learn a policy from features and outcomes.

        Without `action`, `y` has one column for each action, or one column: the gap between action 1 and action 0. A
        table of pseudo-outcomes from elsewhere goes in the same way.

        With `action` (a label a row), `y` is the outcome of that action, one number a row. `propensity` is then a
        number (a randomized trial: the probability of the second of two actions, or of each of more), a mapping from
        label to probability, one number a row (of the action taken), one column for each action, a scikit-learn
        classifier to cross-fit, or None, where it is estimated by logistic regression and said so. The policy sees
        `X`; models of outcomes and propensities see `X` and `controls`. `X` may also be a `LoggedFeedback`, which has
        it all.

        `cost` is what each action costs, a mapping from label or one number an action; rows of one of the `groups` stay
        in one fold; of `sample_weight` only the ratios matter, and rows of weight zero are left out.

        More than 200,000 rows are learned from in passes (`gbpl.passes`), by networks alone. A sample of 65,536 of them
        is kept, from which posterior and values speak (the last layer's precision is a sum over all rows, up to three
        actions). With `groups`, `controls` or estimated propensities all rows are kept.
        """
        data = (X, y, action, propensity, controls, cost, sample_weight, groups)
        prepared = self._prepared(*data)
        if self._learns_in_passes(prepared):
            rows = ArrayRows(prepared.feedback)
            self._fit_in_passes(rows, prepared.settings)
            validate_data(self, prepared.source, skip_check_array=True)
        else:
            _fit_together([prepared])
        return self

    def fit_parquet(
        self,
        paths: Any,
        *,
        outcome: str | None = None,
        action: str | None = None,
        outcomes: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
        propensity: str | float | Mapping[Any, float] | None = None,
        weight: str | None = None,
        cost: Mapping[Any, float] | None = None,
    ) -> GBPLNet:
        """Learn from Parquet files of any size, in memory that does not grow with them (`gbpl.passes`).

        Columns are named as in `gbpl.learn`. Networks learn in passes over shuffled row groups, their outcome models
        and the welfare out of fold likewise; a sample of 65,536 rows, each of which stands for many, is kept for
        posterior, values and the report. `encoder_` turns rows of such a table into the features that `predict` takes.
        """
        eta, zetas = self._checked_constants()
        roles = Roles(
            outcome=outcome, action=action, outcomes=outcomes, features=features, propensity=propensity, weight=weight
        )
        rows = ParquetRows(paths, roles, cost=cost, actions=self.actions)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = self._settings(len(rows.actions), zetas, eta, seed)
        self._fit_in_passes(rows, settings)
        self.encoder_ = rows.encoder
        self.n_features_in_ = rows.n_features
        return self

    def _learns_in_passes(self, prepared: _Prepared) -> bool:
        """Whether the rows are so many that a sample of them is all that posteriors and values need."""
        feedback = prepared.feedback
        known = not isinstance(feedback, LoggedFeedback) or feedback.propensity is not None
        plain = self.committee is not None and feedback.groups is None and getattr(feedback, "controls", None) is None
        network = self.outcome_model is None or isinstance(self.outcome_model, str)
        return len(feedback) > LARGE and known and plain and network and has_last_layer(prepared.settings.model)

    def _fit_in_passes(self, rows: RowSource, settings: PathSettings) -> None:
        found = fit_large(
            rows, replace(settings, beside=()), folds=self.committee or 0, construction=self.pseudo_outcome,
            corrections=self._corrections(), nuisance=self._cross_fit(settings.seed),
        )  # fmt: skip
        self._remember(found.fit, found.feedback, found.nuisances, settings.surrogate)

    def _prepared(
        self, X: Any, y: Any, action: Any, propensity: Any, controls: Any, cost: Any, sample_weight: Any, groups: Any
    ) -> _Prepared:
        """Data and settings, checked; nothing is fitted yet."""
        eta, zetas = self._checked_constants()
        logged = self._logged(X, y, action, propensity, controls, cost, sample_weight, groups, self.actions)
        source = X if logged is None else logged.source
        validate_data(clone(self), source, skip_check_array=True)  # names of the features, before any work
        feedback: FullFeedback | LoggedFeedback | None = logged
        if feedback is None:  # not `or`: a log has a length
            feedback = FullFeedback.of(
                X, y, actions=self.actions, cost=cost, sample_weight=sample_weight, groups=groups
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        settings = self._settings(len(feedback.actions), zetas, eta, seed)
        folds = self._checked_folds(feedback, seed)
        fitting = None
        if isinstance(feedback, LoggedFeedback):
            outer = folds if self.committee else None
            fitting = CrossFitting(self._cross_fit(seed), feedback, self.pseudo_outcome, outer)
        return _Prepared(self, source, feedback, folds, settings, fitting)

    def _settings(self, count: int, zetas: list[float] | None, eta: float | None, seed: int) -> PathSettings:
        """What is fitted, for so many actions."""
        return PathSettings(
            surrogate=self._checked_surrogate(count),
            model=as_model(MLP() if self.model is None or self._averages_models() else self.model),
            zetas=zetas,
            eta=eta,
            prior_sd=self.prior_sd,
            committee=bool(self.committee),
            seed=seed,
            config=self.fit_config,
            device=self.device,
            progress=self.progress,
            beside=BESIDE if self._averages_models() else (),
        )

    def _problem(self, prepared: _Prepared, nuisances: Nuisances | None) -> PathProblem:
        feedback = prepared.feedback
        if nuisances is None:
            assert isinstance(feedback, FullFeedback)
            tables = [Table([feedback.outcomes], feedback.scale)]
            return PathProblem(feedback, tables, prepared.folds, prepared.settings)
        scores = nuisances.pseudo_outcomes(self.pseudo_outcome, correction=self._corrections()[0])
        judge = FullFeedback(feedback.x, scores, feedback.weights, feedback.actions, feedback.groups)
        tables = [self._table(nuisances, judge, share) for share in self._corrections()]
        modelled = None
        if self._averages_models() and self.pseudo_outcome == "dr" and len(tables) > 1:
            modelled = nuisances.pseudo_outcomes("dr", correction=0.0)
        return PathProblem(judge, tables, prepared.folds, prepared.settings, modelled)

    def _finish(self, prepared: _Prepared, problem: PathProblem, nuisances: Nuisances | None, fitted: PathFit) -> None:
        validate_data(self, prepared.source, skip_check_array=True)  # n_features_in_, feature_names_in_
        self._remember(fitted, problem.feedback, nuisances, prepared.settings.surrogate)

    def _remember(
        self, fitted: PathFit, feedback: FullFeedback, nuisances: Nuisances | None, surrogate: Surrogate
    ) -> None:
        for name in ("pseudo_outcomes_", "overlap_", "encoder_"):  # of an earlier fit
            self.__dict__.pop(name, None)
        self._keep(fitted, feedback, surrogate)
        self._training = _Training(fitted, feedback, nuisances)
        if nuisances is not None:
            self.pseudo_outcomes_ = feedback.outcomes
            self.overlap_ = overlap_of(nuisances, feedback.outcomes, fitted.out_of_fold)
            warn_if_weak(self.overlap_)

    def _keep(self, fitted: PathFit, feedback: FullFeedback, surrogate: Surrogate) -> None:
        self.actions_ = feedback.actions
        self.zeta_path_ = fitted.path
        self.zeta_ = fitted.path.main_zeta
        self.eta_, self.outcome_scale_ = fitted.eta, fitted.scale
        self.surrogate_, self.model_ = surrogate, fitted.model
        self.standardizer_ = fitted.standardizer
        self.params_, self.member_weights_ = fitted.params, fitted.policy_weights
        self.history_ = fitted.history
        self.gain_slope_: GainSlope | None = None
        if fitted.deviation is not None:
            self.gain_slope_ = gain_slope(fitted.deviation, feedback.outcomes, feedback.weights)

    def _table(self, nuisances: Nuisances, feedback: FullFeedback, correction: float) -> Table:
        """What members learn from: for each fold scores that have seen nothing of it, where there are any."""
        whole = nuisances.pseudo_outcomes(self.pseudo_outcome, correction=correction)
        scale = replace(feedback, outcomes=whole).scale
        path = auto_path(correction)
        if nuisances.fold_means is None:
            return Table([whole], scale, correction, path)
        each = [
            nuisances.pseudo_outcomes(self.pseudo_outcome, correction=correction, fold=fold)
            for fold in range(len(nuisances.fold_means))
        ]
        return Table(each, scale, correction, path)

    def _corrections(self) -> tuple[float, ...]:
        if self.pseudo_outcome != "dr":
            return (1.0,)
        return CORRECTIONS if isinstance(self.correction, str) else (float(self.correction),)

    def _cross_fit(self, seed: int) -> CrossFit:
        device: Any = self.device
        return CrossFit(
            folds=self.nuisance_folds,
            repeats=self.nuisance_repeats,
            outcome_model=self.outcome_model,
            clip=self.clip,
            committee=self.committee,
            validation_fraction=self.validation_fraction,
            seed=seed,
            fit_config=self.fit_config,
            device=device,
            progress=self.progress,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Without the training rows: a saved policy decides, it does not carry people's data."""
        rows = ("_training", "pseudo_outcomes_")
        return {name: value for name, value in super().__getstate__().items() if name not in rows}

    def _averages_models(self) -> bool:
        if isinstance(self.model, str) and self.model != "auto":
            raise TypeError(f"model must be 'auto', None or a score model such as gbpl.MLP(), got {self.model!r}")
        return isinstance(self.model, str)

    def _checked_constants(self) -> tuple[float | None, list[float] | None]:
        """eta and the zetas, None for "auto"; everything that can be refused before looking at data."""
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
        if not (isinstance(self.correction, str) and self.correction == "auto"):
            number = isinstance(self.correction, int | float | np.number) and not isinstance(self.correction, bool)
            if not (number and 0.0 <= float(self.correction) <= 1.0):
                raise ValueError(f"correction must be 'auto' or a number in [0, 1], got {self.correction!r}; try 1.0")
            if self.pseudo_outcome != "dr":
                raise ValueError(
                    f"correction is {self.correction!r}, but pseudo_outcome={self.pseudo_outcome!r} has none; leave it "
                    "at 'auto', or use pseudo_outcome='dr'"
                )
        self._check_settings()
        return eta, zetas

    def _checked_surrogate(self, count: int) -> Surrogate:
        name = ("binary" if count == 2 else "full") if self.surrogate == "auto" else self.surrogate
        chosen: Surrogate
        match name:
            case "binary":
                chosen = Binary()
            case "gap":
                chosen = BaselineGap(count)
            case "full":
                chosen = FullVector(count)
            case Surrogate():
                chosen = name
            case _:
                raise ValueError(f"surrogate must be 'auto', 'binary', 'gap', 'full' or a surrogate, got {name!r}")
        if chosen.n_actions != count:
            raise ValueError(
                f"the surrogate {type(chosen).__name__} is for {chosen.n_actions} actions, but y has {count}"
                + ("; use surrogate='full' or 'gap'" if isinstance(chosen, Binary) else "")
            )
        return chosen

    def _rows_of_fit(self, remedy: str, error: type[ValueError] = ValueError) -> _Training:
        check_is_fitted(self)
        training: _Training | None = getattr(self, "_training", None)
        if training is None:
            raise error(f"this policy was loaded without its training rows; {remedy}")
        return training

    # -- how sure -----------------------------------------------------------------------------------------

    def calibrate_eta(self, method: str = AUTO_CALIBRATION, **options: Any) -> EtaChoice:
        """The loss scale from the data, and the curve it was chosen from.

        `method` is `"information_matching"` (what `eta="auto"` uses), `"refit_matching"` or `"safe_bayes"`; options go
        to the function of that name in `posterior.eta`. `posterior(eta=choice.eta)` uses a choice; the fit stays.
        """
        training = self._rows_of_fit("calibrate eta where it was fitted", PosteriorError)
        if method not in CALIBRATIONS:
            raise ValueError(f"method must be one of {', '.join(CALIBRATIONS)}, got {method!r}")
        if method != AUTO_CALIBRATION or options:
            return CALIBRATIONS[method](training.fit, **options)
        if not training.choice:
            training.choice.append(CALIBRATIONS[method](training.fit))
        return training.choice[0]

    def posterior(
        self, method: str = "last_layer", *, eta: float | None = None, refits: int = 100, seed: int = 0,
        engine: str = "local", **options: Any,
    ) -> Posterior:  # fmt: skip
        """The generalized posterior over policies, exp(-eta sum loss) times the prior, by one of several methods.

        `"last_layer"` (default), `"laplace"` (all weights; `structure`), `"exact"` (linear, unsquashed scores),
        `"sgld"`, `"nuts"`, `"variational"` (`family`) or `"bootstrap"` (`refits`); other options go to the method, see
        `gbpl.posterior`. Decisions of draws are those of the mixture over the committee's members, each with its own
        training rows; what draws are worth is the committee's where its members can be drawn jointly.
        `eta`, in the units of the estimator's, is another loss scale for the draws than `eta_`; the fit stays as it is.
        Of a model whose features are fixed once grown (`ForestFeatures`), methods over all weights draw the last layer.
        The bootstrap's refits are made here, or by another `engine` (`runtime.engines`) such as `"ray"`.
        """
        training = self._rows_of_fit("make its posterior where it was fitted", PosteriorError)
        if method not in METHODS:
            raise PosteriorError(f"method must be one of {', '.join(sorted(METHODS))}, got {method!r}")
        plain = method == LastLayer.method and eta is None and not options
        if plain and training.posterior:
            return training.posterior[0]
        fitted = training.fit
        problems = fitted.problems()
        if eta is not None:
            scaled = check_positive("eta", eta, "try 1.0") * self.outcome_scale_ * fitted.thinning
            problems = [replace(problem, eta=scaled) for problem in problems]
        elif self.eta == "auto" and method != Bootstrap.method and has_last_layer(fitted.model):
            with contextlib.suppress(PosteriorError):  # no policy is worth more than another: nothing to match
                self.calibrate_eta()
            for choice in training.choice:
                precision = choice.precision * self.outcome_scale_**2 * fitted.thinning
                problems = [replace(problem, eta=precision * problem.zeta) for problem in problems]
        if method == Bootstrap.method:
            if refits < 2 or options:
                raise PosteriorError(
                    f"the bootstrap takes `refits` >= 2 and `seed`, got {refits} and {sorted(options)}"
                )
            parts: Any = fit_bootstrap(
                problems, fitted.members, (fitted.x, fitted.target),
                shares=fitted.shares, refits=refits, seed=seed,
                config=self.fit_config, device=self.device, progress=self.progress, engine=engine,
            )  # fmt: skip
        else:
            parts = [member_posterior(method, problem, **options) for problem in problems]
        made = Posterior(
            parts,
            fitted.shares,
            standardizer=self.standardizer_,
            surrogate=fitted.surrogate,
            actions=self.actions_,
            gains=np.array([member.zeta for member in fitted.members]) * self.outcome_scale_,
            policy_weights=fitted.policy_weights,
            default_draws=refits if method == Bootstrap.method else 400,
        )
        if plain and sum(part.root.nbytes for part in parts) <= KEPT_POSTERIOR:
            training.posterior.append(made)
        return made

    def certificate(
        self, X: Any = None, y: Any = None, *, outcome_range: Any = None,
        failure_probability: float = 0.05, rule: str = "deterministic", draws: int = 200, seed: int = 0, folds: int = 2,
        action: Any = None, propensity: Any = None, controls: Any = None, cost: Any = None, method: str = "last_layer",
        **options: Any,
    ) -> Certificate:  # fmt: skip
        """What the posterior's policies are worth at least, with probability 1 - failure_probability (PAC-Bayes).

            low + width min{p : kl(p_hat || p) <= (KL(Q || P) + log(2 sqrt(n) / rho)) / n},

        P uniform on draws from the posterior and Q the best reweighting of them (`gbpl.certificates`). With rows,
        data as in `fit`, it certifies this fit on them; they must be rows it has not learned from. Without, the
        rows of the fit: on each of `folds` parts a clone fitted on the others. `outcome_range` is the lowest and
        highest value an outcome can take, before costs (with full feedback and no rows: after them), known without
        the data; rows must be independent, and propensities known. `draws` policies are drawn from each of five
        loss scales by `method` and its options.
        """
        training = self._rows_of_fit("certify it where it was fitted")
        settings = CertificateSettings(
            outcome_range=outcome_range, failure_probability=failure_probability, rule=rule, draws=draws, seed=seed,
            folds=folds, method=method, options=options,
        )  # fmt: skip
        settings.check_model(training.fit.problems()[0])
        if X is None:
            if any(part is not None for part in (y, action, propensity, controls, cost)):
                raise ValueError("y, action and so on are given without X; give X too, or nothing for the fit's rows")
            return cross_fitted_certificate(self, training.feedback, training.nuisances, settings)
        labels = self.actions_.tolist()
        data: Any = self._logged(X, y, action, propensity, controls, cost, None, None, labels)
        if data is None:
            table = y if self.actions is not None else align_outcomes(y, self.actions_)
            data = FullFeedback.of(X, table, actions=labels, min_rows=1)
        validate_data(self, X if data is not X else X.source, reset=False, skip_check_array=True)
        return fresh_certificate(self, data, cost, training.feedback.x, self._cross_fit(seed), settings)

    # -- deciding -----------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row action"]:
        """The randomized policy: a probability for each action, columns in the order of `actions_`."""
        return policy_of_deviation(self._deviation(X))

    def _deviation(self, X: Any) -> Float[np.ndarray, "row action"]:
        x = self._standardized(X)
        return combined_deviation(self.model_, self.surrogate_, self.params_, self.member_weights_, x)

    def expected_gain(self, X: Any = None, *, default: Any = None) -> Float[np.ndarray, "row action"]:
        """What each action is expected to gain over the `default` one (the first if None), in outcome units.

        slope (d_a(x) - d_default(x)), d the committee's deviation from uniform and the slope that of the outcomes on
        deviations out of fold (`decisions.gain`, `gain_slope_`): right on average, and in the order of `predict_proba`.
        Without `X`: of the rows of the fit, by members that did not train on them.
        """
        check_is_fitted(self)
        if self.gain_slope_ is None:
            raise ValueError("expected_gain needs a committee, got committee=None; its slope is judged out of fold")
        own = None if X is not None else self._rows_of_fit("give X").fit.deviation
        deviation = self._deviation(X) if own is None else own
        labels = self.actions_.tolist()
        if default is not None and default not in labels:
            raise ValueError(f"default must be one of the actions {labels}, got {default!r}")
        column = 0 if default is None else labels.index(default)
        return self.gain_slope_.slope * (deviation - deviation[:, [column]])

    # -- keeping ------------------------------------------------------------------------------------------

    def frozen(self, *, draws: int = 400) -> SavedPolicy:
        """The policy without its training rows: what `save` writes, deciding with numpy alone.

        `draws` of the posterior go with it, where the training rows are still there to make one; 0 for none.
        """
        check_is_fitted(self)
        if draws < 0:
            raise ValueError(f"draws must be >= 0, got {draws}; try 400")
        here = getattr(self, "_training", None) is not None and has_last_layer(self.model_)
        names = getattr(self, "feature_names_in_", None)
        return freeze(
            self.model_, self.surrogate_, self.params_, self.member_weights_, self.standardizer_, self.actions_,
            feature_names=None if names is None else [str(name) for name in names],
            posterior=self.posterior() if draws and here else None, draws=draws, gain=self.gain_slope_,
        )  # fmt: skip

    def save(self, path: Any, *, draws: int = 400) -> None:
        """Write the policy to one file: arrays as safetensors, the rest as JSON, no rows and no code.

        `gbpl.load` reads it, decides with numpy alone and gives the same numbers to 1e-6.
        """
        self.frozen(draws=draws).save(path)

    def decision_function(self, X: Any) -> Float[np.ndarray, "..."]:
        """Scores: f in [-1, 1] for two actions (action 1 where f >= 0), else one column per score."""
        policy = self.predict_proba(X)
        scores = np.asarray(self.surrogate_.scores_of_policy(policy))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    # -- worth ---------------------------------------------------------------------------------------------

    def cross_fitted_value(self, *, estimator: str = "dr", rule: str = "deterministic", baseline: Any = None) -> Value:
        """What the policy is worth, from the rows it learned on, each judged by networks that have not seen it.

        Each row is decided by networks that neither trained nor stopped on its fold, with zetas weighted by the other
        folds and, with logged feedback, scores whose outcome models saw nothing of the fold. These networks are fitted
        when first asked for; with fewer rows to learn from they are worth a little less than the committee of all.
        `baseline` is as in `value`.
        """
        training = self._committee_training("cross_fitted_value", estimator)
        if not training.untouched:
            training.untouched.append(training.fit.untouched())
        return self._own_value(training, training.untouched[0], estimator, rule, baseline)

    def _committee_training(self, asked: str, estimator: str) -> _Training:
        check_is_fitted(self)
        check_estimator_name(estimator)
        training = self._rows_of_fit("use value on new rows")
        if training.fit.deviation is None:
            raise ValueError(f"{asked} needs a committee, got committee=None; use value on new rows")
        nuisances = training.nuisances
        if nuisances is not None and estimator in ("dr", "dm") and nuisances.outcome_mean is None:
            raise ValueError(
                f"estimator={estimator!r} needs an outcome model, and pseudo_outcome={self.pseudo_outcome!r} has "
                "none; use 'ipw' or 'snipw'"
            )
        return training

    def _own_value(self, training: _Training, policy: Any, estimator: str, rule: str, baseline: Any) -> Value:
        """Value of a policy of the training rows, judged by their own outcomes."""
        feedback, nuisances = training.feedback, training.nuisances
        logged = None
        if nuisances is not None:
            log = nuisances.feedback
            logged = logged_value(log.net_outcome, weights=log.weights, groups=log.groups)

        def worth(policy: Float[np.ndarray, "row action"]) -> Value:
            if nuisances is None:
                return mean_value(policy, feedback.outcomes, weights=feedback.weights, groups=feedback.groups)
            return value_from(nuisances, policy, estimator=estimator)

        return compare(
            policy,
            baseline,
            worth,
            actions=self.actions_,
            n=len(feedback),
            rule=rule,
            source=feedback.x if nuisances is None else nuisances.feedback.source,
            logged=logged,
        )

    def out_of_fold_value(
        self, policy: Any = None, *, estimator: str = "dr", rule: str = "deterministic", baseline: Any = None
    ) -> Value:
        """What the policy is worth, from the rows of the fit, each judged by members that did not train on it.

        They did stop on it: `cross_fitted_value` is stricter, for the price of another fit. With a `policy` (a label, a
        label a row, or probabilities) it is the value of that on the same rows. `baseline` is as in `value`.
        """
        training = self._committee_training("out_of_fold_value", estimator)
        judged = training.fit.out_of_fold if policy is None else policy
        return self._own_value(training, judged, estimator, rule, baseline)

    def population_welfare(
        self, policy: Any = None, *, rule: str = "randomized", estimator: str = "dr", baseline: Any = None,
        draws: int = 4000, seed: int = 0,
    ) -> Draws:  # fmt: skip
        """What the policy is worth in the population, from the rows of the fit alone, with all that is uncertain in it.

        A draw is the value out of fold, plus a normal error of its standard error (the rows are a sample), plus the
        deviation of a posterior draw of the committee (another sample would have taught another policy), which is where
        eta comes in. That deviation is taken on training rows, with outcomes as the committee estimates them.

        Out of fold means: each row decided by the members that did not train on it. They did stop on it, which flatters
        them a little, and learned from fewer rows than the committee, which costs them about as much;
        `cross_fitted_value` avoids the first for the price of another fit, and does not avoid the second.

        With a `baseline`, as in `value`, it is the gain over that; draws of one seed belong together. A `policy`, what
        a rule made of this one decides for each row out of fold (under a capacity, say), is judged in its place.
        """
        training = self._committee_training("population_welfare", estimator)
        value = self.out_of_fold_value(policy, estimator=estimator, rule=rule, baseline=baseline)
        rng = np.random.default_rng([seed, 3])
        spread = self._spread(training, rule, min(draws, SPREAD_DRAWS), seed)
        values = value.estimate + value.se * rng.standard_normal(draws) + rng.choice(spread, draws)
        what = "population welfare" if baseline is None else "gain in population welfare"
        return Draws(values, f"{what} of the {rule} policy")

    def _spread(self, training: _Training, rule: str, draws: int, seed: int) -> Float[np.ndarray, " draw"]:
        """What posterior draws of the committee are worth on training rows, less their mean; made once."""
        key = rule, draws, seed
        if key in training.spread:
            return training.spread[key]
        fitted = training.fit
        rows = np.random.default_rng([seed, 2]).permutation(len(fitted.x))[:SPREAD_ROWS]
        outcomes = estimated_outcomes(fitted)[rows] * self.outcome_scale_
        found = self.posterior().welfare(training.feedback.x[rows], outcomes, rule=rule, draws=draws, seed=seed).values
        training.spread[key] = found - found.mean()
        return training.spread[key]

    def _learned_from(self) -> Float[np.ndarray, "row feature"] | None:
        training: _Training | None = getattr(self, "_training", None)
        return None if training is None else training.feedback.x
