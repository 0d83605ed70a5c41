"""The small rule of a study: asked for in words, checked before the fit, and told in the summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gbpl.decisions.rule_settings import RuleSettings
from gbpl.estimators.gbplnet import GBPLNet
from gbpl.estimators.small_rule import columns_of, fit_small_rule
from gbpl.feedback.read import TableFeedback
from gbpl.runtime.json import plain
from gbpl.runtime.progress import stage
from gbpl.tables.encoder import Encoder
from gbpl.tables.frames import TableError

__all__ = ["check_rule_text", "checked_rule", "rule_summary"]


def check_rule_text(given: Any, **limits: Any) -> RuleSettings | None:
    """The settings of a rule that is asked for; what none can have is refused, and `limits` that it would not keep."""
    if given is None:
        return None
    limit = next((name for name, value in limits.items() if value), None)
    if limit is not None:
        raise TableError(
            f"a small rule does not keep within {limit}, and its price would be that of another policy; leave out "
            f"small_rule (--rule) or {limit}"
        )
    return RuleSettings.of(given)


def checked_rule(
    settings: RuleSettings | None, encoder: Encoder, data: TableFeedback, seed: int, smallest: int
) -> RuleSettings | None:
    """With the seed of the study; columns and actions that do not exist are refused."""
    if settings is None:
        return None
    settings.resolved(columns_of([], encoder), data.labels, len(data.feedback), smallest)
    return replace(settings, seed=seed)


def rule_summary(
    policy: GBPLNet, settings: RuleSettings | None, encoder: Encoder, smallest: int
) -> Mapping[str, Any] | None:
    """The rule, its value and price, and how sure its splits are, as plain JSON."""
    if settings is None:
        return None
    stage("small rule")
    training = policy.training("learn again")
    made = fit_small_rule(training, settings, columns_of([], encoder), encoder, smallest)
    summary: Mapping[str, Any] = plain(made.to_dict(training.feedback.x))
    return summary
