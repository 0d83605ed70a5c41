"""Settings of an estimator that are given by name or by number, checked before looking at data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.full import FullFeedback
from gbpl.surrogates import BaselineGap, Binary, FullVector, Surrogate
from gbpl.value.confounding import check_gamma

if TYPE_CHECKING:
    from gbpl.feedback.read import Feedback

__all__ = ["check_confounding", "check_correction", "confounding_of", "surrogate_for"]

CONFOUNDED = ("dr", "dm")  # constructions with a model of each action's outcome


def surrogate_for(name: str | Surrogate, count: int) -> Surrogate:
    """The surrogate of a name for `count` actions, or the given one if it is for as many."""
    chosen: Surrogate
    match ("binary" if count == 2 else "full") if name == "auto" else name:
        case "binary":
            chosen = Binary()
        case "gap":
            chosen = BaselineGap(count)
        case "full":
            chosen = FullVector(count)
        case Surrogate() as given:
            chosen = given
        case _:
            raise ValueError(f"surrogate must be 'auto', 'binary', 'gap', 'full' or a surrogate, got {name!r}")
    if chosen.n_actions != count:
        raise ValueError(
            f"the surrogate {type(chosen).__name__} is for {chosen.n_actions} actions, but y has {count}; use "
            "surrogate='auto', or one for as many"
        )
    return chosen


def check_correction(correction: float | str, construction: str) -> None:
    """Refuse a share of the doubly robust correction outside [0, 1], or where there is none."""
    if isinstance(correction, str) and correction == "auto":
        return
    number = isinstance(correction, int | float | np.number) and not isinstance(correction, bool)
    if not (number and 0.0 <= float(correction) <= 1.0):
        raise ValueError(f"correction must be 'auto' or a number in [0, 1], got {correction!r}; try 1.0")
    if construction != "dr":
        raise ValueError(
            f"correction is {correction!r}, but pseudo_outcome={construction!r} has none; leave it "
            "at 'auto', or use pseudo_outcome='dr'"
        )


def check_confounding(confounding: float, baseline: Any, construction: str) -> None:
    """Refuse a Gamma below 1, one that the pseudo-outcomes have no bounds for, and a baseline without one."""
    gamma = check_gamma(confounding, "confounding")
    if gamma > 1.0 and construction not in CONFOUNDED:
        raise ValueError(
            f"confounding={confounding!r} needs a model of each action's outcome, and pseudo_outcome={construction!r} "
            "has none; use pseudo_outcome='dr'"
        )
    if gamma == 1.0 and baseline is not None:
        raise ValueError(
            f"confounding_baseline is {baseline!r}, but confounding=1 has no bounds to compare; give a confounding "
            "above 1, such as 1.5"
        )


def confounding_of(confounding: float, baseline: Any, feedback: Feedback) -> tuple[float, int | None]:
    """Gamma, and the column of the baseline action, for some rows; refused where there is no log."""
    gamma = float(confounding)
    if gamma > 1.0 and isinstance(feedback, FullFeedback):
        raise ValueError(
            f"confounding={confounding!r} is for logged feedback; here the outcomes of every action are given, and "
            "nothing is hidden: leave it at 1"
        )
    labels: Sequence[Any] = feedback.actions.tolist()
    if baseline is not None and baseline not in labels:
        raise ValueError(f"confounding_baseline must be one of the actions {labels}, got {baseline!r}")
    return gamma, None if baseline is None else labels.index(baseline)
