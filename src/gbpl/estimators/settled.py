"""A fit that gives everybody one action: what is left where no policy may be used."""

from __future__ import annotations

from copy import copy
from dataclasses import replace

import numpy as np

from gbpl.estimators.training import Training
from gbpl.path.held_out import HeldOut
from gbpl.posterior.effect import Effect

__all__ = ["settled"]

NOTHING = 1e-9  # of the outcome scale: the gain that is expected of any action, since none may be used


def settled(training: Training, action: int) -> Training:
    """The same fit, whose expected effects and held-out decisions are one action for all.

    Deviations from uniform are e_a - 1/K in every row, so its probability is one. The posterior stays that of the
    objective.
    """
    fit = training.fit
    assert fit.effect is not None
    count = training.feedback.outcomes.shape[1]
    deviation = np.eye(count)[action] - 1.0 / count
    unit = NOTHING * fit.scale
    made = copy(training)
    made.fit = replace(fit, effect=replace(fit.effect, mean=Effect(0.0, unit * deviation, unit)))
    made.__dict__.pop("_of_committee", None)
    n = len(training.feedback)
    made.__dict__["held_out"] = HeldOut(
        np.tile(deviation.astype(np.float32), (n, 1)), np.full(n, unit), np.zeros((count, count)),
        training.held_out.folds,
    )  # fmt: skip
    made.__dict__.pop("untouched", None)
    return made
