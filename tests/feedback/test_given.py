"""What users hand over that numpy would misread is refused by name: before, each of these was learned from."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from support.mistakes import each_mistake
from support.policies import small_net

import gbpl
from gbpl import FullFeedback, LoggedFeedback
from gbpl.tables.frames import TableError

N = 60
rng = np.random.default_rng(0)
X = pd.DataFrame(rng.normal(size=(N, 2)), columns=["a", "b"])
A, Y = rng.integers(0, 2, N), rng.normal(size=N)
DATES = np.datetime64("2020-01-01", "D") + np.arange(N)
SHUFFLED = rng.permutation(N)
MASK = np.arange(N) == 7


def masked(values: np.ndarray) -> np.ma.MaskedArray:
    return np.ma.masked_array(values, mask=MASK if values.ndim == 1 else MASK[:, None] & np.ones(values.shape, bool))


def households() -> np.ndarray:
    return np.where(MASK, np.nan, np.arange(N) // 4)


MISTAKES: list[tuple[str, dict[str, Any], Any, str]] = [
    ("shuffled y", {"y": pd.Series(Y).iloc[SHUFFLED]}, TableError, "y has the index of X in .*give y.loc[X.index]"),
    ("shuffled action", {"action": pd.Series(A).iloc[SHUFFLED]}, TableError, "action has the index of X in another"),
    ("shuffled X", {"X": X.iloc[SHUFFLED], "y": pd.Series(Y)}, TableError, "y has the index of X in another order"),
    ("other labels", {"propensity": pd.DataFrame({"x": [0.5] * N, "y": [0.5] * N})}, TableError,
     "a column of propensity names the action 'x', and the actions are 0, 1"),
    ("masked X", {"X": masked(X.to_numpy())}, TableError, "X has 2 masked cell(s), first in row 7"),
    ("masked y", {"y": masked(Y)}, TableError, "y has 1 masked cell(s), first in row 7"),
    ("masked action", {"action": masked(A)}, TableError, "action has 1 masked cell(s)"),
    ("masked weight", {"sample_weight": masked(np.ones(N))}, TableError, "sample_weight has 1 masked cell(s)"),
    ("dates as features", {"X": np.column_stack([DATES, DATES])}, TableError, "X holds dates or times, not numbers"),
    ("dates as outcomes", {"y": pd.Series(DATES)}, TableError, "y holds dates or times, not numbers"),
    ("polars dates", {"y": pl.Series(DATES)}, TableError, "y holds dates or times, not numbers"),
    ("spans", {"y": DATES - DATES[0]}, TableError, "y holds dates or times"),
    ("dates as actions", {"action": DATES[A]}, TableError, "action holds dates or times, not labels"),
    ("listed dates", {"action": DATES[A].astype(object).tolist()}, TableError, "has values of type date"),
    ("unicode", {"action": np.where(A, "caf\u00e9", "cafe\u0301")}, TableError, "look like one label spelled twice"),
    ("blank", {"action": np.where(A, "a b", "a\u00a0b")}, TableError, "look like one label spelled twice"),
    ("blanks", {"action": np.where(A, "a b", "a  b")}, TableError, "look like one label spelled twice"),
    ("nan group", {"groups": households()}, TableError, "groups is missing in 1 row(s), first in row 7"),
    ("dict", {"X": {"a": [1.0] * N}}, TableError, "X is a dict; give a frame, such as pandas.DataFrame(X)"),
    ("lazy", {"X": pl.DataFrame(X.to_dict("list")).lazy()}, TableError, "X is a lazy frame.*give X.collect()"),
    ("large outcomes", {"y": Y * 1e160}, TableError, "y goes up to .*e+160 in row .*give it in larger units"),
    ("small outcomes", {"y": Y * 1e-160}, TableError, "y goes up to .*e-160 in row .*give it in smaller units"),
    ("large features", {"X": X * [1.0, 1e160]}, TableError, "column 'b' of X goes up to"),
    ("weights", {"sample_weight": np.where(A, 1e300, 1e-308)}, TableError, "sample_weight runs from 1e-308 to 1e+300"),
]  # fmt: skip


@each_mistake(MISTAKES)
def test_what_would_be_misread_is_refused(given: dict[str, Any], error: Any, message: str) -> None:
    good: dict[str, Any] = {"X": X, "y": Y, "action": A, "propensity": 0.5}
    LoggedFeedback.of(**good)
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(error, match=pattern):
        LoggedFeedback.of(**(good | given))
    with pytest.raises(error, match=pattern):
        small_net().fit(**(good | given))


def test_what_is_in_order_is_taken() -> None:
    labels = pd.DataFrame({"1": np.full(N, 0.3), "0": np.full(N, 0.7)})
    assert_array_equal(LoggedFeedback.of(X, Y, A, propensity=labels).propensity[0], [0.7, 0.3])
    plain = pd.DataFrame(np.tile([0.6, 0.4], (N, 1)))
    words = LoggedFeedback.of(X, Y, np.where(A, "b", "a"), propensity=plain)
    assert_array_equal(words.propensity[0], [0.6, 0.4])
    part = X.iloc[:40].set_index(np.arange(20, 60))
    assert len(LoggedFeedback.of(part, pd.Series(Y[:40]), A[:40], propensity=0.5)) == 40, "an index of its own"
    table = pd.DataFrame({"a": np.zeros(N), "b": np.ones(N)})
    assert_array_equal(FullFeedback.of(X, table, actions=["b", "a"]).outcomes[0], [1.0, 0.0])
    assert_array_equal(FullFeedback.of(X, table, actions=["no", "yes"]).outcomes[0], [0.0, 1.0])


@pytest.mark.parametrize("scale", [1e300, 1e-308])
def test_only_ratios_of_weights_matter_however_large_they_are(scale: float) -> None:
    weight = rng.integers(1, 9, N).astype(float)
    usual, made = (
        LoggedFeedback.of(X, Y, A, propensity=0.5, sample_weight=w).weights for w in (weight, weight * scale)
    )
    np.testing.assert_allclose(made / made.max(), usual / usual.max(), rtol=1e-12)
    assert np.isfinite(made @ made)
    assert (made @ made) > 0.0


def test_tables_are_checked_alike() -> None:
    table = {"x": X["a"].tolist(), "arm": A.tolist(), "y": (Y * 1e160).tolist()}
    with pytest.raises(TableError, match="outcome 'y' goes up to"):
        gbpl.learn(table, outcome="y", action="arm", propensity=0.5)
    table = {"x": (X["a"] * 1e160).tolist(), "arm": A.tolist(), "y": Y.tolist()}
    with pytest.raises(TableError, match="feature 'x' goes up to"):
        gbpl.learn(table, outcome="y", action="arm", propensity=0.5)
