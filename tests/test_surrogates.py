"""Surrogates against the mathematics of sections 4, 5 and 8, restated here in numpy and float64.

The expected side of every test is written from the paper, never taken from `gbpl`. Actions are columns from 0,
so the paper's baseline K is any column `baseline`, and its delta(x) with two actions is `policy[:, 1]`.
"""

import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.checks import enable_x64

from gbpl import BaselineGap, Binary, FullVector
from gbpl.surrogates import project_simplex

N_ROWS = 5  # one size, because every new shape is a new compilation
PROPERTY = settings(deadline=None, max_examples=50)
FEW = settings(deadline=None, max_examples=20)  # for what runs once per surrogate, or over a whole policy class


@pytest.fixture(autouse=True, scope="module")
def double_precision():
    """float64, so that the tolerances test the formulas and not the rounding; float32 has tests of its own."""
    with enable_x64(True):
        yield


# --- The paper, restated -----------------------------------------------------------------------------------------


def gap_target(outcomes: np.ndarray, baseline: int) -> np.ndarray:
    """Gaps to the baseline, of the other actions."""
    return np.stack([outcomes[..., a] - outcomes[..., baseline] for a in others(outcomes, baseline)], axis=-1)


def gap_scores(policy: np.ndarray, baseline: int) -> np.ndarray:
    """f_a = 2 delta_a - 1, of the other actions."""
    return np.stack([2 * policy[..., a] - 1 for a in others(policy, baseline)], axis=-1)


def others(columns: np.ndarray, baseline: int) -> list[int]:
    return [a for a in range(columns.shape[-1]) if a != baseline]


def squared_loss(target: np.ndarray, scores: np.ndarray, zeta: float) -> np.ndarray:
    """1/2 sum_j (t_j / sqrt(zeta) - sqrt(zeta) s_j)^2, as the paper writes it."""
    return 0.5 * np.sum((target / np.sqrt(zeta) - np.sqrt(zeta) * scores) ** 2, axis=-1)


def welfare(policy: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """V: mean over rows of sum_a delta_a Y(a)."""
    return np.mean(np.sum(policy * outcomes, axis=-1), axis=-1)


def penalized_welfare_binary(policy: np.ndarray, outcomes: np.ndarray, penalty: float) -> np.ndarray:
    return welfare(policy, outcomes) - penalty * np.mean((2 * policy[..., 1] - 1) ** 2, axis=-1)


def penalized_welfare_gap(policy: np.ndarray, outcomes: np.ndarray, penalty: float, baseline: int) -> np.ndarray:
    distance = sum((2 * policy[..., a] - 1) ** 2 for a in others(policy, baseline))
    return welfare(policy, outcomes) - penalty * np.mean(distance, axis=-1)


def penalized_welfare_full(policy: np.ndarray, outcomes: np.ndarray, penalty: float) -> np.ndarray:
    return welfare(policy, outcomes) - penalty * np.mean(np.sum(policy**2, axis=-1), axis=-1)


def huber_loss(target: np.ndarray, scores: np.ndarray, zeta: float, c: float) -> np.ndarray:
    """Huber's function of the residual t - zeta s, over zeta."""
    size = np.abs(target - zeta * scores)
    return np.sum(np.where(size <= c, size**2 / 2, c * size - c**2 / 2), axis=-1) / zeta


def project_by_bisection(point: np.ndarray) -> np.ndarray:
    """max(point - c, 0), the threshold c found by halving: it sums to one somewhere in [max - 1, max]."""
    low, high = point.max() - 1.0, point.max()
    for _ in range(200):
        c = (low + high) / 2
        low, high = (c, high) if np.maximum(point - c, 0).sum() > 1 else (low, c)
    return np.maximum(point - (low + high) / 2, 0)


def minimize_on_simplex(risk: Callable[[np.ndarray], float], n_actions: int) -> np.ndarray:
    """Brute force: a general constrained solver that knows nothing of projections, from several starts."""
    starts = [np.full(n_actions, 1 / n_actions), *(0.8 * np.eye(n_actions) + 0.2 / n_actions)]
    simplex = {"type": "eq", "fun": lambda policy: policy.sum() - 1}
    answers = [
        scipy.optimize.minimize(
            risk, start, method="SLSQP", bounds=[(0, 1)] * n_actions, constraints=[simplex], options={"ftol": 1e-14}
        )
        for start in starts
    ]
    return min(answers, key=lambda answer: answer.fun).x


def simplex_grid(n_actions: int, steps: int) -> np.ndarray:
    counts = itertools.product(range(steps + 1), repeat=n_actions)
    return np.array([c for c in counts if sum(c) == steps]) / steps


def policy_class(n_actions: int, steps: int) -> np.ndarray:
    """A finite class: every grid policy that treats the rows of a group alike (groups: first two rows, the rest)."""
    pairs = np.array(list(itertools.product(simplex_grid(n_actions, steps), repeat=2)))
    return pairs[:, [0, 0, 1, 1, 1]]


class Case(NamedTuple):
    """A surrogate and its paper side: target, score of a policy, penalty / zeta, and dR / -dW."""

    surrogate: Any
    target: Callable[[np.ndarray], np.ndarray]
    scores: Callable[[np.ndarray], np.ndarray]
    penalty_scale: float
    risk_factor: float

    def penalized_welfare(self, policy: np.ndarray, outcomes: np.ndarray, zeta: float) -> np.ndarray:
        distance = np.mean(np.sum(self.scores(policy) ** 2, axis=-1), axis=-1)
        return welfare(policy, outcomes) - self.penalty_scale * zeta * distance


def gap_case(n_actions: int, baseline: int) -> Case:
    surrogate = BaselineGap(n_actions, baseline)
    return Case(surrogate, lambda y: gap_target(y, baseline), lambda p: gap_scores(p, baseline), 1 / 4, 2.0)


CASES = {
    "binary": Case(Binary(), lambda y: y[..., 1:] - y[..., :1], lambda p: 2 * p[..., 1:] - 1, 1 / 4, 2.0),
    "gap-3-0": gap_case(3, 0),
    "gap-3-2": gap_case(3, 2),
    "gap-4-1": gap_case(4, 1),
    "full-3": Case(FullVector(3, centered=False), lambda y: y, lambda p: p, 1 / 2, 1.0),
    "full-4-centered": Case(FullVector(4), lambda y: y - y.mean(-1, keepdims=True), lambda p: p, 1 / 2, 1.0),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())

# --- What hypothesis draws ---------------------------------------------------------------------------------------

zetas = st.floats(1e-3, 10.0)
thresholds = st.floats(0.01, 10.0)
few_thresholds = st.sampled_from([0.03, 1.0, 7.5])  # where a threshold costs a compilation


def numbers(shape: int | tuple[int, ...], low: float = -10.0, high: float = 10.0, width: Any = 64) -> st.SearchStrategy:
    elements = st.floats(low, high, allow_subnormal=False, width=width)
    return arrays(np.float32 if width == 32 else np.float64, shape, elements=elements)


def tables(n_actions: int) -> st.SearchStrategy[np.ndarray]:
    """Outcomes of every action, one row each."""
    return numbers((N_ROWS, n_actions))


@st.composite
def policies(draw: st.DrawFn, n_actions: int, n_policies: int = 3) -> np.ndarray:
    """Points of the simplex, corners and edges among them."""
    weights = draw(numbers((n_policies, N_ROWS, n_actions), 0.0, 1.0))
    weights = weights + (weights.sum(-1, keepdims=True) < 1e-3)
    return weights / weights.sum(-1, keepdims=True)


# Multiples of 1/8 and 1/16: distinct values of a criterion then differ by far more than rounding, so that the
# whole set of optimisers, ties included, can be compared.
lattice_zetas = st.integers(1, 160).map(lambda k: k / 16)


def lattice_tables(n_actions: int) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.int64, (N_ROWS, n_actions), elements=st.integers(-40, 40)).map(lambda y: y / 8)


