"""Who gets what: bins and tree partition the rows, and their words are true of exactly the rows they are of."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

from gbpl import Encoder
from gbpl.study.imitation import imitation
from gbpl.study.who import by_feature, review
from gbpl.tables.conditions import plainest, shown
from gbpl.tables.parts import MISSING, OTHER

N = 1200
rng = np.random.default_rng(5)


def raw_frame() -> pd.DataFrame:
    """Every kind of column there is."""
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 80, N),
            "income": rng.lognormal(8.0, 1.0, N),
            "tiny": rng.normal(size=N) * 1e-6,
            "big": rng.integers(10**9, 10**9 + 500, N) * 1000.0,
            "few": rng.integers(0, 3, N) - 1,
            "vip": rng.random(N) < 0.4,
            "maybe": pd.Series(rng.random(N) < 0.5, dtype=object),
            "sex": rng.choice(["f", "m"], N),
            "region": rng.choice(["north", "south", "east"], N),
            "a=b": rng.choice(["x=1", "y", "z"], N),
            "town": rng.choice([f"t{k}" for k in range(40)], N, p=np.r_[np.full(10, 0.095), np.full(30, 0.05 / 30)]),
        }
    )
    for name in ("income", "maybe", "region"):
        frame[name] = frame[name].mask(rng.random(N) < 0.15)
    return frame


FRAME = raw_frame()
ENCODER = Encoder.fit(FRAME)[0]
X = ENCODER.apply(FRAME)[0]
EVERY = np.ones(N, bool)


def holds(text: str, frame: pd.DataFrame, encoder: Encoder) -> np.ndarray:
    """A condition in words, read back and asked of the raw table."""
    part = max((part for part in encoder.parts if text.startswith(f"{part.name} ")), key=lambda part: len(part.name))
    column, said = frame[part.name], text.removeprefix(f"{part.name} ")
    gone = column.isna().to_numpy()
    if said == "is known":
        return ~gone
    if found := re.fullmatch("is not (.*)", said):
        if found[1] == "(other)":
            return (column.isin(part.levels) | gone).to_numpy()
        return (column != found[1]).to_numpy()
    if found := re.fullmatch("(is missing or |is known and |is )?false", said):
        false = (column == False).to_numpy(bool)  # noqa: E712
        return false | gone if found[1] == "is missing or " else false
    found = re.fullmatch(r"(is missing or |is known and )?<= (\S+)", said)
    assert found, text
    below = column.to_numpy(float) <= float(found[2].replace(",", ""))
    return below | gone if found[1] == "is missing or " else below


def check_tree(tree: dict, frame: pd.DataFrame, encoder: Encoder, given: np.ndarray) -> list[str]:
    """Walk the tree with the raw rows; every node must hold what it says."""
    nodes = {node["id"]: node for node in tree["nodes"]}
    assert [node["id"] for node in tree["nodes"]] == list(range(len(nodes)))
    seen, leaves, texts = [(0, np.ones(len(frame), bool), 0)], np.zeros(len(frame), int), []
    while seen:
        number, inside, depth = seen.pop()
        node = nodes[number]
        assert node["rows"] == inside.sum() > 0
        counts = np.bincount(given[inside])
        assert counts[node["action"]] == counts.max()
        assert_allclose(node["share"], counts.max() / inside.sum())
        assert depth <= tree["depth"]
        if node["text"] is None:
            assert node["feature"] is node["left"] is node["right"] is None
            leaves += inside
            continue
        texts.append(node["text"])
        yes = holds(node["text"], frame, encoder)
        seen += [(node["left"], inside & yes, depth + 1), (node["right"], inside & ~yes, depth + 1)]
    assert (leaves == 1).all(), "the leaves partition the rows"
    return texts


DECIDING = {
    "whole number": (lambda f: f["age"] > 44, r"age <= 44"),
    "number": (lambda f: f["tiny"] > 2e-7, r"tiny <= \S+e-07"),
    "large number": (lambda f: f["big"] > (10**9 + 250) * 1000.0, r"big <= 1,000,000,\d\d\d,?\S*"),
    "negative number": (lambda f: f["few"] > -1, r"few <= -1"),
    "number, missing on the left": (lambda f: f["income"] > 6000.0, r"income is missing or <= \S+"),
    "number, missing on the right": (lambda f: ~(f["income"] <= 1500.0), r"income is known and <= \S+"),
    "missing": (lambda f: f["income"].isna(), "income is known"),
    "boolean": (lambda f: f["vip"], "vip is false"),
    "boolean, missing": (lambda f: f["maybe"].fillna(True).astype(bool), r"maybe is (missing or|known and) false"),
    "two levels": (lambda f: f["sex"] == "m", "sex is not m"),
    "level": (lambda f: f["region"] == "south", "region is not south"),
    "no level": (lambda f: f["region"].isna(), "region is known"),
    "level and column with =": (lambda f: f["a=b"] == "x=1", "a=b is not x=1"),
    "rare levels": (lambda f: ~f["town"].isin([f"t{k}" for k in range(10)]), r"town is not \(other\)"),
}


@pytest.mark.parametrize("name", DECIDING)
def test_words_of_the_tree_are_true_of_the_rows_on_the_left(name):
    rule, expected = DECIDING[name]
    given = rule(FRAME).to_numpy(bool).astype(int)
    assert 0.02 < given.mean() < 0.98
    noisy = np.where(rng.random(N) < 0.02, 1 - given, given)
    texts = check_tree(imitation(X, ENCODER, noisy), FRAME, ENCODER, noisy)
    assert re.fullmatch(expected, texts[0]), texts
    tree = imitation(X, ENCODER, given)
    assert tree["fidelity"] > 0.97
    if name != "boolean, missing":  # there it takes two questions
        assert tree["depth"] == 1
        assert tree["nodes"][1]["share"] == tree["nodes"][2]["share"] == 1.0


def test_a_tree_of_many_actions_and_many_questions():
    given = (FRAME["age"] > 40).astype(int) + (FRAME["sex"] == "m") + ((FRAME["income"] > 3000) & (FRAME["age"] > 60))
    given = given.to_numpy(int)
    tree = imitation(X, ENCODER, given)
    texts = check_tree(tree, FRAME, ENCODER, given)
    assert tree["depth"] == 3
    assert len(texts) > 3
    assert 0.8 < tree["fidelity"] <= 1.0


def test_fidelity_is_that_of_rows_not_seen():
    """Random decisions cannot be imitated, though in the sample a tree seems to."""
    given = rng.integers(0, 2, N)
    tree = imitation(X, ENCODER, given)
    inside = sum(node["rows"] * node["share"] for node in tree["nodes"] if node["text"] is None) / N
    assert tree["fidelity"] < inside - 0.02


def test_one_action_needs_no_question():
    tree = imitation(X, ENCODER, np.full(N, 2))
    assert tree["fidelity"] is None
    node = tree["nodes"][0]
    assert (len(tree["nodes"]), node["action"], node["rows"], node["share"], tree["depth"]) == (1, 2, N, 1.0, 0)
    given = np.zeros(N, int)
    given[7] = 1  # too rare to be left out in turns
    assert imitation(X, ENCODER, given)["fidelity"] is None


def test_the_tree_counts_rows_it_did_not_grow_on(monkeypatch):
    monkeypatch.setattr("gbpl.study.imitation.TREE_ROWS", 300)
    given = (FRAME["age"] > 44).to_numpy(int)
    tree = imitation(X, ENCODER, given)
    assert tree["nodes"][0]["rows"] == N
    check_tree(tree, FRAME, ENCODER, given)


# -- by feature -----------------------------------------------------------------------------------------------------


def in_bin(label: str, column: pd.Series, labels: list[str]) -> np.ndarray:
    """The rows a bin's name speaks of."""
    gone = column.isna().to_numpy()
    if label == MISSING:
        return gone
    if label == OTHER:
        return ~column.astype(str).isin(labels).to_numpy() & ~gone
    if label in ("true", "false"):
        return (column == (label == "true")).to_numpy(bool)
    if column.dtype.kind in "if":
        numbers = column.to_numpy(float)
        if found := re.fullmatch(r"up to (\S+)", label):
            return numbers <= float(found[1].replace(",", ""))
        if found := re.fullmatch(r"above (\S+) to (\S+)", label):
            low, high = (float(part.replace(",", "")) for part in found.groups())
            return (numbers > low) & (numbers <= high)
        if found := re.fullmatch(r"above (\S+)", label):
            return numbers > float(found[1].replace(",", ""))
        return numbers == float(label.replace(",", ""))
    return (column == label).to_numpy(bool)


