"""Designs with known truth (appendices on experimental details and on counterfactual settings).

The designs of the paper: its binary and its multi-action ones, the one-dimensional example of its posterior
visualization, real features with made outcomes, and any of them seen through a logging policy. Each knows its
conditional means, so regret can be had exactly, and what rules are worth under it:

    optimal_welfare()  E[max_a gamma_a(X)], the best any rule of the features can do
    oracle_welfare()   E[max_a Y(a)], the paper's oracle, who sees the realized outcomes
    action_welfare()   E[Y(a)] of each action, given to everybody

They are the formulas of the text as written; some of the paper's tables come from others.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from scipy.special import expit, softmax

from gbpl.feedback import check_column, check_features
from gbpl.truth import expected_max, normal_rule, piecewise_rule, positive_part, symmetric_normals

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "BinaryDesign",
    "Design",
    "KnownWelfare",
    "LoggedDesign",
    "LoggedSample",
    "MultiActionDesign",
    "OneDimensionalDesign",
    "Sample",
    "SemiSyntheticDesign",
]

NAMES = ("DGP1", "DGP2", "DGP3")
VARIANTS = ("stated", "unscaled")
BASELINE_MEAN = {"DGP1": 0.5, "DGP2": -0.2, "DGP3": 0.0}  # E[x_j^2] = 1, and the other terms are odd

# Keys of the streams beside the rows' own default_rng(seed). Were they that stream too, w would be the first row of
# features wherever index_seed is the seed, and the logging policy would know the effect of DGP1.
OUTCOME_INDEX, LOGGING_INDEX, LOGGED_ACTION, SHIFT_INDEX = 1, 2, 3, 4


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Features, realized outcomes of every action, and their conditional means."""

    x: Float[np.ndarray, "row feature"]
    outcomes: Float[np.ndarray, "row action"]
    outcome_mean: Float[np.ndarray, "row action"]


@dataclass(frozen=True, slots=True, eq=False)
class LoggedSample:
    """What a logging policy leaves: features, one action a row, its outcome, and the propensities e_a(x).

    `outcomes` and `outcome_mean`, of every action, are the truth to judge with: a learner must not see them.
    """

    x: Float[np.ndarray, "row feature"]
    action: Int[np.ndarray, " row"]
    outcome: Float[np.ndarray, " row"]
    propensity: Float[np.ndarray, "row action"]
    outcomes: Float[np.ndarray, "row action"]
    outcome_mean: Float[np.ndarray, "row action"]


