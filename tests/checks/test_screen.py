"""A look at the data before a fit: planted defects are named in words, clean tables raise nothing, and it is quick."""

from __future__ import annotations

import json
import re
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from sklearn.linear_model import LinearRegression
from support.cli import quick_learn, run, write
from support.data import data_file
from support.defects import CLEAN, DEFECTS

import gbpl
from gbpl import GBPL, CrossFit, FullFeedback, GBPLNet, LoggedFeedback, TableError
from gbpl.checks.copies import copies, refuse_copies
from gbpl.checks.screen import screen, screened
from gbpl.checks.suspicion import SuspectDataWarning
from gbpl.feedback.read import read_table
from gbpl.feedback.tails import cut_where
from gbpl.nuisance.off_policy import overlap_of, policy_value
from gbpl.tables.roles import Roles
from gbpl.value.estimate import value_covariance


class Reached(Exception):
    """The fit would begin."""


@pytest.fixture
def no_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: Any) -> None:
        raise Reached

    monkeypatch.setattr(GBPLNet, "fit_feedback", reached)
    monkeypatch.setattr(GBPLNet, "_fit_in_passes", reached)


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


@pytest.mark.parametrize("kind", ["order", "opposite", "names"])
def test_of_many_rows_a_glance_tells_most_columns_apart(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a column that is a copy in a thousand rows is looked at in all of them, and found out there."""
    rng, n = np.random.default_rng(0), 5_000
    few = rng.integers(0, 4, n)
    outcome = few.astype(float) if kind == "names" else rng.normal(size=n)
    copy = {"order": np.exp(outcome), "opposite": -outcome, "names": rng.permutation(4)[few]}[kind]
    nearly = copy.astype(float)
    nearly[1] = copy[0] if copy[1] != copy[0] else copy[few != few[0]][0]  # in a row that a glance leaves out
    lengths: list[int] = []
    whole = gbpl.checks.copies.codes_of

    def codes(x: np.ndarray, places: list[int]) -> np.ndarray:
        lengths.append(len(x))
        return whole(x, places)

    monkeypatch.setattr(gbpl.checks.copies, "codes_of", codes)
    action = rng.integers(0, 2, n)
    x = np.column_stack([rng.normal(size=n), rng.integers(0, 4, n), nearly])
    assert refuse_copies(LoggedFeedback.of(x, outcome, action, propensity=np.full((n, 2), 0.5))) == []
    assert [length == n for length in lengths] == [False, False, False, True]
    with pytest.raises(TableError, match="'column 3' is a copy of the outcome"):
        refuse_copies(LoggedFeedback.of(np.column_stack([x, copy]), outcome, action, propensity=np.full((n, 2), 0.5)))


def test_an_outcome_of_full_feedback_may_be_known_before() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    (found,) = screen(FullFeedback.of(x, np.column_stack([x[:, 0], rng.normal(size=300)])))
    assert "'column 0' is a copy of the outcome" in found.sentence


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
    assert "row 500 is 1e+06, and all others are from" in found.sentence
    assert "row 500 is far from all others" in found.to_dict()["sentence"]
    assert "1e+06" not in str(found.to_dict())  # what one person has is in no file
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


# -- where users read it ----------------------------------------------------------------------------------------------


@pytest.fixture
def leaky(tmp_path: Path) -> list[object]:
    """`gbpl fit` of a trial with a column that was counted after the action."""
    frame, _ = DEFECTS["a column measured after the action"][0](0)
    data = write(tmp_path / "trial.csv", {name: frame[name].to_list()[:300] for name in frame})
    return ["fit", data, "--outcome", "y", "--action", "arm", "--propensity", 0.5, "--out", tmp_path / "out"]


def test_the_command_line_warns_before_it_fits_and_the_report_is_red(
    leaky: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gbpl.study.study.learn", quick_learn)
    done = run(capsys, *leaky)
    assert done.code == 0
    assert re.search(r"^warning: 'calls' depends on the action, given the propensities", done.words)
    assert "Look at the data first: 'calls' depends" in " ".join(done.out.split())
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    alarm = page[page.index('<section class="alarm"') : page.index('<section id="decision"')]
    assert "&#39;calls&#39; depends on the action" in alarm
    summary = json.loads((tmp_path / "out" / "summary.json").read_text("utf-8"))
    assert [one["columns"] for one in summary["warnings"]] == [["calls"]]


@pytest.mark.usefixtures("no_fit")
def test_columns_are_left_out_by_name_or_pattern(leaky: list[object], capsys: pytest.CaptureFixture[str]) -> None:
    """The first line on standard error is the warning, as JSON where that is wanted; the last says where it ended."""
    first, last = run(capsys, *leaky, "--json").err.splitlines()
    assert json.loads(first)["warning"].startswith("'calls' depends on the action")
    assert "Reached" in json.loads(last)["error"]
    for words in (
        ["--exclude", "calls"],
        ["--exclude", "cal*"],
        ["--features", "!calls"],
        ["--features", "a*", "score"],
    ):
        (line,) = run(capsys, *leaky, "--json", *words).err.splitlines()
        assert "Reached" in json.loads(line)["error"]
    done = run(capsys, *leaky, "--exclude", "call")
    assert "trial.csv has no column 'call'; did you mean 'calls'?" in done.words
    done = run(capsys, *leaky, "--exclude", "arm")
    assert "column 'arm' has a role and is to be left out" in done.words


@pytest.mark.usefixtures("no_fit")
def test_files_are_looked_at_too(tmp_path: Path) -> None:
    """`fit_parquet` used to learn from a copy of the outcome."""
    frame, roles = DEFECTS["the outcome in other units"][0](0)
    path = write(tmp_path / "trial.parquet", {name: frame[name].to_list() for name in frame})
    with pytest.raises(TableError, match="'cents' is a copy of the outcome"):
        GBPLNet().fit_parquet(path, **roles)
    frame, roles = DEFECTS["0.1 for a propensity of 0.5"][0](0)
    path = write(tmp_path / "trial.parquet", {name: frame[name].to_list() for name in frame})
    with pytest.warns(SuspectDataWarning, match="'mail' was taken in"), pytest.raises(Reached):
        GBPLNet().fit_parquet(path, **roles, exclude=["score"])


# -- rare events ------------------------------------------------------------------------------------------------------


def test_an_action_without_an_event_is_not_known_to_be_worth_nothing() -> None:
    """Of 0 events in n rows the 95 % bound is 3 / n; it used to be 'worth 0.0000', beaten with 98.3 %."""
    n = 3000
    action = np.arange(n) % 3
    outcome = np.zeros(n)
    outcome[np.flatnonzero(action == 1)[:12]] = 1.0
    outcome[np.flatnonzero(action == 2)[:5]] = 1.0
    log = LoggedFeedback.of(np.random.default_rng(0).normal(size=(n, 1)), outcome, action, propensity=1 / 3)
    values = [policy_value(label, log, estimator="ipw") for label in (0, 1, 2)]
    rows = n / 3
    assert values[0].estimate == 0.0
    assert values[0].se == pytest.approx(np.sqrt(3.0) / rows)
    assert values[0].interval(0.9)[1] == pytest.approx(1.645 * np.sqrt(3.0) / rows, rel=1e-3)  # 2.8 / n for 3 / n
    assert values[2].se == pytest.approx(np.sqrt(8.0) / rows, rel=0.01)  # 5 events, and 3 more
    gain = values[1] - values[0]
    assert gain.se == pytest.approx(np.hypot(values[0].se, values[1].se), rel=1e-6)
    assert (values[1] - values[1]).se == 0.0
    together = value_covariance([*values, gain])
    assert together[3, 3] == pytest.approx(together[0, 0] + together[1, 1] - 2 * together[0, 1])
    many = LoggedFeedback.of(log.x, (np.arange(n) % 20 == 4).astype(float), action, propensity=1 / 3)
    assert policy_value(1, many, estimator="ipw").unseen is None  # 50 events of each action are enough


def test_the_open_bandit_log_has_too_few_clicks() -> None:
    """'No sign of weakness', it used to say, of 46 clicks over 34 items."""
    frame = pd.read_csv(data_file("obd_random_men.csv"))
    log = LoggedFeedback.of(
        np.zeros((len(frame), 1)), frame["click"], frame["item_id"], propensity=frame["propensity_score"]
    )
    found = {one.kind: one.sentence for one in screen(log)}
    assert (
        "only 46 of 10,000 outcomes are other than 0, and 34 of the 34 actions have fewer than 10"
        in found["few events"]
    )
    report = overlap_of(CrossFit().run(log, "ipw"), np.zeros((len(log), 34)), None)
    assert "34 of the 34 actions have fewer than 10 rare events, of 46 in all, and 9 have none" in report.reasons()
