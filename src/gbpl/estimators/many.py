"""fit_many: many fits as one stack, at little more than the cost of their arithmetic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gbpl.estimators.gbplnet import GBPLNet
from gbpl.estimators.together import fit_together
from gbpl.estimators.training import hold_out_together
from gbpl.feedback.read import ARGUMENTS
from gbpl.runtime.engines import in_chunks

__all__ = ["fit_many", "hold_out_many"]

FITS_PER_TASK = 8


def fit_many(policies: Sequence[GBPLNet], data: Sequence[Mapping[str, Any]], *, engine: str = "local") -> list[GBPLNet]:
    """Fit several policies, each to its own data (the arguments of `GBPLNet.fit` by name), as one stack.

    Each ends up as `policy.fit(**data)` would make it, up to float32 rounding. For simulation studies: a hundred fits
    on small samples cost little more than their arithmetic. Policies of different networks or settings take turns.

    With another `engine` (`runtime.engines`), such as `"ray"`, they are fitted in tasks of eight. The policies that
    come back can decide, but have no training rows, and so no posterior and no calibration. Warnings raised in workers
    are lost.

    >>> import numpy as np
    >>> from gbpl import FitConfig
    >>> rng = np.random.default_rng(0)
    >>> X, Y = rng.normal(size=(2, 50, 1)), rng.normal(size=(2, 50, 2))
    >>> fast = FitConfig(max_epochs=2)
    >>> fitted = fit_many([GBPLNet(random_state=r, fit_config=fast) for r in range(2)],
    ...                   [{"X": X[r], "y": Y[r]} for r in range(2)])
    >>> [policy.predict_proba([[0.0]]).shape for policy in fitted]
    [(1, 2), (1, 2)]
    """
    if len(policies) != len(data) or len({id(policy) for policy in policies}) != len(policies):
        raise ValueError(
            f"fit_many needs a policy of its own for each data set, got {len(policies)} policies for {len(data)}; "
            "make copies with sklearn.base.clone"
        )
    for given in data:
        unknown = sorted(set(given) - set(ARGUMENTS))
        if unknown or "X" not in given:
            raise ValueError(
                f"data must have X, and may have {', '.join(ARGUMENTS[1:])}, as in fit; got {sorted(given)}"
            )
    if engine != "local":
        pairs = list(zip(policies, data, strict=True))
        back = in_chunks(_fit_pairs, pairs, engine=engine, size=FITS_PER_TASK, device=policies[0].device)
        for policy, fitted in zip(policies, back, strict=True):
            policy.__dict__.update(fitted.__dict__)
        return list(policies)
    feedback = [policy.read_training(**given) for policy, given in zip(policies, data, strict=True)]
    requests = [policy.request(rows) for policy, rows in zip(policies, feedback, strict=True)]
    for policy, training, rows in zip(policies, fit_together(requests), feedback, strict=True):
        policy.remember(training, rows.source)
    return list(policies)


def hold_out_many(policies: Sequence[GBPLNet]) -> None:
    """Fit policies again without each of their folds, as one stack, for their `cross_fitted_value` and `gains`."""
    hold_out_together([policy.training("fit it again") for policy in policies])


def _fit_pairs(pairs: Sequence[tuple[GBPLNet, Mapping[str, Any]]]) -> list[GBPLNet]:
    return fit_many([policy for policy, _ in pairs], [given for _, given in pairs])
