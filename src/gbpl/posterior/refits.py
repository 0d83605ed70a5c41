"""Refits with random row weights, and how much the committee's welfare varies over them (section 4.5).

The bootstrap of Lyddon, Holmes and Walker (2019); `gbpl.posterior.eta.refit_matching` matches a posterior to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.fitting.apply import member_policies, taken
from gbpl.posterior.bootstrap import bootstrap_members
from gbpl.posterior.influence import estimated_outcomes
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Float

    from gbpl.path.path import PathFit

__all__ = ["Refits", "refit"]

LEAST_SHARE = 0.25  # of the refits' variance: the least that the committee's is taken to be


@dataclass(frozen=True, slots=True, eq=False)
class Refits:
    """The committee's welfare over refits, in scaled units: its variance over samples, and the refits' bias.

    `freedom` are the degrees of freedom of the variance, `count` the number of refits.
    """

    variance: float
    bias: float
    freedom: int
    count: int


def refit(fit: PathFit, *, refits: int | None = None, rule: str = "randomized", seed: int = 0) -> Refits:
    """Fit members again with exponential row weights and new seeds, as one stack, and compare their welfare.

    There are `refits` in all (None: as many as the fit had members), divided among the members by their shares. Refits
    of single members vary more than the committee, which averages over folds and seeds: with S^2 the refits' variance
    and B^2 the variance between the committee's own members, both within a zeta and in the common size of the policy,
    the committee's is S^2 - (1 - sum share^2) B^2. A deterministic `rule` has no size to bring into line.
    """
    count = max(2, len(fit.every)) if refits is None else refits
    if count < 2:
        raise ValueError(f"refits must be >= 2, got {refits}; leave it out for as many as the fit had members")
    outcomes = estimated_outcomes(fit)
    copies, owners = [], []
    for number, (member, dealt) in enumerate(zip(fit.members, _deal(fit.shares, count), strict=True)):
        copies += bootstrap_members(member, dealt, seed=seed)
        owners += [number] * dealt
    stack = fit.fit_again(copies)
    # scales every zeta's policy to the committee's size
    size = fit.policy_weights / fit.shares if rule == "randomized" else np.ones(len(fit.members))
    own = _welfares(fit, fit.params, len(fit.members), outcomes, rule) * size
    again = _welfares(fit, stack.params, len(copies), outcomes, rule) * size[owners]
    entry = np.array([member.entry for member in fit.members])
    refit_variance, freedom = _within(again, entry[owners])
    member_variance, _ = _within(own, entry)
    variance = refit_variance - (1.0 - np.sum(fit.shares**2)) * member_variance
    return Refits(
        variance=max(float(variance), LEAST_SHARE * refit_variance),
        bias=float(np.mean(again - own[owners])),
        freedom=freedom,
        count=count,
    )


def _deal(shares: Float[np.ndarray, " member"], count: int) -> list[int]:
    """`count` refits by shares, largest remainders first; members of small share may get none."""
    exact = shares / shares.sum() * count
    dealt = np.floor(exact + 1e-9).astype(int)
    order = np.argsort(-(exact - dealt), kind="stable")
    dealt[order[: count - dealt.sum()]] += 1
    return [int(number) for number in dealt]


def _welfares(
    fit: PathFit, params: Any, count: int, outcomes: Float[np.ndarray, "row action"], rule: str
) -> Float[np.ndarray, " member"]:
    """Welfare of each member's policy on the training rows, given their outcomes up to a row's constant."""
    totals = []
    for start in range(0, count, 8):
        part = taken(params, range(start, min(start + 8, count)))
        policies = member_policies(fit.model, fit.surrogate, part, fit.x)
        policies = policies if rule == "randomized" else np.eye(policies.shape[2])[deterministic(policies)]
        totals.append(np.einsum("mra,ra->m", policies, outcomes, dtype=np.float64) / len(fit.x))
    return np.concatenate(totals)


def _within(values: np.ndarray, group: np.ndarray) -> tuple[float, int]:
    """Variance within groups, pooled, and its degrees of freedom."""
    freedom = len(values) - len(np.unique(group))
    if len(values) < 2:
        return 0.0, 0
    if freedom < 1:
        return float(np.var(values, ddof=1)), len(values) - 1
    means = np.bincount(group, values) / np.maximum(np.bincount(group), 1)
    return float(np.sum((values - means[group]) ** 2) / freedom), freedom