def test_bins_partition_the_rows_and_shares_average_to_the_overall_one():
    kept = rng.random(N) < 0.9
    given = np.where(FRAME["age"] > 50, rng.integers(0, 2, N), 2)[kept]
    deferred = rng.random(kept.sum()) < 0.3
    who = by_feature(FRAME, ENCODER, kept, given, deferred, 4)
    assert sorted(part["feature"] for part in who) == sorted(FRAME.columns)
    overall = np.bincount(given, minlength=4) / len(given)
    for part in who:
        column = FRAME.loc[kept, part["feature"]]
        labels = [one["label"] for one in part["bins"]]
        assert len(set(labels)) == len(labels) <= 10
        number = column.dtype.kind in "if"
        assert part["kind"] == ("number" if number else "category")
        rows, covered = 0, np.zeros(kept.sum(), int)
        for one in part["bins"]:
            inside = in_bin(one["label"], column, labels)
            covered += inside
            assert one["rows"] == inside.sum()
            assert_allclose(one["shares"], np.bincount(given[inside], minlength=4) / inside.sum())
            assert_allclose(one["deferred"], deferred[inside].mean())
            rows += one["rows"]
        assert (covered == 1).all(), part["feature"]
        mean = sum(one["rows"] * np.array(one["shares"]) for one in part["bins"]) / rows
        assert_allclose(mean, overall)
    assert who[0]["feature"] == "age"
    assert [part["importance"] for part in who] == sorted((part["importance"] for part in who), reverse=True)


