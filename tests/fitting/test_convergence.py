"""A fit that ends while it is still learning says so, and one that has converged does not."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning

from gbpl import MLP, Binary, CrossFit, FitConfig, GBPLNet, Linear, LoggedFeedback, Member
from gbpl.estimators.baselines import DiffReg
from gbpl.fitting.convergence import late_shares, warn_if_unfinished
from gbpl.fitting.stack import StackFit

EPOCHS = FitConfig(max_epochs=100, patience=10)


def stack(*curves, best=None, validated=True):
    """Members with these losses per epoch."""
    empty = tuple(np.empty(0) for _ in curves)
    return StackFit(
        members=tuple(Member(np.arange(2)) for _ in curves),
        params=None,
        validation_loss=tuple(curves) if validated else empty,
        train_loss=tuple(curves),
        best_epoch=np.array([np.argmin(curve) + 1 for curve in curves] if best is None else best),
        best_loss=np.array([np.min(curve) for curve in curves]),
    )


def test_the_late_share_of_curves_that_are_known():
    """Of a straight fall half is late; of a decay by e^-5 over all epochs, (e^-2.5 - e^-5) / (1 - e^-5)."""
    straight = -np.linspace(0.0, 1.0, 100)
    decay = np.exp(-5.0 * np.linspace(0.0, 1.0, 100)) - 1.0
    rate = np.exp(-5.0 * np.array([0.0, 49 / 99, 1.0]))
    expected = [50 / 99, (rate[1] - rate[2]) / (rate[0] - rate[2])]
    assert_allclose(late_shares(stack(straight, decay), EPOCHS), expected, rtol=1e-6)
    assert_allclose(late_shares(stack(straight, decay, validated=False), EPOCHS), expected, rtol=1e-6)


def test_a_member_that_stopped_is_not_late():
    falling = -np.linspace(0.0, 1.0, 100)
    turned = np.concatenate([falling[:80], np.zeros(20)])  # waited for longer than its patience
    assert late_shares(stack(falling[:50], turned), EPOCHS).tolist() == [0.0, 0.0]
    assert late_shares(stack(np.array([-1.0])), FitConfig(max_epochs=1)).tolist() == [0.0]  # solved, or one epoch


def test_a_fall_counts_beside_the_loss_itself():
    """From -1.00 to -1.01 is no gain to wait for, however straight the way."""
    assert late_shares(stack(-1.0 - np.linspace(0.0, 0.01, 100)), EPOCHS)[0] < 0.01


def test_the_warning_names_members_figures_and_remedies():
    falling, flat = -np.linspace(0.0, 1.0, 100), np.r_[0.0, -np.ones(99)]
    fit = stack(falling, falling, flat)
    names = ["MLP at zeta 0.1, fold 0", "MLP at zeta 0.1, fold 1", "MLP at zeta 3, fold 0"]
    with pytest.warns(ConvergenceWarning) as caught:
        warn_if_unfinished(fit, EPOCHS, names, weights=np.array([0.5, 0.3, 0.2]))
    message = str(caught[0].message)
    assert message.startswith("the fit ended after its 100 epochs and had not converged: 2 of 3 members, with 80%")
    assert "(MLP at zeta 0.1, fold 0; MLP at zeta 0.1, fold 1)" in message
    assert "brought 51% of the fall" in message
    assert "FitConfig(max_epochs=200)" in message
    assert "FitConfig(learning_rate=0.003)" in message
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unfinished(fit, EPOCHS, names, weights=np.array([0.3, 0.1, 0.6]))  # they hardly count


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 1))
    return x, np.column_stack([np.zeros(200), 4.0 * x[:, 0]]) + rng.normal(size=(200, 2))


SLOW = FitConfig(learning_rate=1e-4, max_epochs=100)


@pytest.mark.parametrize("learner", [GBPLNet(zeta=1.0, eta=2.0), DiffReg()], ids=["GBPLNet", "DiffReg"])
def test_a_fit_that_ends_too_early_warns_its_caller(sample, learner):
    learner.set_params(model=MLP((4,)), committee=2, random_state=0, fit_config=SLOW)
    with pytest.warns(ConvergenceWarning, match="the fit ended after its 100 epochs") as caught:
        learner.fit(*sample)
    assert [one.filename for one in caught] == [__file__]


def test_outcome_models_that_end_too_early_are_named(sample):
    x, y = sample
    action = np.arange(200) % 2
    log = LoggedFeedback.of(x, y[np.arange(200), action], action, propensity=0.5)
    with pytest.warns(ConvergenceWarning, match=r"^the fit of the outcome models ended after .*\(fold 0; fold 1\)"):
        CrossFit(folds=2, outcome_model=MLP((4,)), committee=None, fit_config=SLOW).run(log)


@pytest.mark.filterwarnings("error")
def test_a_fit_that_converges_or_is_solved_says_nothing(sample):
    GBPLNet(model=MLP((4,)), zeta=1.0, committee=2, random_state=0).fit(*sample)
    squared = GBPLNet(model=Linear(), surrogate=Binary(squash=False), zeta=1.0, eta=1.0, committee=2, random_state=0)
    squared.set_params(fit_config=SLOW).fit(*sample)  # the fit that ended at 0.914 by small steps
    scores = np.asarray(squared.params_[0]["weight"])
    assert np.all(scores > 3.0)
