"""GBPL: the learner to begin with, which finds out by itself which models suit the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbpl.estimators.gbplnet import GBPLNet
from gbpl.fitting.stack import FitConfig
from gbpl.surrogates import Surrogate

__all__ = ["GBPL"]


class GBPL(GBPLNet):
    """Learn who gets which action, by networks and forests side by side, weighted by how well each does on these data.

    It is `GBPLNet(model="auto", outcome_model="auto")`. Networks decide well where gains are smooth in the features,
    trees where they jump (docs/peers.md), and one rarely knows beforehand. So:

    - the score is a committee of networks (`MLP`) and of forests (`ForestFeatures`, larger with more than five
      actions) over zetas and folds, each weighted by the probability that its out-of-fold welfare is the best; a sum of
      curves, one per feature (`Splines`), joins them where it is the best with probability above two thirds;
    - with logged feedback the mean outcomes are an average of two networks (smooth units, and ReLU units where they
      earn their place), a forest and an additive regression (`nuisance.averaged`), and scores are learned from the
      doubly robust table and from the outcome model alone; the two kinds are compared by both tables, the unbiased one
      and the less noisy one.

    Its networks are smaller than those of `GBPLNet()` (64 x 64 units), at three zetas instead of five, so that it takes
    about as long for some thousand rows. It has everything that has: a posterior, values and intervals, certificates,
    `save`. Beyond 200,000 rows the same models learn in passes over the rows: trees are grown on a sample, and what
    their leaves say is settled by all rows.

    Parameters are those of `GBPLNet`.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> A = rng.integers(2, size=200)
    >>> y = np.where(X[:, 0] > 0, 2.0 * A, -2.0 * A) + 0.1 * rng.normal(size=200)
    >>> policy = GBPL(random_state=0, fit_config=FitConfig(max_epochs=20)).fit(X, y, action=A, propensity=0.5)
    >>> policy.predict([[1.0, 0.0], [-1.0, 0.0]]).tolist()
    [1, 0]
    """

    def __init__(
        self,
        *,
        zeta: float | Sequence[float] | str = "auto",
        eta: float | str = "auto",
        prior_sd: float = 1.0,
        surrogate: str | Surrogate = "auto",
        committee: int | None = 5,
        actions: Sequence[Any] | None = None,
        nuisance_folds: int = 5,
        clip: float | str = "auto",
        confounding: float = 1.0,
        confounding_baseline: Any = None,
        outliers: str = "cut",
        fit_config: FitConfig | None = None,
        random_state: Any = None,
        device: str = "auto",
        progress: bool | None = None,
    ) -> None:
        super().__init__(
            zeta=zeta, eta=eta, prior_sd=prior_sd, surrogate=surrogate, model="auto", committee=committee,
            actions=actions, outcome_model="auto", nuisance_folds=nuisance_folds, clip=clip, confounding=confounding,
            confounding_baseline=confounding_baseline, outliers=outliers, fit_config=fit_config,
            random_state=random_state, device=device, progress=progress,
        )  # fmt: skip
