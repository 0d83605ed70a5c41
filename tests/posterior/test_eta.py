"""The loss scale from the data, restated in numpy: derivatives by hand, plain loops, numpy.linalg (section 4.5).

With f the scores of a member, w its weights, J = df/dw and r = t - zeta f the residuals of its rows, the loss has
gradient -J'r and curvature H = zeta J'J + I / (prior_sd^2 eta): a change e of the targets moves w by H^{-1} J'e, and
welfare, of gradient g, by g'H^{-1}J'e. A committee's welfare moves by the sum of what its members' do.
"""

import pickle
import re
from dataclasses import replace
from functools import cache

import jax
import numpy as np
import pytest
import scipy.stats
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from support.calls import record_calls
from support.checks import nearest_on_simplex
from support.learned import held_out_value

import gbpl.path.path
import gbpl.posterior.influence
from gbpl import MLP, BaselineGap, Binary, FitConfig, FullVector, GBPLNet, Linear, PerAction, PosteriorError, welfare
from gbpl.estimators.training import CALIBRATIONS, Training
from gbpl.posterior.curvature import block_rows
from gbpl.posterior.eta import EtaChoice, _sequential_loss, information_matching, refit_matching, safe_bayes
from gbpl.posterior.problem import Problem
from gbpl.posterior.refits import Refits, _deal, _welfares, _within, refit

N = 240
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
NOISE = RNG.normal(size=(N, 3))
SD = 0.7  # of the noise of the gap between two actions, of each outcome where there are three
GAP = 0.3 * X[:, 0] - 0.2 * X[:, 1] + 0.1
Y2 = np.column_stack([np.zeros(N), GAP + SD * NOISE[:, 0]])
Y3 = np.column_stack([np.zeros(N), GAP, -GAP]) + SD * NOISE
WEIGHTS = np.random.default_rng(1).exponential(size=N)
ACTION = np.random.default_rng(2).permutation(np.arange(N) % 2)

RAW = {"model": Linear(), "surrogate": Binary(squash=False), "prior_sd": 30.0}  # the welfare is linear in the weights
STEADY = FitConfig(max_epochs=100, learning_rate=0.03)
SHORT = FitConfig(max_epochs=15, learning_rate=0.01)
NETWORK = {"model": MLP((8,)), "fit_config": SHORT}
SETTINGS = {
    "linear": ({"zeta": 2.0, "committee": 2, "fit_config": STEADY, **RAW}, Y2),
    "one": ({"zeta": 2.0, "committee": None, "fit_config": STEADY, **RAW}, Y2),
    "three": (
        {"zeta": 6.0, "committee": 2, "fit_config": STEADY, **RAW, "surrogate": FullVector(3, squash=False)},
        Y3,
    ),
    "network": ({"committee": 2, **NETWORK}, Y2),
    "softmax": ({"zeta": 2.0, "committee": 2, **NETWORK}, Y3),
    "number": ({"zeta": 2.0, "eta": 3.0, "committee": 2, **NETWORK}, Y3),
    "thousandfold": ({"committee": 2, **NETWORK}, 1000 * Y2),
    "gap": ({"zeta": 5.0, "committee": 2, "model": Linear(), "fit_config": STEADY, "surrogate": BaselineGap(3)}, Y3),
    "robust": (
        {"zeta": 2.0, "committee": 2, "fit_config": STEADY, **RAW, "surrogate": Binary(squash=False, huber=0.3)},
        Y2,
    ),
}


@cache
def fitted(name):
    if name == "weighted":
        settings, outcomes = SETTINGS["linear"]
        return GBPLNet(**settings, random_state=0).fit(X, outcomes, sample_weight=WEIGHTS)
    if name == "logged":
        policy = GBPLNet(committee=2, outcome_model=PerAction(Ridge()), nuisance_folds=2, random_state=0, **NETWORK)
        return policy.fit(X, Y3[np.arange(N), ACTION], action=ACTION, propensity=0.5)
    settings, outcomes = SETTINGS[name]
    return GBPLNet(**settings, random_state=0).fit(X, outcomes)


def path_fit(name):
    return fitted(name)._training.fit


def parameters(fit, number):
    return [{k: np.asarray(leaf[number], float) for k, leaf in layer.items()} for layer in fit.params]


def with_one(x):
    return np.column_stack([x, np.ones(len(x))])


def scores_and_slope(fit, number, x, *, everything=False):
    """Scores (row score) of a member and their derivative (row score weight), in the last layer or in all weights."""
    *hidden, last = parameters(fit, number)
    x = np.asarray(x, float)
    seen = np.tanh(x @ hidden[0]["weight"] + hidden[0]["bias"]) if hidden else x
    raw = seen @ last["weight"] + last["bias"]
    if not fit.surrogate.squash:
        scores, inner = raw, np.broadcast_to(np.eye(raw.shape[1]), (len(raw), raw.shape[1], raw.shape[1]))
    elif raw.shape[1] == 1:
        scores = np.tanh(raw)
        inner = 1 - scores[:, :, None] ** 2
    else:
        scores = np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True)
        inner = np.einsum("nk,kl->nkl", scores, np.eye(raw.shape[1])) - np.einsum("nk,nl->nkl", scores, scores)
    slope = np.einsum("nb,nsk->nsbk", with_one(seen), inner).reshape(*scores.shape, -1)
    if everything and hidden:
        back = np.einsum("nsk,jk,nj->nsj", inner, last["weight"], 1 - seen**2)
        first = np.einsum("ni,nsj->nsij", with_one(x), back).reshape(*scores.shape, -1)
        slope = np.concatenate([slope, first], axis=2)
    return scores, slope


