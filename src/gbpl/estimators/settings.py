"""Settings of an estimator that are given by name or by number, checked before looking at data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.feedback.full import FullFeedback
from gbpl.path.out_of_fold import Selection, select_by_reduced_loss, select_weights
from gbpl.surrogates import BaselineGap, Binary, FullVector, NegativeWelfare, Surrogate
from gbpl.value.confounding import check_gamma

if TYPE_CHECKING:
    from gbpl.feedback.read import Feedback

__all__ = [
    "DEFAULT_SELECTION", "check_confounding", "check_correction", "confounding_of", "selection_of", "surrogate_for",
    "zetas_for",
]  # fmt: skip

DEFAULT_SELECTION = "welfare"
SELECTIONS: dict[str, Selection] = {DEFAULT_SELECTION: select_weights, "reduced_loss": select_by_reduced_loss}
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
        case "welfare":
            chosen = NegativeWelfare(count)
        case Surrogate() as given:
            chosen = given
        case _:
            raise ValueError(
                f"surrogate must be 'auto', 'binary', 'gap', 'full', 'welfare' or a surrogate, got {name!r}"
            )
    if chosen.n_actions != count:
        raise ValueError(
            f"the surrogate {type(chosen).__name__} is for {chosen.n_actions} actions, but y has {count}; use "
            "surrogate='auto', or one for as many"
        )
    return chosen


def zetas_for(surrogate: Surrogate, zetas: list[float] | None) -> list[float] | None:
    """The zetas of a path; a loss that is linear in the scores has none, and is fitted once."""
    if not surrogate.linear:
        return zetas
    if zetas is not None:
        named = ", ".join(f"{zeta:g}" for zeta in zetas)
        raise ValueError(
            f"zeta is {named}, but the loss of {type(surrogate).__name__} has no penalty, hence no zeta; leave it at "
            "'auto'"
        )
    return [1.0]  # a number that nothing depends on


def selection_of(name: str, zetas: list[float] | None, surrogate: Surrogate) -> Selection:
    """How one zeta of a list is selected, by name; refused where nothing is selected, or by another loss."""
    if name not in SELECTIONS:
        raise ValueError(f"zeta_selection must be one of {', '.join(SELECTIONS)}, got {name!r}")
    if name == DEFAULT_SELECTION:
        return SELECTIONS[name]
    if zetas is None or len(zetas) < 2:
        raise ValueError(
            f"zeta_selection={name!r} selects one of several zetas, and zeta is not a list of two or more; give a list "
            "such as [1, 0.1, 0.01], or leave zeta_selection at 'welfare'"
        )
    if surrogate.huber != float("inf"):
        raise ValueError(
            f"zeta_selection={name!r} is by the reduced squared loss, got a surrogate with huber={surrogate.huber}; "
            "leave it out, or use 'welfare'"
        )
    return SELECTIONS[name]


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