def test_importance_is_the_share_of_variance_between_bins():
    """One for the feature that decides, exactly zero for one that is crossed with it."""
    base = np.arange(400)
    frame = pd.DataFrame(
        {
            "decides": base % 2,
            "crossed": np.array(["u", "v"])[base // 2 % 2],
            "half": np.where(base % 8 < 2, base % 2, 5),
        }
    )
    encoder = Encoder.fit(frame)[0]
    who = by_feature(frame, encoder, np.ones(400, bool), base % 2, np.zeros(400, bool), 2)
    found = {part["feature"]: part["importance"] for part in who}
    assert_allclose([found["decides"], found["crossed"]], [1.0, 0.0], atol=1e-12)
    # half: the value 0 is action 0 (50 rows of 400), 1 is action 1 (50), 5 half and half: 1/4 of the variance.
    assert_allclose(found["half"], 0.25)
    alone = by_feature(frame, encoder, np.ones(400, bool), np.zeros(400, int), np.zeros(400, bool), 2)
    assert [part["importance"] for part in alone] == [0.0] * 3


def test_many_levels_are_gathered_and_levels_named_like_ours_stay_apart():
    values = np.array(["(missing)"] * 30 + ["all"] * 30 + [None] * 40, object)
    frame = {"c": values, "d": np.repeat([f"l{k:02}" for k in range(20)], 5), "x": np.arange(100.0) % 7}
    encoder = Encoder.fit(frame)[0]
    who = {
        p["feature"]: p
        for p in by_feature(frame, encoder, np.ones(100, bool), np.zeros(100, int), np.zeros(100), 2, smallest=5)
    }
    assert [(one["label"], one["rows"]) for one in who["c"]["bins"]] == [("(missing)", 30), ("all", 30), (MISSING, 40)]
    assert [one["label"] for one in who["d"]["bins"]] == [*(f"l{k:02}" for k in range(8)), OTHER]
    assert who["d"]["bins"][-1]["rows"] == 60


@pytest.mark.parametrize(
    "values", [[1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], np.r_[np.zeros(90), np.arange(10)]]
)
def test_skewed_numbers_have_fewer_bins(values):
    frame = {"x": np.tile(values, 3), "z": np.arange(3 * len(values)) % 2}
    encoder = Encoder.fit(frame, ["x"])[0]
    given = np.arange(3 * len(values)) % 2
    (part,) = by_feature(frame, encoder, np.ones(len(given), bool), given, given > 2, 2)
    labels = [one["label"] for one in part["bins"]]
    covered = sum(in_bin(label, pd.Series(frame["x"]), labels).astype(int) for label in labels)
    assert (covered == 1).all()
    assert sum(one["rows"] for one in part["bins"]) == len(given)


def test_at_most_thirty_features_are_told():
    frame = {f"x{k}": rng.normal(size=50) for k in range(40)}
    given = rng.integers(0, 2, 50)
    who = by_feature(frame, Encoder.fit(frame)[0], np.ones(50, bool), given, given > 0, 2)
    assert len(who) == 30


# -- numbers in words -----------------------------------------------------------------------------------------------


def test_the_plainest_number_is_inside_and_short():
    for _ in range(500):
        low = float(rng.normal() * 10.0 ** rng.integers(-8, 12))
        high = low + abs(low) * float(10.0 ** -rng.integers(0, 16)) + 1e-300
        if not low < high:
            continue
        found = plainest(low, high)
        assert low <= found < high
        assert float(shown(found).replace(",", "")) == found, "read back as it is"
    assert plainest(0.0, 1.0) == 0.0
    assert plainest(1233.2, 1251.0) == 1240.0
    assert plainest(np.nextafter(1.0, 0.0), 1.0) == np.nextafter(1.0, 0.0)
    assert plainest(-1e308, 1e308) == 0.0


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.0, "0"), (1234567.0, "1,234,567"), (-1234.5, "-1,234.5"), (0.25, "0.25"), (-0.5, "-0.5"), (1e-9, "1e-09"),
     (1e20, "1e+20"), (2.0, "2"), (-0.0, "0")],
)  # fmt: skip
def test_numbers_are_written_as_one_would(number, text):
    assert shown(number) == text


