"""The methods the paper compares GBPLNet with, as estimators with the same interface (section 9).

Each is a row loss of `fitting.losses` fitted as a stack: a committee across folds, or one network with a validation
split. Parameters and the data of `fit` are those of `GBPLNet`; the prior has the weight it has there with `eta="auto"`.
A committee of regressions or classifiers averages raw outputs and then decides; one of policies (DirectWelfare and its
variants) averages policies.

Learned attributes are `actions_`, `standardizer_`, `model_`, `loss_` (which turns raw outputs into a policy), `params_`
with a leading member axis, `history_` (one dict per member), `outcome_scale_` (what outcomes were divided by), and
`cost_` (mean cost of each action, where predicted means are before costs).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import jax
import numpy as np
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from gbpl.estimators.base import Policy
from gbpl.feedback.fingerprint import Fingerprint
from gbpl.feedback.full import FullFeedback, unit_of
from gbpl.feedback.logged import LoggedFeedback
from gbpl.feedback.read import Feedback
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import row_blocks
from gbpl.fitting.convergence import warn_if_unfinished
from gbpl.fitting.losses import GapSquare, OutcomeSquare, RowLoss, SurrogateLoss, WeightedLogit
from gbpl.fitting.members import Member, across_folds, dealt_rows
from gbpl.fitting.stack import FitConfig, Objective, fit_stack
from gbpl.models.adapters import as_model
from gbpl.models.base import ScoreModel
from gbpl.models.networks import MLP
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.learners import MaskedSquare
from gbpl.surrogates import NegativeWelfare

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Int

__all__ = [
    "DiffReg", "DirectDRWelfare", "DirectIPWWelfare", "DirectWelfare", "PluginReg", "PluginRegK", "WeightedLogistic",
]  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """What is fitted, in units of `scale`; `loss` gives the policy, `cost` is yet to be subtracted from predictions."""

    loss: RowLoss
    objective: Objective
    target: Any
    scale: float
    cost: Float[np.ndarray, " action"] | float = 0.0


@partial(jax.jit, static_argnames=("model", "loss", "mixes"))
def _decided(
    params: Any, cost: Array, x: Float[Array, "row feature"], *, model: ScoreModel, loss: RowLoss, mixes: bool
) -> Float[Array, "row action"]:
    raw = jax.vmap(lambda p: model.apply(p, x))(params)
    return loss.policy(raw).mean(axis=0) if mixes else loss.policy(raw.mean(axis=0) - cost)


class _Baseline(Policy):
    """One row loss, fitted as GBPLNet is, without a path of zetas or a posterior."""

    mixes: ClassVar[bool] = False  # a committee averages policies, not raw outputs

    def __init__(
        self,
        *,
        model: Any = None,
        committee: int | None = 5,
        validation_fraction: float = 0.2,
        prior_sd: float = 1.0,
        actions: Sequence[Any] | None = None,
        fit_config: FitConfig | None = None,
        random_state: Any = None,
        device: str = "auto",
        progress: bool | None = None,
    ) -> None:
        self.model = model
        self.committee = committee
        self.validation_fraction = validation_fraction
        self.prior_sd = prior_sd
        self.actions = actions
        self.fit_config = fit_config
        self.random_state = random_state
        self.device = device
        self.progress = progress

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
    ) -> Self:
        """Learn a policy; the data are as in `GBPLNet.fit`, with `action` those of a log."""
        model = as_model(MLP() if self.model is None else self.model)
        data = self.read_training(
            X=X, y=y, action=action, propensity=propensity, controls=controls, cost=cost, sample_weight=sample_weight,
            groups=groups, outcome_gap=outcome_gap,
        )  # fmt: skip
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        folds = self.stopping_folds(data, seed)
        task = self._task(data, folds, seed)
        rows = dealt_rows(len(data), folds)
        weights = None if data.weights is None else data.weights[rows]
        # In units of the scale, one over it, the eta that GBPLNet fits with, is 1.
        members = across_folds(Member(rows, weights=weights, prior_sd=self.prior_sd), folds, seed=seed)
        trained = rows if self.committee else members[0].train
        standardizer = Standardizer.fit(data.x, trained, None if data.weights is None else data.weights[trained])
        stack = fit_stack(
            standardizer.apply(data.x), task.target, members, task.objective, model,
            config=self.fit_config, device=self.device, progress=self.progress,  # type: ignore[arg-type]
        )  # fmt: skip
        warn_if_unfinished(stack, self.fit_config, [f"fold {number}" for number in range(len(members))])
        validate_data(self, data.source, skip_check_array=True)  # n_features_in_, feature_names_in_
        self.actions_, self.standardizer_, self.model_ = data.actions, standardizer, model
        self.loss_, self.outcome_scale_, self.cost_ = task.loss, task.scale, task.cost
        self.params_ = stack.params
        self.history_ = [
            {"fold": number, "best_epoch": int(best), "train_loss": train, "validation_loss": validation}
            for number, (best, train, validation) in enumerate(
                zip(stack.best_epoch, stack.train_loss, stack.validation_loss, strict=True)
            )
        ]
        self.fingerprint_ = Fingerprint.of(data)
        return self

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row action"]:
        """The policy, columns in the order of `actions_`; zeros and ones where the method has only a rule."""
        x = self._standardized(X)
        params, cost = jax.device_put((self.params_, np.asarray(self.cost_ / self.outcome_scale_, np.float32)))
        policy = np.empty((len(x), len(self.actions_)), np.float32)
        for rows, part in row_blocks(x):
            decided = _decided(params, cost, part, model=self.model_, loss=self.loss_, mixes=self.mixes)
            policy[rows] = np.asarray(decided)[: rows.stop - rows.start]
        return policy

    def cross_fit_settings(self, seed: int) -> CrossFit:
        device: Any = self.device
        return CrossFit(
            committee=self.committee,
            validation_fraction=self.validation_fraction,
            seed=seed,
            fit_config=self.fit_config,
            device=device,
            progress=self.progress,
        )

    @abstractmethod
    def _task(self, data: Feedback, folds: list[Int[np.ndarray, " row"]], seed: int) -> _Task:
        """The fit that the method makes from the data; data it cannot learn from are refused here."""

    def _table_task(self, loss: RowLoss, data: FullFeedback, level: float = 0.0) -> _Task:
        """The table of outcomes or pseudo-outcomes, less a level, as the target of a loss."""
        scale = unit_of(data.scale)
        return _Task(loss, loss, loss.target((np.asarray(data.outcomes, np.float64) - level) / scale), scale)

    def _every_outcome(self, data: Feedback, instead: str) -> FullFeedback:
        if isinstance(data, FullFeedback):
            return data
        raise ValueError(
            f"{type(self).__name__} needs the outcomes of every action in every row, got those of the action taken; "
            f"use {instead}"
        )

    def _scored(self, data: Feedback, construction: str, seed: int) -> FullFeedback:
        """The table of pseudo-outcomes of a log, cross-fitted."""
        if isinstance(data, FullFeedback):
            raise ValueError(
                f"{type(self).__name__} learns from logged feedback, got the outcomes of {data.outcomes.shape[1]} "
                "actions and no action; give the action taken in each row, or use DirectWelfare"
            )
        nuisances = self.cross_fit_settings(seed).run(data, construction)
        scores = nuisances.pseudo_outcomes(construction)
        return FullFeedback(data.x, scores, data.weights, data.actions, data.groups)

    def _check_two(self, data: Feedback) -> None:
        if len(data.actions) != 2:
            raise ValueError(
                f"{type(self).__name__} is for two actions, got {len(data.actions)}: {data.actions.tolist()}; use "
                "PluginReg"
            )


class _Weighted(_Baseline):
    """A method that needs the propensities of a log."""

    def __init__(
        self, *, model: Any = None, committee: int | None = 5, validation_fraction: float = 0.2, prior_sd: float = 1.0,
        actions: Sequence[Any] | None = None, nuisance_folds: int = 5, clip: float | str = "auto",
        fit_config: FitConfig | None = None, random_state: Any = None, device: str = "auto",
        progress: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            model=model, committee=committee, validation_fraction=validation_fraction, prior_sd=prior_sd,
            actions=actions, fit_config=fit_config, random_state=random_state, device=device, progress=progress,
        )  # fmt: skip
        self.nuisance_folds = nuisance_folds
        self.clip = clip

    def cross_fit_settings(self, seed: int) -> CrossFit:
        return replace(super().cross_fit_settings(seed), folds=self.nuisance_folds, clip=self.clip)


class _Robust(_Weighted):
    """A method that also needs an outcome model of a log."""

    def __init__(
        self, *, model: Any = None, committee: int | None = 5, validation_fraction: float = 0.2, prior_sd: float = 1.0,
        actions: Sequence[Any] | None = None, outcome_model: Any = None, nuisance_folds: int = 5,
        clip: float | str = "auto", fit_config: FitConfig | None = None, random_state: Any = None,
        device: str = "auto", progress: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            model=model, committee=committee, validation_fraction=validation_fraction, prior_sd=prior_sd,
            actions=actions, nuisance_folds=nuisance_folds, clip=clip, fit_config=fit_config,
            random_state=random_state, device=device, progress=progress,
        )  # fmt: skip
        self.outcome_model = outcome_model

    def cross_fit_settings(self, seed: int) -> CrossFit:
        return replace(super().cross_fit_settings(seed), outcome_model=self.outcome_model)


class DiffReg(_Baseline):
    """Regression of the gap Y(1) - Y(0), action 1 where it is predicted to be >= 0. Full feedback, two actions.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> policy = DiffReg(random_state=0).fit(X, np.column_stack([np.zeros(200), X[:, 0]]))
    >>> policy.predict([[2.0, 0.0], [-2.0, 0.0]]).tolist()
    [1, 0]
    """

    def _task(self, data: Feedback, folds: list[Int[np.ndarray, " row"]], seed: int) -> _Task:
        full = self._every_outcome(data, "PluginReg or DirectDRWelfare")
        self._check_two(data)
        return self._table_task(GapSquare(), full)


class PluginReg(_Baseline):
    """Regression of every action's outcome, one network with one output per action; the largest prediction decides.

    With a log the output of the action taken is fitted to its outcome; propensities are not used, and `controls`
    cannot be: the regression is the policy, which sees `X` alone.
    """

    def _task(self, data: Feedback, folds: list[Int[np.ndarray, " row"]], seed: int) -> _Task:
        loss = OutcomeSquare(len(data.actions))
        if isinstance(data, FullFeedback):
            return self._table_task(loss, data, float(np.average(data.outcomes, axis=0, weights=data.weights).mean()))
        if data.controls is not None:
            raise ValueError(
                f"controls has {data.controls.shape[1]} column(s), but the outcome model of PluginReg is its policy, "
                "which sees X alone; leave controls out, or use DirectDRWelfare"
            )
        _check_every_action(data, folds)
        cost: Any = 0.0
        outcome = np.asarray(data.outcome, np.float64)
        if data.cost is not None:  # the part of a cost that differs between rows has to be learned
            cost = np.average(data.cost, axis=0, weights=data.weights)
            outcome = data.net_outcome + cost[data.action]
        level = np.average(outcome, weights=data.weights)
        spread = float(np.sqrt(np.average((outcome - level) ** 2, weights=data.weights)))
        known = spread <= 1e-12 * abs(level)  # the outcome is constant: costs decide, if anything does
        scale = (1.0 if np.ptp(cost) > 0.0 else unit_of(0.0)) if known else spread
        target = ((outcome - level) / scale).astype(np.float32), data.action.astype(np.float32)
        return _Task(loss, MaskedSquare(len(data.actions)), target, scale, cost)


class PluginRegK(PluginReg):
    """The paper's name for PluginReg with more than two actions."""