# --- The implementation, called ----------------------------------------------------------------------------------


def surrogate_risk(surrogate: Any, policy: np.ndarray, outcomes: np.ndarray, zeta: float) -> np.ndarray:
    """Mean full loss of each policy, all by the implementation."""
    scores = surrogate.scores_of_policy(jnp.asarray(policy))
    return np.asarray(surrogate.loss(scores, surrogate.target(jnp.asarray(outcomes)), zeta)).mean(-1)


def population_policy(surrogate: Any, outcome_mean: np.ndarray, zeta: float) -> np.ndarray:
    return np.asarray(surrogate.population_policy(jnp.asarray(outcome_mean), zeta))


def assert_same_optimizers(risk: np.ndarray, value: np.ndarray, risk_factor: float) -> None:
    tolerance = 1e-9 * (1 + np.abs(risk).max())
    minimizers = np.flatnonzero(risk <= risk.min() + risk_factor * tolerance)
    maximizers = np.flatnonzero(value >= value.max() - tolerance)
    np.testing.assert_array_equal(minimizers, maximizers)


def assert_close(actual: Any, expected: Any, rtol: float = 1e-9, atol: float = 1e-8) -> None:
    np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol)


# --- Equivalence theorems ----------------------------------------------------------------------------------------


@PROPERTY
@given(tables(2), policies(2), zetas)
def test_binary_risk_is_a_constant_less_twice_welfare_penalized_at_a_quarter_zeta(outcomes, policy, zeta):
    # Theorem binary-equivalence, as an identity.
    gap = outcomes[:, 1] - outcomes[:, 0]
    constant = np.mean(gap**2) / (2 * zeta) + np.mean(outcomes[:, 0] + outcomes[:, 1])
    expected = constant - 2 * penalized_welfare_binary(policy, outcomes, zeta / 4)
    assert_close(surrogate_risk(Binary(), policy, outcomes, zeta), expected)


@pytest.mark.parametrize("baseline", [0, 1, 2])
@PROPERTY
@given(tables(3), policies(3), zetas)
def test_gap_risk_is_a_constant_less_twice_welfare_penalized_at_a_quarter_zeta(baseline, outcomes, policy, zeta):
    # Theorem K-equivalence-gap, as an identity.
    gaps = gap_target(outcomes, baseline)
    constant = np.mean(np.sum(gaps**2 / (2 * zeta) + gaps, axis=-1) + 2 * outcomes[:, baseline])
    expected = constant - 2 * penalized_welfare_gap(policy, outcomes, zeta / 4, baseline)
    assert_close(surrogate_risk(BaselineGap(3, baseline), policy, outcomes, zeta), expected)


@PROPERTY
@given(tables(3), policies(3), zetas)
def test_full_vector_risk_is_a_constant_less_welfare_penalized_at_half_zeta(outcomes, policy, zeta):
    # Theorem K-equivalence-full, as an identity.
    constant = np.mean(np.sum(outcomes**2, axis=-1)) / (2 * zeta)
    expected = constant - penalized_welfare_full(policy, outcomes, zeta / 2)
    assert_close(surrogate_risk(FullVector(3, centered=False), policy, outcomes, zeta), expected)


@FEW
@given(lattice_tables(2), lattice_zetas)
def test_binary_minimizers_are_the_maximizers_of_penalized_welfare(outcomes, zeta):
    # Theorem binary-equivalence, over an enumerated policy class.
    policy = policy_class(2, steps=10)
    value = penalized_welfare_binary(policy, outcomes, zeta / 4)
    assert_same_optimizers(surrogate_risk(Binary(), policy, outcomes, zeta), value, risk_factor=2)