def policy_of_scores(fit, scores):
    """Action probabilities, where no unsquashed score leaves the simplex."""
    if scores.shape[1] == 1:
        return np.column_stack([1 - scores, 1 + scores]) / 2
    return scores if fit.surrogate.squash else scores - scores.mean(axis=1, keepdims=True) + 1 / scores.shape[1]


def estimated(fit):
    """Outcomes as the members of largest zeta have them, zeta (delta - 1/K)."""
    largest = max(member.zeta for member in fit.members)
    chosen = [number for number, member in enumerate(fit.members) if member.zeta == largest]
    policies = np.array([policy_of_scores(fit, scores_and_slope(fit, number, fit.x)[0]) for number in chosen])
    assert policies.min() >= 0, "a score outside the simplex would be cut"
    return largest * (policies.mean(axis=0) - 1 / policies.shape[2])


def member_answer(fit, number, outcomes, *, everything=False):
    """Of a member's training rows: weights of mean one, and g'H^-1 J' of the posterior's noise and of the residuals.

    Rows beyond the robust loss's threshold have no curvature, hence no posterior noise; but a gradient, cut off there.
    """
    member, huber = fit.members[number], fit.surrogate.huber
    seen = member.train if everything else np.arange(len(fit.x))  # all weights: the welfare of the member's own rows
    worth = outcomes[seen] - outcomes[seen].mean(axis=1, keepdims=True)
    pull = (worth[:, 1:] - worth[:, :1]) / 2 if worth.shape[1] == 2 else worth  # of welfare by score
    _, slope = scores_and_slope(fit, number, fit.x[seen], everything=everything)
    gradient = np.einsum("ns,nsp->p", pull, slope) / len(seen)
    scores, slope = scores_and_slope(fit, number, fit.x[member.train], everything=everything)
    target = np.asarray(fit.target[member.table * len(fit.x) + member.train], float)
    residual = target - member.zeta * scores
    inside = np.abs(residual) <= huber
    weight = np.ones(len(target)) if member.weights is None else member.weights / np.mean(member.weights)
    curvature = member.zeta * np.einsum("nsp,nsq,ns,n->pq", slope, slope, inside, weight, optimize=True)
    curvature += np.eye(len(curvature)) / (member.prior_sd**2 * member.eta)
    own = slope @ np.linalg.inv(curvature) @ gradient
    return weight, inside * own, np.sum(own * np.clip(residual, -huber, huber), axis=1)


def variances(fit, *, everything=False):
    """Of the committee's welfare: posterior variance at precision one, and sandwich variance. In scaled units.

    A row of weight v has posterior noise of precision v times that of the others, and v times their pull.
    """
    outcomes = estimated(fit)
    push, moved = np.zeros((len(fit.x), fit.target.shape[1])), np.zeros(len(fit.x))
    for number, (member, counted) in enumerate(zip(fit.members, fit.policy_weights, strict=True)):
        weight, own, pulled = member_answer(fit, number, outcomes, everything=everything)
        push[member.train] += counted * np.sqrt(weight)[:, None] * own
        moved[member.train] += counted * weight * pulled
    return np.sum(push**2), np.sum(moved**2)


# -- information matching


def test_one_linear_score_by_the_formula():
    """eta = g'H^-1 g / g'H^-1 S H^-1 g of least squares, in outcome units, with nothing but numpy."""
    fit, choice = path_fit("one"), information_matching(path_fit("one"))
    (member,) = fit.members
    phi = np.column_stack([fit.x, np.ones(N)]).astype(float)
    train = phi[member.train]
    zeta, gap = 2.0, Y2[member.train, 1]
    weights = np.concatenate([fit.params[0]["weight"][0], fit.params[0]["bias"]]).ravel().astype(float)
    assert np.abs(phi @ weights).max() < 1, "no row's policy may be cut off for this"
    residual = gap - zeta * train @ weights
    estimate = zeta * phi @ weights  # of the gap; welfare is the mean of (1 + f) / 2 times it
    g = phi.T @ estimate / (2 * N)
    h = np.linalg.inv(zeta * train.T @ train + np.eye(3) / (30**2 * fit.eta))
    s = (train * residual[:, None] ** 2).T @ train
    sandwich = g @ h @ s @ h @ g
    assert choice.spread == pytest.approx(np.sqrt(sandwich), rel=1e-4)
    assert choice.eta == pytest.approx(g @ h @ g / sandwich, rel=1e-4)
    assert choice.zeta == zeta
    assert choice.eta == choice.precision * zeta

    # At that eta the posterior's variance of welfare is the sandwich's: by the formula, and by draws.
    posterior = np.linalg.inv(choice.eta * zeta * train.T @ train + np.eye(3) / 30**2)
    assert g @ posterior @ g == pytest.approx(sandwich, rel=1e-3)
    outcomes = np.column_stack([0 * estimate, estimate])
    drawn = fitted("one").posterior().welfare(X, outcomes, rule="randomized", draws=4000)
    assert drawn.sd == pytest.approx(choice.spread, rel=4 / np.sqrt(2 * 4000))

    # Noise of variance sd^2 asks for precision 1 / sd^2, with the error of a weighted mean of squares.
    lever = (train @ h @ g) ** 2
    error = np.sqrt(2 * np.sum(lever**2)) / np.sum(lever)
    assert error < 0.2
    assert choice.precision * SD**2 == pytest.approx(1.0, abs=3 * error)


