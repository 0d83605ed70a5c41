"""Whether members were still learning when their epochs ran out, from the losses that a fit keeps anyway."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from gbpl.fitting.config import FitConfig
from gbpl.fitting.stack import StackFit
from gbpl.runtime.warn import warn

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["late_shares", "warn_if_unfinished"]

LATE = 1 / 3  # a member with a larger late share is unfinished; 1/2 is a fall that has not slowed down at all
SMALL = 0.05  # of the loss itself: a late fall below this is not worth more epochs
MATTERS = 0.5  # a fit is unfinished if its unfinished members have more of the weight
NAMED = 3


def late_shares(fit: StackFit, config: FitConfig) -> Float[np.ndarray, " member"]:
    """How much of each member's fall in loss came in the second half of its epochs; zero if it stopped before the last.

    The loss is that of the validation rows, or of training without any; the fall is that since the first epoch. Where
    the late part of it is small beside the loss itself, it counts as none.
    """
    shares = np.zeros(len(fit.members))
    for number, (held, trained) in enumerate(zip(fit.validation_loss, fit.train_loss, strict=True)):
        losses = held if len(held) else trained
        waited = len(losses) - int(fit.best_epoch[number])
        if len(losses) < max(2, config.max_epochs) or (len(held) and waited >= config.patience):
            continue
        best = float(np.min(losses))
        late = float(np.min(losses[: len(losses) // 2])) - best
        if late > SMALL * abs(best):
            shares[number] = late / (float(losses[0]) - best)
    return shares


def warn_if_unfinished(
    fit: StackFit,
    config: FitConfig | None,
    names: Sequence[str],
    *,
    weights: Float[np.ndarray, " member"] | None = None,
    what: str = "the fit",
) -> None:
    """Warn if members with most of the weight ended at their last epoch while their loss was still falling."""
    config = config or FitConfig()
    given = np.ones(len(names)) if weights is None else weights
    late = late_shares(fit, config)
    unfinished = np.flatnonzero((late > LATE) & (given > 0))
    weight = float(np.sum(given[unfinished]) / np.sum(given))
    if weight <= MATTERS:
        return
    shown = "; ".join(names[number] for number in unfinished[:NAMED])
    more = f"; and {len(unfinished) - NAMED} more" if len(unfinished) > NAMED else ""
    warn(
        f"{what} ended after its {config.max_epochs} epochs and had not converged: {len(unfinished)} of "
        f"{np.count_nonzero(given)} members, with {weight:.0%} of the weight, were still learning ({shown}{more}). "
        f"The second half of their epochs brought {np.median(late[unfinished]):.0%} of the fall in loss. Use more "
        f"epochs or larger steps, such as fit_config=FitConfig(max_epochs={2 * config.max_epochs}) or "
        f"FitConfig(learning_rate={3 * config.learning_rate:g})",
        ConvergenceWarning,
    )