@pytest.mark.parametrize("baseline", [0, 1, 2])
@FEW
@given(lattice_tables(3), lattice_zetas)
def test_gap_minimizers_are_the_maximizers_of_penalized_welfare(baseline, outcomes, zeta):
    # Theorem K-equivalence-gap, over an enumerated policy class.
    policy = policy_class(3, steps=5)
    value = penalized_welfare_gap(policy, outcomes, zeta / 4, baseline)
    assert_same_optimizers(surrogate_risk(BaselineGap(3, baseline), policy, outcomes, zeta), value, risk_factor=2)


@pytest.mark.parametrize("centered", [False, True])
@FEW
@given(lattice_tables(3), lattice_zetas)
def test_full_vector_minimizers_are_the_maximizers_of_penalized_welfare(centered, outcomes, zeta):
    # Theorem K-equivalence-full, over an enumerated policy class.
    policy = policy_class(3, steps=5)
    value = penalized_welfare_full(policy, outcomes, zeta / 2)
    assert_same_optimizers(surrogate_risk(FullVector(3, centered), policy, outcomes, zeta), value, risk_factor=1)


@every_case
def test_constants_are_those_of_the_theorems(case):
    # Equivalence theorems (penalty) and welfare-risk corollaries (factor): other modules read these two numbers.
    assert case.surrogate.penalty_scale == case.penalty_scale
    assert case.surrogate.welfare_factor == 1 / case.risk_factor


# --- Loss, decomposition, pseudo-likelihood ----------------------------------------------------------------------


@every_case
@FEW
@given(st.data(), zetas)
def test_target_scores_and_loss_are_the_papers(case, data, zeta):
    # Equations loss-binary, surrogate-K-gap and loss-K-full.
    outcomes = data.draw(tables(case.surrogate.n_actions))
    policy = data.draw(policies(case.surrogate.n_actions))
    target = case.surrogate.target(jnp.asarray(outcomes))
    scores = case.surrogate.scores_of_policy(jnp.asarray(policy))
    assert_close(target, case.target(outcomes))
    assert_close(scores, case.scores(policy))
    expected = squared_loss(case.target(outcomes), case.scores(policy), zeta)
    assert_close(case.surrogate.loss(scores, target, zeta), expected)


@every_case
def test_numpy_tables_are_taken_like_jax_arrays(case):
    # A table comes from a user. Its targets and scores stay numpy's, as tables of any number of rows come and jax would
    # compile for each; whatever is computed from them is an array of jax.
    surrogate = case.surrogate
    table = np.random.default_rng(0).dirichlet(np.ones(surrogate.n_actions), size=N_ROWS)
    target, scores = surrogate.target(table), surrogate.scores_of_policy(table)
    answers = {
        "target": (target, case.target(table)),
        "scores_of_policy": (scores, case.scores(table)),
        "policy": (surrogate.policy(scores), table),
        "loss": (surrogate.loss(scores, target, 0.1), squared_loss(target, scores, 0.1)),
        "population_policy": (surrogate.population_policy(table, 1e-9), np.eye(len(table[0]))[table.argmax(-1)]),
    }
    for name, (actual, expected) in answers.items():
        kind = np.ndarray if name in ("target", "scores_of_policy") else jax.Array
        assert isinstance(actual, kind), name
        assert_close(actual, expected, atol=1e-6)


@every_case
@FEW
@given(st.data(), zetas)
def test_full_loss_is_a_term_without_the_score_plus_the_reduced_loss(case, data, zeta):
    # Proposition gbplnet-decomposition, for any score, of a policy or not.
    target = case.target(data.draw(tables(case.surrogate.n_actions)))
    scores = data.draw(numbers(target.shape, -1.0, 1.0))
    reduced = -np.sum(target * scores, axis=-1) + zeta / 2 * np.sum(scores**2, axis=-1)
    assert_close(case.surrogate.reduced_loss(jnp.asarray(scores), jnp.asarray(target), zeta), reduced)
    whole = np.sum(target**2, axis=-1) / (2 * zeta) + reduced
    assert_close(case.surrogate.loss(jnp.asarray(scores), jnp.asarray(target), zeta), whole)


@pytest.mark.parametrize("name", ["binary", "full-3", "full-4-centered"])
@PROPERTY
@given(st.data(), zetas, st.floats(0.01, 10.0))
def test_exponential_weight_is_a_gaussian_pseudo_likelihood(name, data, zeta, eta):
    # Equation gaussian-pseudolikelihood: exp(-eta l) is N(u; zeta f, zeta / eta) up to a factor without f.
    case = CASES[name]
    outcomes = data.draw(tables(case.surrogate.n_actions))
    policy = data.draw(policies(case.surrogate.n_actions))
    target, scores = case.target(outcomes), case.scores(policy)
    log_density = scipy.stats.norm.logpdf(target, loc=zeta * scores, scale=np.sqrt(zeta / eta)).sum(-1)
    loss = case.surrogate.loss(
        case.surrogate.scores_of_policy(jnp.asarray(policy)), case.surrogate.target(jnp.asarray(outcomes)), zeta
    )
    log_ratio = -eta * np.asarray(loss) - log_density
    normaliser = target.shape[-1] / 2 * np.log(2 * np.pi * zeta / eta)
    # The two logarithms can reach 1e6; the tolerance is their rounding.
    assert_close(log_ratio, np.full_like(log_ratio, normaliser), atol=1e-8 + 1e-13 * np.abs(log_density).max())