@pytest.mark.parametrize("weights", ["last_layer", "all"])
@pytest.mark.parametrize("name", ["linear", "three", "network", "softmax", "number", "logged"])
def test_information_matching_restated(name, weights):
    fit = path_fit(name)
    choice = information_matching(fit, weights=weights)
    unit, sandwich = variances(fit, everything=weights == "all")
    assert choice.precision * fit.scale**2 == pytest.approx(unit / sandwich, rel=1e-3)
    assert choice.spread / fit.scale == pytest.approx(np.sqrt(sandwich), rel=1e-3)
    assert choice.zeta == pytest.approx(fitted(name).zeta_)
    assert choice.eta == pytest.approx(unit / sandwich / fit.scale**2 * fitted(name).zeta_, rel=1e-3)
    assert np.isfinite([choice.eta, choice.precision, choice.spread, *choice.grid, *choice.curve]).all()


@pytest.mark.parametrize("weights", ["last_layer", "all"])
def test_a_heavy_row_moves_the_fit_by_its_weight(weights):
    fit = path_fit("weighted")
    _, sandwich = variances(fit, everything=weights == "all")
    assert information_matching(fit, weights=weights).spread / fit.scale == pytest.approx(np.sqrt(sandwich), rel=1e-3)


@pytest.mark.parametrize("weights", ["last_layer", "all"])
def test_information_matching_with_sample_weights(weights):
    fit = path_fit("weighted")
    unit, sandwich = variances(fit, everything=weights == "all")
    choice = information_matching(fit, weights=weights)
    assert choice.precision * fit.scale**2 == pytest.approx(unit / sandwich, rel=1e-3)
    posterior = fitted("weighted").posterior(eta=choice.eta)
    drawn = posterior.welfare(X, fit.scale * estimated(fit), rule="randomized", draws=4000)
    if weights == "last_layer":
        assert drawn.sd == pytest.approx(choice.spread, rel=4 / np.sqrt(2 * 4000))


def test_information_matching_of_the_robust_loss():
    fit = path_fit("robust")
    choice = information_matching(fit)
    unit, sandwich = variances(fit, everything=False)
    assert choice.spread / fit.scale == pytest.approx(np.sqrt(sandwich), rel=1e-3)
    assert choice.precision * fit.scale**2 == pytest.approx(unit / sandwich, rel=1e-3)


def test_all_weights_of_a_robust_loss_are_refused():
    with pytest.raises(PosteriorError, match="robust"):
        information_matching(path_fit("robust"), weights="all")


@pytest.mark.parametrize("name", ["linear", "three", "softmax"])
def test_outcomes_as_the_committee_has_them(name):
    """zeta (delta - 1/K) is the regression of the outcomes, up to a constant of the row and the policy's cut."""
    fit = path_fit(name)
    outcomes = gbpl.posterior.influence.estimated_outcomes(fit)
    np.testing.assert_allclose(outcomes, estimated(fit), atol=1e-5)
    truth = np.column_stack([0 * GAP, GAP, -GAP])[:, : outcomes.shape[1]]
    truth = truth - truth.mean(axis=1, keepdims=True)
    if name != "softmax":
        slope = np.sum(fit.scale * outcomes * truth) / np.sum(truth**2)
        assert slope == pytest.approx(1.0, abs=4 * SD / np.sqrt(np.sum(truth**2)))


@pytest.mark.filterwarnings("ignore:.*its scores call the best")
def test_outcomes_of_a_committee_of_baseline_gaps():
    """The score of an action, 2 delta_a - 1, times zeta is what it gains over the baseline."""
    fit = path_fit("gap")
    outcomes = fit.scale * gbpl.posterior.influence.estimated_outcomes(fit)
    gains = outcomes[:, 1:] - outcomes[:, :1]
    raws = [fit.x @ weight + bias for weight, bias in zip(fit.params[0]["weight"], fit.params[0]["bias"], strict=True)]
    policy = np.mean([np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True) for raw in raws], axis=0)
    np.testing.assert_allclose(gains, 5.0 * (2 * policy[:, 1:] - 1), atol=1e-4)
    truth = np.column_stack([GAP, -GAP])
    slope, level = np.polyfit(truth.ravel(), gains.ravel(), 1)
    assert slope == pytest.approx(1.0, abs=4 * 2 * SD / np.sqrt(np.sum(truth**2)))
    assert level == pytest.approx(0.0, abs=0.2)


def test_several_zetas_count_by_their_policies():
    """Each member's own eta is its zeta times the one precision: the pseudo-likelihoods see the same noise."""
    policy = fitted("network")
    choice = policy.calibrate_eta()
    parts = policy.posterior("last_layer").parts
    scale = policy.outcome_scale_
    zetas = np.array([part.problem.zeta for part in parts]) * scale
    assert len(np.unique(zetas)) > 1
    np.testing.assert_allclose([part.problem.eta / scale for part in parts], choice.precision * zetas, rtol=1e-9)
    assert choice.zeta == pytest.approx(policy.zeta_)

    # Without doubt, they are the committee, whose multipliers are not the mixture's shares, before its effects.
    fit, posterior = path_fit("network"), policy.posterior(eta=1e9)
    assert np.abs(posterior.policy_weights - posterior.weights).max() > 0.01
    committee = sum(
        counted * (policy_of_scores(fit, scores_and_slope(fit, number, fit.x)[0]) - 0.5)
        for number, counted in enumerate(policy.member_weights_)
    )
    drawn = posterior.welfare(X, Y2, rule="randomized", draws=3).values
    np.testing.assert_allclose(drawn, welfare(nearest_on_simplex(0.5 + committee), Y2), atol=1e-4)

    # With them, it is the policy.
    effect = policy.effect_
    played = nearest_on_simplex(0.5 + (effect.slope * committee + effect.level) / effect.unit)
    np.testing.assert_allclose(policy.predict_proba(X), played, atol=1e-5)
    assert np.abs(effect.level).max() > 0


