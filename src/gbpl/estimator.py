"""GBPLNet: the scikit-learn face over all of it (section 6)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from gbpl.devices import aligned_empty, resolve_devices
from gbpl.evaluate import combined_policy, member_policies
from gbpl.feedback import FullFeedback, Standardizer, align_outcomes, check_features, check_outcomes, check_weights
from gbpl.fit import FitConfig, StackFit, fit_stack
from gbpl.models import MLP, ScoreModel, as_model
from gbpl.posterior import Posterior
from gbpl.posteriors import METHODS, Bootstrap, PosteriorError, Problem, fit_bootstrap
from gbpl.stack import Member, across_folds, fold_rows, over_zeta
from gbpl.surrogates import BaselineGap, Binary, FullVector, Surrogate
from gbpl.welfare import deterministic, welfare
from gbpl.zeta import AUTO_PATH, OutOfFold, ZetaPath, average_weights, select_weights

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["GBPLNet"]

JUDGED_AT_A_TIME = 65_536


def _positive(name: str, value: Any, hint: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 < number < np.inf:
        raise ValueError(f"{name} must be > 0 and finite, got {value!r}; {hint}")
    return number


def _scaled_target(
    surrogate: Surrogate, outcomes: Float[np.ndarray, "row action"], scale: float
) -> Float[np.ndarray, "row score"]:
    """Target of outcomes / scale. Rows are centred first: the loss is the same, and float32 keeps its digits."""
    target = None
    for start in range(0, len(outcomes), JUDGED_AT_A_TIME):
        part = np.asarray(outcomes[start : start + JUDGED_AT_A_TIME], np.float64)
        if getattr(surrogate, "centered", True):
            part = part - part.mean(axis=1, keepdims=True)
        block = np.asarray(surrogate.target((part / scale).astype(np.float32)))
        if target is None:
            target = aligned_empty((len(outcomes), block.shape[1]))
        target[start : start + JUDGED_AT_A_TIME] = block
    assert target is not None
    return target


@dataclass(frozen=True, slots=True, eq=False)
class _Training:
    """What posteriors need of the fit: rows and targets as the members saw them, and the members that count."""

    x: Float[np.ndarray, "row feature"]
    target: Float[np.ndarray, "row score"]
    members: tuple[Member, ...]
    weights: Float[np.ndarray, " member"]
    surrogate: Surrogate

    def problems(self, model: ScoreModel, params: Any) -> list[Problem]:
        """The generalized posterior of each member; members of one fold share their rows."""
        folds: dict[int, tuple] = {}
        problems = []
        for number, member in enumerate(self.members):
            if id(member.train) not in folds:
                weights = None if member.weights is None else member.weights / np.mean(member.weights)
                folds[id(member.train)] = self.x[member.train], self.target[member.train], weights
            x, target, weights = folds[id(member.train)]
            problem = Problem(
                model=model,
                surrogate=self.surrogate,
                x=x,
                target=target,
                weights=weights,
                zeta=member.zeta,
                eta=member.eta,
                prior_sd=member.prior_sd,
                params=jax.tree.map(lambda leaf, number=number: leaf[number], params),
                seed=member.seed,
            )
            problems.append(problem)
        return problems


class GBPLNet(BaseEstimator):
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
        `"auto"` is one over the outcome scale, which makes the fit independent of the unit of the outcomes.
    prior_sd : number > 0
        Standard deviation of the Gaussian prior on the weights, the only regulariser:
        |w|^2 / (2 prior_sd^2 eta n) beside the mean loss.
    surrogate : "auto", "binary", "gap", "full", or a surrogate such as `BaselineGap(3, baseline=2)`
        `"auto"` is binary for two actions, full vector for more. `"gap"` takes the first action as baseline.
    model : None or a score model
        `MLP()` if None; also `Linear()`, `RandomFeatures()`, a pair of functions (init, apply), a Flax module, or a
        function that builds an Equinox module.
    committee : int >= 2 or None
        Members fitted across that many folds, each stopped on its own fold, scores averaged. None fits one
        network with a validation split, as in the paper.
    validation_fraction : number in (0, 1)
        Share of rows that stop the fit when `committee` is None.
    actions : list or None
        Labels of the actions; the columns' names, or 0, 1, ... if None.
    fit_config : FitConfig or None
        Learning rate, batch size, patience and so on.
    random_state : int, RandomState or None
        Folds, initial weights and batch order.
    device : "auto", "cpu" or "gpu"
    progress : bool or None
        Draw a progress line for fits longer than two seconds; None where somebody can see it.

    Attributes
    ----------
    actions_ : labels, in the order of the columns of `predict_proba`
    zeta_ : the zeta selected, or of largest weight
    zeta_path_ : `ZetaPath`, welfare out of fold per zeta
    eta_, outcome_scale_ : scale of the loss, and the root mean square difference between two actions' outcomes
    surrogate_, model_ : what was fitted
    params_, member_weights_ : parameters with a leading member axis, and what each member counts
    history_ : a dict a member: its zeta and fold, losses per epoch, best epoch

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
        self.fit_config = fit_config
        self.random_state = random_state
        self.device = device
        self.progress = progress

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    # -- fitting ------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, *, sample_weight: Any = None) -> GBPLNet:
        """Learn a policy from features and the outcome of every action.

        `y` has one column for each action, or one column: the gap between action 1 and action 0. Of `sample_weight`
        only the ratios matter; rows of weight zero are left out.
        """
        eta, zetas = self._checked_constants()
        validate_data(clone(self), X, skip_check_array=True)  # names of the features, before any work
        feedback = FullFeedback.of(X, y, actions=self.actions, sample_weight=sample_weight)
        surrogate = self._checked_surrogate(feedback.outcomes.shape[1])
        model = as_model(MLP() if self.model is None else self.model)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        folds = self._checked_folds(len(feedback), seed)

        scale = feedback.scale
        if scale == 0.0:
            scale = 1.0
            warnings.warn(
                "the outcomes of the actions never differ: every policy has the same welfare, and the one fitted "
                "means nothing",
                UserWarning,
                stacklevel=2,
            )
        eta = 1.0 / scale if eta is None else eta
        path = np.array(AUTO_PATH) * scale if zetas is None else np.array(zetas)
        rows = np.arange(len(feedback), dtype=np.int32)
        member = Member(rows, weights=feedback.weights, eta=eta * scale, prior_sd=self.prior_sd)
        members = over_zeta(across_folds(member, folds, seed=seed), list(path / scale))
        trained = rows if self.committee else members[0].train
        weights = None if feedback.weights is None else feedback.weights[trained]
        standardizer = Standardizer.fit(feedback.x, trained, weights)
        x = standardizer.apply(feedback.x)
        # Dividing outcomes and zeta by the scale, and multiplying eta by it, leaves the objective as it is.
        inner = replace(surrogate, huber=surrogate.huber / scale)
        target = _scaled_target(inner, feedback.outcomes, scale)
        stack = fit_stack(
            x, target, members, inner, model,
            config=self.fit_config, device=self.device, progress=self.progress,
        )  # fmt: skip
        zeta_path = self._judge(stack, x, feedback, folds, path, surrogate, model)
        counted = average_weights(zeta_path) if zetas is None else select_weights(zeta_path)
        zeta_path = replace(zeta_path, weight=counted)
        kept = np.flatnonzero(np.repeat(counted, len(folds)))
        self._keep(X, feedback, standardizer, stack, zeta_path, kept, surrogate, model)
        self.eta_, self.outcome_scale_ = eta, scale
        shares = np.repeat(counted / len(folds), len(folds))[kept]
        self._training = _Training(x, target, tuple(members[i] for i in kept), shares, inner)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Without the training rows: a saved policy decides, it does not carry people's data."""
        return {name: value for name, value in super().__getstate__().items() if name != "_training"}

    def _checked_constants(self) -> tuple[float | None, list[float] | None]:
        """eta and the zetas, None for "auto"; everything that can be refused before looking at data."""
        zetas: list[float] | None = None
        if not (isinstance(self.zeta, str) and self.zeta == "auto"):
            listed = [self.zeta] if isinstance(self.zeta, str) or not np.iterable(self.zeta) else list(self.zeta)
            zetas = [_positive("zeta", value, "try 0.1, a list such as [1, 0.1, 0.01], or 'auto'") for value in listed]
            if not zetas or len(set(zetas)) != len(zetas):
                raise ValueError(f"zeta must list at least one value, each once, got {self.zeta}")
        eta = None
        if not (isinstance(self.eta, str) and self.eta == "auto"):
            eta = _positive("eta", self.eta, "try 1.0, or 'auto'")
        _positive("prior_sd", self.prior_sd, "try 1.0")
        if self.committee is not None and not (isinstance(self.committee, int | np.integer) and self.committee >= 2):
            raise ValueError(f"committee must be a whole number >= 2, or None for one network, got {self.committee!r}")
        if _positive("validation_fraction", self.validation_fraction, "try 0.2") >= 1:
            raise ValueError(f"validation_fraction must be below 1, got {self.validation_fraction}; try 0.2")
        if self.fit_config is not None and not isinstance(self.fit_config, FitConfig):
            raise TypeError(f"fit_config must be a gbpl.FitConfig or None, got {self.fit_config!r}")
        resolve_devices(self.device)
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

    def _checked_folds(self, n: int, seed: int) -> list[np.ndarray]:
        if self.committee is None:
            held = max(1, round(n * self.validation_fraction))
            if n - held < 1:
                raise ValueError(f"too few rows: n_samples={n} leaves none to train on")
            order = np.random.default_rng(seed).permutation(n)
            return [np.sort(order[:held]).astype(np.int32)]
        if n < 2 * self.committee:
            raise ValueError(
                f"too few rows for the folds: n_samples={n}, and committee={self.committee} needs at least "
                f"{2 * self.committee}; use a smaller committee, or committee=None"
            )
        return fold_rows(n, self.committee, seed=seed)

    def _judge(
        self,
        stack: StackFit,
        x: Float[np.ndarray, "row feature"],
        feedback: FullFeedback,
        folds: list[np.ndarray],
        path: Float[np.ndarray, " zeta"],
        surrogate: Surrogate,
        model: ScoreModel,
    ) -> ZetaPath:
        """Each member on the fold it did not train on."""
        judge = OutOfFold(path, surrogate)
        for number, fold in enumerate(folds):
            params = stack.select(stack.find(fold=number))
            for start in range(0, len(fold), JUDGED_AT_A_TIME):
                rows = fold[start : start + JUDGED_AT_A_TIME]
                policies = member_policies(model, surrogate, params, x[rows])
                weights = None if feedback.weights is None else feedback.weights[rows]
                judge.add(policies, feedback.outcomes[rows], weights)
        return judge.path()

    def _keep(
        self,
        X: Any,
        feedback: FullFeedback,
        standardizer: Standardizer,
        stack: StackFit,
        path: ZetaPath,
        kept: np.ndarray,
        surrogate: Surrogate,
        model: ScoreModel,
    ) -> None:
        """Store the result. Scores of different zetas differ in size: they are averaged at a common size."""
        validate_data(self, X, skip_check_array=True)  # n_features_in_, feature_names_in_
        share = len(stack.members) // len(path.zeta)
        common = float(path.weight @ path.size)
        sized = np.where(path.size > 0, path.weight * common / np.maximum(path.size, 1e-12), 0.0)
        weights = np.repeat(sized / share, share)
        self.actions_ = feedback.actions
        self.zeta_path_ = path
        self.zeta_ = float(path.zeta[int(np.argmax(path.weight))])
        self.surrogate_, self.model_ = surrogate, model
        self.standardizer_ = standardizer
        self.params_ = stack.select(kept)
        self.member_weights_ = weights[kept]
        self.history_ = [
            {
                "zeta": float(path.zeta[i // share]),
                "fold": i % share,
                "best_epoch": int(stack.best_epoch[i]),
                "train_loss": stack.train_loss[i],
                "validation_loss": stack.validation_loss[i],
            }
            for i in range(len(stack.members))
        ]

    # -- how sure -----------------------------------------------------------------------------------------

    def posterior(self, method: str = "last_layer", *, refits: int = 100, seed: int = 0, **options: Any) -> Posterior:
        """The generalized posterior over policies, exp(-eta sum loss) times the prior, by one of several methods.

        `"last_layer"` (default), `"laplace"` (all weights; `structure`), `"exact"` (linear, unsquashed scores),
        `"sgld"`, `"nuts"`, `"variational"` (`family`) or `"bootstrap"` (`refits`); other options go to the method, see
        `gbpl.posteriors`. A committee's posterior is the mixture over its members, each with its own training rows.
        """
        check_is_fitted(self)
        training: _Training | None = getattr(self, "_training", None)
        if training is None:
            raise PosteriorError(
                "this policy was loaded without its training rows; make its posterior where it was fitted"
            )
        if method not in METHODS:
            raise PosteriorError(f"method must be one of {', '.join(sorted(METHODS))}, got {method!r}")
        problems = training.problems(self.model_, self.params_)
        if method == Bootstrap.method:
            if refits < 2 or options:
                raise PosteriorError(
                    f"the bootstrap takes `refits` >= 2 and `seed`, got {refits} and {sorted(options)}"
                )
            parts: Any = fit_bootstrap(
                problems, training.members, (training.x, training.target),
                refits=refits, seed=seed, config=self.fit_config, device=self.device, progress=self.progress,
            )  # fmt: skip
        else:
            parts = [METHODS[method](problem, **options) for problem in problems]
        return Posterior(
            parts,
            training.weights,
            standardizer=self.standardizer_,
            surrogate=training.surrogate,
            actions=self.actions_,
            gains=np.array([member.zeta for member in training.members]) * self.outcome_scale_,
            default_draws=sum(part.count for part in parts) if method == Bootstrap.method else 400,
        )

    # -- deciding -----------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row action"]:
        """The randomized policy: a probability for each action, columns in the order of `actions_`."""
        check_is_fitted(self)
        features = check_features(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        x = self.standardizer_.apply(features)
        return combined_policy(self.model_, self.surrogate_, self.params_, self.member_weights_, x)

    def predict(self, X: Any) -> np.ndarray:
        """The deterministic rule: the label of the most probable action."""
        chosen = deterministic(self.predict_proba(X))
        return self.actions_[chosen]

    def decision_function(self, X: Any) -> Float[np.ndarray, "..."]:
        """Scores: f in [-1, 1] for two actions (action 1 where f >= 0), else one column per score."""
        policy = self.predict_proba(X)
        scores = np.asarray(self.surrogate_.scores_of_policy(policy))
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Welfare of the deterministic rule on rows whose outcomes are all known."""
        policy = self.predict_proba(X)
        outcomes = check_outcomes(y if self.actions is not None else align_outcomes(y, self.actions_), len(policy))
        if outcomes.shape[1] != len(self.actions_):
            raise ValueError(f"y has {outcomes.shape[1]} actions, but the policy knows {len(self.actions_)}")
        chosen = np.eye(len(self.actions_))[deterministic(policy)]
        return welfare(chosen, outcomes, sample_weight=check_weights(sample_weight, len(policy)))