@every_case
@FEW
@given(st.data(), zetas)
def test_row_loss_is_the_reduced_loss_of_the_squashed_output(case, data, zeta):
    # Appendix GBPLNet: tanh for two actions, softmax for K.
    surrogate = case.surrogate
    target = case.target(data.draw(tables(surrogate.n_actions)))
    raw = data.draw(numbers((N_ROWS, surrogate.n_raw)))
    softmax = np.exp(raw) / np.exp(raw).sum(-1, keepdims=True)
    scores = np.tanh(raw) if surrogate.n_raw == 1 else case.scores(softmax)
    expected = squared_loss(target, scores, zeta) - squared_loss(target, 0 * scores, zeta)
    assert_close(surrogate.row_loss(jnp.asarray(raw), jnp.asarray(target), zeta), expected, atol=1e-7)


@every_case
@pytest.mark.parametrize("huber", [float("inf"), 1.0])
def test_one_zeta_per_member_under_vmap_and_jit(case, huber):
    # A stack maps the loss over members, each with its own zeta; zeta is then traced.
    surrogate = dataclasses.replace(case.surrogate, huber=huber)
    rng = np.random.default_rng(0)
    target = case.target(rng.normal(size=(N_ROWS, surrogate.n_actions)))
    scores = rng.uniform(-1, 1, size=target.shape)
    grid = np.array([0.01, 0.1, 2.0])
    stacked = jax.jit(jax.vmap(surrogate.reduced_loss, in_axes=(None, None, 0)))(scores, target, grid)
    for row, zeta in zip(stacked, grid, strict=True):
        expected = huber_loss(target, scores, zeta, huber) if np.isfinite(huber) else squared_loss(target, scores, zeta)
        at_zero = huber_loss(target, 0 * scores, zeta, huber) if np.isfinite(huber) else squared_loss(target, 0, zeta)
        assert_close(row, expected - at_zero)


# --- Shift invariance, centering and the choice of baseline ------------------------------------------------------


@PROPERTY
@given(tables(3), policies(3), numbers((N_ROWS, 1)), zetas)
def test_full_vector_loss_moves_by_a_constant_when_a_row_shifts(outcomes, policy, shift, zeta):
    # Section 5, shift invariance: Y + c adds sum_a (2 c Y_a + c^2) / (2 zeta) - c, whatever the policy.
    surrogate = FullVector(3, centered=False)
    moved = surrogate_risk(surrogate, policy, outcomes + shift, zeta)
    constant = np.mean(np.sum(2 * shift * outcomes + shift**2, axis=-1) / (2 * zeta) - shift[:, 0])
    # The constant reaches 1e5 at small zeta, so the tolerance is that of its rounding.
    assert_close(moved - surrogate_risk(surrogate, policy, outcomes, zeta), np.full(3, constant), atol=1e-7)


@FEW
@given(lattice_tables(3), numbers((N_ROWS, 1)), lattice_zetas)
def test_centering_keeps_the_minimizer(outcomes, shift, zeta):
    # Section 5, centering: the centered target forgets a row's shift and the minimisers stay.
    centered = FullVector(3, centered=True)
    assert_close(centered.target(jnp.asarray(outcomes + shift)), outcomes - outcomes.mean(-1, keepdims=True))
    policy = policy_class(3, steps=5)
    risk = surrogate_risk(FullVector(3, centered=False), policy, outcomes, zeta)
    assert_same_optimizers(surrogate_risk(centered, policy, outcomes, zeta), -risk, risk_factor=1)


def test_gap_minimizer_depends_on_the_baseline_unless_zeta_is_small():
    # Section 5, baseline dependence: the penalty leaves the baseline's own probability free.
    outcomes = np.array([[0.0, 0.3, 0.4]])
    grid = simplex_grid(3, steps=40)[:, None, :]

    def minimizer(baseline: int, zeta: float) -> np.ndarray:
        return grid[np.argmin(surrogate_risk(BaselineGap(3, baseline), grid, outcomes, zeta)), 0]

    # By hand at zeta = 2, delta_a = max(0, (gap_a / zeta + 1) / 2 - c) for a other than the baseline. Baseline 0:
    # (0.575, 0.6) less c = 0.0875. Baseline 2: (0.4, 0.475), which fits in the simplex with c = 0.
    np.testing.assert_allclose(minimizer(0, 2.0), [0.0, 0.4875, 0.5125], atol=1 / 40)
    np.testing.assert_allclose(minimizer(2, 2.0), [0.4, 0.475, 0.125], atol=1 / 40)
    for baseline in range(3):
        np.testing.assert_array_equal(minimizer(baseline, 0.01), [0.0, 0.0, 1.0])


# --- Population minimisers ---------------------------------------------------------------------------------------


@PROPERTY
@given(tables(2), zetas)
def test_binary_population_score_is_the_clipped_mean_gap(outcomes, zeta):
    # Section 8, population minimiser, binary: f = clip(m / zeta, -1, 1), of the sign of m.
    mean = outcomes[:, 1] - outcomes[:, 0]
    score = np.maximum(-1, np.minimum(1, mean / zeta))
    policy = population_policy(Binary(), outcomes, zeta)
    assert_close(policy, np.stack([(1 - score) / 2, (1 + score) / 2], axis=-1))
    clear = np.abs(mean) > 1e-6  # nearer to zero the rounding of 1 + f hides the sign
    np.testing.assert_array_equal((policy[:, 1] > policy[:, 0])[clear], (mean > 0)[clear])


@PROPERTY
@given(tables(4), zetas)
def test_full_vector_population_policy_is_the_projection_of_the_mean_over_zeta(outcomes, zeta):
    # Section 8, population minimiser, K actions; centering may not change it.
    expected = [project_by_bisection(row / zeta) for row in outcomes]
    assert_close(population_policy(FullVector(4), outcomes, zeta), expected)
    assert_close(population_policy(FullVector(4, centered=False), outcomes, zeta), expected)