# -- who is handed to a person --------------------------------------------------------------------------------------


def test_review_lists_standardized_differences():
    away = (FRAME["age"] > 60).to_numpy() & (rng.random(N) < 0.9)
    found = review(X, ENCODER, away)
    assert len(found) == 12
    assert found[0]["feature"] == "age"
    for part in found:
        j = ENCODER.names.index(part["feature"])
        a, b = X[away, j], X[~away, j]
        assert_allclose([part["deferred"], part["kept"]], [a.mean(), b.mean()])
        assert_allclose(part["difference"], (a.mean() - b.mean()) / np.sqrt((a.var() + b.var()) / 2))
        assert part["kind"] == ENCODER.kinds[j]
    sizes = [abs(part["difference"]) for part in found]
    assert sizes == sorted(sizes, reverse=True)
    assert review(X, ENCODER, ~EVERY) == review(X, ENCODER, EVERY) == []
    same = np.column_stack([np.ones(10), np.arange(10) // 5])
    encoder = Encoder.fit({"a": [1.0, 2.0] * 5, "b": [1.0, 2.0] * 5}, ["a", "b"])[0]
    told = review(same, encoder, np.arange(10) >= 5, 5)
    assert [(part["feature"], part["difference"]) for part in told] == [("b", 1.0)], "no difference, no line; no spread"
