"""Watch a deployed policy: bounds on its value and its gain that hold at every row, and what they advise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from gbpl.tables.frames import TableError
from gbpl.watch.budget import version_budget
from gbpl.watch.log import read_actions, read_outcome, read_propensity
from gbpl.watch.reading import Reading
from gbpl.watch.terms import Terms
from gbpl.watch.values import row_values
from gbpl.watch.version import Rows, Version

if TYPE_CHECKING:
    from jaxtyping import Float, Int

    from gbpl.decisions.decisions import Rule

__all__ = ["Choices", "Monitor", "WatchedPolicy"]

FORMAT = 1


class WatchedPolicy(Protocol):
    """What is asked of a policy: how it decides, what it expects, and what its features were when it learned."""

    actions_: np.ndarray
    gain: Any  # None where it expects no gains
    rule: Rule
    summary: Mapping[str, Any] | None

    def digest(self) -> str:
        """A text that is the same for policies that decide alike."""
        ...

    def feature_labels(self) -> list[str]:
        """Names of the features that it looks at."""
        ...

    def choices(self, X: Any) -> Choices:
        """What it decides for each row."""
        ...


class Choices(NamedTuple):
    """Number of each row's action, expected gains over the default action, and features in units of the fit."""

    action: Int[np.ndarray, " row"]
    gain: Float[np.ndarray, "row action"] | None
    standardized: Float[np.ndarray, "row feature"]


class Monitor:
    """Bounds while data arrive, for `policy.monitor()`: give it rows in order, and read what it makes of them.

    Rows are logged under any policy with known propensities, which may change from row to row and depend on all that
    came before. With probability at least 1 - failure_probability, everything said at any row about any version of the
    policy is right: about the average, over the rows so far, of what the policy is worth and gains over the baseline.
    `version` is what is known of the present one, `ended` what became of those before.
    """

    def __init__(
        self, policy: WatchedPolicy, terms: Terms, version: Version | None = None, ended: Sequence[dict[str, Any]] = ()
    ) -> None:
        self.policy, self.terms, self.ended = policy, terms, list(ended)
        self.version = self._start(1) if version is None else version

    @classmethod
    def of(
        cls, policy: WatchedPolicy, *, state: Mapping[str, Any] | None = None, refit: bool = False, **given: Any
    ) -> Self:
        """From the settings of `policy.monitor`; with a `state` the watch goes on where it was."""
        if state is None:
            return cls(policy, Terms.of(policy, **given))
        if state.get("format") != FORMAT:
            raise ValueError(
                f"the state has format {state.get('format')!r:.40}, not {FORMAT}; use the gbpl that wrote it"
            )
        terms = Terms.from_json(state["terms"], policy.actions_.tolist())
        terms.check_same(policy, **given)
        monitor = cls(policy, terms, Version.from_json(state["version"]), state["ended"])
        if monitor.version.policy != policy.digest():
            monitor._refit(refit)
        return monitor

    def _start(self, number: int) -> Version:
        budget = version_budget(self.terms.failure_probability, number)
        return Version.start(
            number, self.policy.digest(), budget, self.terms.slack, len(self.policy.feature_labels()),
            len(self.terms.actions), expects=self.policy.gain is not None,
        )  # fmt: skip

    def _refit(self, allowed: bool) -> None:
        if not allowed:
            raise ValueError(
                "this is not the policy that was watched so far; if it takes that one's place, say so with refit (its "
                "error budget goes on), else begin a new life with another state"
            )
        old = self.version
        self.ended.append({"version": old.number, "policy": old.policy, "rows": old.rows, "verdict": old.verdict})
        self.version = self._start(old.number + 1)

    def update(self, X: Any, outcome: Any, *, action: Any, propensity: Any, first_row: int = 0) -> Reading:
        """Take more rows, in order, and say how things stand.

        `propensity` is the probability with which the log took its action: one number per row (of the action taken),
        one column per action, a mapping from action to probability, or one number (of the second of two actions, or of
        each of more). `first_row` is the number of the first row in messages. Nothing is taken if anything is wrong.
        """
        self.version.add(self.rows(X, outcome, action=action, propensity=propensity, first_row=first_row))
        return self.reading()

    def rows(self, X: Any, outcome: Any, *, action: Any, propensity: Any, first_row: int = 0) -> Rows:
        """Rows checked and turned into values, without taking them."""
        terms = self.terms
        given, gain, z = self.policy.choices(X)
        taken = read_actions(action, terms.actions, first_row)
        y = read_outcome(outcome, terms.outcome_range, terms.cut, first_row)
        if not len(given) == len(taken) == len(y):
            raise TableError(f"X, outcome and action must have the same rows, got {len(given)}, {len(y)}, {len(taken)}")
        chance = read_propensity(propensity, taken, terms.actions, first_row)
        low, high = terms.net_range
        y = (y - np.array(terms.costs)[taken] - low) / (high - low)
        table = np.eye(len(terms.actions))[given]
        found = row_values(y, self.version.guesses(y), taken, chance, table, terms.baseline, terms.slack)
        lines, expected = [found.value, found.less_value, found.gain, found.less_gain], None
        if gain is not None:
            expected = np.clip(self._expected(gain, given, taken, chance) / (high - low), -1.0, 1.0)
            lines += [found.gain - 1.0 - expected, found.less_gain - 1.0 + expected]
        values = np.maximum(np.stack(lines) + self.version.lifted[:, None], 0.0)  # below zero by rounding alone
        return Rows(values, y, z, given, taken, (found.gain - found.less_gain) / 2.0, expected)

    def _expected(
        self, gain: Float[np.ndarray, "row action"], given: Int[np.ndarray, " row"], taken: Int[np.ndarray, " row"],
        chance: np.ndarray,
    ) -> Float[np.ndarray, " row"]:  # fmt: skip
        """What the policy expects to gain over the baseline; over the log, its mean over the actions or that taken."""
        rows, baseline = np.arange(len(given)), self.terms.baseline
        if baseline is not None:
            other = gain[:, baseline]
        else:
            other = gain[rows, taken] if chance.ndim == 1 else np.sum(chance * gain, axis=1)
        return gain[rows, given] - other

    def reading(self) -> Reading:
        """How things stand at this row."""
        return Reading.of(self.version, self.terms, self.ended, self.policy)

    def state(self) -> dict[str, Any]:
        """All that the watch needs to go on, as plain JSON; `policy.monitor(state=...)` takes it."""
        return {
            "format": FORMAT, "terms": self.terms.to_json(), "ended": self.ended, "version": self.version.to_json(),
        }  # fmt: skip
