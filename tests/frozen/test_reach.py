"""Rows that are far from all that was learned: no score is made up for them, and they are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.cli import changed, people, read, run, tiny_policy, write
from support.policies import small_net

import gbpl

TABLE = people(300)


@pytest.mark.parametrize("value", [-1.7976931348623157e308, 1e39, 3e20])
def test_a_mark_for_no_data_is_left_to_a_person_and_counted(
    value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tiny_policy(TABLE)
    policy.save(tmp_path / "p.gbpl")
    age = TABLE["age"].copy()
    age[7] = value
    new = write(tmp_path / "new.csv", changed(TABLE, age=age))
    done = run(capsys, "decide", tmp_path / "p.gbpl", new, "-o", tmp_path / "out.csv")
    assert done.code == 0
    assert "1 row(s) without a score, for a person to decide" in done.out
    row = {name: values[7] for name, values in read(tmp_path / "out.csv").to_pydict().items()}
    assert row["deferred"] is True
    assert row["disagreement"] == 1.0
    assert row["share of draws for treat"] == 0.5
    others = [n for n in range(300) if n != 7]
    plain = policy.decide(TABLE)
    again = policy.decide(changed(TABLE, age=age))
    assert again.action[others].tolist() == plain.action[others].tolist()
    for ask in (policy.predict, policy.predict_proba, policy.action_probability, policy.expected_gain):
        with pytest.raises(ValueError, match=r"in row 7, column 0 .*is it a mark for missing values"):
            ask(changed(TABLE, age=age))
    with pytest.raises(ValueError, match="in row 7"):  # without draws nothing would mark the row
        tiny_policy(TABLE, draws=0).decide(changed(TABLE, age=age))


def test_a_fitted_policy_refuses_what_overflows() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    policy = small_net().fit(x, np.column_stack([np.zeros(60), x[:, 0] + x[:, 0] ** 3 % 1.0]))
    x[3, 1] = 1e39
    for ask in (policy.predict_proba, policy.predict, policy.posterior().action_probability):
        with pytest.raises(ValueError, match="X is 1e\\+39 in row 3, column 1"):
            ask(x)


def test_values_far_outside_what_was_learned_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_policy(TABLE).save(tmp_path / "p.gbpl")
    age = TABLE["age"].copy()
    age[:3] = 999.0
    for shown, count in ((age, 3), (TABLE["age"] * 12.0, 300), (TABLE["age"], 0)):
        new = write(tmp_path / "new.csv", changed(TABLE, age=shown))
        done = run(capsys, "decide", tmp_path / "p.gbpl", new, "-o", tmp_path / "out.csv")
        told = f"{count} value(s) of age far outside what was learned (-20 to 100)"
        assert (told in done.out) == (count > 0), done.out
        assert count > 0 or "far outside" not in done.out


def test_the_span_of_a_column_is_stored_and_its_ends_are_rounded(tmp_path: Path) -> None:
    policy = tiny_policy(TABLE)
    policy.save(tmp_path / "p.gbpl")
    loaded = gbpl.load(tmp_path / "p.gbpl")
    assert loaded.encoder == policy.encoder
    assert policy.encoder is not None
    number = policy.encoder.parts[0]
    low, high = min(TABLE["age"]), max(TABLE["age"])
    assert number.span == (-20.0, 100.0)  # 20 - 39 and 59 + 39 in one digit
    assert low - (high - low) >= -20.0
    assert high + (high - low) <= 100.0
