"""Bad input gets a clear error before any work begins, and a fitted policy stays as it was.

A message says what is wrong, where and how much of it. Each table below has a row a mistake: its name, what is
passed in place of good input, the error, and what the message must say (a regular expression).
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from support.calls import forbid_calls
from support.mistakes import each_mistake, replaced
from support.policies import small_net

import gbpl.nuisance.cross_fit
import gbpl.nuisance.plan
import gbpl.path.path
from gbpl import MLP, BaselineGap, Binary, FitConfig, FullVector, GBPLNet, LoggedFeedback, PerAction

ROWS = 20
RNG = np.random.default_rng(0)
X = RNG.normal(size=(ROWS, 3))
Y = RNG.normal(size=(ROWS, 2))
Y3 = RNG.normal(size=(ROWS, 3))
WEIGHT = RNG.uniform(0.5, 2.0, ROWS)
XF = pd.DataFrame(X, columns=["age", "dose", "income"])
YF = pd.DataFrame(Y, columns=["wait", "treat"])
WRONG = (TypeError, ValueError)
LOG = {"y": Y[:, 0], "action": np.array(["a", "b"] * 10), "propensity": np.full(ROWS, 0.5)}
LOG3 = {"y": Y[:, 0], "action": np.array(["a", "b", "c", "a"] * 5), "propensity": np.full(ROWS, 0.3)}
FEEDBACK = LoggedFeedback.of(X, LOG["y"], LOG["action"], propensity=0.5)


def blank(frame: pd.DataFrame, *rows: int) -> pd.DataFrame:
    """A copy with nothing in some rows."""
    out = frame.copy()
    out.iloc[list(rows)] = np.nan
    return out


class Bare:
    """Neither a surrogate nor a model."""


FIT: list[tuple[str, dict[str, Any], Any, str]] = [
    # values of X and y
    ("NaN in X", {"X": replaced(X, ((4, 1), np.nan))}, ValueError, r"X .*\b1 NaN.* column.* 1\b.* row 4\b"),
    (
        "several NaN in a frame",
        {"X": blank(XF, 3, 7)},
        ValueError,
        r"X .*\b6 NaN.*'age', 'dose', 'income'.* row 3\b",
    ),
    ("inf in X", {"X": replaced(X, ((9, 2), np.inf))}, ValueError, r"X .*\b1 inf.* column.* 2\b.* row 9\b"),
    (
        "NaN and inf in X",
        {"X": replaced(X, ((9, 2), -np.inf), ((5, 0), np.nan), ((6, 0), np.nan))},
        ValueError,
        r"X .*\b2 NaN.*\b1 inf.* column.* 0, 2\b.* row 5\b",
    ),
    (
        "null in a polars frame",
        {"X": pl.DataFrame({"age": [None, *X[1:, 0]], "dose": X[:, 1], "income": X[:, 2]})},
        ValueError,
        r"X .*\b1 NaN.*'age'.* row 0\b",
    ),
    (
        "pd.NA in a nullable column",
        {"X": XF.assign(dose=pd.array([pd.NA, *range(1, ROWS)], "Int64"))},
        ValueError,
        r"X .*\b1 NaN.*'dose'.* row 0\b",
    ),
    ("NaN in y", {"y": replaced(Y, ((2, 1), np.nan))}, ValueError, r"y .*\b1 NaN.* column.* 1\b.* row 2\b"),
    ("NaN in a y frame", {"y": YF.mask(YF > 1.0)}, ValueError, r"y .* NaN.*'(wait|treat)'.* row \d+"),
    ("inf in y", {"y": replaced(Y, ((2, 1), -np.inf))}, ValueError, r"y .*\b1 inf.* column.* 1\b.* row 2\b"),
    ("NaN in the gap", {"y": None, "outcome_gap": replaced(Y[:, 0], (11, np.nan))}, ValueError, r"1 NaN.* row 11\b"),
    # shapes
    ("1-D X", {"X": X[:, 0]}, ValueError, r"Expected 2D array, got 1D array.*[\s\S]*Reshape your data"),
    ("3-D X", {"X": X[:, :, None]}, ValueError, r"X.* (3|dim 3)|dim 3"),
    ("X a number", {"X": 3.0}, ValueError, r"Expected 2D array"),
    ("X without columns", {"X": X[:, :0]}, ValueError, r"0 feature\(s\)"),
    ("X without rows", {"X": X[:0], "y": Y[:0]}, ValueError, r"0 sample\(s\)"),
    ("sparse X", {"X": sparse.csr_array(X)}, TypeError, r"[Ss]parse"),
    ("3-D y", {"y": Y[:, :, None]}, ValueError, r"y .*\(20, 2, 1\)"),
    ("0-D y", {"y": 1.0}, WRONG, r"y|array"),
    ("y of no columns", {"y": Y[:, :0]}, ValueError, r"\by\b.*(column|action)"),
    ("y missing", {"y": None}, ValueError, r"y .*None"),
    ("y shorter than X", {"y": Y[:-1]}, ValueError, r"X and y .*\b20 and 19\b"),
    ("gap longer than X", {"y": None, "outcome_gap": np.zeros(ROWS + 1)}, ValueError, r"gap .*20 rows.*\(21,\)"),
    ("one row", {"X": X[:1], "y": Y[:1]}, ValueError, r"1 sample\(s\)"),
    # what is not a number
    (
        "strings in a pandas column",
        {"X": XF.assign(city=["a", "b"] * 10, arm="c")},
        ValueError,
        r"X .*\b2 column.*not numbers.*'city', 'arm'",
    ),
    ("objects in a pandas column", {"X": XF.astype({"dose": object})}, ValueError, r"X .*not numbers.*'dose'"),
    ("dates", {"X": XF.assign(day=pd.date_range("2020", periods=ROWS))}, ValueError, r"X .*not numbers.*'day'"),
    ("categories", {"X": XF.assign(arm=pd.Categorical(["a", "b"] * 10))}, ValueError, r"X .*not numbers.*'arm'"),
    (
        "strings in a polars column",
        {"X": pl.DataFrame({"age": X[:, 0], "city": ["a", "b"] * 10})},
        ValueError,
        r"X .*\b1 column.*not numbers.*'city'",
    ),
    ("strings in y", {"y": YF.assign(treat="good")}, ValueError, r"y .*\b1 column.*not numbers.*'treat'"),
    (
        "strings in a polars y",
        {"y": pl.DataFrame({"wait": Y[:, 0], "treat": ["a", "b"] * 10})},
        ValueError,
        r"y .*not numbers.*'treat'",
    ),
    (
        "column names of two kinds",
        {"X": XF.rename(columns={"age": 7})},
        TypeError,
        r"[Ff]eature names are only supported if all input features have string names",
    ),
    # zeta
    ("zeta 0", {"zeta": 0.0}, ValueError, r"zeta .*> 0.* 0\.0"),
    ("zeta negative", {"zeta": -1.0}, ValueError, r"zeta .*> 0.*-1"),
    ("zeta NaN", {"zeta": np.nan}, ValueError, r"zeta .*nan"),
    ("zeta inf", {"zeta": np.inf}, ValueError, r"zeta .*finite.*inf"),
    ("zeta None", {"zeta": None}, WRONG, r"zeta .*None"),
    ("zeta a wrong word", {"zeta": "best"}, ValueError, r"zeta (?=.*'auto').*'best'"),
    ("zeta empty", {"zeta": []}, ValueError, r"zeta .*\[\]"),
    ("zeta lists a negative", {"zeta": [1.0, -0.1]}, ValueError, r"zeta .*> 0.*-0\.1"),
    ("zeta lists NaN", {"zeta": [1.0, np.nan]}, ValueError, r"zeta .*nan"),
    ("zeta twice", {"zeta": [0.1, 1.0, 0.1]}, ValueError, r"zeta .*(twice|once).*\[0\.1, 1\.0, 0\.1\]"),
    ("zeta lists words", {"zeta": ["auto", 1.0]}, WRONG, r"zeta .*auto"),
    ("zeta a table", {"zeta": [[1.0, 2.0], [3.0, 4.0]]}, WRONG, r"zeta "),
    # eta, prior_sd, validation_fraction
    ("eta 0", {"eta": 0.0}, ValueError, r"eta .*> 0.* 0\.0"),
    ("eta negative", {"eta": -2.0}, ValueError, r"eta .*> 0.*-2"),
    ("eta NaN", {"eta": np.nan}, ValueError, r"eta .*nan"),
    ("eta inf", {"eta": np.inf}, ValueError, r"eta .*inf"),
    ("eta a wrong word", {"eta": "best"}, ValueError, r"eta (?=.*'auto').*'best'"),
    ("eta None", {"eta": None}, WRONG, r"eta .*None"),
    ("eta a list", {"eta": [1.0, 2.0]}, WRONG, r"eta .*\[1\.0, 2\.0\]"),
    ("prior_sd 0", {"prior_sd": 0.0}, ValueError, r"prior_sd .*> 0.* 0\.0"),
    ("prior_sd negative", {"prior_sd": -1.0}, ValueError, r"prior_sd .*-1"),
    ("prior_sd NaN", {"prior_sd": np.nan}, ValueError, r"prior_sd .*nan"),
    ("prior_sd inf", {"prior_sd": np.inf}, ValueError, r"prior_sd .*inf"),
    ("prior_sd a word", {"prior_sd": "auto"}, WRONG, r"prior_sd .*auto"),
    ("validation_fraction 0", {"committee": None, "validation_fraction": 0.0}, ValueError, r"validation_fraction .*0"),
    ("validation_fraction 1", {"committee": None, "validation_fraction": 1.0}, ValueError, r"validation_fraction .*1"),
    ("validation_fraction NaN", {"validation_fraction": np.nan}, ValueError, r"validation_fraction .*nan"),
    ("validation_fraction a word", {"validation_fraction": "half"}, WRONG, r"validation_fraction .*half"),
    # committee and folds
    ("committee 1", {"committee": 1}, ValueError, r"committee .*>= 2.* 1\b"),
    ("committee 0", {"committee": 0}, ValueError, r"committee .*>= 2.* 0\b"),
    ("committee negative", {"committee": -3}, ValueError, r"committee .*-3"),
    ("committee 2.5", {"committee": 2.5}, ValueError, r"committee .*whole number.*2\.5"),
    ("committee True", {"committee": True}, ValueError, r"committee .*True"),
    ("committee a word", {"committee": "auto"}, ValueError, r"committee .*'auto'"),
    ("too few rows for the folds", {"committee": 11}, ValueError, r"too few rows.*20.*committee=11.*22"),
    (
        "too few rows left by zero weights",
        {"committee": 5, "sample_weight": replaced(WEIGHT, (slice(0, 12), 0.0))},
        ValueError,
        r"too few rows.*8.*committee=5.*10",
    ),
    (
        "one row left by zero weights",
        {"committee": None, "sample_weight": replaced(np.zeros(ROWS), (3, 1.0))},
        ValueError,
        r"too few rows.*1\b",
    ),
    # surrogate, model, device, fit_config, random_state
    ("surrogate a wrong word", {"surrogate": "best"}, ValueError, r"surrogate .*'binary', 'gap', 'full'.*'best'"),
    ("surrogate a number", {"surrogate": 3}, WRONG, r"surrogate .*3"),
    ("surrogate None", {"surrogate": None}, WRONG, r"surrogate .*None"),
    ("surrogate something else", {"surrogate": Bare()}, WRONG, r"surrogate .*Bare"),
    ("surrogate a class", {"surrogate": Binary}, WRONG, r"surrogate .*Binary"),
    ("binary for three actions", {"surrogate": "binary", "y": Y3}, ValueError, r"Binary is for 2 actions.*y has 3"),
    ("Binary() for three actions", {"surrogate": Binary(), "y": Y3}, ValueError, r"Binary is for 2 actions.*y has 3"),
    ("four for two actions", {"surrogate": FullVector(4)}, ValueError, r"FullVector is for 4 actions.*y has 2"),
    ("three for the gap", {"surrogate": BaselineGap(3), "y": Y}, ValueError, r"BaselineGap .* 3 .*y has 2"),
    ("model a word", {"model": "mlp"}, TypeError, r"model .*'mlp'"),
    ("model a number", {"model": 3}, TypeError, r"model .*3"),
    ("model something else", {"model": Bare()}, TypeError, r"model .*Bare"),
    ("model a class", {"model": MLP}, TypeError, r"model .*MLP"),
    ("device a wrong word", {"device": "abacus"}, ValueError, r"device .*'auto', 'cpu' or 'gpu'.*'abacus'"),
    ("device a number", {"device": 3}, WRONG, r"device .*3"),
    ("fit_config a dict", {"fit_config": {"max_epochs": 2}}, TypeError, r"fit_config .*FitConfig.*max_epochs"),
    ("fit_config the class", {"fit_config": FitConfig}, TypeError, r"fit_config .*FitConfig"),
    ("random_state a word", {"random_state": "seed"}, ValueError, r"'seed' cannot be used to seed"),
    # sample_weight
    ("weight negative", {"sample_weight": replaced(WEIGHT, (3, -1.0))}, ValueError, r"sample_weight is -1 in row 3; "),
    ("weight NaN", {"sample_weight": replaced(WEIGHT, (3, np.nan))}, ValueError, r"sample_weight .*1 NaN.* row 3\b"),
    ("weight inf", {"sample_weight": replaced(WEIGHT, (3, np.inf))}, ValueError, r"sample_weight .*1 inf.* row 3\b"),
    ("weights too few", {"sample_weight": WEIGHT[:-1]}, ValueError, r"sample_weight .*\b20 rows.*\(19,\)"),
    ("weights a table", {"sample_weight": np.ones((ROWS, 2))}, ValueError, r"sample_weight .*\(20, 2\)"),
    ("weights all zero", {"sample_weight": np.zeros(ROWS)}, ValueError, r"sample_weight is zero in every row"),
    ("weights words", {"sample_weight": ["a"] * ROWS}, WRONG, r"sample_weight "),
    # actions
    ("actions too few", {"actions": ["wait"]}, ValueError, r"actions .*\b2 actions.*\['wait'\]"),
    ("actions too many", {"actions": ["a", "b", "c"]}, ValueError, r"actions .*\b2 actions.* 3\b"),
    ("actions none", {"actions": []}, ValueError, r"actions .*\b2 actions.* 0\b"),
    ("actions twice", {"actions": ["a", "a"]}, ValueError, r"actions must differ.*\['a', 'a'\]"),
    ("actions a number", {"actions": 2}, WRONG, r"actions "),
    # what goes with logged feedback needs the action
    ("propensity alone", {"propensity": 0.5}, ValueError, r"propensity .*without action; give the action taken"),
    ("controls alone", {"controls": X[:, :1]}, ValueError, r"controls .*without action; give the action taken"),
    ("outcomes of both with an action", {**LOG, "y": Y}, ValueError, r"y must have one number .*\(20, 2\)"),
    ("an action and no outcome", {**LOG, "y": None}, ValueError, r"y .*None: the outcome of the action taken"),
    *(
        (f"a LoggedFeedback and {name}", {"X": FEEDBACK, "y": None, name: part}, ValueError, r"LoggedFeedback.* alone")
        for name, part in {
            **LOG, "controls": X[:, :1], "cost": {"a": 1.0}, "sample_weight": WEIGHT, "groups": np.arange(ROWS),
        }.items()
    ),
    (
        "other actions than the LoggedFeedback's",
        {"X": FEEDBACK, "y": None, "actions": ["b", "a"]},
        ValueError,
        r"actions is \['b', 'a'\].*\['a', 'b'\]",
    ),
    ("clip above 1/3 of three actions", {**LOG3, "clip": 0.4}, ValueError, r"clip .*below 1/3.* 0\.4; try 0\.00666667"),
]  # fmt: skip

# Of logged feedback, and refused without any too: what is wrong is wrong before the data are looked at.
CONSTANTS: list[tuple[str, dict[str, Any], Any, str]] = [
    ("pseudo_outcome x", {"pseudo_outcome": "x"}, ValueError, r"pseudo_outcome .*dr, ipw, centered_ipw, dm, got 'x'"),
    ("pseudo_outcome None", {"pseudo_outcome": None}, ValueError, r"pseudo_outcome .*dr, ipw.*got None"),
    ("correction 2", {"correction": 2}, ValueError, r"correction .*\[0, 1\], got 2; try 1\.0"),
    ("correction negative", {"correction": -0.1}, ValueError, r"correction .*\[0, 1\], got -0\.1; try"),
    ("correction NaN", {"correction": np.nan}, ValueError, r"correction .*nan; try"),
    ("correction None", {"correction": None}, ValueError, r"correction .*'auto'.*None; try"),
    ("correction a wrong word", {"correction": "full"}, ValueError, r"correction .*'auto'.*'full'; try"),
    ("correction a list", {"correction": [1.0, 0.0]}, ValueError, r"correction .*\[1\.0, 0\.0\]; try"),
    *(
        (
            f"correction of {name}",
            {"correction": 0.5, "pseudo_outcome": name},
            ValueError,
            rf"correction is 0\.5, but pseudo_outcome='{name}' has none; leave it at 'auto', or .*'dr'",
        )
        for name in ("ipw", "centered_ipw", "dm")
    ),
    ("clip 0.7", {"clip": 0.7}, ValueError, r"clip .*\[0, 0\.5\), got 0\.7; try 0\.01"),
    ("clip 0.5", {"clip": 0.5}, ValueError, r"clip .*\[0, 0\.5\), got 0\.5; try 0\.01"),
    ("clip -1", {"clip": -1}, ValueError, r"clip .*\[0, 0\.5\), got -1; try 0\.01"),
    ("clip NaN", {"clip": np.nan}, ValueError, r"clip .*nan; try 0\.01"),
    ("clip None", {"clip": None}, ValueError, r"clip .*'auto'.*None; try 0\.01"),
    ("clip a wrong word", {"clip": "none"}, ValueError, r"clip .*'auto'.*'none'; try 0\.01"),
    ("nuisance_folds 1", {"nuisance_folds": 1}, ValueError, r"nuisance.folds .*>= 2, got 1; try 5"),
    ("nuisance_folds 2.0", {"nuisance_folds": 2.0}, ValueError, r"nuisance.folds .*whole number.*2\.0; try 5"),
    ("nuisance_folds True", {"nuisance_folds": True}, ValueError, r"nuisance.folds .*True; try 5"),
    ("nuisance_folds None", {"nuisance_folds": None}, ValueError, r"nuisance.folds .*None; try 5"),
    ("nuisance_repeats 0", {"nuisance_repeats": 0}, ValueError, r"nuisance.repeats .*>= 1, got 0; try 1"),
    ("nuisance_repeats 1.5", {"nuisance_repeats": 1.5}, ValueError, r"nuisance.repeats .*whole number.*1\.5; try 1"),
    ("outcome_model a word", {"outcome_model": "forest"}, TypeError, r"model .*gbpl\.MLP\(\).*got 'forest'"),
    ("outcome_model a number", {"outcome_model": 3}, TypeError, r"model .*gbpl\.MLP\(\).*got 3"),
    ("outcome_model something else", {"outcome_model": Bare()}, TypeError, r"model .*gbpl\.MLP\(\).*Bare"),
    *(
        (f"outcome_model {kind.__name__}", {"outcome_model": kind}, TypeError, rf"class {kind.__name__}; add brackets")
        for kind in (MLP, PerAction, Ridge)
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def fitted() -> GBPLNet:
    """A policy fitted to frames, which no test changes."""
    return small_net().fit(XF, YF)


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, cross_fit = gbpl.nuisance.plan, gbpl.nuisance.cross_fit
    forbid_calls(monkeypatch, (gbpl.path.path, "fit_stacks"), (plan, "fit_stacks"), (cross_fit, "fitted"))


def same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, int | float | str) and one == other)


def refuses(policy: GBPLNet, given: dict[str, Any], error: Any, message: str) -> None:
    """The fit fails as it should, and leaves every attribute as it was."""
    data = {"X": X, "y": Y, **given}
    policy.set_params(**{name: data.pop(name) for name in given if name in policy.get_params(deep=False)})
    before = dict(vars(policy))
    with pytest.raises(error, match=message):
        policy.fit(**data)
    assert vars(policy).keys() == before.keys()
    changed = [name for name, value in before.items() if not same(value, vars(policy)[name])]
    assert not changed, f"the failed fit changed {changed}"


@pytest.mark.usefixtures("no_work")
@each_mistake(FIT)
def test_fit_refuses(fitted: GBPLNet, given: dict[str, Any], error: Any, message: str) -> None:
    refuses(small_net(), given, error, message)
    policy = copy.deepcopy(fitted)
    refuses(policy, given, error, message)
    assert_array_equal(policy.predict(XF), fitted.predict(XF))
    assert_array_equal(policy.predict_proba(XF), fitted.predict_proba(XF))


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("data", [{}, LOG, LOG3], ids=["full", "logged", "three actions"])
@each_mistake(CONSTANTS)
def test_fit_refuses_constants_of_logged_feedback(
    given: dict[str, Any], error: Any, message: str, data: dict[str, Any]
) -> None:
    refuses(small_net(), {**data, **given}, error, message)


@pytest.mark.parametrize("clip", [0.4, 0.02])
def test_good_input_reaches_the_work(no_work: None, clip: float) -> None:
    """So that what is refused above is refused for its own fault."""
    for data in (LOG, {**LOG, "controls": X[:, :1]}, {} if clip == 0.4 else LOG3):
        with pytest.raises(pytest.fail.Exception, match="work began"):
            small_net(clip=clip, nuisance_folds=2, committee=2).fit(**{"X": X, "y": Y, **data})
    with pytest.raises(pytest.fail.Exception, match="work began"):
        small_net(actions=["a", "b"], nuisance_folds=2).fit(FEEDBACK)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize(
    "given", [{"X": X[:, 0]}, {"zeta": -1.0}, {"surrogate": "best"}], ids=["X", "zeta", "surrogate"]
)
def test_a_refused_fit_draws_no_new_seed(fitted: GBPLNet, given: dict[str, Any]) -> None:
    policy = copy.deepcopy(fitted).set_params(random_state=None)
    refuses(policy, given, ValueError, r"2D|zeta|surrogate")


def test_a_fit_that_breaks_off_changes_nothing(fitted: GBPLNet, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gbpl.path.path, "fit_stacks", broken)
    policy = copy.deepcopy(fitted)
    before = dict(vars(policy))
    with pytest.raises(KeyboardInterrupt):
        policy.fit(X[:, :2], Y3)
    assert all(same(value, vars(policy)[name]) for name, value in before.items())
    assert_array_equal(policy.predict_proba(XF), fitted.predict_proba(XF))


# -- deciding ---------------------------------------------------------------------------------------------

METHODS = ("predict", "predict_proba", "decision_function")

DECIDE: list[tuple[str, dict[str, Any], Any, str]] = [
    ("a column missing", {"X": XF[["age", "dose"]]}, ValueError, r"feature names[\s\S]*missing[\s\S]*income"),
    ("a column unknown", {"X": XF.assign(height=1.0)}, ValueError, r"feature names[\s\S]*unseen[\s\S]*height"),
    ("a column renamed", {"X": XF.rename(columns={"dose": "DOSE"})}, ValueError, r"DOSE[\s\S]*dose"),
    ("columns in another order", {"X": XF[["dose", "age", "income"]]}, ValueError, r"feature names[\s\S]*same order"),
    (
        "polars columns in another order",
        {"X": pl.DataFrame({"dose": X[:, 1], "age": X[:, 0], "income": X[:, 2]})},
        ValueError,
        r"feature names[\s\S]*same order",
    ),
    ("NaN", {"X": blank(XF, 6)}, ValueError, r"X .*\b3 NaN.*'age', 'dose', 'income'.* row 6\b"),
    ("inf", {"X": XF.assign(dose=np.inf)}, ValueError, r"X .*\b20 inf.*'dose'.* row 0\b"),
    ("strings", {"X": XF.assign(dose="low")}, ValueError, r"X .*not numbers.*'dose'"),
    ("no rows", {"X": XF.iloc[:0]}, ValueError, r"0 sample\(s\)"),
]

DECIDE_ARRAYS: list[tuple[str, dict[str, Any], Any, str]] = [
    ("too few features", {"X": X[:, :2]}, ValueError, r"X has 2 features, but GBPLNet is expecting 3"),
    ("too many features", {"X": np.hstack([X, X])}, ValueError, r"X has 6 features, but GBPLNet is expecting 3"),
    ("one row as a vector", {"X": X[0]}, ValueError, r"Reshape your data"),
    ("three dimensions", {"X": X[:, :, None]}, ValueError, r"dim 3"),
    ("NaN in an array", {"X": replaced(X, ((6, 1), np.nan))}, ValueError, r"X .*\b1 NaN.* column.* 1\b.* row 6\b"),
    ("sparse", {"X": sparse.csr_array(X)}, TypeError, r"[Ss]parse"),
]


@pytest.fixture(scope="module")
def fitted_to_arrays() -> GBPLNet:
    return small_net().fit(X, Y)


@pytest.mark.parametrize("method", METHODS)
@each_mistake(DECIDE)
def test_a_policy_of_frames_refuses(
    fitted: GBPLNet, method: str, given: dict[str, Any], error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        getattr(fitted, method)(given["X"])


@pytest.mark.parametrize("method", METHODS)
@each_mistake(DECIDE_ARRAYS)
def test_a_policy_of_arrays_refuses(
    fitted_to_arrays: GBPLNet, method: str, given: dict[str, Any], error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        getattr(fitted_to_arrays, method)(given["X"])


SCORE: list[tuple[str, dict[str, Any], Any, str]] = [
    ("columns in another order", {"X": XF[["dose", "age", "income"]]}, ValueError, r"same order"),
    ("NaN in X", {"X": blank(XF, 6)}, ValueError, r"X .*\b3 NaN"),
    ("NaN in y", {"y": replaced(Y, ((2, 1), np.nan))}, ValueError, r"y .*\b1 NaN.* row 2\b"),
    ("three actions", {"y": Y3}, ValueError, r"3"),
    ("y shorter than X", {"y": Y[:-1]}, ValueError, r"X and y .*\b20 and 19\b"),
    ("y missing", {"y": None}, ValueError, r"y"),
    ("actions unknown", {"y": YF.rename(columns={"treat": "cut"})}, ValueError, r"cut"),
    (
        "weight negative",
        {"sample_weight": replaced(WEIGHT, (3, -1.0))},
        ValueError,
        r"sample_weight is -1 in row 3; ",
    ),
    ("weight NaN", {"sample_weight": replaced(WEIGHT, (3, np.nan))}, ValueError, r"sample_weight .*1 NaN"),
    ("weights too few", {"sample_weight": WEIGHT[:-1]}, ValueError, r"sample_weight .*\b20 rows.*\(19,\)"),
    ("weights all zero", {"sample_weight": np.zeros(ROWS)}, ValueError, r"sample_weight is zero in every row"),
]


@each_mistake(SCORE)
def test_score_refuses(fitted: GBPLNet, given: dict[str, Any], error: Any, message: str) -> None:
    data = {"X": XF, "y": Y, "sample_weight": None, **given}
    with pytest.raises(error, match=message):
        fitted.score(data["X"], data["y"], sample_weight=data["sample_weight"])


@pytest.mark.parametrize("method", METHODS)
def test_deciding_before_fit(method: str) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(small_net(), method)(X)


def test_scoring_before_fit() -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        small_net().score(X, Y)


# -- configuration ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"learning_rate": 0.0}, r"learning_rate .*> 0.*0"),
        ({"learning_rate": np.nan}, r"learning_rate .*nan"),
        ({"clip_norm": -1.0}, r"clip_norm .*-1"),
        ({"max_epochs": 0}, r"max_epochs .*>= 1.*0"),
        ({"max_epochs": 2.5}, r"max_epochs .*whole number.*2\.5"),
        ({"patience": 0}, r"patience .*>= 1.*0"),
        ({"epoch_rows": 0}, r"epoch_rows .*>= 1.*0"),
        ({"batch_size": 0}, r"batch_size .*>= 1.*0"),
        ({"batch_size": 2.5}, r"batch_size .*2\.5"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(f"{k} {v}" for k, v in value.items()),
)
def test_a_configuration_refuses(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FitConfig(**given)