@every_case
@pytest.mark.parametrize("zeta", [0.05, 0.5, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(3))
def test_population_policy_is_what_a_general_solver_finds(case, zeta, seed):
    # Section 8, population minimisers (and the gap's, which the paper leaves out), from draws at one x.
    n_actions = case.surrogate.n_actions
    draws = np.random.default_rng(seed).normal(size=(20, n_actions)) + np.linspace(0, 1, n_actions)
    found = minimize_on_simplex(
        lambda policy: np.mean(squared_loss(case.target(draws), case.scores(policy), zeta)), n_actions
    )
    policy = population_policy(case.surrogate, draws.mean(0, keepdims=True), zeta)[0]
    np.testing.assert_allclose(policy, found, atol=2e-5)


def gap_minimizer(gaps: np.ndarray, zeta: float) -> np.ndarray:
    """Section 5.1, baseline first: of least sum_a (gap_a / sqrt(zeta) - sqrt(zeta) (2 delta_a - 1))^2 on Delta_K."""
    root = np.sqrt(zeta)
    return minimize_on_simplex(lambda d: np.sum((gaps / root - root * (2 * d[1:] - 1)) ** 2), len(gaps) + 1)


@pytest.mark.parametrize("n_actions", [3, 4, 5])
def test_the_rule_of_the_baseline_gap_is_the_best_action_of_the_population(n_actions):
    # Section 5.1: welfare is E[Y(K) + sum_a delta_a gap_a], so the best action has the largest gap if that is above 0
    # and is the baseline otherwise. The score 2 delta_a - 1 of the minimiser is gap_a / zeta as long as the simplex
    # asks nothing of it, that is while the baseline has some probability. Where it has none, the order of the others
    # is known, and with more than three actions the baseline may be better by (1 - 2 / (K - 1)) zeta, at most.
    rng, seen = np.random.default_rng(n_actions), {True: 0, False: 0}
    for _ in range(40):
        gaps, zeta = rng.normal(rng.choice([-1, 0]), 0.7, size=n_actions - 1), rng.choice([0.3, 1.0, 3.0])
        policy = gap_minimizer(gaps, zeta)
        means = np.append(0.0, gaps)
        chosen = BaselineGap(n_actions).advantage(policy[None])[0].argmax()
        if 1e-4 < policy[0] < 0.06 or np.diff(np.sort(means))[-1] < 1e-3:
            continue
        slack = bool(policy[0] > 0.05)
        seen[slack] += 1
        if slack:
            np.testing.assert_allclose(2 * policy[1:] - 1, np.maximum(gaps / zeta, -1), atol=1e-4)
        if slack or n_actions == 3:
            assert chosen == means.argmax()
        else:
            assert chosen == 1 + gaps.argmax()
            assert means.max() - means[chosen] <= (1 - 2 / (n_actions - 1)) * zeta
    assert min(seen.values()) > 5


def test_four_actions_and_a_large_zeta_hide_whether_the_baseline_is_best():
    # Section 5.1: two populations with one minimiser, the baseline best in the first and worst in the second.
    for gap in (-0.2, 0.2):
        np.testing.assert_allclose(gap_minimizer(np.full(3, gap), zeta=1.0), [0, 1 / 3, 1 / 3, 1 / 3], atol=1e-4)


def test_the_most_probable_action_of_the_gap_policy_need_not_be_the_best():
    # Section 5.1: the penalty draws delta_a to 1/2 for all but the baseline, which is the best here by 0.2.
    policy = gap_minimizer(np.array([-0.2, -0.2]), zeta=1.0)
    np.testing.assert_allclose(policy, [0.2, 0.4, 0.4], atol=1e-4)
    assert BaselineGap(3).advantage(policy[None])[0].argmax() == 0
    assert BaselineGap(3).reordered(policy[None]).all()


@every_case
@FEW
@given(st.data(), zetas)
def test_population_policy_has_the_least_risk(case, data, zeta):
    # Section 8, population minimisers: no policy does better on the rows of one x.
    outcomes = data.draw(tables(case.surrogate.n_actions))
    best = population_policy(case.surrogate, outcomes.mean(0, keepdims=True), zeta)
    assert np.all(best >= -1e-12)
    assert_close(best.sum(-1), 1.0)
    grid = np.concatenate([best, simplex_grid(case.surrogate.n_actions, steps=6)])[:, None, :]
    risk = np.mean(squared_loss(case.target(outcomes), case.scores(grid), zeta), axis=-1)
    assert risk[0] <= risk.min() + 1e-9 * (1 + risk.max())


@PROPERTY
@given(numbers((N_ROWS, 5), -30.0, 30.0))
def test_project_simplex_agrees_with_bisection_and_keeps_the_order(points):
    # Appendix, population minimisers: max(points - c, 0) with one c, so the order of coordinates stays.
    projected = np.asarray(project_simplex(jnp.asarray(points)))
    assert_close(projected, [project_by_bisection(row) for row in points])
    assert_close(projected.sum(-1), 1.0)
    rises = points[:, :, None] > points[:, None, :]
    falls = projected[:, :, None] < projected[:, None, :]
    assert not np.any(rises & falls)
    assert np.all(np.take_along_axis(projected, points.argmax(-1)[:, None], axis=-1)[:, 0] == projected.max(-1))


@FEW
@given(policies(4))
def test_project_simplex_keeps_points_of_the_simplex(policy):
    # A projection is the identity on its set; leading axes pass through.
    assert_close(project_simplex(jnp.asarray(policy)), policy)


# --- Welfare corollaries -----------------------------------------------------------------------------------------


@every_case
@FEW
@given(st.data(), zetas)
def test_welfare_difference_is_the_factor_times_the_risk_difference(case, data, zeta):
    # Corollaries welfare-risk-binary and welfare-risk-K (and the gap's): W1 - W2 = factor (R2 - R1).
    outcomes = data.draw(tables(case.surrogate.n_actions))
    policy = data.draw(policies(case.surrogate.n_actions, n_policies=2))
    first, second = case.penalized_welfare(policy, outcomes, zeta)
    risk_first, risk_second = surrogate_risk(case.surrogate, policy, outcomes, zeta)
    assert_close(first - second, case.surrogate.welfare_factor * (risk_second - risk_first))


@PROPERTY
@given(tables(2), policies(2), zetas)
def test_binary_welfare_is_within_the_penalty_of_penalized_welfare(outcomes, policy, zeta):
    # Corollary welfare-unregularized: W <= V <= W + lambda, lambda = zeta / 4.
    scores = np.asarray(Binary().scores_of_policy(jnp.asarray(policy)))[..., 0]
    penalized = welfare(policy, outcomes) - Binary.penalty_scale * zeta * np.mean(scores**2, axis=-1)
    assert_close(penalized, penalized_welfare_binary(policy, outcomes, zeta / 4))
    assert np.all(penalized <= welfare(policy, outcomes) + 1e-12)
    assert np.all(welfare(policy, outcomes) <= penalized + zeta / 4 + 1e-12)


@FEW
@given(tables(2), zetas)
def test_binary_regret_is_within_half_the_excess_risk_and_the_penalty(outcomes, zeta):
    # Corollaries welfare-unregularized and welfare-risk-binary together, over an enumerated class.
    policy = policy_class(2, steps=10)
    risk = surrogate_risk(Binary(), policy, outcomes, zeta)
    regret = welfare(policy, outcomes).max() - welfare(policy, outcomes)
    assert np.all(regret <= (risk - risk.min()) / 2 + zeta / 4 + 1e-8)


# --- The limit zeta -> 0 -----------------------------------------------------------------------------------------


@every_case
@FEW
@given(st.data(), st.floats(1e-6, 1.0))
def test_population_policy_is_the_best_action_once_zeta_is_below_half_the_lead(case, data, fraction):
    # Theorem binary-equivalence, limit as zeta -> 0: reached at a finite zeta, half the lead of the best action.
    n_actions = case.surrogate.n_actions
    outcomes = data.draw(tables(n_actions))
    best = data.draw(arrays(np.int64, N_ROWS, elements=st.integers(0, n_actions - 1)))
    lead = data.draw(st.floats(1e-3, 5.0))
    outcomes[np.arange(N_ROWS), best] = outcomes.max(-1) + lead
    policy = population_policy(case.surrogate, outcomes, fraction * lead / 2)
    # Dividing by the smallest zetas leaves points near 1e10, known to about 1e-6.
    np.testing.assert_allclose(policy, np.eye(n_actions)[best], atol=1e-4)


@every_case
@FEW
@given(st.data(), st.floats(1e-8, 1e-3))
def test_reduced_loss_tends_to_minus_target_times_score(case, data, zeta):
    # Section 4: as zeta -> 0 the penalty vanishes and the reduced loss is welfare with its sign turned.
    target = case.target(data.draw(tables(case.surrogate.n_actions)))
    scores = data.draw(numbers(target.shape, -1.0, 1.0))
    reduced = np.asarray(case.surrogate.reduced_loss(jnp.asarray(scores), jnp.asarray(target), zeta))
    assert np.all(np.abs(reduced + np.sum(target * scores, axis=-1)) <= zeta / 2 * target.shape[-1] + 1e-12)


@pytest.mark.parametrize("surrogate", [FullVector(3), BaselineGap(3, 0)], ids=["full", "gap"])
@pytest.mark.parametrize("zeta", [1e-3, 1e-4])
def test_float32_population_policy_is_the_best_action_for_outcomes_in_large_units(surrogate, zeta):
    # The same limit in the precision users have: outcomes of 1e5 (an income) at zeta = 1e-3.
    with enable_x64(False):
        policy = population_policy(surrogate, np.array([[1e5, 2e5, 3e5]], dtype=np.float32), zeta)
    np.testing.assert_allclose(policy, [[0.0, 0.0, 1.0]], atol=1e-6)


# --- Two actions, three ways -------------------------------------------------------------------------------------


@PROPERTY
@given(tables(2), policies(2), zetas)
def test_at_two_actions_the_full_vector_loss_is_half_the_binary_loss_plus_a_constant(outcomes, policy, zeta):
    # Sections 4 and 5 at K = 2: the constant is zeta / 4 centered, and (Y0 + Y1 - zeta)^2 / (4 zeta) if not.
    half = surrogate_risk(Binary(), policy, outcomes, zeta) / 2
    assert_close(surrogate_risk(FullVector(2), policy, outcomes, zeta), half + zeta / 4)
    constant = np.mean((outcomes.sum(-1) - zeta) ** 2) / (4 * zeta)
    assert_close(surrogate_risk(FullVector(2, centered=False), policy, outcomes, zeta), half + constant)


@pytest.mark.parametrize("baseline", [0, 1])
@PROPERTY
@given(tables(2), policies(2), zetas)
def test_at_two_actions_the_gap_loss_is_the_binary_loss_for_either_baseline(baseline, outcomes, policy, zeta):
    # Section 5 at K = 2: the other baseline turns the sign of gap and score alike.
    gap = BaselineGap(2, baseline)
    assert_close(surrogate_risk(gap, policy, outcomes, zeta), surrogate_risk(Binary(), policy, outcomes, zeta))
    assert_close(population_policy(gap, outcomes, zeta), population_policy(Binary(), outcomes, zeta))


# --- The pairwise alternative of section 5.3 -----------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3, 4])
@PROPERTY
@given(st.data(), zetas)
def test_the_average_over_baselines_is_twice_the_full_vector_loss_at_another_zeta(count, data, zeta):
    # Section 5.3: sum over all pairs of (Y(a) - Y(b)) against f_a = 2 delta_a - 1, over K. Written out, the squares of
    # delta have the weight (K - 1) / K * zeta / 2 * 4, which is twice that of the full vector at 2 zeta (K - 1) / K.
    outcomes, policy = data.draw(tables(count)), data.draw(policies(count))
    pairs = [(a, b) for b in range(count) for a in range(count) if a != b]
    gaps = np.stack([outcomes[..., a] - outcomes[..., b] for a, b in pairs], axis=-1)
    scores = np.stack([2 * policy[..., a] - 1 for a, _ in pairs], axis=-1)
    average = squared_loss(gaps, scores, zeta).mean(-1) / count
    assert_close(
        sum(surrogate_risk(BaselineGap(count, b), policy, outcomes, zeta) for b in range(count)) / count, average
    )
    full = surrogate_risk(FullVector(count), policy, outcomes, 2 * zeta * (count - 1) / count)
    assert_close(average - average[0], 2 * (full - full[0]), rtol=1e-8, atol=1e-7)


# --- Scores and policies -----------------------------------------------------------------------------------------


@every_case
@FEW
@given(st.data())
def test_policy_and_scores_invert_each_other(case, data):
    # The induced class of section 4 and 5: f = 2 delta - 1 (binary, gap) or delta itself (full vector).
    policy = jnp.asarray(data.draw(policies(case.surrogate.n_actions)))
    scores = case.surrogate.scores_of_policy(policy)
    assert_close(case.surrogate.policy(scores), policy, atol=1e-12)
    assert_close(case.surrogate.scores_of_policy(case.surrogate.policy(scores)), scores, atol=1e-12)


@every_case
@pytest.mark.parametrize("double", [True, False], ids=["float64", "float32"])
@FEW
@given(st.data())
def test_raw_outputs_give_a_point_of_the_simplex(case, double, data):
    # Appendix GBPLNet: tanh for two actions and softmax for K; at K = 2 that is the logistic function of 2 raw.
    raw = data.draw(numbers((N_ROWS, case.surrogate.n_raw), -50.0, 50.0, width=32)).astype(np.float64)
    logits = np.concatenate([-raw, raw], axis=-1) if case.surrogate.n_raw == 1 else raw
    softmax = np.exp(logits - logits.max(-1, keepdims=True))
    expected = softmax / softmax.sum(-1, keepdims=True)
    with enable_x64(double):
        policy = np.asarray(case.surrogate.policy(case.surrogate.scores(jnp.asarray(raw))))
    tolerance = 1e-12 if double else 1e-6
    assert_close(policy, expected, atol=tolerance)
    assert_close(policy.sum(-1), 1.0, atol=tolerance)
    assert policy.min() >= -tolerance  # the gap's baseline is 1 less the others: zero up to rounding


@every_case
def test_raw_zero_is_the_uniform_policy(case):
    # Linear models start there.
    n_actions = case.surrogate.n_actions
    raw = jnp.zeros((1, case.surrogate.n_raw))
    assert_close(case.surrogate.policy(case.surrogate.scores(raw)), np.full((1, n_actions), 1 / n_actions))


# --- The robust variant ------------------------------------------------------------------------------------------


def robust(name: str, c: float) -> Any:
    return dataclasses.replace(CASES[name].surrogate, huber=c)


robust_names = pytest.mark.parametrize("name", ["binary", "gap-3-0", "full-4-centered"])


def scores_and_targets(name: str, size: float) -> st.SearchStrategy[tuple[np.ndarray, np.ndarray]]:
    """Scores in [-1, 1] and targets up to `size`, of the surrogate's shape."""
    shape = {"binary": (N_ROWS, 1), "gap-3-0": (N_ROWS, 2), "full-4-centered": (N_ROWS, 4)}[name]
    return st.tuples(numbers(shape, -1.0, 1.0), numbers(shape, -size, size))


@functools.cache
def derivatives(surrogate: Any, which: str) -> Callable:
    """First and second derivative in each score: the loss is a sum over scores, so its Hessian is diagonal."""

    def both(scores: jax.Array, target: jax.Array, zeta: jax.Array) -> tuple[jax.Array, jax.Array]:
        slope = jax.grad(lambda s: jnp.sum(getattr(surrogate, which)(s, target, zeta)))
        return jax.jvp(slope, (scores,), (jnp.ones_like(scores),))

    return jax.jit(both)


@robust_names
@FEW
@given(st.data(), zetas)
def test_robust_loss_with_a_huge_threshold_is_the_squared_loss(name, data, zeta):
    # Huber's function is the square inside its threshold.
    scores, target = data.draw(scores_and_targets(name, 20.0))
    surrogate = robust(name, 1e9)
    expected = squared_loss(target, scores, zeta)
    assert_close(surrogate.loss(jnp.asarray(scores), jnp.asarray(target), zeta), expected)
    reduced = np.sum(scores * (zeta / 2 * scores - target), axis=-1)
    assert_close(surrogate.reduced_loss(jnp.asarray(scores), jnp.asarray(target), zeta), reduced)


@robust_names
@FEW
@given(st.data(), zetas, thresholds)
def test_robust_loss_is_hubers_and_the_reduced_loss_is_its_rise_from_score_zero(name, data, zeta, c):
    # Decomposition with Huber's function in the place of the square.
    scores, target = data.draw(scores_and_targets(name, 20.0))
    surrogate = robust(name, c)
    expected = huber_loss(target, scores, zeta, c)
    assert_close(surrogate.loss(jnp.asarray(scores), jnp.asarray(target), zeta), expected)
    rise = expected - huber_loss(target, np.zeros_like(scores), zeta, c)
    assert_close(surrogate.reduced_loss(jnp.asarray(scores), jnp.asarray(target), zeta), rise)


@robust_names
@pytest.mark.parametrize("which", ["loss", "reduced_loss"])
@FEW
@given(st.data(), zetas, few_thresholds)
def test_robust_slope_is_the_clipped_residual_so_a_row_moves_the_fit_by_at_most_the_threshold(
    name, which, data, zeta, c
):
    # Bounded influence: d loss / d score = -clip(t - zeta s, -c, c), at score 0 too, however extreme the outcome.
    scores, target = data.draw(scores_and_targets(name, 1e6))
    for s in (scores, np.zeros_like(scores)):
        slope, _ = derivatives(robust(name, c), which)(s, target, zeta)
        assert_close(slope, -np.clip(target - zeta * s, -c, c))
        assert np.max(np.abs(slope)) <= c * (1 + 1e-12)


@robust_names
@pytest.mark.parametrize("which", ["loss", "reduced_loss"])
@FEW
@given(st.data(), zetas, few_thresholds)
def test_robust_curvature_is_zeta_inside_the_threshold_and_none_beyond(name, which, data, zeta, c):
    # Second derivative of Huber's function: Laplace and Fisher matching read it.
    scores, target = data.draw(scores_and_targets(name, 5.0))
    for s in (scores, np.zeros_like(scores)):
        size = np.abs(target - zeta * s)
        smooth = np.abs(size - c) > 1e-9  # at the threshold itself there is no second derivative
        _, curvature = derivatives(robust(name, c), which)(s, target, zeta)
        assert_close(np.asarray(curvature)[smooth], np.where(size < c, zeta, 0.0)[smooth])


@every_case
@FEW
@given(st.data(), zetas)
def test_squared_loss_has_slope_minus_residual_and_curvature_zeta(case, data, zeta):
    # The same two derivatives without a threshold.
    target = case.target(data.draw(tables(case.surrogate.n_actions)))
    scores = data.draw(numbers(target.shape, -1.0, 1.0))
    for which in ("loss", "reduced_loss"):
        slope, curvature = derivatives(case.surrogate, which)(scores, target, zeta)
        assert_close(slope, zeta * scores - target)
        assert_close(curvature, np.full_like(scores, zeta))


@pytest.mark.parametrize("c", [float("inf"), 0.5, 8.0])
@PROPERTY
@given(numbers((N_ROWS, 3), -1.0, 1.0, width=32), numbers((N_ROWS, 3), -100.0, 100.0, width=32))
def test_reduced_losses_keep_their_digits_in_float32(c, scores, target):
    # Taken as a difference of full losses, at zeta = 1e-3 a target of 100 would leave an error of about 0.1.
    zeta = float(np.float32(1e-3))
    with enable_x64(False):
        reduced = FullVector(3, huber=c).reduced_loss(jnp.asarray(scores), jnp.asarray(target), zeta)
    assert reduced.dtype == jnp.float32
    s, t = scores.astype(np.float64), target.astype(np.float64)
    if np.isfinite(c):
        expected = huber_loss(t, s, zeta, c) - huber_loss(t, 0 * s, zeta, c)
    else:
        expected = np.sum(s * (zeta / 2 * s - t), axis=-1)
    scale = np.sum(np.abs(s) * (np.minimum(np.abs(t), c) + zeta * np.abs(s)), axis=-1)
    assert np.all(np.abs(np.asarray(reduced) - expected) <= 1e-6 * scale + 1e-8)


def test_robust_loss_changes_the_target():
    # One large gap among many small ones of the other sign: the mean says treat, Huber's centre says do not.
    gaps = np.array([-0.5] * 9 + [20.0])
    outcomes = np.stack([np.zeros(10), gaps], axis=-1)
    score = np.linspace(-1, 1, 201)
    policy = np.stack([(1 - score) / 2, (1 + score) / 2], axis=-1)[:, None, :]
    zeta, c = 1.0, 1.0
    squared = score[np.argmin(surrogate_risk(Binary(), policy, outcomes, zeta))]
    hubers = score[np.argmin(surrogate_risk(Binary(huber=c), policy, outcomes, zeta))]
    assert squared == 1.0  # clip(1.55 / zeta)
    # The clipped residuals sum to zero: 9 (0.5 + f) = c, so f = -7 / 18.
    np.testing.assert_allclose(hubers, -7 / 18, atol=0.01)


# --- Errors and values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("huber", [0.0, -1.5, float("nan")])
@pytest.mark.parametrize("kind", [Binary, BaselineGap, FullVector])
def test_an_invalid_threshold_is_named(kind, huber):
    with pytest.raises(ValueError, match=f"huber.*got {huber}"):
        kind(huber=huber)


@pytest.mark.parametrize("baseline", [-1, 3, 7])
def test_an_invalid_baseline_is_named(baseline):
    with pytest.raises(ValueError, match=f"0 to 2, got {baseline}"):
        BaselineGap(3, baseline)


@every_case
def test_surrogates_are_values(case):
    # Equal and hashable, so that a compiled fit can be kept by surrogate.
    copy = dataclasses.replace(case.surrogate)
    assert copy == case.surrogate
    assert hash(copy) == hash(case.surrogate)
    assert copy != dataclasses.replace(case.surrogate, huber=1.0)
    with pytest.raises(AttributeError):
        copy.huber = 2.0


@pytest.mark.parametrize(
    "surrogate", [Binary(), BaselineGap(4, baseline=2), FullVector(4), FullVector(3, centered=False)]
)
def test_outcomes_are_those_whose_target_is_zeta_times_the_scores(surrogate) -> None:
    policy = np.random.default_rng(0).dirichlet(np.ones(surrogate.n_actions), size=5)
    scores = np.asarray(surrogate.scores_of_policy(policy), np.float64)
    wanted = 3.0 * scores
    if isinstance(surrogate, FullVector) and surrogate.centered:  # the target is centred, the scores sum to one
        wanted = wanted - wanted.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(surrogate.target(surrogate.outcomes(scores, 3.0)), wanted, atol=1e-6)
