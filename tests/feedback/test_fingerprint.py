"""Rows that a policy learned from are noticed, by many of them and never by one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.cli import changed, people, quick_learn, run, write
from support.policies import small_net

import gbpl
from gbpl import FullFeedback, LoggedFeedback
from gbpl.feedback.fingerprint import Fingerprint
from gbpl.study.compare import compare_policies, evaluate_policy


def log(rows: int, seed: int, *, discrete: bool = False) -> LoggedFeedback:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 4, size=(rows, 3)).astype(float) if discrete else rng.normal(size=(rows, 3))
    y = rng.integers(0, 2, rows).astype(float) if discrete else rng.normal(size=rows)
    return LoggedFeedback.of(x, y, rng.integers(0, 2, rows), propensity=0.5)


@pytest.mark.parametrize("rows", [100, 3000])
@pytest.mark.parametrize("share", [0.3, 0.7, 1.0])
def test_the_share_of_seen_rows_is_estimated(rows: int, share: float) -> None:
    known = log(rows, 0)
    mark = Fingerprint.from_json(json.loads(json.dumps(Fingerprint.of(known).to_json())))
    old = round(share * rows)
    fresh = log(rows - old, 1) if old < rows else None
    order = np.random.default_rng(2).permutation(rows)
    x = np.concatenate([known.x[:old], *([] if fresh is None else [fresh.x])])[order]
    y = np.concatenate([known.outcome[:old], *([] if fresh is None else [fresh.outcome])])[order]
    a = np.concatenate([known.action[:old], *([] if fresh is None else [fresh.action])])[order]
    found = mark.seen(LoggedFeedback.of(x, y, a, propensity=0.5))
    error = 2.0 * np.sqrt(share * (1 - share) / rows + 0.25 / rows)  # of a share of matches, half of which are chance
    assert abs(found - share) < 4.0 * error or (found == 0.0 and share < 8.0 * error)
    assert share < 1.0 or found == 1.0


@pytest.mark.parametrize("discrete", [False, True], ids=["continuous", "discrete"])
def test_new_rows_raise_no_alarm(discrete: bool) -> None:
    """40 pairs of tables; rows of 64 cells and two outcomes equal each other in nearly every row."""
    marks = [Fingerprint.of(log(400, 2 * seed, discrete=discrete)) for seed in range(40)]
    found = [mark.seen(log(700, 2 * seed + 1, discrete=discrete)) for seed, mark in enumerate(marks)]
    assert found == [0.0] * 40
    same = log(400, 0, discrete=True)
    assert Fingerprint.of(same).seen(same.take(np.arange(400)[::-1])) == 1.0, "the whole table is known by its sum"


def test_of_a_single_row_nothing_can_be_told() -> None:
    """About half of all strangers match, so that a match proves nothing."""
    mark = Fingerprint.of(log(5000, 0))
    filled = np.unpackbits(mark.bits, count=mark.size).mean()
    assert 0.45 < filled < 0.55
    assert len(json.dumps(mark.to_json())) < 5000 / 8 / np.log(2) * 4 / 3 + 250
    assert mark.seen(log(5000, 0).take(np.arange(1))) == 0.0


def test_of_many_rows_a_sample_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gbpl.feedback.fingerprint.MOST_ROWS", 1000)
    known = log(8000, 0)
    mark = Fingerprint.of(known)
    assert mark.share == 0.125
    found = mark.seen(known.take(np.arange(4000)))
    error = np.sqrt(1.0 / 4000) / 0.125
    assert abs(found - 1.0) < 4.0 * error
    assert mark.seen(log(4000, 1)) == 0.0


@pytest.mark.parametrize(
    "change", [{"bits": "!"}, {"bits": "AA=="}, {"size": -1}, {"rows": 0}, {"share": 2.0}, {"salt": 2**70}, {"x": 1}]
)
def test_a_forged_fingerprint_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="fingerprint of the rows"):
        Fingerprint.from_json(Fingerprint.of(log(50, 0)).to_json() | change)


def test_evaluate_and_compare_say_that_the_rows_were_learned_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = people(200)
    roles: dict[str, Any] = {"outcome": "earnings", "action": "arm", "propensity": 0.5, "features": ["age", "sex"]}
    study = quick_learn(table, **roles)
    study.save(tmp_path / "p.gbpl")
    saved = gbpl.load(tmp_path / "p.gbpl")
    for name, data, said in (
        ("train", table, "beware: these are the rows the policy learned from: their value is too good; use new rows"),
        ("half", {k: v[::2] for k, v in table.items()}, "rows the policy learned from"),
        ("new", people(200, seed=1), None),
    ):
        file = write(tmp_path / f"{name}.csv", data)
        done = run(capsys, "evaluate", tmp_path / "p.gbpl", file, "--estimator", "ipw")
        assert done.code == 0, done.err
        assert (said in done.out) if said else ("learned from" not in done.out)
        assert (evaluate_policy(saved, data, estimator="ipw").warning is None) == (said is None)
        both = compare_policies(saved, saved, data, estimator="ipw")
        assert (both.warning is None) == (said is None)
        assert said is None or "the second policy: these are" in str(both.to_dict()["warning"])
        done = run(capsys, "compare", *[tmp_path / "p.gbpl"] * 2, file, "--estimator", "ipw")
        assert ("learned from" in done.out) == (said is not None)
    cells = changed(table, age=np.asarray(table["age"], np.float32), earnings=np.asarray(table["earnings"], np.float32))
    assert evaluate_policy(saved, cells, estimator="ipw").warning is not None, "in another precision"


def test_value_notices_rows_of_the_fit_after_a_pickle_and_in_part() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = np.column_stack([np.zeros(200), x[:, 0] + rng.normal(size=200)])
    policy = small_net().fit(x, y)
    with pytest.warns(UserWarning, match="these are in part .about .* rows the policy learned from"):
        policy.value(np.concatenate([x[:120], rng.normal(size=(60, 2))]), np.concatenate([y[:120], y[:60]]))
    policy.value(rng.normal(size=(100, 2)), y[:100])
    rows = LoggedFeedback.of(x, y[:, 1], np.arange(200) % 2, propensity=0.5)
    with pytest.warns(UserWarning, match="these are the rows the policy learned from"):
        gbpl.policy_value(policy.frozen(), rows, estimator="ipw")
    assert Fingerprint.of(FullFeedback.of(x, y)).seen(FullFeedback.of(x[:150], y[:150])) > 0.7