class WeightedLogistic(_Robust):
    """Logistic classification of the better of two actions, rows weighted by |Y(1) - Y(0)|.

    With a log the outcomes are doubly robust pseudo-outcomes.
    """

    def _task(self, data: Feedback, folds: list[Int[np.ndarray, " row"]], seed: int) -> _Task:
        self._check_two(data)
        full = data if isinstance(data, FullFeedback) else self._scored(data, "dr", seed)
        return self._table_task(WeightedLogit(), full)


class DirectWelfare(_Baseline):
    """The policy with the largest mean welfare: (tanh + 1) / 2 of the network for two actions, softmax for more.

    Full feedback; a committee averages its members' policies.
    """

    mixes = True

    def _task(self, data: Feedback, folds: list[Int[np.ndarray, " row"]], seed: int) -> _Task:
        full = self._every_outcome(data, "DirectDRWelfare or DirectIPWWelfare")
        return self._table_task(SurrogateLoss(NegativeWelfare(len(data.actions))), full)


class DirectDRWelfare(_Robust):
    """DirectWelfare with the doubly robust pseudo-outcomes of a log."""

    mixes = True

    def _task(self, data: Feedback, folds: list[Int[np.ndarray, " row"]], seed: int) -> _Task:
        return self._table_task(SurrogateLoss(NegativeWelfare(len(data.actions))), self._scored(data, "dr", seed))


class DirectIPWWelfare(_Weighted):
    """DirectWelfare with the inverse propensity pseudo-outcomes of a log."""

    mixes = True

    def _task(self, data: Feedback, folds: list[Int[np.ndarray, " row"]], seed: int) -> _Task:
        return self._table_task(SurrogateLoss(NegativeWelfare(len(data.actions))), self._scored(data, "ipw", seed))


def _check_every_action(data: LoggedFeedback, folds: list[Int[np.ndarray, " row"]]) -> None:
    """Every member has to see every action."""
    for fold in folds:
        left = np.bincount(np.delete(data.action, fold), minlength=len(data.actions))
        if not left.all():
            label = data.actions.tolist()[int(np.argmin(left))]
            raise ValueError(
                f"action {label!r} is taken in {int(np.sum(data.action == np.argmin(left)))} of {len(data)} rows, and "
                "none is left outside one of the folds; bring more rows with it, or leave it out of the actions"
            )