@runtime_checkable
class Design(Protocol):
    """A design is any object with these: what `LoggedDesign` needs of the one behind it."""

    @property
    def n_features(self) -> int:
        """Columns of x."""
        ...

    @property
    def n_actions(self) -> int:
        """Columns of the outcomes."""
        ...

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_a(x) = E[Y(a) | X = x]."""
        ...

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        ...


@runtime_checkable
class KnownWelfare(Protocol):
    """A design that knows what rules are worth under it. All designs of this module do."""

    def optimal_welfare(self) -> float:
        """E[max_a gamma_a(X)]."""
        ...

    def oracle_welfare(self) -> float:
        """E[max_a Y(a)]."""
        ...

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """E[Y(a)]."""
        ...


def _check_name(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}; try 'DGP2'")


def _check_whole(name: str, value: int, low: int, remedy: str) -> None:
    if not isinstance(value, numbers.Integral) or value < low:
        raise ValueError(f"{name} must be a whole number >= {low}, got {value!r}; {remedy}")


def _check_features(n_features: int) -> None:
    _check_whole("n_features", n_features, 4, "the formulas use four features, the paper has 10")


def _check_index_seed(index_seed: int) -> None:
    # None would draw another index at every call, and the truth would not be that of the sample.
    _check_whole("index_seed", index_seed, 0, "try 0")


def _stream(seed: int, key: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(key,)))


def _unit_rows(count: int, n_features: int, rng: np.random.Generator) -> Float[np.ndarray, "count feature"]:
    """Independent directions, uniform on the sphere; the first ones stay as they are when there are more."""
    w = rng.standard_normal((count, n_features))
    return w / np.linalg.norm(w, axis=1, keepdims=True)


def _baseline(name: str, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
    """gamma_0(x) of the binary designs, which is b(x) of the multi-action ones."""
    match name:
        case "DGP1":
            return x[:, 0] + 0.5 * x[:, 1] ** 2 - 0.25 * x[:, 2] * x[:, 3]
        case "DGP2":
            return 0.5 * np.sin(x[:, 0]) + 0.3 * x[:, 1] - 0.2 * x[:, 2] ** 2
        case _:
            return 0.2 * x[:, 0] - 0.1 * x[:, 1] + 0.1 * np.tanh(x[:, 2])


@dataclass(frozen=True, slots=True)
class BinaryDesign:
    """DGP1 (smooth, linear index), DGP2 (sine of two features) or DGP3 (a step) of the paper.

    X is standard normal, Y(a) = gamma_a(X) + standard normal noise. `index_seed` draws the unit-norm vector w of DGP1.

    `variant="unscaled"` is DGP1 with tau(x) = 2 tanh(x'w), where the text divides x'w by sqrt(d): not what is written,
    but its oracle is worth 1.266, and the paper's tables imply 1.256, where the stated one is worth 1.110 (d = 10).

    >>> BinaryDesign("DGP2").sample(3, seed=0).outcomes.shape
    (3, 2)
    >>> round(BinaryDesign("DGP2").optimal_welfare(), 4)
    0.2716
    """

    name: str = "DGP2"
    n_features: int = 10
    index_seed: int = 0
    variant: str = "stated"

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_features(self.n_features)
        _check_index_seed(self.index_seed)
        if self.variant not in VARIANTS:
            raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, got {self.variant!r}; try 'stated'")
        if self.variant == "unscaled" and self.name != "DGP1":
            raise ValueError(
                f"variant 'unscaled' is of DGP1 only, got it with {self.name}; try variant='stated' or name='DGP1'"
            )

    @property
    def n_actions(self) -> int:
        """Two."""
        return 2

    def baseline(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """gamma_0(x), the mean outcome of action 0."""
        return _baseline(self.name, x)

    def effect(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """tau(x), the mean gap between action 1 and action 0."""
        match self.name:
            case "DGP1":
                w = np.random.default_rng(self.index_seed).standard_normal(self.n_features)
                return 2.0 * np.tanh(x @ (w / np.linalg.norm(w)) / self._divisor)
            case "DGP2":
                return 1.5 * np.sin(x[:, 0] + x[:, 1])
            case _:
                return 2.5 * ((x[:, 0] > 0) - 0.5 + 0.2 * x[:, 1])

    @property
    def _divisor(self) -> float:
        """What divides x'w in DGP1."""
        return 1.0 if self.variant == "unscaled" else math.sqrt(self.n_features)

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_0(x) and gamma_0(x) + tau(x)."""
        low = self.baseline(x)
        return np.column_stack([low, low + self.effect(x)])

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, self.n_features))
        mean = self.outcome_mean(x)
        return Sample(x, mean + rng.standard_normal((n, 2)), mean)

    def optimal_welfare(self) -> float:
        """E[max_a gamma_a(X)] = E[gamma_0] + E[tau^+], to rounding: see `_gain`."""
        return BASELINE_MEAN[self.name] + self._gain(0.0)

    def oracle_welfare(self) -> float:
        """E[max_a Y(a)] = E[gamma_0] + E[(tau + sqrt(2) e)^+], e the noise of the gap, to rounding: see `_gain`."""
        return BASELINE_MEAN[self.name] + self._gain(math.sqrt(2))

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """E[Y(a)], the same for both actions: E[tau] = 0 in all three designs."""
        return np.full(2, BASELINE_MEAN[self.name])

    def _gain(self, gap_sd: float) -> float:
        """E[(tau + gap_sd Z)^+]: what choosing is worth over action 0 when the gap is seen with that noise.

        In DGP1 and DGP2 tau is a function of one standard normal, integrated on pieces that end where it changes sign;
        in DGP3 it is N(-1.25, 1/4) or N(1.25, 1/4), by the sign of x_1, and the formula of `positive_part` is all.
        """
        match self.name:
            case "DGP1":
                z, weight = normal_rule()
                return float(weight @ positive_part(2.0 * np.tanh(z / self._divisor), gap_sd))
            case "DGP2":
                z, weight = normal_rule(math.pi / math.sqrt(2))  # x_1 + x_2 is sqrt(2) z
                return float(weight @ positive_part(1.5 * np.sin(math.sqrt(2) * z), gap_sd))
            case _:
                return float(np.mean(positive_part(np.array([-1.25, 1.25]), math.hypot(0.5, gap_sd))))


@dataclass(frozen=True, slots=True)
class MultiActionDesign:
    """DGP1 (sine), DGP2 (tanh) or DGP3 (steps) of the paper with K actions.

    With the actions numbered a = 1, ..., K (column a - 1) and z_a = x'w_a / sqrt(d),

        DGP1  gamma_a(x) = b(x) + 1.5 sin(z_a + 0.3 a)
        DGP2  gamma_a(x) = b(x) + 2 tanh(z_a - 0.2 a)
        DGP3  gamma_a(x) = b(x) + 1[z_a > 0] + 0.1 a

    X is standard normal, Y(a) = gamma_a(X) + standard normal noise. `index_seed` draws the unit-norm vectors w_a, the
    same for the three designs; the first ones stay when `n_actions` grows.

    >>> MultiActionDesign("DGP3", n_actions=4).sample(3, seed=0).outcomes.shape
    (3, 4)
    """

    name: str = "DGP1"
    n_actions: int = 5
    n_features: int = 10
    index_seed: int = 0

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_whole("n_actions", self.n_actions, 2, "the paper has 5")
        _check_features(self.n_features)
        _check_index_seed(self.index_seed)

    def baseline(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """b(x), which all actions share: it moves welfare but no decision."""
        return _baseline(self.name, x)

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_a(x)."""
        return self._mean_at(x @ self._directions().T / np.sqrt(self.n_features), self.baseline(x)[:, None])

    def _directions(self) -> Float[np.ndarray, "action feature"]:
        return _unit_rows(self.n_actions, self.n_features, _stream(self.index_seed, OUTCOME_INDEX))

    def _mean_at(
        self, z: Float[np.ndarray, "row action"], low: Float[np.ndarray, "row 1"] | float
    ) -> Float[np.ndarray, "row action"]:
        """gamma_a where the indices are z and b(x) is `low`."""
        a = np.arange(1, self.n_actions + 1)
        match self.name:
            case "DGP1":
                return low + 1.5 * np.sin(z + 0.3 * a)
            case "DGP2":
                return low + 2.0 * np.tanh(z - 0.2 * a)
            case _:
                return low + (z > 0) + 0.1 * a

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, self.n_features))
        mean = self.outcome_mean(x)
        return Sample(x, mean + rng.standard_normal(mean.shape), mean)

    def optimal_welfare(self) -> float:
        """E[max_a gamma_a(X)] = E[b] + E[max_a (gamma_a - b)], to about 1e-4 (`_multi_action_gain`)."""
        return BASELINE_MEAN[self.name] + _multi_action_gain(self)[0]

    def oracle_welfare(self) -> float:
        """E[max_a Y(a)] = E[b] + E[max_a (gamma_a - b + e_a)], to about 1e-4 (`_multi_action_gain`)."""
        return BASELINE_MEAN[self.name] + _multi_action_gain(self)[1]

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """E[Y(a)], to rounding: z_a alone is N(0, 1/d)."""
        z, weight = normal_rule()
        z_a = np.repeat(z[:, None] / math.sqrt(self.n_features), self.n_actions, axis=1)
        return BASELINE_MEAN[self.name] + weight @ self._mean_at(z_a, 0.0)