@pytest.mark.parametrize(
    "calibrate",
    [information_matching, safe_bayes, lambda fit: refit_matching(fit, refits=Refits(0.01, 0.02, 5, 8))],
    ids=["information", "SafeBayes", "refits"],
)
def test_the_unit_of_the_outcomes_does_not_count(calibrate):
    one, thousand = calibrate(path_fit("network")), calibrate(path_fit("thousandfold"))
    assert thousand.precision == pytest.approx(one.precision / 1e6, rel=1e-2)  # two fits, float32
    assert thousand.zeta == pytest.approx(1000 * one.zeta)
    assert thousand.eta == pytest.approx(one.eta / 1000, rel=1e-2)
    np.testing.assert_allclose(1000 * thousand.grid, one.grid, rtol=1e-2)
    np.testing.assert_allclose(thousand.curve, one.curve, rtol=1e-2, atol=1e-3)
    if one.spread is not None:
        assert thousand.spread == pytest.approx(1000 * one.spread, rel=1e-2)


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("freedom", [None, 4])
def test_the_curve_is_the_coverage_of_intervals_too_wide_or_too_narrow(level, freedom):
    """P(|t| <= q sqrt(choice / eta)), q the quantile of the deviation over its guessed size: nominal at the choice."""
    fit = path_fit("linear")
    if freedom is None:
        choice, deviation = information_matching(fit, level=level), scipy.stats.norm
    else:
        choice = refit_matching(fit, refits=Refits(0.01, 0.0, freedom, 8), level=level)
        deviation = scipy.stats.t(freedom)
    assert choice.nominal == level
    assert choice.what == f"coverage of {100 * level:g} % intervals"
    np.testing.assert_allclose(choice.grid / choice.eta, 2.0 ** np.arange(-6, 7))
    reach = deviation.ppf(0.5 + level / 2) * np.sqrt(choice.eta / choice.grid)
    np.testing.assert_allclose(choice.curve, 2 * deviation.cdf(reach) - 1, atol=1e-9)
    assert choice.curve[6] == pytest.approx(level)
    assert (np.diff(choice.curve) <= 0).all()
    assert (np.diff(choice.curve[4:]) < 0).all()


def test_what_a_choice_says():
    choice = information_matching(path_fit("one"))
    assert choice.method == "information_matching"
    assert re.fullmatch(
        r"eta [\d.]+ at zeta 2 by information matching; welfare varies by [\d.]+ over samples of this size", str(choice)
    )
    assert repr(choice) == str(choice)
    assert "varies" not in str(safe_bayes(path_fit("one")))


