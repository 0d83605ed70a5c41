"""The loss-likelihood bootstrap: refits with random row weights (Lyddon, Holmes and Walker 2019).

Each draw minimises sum_i weight_i loss_i plus the prior with weights from the exponential distribution. It needs no
curvature and no chain, costs a fit a draw, and its spread does not depend on eta: the nonparametric rival of the
generalized posterior and the honest check on its approximations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from gbpl.fit import FitConfig, fit_stack
from gbpl.posteriors.base import MemberPosterior, PosteriorError, Problem
from gbpl.stack import Member

if TYPE_CHECKING:
    import jax
    from jaxtyping import Float

__all__ = ["Bootstrap", "bootstrap_members", "fit_bootstrap"]


def bootstrap_members(member: Member, count: int, *, seed: int) -> list[Member]:
    """`count` copies of a member with exponential weights on its training rows, labelled `refit`."""
    rng = np.random.default_rng([seed, member.seed])
    given = np.ones(len(member.train)) if member.weights is None else member.weights
    return [
        replace(
            member,
            weights=given * rng.exponential(size=len(member.train)),
            seed=int(rng.integers(2**31)),
            label=member.relabel(refit=number),
        )
        for number in range(count)
    ]


class Bootstrap(MemberPosterior):
    """Refits of one member as its draws."""

    method: ClassVar[str] = "bootstrap"

    def __init__(self, problem: Problem, params: Any, count: int) -> None:
        super().__init__(problem)
        self.params, self.count = params, count

    def sample(self, draws: int, *, seed: int) -> Any:
        import jax

        if draws > self.count:
            raise PosteriorError(
                f"the bootstrap of this member has {self.count} refits, and {draws} draws were asked for; ask for "
                f"fewer, or refit with a larger `refits`"
            )
        chosen = np.random.default_rng(seed).permutation(self.count)[:draws]
        return jax.tree.map(lambda leaf: leaf[chosen], self.params)


def fit_bootstrap(
    problems: Sequence[Problem],
    members: Sequence[Member],
    data: tuple[np.ndarray, np.ndarray],
    *,
    shares: Float[np.ndarray, " member"],
    refits: int,
    seed: int,
    config: FitConfig | None,
    device: str | Sequence[jax.Device],
    progress: bool | None,
) -> list[Bootstrap]:
    """Refit all members as one stack: `refits` draws in all, dealt by the members' shares, each rounded up."""
    counts = [max(1, math.ceil(refits * share - 1e-9)) for share in shares / np.sum(shares)]
    stacked = [
        copy
        for member, count in zip(members, counts, strict=True)
        for copy in bootstrap_members(member, count, seed=seed)
    ]
    problem = problems[0]
    fit = fit_stack(*data, stacked, problem.surrogate, problem.model, config=config, device=device, progress=progress)  # type: ignore[arg-type]
    ends = np.cumsum(counts)
    return [
        Bootstrap(problem, fit.select(range(end - count, end)), count)
        for problem, count, end in zip(problems, counts, ends, strict=True)
    ]