@cache
def _multi_action_gain(design: MultiActionDesign) -> tuple[float, float]:
    """E[max_a (gamma_a - b)] and E[max_a (gamma_a - b + e_a)], of one draw of the w_a.

    The indices z_a are normal and correlated, so that neither maximum has a product form: the mean over z is that over
    Sobol points, and the noise is integrated for each of them (`expected_max`). At K = 5 and d = 10 other scramblings
    of the points give answers with a standard deviation of at most 2e-5 in DGP1 and DGP2, and 7e-5 in DGP3.
    """
    _, factor = np.linalg.qr(design._directions().T)

    def indices(log2_points: int) -> Float[np.ndarray, "point action"]:
        # u R / sqrt(d) has the covariance of z for u standard normal, also where actions outnumber features
        return symmetric_normals(log2_points, len(factor)) @ factor / math.sqrt(design.n_features)

    if design.name == "DGP3":  # which indices are positive is all that counts: at most 2^K cases
        positive = indices(18) > 0
        as_text = positive.view(f"S{design.n_actions}")[:, 0]  # a row is one value: faster to sort than with axis=0
        _, first, times = np.unique(as_text, return_index=True, return_counts=True)
        gain, share = design._mean_at(positive[first], 0.0), times / times.sum()
        return float(share @ gain.max(axis=1)), float(share @ expected_max(gain))
    # The noise rounds the kinks of the maximum, so that fewer points do.
    best, noisy = (design._mean_at(indices(log2_points), 0.0) for log2_points in (17, 14))
    return float(best.max(axis=1).mean()), float(expected_max(noisy).mean())


