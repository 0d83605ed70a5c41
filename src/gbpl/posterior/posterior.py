"""What a posterior over policies says: welfare, regret, action probabilities, disagreement (section 6 and appendices).

`Posterior` holds the members of a committee, each with draws from one of the methods in `posterior.methods`. A draw is
one of two things. For decisions (action probabilities, disagreement, scores) it is one member: the mixture over the
members. For welfare it is the committee itself, since that is the policy that will be used: all members respond,
to first order, to one perturbation of the targets, and are combined as the committee combines them. Rows and draws
pass in blocks, so that memory stays bounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from gbpl.decisions.rules import disagreement
from gbpl.feedback.checks import check_features
from gbpl.feedback.reach import check_reach
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import filled, row_blocks
from gbpl.posterior.chains import to_arviz
from gbpl.posterior.problem import JointPosterior, MemberPosterior, PosteriorError
from gbpl.posterior.row_sums import RowSums, WelfareRows
from gbpl.report.numbers import ascii_number, decimal_places
from gbpl.runtime.devices import check_not_forked
from gbpl.surrogates import Surrogate, project_simplex
from gbpl.value.evaluate import check_rule
from gbpl.value.welfare import deterministic

if TYPE_CHECKING:
    from jaxtyping import Array, Float

__all__ = ["DRAWS_AT_A_TIME", "Draws", "Posterior", "play"]

DRAWS_AT_A_TIME = 64
KINDS = ("committee", "member")


@dataclass(frozen=True, slots=True, eq=False)
class Draws:
    """Draws of one number, and what it is (`about`)."""

    values: Float[np.ndarray, " draw"]
    about: str

    @property
    def mean(self) -> float:
        """Mean of the draws."""
        return float(np.mean(self.values))

    @property
    def sd(self) -> float:
        """Standard deviation of the draws."""
        return float(np.std(self.values, ddof=1))

    def quantile(self, probability: float) -> float:
        """A quantile of the draws; low quantiles of welfare help to choose a policy cautiously."""
        if not 0 < probability < 1:
            raise ValueError(f"probability must lie between 0 and 1, got {probability}")
        needed = int(np.ceil(1.0 / min(probability, 1.0 - probability)))
        if len(self.values) < needed:
            raise PosteriorError(
                f"{len(self.values)} draws are too few for the {probability:g} quantile; take at least {needed}"
            )
        return float(np.quantile(self.values, probability))

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Equal-tailed credible interval."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, got {level}")
        return self.quantile((1.0 - level) / 2.0), self.quantile((1.0 + level) / 2.0)

    def above(self, other: float | Draws) -> float:
        """Probability of being above a number, or above other draws made with the same seed, draw by draw."""
        against = other.values if isinstance(other, Draws) else other
        return float(np.mean(self.values > against) + 0.5 * np.mean(self.values == against))

    def __str__(self) -> str:
        low, high = self.interval() if len(self.values) >= 40 else (float("nan"), float("nan"))
        places = decimal_places(self.sd)
        mean, sd, low_end, high_end = (ascii_number(x, places) for x in (self.mean, self.sd, low, high))
        return f"{self.about}: mean {mean}, sd {sd}, 95 % interval {low_end} to {high_end}"


def _ruled(policy: Array, rule: str) -> Float[Array, "draw row action"]:
    if rule == "randomized":
        return policy
    return jax.nn.one_hot(deterministic(policy), policy.shape[-1])


@partial(jax.jit, static_argnames=("surrogate", "rule"))
def _policies(raw: Array, *, surrogate: Surrogate, rule: str) -> Float[Array, "draw row action"]:
    policy = surrogate.policy(surrogate.scores(raw))
    return policy if rule == "randomized" else _ruled(jnp.asarray(surrogate.advantage(policy)), rule)


@partial(jax.jit, static_argnames="surrogate")
def _deviation(scores: Array, multiplier: float, *, surrogate: Surrogate) -> Float[Array, "draw row action"]:
    """What a member adds to a committee's policy before it is projected on the simplex."""
    return multiplier * jnp.asarray(surrogate.advantage(surrogate.policy(scores)))


@partial(jax.jit, static_argnames="rule")
def play(deviation: Array, *, rule: str) -> Float[Array, "draw row action"]:
    """Policies of deviations from uniform under a rule."""
    return _ruled(project_simplex(1.0 / deviation.shape[-1] + deviation), rule)


