"""Several outcomes in a study: what is asked for, checked before the table is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbpl.estimators.aims import Aims
from gbpl.estimators.gbplnet import GBPLNet
from gbpl.estimators.several import check_estimator
from gbpl.tables.frames import TableError

__all__ = ["study_aims"]


def study_aims(
    outcome: str | None, guard: Mapping[str, str] | None, weights: Mapping[str, float] | None, against: str,
    policy: GBPLNet, without: Mapping[str, Any],
) -> Aims | None:  # fmt: skip
    """The aims of a study, None where it has one outcome; refuses options that go `without` them."""
    if not guard and not weights:
        return None
    if outcome is None:
        raise TableError(
            "guard and outcome_weights are for a log, with outcome and action; where outcomes of every action are "
            "known, use gbpl.fit_several"
        )
    given = next((name for name, option in without.items() if option), None)
    if given is not None:
        raise TableError(f"{given} does not go with guard or outcome_weights yet; give one of them, or use two studies")
    if guard and weights:
        raise TableError("guard and outcome_weights are two ways to weigh outcomes; give one of them")
    check_estimator(policy)
    named = [name for name in (guard or weights or {}) if name != outcome]
    if not named:
        raise TableError(f"name another column than the outcome {outcome!r} in guard or outcome_weights")
    return Aims.of([outcome, *named], guard, weights, against=against)
