"""What is exported: a small rule, or a policy that decides with numpy alone."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard, runtime_checkable

from gbpl.decisions.scorecard import Scorecard
from gbpl.decisions.tree import Tree
from gbpl.frozen.export.language import Rules
from gbpl.frozen.policy import NumpyPolicy

__all__ = ["FreezablePolicy", "feature_columns", "is_small", "subject"]


@runtime_checkable
class FreezablePolicy(Protocol):
    """A fitted policy that can be written in numpy alone, as every estimator with members can."""

    def frozen(self, *, draws: int = 400) -> NumpyPolicy:
        """The policy without its training rows, with some draws of its posterior."""
        ...


def is_small(policy: Any) -> TypeGuard[Rules]:
    """Whether it is a small rule: a tree or scorecard with its labels and columns."""
    return isinstance(getattr(policy, "rule", None), Tree | Scorecard)


def subject(policy: Any, asked: str) -> Rules | NumpyPolicy:
    """A small rule or frozen policy as it is, a fitted policy frozen; anything else is refused."""
    if is_small(policy):
        return policy
    if isinstance(policy, FreezablePolicy):
        policy = policy.frozen(draws=0)
    if not isinstance(policy, NumpyPolicy):
        raise ValueError(
            f"{asked} takes a small rule, or a policy of GBPL or GBPLNet, fitted or saved, got "
            f"{type(policy).__name__}; that of a study is study.policy"
        )
    if policy.rule.groups is not None:
        raise ValueError(
            f"the rule of this policy has prices by {policy.rule.groups.column!r}, which {asked} does not write; "
            "decide with gbpl, or learn without a bound between groups"
        )
    return policy


def feature_columns(policy: NumpyPolicy) -> list[str]:
    """Names of all features: of the encoder, of the fit, or by number."""
    if policy.encoder is not None:
        return policy.encoder.names
    names = getattr(policy, "feature_names_in_", [f"feature {number}" for number in range(len(policy.mean))])
    return [str(name) for name in names]
