"""A policy that decides with numpy alone: its members, draws of their last layers, and the rule (section 6)."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from gbpl.decisions.capacity import priced_action
from gbpl.decisions.decisions import Decisions, Rule
from gbpl.decisions.gain import GainInterval, GainSlope, t_reach
from gbpl.decisions.rules import disagreement, largest
from gbpl.feedback.reach import beyond_reach, check_reach
from gbpl.frozen.committee import Committee, Effects, Part
from gbpl.squashing import simplex_projection
from gbpl.tables.frames import column, column_names, require_columns
from gbpl.value.welfare import deterministic
from gbpl.watch.monitor import Choices

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from gbpl.feedback.fingerprint import Fingerprint
    from gbpl.frozen.explain import Explanation
    from gbpl.frozen.seen import Seen
    from gbpl.tables.encoder import Encoder

__all__ = ["NumpyPolicy", "as_table"]

LONG_LABEL = 400  # bytes
NO_SCORE = "row(s) without a score, for a person to decide: a value is beyond all that can be computed with"


class NumpyPolicy:
    """A fitted policy without its training rows; numpy is all it needs to decide.

    It takes what the policy was fitted to: an array or frame of features, or, where it was learned from a table with an
    encoder, such a table. One row may come alone: as a list of its features, or as a dict of its columns; several as a
    list of such dicts. `parts` are the members of each model, and `squashing` takes their raw outputs to a policy.
    `fingerprint_` is of the training rows, `seen` where their features lay; None where it is not known.
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
        fingerprint: Fingerprint | None = None,
        certificate: Mapping[str, Any] | None = None,
        seen: Seen | None = None,
    ) -> None:
        self.parts, self.squashing, self.mean, self.scale = tuple(parts), squashing, mean, scale
        if columns is not None and np.array_equal(columns, np.arange(len(mean))):
            columns = None  # all of them, as they come
        self.columns, self.effects = columns, effects
        self.draw_count = sum(part.draw_count for part in self.parts) + (0 if effects is None else effects.draw_count)
        long = actions.dtype.kind == "U" and actions.dtype.itemsize > LONG_LABEL  # numpy would repeat it in every row
        self.actions_, self.n_features_in_ = actions.astype(object) if long else actions, len(mean)
        if feature_names is not None:
            self.feature_names_in_ = np.array(feature_names, dtype=object)
        self.gain = gain
        self._committee = Committee(self.parts, squashing, mean, scale, len(actions), effects, columns)
        self.rule = Rule() if rule is None else rule
        self.encoder, self.summary, self._certificate = encoder, summary, certificate
        self.fingerprint_, self.seen = fingerprint, seen

    @property
    def certificate(self) -> Mapping[str, Any] | None:
        """What the policy is certified to be worth, as `Certificate.to_dict` says it; None if it is not."""
        return (self.summary or {}).get("certificate") if self._certificate is None else self._certificate

    def with_certificate(self, certificate: Mapping[str, Any]) -> Self:
        """The same policy, which carries its certificate."""
        made = copy.copy(self)
        made._certificate = dict(certificate)
        return made

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
        X = as_table(X)
        if self.encoder is not None and not isinstance(X, np.ndarray):
            x, counts = self.encoder.apply(X)
            return x, dict(counts)
        return self._numbers(X), {}

    def _numbers(self, X: Any) -> Float[np.ndarray, "row feature"]:
        names = getattr(self, "feature_names_in_", None)
        if isinstance(X, Mapping):
            if names is None:
                raise ValueError(
                    f"the features have no names in this policy; give {self.n_features_in_} numbers per row"
                )
            require_columns(names.tolist(), list(X), "the row")
            X = np.column_stack([X[name] for name in names])
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
        if x.shape == (self.n_features_in_,):
            x = x[None]
        if x.ndim != 2 or x.shape[1] != self.n_features_in_:
            raise ValueError(f"X must be a table of {self.n_features_in_} features, as in the fit, got shape {x.shape}")
        if not np.isfinite(x).all():
            row = int(np.flatnonzero(~np.isfinite(x).all(axis=1))[0])
            raise ValueError(f"X has missing or infinite values, first in row {row}; drop or impute those rows")
        return x

    def _within_reach(self, X: Any) -> Float[np.ndarray, "row feature"]:
        x = self._features(X)[0]
        check_reach(x, self.mean, self.scale)
        return x

    # -- deciding -----------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> Float[np.ndarray, "row action"]:
        """The randomized policy: a probability for each action, columns in the order of `actions_`.

        If actions are drawn by it, these are the propensities to log; `predict` and `decide` draw nothing.
        """
        deviation, _ = self._committee.apply(self._within_reach(X), draws=False)
        return simplex_projection(1.0 / deviation.shape[1] + deviation)

    def predict(self, X: Any) -> np.ndarray:
        """The label of the most probable action."""
        return self.actions_[deterministic(self.predict_proba(X))]

    def action_probability(self, X: Any) -> Float[np.ndarray, "row action"]:
        """Posterior probability that each action is the best one for the row: the share of draws that take it.

        It says how sure the decision is. It is no propensity: `predict_proba` is the randomized policy.
        """
        _, taken = self._committee.apply(self._within_reach(X), draws=True)
        if taken is None:
            raise ValueError("this policy was saved without posterior draws; save it where it was fitted, draws=400")
        return taken / self.draw_count

    def expected_gain(self, X: Any, *, level: float | None = None) -> Any:
        """What each action is expected to gain over the default one of the rule, in outcome units.

        With a `level` it is a `GainInterval`, as that of the estimator: the ends of the intervals are mean and spread
        of the draws in the file, by Student's t. For some thousand rows at a time.
        """
        x = self._within_reach(X)
        gain = self._gain(self._committee.apply(x, draws=False)[0])
        if gain is None:
            raise ValueError("this policy was fitted without a committee, so its gains are not known; fit it with one")
        if level is None:
            return gain
        reach = t_reach(level, None if self.effects is None else self.effects.freedom)
        drawn = self._committee.effects_drawn(x)
        if drawn is None:
            raise ValueError(
                "intervals of gains need a policy that averages zetas (zeta='auto', eta='auto', a committee), saved "
                "with posterior draws; fit it with GBPL(), or leave level out"
            )
        over = drawn - drawn[:, [self.rule.default]]
        mean, error = over.mean(axis=2), reach * over.std(axis=2, ddof=1)
        return GainInterval(gain, np.minimum(mean - error, gain), np.maximum(mean + error, gain))

    def _gain(self, deviation: Float[np.ndarray, "row action"]) -> Float[np.ndarray, "row action"] | None:
        return None if self.gain is None else self.gain.gains(deviation, self.rule.default)

    def _prices(self, X: Any, group: Any) -> tuple[Float[np.ndarray, "*row action"] | None, dict[str, int]]:
        """Prices of the actions by the rule, in each row where it has them by group; how many rows have no group."""
        groups, X = self.rule.groups, as_table(X)
        prices = np.array(self.rule.prices) if self.gain is not None and any(self.rule.prices) else None
        if groups is None or self.gain is None:
            return prices, {}
        if group is None:
            named = isinstance(X, Mapping) or hasattr(X, "columns")
            if not named or groups.column not in column_names(X):
                raise ValueError(
                    f"the rule of this policy has prices by {groups.column!r}; give a table with that column, or "
                    "group=, one value per row"
                )
            group = column(X, groups.column)
        of_rows, counts = groups.of_rows(column({"group": group}, "group"), len(self.actions_), self.rule.default)
        return of_rows if prices is None else of_rows + prices, counts

    def _taken(
        self, x: Float[np.ndarray, "row feature"], prices: Float[np.ndarray, "*row action"] | None,
        loss: Float[np.ndarray, "row action"] | None = None,
    ) -> tuple[Int[np.ndarray, " row"], Float[np.ndarray, "row action"] | None, Any]:  # fmt: skip
        """Column numbers of the actions by the rule, expected gains, and how many draws take each action by it."""
        of_draws = prices
        if of_draws is not None and self.effects is None and self.gain is not None and self.gain.slope > 0.0:
            of_draws = of_draws / self.gain.slope
        deviation, taken = self._committee.apply(x, draws=True, prices=of_draws, loss=loss)
        return *self._numbered(deviation, prices), taken

    def _numbered(
        self, deviation: Float[np.ndarray, "row action"], prices: Float[np.ndarray, "*row action"] | None
    ) -> tuple[Int[np.ndarray, " row"], Float[np.ndarray, "row action"] | None]:
        """Column numbers of the actions by the rule, and expected gains."""
        gain = self._gain(deviation)
        return deterministic(deviation) if gain is None or prices is None else priced_action(gain, prices), gain

    def choices(self, X: Any) -> Choices:
        """The actions of `decide` by number, expected gains, and the features that count in units of the fit."""
        x = self._within_reach(X)
        number, gain = self._numbered(self._committee.apply(x, draws=False)[0], self._prices(X, None)[0])
        used = slice(None) if self.columns is None else self.columns
        return Choices(number, gain, (x[:, used] - self.mean[used]) / self.scale[used])

    def feature_labels(self) -> list[str]:
        """Names of the features that count, in the order of `choices`."""
        names = getattr(self, "feature_names_in_", [f"feature {number}" for number in range(len(self.mean))])
        listed = list(names) if self.encoder is None else self.encoder.names
        return [str(listed[number]) for number in (range(len(listed)) if self.columns is None else self.columns)]

    def explain(
        self, X: Any, *, fixed: Sequence[str] = (), level: float = 0.9, seed: int = 0, group: Any = None
    ) -> Explanation:
        """Why one row is decided as it is: how sure, what each action brings, what moved it, and what would flip it.

        Columns named in `fixed` cannot be changed, and no flip changes them. `level` is that of the intervals of gains,
        and `seed` that of the orders of columns where there are too many to try all (`frozen.explain`). Where the rule
        has prices by group, `group` is the row's, as in `decide`, and no flip changes it.
        """
        from gbpl.frozen.explain import explain  # deciding does without

        x = self._within_reach(X)
        if len(x) != 1:
            raise ValueError(f"explain is about one row, got {len(x)}; call it for each of them")
        own = self
        if self.rule.groups is not None:
            prices = self._prices(X, group)[0]
            names = self.feature_labels() if self.encoder is None else self.encoder.columns
            given = (fixed,) if isinstance(fixed, str) else tuple(fixed)
            fixed = (*given, *(name for name in names if name == self.rule.groups.column and name not in given))
            of_row = () if prices is None else tuple(np.ravel(prices).tolist())
            own = self.with_study(
                rule=replace(self.rule, prices=of_row, groups=None), encoder=self.encoder, summary=self.summary
            )
        return explain(own, x[0], fixed=fixed, level=level, seed=seed)

    def review_value(self, X: Any, *, group: Any = None) -> Float[np.ndarray, " row"]:
        """What a person's look at each row is worth at most, in outcome units: the expected loss of the decision.

        It is the value of perfect information about the row, E[max_a effect_a(x)] - E[effect_decided(x)] over draws of
        the effects (Howard 1966), net of the prices of limited actions: 0 where all draws agree, and small where the
        actions are worth nearly the same, however split the draws are.
        """
        value = self.decide(X, review=0, group=group).review_value
        assert value is not None
        return value

    def _losses(self, rows: int) -> Float[np.ndarray, "row action"]:
        """Room for what each action is expected to lose."""
        if self.effects is None or not self.effects.draw_count:
            raise ValueError(
                "the value of a review needs a policy that averages zetas (zeta='auto', eta='auto', a committee), "
                "saved with posterior draws; fit it with GBPL()"
            )
        return np.zeros((rows, len(self.actions_)))

    def decide(self, X: Any, *, defer: float | None = None, review: int | None = None, group: Any = None) -> Decisions:
        """Action, its chances, disagreement, whether a person should decide, and the expected gain.

        A person should decide rows with a disagreement above `defer`; or, with a `review` of n, the n rows where a look
        is worth most (`review_value`), and no other. Of the rule's own level there are none at 1. Rows that get no
        score, because a value is beyond all that can be computed with, are counted and left to a person, with the
        default action and nothing known about it. Where the rule has prices by group, `group` is that of each row, as
        in the column that was learned from; a table may have that column instead.
        """
        level = self.rule.defer if defer is None else defer
        if not 0.0 <= level <= 1.0:
            raise ValueError(f"defer must be in [0, 1], got {level}; try 0.5")
        x, counts = self._features(X)
        far = beyond_reach(x, self.mean, self.scale)
        if far.any():
            if not self.draw_count:  # nothing would say that they are for a person
                check_reach(x, self.mean, self.scale)
            x, counts = np.where(far[:, None], self.mean, x), counts | {NO_SCORE: int(far.sum())}
        loss = None if review is None else self._losses(len(x))
        prices, unknown = self._prices(X, group)
        number, gain, taken = self._taken(x, prices, loss)
        number = np.where(far, self.rule.default, number)
        at = np.arange(len(x)), number
        share = None if taken is None else np.where(far[:, None], 1.0 / len(self.actions_), taken / self.draw_count)
        split = None if share is None else disagreement(share) if len(share) else np.zeros(0)
        away = None if split is None else split > level
        value = None if loss is None else np.where(far, 0.0, np.maximum(loss[at], 0.0))
        if value is not None and review is not None:
            away = largest(value, review)
        return Decisions(
            action=self.actions_[number],
            draw_share=share,
            disagreement=split,
            deferred=None if away is None else away | far,
            expected_gain=None if gain is None else np.where(far, 0.0, gain[at]),
            review_value=value,
            actions=self.actions_,
            counts=counts | unknown,
        )


def as_table(X: Any) -> Any:
    """A dict of single values as a table of one row, and a list of dicts as one of several; anything else as it is."""
    if isinstance(X, Mapping) and X and not any(map(_is_column, X.values())):
        return {name: [value] for name, value in X.items()}
    if not isinstance(X, list | tuple) or not X or not all(isinstance(row, Mapping) for row in X):
        return X
    for number, row in enumerate(X):
        odd = next(iter(row.keys() ^ X[0].keys()), None)
        if odd is not None:
            has, lacks = (number, 0) if odd in row else (0, number)
            raise ValueError(f"row {has} has {odd!r}, and row {lacks} does not; give None where a value is missing")
    return {name: [row[name] for row in X] for name in X[0]}


def _is_column(value: Any) -> bool:
    return hasattr(value, "__len__") and not isinstance(value, str | bytes)