def test_what_information_matching_refuses(monkeypatch):
    fit = path_fit("linear")
    for level in (0.0, 1.0, -0.5, float("nan")):
        with pytest.raises(ValueError, match="level must be between 0 and 1"):
            information_matching(fit, level=level)
        with pytest.raises(ValueError, match="level must be between 0 and 1"):
            refit_matching(fit, level=level)
    with pytest.raises(ValueError, match="weights must be 'last_layer' or 'all', got 'some'"):
        information_matching(fit, weights="some")
    monkeypatch.setattr("gbpl.posterior.influence.DUAL_LIMIT", N // 2 - 1)
    with pytest.raises(PosteriorError, match=f"order {N // 2} .* more than {N // 2 - 1}; use weights='last_layer'"):
        information_matching(fit, weights="all")
    monkeypatch.setattr("gbpl.posterior.influence.DUAL_LIMIT", N // 2)
    assert information_matching(fit, weights="all").eta > 0


def test_blocks_of_rows_make_no_difference(monkeypatch):
    fit = path_fit("softmax")
    one = information_matching(fit)
    monkeypatch.setattr("gbpl.posterior.curvature.BLOCK", 50)
    monkeypatch.setattr("gbpl.posterior.curvature.STEP", 7)
    assert block_rows(len(fit.x)) < len(fit.x) / 2
    other = information_matching(fit)
    assert other.precision == pytest.approx(one.precision, rel=1e-5)
    assert other.spread == pytest.approx(one.spread, rel=1e-5)


def test_a_fit_that_answers_to_nothing_is_refused():
    fit = path_fit("linear")
    flat = replace(fit, params=jax.tree.map(np.zeros_like, fit.params))  # uniform policies, outcomes all alike
    for calibrate in (information_matching, lambda fit: refit_matching(fit, refits=Refits(0.1, 0.0, 3, 4))):
        with pytest.raises(PosteriorError, match="does not depend on its data"):
            calibrate(flat)
    with pytest.raises(PosteriorError, match="does not depend on its data"):
        refit_matching(fit, refits=Refits(0.0, 0.1, 3, 4))


# -- refits


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_refit_matching_divides_by_the_refits_variance(level):
    fit = path_fit("network")
    unit, _ = variances(fit)
    refits = Refits(variance=0.02, bias=0.3, freedom=6, count=8)
    rough = (scipy.stats.norm.ppf(0.5 + level / 2) / scipy.stats.t.ppf(0.5 + level / 2, 6)) ** 2
    assert rough < 1
    choice = refit_matching(fit, refits=refits, level=level)
    assert choice.precision == pytest.approx(unit / 0.02 * rough / fit.scale**2, rel=1e-3)
    assert choice.spread == pytest.approx(np.sqrt(0.02) * fit.scale)
    assert choice.refits == 8
    assert choice.method == "refit_matching"
    biased = refit_matching(fit, refits=refits, level=level, bias=True)
    assert biased.precision == pytest.approx(choice.precision * 0.02 / (0.02 + 0.3**2))
    assert biased.eta < choice.eta


def refit_by_hand(fit, stack):
    """Variance, bias and degrees of freedom from the refits' parameters, with a loop over zetas."""
    outcomes = estimated(fit)

    def worth(params, number):
        scores, _ = scores_and_slope(replace(fit, params=params), number, fit.x)
        return np.mean(np.sum(policy_of_scores(fit, scores) * outcomes, axis=1))

    entries = [member.entry for member in fit.members]
    size = {entry: fit.policy_weights[i] / fit.shares[i] for i, entry in enumerate(entries)}
    own = np.array([worth(fit.params, i) * size[entry] for i, entry in enumerate(entries)])
    copied = [(copy.entry, copy.fold) for copy in stack.members]
    again = np.array([worth(stack.params, i) * size[entry] for i, (entry, _) in enumerate(copied)])
    place = {(member.entry, member.fold): i for i, member in enumerate(fit.members)}
    original = np.array([own[place[key]] for key in copied])

    def within(values, group):
        parts = [values[np.array(group) == g] for g in set(group)]
        freedom = sum(len(part) - 1 for part in parts)
        return sum(np.sum((part - part.mean()) ** 2) for part in parts) / freedom, freedom

    refits, freedom = within(again, [entry for entry, _ in copied])
    members, _ = within(own, entries)
    return refits, members, np.mean(again - original), freedom


@pytest.mark.parametrize("name", ["network", "softmax"])
def test_refits_restated(name, monkeypatch):
    fit, stacks = path_fit(name), record_calls(monkeypatch, "fit_stack", gbpl.path.path)
    summary = refit(fit, refits=12, seed=3)
    ((_, options, stack),) = stacks
    assert options["config"] is SHORT
    assert len(stack.members) == summary.count == 12
    refits, members, bias, freedom = refit_by_hand(fit, stack)
    assert summary.freedom == freedom
    assert summary.bias == pytest.approx(bias, rel=1e-2)
    expected = refits - (1 - np.sum(fit.shares**2)) * members
    assert expected > 0.25 * refits, "the floor is another test's"
    assert summary.variance == pytest.approx(expected, rel=1e-3)

    # Exponential weights on the member's own rows, a seed of its own, and everything else as it was.
    originals = {(member.entry, member.fold): member for member in fit.members}
    for copy in stack.members:
        member = originals[copy.entry, copy.fold]
        assert copy.seed != member.seed
        assert (copy.zeta, copy.eta, copy.table) == (member.zeta, member.eta, member.table)
        np.testing.assert_array_equal(copy.train, member.train)
    drawn = np.concatenate([copy.weights for copy in stack.members])
    assert scipy.stats.kstest(drawn, "expon").pvalue > 1e-3


def test_refits_follow_their_seed_and_default_to_as_many_as_the_members():
    fit = path_fit("softmax")
    one, same, other = (refit_matching(fit, refits=4, seed=seed) for seed in (0, 0, 1))
    assert one.precision == same.precision
    assert one.precision != other.precision
    assert one.refits == 4
    assert refit(fit).count == 2
    assert refit(replace(fit, every=2 * fit.every)).count == 4  # those that count for nothing have been fitted too


def test_a_committee_varies_at_least_a_quarter_as_much_as_its_refits(monkeypatch):
    """Where the members' own spread says less than nothing is left."""
    fit = path_fit("softmax")
    values = iter([np.array([0.0, 10.0]), np.array([1.0, 2.0, 3.0, 4.0])])
    monkeypatch.setattr("gbpl.posterior.refits._welfares", lambda *given: next(values))
    refits = refit(fit, refits=4)
    assert refits.variance == pytest.approx(0.25 * np.var([1, 2, 3, 4], ddof=1))
    assert refits.bias == pytest.approx(np.mean([1, 2, 3 - 10, 4 - 10]))
    assert refits.freedom == 3


@pytest.mark.parametrize("count", [2, 3, 7, 10, 25])
def test_refits_are_dealt_by_the_shares(count):
    shares = np.array([0.35, 0.35, 0.14, 0.14, 0.02])
    dealt = np.array(_deal(shares, count))
    assert dealt.sum() == count
    assert (np.abs(dealt - shares * count) < 1).all()
    np.testing.assert_array_equal(_deal(10 * shares, count), dealt)
    assert _deal(np.full(4, 0.25), 8) == [2, 2, 2, 2]
    assert _deal(np.array([0.7, 0.3]), 2) == [1, 1]  # 1.4 and 0.6: the larger remainder
    assert _deal(np.array([0.9, 0.1]), 3) == [3, 0]
    assert _deal(np.array([0.1, 0.2, 0.7]), 10) == [1, 2, 7]  # exact but for rounding


def test_variance_within_groups():
    """Pooled, with its degrees of freedom; of all values where every group has one."""
    values = np.array([1.0, 3.0, 10.0, 16.0, 13.0])
    assert _within(values, np.array([0, 0, 2, 2, 2])) == pytest.approx((20 / 3, 3))
    assert _within(values[:2], np.array([0, 1])) == (2.0, 1)


@pytest.mark.parametrize("refits", [1, 0, -3])
def test_too_few_refits_are_refused(refits):
    with pytest.raises(ValueError, match=f"refits must be >= 2, got {refits}"):
        refit_matching(path_fit("linear"), refits=refits)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_refits_of_one_network():
    """Without a committee the refits' variance is the fit's."""
    refits = refit(path_fit("one"), refits=4)
    assert refits.freedom == 3
    assert refits.variance > 0


# -- SafeBayes


def sequential_loss(fit, number, precisions):
    """Sum over the member's held-out rows of E[-t s + zeta s^2 / 2] given the rows of earlier blocks, scaled units.

    The score is linear around the fit, s = f + J (w - MAP), so its target is t - zeta f + zeta J MAP.
    """
    member = fit.members[number]
    value, jacobian = scores_and_slope(fit, number, fit.x[member.validation])
    last = parameters(fit, number)[-1]
    at = np.concatenate([last["weight"], last["bias"][None]]).ravel()
    target = fit.target[member.table * len(fit.x) + member.validation].astype(float)
    target = target - member.zeta * value + member.zeta * jacobian @ at
    weight = np.ones(len(target)) if member.validation_weights is None else member.validation_weights
    weight = weight / weight.mean()
    totals = []
    for precision in precisions:
        total, rows, aims = 0.0, [], []
        for block in np.array_split(np.arange(len(target)), 10):
            before, seen = np.array(rows).reshape(-1, len(at)), np.array(aims).ravel()
            covariance = np.linalg.inv(
                precision * member.zeta**2 * before.T @ before + np.eye(len(at)) / member.prior_sd**2
            )
            mean = covariance @ (precision * member.zeta * before.T @ seen)
            for i in block:
                for row, aim in zip(jacobian[i], target[i], strict=True):
                    second = (row @ mean) ** 2 + row @ covariance @ row
                    total += weight[i] * (member.zeta / 2 * second - aim * (row @ mean))
            root = np.sqrt(weight[block])  # a row's square counts its weight
            rows += list((root[:, None, None] * jacobian[block]).reshape(-1, len(at)))
            aims += list((root[:, None] * target[block]).ravel())
        totals.append(total)
    return np.array(totals)


@pytest.mark.parametrize("name", ["linear", "network", "softmax", "logged", "weighted"])
def test_safe_bayes_restated(name):
    policy, fit = fitted(name), path_fit(name)
    grid = np.array([0.1, 1.0, 5.0, 40.0, 2000.0])
    choice = safe_bayes(fit, grid=grid)
    np.testing.assert_allclose(choice.grid, grid)
    precisions = grid / policy.zeta_ * fit.scale**2
    counted = [i for i, m in enumerate(fit.members) if np.isclose(m.zeta * fit.scale, policy.zeta_)]
    assert len(counted) == 2  # a fold each
    curve = sum(sequential_loss(fit, i, precisions) for i in counted) / N  # every row is in one fold
    np.testing.assert_allclose(choice.curve, curve, rtol=2e-5)
    best = grid[np.argmin(curve)]
    assert choice.eta == pytest.approx(best)
    assert choice.zeta == pytest.approx(policy.zeta_)
    assert choice.precision == pytest.approx(best / policy.zeta_)
    assert choice.nominal is None
    assert choice.spread is None
    assert "loss" in choice.what


def test_a_weight_of_two_is_the_row_twice_in_safe_bayes():
    """The conjugate posterior of rows repeated in their block; eta is per row of the repeated ones."""
    rng = np.random.default_rng(3)
    x, target, weight = rng.normal(size=(50, 2)), rng.normal(size=(50, 1)), rng.integers(1, 4, 50)
    last = {"weight": rng.normal(size=(2, 1)).astype(np.float32), "bias": np.zeros(1, np.float32)}
    problem = Problem(Linear(), Binary(squash=False), x, target, None, 0.7, 1.0, 1.5, [last])
    precisions, expected = np.array([0.2, 1.0, 6.0]), []
    for precision in precisions:
        inverse, moment, total = np.eye(3) / 1.5**2, np.zeros(3), 0.0
        for block in np.array_split(np.arange(50), 10):
            phi, t = with_one(np.repeat(x[block], weight[block], axis=0)), np.repeat(target[block, 0], weight[block])
            mean, covariance = np.linalg.solve(inverse, moment), np.linalg.inv(inverse)
            total += np.sum(0.35 * ((phi @ mean) ** 2 + np.diag(phi @ covariance @ phi.T)) - t * (phi @ mean))
            inverse = inverse + precision * 0.7**2 * phi.T @ phi
            moment = moment + precision * 0.7 * phi.T @ t
        expected.append(total)
    got = weight.mean() * _sequential_loss(problem, with_one(x), target, weight, weight.mean() * precisions)
    np.testing.assert_allclose(got, expected, rtol=1e-5)


def test_the_grid_of_safe_bayes_is_in_units_of_the_outcome_scale():
    policy, fit = fitted("network"), path_fit("network")
    choice = safe_bayes(fit)
    np.testing.assert_allclose(choice.grid / policy.zeta_ * fit.scale**2, 2.0 ** np.arange(-8, 6))
    assert choice.eta == pytest.approx(choice.grid[np.argmin(choice.curve)])
    again = safe_bayes(fit, grid=choice.grid)
    np.testing.assert_allclose(again.curve, choice.curve, rtol=1e-6)


@pytest.mark.parametrize(
    "grid", [[1.0], [], [1.0, 0.0], [1.0, -1.0], [1.0, np.nan], [1.0, np.inf], [[1.0, 2.0], [3.0, 4.0]]]
)
def test_bad_grids_are_refused(grid):
    with pytest.raises(ValueError, match="grid must hold two or more numbers > 0"):
        safe_bayes(path_fit("linear"), grid=grid)


# -- the estimator


def afresh(policy, **kept):
    """The policy as its fit left it, with nothing made of it yet but what is given."""
    known = policy._training
    policy._training = Training(known.fit, known.feedback, known.nuisances, known.problem)
    vars(policy._training).update(kept)
    return policy


def test_an_automatic_eta_is_calibrated_once(monkeypatch):
    policy = afresh(fitted("softmax"))
    asked = []
    monkeypatch.setitem(
        CALIBRATIONS, "information_matching", lambda fit, **options: asked.append(options) or information_matching(fit)
    )
    scale = policy.outcome_scale_
    given = policy.posterior(eta=2.0)
    assert not asked
    assert [part.problem.eta for part in given.parts] == pytest.approx([2.0 * scale] * 2)
    first, second = policy.posterior(), policy.posterior()
    assert asked == [{}]
    expected = information_matching(policy._training.fit).eta * scale
    for posterior in (first, second, policy.posterior("laplace", structure="diag")):
        assert [part.problem.eta for part in posterior.parts] == pytest.approx([expected] * 2)
    assert asked == [{}]
    assert policy.eta_ == pytest.approx(1 / scale)  # of the fit, which stays as it is
    chosen = policy.posterior(eta=policy.calibrate_eta().eta)
    assert [part.problem.eta for part in chosen.parts] == pytest.approx([expected] * 2)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="eta must be > 0"):
            policy.posterior(eta=wrong)


def test_the_bootstrap_needs_no_eta():
    policy = afresh(fitted("softmax"))
    policy.posterior("bootstrap", refits=2)
    assert "auto_eta" not in vars(policy._training)


def test_a_number_is_left_as_it_is():
    policy = fitted("number")
    policy.posterior()
    assert "auto_eta" not in vars(policy._training)
    scale = policy.outcome_scale_
    assert [part.problem.eta for part in policy.posterior().parts] == pytest.approx([3.0 * scale] * 2)
    assert [part.problem.eta for part in policy.posterior(eta=2.0).parts] == pytest.approx([2.0 * scale] * 2)
    assert policy.calibrate_eta().eta != 3.0  # for whoever asks


def test_models_without_a_last_layer_keep_the_fit_s_eta():
    pair = (lambda key, p, k: {"w": jax.random.normal(key, (p, k))}, lambda params, x: x @ params["w"])
    policy = GBPLNet(zeta=2.0, model=pair, committee=2, fit_config=FitConfig(max_epochs=2), random_state=0).fit(X, Y2)
    parts = policy.posterior("laplace").parts
    assert [part.problem.eta for part in parts] == pytest.approx([1.0, 1.0])  # eta_ times the scale
    for method in ("information_matching", "safe_bayes"):
        with pytest.raises(PosteriorError, match="needs a model with a last layer"):
            policy.calibrate_eta(method)


PAIR = (lambda key, p, k: {"w": 0.1 * jax.random.normal(key, (p, k))}, lambda params, x: x @ params["w"])


@cache
def of_functions():
    return GBPLNet(zeta=2.0, committee=2, model=PAIR, fit_config=SHORT, random_state=0).fit(X, Y2)


def test_without_a_last_layer_what_is_refused_names_what_works():
    policy = of_functions()
    for method in ("information_matching", "refit_matching", "safe_bayes"):
        with pytest.raises(PosteriorError, match=r"got FunctionModel; .*give eta a number, or use posterior\('bootstr"):
            policy.calibrate_eta(method)
    assert policy.posterior("laplace", structure="diag", eta=policy.calibrate_eta(weights="all").eta).default_draws
    assert len(policy.posterior("bootstrap", refits=4).welfare(X, Y2).values) == 4
    with pytest.raises(PosteriorError, match="use method='laplace', 'sgld' or 'bootstrap'"):
        policy.posterior()


def test_population_welfare_needs_no_last_layer():
    policy = of_functions()
    value, drawn = policy.cross_fitted_value(), policy.population_welfare(draws=40_000, seed=3)
    assert drawn.mean == pytest.approx(value.estimate, abs=4 * value.se / 200)
    assert drawn.sd == pytest.approx(value.se, rel=4 / np.sqrt(80_000))


def test_refits_of_a_rule_compare_what_the_rule_takes():
    fit, outcomes = path_fit("linear"), Y2
    layers = [parameters(fit, number)[-1] for number in range(2)]
    chosen = [(fit.x @ layer["weight"] + layer["bias"] >= 0)[:, 0] for layer in layers]
    expected = [np.mean(np.where(one, outcomes[:, 1], outcomes[:, 0])) for one in chosen]
    np.testing.assert_allclose(_welfares(fit, fit.params, 2, outcomes, "deterministic"), expected, rtol=1e-6)


def test_what_calibrate_eta_passes_on():
    policy, fit = fitted("linear"), path_fit("linear")
    assert policy.calibrate_eta(level=0.5).curve[6] == pytest.approx(0.5)
    assert policy.calibrate_eta(weights="all").eta == information_matching(fit, weights="all").eta
    assert policy.calibrate_eta("safe_bayes", grid=[1.0, 2.0]).eta == safe_bayes(fit, grid=[1.0, 2.0]).eta
    refits = Refits(0.01, 0.1, 3, 4)
    choice = policy.calibrate_eta("refit_matching", refits=refits, bias=True)
    assert choice.eta == refit_matching(fit, refits=refits, bias=True).eta
    assert isinstance(choice, EtaChoice)


def test_calibrating_needs_a_fit_its_rows_and_a_method():
    with pytest.raises(NotFittedError):
        GBPLNet().calibrate_eta()
    with pytest.raises(ValueError, match="method must be one of information_matching, refit_matching, safe_bayes, got"):
        fitted("linear").calibrate_eta("cross_validation")
    loaded = pickle.loads(pickle.dumps(fitted("linear")))
    with pytest.raises(PosteriorError, match="loaded without its training rows; calibrate eta where it was fitted"):
        loaded.calibrate_eta()


# -- what it serves: welfare in the population


@pytest.mark.parametrize("rule", ["randomized", "deterministic"])
@pytest.mark.parametrize("name", ["linear", "softmax", "network"])
def test_population_welfare_is_the_held_out_value_and_its_error(name, rule):
    """Normal draws: mean and standard deviation are those of `cross_fitted_value`, restated."""
    policy, outcomes = fitted(name), SETTINGS[name][1]
    estimate, se = held_out_value(policy, X, outcomes, rule)
    draws = 40_000
    population = policy.population_welfare(rule=rule, draws=draws, seed=4)
    assert population.values.shape == (draws,)
    assert rule in population.about
    assert population.sd == pytest.approx(se, rel=4 / np.sqrt(2 * draws))
    assert population.mean == pytest.approx(estimate, abs=4 * se / np.sqrt(draws))
    assert scipy.stats.kstest(population.values, scipy.stats.norm(estimate, se).cdf).pvalue > 1e-3
    default = policy.population_welfare(draws=draws, seed=4)
    assert np.array_equal(default.values, population.values) == (rule == "deterministic")
    np.testing.assert_array_equal(policy.population_welfare(rule=rule, draws=draws, seed=4).values, population.values)
    assert not np.array_equal(policy.population_welfare(rule=rule, draws=draws, seed=5).values, population.values)


def test_population_welfare_over_a_baseline_is_the_gain():
    policy = fitted("softmax")
    gain, se = held_out_value(policy, X, Y3, "deterministic", less=Y3[:, 1])
    drawn = policy.population_welfare(baseline=1, draws=40_000)
    assert drawn.about.startswith("gain in population welfare")
    assert drawn.mean == pytest.approx(gain, abs=4 * se / 200)
    assert drawn.sd == pytest.approx(se, rel=4 / np.sqrt(80_000))


def test_nothing_of_eta_is_in_the_population_welfare():
    policy = afresh(fitted("linear"))
    as_it_is = policy.population_welfare(draws=50).values
    assert "auto_eta" not in vars(policy._training)
    choice = policy._training.auto_eta
    afresh(policy, auto_eta=replace(choice, precision=choice.precision / 100))
    np.testing.assert_array_equal(policy.population_welfare(draws=50).values, as_it_is)
    afresh(policy)


def test_population_welfare_of_groups_has_student_s_t():
    """Six groups: errors are t with five degrees of freedom, whose variance is 5/3 of the normal's."""
    settings, outcomes = SETTINGS["linear"]
    policy = GBPLNet(**settings, random_state=0).fit(X, outcomes, groups=np.arange(N) % 6)
    value, drawn = policy.cross_fitted_value(), policy.population_welfare(draws=40_000)
    ratio = (drawn.values - value.estimate) / value.se
    assert scipy.stats.kstest(ratio, scipy.stats.t(5).cdf).pvalue > 1e-3
    assert scipy.stats.kstest(ratio, scipy.stats.norm.cdf).pvalue < 1e-6


@pytest.mark.parametrize("rule", ["randomized", "deterministic"])
def test_population_welfare_of_a_log(rule):
    """With doubly robust outcomes, and with outcomes over their propensity."""
    policy = fitted("logged")
    weighed = np.zeros((N, 2))
    weighed[np.arange(N), ACTION] = Y3[np.arange(N), ACTION] / 0.5
    for estimator, outcomes in {"dr": policy.pseudo_outcomes_, "ipw": weighed}.items():
        drawn = policy.population_welfare(rule=rule, estimator=estimator, draws=20_000)
        estimate, se = held_out_value(policy, X, outcomes, rule)
        assert drawn.mean == pytest.approx(estimate, abs=5 * se / np.sqrt(20_000))
        assert drawn.sd == pytest.approx(se, rel=4 / np.sqrt(40_000))


def test_population_welfare_needs_a_committee_and_its_rows():
    with pytest.raises(ValueError, match="population_welfare needs a committee, got committee=None"):
        fitted("one").population_welfare()
    with pytest.raises(ValueError, match="estimator must be one of"):
        fitted("linear").population_welfare(estimator="guess")
    with pytest.raises(ValueError, match="without its training rows"):
        pickle.loads(pickle.dumps(fitted("linear"))).population_welfare()
    with pytest.raises(ValueError, match="draws must be >= 1"):
        fitted("linear").population_welfare(draws=0)
    with pytest.raises(ValueError, match="rule must be"):
        fitted("linear").population_welfare(rule="fair")
    with pytest.raises(NotFittedError):
        GBPLNet().population_welfare()
