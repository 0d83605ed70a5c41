"""The posterior of a committee that averages zetas and models: a draw is the committee with other weights (section 6).

A draw is a whole policy. It gives each member another weight, and it adds a function of the features:

    theta_s(x) = sum_m weight_sm advantage_m(x) + phi(x)'B_s + r_s(x),

the effect of each action in outcome units. What varies from draw to draw is what is not known:

- how much the committee's deviations mean in outcome units, and what they leave out: slope and B of `posterior.effect`;
- the rows: members of one fold rise or fall together, as they would if other rows had been left out (the jackknife over
  folds, times `BIAS`, since a learner that balances squared bias and variance has both);
- which zeta and model count: entries of the path exchange weight, with the spread of their disagreement times `MODELS`;
- what no member sees: half of that variance is given to a rough random function r of the features instead, the same for
  all rows on average. Members that happen to agree on a row may all be wrong there.

The constants were chosen by simulation, with other seeds than those of the study that checks them
(docs/calibration.md).
Welfare asks something else: how it would vary with another sample. A draw then lies between the committee and such a
theta, without r. Near its best a rule's welfare is quadratic in its error, and the committee has an error of its own:
adding an error of variance k s^2 to one of variance s^2 varies welfare as much as a new sample does if k^2 + 2 k = 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import jax.numpy as jnp
import numpy as np

from gbpl.decisions.gain import t_reach
from gbpl.fitting.apply import member_policies, row_blocks
from gbpl.models.basis import effect_basis, rough_basis, rough_functions
from gbpl.posterior.chains import to_arviz
from gbpl.posterior.posterior import DRAWS_AT_A_TIME, Posterior, play
from gbpl.posterior.problem import PosteriorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jaxtyping import Float

    from gbpl.path.path import PathFit

__all__ = ["CommitteePosterior"]

BIAS, MODELS = 1.6, 2.0
ROUGH = 0.5  # share of the variance that no member sees
SAMPLING = 0.22  # variance of draws for welfare as a share of that of effects: about k / BIAS, k = 0.41 (see above)
WEAK = 10.0  # that share is 1 + WEAK / strength^2 times as large where effects are weak, and welfare is not quadratic
ROWS = 1_000  # training rows on which the variance is averaged
ROUGH_FUNCTIONS = 64
NUMBERS = 1 << 23  # of draws of effects in memory at a time: 32 MB, however many actions there are


class CommitteePosterior(Posterior):
    """Draws of a committee's weights and of the effects it leaves out."""

    method = "committee"
    diagnostics: ClassVar[list[Mapping[str, Any]]] = []  # type: ignore[misc]

    def __init__(self, fit: PathFit, actions: np.ndarray, *, default_draws: int = 400) -> None:
        assert fit.effect is not None
        self.fit, self.effect = fit, fit.effect
        self.standardizer, self.surrogate, self.actions = fit.standardizer, fit.settings.surrogate, actions
        self.default_draws, self.parts = default_draws, ()
        self.policy_weights = fit.policy_weights
        self._fold = np.unique([member.fold for member in fit.members], return_inverse=True)[1]
        self._entry = np.unique([member.entry for member in fit.members], return_inverse=True)[1]
        self._rough = ROUGH * self._mean_variance()
        self.functions = rough_functions(fit.x.shape[1], ROUGH_FUNCTIONS)
        self._drawn = lru_cache(maxsize=2)(self._draw)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the spread between folds and entries."""
        return int(self._fold.max() + self._entry.max())

    def _members(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "member row action"]:
        fit = self.fit
        return np.asarray(self.surrogate.advantage(member_policies(fit.model, self.surrogate, fit.params, x)))

    def _sides(self) -> tuple[np.ndarray, np.ndarray]:
        """Fold and entry of each member, as relative changes of its weight under which the weights keep their mean."""
        folds, entries = np.eye(self._fold.max() + 1)[self._fold], np.eye(self._entry.max() + 1)[self._entry]
        count = folds.shape[1]
        of_folds = np.sqrt(BIAS * (count - 1) / count) * (count * folds - 1.0)
        share = self.fit.shares @ entries
        of_entries = np.sqrt(MODELS) * (entries / np.sqrt(share) - np.sqrt(share))
        return of_folds, of_entries

    def _mean_variance(self) -> float:
        """Variance of a deviation over folds and entries, averaged over training rows and actions."""
        rows = np.random.default_rng(0).permutation(len(self.fit.x))[:ROWS]
        members = self._members(self.fit.x[rows]) * self.policy_weights[:, None, None]
        spread = np.concatenate(self._sides(), axis=1)
        count = len(self.actions)
        return float(np.mean(np.tensordot(spread.T, members, axes=1) ** 2) * len(spread.T)) * count / (count - 1)

    # -- drawing ------------------------------------------------------------------------------------------

    def _draw(self, draws: int, seed: int) -> dict[str, np.ndarray]:
        """Slopes, coefficients of phi, the relative change of each member's weight; slopes and levels as played."""
        slopes, coefficients = self.effect.draw(draws, seed=seed)
        rng = np.random.default_rng([seed, 6])
        of_folds, of_entries = self._sides()
        moved = rng.standard_normal((draws, of_folds.shape[1])) @ of_folds.T
        moved += rng.standard_normal((draws, of_entries.shape[1])) @ of_entries.T
        played, levels = self.effect.draw(draws, seed=seed, played=True)
        return {"slope": slopes, "coefficient": coefficients, "moved": moved, "played": played, "level": levels}

    def _resampled(self, rule: str, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Weights of members, and levels, of policies that another sample might have given, as deviations."""
        mean, drawn = self.effect.mean, self._drawn(draws, seed)
        share = SAMPLING * (1.0 + WEAK / max(self.effect.strength, 1e-9) ** 2)
        root = np.sqrt(min(share if rule == "deterministic" else max(share, 1.0 / BIAS), 1.0))
        slopes = mean.slope + root * (drawn["played"] - mean.slope)
        weights = self.policy_weights * (slopes[:, None] * (1.0 + root * drawn["moved"]))
        levels = mean.level + root * (drawn["level"] - mean.level)
        return (weights / mean.unit).astype(np.float32), (levels / mean.unit).astype(np.float32)

    def sample(self, draws: int | None = None, *, seed: int = 0) -> Any:
        """Draws as arrays with a leading draw axis: `weight` of each member, and the coefficients of what is added."""
        drawn = self._drawn(self._checked_draws(draws), seed)
        slopes, wide = drawn["slope"][:, None], self.effect.doubt * drawn["slope"][:, None]
        weights = self.policy_weights * (slopes + np.sqrt(1.0 - ROUGH) * wide * drawn["moved"])
        rough = np.random.default_rng([seed, 8]).standard_normal((len(slopes), ROUGH_FUNCTIONS, len(self.actions)))
        rough = (rough - rough.mean(axis=2, keepdims=True)) * (np.sqrt(self._rough) * wide[:, :, None])
        arrays = {"weight": weights, "coefficient": drawn["coefficient"], "rough": rough}
        return {name: values.astype(np.float32) for name, values in arrays.items()}

    def to_arviz(self, draws: int | None = None, *, seed: int = 0) -> Any:
        """Draws as ArviZ data, one chain of independent draws."""
        return to_arviz({name: values[None] for name, values in self.sample(draws, seed=seed).items()})

    def member_draws(self, draws: int | None, *, seed: int) -> Any:
        raise PosteriorError(
            "a draw of the committee is not a draw of one member; use sample, or posterior('last_layer') for members"
        )

    def _kind(self, of: str | None) -> str:
        if of == "member":
            raise PosteriorError("draws are of the committee; for draws of its members use posterior('last_layer')")
        return super()._kind(of)

    def _joint_parts(self) -> Any:
        return []

    # -- deciding -----------------------------------------------------------------------------------------

    def _rules(self, rule: str, of: str | None, draws: int | None, seed: int) -> Iterator[tuple[int, Any]]:
        self._kind(of)
        count = self._checked_draws(draws)
        weights, levels = self._resampled(rule, count, seed)
        for start in range(0, count, DRAWS_AT_A_TIME):
            chunk = slice(start, min(start + DRAWS_AT_A_TIME, count))

            def policies(block: Any, chunk: slice = chunk) -> Any:
                x = np.asarray(block)
                deviation = np.tensordot(weights[chunk], self._members(x), axes=1) + levels[chunk]
                return play(jnp.asarray(deviation), rule=rule)

            yield chunk.stop - start, policies

    def effects(
        self, X: Any, *, draws: int | None = None, seed: int = 0
    ) -> Iterator[tuple[slice, Float[np.ndarray, "draw row action"]]]:
        """Draws of the effect of each action, up to a constant of the row, block by block of rows."""
        drawn = self.sample(draws, seed=seed)
        coefficients = np.concatenate([drawn["coefficient"], drawn["rough"]], axis=1)
        step = max(1, NUMBERS // (len(coefficients) * len(self.actions)))
        for rows, block in row_blocks(self._features(X)):
            members = self._members(block)
            for start in range(0, rows.stop - rows.start, step):
                part = slice(start, min(start + step, rows.stop - rows.start))
                phi = effect_basis(block[part], self.effect.knots, drawn["coefficient"].shape[1]).astype(np.float32)
                effect = np.tensordot(drawn["weight"], members[:, part], axes=1)
                effect += np.matmul(np.column_stack([phi, rough_basis(block[part], self.functions)]), coefficients)
                yield slice(rows.start + part.start, rows.start + part.stop), effect

    def scores(self, X: Any, *, draws: int | None = None, seed: int = 0) -> Float[np.ndarray, "draw row score"]:
        """Scores of every draw on every row, of the policy 1/K + effect / unit on the simplex."""
        parts = []
        for _, effect in self.effects(X, draws=draws, seed=seed):
            policy = play(jnp.asarray(effect / self.effect.mean.unit), rule="randomized")
            parts.append(np.asarray(self.surrogate.scores_of_policy(np.asarray(policy))))
        return np.concatenate(parts, axis=1)

    def action_probability(self, X: Any, *, draws: int | None = None, seed: int = 0) -> Float[np.ndarray, "row action"]:
        """Probability that each action is the best for the row: the share of draws in which its effect is largest."""
        return np.concatenate([_shares(effect) for _, effect in self.effects(X, draws=draws, seed=seed)])

    def probability_around(
        self, X: Any, centre: Float[np.ndarray, "row action"], *, draws: int | None = None, seed: int = 0
    ) -> Float[np.ndarray, "row action"]:
        """Action probabilities where the draws spread around other expected effects, such as those out of fold."""
        total = []
        for rows, effect in self.effects(X, draws=draws, seed=seed):
            effect += (centre[rows] - effect.mean(axis=0)).astype(np.float32)
            total.append(_shares(effect))
        return np.concatenate(total)

    def gain_interval(
        self, X: Any, level: float, default: int, *, draws: int | None = None, seed: int = 0
    ) -> tuple[Float[np.ndarray, "row action"], Float[np.ndarray, "row action"]]:
        """Ends of intervals of the gain of each action over the default: mean and spread of the draws, Student's t."""
        reach = t_reach(level, self.freedom)
        ends = []
        for _, effect in self.effects(X, draws=draws, seed=seed):
            gain = effect - effect[:, :, [default]]
            mean, error = gain.mean(axis=0), reach * gain.std(axis=0, ddof=1)
            ends.append((mean - error, mean + error))
        return np.concatenate([low for low, _ in ends]), np.concatenate([high for _, high in ends])


def _shares(effect: Float[np.ndarray, "draw row action"]) -> Float[np.ndarray, "row action"]:
    """Share of draws in which each action has the largest effect."""
    draws, rows, actions = effect.shape
    best = np.argmax(effect, axis=2) + actions * np.arange(rows)
    return np.bincount(best.ravel(), minlength=rows * actions).reshape(rows, actions) / draws
