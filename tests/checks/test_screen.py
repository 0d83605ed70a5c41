"""A look at the data before a fit: planted defects are named in words, clean tables raise nothing, and it is quick."""

from __future__ import annotations

import re
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LinearRegression
from support.data import data_file
from support.defects import CLEAN, DEFECTS

import gbpl
from gbpl import GBPL, GBPLNet, LoggedFeedback, TableError
from gbpl.checks.copies import copies
from gbpl.checks.screen import screen, screened
from gbpl.checks.suspicion import SuspectDataWarning
from gbpl.feedback.read import read_table
from gbpl.feedback.tails import cut_where
from gbpl.tables.roles import Roles


class Reached(Exception):
    """The fit would begin."""


@pytest.fixture
def no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: Any) -> None:
        raise Reached

    monkeypatch.setattr(GBPLNet, "fit_feedback", reached)


def said_before_the_fit(frame: Any, roles: dict[str, Any]) -> list[str]:
    """What a user of `learn` reads before the fit begins: warnings about the data, and an error that ends it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            gbpl.learn(frame, **roles)
        except Reached:
            ended = []
        except TableError as error:
            ended = [str(error)]
    return [*(str(one.message) for one in caught if issubclass(one.category, SuspectDataWarning)), *ended]


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_named(name: str) -> None:
    make, words = DEFECTS[name]
    said = said_before_the_fit(*make(0))
    assert any(re.search(words, sentence) for sentence in said), said
    assert len(said) == 1


@pytest.mark.usefixtures("no_fit")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", CLEAN)
def test_a_clean_table_raises_nothing(name: str, seed: int) -> None:
    assert said_before_the_fit(*CLEAN[name](seed)) == []


# -- copies and columns after the action ------------------------------------------------------------------------------


def test_a_copy_tells_rows_apart_as_the_other_does() -> None:
    rng = np.random.default_rng(0)
    y = np.unique(rng.normal(size=100), return_inverse=True)[1]
    assert copies(y, y)
    assert copies(y, y.max() - y)  # with the other sign
    assert not copies(y, rng.permutation(y))  # every column without a repeated value recodes every other
    few = rng.integers(0, 4, 100)
    assert copies(few, np.array([2, 0, 3, 1])[few])  # under other names
    assert not copies(few, np.where(np.arange(100) == np.argmax(few == 1), 0, few))
    one = (np.arange(40) == 7).astype(int)
    assert not copies(one, one)  # the same row of 40 by chance: 1 in 40, too often


@pytest.mark.parametrize(("column", "what"), [("y", "the outcome"), ("action", "the action taken")])
def test_copies_are_refused_in_python(column: str, what: str) -> None:
    """A feature that equals the outcome used to give a gain of 0.008 instead of 0.385, 'clearly beats'."""
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    data = {"y": x[:, 0] * action + rng.normal(size=300), "action": action}
    with pytest.raises(TableError, match=f"'column 2' is a copy of {what} .*: leave it out of the features"):
        GBPL().fit(np.column_stack([x, data[column]]), **data, propensity=0.5)


def test_hillstrom_names_visit_and_conversion() -> None:
    """`gbpl fit hillstrom.csv.gz --outcome spend --action segment` used to say 1.022 for an arm of mean 0.653."""
    table = pd.read_csv(data_file("hillstrom.csv"))
    roles = Roles(outcome="spend", action="segment")
    encoder, _ = gbpl.Encoder.fit(table, exclude=roles.used())
    log = read_table(table, roles, encoder).feedback
    started = time.process_time()
    (found,) = screen(log)
    assert time.process_time() - started < 10.0  # half a second on an idle machine
    assert found.columns == ("visit", "conversion")
    without = gbpl.Encoder.fit(table, exclude=[*roles.used(), *found.columns])[0]
    assert screen(read_table(table, roles, without).feedback) == []


# -- stray outcomes ---------------------------------------------------------------------------------------------------


def trial(outcome: np.ndarray, seed: int = 0) -> LoggedFeedback:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(len(outcome), 2))
    return LoggedFeedback.of(x, outcome, rng.integers(0, 2, len(outcome)), propensity=0.5)


ORDINARY = {
    "normal": lambda rng: rng.normal(size=1000),
    "zero or one": lambda rng: (rng.random(1000) < 0.02).astype(float),
    "exponential": lambda rng: rng.exponential(size=1000),
    "lognormal": lambda rng: np.exp(rng.normal(size=1000)),
    "mostly zero": lambda rng: (rng.random(1000) < 0.05) * np.exp(rng.normal(size=1000)),
    "Student's t with five degrees": lambda rng: rng.standard_t(5, 1000),
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_outcomes_are_left_as_they_are(name: str) -> None:
    found = [cut_where(ORDINARY[name](np.random.default_rng(seed))) for seed in range(30)]
    assert sum(one is not None for one in found) == 0


def test_a_stray_outcome_is_cut_to_where_the_others_end() -> None:
    y = np.random.default_rng(0).normal(size=500)
    log = trial(np.append(y, 1e6))
    feedback, (found,) = screened(log)
    limit = np.abs(y - np.median(log.outcome)).max()
    assert_array_equal(feedback.outcome[:-1], y)
    assert feedback.outcome[-1] == np.median(log.outcome) + limit
    assert found.rows == (500,)
    assert feedback.cut == 1
    kept, (told,) = screened(log, cut=False)
    assert kept is log
    assert "Correct the data" in told.sentence


def test_stray_cells_of_full_feedback_are_cut_too() -> None:
    y = np.random.default_rng(0).normal(size=(300, 2))
    y[17, 1] = -1e5
    found = cut_where(y)
    assert found is not None
    assert np.argwhere(found.cells).tolist() == [[17, 1]]


@pytest.mark.filterwarnings("ignore::gbpl.checks.suspicion.SuspectDataWarning")
def test_a_stray_outcome_hardly_moves_decisions() -> None:
    """One outcome of 1e6 among noise of 1 used to move half of them, and gave everybody one action."""
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    y = 2.0 * x[:, 0] * action + rng.normal(size=300)
    bad = np.where(np.arange(300) == 7, 1e6, y)
    fast: dict[str, Any] = {"random_state": 0, "model": gbpl.Linear(), "outcome_model": LinearRegression()}
    decided = {
        name: GBPLNet(**fast, outliers=how).fit(x, outcome, action=action, propensity=0.5).predict(x)
        for name, outcome, how in (("clean", y, "cut"), ("cut", bad, "cut"), ("kept", bad, "keep"))
    }
    assert np.mean(decided["cut"] != decided["clean"]) < 0.05
    assert np.mean(decided["kept"] != decided["clean"]) > 0.3


def test_outliers_and_certificates_do_not_mix() -> None:
    rng = np.random.default_rng(0)
    x, action = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    y = np.where(np.arange(300) == 7, 1e6, rng.random(300))
    fast: dict[str, Any] = {"random_state": 0, "model": gbpl.Linear(), "outcome_model": LinearRegression()}
    with pytest.warns(SuspectDataWarning, match="row 7 is 1e"):
        policy = GBPLNet(**fast).fit(x, y, action=action, propensity=0.5)
    with pytest.raises(ValueError, match=r"1 outcome.* cut before the fit.*outliers='keep'"):
        policy.certificate(outcome_range=(0, 1e6))
    with pytest.raises(ValueError, match="outliers must be 'cut' or 'keep', got 'drop'"):
        GBPLNet(outliers="drop").fit(x, y, action=action, propensity=0.5)