@jax.jit
def _values(policy: Array, outcomes: Array) -> Float[Array, "draw row"]:
    """Outcome of each row under each draw's policy."""
    return jnp.einsum("dra,ra->dr", policy, outcomes)


class Posterior:
    """A posterior over policies.

    `weights` are the shares of the members' posteriors in the mixture; draws are divided among members in that
    proportion, as evenly as their number allows. `policy_weights` are the members' weights in the committee's policy
    (`gbpl.fitting.apply.combined_deviation`).
    """

    def __init__(
        self,
        parts: Sequence[MemberPosterior],
        weights: Float[np.ndarray, " member"],
        *,
        standardizer: Standardizer,
        surrogate: Surrogate,
        actions: np.ndarray,
        policy_weights: Float[np.ndarray, " member"] | None = None,
        default_draws: int = 400,
    ) -> None:
        self.parts, self.weights = tuple(parts), np.asarray(weights, float) / np.sum(weights)
        self.standardizer, self.surrogate, self.actions = standardizer, surrogate, actions
        self.default_draws = default_draws
        self.policy_weights = self.weights if policy_weights is None else np.asarray(policy_weights, float)

    def __str__(self) -> str:
        labels = ", ".join(map(str, self.actions.tolist()[:5])) + (", ..." if len(self.actions) > 5 else "")
        members = len(self.policy_weights)
        return (
            f"posterior over policies by {self.method!r}: {len(self.actions)} actions ({labels}), {members} "
            f"member{'s' if members != 1 else ''}, {self.default_draws} draws unless another number is asked for"
        )

    __repr__ = __str__

    @property
    def method(self) -> str:
        """How its members were sampled."""
        return self.parts[0].method

    @property
    def diagnostics(self) -> list[Mapping[str, Any]]:
        """What each member's method reports about its draws."""
        return [part.diagnostics for part in self.parts]

    def _checked_draws(self, draws: int | None) -> int:
        draws = self.default_draws if draws is None else draws
        if draws < 1:
            raise ValueError(f"draws must be >= 1, got {draws}")
        return draws

    def _shares(self, draws: int | None, seed: int) -> list[tuple[int, int]]:
        """Draws and seed of each member; the remainder goes to members at random, in proportion."""
        draws = self._checked_draws(draws)
        rng = np.random.default_rng(seed)
        counts = np.floor(self.weights * draws + 1e-9).astype(int)
        rest = np.maximum(self.weights * draws - counts, 0.0)  # rounding may leave some a little below
        left = draws - counts.sum()
        if left:
            counts[rng.choice(len(counts), left, replace=False, p=rest / rest.sum())] += 1
        seeds = rng.integers(2**31, size=len(counts))
        return [(int(count), int(s)) for count, s in zip(counts, seeds, strict=True)]

    def member_draws(self, draws: int | None, *, seed: int) -> Iterator[tuple[int, MemberPosterior, Any]]:
        """Number, posterior and draws of each member, the draws in chunks."""
        for number, (part, (count, part_seed)) in enumerate(zip(self.parts, self._shares(draws, seed), strict=True)):
            if count:
                params = part.sample(count, seed=part_seed)
                for start in range(0, count, DRAWS_AT_A_TIME):
                    chunk = slice(start, start + DRAWS_AT_A_TIME)
                    yield number, part, jax.tree.map(lambda leaf, chunk=chunk: leaf[chunk], params)

    def sample(self, draws: int | None = None, *, seed: int = 0) -> Any:
        """Parameters with a leading draw axis, member after member; only for one model, as several do not stack."""
        models = {type(part.problem.model).__name__ for part in self.parts}
        if len({part.problem.model for part in self.parts}) > 1:
            raise PosteriorError(
                f"the committee has several models ({', '.join(sorted(models))}), whose parameters do not stack; use "
                "member_draws, or fit with model=MLP()"
            )
        trees = [params for _, _, params in self.member_draws(draws, seed=seed)]
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)

    def to_arviz(self, draws: int | None = None, *, seed: int = 0) -> Any:
        """Draws as ArviZ data: the chains of one member's sampler as they are, anything else as one chain."""
        params = self.sample(draws, seed=seed)
        quality = self.parts[0].diagnostics if len(self.parts) == 1 else {}
        if "chain_draws" in quality:
            return to_arviz(quality["chain_draws"], sample_stats=quality["sample_stats"])
        return to_arviz(jax.tree.map(lambda leaf: leaf[None], params))

    def _features(self, X: Any) -> Float[np.ndarray, "row feature"]:
        check_not_forked()
        x = check_features(X)
        check_reach(x, self.standardizer.mean, self.standardizer.scale)
        return self.standardizer.apply(x)

    def _joint_parts(self) -> list[JointPosterior] | None:
        """The members' posteriors, where they can be drawn jointly."""
        joint = [part for part in self.parts if isinstance(part, JointPosterior) and part.problem.rows is not None]
        return joint if len(joint) == len(self.parts) else None

    def _kind(self, of: str | None) -> str:
        """Whether a draw is the committee or one of its members: the committee where its members can move together."""
        joint = self._joint_parts() is not None
        if of is None:
            return "committee" if joint else "member"
        if of not in KINDS:
            raise ValueError(f"of must be one of {', '.join(KINDS)}, got {of!r}")
        if of == "committee" and not joint:
            raise PosteriorError(
                f"the members' {self.method!r} draws are independent of each other, so a committee has no joint draw; "
                "use method='last_layer' or 'exact', or of='member'"
            )
        return of

    def _rules(self, rule: str, of: str | None, draws: int | None, seed: int) -> Iterator[tuple[int, Any]]:
        """Chunks of draws: how many, and a function from a block of rows to their policies."""
        joint = self._joint_parts()
        if self._kind(of) == "member" or joint is None:
            for _, part, params in self.member_draws(draws, seed=seed):
                yield (
                    len(jax.tree.leaves(params)[0]),
                    lambda block, part=part, params=params: _policies(
                        part.raw(params, block), surrogate=self.surrogate, rule=rule
                    ),
                )
            return
        count = self._checked_draws(draws)
        drawn = [part.joint_sample(count, seed=seed) for part in joint]
        for start in range(0, count, DRAWS_AT_A_TIME):
            chunk = slice(start, min(start + DRAWS_AT_A_TIME, count))

            def policies(block: Array, chunk: slice = chunk) -> Array:
                total: Any = 0.0
                for part, params, multiplier in zip(joint, drawn, self.policy_weights, strict=True):
                    scores = part.answer(jax.tree.map(lambda leaf: leaf[chunk], params), block)
                    total = total + _deviation(scores, multiplier, surrogate=self.surrogate)
                return play(total, rule=rule)

            yield chunk.stop - start, policies

    def _sums(
        self, rows: WelfareRows, rule: str, of: str | None, draws: int | None, seed: int
    ) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, " draw"]]:
        """Mean over rows of the outcome under each draw's policy, and the standard error of that mean."""
        check_rule(rule)
        rows, groups = rows.by_group()
        x = self.standardizer.apply(rows.x)
        level = rows.outcomes.mean()  # subtracted, so that float32 keeps its digits
        means, errors = [], []
        for size, policies in self._rules(rule, of, draws, seed):
            sums = RowSums(size)
            for part, block in row_blocks(x):
                count = part.stop - part.start
                held = filled((rows.outcomes[part] - level).astype(np.float32), len(block))
                value = np.asarray(_values(policies(jnp.asarray(block)), held))[:, :count]
                sums.add(value, rows.weights[part], groups[part])
            mean, error = sums.results()
            means.append(mean + level)
            errors.append(error)
        return np.concatenate(means), np.concatenate(errors)

    def _rows(self, X: Any, Y: Any, sample_weight: Any, groups: Any = None) -> WelfareRows:
        return WelfareRows.of(X, Y, sample_weight, groups, len(self.actions))

    def welfare(
        self, X: Any, Y: Any, *, rule: str = "deterministic", of: str | None = None, draws: int | None = None,
        seed: int = 0, sample_weight: Any = None,
    ) -> Draws:  # fmt: skip
        """Welfare of each draw's policy on these very rows: posterior uncertainty about the policy alone.

        `of` says what a draw is: the `"committee"`, its members drawn jointly (the default where the method can), or
        one `"member"` of it, drawn at random. With `sample_weight` the mean over rows is a weighted one.
        """
        mean, _ = self._sums(self._rows(X, Y, sample_weight), rule, of, draws, seed)
        return Draws(mean, f"welfare of the {rule} policy on the given rows")

    def population_welfare(
        self, X: Any, Y: Any, *, rule: str = "deterministic", of: str | None = None, draws: int | None = None,
        seed: int = 0, sample_weight: Any = None, groups: Any = None,
    ) -> Draws:  # fmt: skip
        """Welfare in the population the rows come from: the rows' own noise is added to the posterior spread.

        Each draw's mean over rows gets a normal error with the standard error of that mean, as `value` has it: weighted
        by `sample_weight`, and clustered by `groups`, one label per row, where rows of a group belong together.
        """
        mean, error = self._sums(self._rows(X, Y, sample_weight, groups), rule, of, draws, seed)
        if np.isnan(error).any():
            raise ValueError("population_welfare needs two or more rows of positive weight, got one; use welfare")
        noise = np.random.default_rng([seed, 1]).standard_normal(len(mean)) * error
        return Draws(mean + noise, f"population welfare of the {rule} policy")

    def regret(
        self, X: Any, Y: Any, *, rule: str = "deterministic", of: str | None = None, draws: int | None = None,
        seed: int = 0, sample_weight: Any = None,
    ) -> Draws:  # fmt: skip
        """Welfare of the best action of every row, less that of each draw's policy."""
        rows = self._rows(X, Y, sample_weight)
        mean, _ = self._sums(rows, rule, of, draws, seed)
        best = rows.average(rows.outcomes.max(axis=1))
        return Draws(best - mean, f"regret of the {rule} policy on the given rows")

    def _per_row(self, X: Any, draws: int | None, seed: int, compute: Any) -> list[np.ndarray]:
        """compute(member, raw outputs) for every chunk of draws, joined over rows."""
        x = self._features(X)
        chunks = []
        for number, part, params in self.member_draws(draws, seed=seed):
            blocks = [
                np.asarray(compute(number, part.raw(params, jnp.asarray(block))))[:, : rows.stop - rows.start]
                for rows, block in row_blocks(x)
            ]
            chunks.append(np.concatenate(blocks, axis=1))
        return chunks

    def scores(self, X: Any, *, draws: int | None = None, seed: int = 0) -> Float[np.ndarray, "draw row score"]:
        """Scores of every draw on every row; for bands take quantiles over the first axis."""
        return np.concatenate(self._per_row(X, draws, seed, lambda _, raw: self.surrogate.scores(raw)))

    def action_probability(self, X: Any, *, draws: int | None = None, seed: int = 0) -> Float[np.ndarray, "row action"]:
        """Share of draws whose deterministic rule takes each action: p_D(x) in the paper, one column per action."""
        x = self._features(X)
        total = np.zeros((len(x), len(self.actions)))
        count = 0
        for _, part, params in self.member_draws(draws, seed=seed):
            count += len(jax.tree.leaves(params)[0])
            for rows, block in row_blocks(x):
                taken = _policies(part.raw(params, jnp.asarray(block)), surrogate=self.surrogate, rule="deterministic")
                total[rows] += np.asarray(taken.sum(axis=0))[: rows.stop - rows.start]
        return total / count

    def disagreement(self, X: Any, *, draws: int | None = None, seed: int = 0) -> Float[np.ndarray, " row"]:
        """u_D(x) = K/(K-1) (1 - max_a p_a(x)): 2 min(p, 1 - p) for two actions, 0 agreed, 1 evenly split."""
        return disagreement(self.action_probability(X, draws=draws, seed=seed))

    def probability_better(
        self, X: Any, Y: Any, *, than: Any, rule: str = "deterministic", of: str | None = None,
        draws: int | None = None, seed: int = 0, sample_weight: Any = None,
    ) -> float:  # fmt: skip
        """Probability that the policy's welfare on these rows is above another's.

        `than` is an action label (that action for all), or a policy: probabilities or 0/1, one column per action.
        """
        rows = self._rows(X, Y, sample_weight)
        mean, _ = self._sums(rows, rule, of, draws, seed)
        labels = self.actions.tolist()
        if np.ndim(than) == 0:
            if than not in labels:
                raise ValueError(
                    f"than must be an action of {labels}, or a policy with {len(labels)} columns, got {than!r}"
                )
            other = rows.average(rows.outcomes[:, labels.index(than)])
        else:
            policy = np.asarray(than, float)
            if policy.shape != rows.outcomes.shape:
                raise ValueError(f"than must be a policy of shape {rows.outcomes.shape}, got {policy.shape}")
            other = rows.average(np.sum(policy * rows.outcomes, axis=1))
        return Draws(mean, "").above(other)
