"""A policy that decides with numpy alone: its members, draws of their last layers, and the rule (section 6)."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gbpl.decisions.capacity import priced_action
from gbpl.decisions.decisions import Decisions, Rule
from gbpl.decisions.gain import GainSlope
from gbpl.decisions.rules import disagreement
from gbpl.frozen.committee import Committee, Effects, Part
from gbpl.squashing import simplex_projection
from gbpl.value.welfare import deterministic
from gbpl.watch.monitor import Choices

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from gbpl.tables.encoder import Encoder

__all__ = ["NumpyPolicy"]


class NumpyPolicy:
    """A fitted policy without its training rows; numpy is all it needs to decide.

    It takes what the policy was fitted to: an array or frame of features, or, where it was learned from a table with an
    encoder, such a table. `parts` are the members of each model, and `squashing` takes their raw outputs to a policy.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        *,
        squashing: str,
        mean: Float[np.ndarray, " feature"],
        scale: Float[np.ndarray, " feature"],
        actions: np.ndarray,
        columns: Int[np.ndarray, " kept"] | None = None,
        feature_names: list[str] | None = None,
        gain: GainSlope | None = None,
        effects: Effects | None = None,
        rule: Rule | None = None,
        encoder: Encoder | None = None,
        summary: Mapping[str, Any] | None = None,
    ) -> None:
        self.parts, self.squashing, self.mean, self.scale = tuple(parts), squashing, mean, scale
        self.columns, self.effects = columns, effects
        self.draw_count = sum(part.draw_count for part in self.parts) + (0 if effects is None else effects.draw_count)
        self.actions_, self.n_features_in_ = actions, len(mean)
        if feature_names is not None:
            self.feature_names_in_ = np.array(feature_names, dtype=object)
        self.gain = gain
        self._committee = Committee(self.parts, squashing, mean, scale, len(actions), effects, columns)
        self.rule = Rule() if rule is None else rule
        self.encoder, self.summary = encoder, summary

    def with_study(self, *, rule: Rule, encoder: Encoder | None, summary: Mapping[str, Any] | None) -> Self:
        """The same policy with the rule, encoder and summary of a study."""
        made = copy.copy(self)
        made.rule, made.encoder, made.summary = rule, encoder, summary
        return made

    def __repr__(self) -> str:
        shown = ", ".join(str(label) for label in self.actions_.tolist()[:5])
        more = ", ..." if len(self.actions_) > 5 else ""
        counts: Counter[str] = Counter()
        for part in self.parts:
            counts[part.form.noun] += len(part.weights)
        members = ", ".join(f"{count} {noun}{'s' if count > 1 else ''}" for noun, count in counts.items())
        return f"<{type(self).__name__}: {shown}{more} from {self.n_features_in_} features, {members}>"

    # -- features -----------------------------------------------------------------------------------------

    def _features(self, X: Any) -> tuple[Float[np.ndarray, "row feature"], dict[str, int]]:
        """Features as numbers, and what was filled in."""
        if self.encoder is not None and not isinstance(X, np.ndarray):
            x, counts = self.encoder.apply(X)
            return x, dict(counts)
        return self._numbers(X), {}

    def _numbers(self, X: Any) -> Float[np.ndarray, "row feature"]:
        names = getattr(self, "feature_names_in_", None)
        if hasattr(X, "columns") and names is not None:
            given = [str(name) for name in X.columns]
            if given != names.tolist():
                unseen = sorted(set(names.tolist()) - set(given))
                why = f"it has no column {unseen[0]!r}" if unseen else "its columns are in another order, or more"
                raise ValueError(f"X must have the columns of the fit, {names.tolist()}; {why}")
        try:
            x = np.asarray(X.to_numpy() if hasattr(X, "to_numpy") else X, np.float64)
        except (TypeError, ValueError):
            raise ValueError(
                f"X must be numbers, got {type(X).__name__} with other values; encode them first"
            ) from None
        if x.ndim != 2 or x.shape[1] != self.n_features_in_:
            raise ValueError(f"X must be a table of {self.n_features_in_} features, as in the fit, got shape {x.shape}")
        if not np.isfinite(x).all():
            row = int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])
            raise ValueError(f"X has missing or infinite values, first in row {row}; drop or impute those rows")
        return x

    # -- deciding -----------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row action"]:
        """The randomized policy: a probability for each action, columns in the order of `actions_`."""
        deviation, _ = self._committee.apply(self._features(X)[0], draws=False)
        return simplex_projection(1.0 / deviation.shape[1] + deviation)

    def predict(self, X: Any) -> np.ndarray:
        """The label of the most probable action."""
        return self.actions_[deterministic(self.predict_proba(X))]

    def action_probability(self, X: Any) -> Float[np.ndarray, "row action"]:
        """Probability that each action is the best one for the row: the share of posterior draws that take it."""
        _, taken = self._committee.apply(self._features(X)[0], draws=True)
        if taken is None:
            raise ValueError("this policy was saved without posterior draws; save it where it was fitted, draws=400")
        return taken / self.draw_count

    def expected_gain(self, X: Any) -> Float[np.ndarray, "row action"]:
        """What each action is expected to gain over the default one of the rule, in outcome units."""
        gain = self._gain(self._committee.apply(self._features(X)[0], draws=False)[0])
        if gain is None:
            raise ValueError("this policy was fitted without a committee, so its gains are not known; fit it with one")
        return gain

    def _gain(self, deviation: Float[np.ndarray, "row action"]) -> Float[np.ndarray, "row action"] | None:
        return None if self.gain is None else self.gain.gains(deviation, self.rule.default)

    def _numbered(
        self, deviation: Float[np.ndarray, "row action"]
    ) -> tuple[Int[np.ndarray, " row"], Float[np.ndarray, "row action"] | None]:
        """Number of each row's action by the rule, and the expected gains."""
        gain = self._gain(deviation)
        if gain is not None and any(self.rule.prices):
            return priced_action(gain, np.array(self.rule.prices)), gain
        return deterministic(deviation), gain

    def choices(self, X: Any) -> Choices:
        """The actions of `decide` by number, expected gains, and the features that count in units of the fit."""
        x, _ = self._features(X)
        number, gain = self._numbered(self._committee.apply(x, draws=False)[0])
        used = slice(None) if self.columns is None else self.columns
        return Choices(number, gain, (x[:, used] - self.mean[used]) / self.scale[used])

    def feature_labels(self) -> list[str]:
        """Names of the features that count, in the order of `choices`."""
        names = getattr(self, "feature_names_in_", [f"feature {number}" for number in range(len(self.mean))])
        listed = list(names) if self.encoder is None else self.encoder.names
        return [str(listed[number]) for number in (range(len(listed)) if self.columns is None else self.columns)]

    def decide(self, X: Any, *, defer: float | None = None) -> Decisions:
        """Action, its chances, disagreement, whether a person should decide (above `defer`), and the expected gain."""
        level = self.rule.defer if defer is None else defer
        if not 0.0 <= level <= 1.0:
            raise ValueError(f"defer must be in [0, 1], got {level}; try 0.5")
        x, counts = self._features(X)
        deviation, taken = self._committee.apply(x, draws=True)
        number, gain = self._numbered(deviation)
        chance = None if taken is None else taken / self.draw_count
        split = None if chance is None else disagreement(chance) if len(chance) else np.zeros(0)
        return Decisions(
            action=self.actions_[number],
            probability=chance,
            disagreement=split,
            deferred=None if split is None else split > level,
            expected_gain=None if gain is None else gain[np.arange(len(gain)), number],
            actions=self.actions_,
            counts=counts,
        )
