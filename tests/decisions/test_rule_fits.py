"""Rules without each fold and of other samples: honest decisions, doubts, and how often a question is asked."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import norm

from gbpl.decisions.rule_fits import fit_rules, fold_doubt, splits_of
from gbpl.decisions.rule_search import search_rule
from gbpl.decisions.rule_settings import Columns, RuleSettings

NAMES = ("a", "b", "c")
COLUMNS = Columns(NAMES, NAMES, (True,) * 3)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 3))
    scores = rng.normal(size=(300, 2)) + np.column_stack([np.zeros(300), np.where(x[:, 1] > 0.0, 2.0, -2.0)])
    settings = RuleSettings(kind="threshold", replicates=20, seed=5)
    resolved = settings.resolved(COLUMNS, [0, 1], 300)
    folds = np.array_split(rng.permutation(300), 3)
    tables = [scores + 0.01 * k for k in range(3)]  # of which the fold's own part is never looked at
    for table, fold in zip(tables, folds, strict=True):
        table[fold] = np.nan
    fits = fit_rules(x, lambda fold: scores if fold is None else tables[fold], folds, settings, resolved)
    return x, scores, settings, resolved, folds, fits


def test_rows_are_decided_by_rules_that_did_not_see_them(fitted):
    x, scores, settings, resolved, folds, fits = fitted
    for fold in folds:
        rest = np.setdiff1d(np.arange(300), fold)
        assert np.array_equal(
            fits.held[fold], search_rule(x[rest], scores[rest], settings, resolved).rule.actions(x[fold])
        )
    assert np.array_equal(fits.given, np.stack([rule.actions(x) for rule in fits.refits]))


def test_splits(fitted):
    x, _, _, _, _, fits = fitted
    splits = splits_of(fits, x, NAMES, COLUMNS.ordered)
    assert splits.replicates == 20
    (column, share, low, high), *_ = splits.first
    cuts = [float(rule.threshold[0]) for rule in fits.refits if rule.feature[0] == 1]
    assert (column, share) == ("b", len(cuts) / 20)
    assert_allclose([low, high], np.quantile(cuts, [0.05, 0.95]))
    assert splits.same_columns == share == dict(splits.columns)["b"]
    assert splits.agreement == pytest.approx(np.mean(fits.given == fits.found.rule.actions(x)))
    assert splits.to_dict()["first"][0]["column"] == "b"


def test_groups_share_a_weight():
    """Rows of one group come and go together: rows that are copies in one group decide as one row of their sum."""
    rng = np.random.default_rng(1)
    x, scores = rng.normal(size=(60, 2)), rng.normal(size=(60, 2))
    settings = RuleSettings(kind="threshold", replicates=10, min_share=0.0)
    resolved = settings.resolved(Columns(("a", "b"), ("a", "b"), (True, True)), [0, 1], 60)
    folds = [np.arange(30), np.arange(30, 60)]
    alone = fit_rules(x, lambda fold: scores, folds, settings, resolved)
    double = [np.concatenate([fold, fold + 60]) for fold in folds]
    pairs = fit_rules(
        np.tile(x, (2, 1)), lambda fold: np.tile(scores, (2, 1)), double, settings, resolved,
        groups=np.tile(np.arange(60), 2),
    )  # fmt: skip
    assert np.array_equal(pairs.given[:, :60], alone.given)


def test_doubt_of_two_actions():
    """phi(f / t) |Y(1) - Y(0)| at f / t = Phi^{-1}(p), and nothing where every sample agrees."""
    given = np.array([[1, 1, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]])
    outcomes = np.array([[0.0, 1.0], [0.5, -1.0], [2.0, 1.0]])
    wanted = [0.0, norm.pdf(norm.ppf(0.75)) * 1.5, norm.pdf(norm.ppf(0.75)) * 1.0]
    assert_allclose(np.sqrt(np.sum(fold_doubt(given, outcomes) ** 2, axis=1)), wanted, atol=1e-15)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_doubt_of_equal_chances(count):
    """Scores of independent standard normal errors and equal means: v = E[g sum_a delta_a(g) Y_a], by simulation."""
    rng = np.random.default_rng(count)
    outcomes, g = rng.normal(size=(1, count)), rng.normal(size=(400_000, count))
    played = outcomes[0, g.argmax(axis=1)]
    wanted = np.sum(np.mean(g * played[:, None], axis=0) ** 2)
    given = np.tile(np.arange(count)[:, None], (5, 1))
    assert np.sum(fold_doubt(given, outcomes) ** 2) == pytest.approx(wanted, rel=0.06)
