"""The loss-likelihood bootstrap: refits with random row weights (Lyddon, Holmes and Walker 2019).

Each draw minimises sum_i weight_i loss_i plus the prior with weights from the exponential distribution. It needs no
curvature and no chain, but one fit per draw, and its spread does not depend on eta: a nonparametric alternative to the
generalized posterior, and a check on its approximations.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import numpy as np

from gbpl.fitting.members import Member
from gbpl.fitting.stack import FitConfig, fit_stack
from gbpl.models.base import ScoreModel
from gbpl.posterior.problem import MemberPosterior, PosteriorError, Problem
from gbpl.runtime.devices import resolve_devices
from gbpl.runtime.engines import in_chunks
from gbpl.surrogates import Surrogate

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Bootstrap", "bootstrap_members", "fit_bootstrap"]

REFITS_PER_TASK = 32  # enough to fill a stack, few enough to spread a hundred over workers


class Bootstrap(MemberPosterior):
    """Refits of one member as its draws."""

    method: ClassVar[str] = "bootstrap"

    def __init__(self, problem: Problem, params: Any, count: int) -> None:
        super().__init__(problem)
        self.params, self.count = params, count

    def sample(self, draws: int, *, seed: int) -> Any:
        if draws > self.count:
            raise PosteriorError(
                f"the bootstrap of this member has {self.count} refits, and {draws} draws were requested; request "
                f"fewer, or refit with a larger `refits`"
            )
        chosen = np.random.default_rng(seed).permutation(self.count)[:draws]
        return jax.tree.map(lambda leaf: leaf[chosen], self.params)


def bootstrap_members(member: Member, count: int, *, seed: int) -> list[Member]:
    """`count` copies of a member with exponential weights on its training rows."""
    rng = np.random.default_rng([seed, member.seed])
    given = np.ones(len(member.train)) if member.weights is None else member.weights
    return [
        replace(
            member,
            weights=given * rng.exponential(size=len(member.train)),
            seed=int(rng.integers(2**31)),
        )
        for _ in range(count)
    ]


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
    engine: str = "local",
) -> list[Bootstrap]:
    """Refit all members: `refits` draws in all, divided by the members' shares, each rounded up.

    They are fitted here as one stack, or by another `engine` (`runtime.engines`) as tasks of 32: the same draws, up to
    float32 rounding, however many workers there are.
    """
    counts = [max(1, math.ceil(refits * share - 1e-9)) for share in shares / np.sum(shares)]
    posteriors: dict[int, Bootstrap] = {}
    for model in dict.fromkeys(problem.model for problem in problems):  # in order, each once
        own = [number for number, problem in enumerate(problems) if problem.model == model]
        stacked = [copy for i in own for copy in bootstrap_members(members[i], counts[i], seed=seed)]
        refit = partial(_refitted, data=data, surrogate=problems[0].surrogate, model=model, config=config)
        if engine == "local":
            params = refit(stacked, device=device, progress=progress)
        else:
            platform = resolve_devices(device)[0].platform
            task = partial(refit, device=platform, progress=False)
            params = in_chunks(task, stacked, engine=engine, size=REFITS_PER_TASK, device=device, progress=progress)
        ends = np.cumsum([counts[i] for i in own])
        for i, end in zip(own, ends, strict=True):
            parts = params[end - counts[i] : end]
            joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
            posteriors[i] = Bootstrap(problems[i], joined, counts[i])
    return [posteriors[number] for number in range(len(problems))]


def _refitted(
    members: Sequence[Member],
    *,
    data: tuple[np.ndarray, np.ndarray],
    surrogate: Surrogate,
    model: ScoreModel,
    config: FitConfig | None,
    device: str | Sequence[jax.Device],
    progress: bool | None,
) -> list[Any]:
    """Parameters of each member, fitted, with a member axis of one."""
    fit = fit_stack(*data, members, surrogate, model, config=config, device=device, progress=progress)  # type: ignore[arg-type]
    return [fit.select([number]) for number in range(len(members))]
