"""What is agreed on before the first row of a policy's life is watched, and never changes after it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

from gbpl.tables.labels import by_label, same_label
from gbpl.watch.values import slack_for

__all__ = ["LOGGING", "Terms"]

LOGGING = "logging"  # the baseline that is the policy that wrote the log
FAILURE_PROBABILITY = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The promise: range of the outcomes, baseline, error budget, costs and how outcomes out of range are treated.

    `baseline` is an action's number, or None for the policy that wrote the log; `costs` has one number per action.
    """

    actions: tuple[Any, ...]
    outcome_range: tuple[float, float]
    baseline: int | None
    failure_probability: float
    least_propensity: float
    costs: tuple[float, ...]
    cut: bool

    def __post_init__(self) -> None:
        low, high = self.outcome_range
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise ValueError(
                f"outcome_range must be two finite numbers, the lower one first, got {low:g} {high:g}; for yes and no "
                "it is 0 1"
            )
        if not 0.0 < self.failure_probability < 1.0:
            raise ValueError(f"failure_probability must be in (0, 1), got {self.failure_probability}; try 0.05")
        slack_for(self.least_propensity)

    @classmethod
    def of(cls, policy: Any, *, outcome_range: Any, baseline: Any, **given: Any) -> Self:
        """Terms for a policy; None stands for what it was learned with, or for the default."""
        actions = policy.actions_.tolist()
        try:
            low, high = map(float, _known_range(policy) if outcome_range is None else outcome_range)
        except (TypeError, ValueError):
            raise ValueError(
                f"outcome_range must be the lowest and the highest value an outcome can take, known without the data, "
                f"got {outcome_range!r}; for yes and no it is (0, 1)"
            ) from None
        return cls(
            actions=tuple(actions),
            outcome_range=(low, high),
            baseline=_baseline(baseline, actions, policy.rule.default),
            failure_probability=_or(given["failure_probability"], FAILURE_PROBABILITY),
            least_propensity=_or(given["least_propensity"], 0.5 / len(actions)),
            costs=_costs(given["cost"], actions, policy),
            cut=bool(given["cut"]),
        )

    def check_same(self, policy: Any, *, outcome_range: Any, baseline: Any, **given: Any) -> None:
        """Refuse settings other than those with which the life of a policy began."""
        if [*map(str, policy.actions_.tolist())] != [*map(str, self.actions)]:
            raise ValueError(
                f"the policy has the actions {policy.actions_.tolist()}, and those watched so far are "
                f"{list(self.actions)}; begin a new life with another state"
            )
        asked: dict[str, Any] = {
            "outcome_range": None if outcome_range is None else tuple(map(float, outcome_range)),
            "baseline": None if baseline is None else _baseline(baseline, self.actions, 0),
            "costs": None if given["cost"] is None else _costs(given["cost"], self.actions, policy),
        } | {name: given[name] for name in ("failure_probability", "least_propensity", "cut")}
        for name, value in asked.items():
            mine = getattr(self, name)
            if value != mine and (value is not None or (name == "baseline" and baseline is not None)):
                raise ValueError(
                    f"{name} was {self.shown(name, mine)} when the watch began, and is now {self.shown(name, value)}; "
                    "the bounds hold only for what was agreed on before the first row: leave it out, or begin a new "
                    "life with another state"
                )

    def shown(self, name: str, value: Any) -> Any:
        return value if name != "baseline" else LOGGING if value is None else self.actions[value]

    @property
    def baseline_name(self) -> str:
        return "what the log did" if self.baseline is None else str(self.actions[self.baseline])

    @property
    def net_range(self) -> tuple[float, float]:
        """Of outcomes less costs."""
        return self.outcome_range[0] - max(self.costs), self.outcome_range[1] - min(self.costs)

    @property
    def slack(self) -> float:
        return slack_for(self.least_propensity)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, state: Mapping[str, Any], actions: Sequence[Any]) -> Self:
        """The terms that `to_json` wrote; the labels of the policy take the place of those that JSON has kept."""
        plain: dict[str, Any] = {name: tuple(part) if isinstance(part, list) else part for name, part in state.items()}
        made = cls(**plain)
        same = [*map(str, actions)] == [*map(str, made.actions)]
        return replace(made, actions=tuple(actions)) if same else made


def _or(given: Any, default: float) -> float:
    return default if given is None else float(given)


def _known_range(policy: Any) -> Any:
    return ((policy.summary or {}).get("certificate") or {}).get("outcome_range")


def _baseline(given: Any, actions: Sequence[Any], default: int) -> int | None:
    if given is None:
        return default
    if given == LOGGING and LOGGING not in actions:
        return None
    return list(actions).index(same_label(given, actions, "baseline"))


def _costs(given: Any, actions: Sequence[Any], policy: Any) -> tuple[float, ...]:
    if given is None:
        recorded = (policy.summary or {}).get("actions") or []
        given = {action["label"]: action["cost"] for action in recorded if action.get("cost")}
    costs = by_label(given, list(actions), "cost")
    return tuple(costs.get(label, 0.0) for label in actions)
