"""What every learned policy has: labels for rows, its value on other rows, and checks of shared settings."""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from gbpl.feedback.checks import check_features
from gbpl.feedback.content import content_order
from gbpl.feedback.full import FullFeedback
from gbpl.feedback.read import Feedback, read_feedback
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.members import fold_rows
from gbpl.fitting.stack import FitConfig
from gbpl.nuisance.cross_fit import CrossFit
from gbpl.nuisance.off_policy import log_evaluator
from gbpl.runtime.devices import resolve_devices
from gbpl.runtime.warn import warn
from gbpl.value.estimate import Value, check_estimator_name
from gbpl.value.evaluate import Evaluator
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Policy", "check_positive"]


def check_positive(name: str, value: Any, hint: str) -> float:
    """A finite number > 0."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 < number < np.inf:
        raise ValueError(f"{name} must be > 0 and finite, got {value!r}; {hint}")
    return number


class Policy(BaseEstimator, metaclass=ABCMeta):
    """A scikit-learn estimator that decides who gets which action.

    A subclass has the settings named below, sets `actions_` and `standardizer_` when it is fitted, and gives
    `predict_proba`, `cross_fit_settings` and `_learned_from`.
    """

    prior_sd: float
    committee: int | None
    validation_fraction: float
    actions: Sequence[Any] | None
    fit_config: FitConfig | None
    device: str
    actions_: np.ndarray
    standardizer_: Standardizer

    @abstractmethod
    def predict_proba(self, X: Any) -> Float[np.ndarray, "row action"]:
        """One probability per action, columns in the order of `actions_`."""

    @abstractmethod
    def cross_fit_settings(self, seed: int) -> CrossFit:
        """How models of a log are estimated."""

    @abstractmethod
    def _learned_from(self) -> Float[np.ndarray, "row feature"] | None:
        """Features of the rows of the fit, or None if they have not been kept."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags

    # -- settings and data --------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        """Refuse wrong settings before looking at data."""
        check_positive("prior_sd", self.prior_sd, "try 1.0")
        if check_positive("validation_fraction", self.validation_fraction, "try 0.2") >= 1:
            raise ValueError(f"validation_fraction must be below 1, got {self.validation_fraction}; try 0.2")
        if self.fit_config is not None and not isinstance(self.fit_config, FitConfig):
            raise TypeError(f"fit_config must be a gbpl.FitConfig or None, got {self.fit_config!r}")
        resolve_devices(self.device)  # type: ignore[arg-type]
        self.cross_fit_settings(0)  # which refuses a wrong committee, folds, clip, outcome model

    def read_training(self, **data: Any) -> Feedback:
        """Check settings, the data of a fit and the names of its features, before any work."""
        self._check_settings()
        feedback = read_feedback(**data, actions=self.actions)
        validate_data(clone(self), feedback.source, skip_check_array=True)
        return feedback

    def _read_new(self, **data: Any) -> Feedback:
        """Data of other rows, with the actions of the fit; named outcome columns are matched to the actions."""
        labels = self.actions_.tolist()
        return read_feedback(**data, actions=labels, align=self.actions is None, min_rows=1)

    def stopping_folds(self, feedback: Feedback, seed: int) -> list[Int[np.ndarray, " row"]]:
        """Rows that stop each member: the folds of the committee, or one part of the rows."""
        n = len(feedback)
        if self.committee is None:
            held = max(1, round(n * self.validation_fraction))
            if n - held < 1:
                raise ValueError(f"too few rows: n_samples={n} leaves none to train on")
            if feedback.groups is not None:
                parts = max(2, round(1.0 / self.validation_fraction))
                return fold_rows(n, parts, seed=seed, groups=feedback.groups, order=content_order(feedback)[0])[:1]
            order = content_order(feedback)[0][np.random.default_rng(seed).permutation(n)]
            return [order[:held].astype(np.int32)]
        if n < 2 * self.committee:
            raise ValueError(
                f"too few rows for the folds: n_samples={n}, and committee={self.committee} needs at least "
                f"{2 * self.committee}; use a smaller committee, or committee=None"
            )
        order, strata = content_order(feedback)
        return fold_rows(n, self.committee, seed=seed, strata=strata, groups=feedback.groups, order=order)

    def _standardized(self, X: Any) -> Float[np.ndarray, "row feature"]:
        """Features of new rows, checked and standardized as in the fit."""
        check_is_fitted(self)
        features = check_features(X)
        validate_data(self, X, reset=False, skip_check_array=True)
        return self.standardizer_.apply(features)

    # -- deciding -----------------------------------------------------------------------------------------

    def predict(self, X: Any) -> np.ndarray:
        """The deterministic rule: the label of the most probable action."""
        chosen = deterministic(self.predict_proba(X))
        return self.actions_[chosen]

    # -- value --------------------------------------------------------------------------------------------

    def value(
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
        estimator: str = "dr",
        rule: str = "deterministic",
        baseline: Any = None,
    ) -> Value:
        """The value of the policy on rows it has not learned from, with standard error and interval.

        The data are as in `fit`. With `action` the estimator is `"dr"`, `"ipw"`, `"snipw"` or `"dm"`, as explained at
        `off_policy_value`, with nuisances cross-fitted on these rows; otherwise it is the mean over the table. `rule`
        is `"deterministic"` or `"randomized"`. With a `baseline` (a label for everybody, one label per row,
        probabilities, another policy, or `"logging"`, the policy that wrote the log) it is the gain over that, with
        the error of the difference.
        For the rows of the fit use `cross_fitted_value`, if the policy has it.
        """
        check_is_fitted(self)
        check_estimator_name(estimator)
        feedback = self._read_new(
            X=X, y=y, action=action, propensity=propensity, controls=controls, cost=cost, sample_weight=sample_weight,
            groups=groups,
        )  # fmt: skip
        self._warn_if_trained_on(feedback.x)
        return self.evaluator(feedback, estimator).value(self, rule=rule, baseline=baseline)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, action: Any = None, propensity: Any = None,
        controls: Any = None, cost: Any = None,
    ) -> float:  # fmt: skip
        """Welfare of the deterministic rule: the mean over a table of outcomes, or doubly robust with `action`."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "these are the rows the policy learned from")
            return self.value(
                X, y, action=action, propensity=propensity, controls=controls, cost=cost, sample_weight=sample_weight
            ).estimate

    def evaluator(self, feedback: Feedback, estimator: str) -> Evaluator:
        """Evaluates policies on rows that this one has not learned from."""
        if isinstance(feedback, FullFeedback):
            return Evaluator.of_outcomes(feedback)
        return log_evaluator(feedback, self.cross_fit_settings(0), estimator)

    def _warn_if_trained_on(self, x: Float[np.ndarray, "row feature"]) -> None:
        known = self._learned_from()
        if known is not None and np.array_equal(known, x):
            own = "cross_fitted_value, or " if hasattr(self, "cross_fitted_value") else ""
            warn(f"these are the rows the policy learned from: their value is too good; use {own}new rows")