@dataclass(frozen=True, slots=True)
class OneDimensionalDesign:
    """The paper's posterior example: X uniform on [-2.5, 2.5], tau(x) = 1.2 sin(x), noise of sd 0.6.

    >>> OneDimensionalDesign().effect(np.array([[0.0]]))
    array([0.])
    """

    @property
    def n_features(self) -> int:
        """One."""
        return 1

    @property
    def n_actions(self) -> int:
        """Two."""
        return 2

    def effect(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """tau(x) = 1.2 sin(x)."""
        return 1.2 * np.sin(x[:, 0])

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_0(x) = 0.2 x + 0.2 sin(1.5 x), and gamma_0(x) + tau(x)."""
        low = 0.2 * x[:, 0] + 0.2 * np.sin(1.5 * x[:, 0])
        return np.column_stack([low, low + self.effect(x)])

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        x = rng.uniform(-2.5, 2.5, (n, 1))
        mean = self.outcome_mean(x)
        return Sample(x, mean + 0.6 * rng.standard_normal((n, 2)), mean)

    def optimal_welfare(self) -> float:
        """E[max_a gamma_a(X)], by quadrature on either side of zero, where tau changes sign: to rounding."""
        x, weight = self._rule()
        return float(weight @ self.outcome_mean(x).max(axis=1))

    def oracle_welfare(self) -> float:
        """E[max_a Y(a)] = E[gamma_0 + (tau + 0.6 sqrt(2) e)^+], by the same quadrature: to rounding."""
        x, weight = self._rule()
        return float(weight @ (self.outcome_mean(x)[:, 0] + positive_part(self.effect(x), 0.6 * math.sqrt(2))))

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """E[Y(a)], zero for both actions: both means are odd."""
        return np.zeros(2)

    def _rule(self) -> tuple[Float[np.ndarray, "node 1"], Float[np.ndarray, " node"]]:
        x, weight = piecewise_rule([-2.5, 0.0, 2.5])
        return x[:, None], weight / 5


def _standardized(table: Float[np.ndarray, "row column"]) -> Float[np.ndarray, "row column"]:
    """Columns of mean zero and standard deviation one; a constant one is zero, and not its rounding made large."""
    varies = table.max(axis=0) > table.min(axis=0)
    found = np.zeros(table.shape)
    found[:, varies] = (table[:, varies] - table[:, varies].mean(axis=0)) / table[:, varies].std(axis=0)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class SemiSyntheticDesign:
    """Real features and a real response, made into outcomes of every action (the paper's UCI experiments).

    With the columns of x and y standardized (constant ones are zero),

        Y(a) = y + tanh(x'w_a / sqrt(d) + c_a)

    with w_a standard normal and c_a normal with standard deviation 0.1, drawn from `index_seed`; the first ones stay
    when `n_actions` grows. The text gives neither distribution: these are inferred from its tables (welfare 0.35 and
    0.36, variance over trials 0.023 and 0.030, for yacht and energy_efficiency). Over draws of w, c and the test part
    the best rule gets 0.35 and 0.36 with variances 0.030 and 0.024. w_a of unit norm would give 0.21 and 0.19, and c_a
    with standard deviation 0.5 more than twice the variance; no c at all would fit as well.

    The rows are the population: a sample is all of them or some of them, never a new one, and nothing but their order
    is random. All actions share a row's response, so the gap between two actions has no noise, and the response counts
    as known: `outcome_mean` of a sample is its `outcomes`.

    >>> x, y = np.random.default_rng(0).standard_normal((50, 3)), np.arange(50.0)
    >>> design = SemiSyntheticDesign(x, y)
    >>> design.sample(seed=0).outcomes.shape, design.sample(20, seed=0).outcomes.shape
    ((50, 2), (20, 2))
    """

    x: Float[np.ndarray, "row feature"] = field(repr=False)
    y: Float[np.ndarray, " row"] = field(repr=False)
    n_actions: int = 2
    index_seed: int = 0
    _x: Float[np.ndarray, "row feature"] = field(init=False, repr=False)
    _y: Float[np.ndarray, "row 1"] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        _check_whole("n_actions", self.n_actions, 2, "the paper has 2")
        _check_index_seed(self.index_seed)
        x = check_features(self.x, min_rows=2, name="x")
        y = check_column(self.y, len(x), "y", "the response that all actions share")
        object.__setattr__(self, "_x", _standardized(np.asarray(x, np.float64)))
        object.__setattr__(self, "_y", _standardized(y[:, None]))

    @property
    def n_rows(self) -> int:
        """Rows of the table, the most a sample can have."""
        return len(self._x)

    @property
    def n_features(self) -> int:
        """Columns of the table."""
        return self._x.shape[1]

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """tanh(x'w_a / sqrt(d) + c_a) at standardized features: the means but for the response, which x does not tell.

        Gaps between actions are those of the outcomes; a sample's `outcome_mean` has the response of its rows added.
        """
        drawn = _stream(self.index_seed, SHIFT_INDEX).standard_normal((self.n_actions, self.n_features + 1))
        return np.tanh(x @ drawn[:, :-1].T / math.sqrt(self.n_features) + 0.1 * drawn[:, -1])

    def sample(self, n: int | None = None, *, seed: int) -> Sample:
        """All rows in random order, or the first n of them; x is standardized."""
        if n is not None:
            _check_whole("n", n, 1, "leave it out for all rows")
            if n > self.n_rows:
                raise ValueError(f"n must be at most the {self.n_rows} rows of the table, got {n}; try {self.n_rows}")
        rows = np.random.default_rng(seed).permutation(self.n_rows)[:n]
        outcomes = self._y[rows] + self.outcome_mean(self._x[rows])
        return Sample(self._x[rows], outcomes, outcomes.copy())

    def optimal_welfare(self) -> float:
        """The mean over the rows of max_a Y(a), exactly; their responses have mean zero."""
        return float(self.outcome_mean(self._x).max(axis=1).mean())

    def oracle_welfare(self) -> float:
        """The same as `optimal_welfare`: outcomes have no noise but the response, which all actions share."""
        return self.optimal_welfare()

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """The mean over the rows of Y(a), exactly."""
        return self.outcome_mean(self._x).mean(axis=0)


@dataclass(frozen=True, slots=True)
class LoggedDesign:
    """A design seen through a stochastic logging policy with random linear indices.

    With s = `strength` and unit-norm w drawn from `index_seed` (not the w of the design behind it),

        two actions   e_1(x) = sigmoid(s x'w), clipped to [clip, 1 - clip]; clip = 0 leaves it as it is
        K > 2         e_a(x) = exp(s x'w_a) / sum over b of exp(s x'w_b), never clipped, as in the text: `clip` is for
                      two actions only

    The actions are drawn from these propensities, the clipped ones where they are clipped, so they are exact. s = 0
    logs every action equally often. Two designs that differ in strength or clip see the same rows for one seed.

    The weak-overlap design of the paper has a stronger index and no clipping when it is generated:

    >>> weak = LoggedDesign(BinaryDesign("DGP2"), strength=2.5, clip=0.0)
    >>> seen = weak.sample(6000, seed=0)
    >>> seen.outcome.shape, seen.propensity.shape
    ((6000,), (6000, 2))
    """

    design: Design
    strength: float = 1.0
    clip: float = 0.05
    index_seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.design, type) or not isinstance(self.design, Design):
            raise ValueError(
                "design must have n_features, n_actions, outcome_mean and sample, got "
                f'{self.design!r:.80}; try BinaryDesign("DGP2")'
            )
        strength, clip = self.strength, self.clip
        if not (isinstance(strength, numbers.Real) and math.isfinite(strength) and strength >= 0):
            raise ValueError(
                f"strength must be a finite number >= 0, got {strength!r}; try 1.0, or 2.5 for weak overlap"
            )
        if not (isinstance(clip, numbers.Real) and 0 <= clip < 0.5):
            raise ValueError(f"clip must be in [0, 0.5), got {clip!r}; try 0.05, or 0 for no clipping")
        _check_index_seed(self.index_seed)

    def propensity(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """e_a(x) = P(A = a | X = x)."""
        count = self.design.n_actions
        rng = _stream(self.index_seed, LOGGING_INDEX)
        if count > 2:
            return softmax(self.strength * (x @ _unit_rows(count, self.design.n_features, rng).T), axis=1)
        logit = self.strength * (x @ _unit_rows(1, self.design.n_features, rng)[0])
        # Each column from its own sigmoid: 1 - e_1 would round to zero where e_1 is near one.
        return np.clip(np.column_stack([expit(-logit), expit(logit)]), self.clip, 1.0 - self.clip)

    def sample(self, n: int, *, seed: int) -> LoggedSample:
        """Draw n independent rows: those of design.sample(n, seed=seed), and one action for each."""
        truth = self.design.sample(n, seed=seed)
        propensity = self.propensity(truth.x)
        u = _stream(seed, LOGGED_ACTION).random((n, 1))
        # The last bound is one but for rounding, so it is left out: an action beyond it does not exist.
        action = np.sum(u >= np.cumsum(propensity, axis=1)[:, :-1], axis=1)
        outcome = np.take_along_axis(truth.outcomes, action[:, None], axis=1)[:, 0]
        return LoggedSample(truth.x, action, outcome, propensity, truth.outcomes, truth.outcome_mean)

    def optimal_welfare(self) -> float:
        """That of the design behind it: logging changes what is seen, not what rules are worth."""
        return self._known().optimal_welfare()

    def oracle_welfare(self) -> float:
        """That of the design behind it."""
        return self._known().oracle_welfare()

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """That of the design behind it."""
        return self._known().action_welfare()

    def _known(self) -> KnownWelfare:
        if not isinstance(self.design, KnownWelfare):
            raise TypeError(
                f"the design behind does not know what rules are worth: {self.design!r:.80} lacks optimal_welfare, "
                "oracle_welfare or action_welfare; add them, or take means over a large sample"
            )
        return self.design
