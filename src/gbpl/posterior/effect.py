"""Effects of actions in outcome units: an exact posterior on what a committee has learned (section 4.4).

For a score that is linear and not squashed, the squared surrogate is a Gaussian pseudo-likelihood of the outcomes,
whatever zeta (section 4.4). Here its features are the committee's deviation d(x), by members that did not train on the
row, and simple functions phi(x) of the features: with (pseudo-)outcomes centred in each row,

    Y_i = beta d(x_i) + phi(x_i)'B + noise,   noise ~ N(0, Sigma),   beta >= 0,   B ~ N(0, V (x) Sigma).

The scales of the priors are averaged over a grid by their marginal likelihood. With phi = 1, a level for each action,
its mean is what is played. There beta = 0, one action for all, is among the candidates, as likely beforehand as all
others together: where the committee has found nothing, what is left is the best single action. Draws have lines and
curves in phi as well. They say what the committee may have missed; added to what is played they would blur the jumps
that it has found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import pairwise, product
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg
from scipy.special import log_ndtr
from scipy.stats import truncnorm

from gbpl.decisions.gain import row_products, slope_with_error
from gbpl.models.basis import effect_basis

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Effect", "EffectFit", "contrasts", "fit_effect"]

SCALES = (0.004, 0.015, 0.06, 0.25, 1.0)  # prior sd of levels and lines, in units of the noise of a row
CURVE_SCALES = (0.004, 0.03, 0.2, 1.0)
SLOPE_SCALES = (0.01, 0.04, 0.16, 0.6, 2.0)  # prior sd of beta, the committee's deviations having size one
OPTIMISM = 1.5  # standard errors by which the slope on out-of-fold deviations is too large: members stopped there
KNOTS = 5
ROWS_PER_CURVE = 60
MOST_LINES = 300  # features up to which phi has a line for each
LEAST_SHARE = 1e-4  # of a point of the grid
ROUNDS = 3  # of the noise's covariance and the slope in turn
CHUNK = 32_768
ROUNDING = 1e-12
TRUST = 0.3  # prior sd of the slope between the two best actions, as a share of the slope of all
MOST_DOUBT = 16.0
SEVERAL = 1.25  # what the spread is multiplied by where there are more than two actions, beside that


def contrasts(count: int) -> Float[np.ndarray, "action contrast"]:
    """An orthonormal basis of the vectors over actions with sum zero."""
    return np.linalg.qr(np.column_stack([np.ones(count), np.eye(count)[:, : count - 1]]))[0][:, 1:]


@dataclass(frozen=True, slots=True, eq=False)
class _Sums:
    """Sums over rows of squares and products of phi (p), outcome contrasts (c) and deviation contrasts (d)."""

    pp: np.ndarray
    pc: np.ndarray
    pd: np.ndarray
    cc: np.ndarray
    cd: np.ndarray
    dd: np.ndarray
    rows: float

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def levels(self) -> _Sums:
        """With phi = 1 alone."""
        return _Sums(self.pp[:1, :1], self.pc[:1], self.pd[:1], self.cc, self.cd, self.dd, self.rows)

    @classmethod
    def of(cls, phi: np.ndarray, c: np.ndarray, d: np.ndarray, weight: np.ndarray) -> _Sums:
        p, u, v = (part * weight[:, None] for part in (phi, c, d))
        return cls(p.T @ phi, p.T @ c, p.T @ d, u.T @ c, u.T @ d, v.T @ d, float(weight.sum()))


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The posterior at one point of the grid: of beta, of B given beta, and of the noise."""

    slope: float
    slope_sd: float
    of_outcomes: Float[np.ndarray, "basis contrast"]
    of_deviation: Float[np.ndarray, "basis contrast"]
    root: Float[np.ndarray, "basis basis"]
    noise: Float[np.ndarray, "contrast contrast"]

    @property
    def mean_slope(self) -> float:
        """Mean of a normal kept above zero."""
        ratio = self.slope / self.slope_sd
        density = np.exp(-0.5 * ratio**2 - log_ndtr(ratio)) / np.sqrt(2.0 * np.pi)
        return self.slope + self.slope_sd * float(density)

    def draw(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        slopes = truncnorm.rvs(
            -self.slope / self.slope_sd, np.inf, loc=self.slope, scale=self.slope_sd, size=count, random_state=rng
        )
        width = self.noise.shape[0]
        noise = rng.standard_normal((len(self.root), count * width))
        spread = scipy.linalg.solve_triangular(self.root, noise, lower=True, trans="T").reshape(-1, count, width)
        mean = self.of_outcomes[:, None] - slopes[None, :, None] * self.of_deviation[:, None]
        return slopes, (mean + spread @ np.linalg.cholesky(self.noise).T).transpose(1, 0, 2)


@dataclass(frozen=True, slots=True, eq=False)
class Effect:
    """Expected effect of each action, up to a constant of the row: slope d(x) + level.

    `unit` is the outcome per unit of a policy's deviation from uniform: effects over it are the deviation that is
    played, so that the action with the largest expected effect is the one that is chosen.
    """

    slope: float
    level: Float[np.ndarray, " action"]
    unit: float

    def deviation(self, deviation: Float[np.ndarray, "row action"]) -> Float[np.ndarray, "row action"]:
        """The deviation from uniform that is played where the committee's is `deviation`."""
        return (self.slope / self.unit * deviation + self.level / self.unit).astype(np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class _Mixture:
    """A posterior over the grid: its points, and how much each counts."""

    parts: tuple[_Part, ...]
    shares: Float[np.ndarray, " part"]

    def mean(self) -> tuple[float, Float[np.ndarray, "basis contrast"]]:
        slopes = np.array([part.mean_slope for part in self.parts])
        coefficients = sum(
            share * (part.of_outcomes - slope * part.of_deviation)
            for part, share, slope in zip(self.parts, self.shares, slopes, strict=True)
        )
        return float(self.shares @ slopes), np.asarray(coefficients)

    def draw(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        counts = rng.multinomial(count, self.shares)
        drawn = [part.draw(number, rng) for part, number in zip(self.parts, counts, strict=True) if number]
        order = rng.permutation(count)
        slopes, coefficients = (np.concatenate(part)[order] for part in zip(*drawn, strict=True))
        return slopes, coefficients


@dataclass(frozen=True, slots=True, eq=False)
class EffectFit:
    """The posterior of effects: the mean that is played, and mixtures to draw from, with phi = 1 and with all of it.

    `doubt` is how much less the second-best action falls behind the best one than the committee says, at least one: of
    many actions the best two are often those whose errors are largest. `strength` is the slope of outcomes on
    out-of-fold deviations, in standard errors.
    """

    mean: Effect
    played: _Mixture
    whole: _Mixture
    knots: int
    size: float
    doubt: float
    strength: float

    @property
    def unit_se(self) -> float:
        """Standard error of the outcome per unit of deviation."""
        return self.mean.unit / max(abs(self.strength), 1e-9)

    def draw(
        self, count: int, *, seed: int, played: bool = False
    ) -> tuple[Float[np.ndarray, " draw"], Float[np.ndarray, "draw basis action"]]:
        """Slopes and coefficients of phi; with phi = 1 if what is `played` is asked for."""
        slopes, coefficients = (self.played if played else self.whole).draw(count, np.random.default_rng([seed, 5]))
        return slopes / self.size, coefficients @ contrasts(len(self.mean.level)).T


def fit_effect(
    x: Float[np.ndarray, "row feature"],
    outcomes: Float[np.ndarray, "row action"],
    deviation: Float[np.ndarray, "row action"],
    folds: Sequence[Int[np.ndarray, " row"]],
    *,
    weights: Float[np.ndarray, " row"] | None = None,
    thinning: float = 1.0,
    unit: float = 1.0,
) -> tuple[EffectFit, list[Effect]]:
    """The posterior of effects, and the mean effect by the rows outside each fold.

    `deviation` is the committee's on each row, by members that did not train on it; rows in none of the folds have
    none, and do not count. Each row stands for `thinning` rows. `unit` is used for policies where the outcomes do not
    follow the deviations.
    """
    if sum(map(len, folds)) < len(outcomes):
        rows, ends = np.concatenate(folds), np.cumsum([0, *map(len, folds)])
        x, outcomes, deviation = x[rows], outcomes[rows], deviation[rows]
        weights = None if weights is None else weights[rows]
        folds = [np.arange(start, end) for start, end in pairwise(ends)]
    n, count = outcomes.shape
    basis_of = contrasts(count)
    weight = np.full(n, thinning) if weights is None else weights * (thinning / np.mean(weights))
    knots, width = _shape(n, x.shape[1])
    size = float(np.sqrt(np.mean((deviation @ basis_of) ** 2, dtype=np.float64))) or 1.0
    of_folds = []
    for fold in folds:
        total = None
        for start in range(0, len(fold), CHUNK):
            rows = fold[start : start + CHUNK]
            phi = effect_basis(x[rows], knots, width)
            part = _Sums.of(phi, outcomes[rows] @ basis_of, deviation[rows] @ basis_of / size, weight[rows])
            total = part if total is None else total + part
        assert total is not None
        of_folds.append(total)
    slope, strength = _slope(*row_products(deviation, outcomes), weight)
    played = slope if strength > 1.0 else max(slope, unit)

    def mean_effect(mixture: _Mixture) -> Effect:
        mean, level = mixture.mean()
        return Effect(mean / size, (level @ basis_of.T)[0], played)

    least = ROUNDING * float(np.mean(outcomes**2)) or 1.0  # a variance of contrasts below it is rounding
    every = _summed(of_folds)
    of_levels = _posterior(every.levels(), x.shape[1], 0, least, constant=True)
    fit = EffectFit(
        mean_effect(of_levels), of_levels, _posterior(every, x.shape[1], knots, least), knots, size,
        _doubt(deviation, outcomes, weight), strength,
    )  # fmt: skip
    others = [_summed([part for other, part in enumerate(of_folds) if other != number]) for number in range(len(folds))]
    return fit, [mean_effect(_posterior(sums.levels(), x.shape[1], 0, least, constant=True)) for sums in others]


def _shape(n: int, features: int) -> tuple[int, int]:
    """Knots of the curves (0 for none), and the number of functions in phi."""
    if features > MOST_LINES:
        return 0, 1
    knots = KNOTS if n >= ROWS_PER_CURVE * features * (KNOTS - 2) else 0
    return knots, 1 + features * (KNOTS - 1 if knots else 1)


def _summed(parts: Sequence[_Sums]) -> _Sums:
    return sum(parts[1:], parts[0])


def _prior_sds(features: int, knots: int, width: int) -> list[np.ndarray]:
    """Prior sds of the functions in phi at the points of the grid; lines and curves of all features share theirs."""
    if width == 1:
        return [np.array([level]) for level in SCALES]
    root = np.sqrt(features)
    bent = CURVE_SCALES if knots else (0.0,)
    grid = []
    for level, line, curve in product(SCALES, SCALES, bent):
        one = [line] + ([curve] * (KNOTS - 2) if knots else [])
        grid.append(np.array([level, *(np.array(one * features) / root)]))
    return grid


def _posterior(sums: _Sums, features: int, knots: int, least: float, *, constant: bool = False) -> _Mixture:
    """The mixture over the grid, points of hardly any weight left out; with a slope of zero, if constants compete."""
    width, found = sums.cc.shape[0], []
    typical = max(float(np.trace(sums.cc)) / (sums.rows * width), least)
    for sds in _prior_sds(features, knots, len(sums.pp)):
        matrix = sums.pp + np.diag(sds**-2.0)
        root = scipy.linalg.cholesky(matrix, lower=True)
        of_outcomes, of_deviation = (scipy.linalg.cho_solve((root, True), part) for part in (sums.pc, sums.pd))
        # What is left of squares and products once B is integrated out
        cc, cd, dd = (
            sums.cc - sums.pc.T @ of_outcomes,
            sums.cd - sums.pc.T @ of_deviation,
            sums.dd - sums.pd.T @ of_deviation,
        )
        log_root = -width * (np.sum(np.log(np.diag(root))) + np.sum(np.log(sds)))
        noise, slope, precision = _noise(cc, cd, dd, sums.rows, typical)
        fit = log_root - 0.5 * sums.rows * np.linalg.slogdet(noise)[1]
        lowered = slope - OPTIMISM / np.sqrt(precision)
        if constant:  # as likely beforehand as all other slopes together
            same = _Part(0.0, 1e-9 / np.sqrt(precision), of_outcomes, of_deviation, root, noise)
            found.append((fit - 0.5 * precision * lowered**2 + np.log(len(SLOPE_SCALES)), same))
        for scale in SLOPE_SCALES:
            prior = 1.0 / (scale**2 * typical)
            total = precision + prior
            mean, sd = precision * lowered / total, 1.0 / np.sqrt(total)
            evidence = fit + 0.5 * np.log(prior / total) - 0.5 * precision * prior / total * lowered**2
            evidence += log_ndtr(mean / sd) + np.log(2.0)
            found.append((evidence, _Part(mean, sd, of_outcomes, of_deviation, root, noise)))
    log = np.array([evidence for evidence, _ in found])
    shares = np.exp(log - log.max())
    kept = np.flatnonzero(shares / shares.sum() > LEAST_SHARE)
    return _Mixture(tuple(found[i][1] for i in kept), shares[kept] / shares[kept].sum())


def _noise(
    cc: np.ndarray, cd: np.ndarray, dd: np.ndarray, rows: float, typical: float
) -> tuple[np.ndarray, float, float]:
    """Covariance of the noise, and the slope with its precision, each given the other."""
    floor = 1e-9 * typical * np.eye(len(cc))
    noise, slope, precision = cc / rows + floor, 0.0, 1e-9
    for _ in range(ROUNDS):
        inverse = np.linalg.inv(noise)
        precision = max(float(np.sum(inverse * dd)), 1e-9)
        slope = float(np.sum(inverse * cd)) / precision
        noise = (cc - slope * (cd + cd.T) + slope**2 * dd) / rows + floor
    return noise, slope, precision


def _slope(products: np.ndarray, squares: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """Slope of outcomes on deviations, and how many standard errors it is; rows may stand for several others."""
    slope, error = slope_with_error(products, squares, weight)
    return slope, slope / max(error / np.sqrt(float(np.mean(weight))), 1e-300)


def _doubt(deviation: np.ndarray, outcomes: np.ndarray, weight: np.ndarray) -> float:
    """Slope of all contrasts over that of the contrast between the two best actions, which is shrunk towards it."""
    if deviation.shape[1] == 2:
        return 1.0
    rows = np.arange(len(deviation))
    second, first = np.argsort(deviation, axis=1)[:, -2:].T
    gap = (deviation[rows, first] - deviation[rows, second]).astype(np.float64)
    slope, _ = _slope(*row_products(deviation, outcomes), weight)
    if slope <= 0.0 or not np.any(gap):
        return SEVERAL
    top, ratio = _slope(gap * (outcomes[rows, first] - outcomes[rows, second]), gap**2, weight)
    precision, prior = (ratio / top) ** 2 if top else 0.0, (TRUST * slope) ** -2.0
    shrunk = (top * precision + slope * prior) / (precision + prior)
    return SEVERAL * float(np.clip(slope / max(shrunk, slope / MOST_DOUBT), 1.0, MOST_DOUBT))
