"""What the report advises: by the chances, with the numbers of the policy that is shipped, in the user's unit."""

from __future__ import annotations

from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
from support.report import NORMAL, one_action, two_actions

from gbpl.report.advice import advice, more_rows
from gbpl.report.numbers import amount
from gbpl.report.reading import read


def summary(default_z: float, best_z: float, single_z: float, **changes: Any) -> dict[str, Any]:
    """Two actions, the second the best; z-values of the policy over both, and of the second over the first."""
    made = two_actions()
    for item, z in zip(made["alternatives"], (default_z, best_z), strict=False):
        normal = {"gain": 100.0 * z, "gain_se": 100.0, "chance": NormalDist().cdf(z)}
        item |= normal | {"gain_quantiles": (100.0 * z + 100.0 * NORMAL).tolist()}
    mean, covariance = np.array(made["moments"]["mean"]), np.zeros((5, 5))
    mean[1], mean[2], covariance[2, 2] = 0.0, single_z * 100.0, 100.0**2
    return made | {"moments": {"mean": mean.tolist(), "covariance": covariance.tolist()}} | changes


@pytest.mark.parametrize(
    ("z", "key", "words"),
    [
        ((3.0, 1.5, 1.4), "policy", "Use the policy. Compared with arm = 0 for everybody, it gains +300 per row"),
        ((3.0, 0.5, 1.4), "single", "Give everybody arm = 1. Compared with arm = 0 for everybody, that gains +140"),
        ((3.0, 0.5, 1.0), "policy", "It is not shown to beat giving everybody arm = 1."),
        ((1.0, 0.5, 1.0), "gather", "Keep arm = 0 for everybody for now, and gather about 32,000 more rows."),
        ((0.3, 0.5, 1.0), "default", "Keep arm = 0 for everybody. Nothing is shown to be better."),
        ((-1.0, 0.5, 1.0), "default", "Keep arm = 0 for everybody. Nothing is shown to be better."),
    ],
)
def test_says_what_to_do(z: tuple[float, float, float], key: str, words: str) -> None:
    found = advice(read(summary(*z)))
    assert found.key == key
    assert words in str(found)
    assert found.against == (key != "policy")
    assert found.to_dict() == {
        "do": key, "text": str(found), "more_rows": 32000 if key == "gather" else None, "against_policy": found.against
    }  # fmt: skip


def test_a_policy_that_may_be_better_is_worth_its_cost_at_most() -> None:
    said = str(advice(read(summary(3.0, 0.8, 1.4))))
    assert "The policy may do better still (chance 79\u00a0%)" in said
    assert "use it if deciding row by row costs less than 80 per row; about 56,000 more rows would settle it." in said
    assert "The policy is not shown to do better than that." in str(advice(read(summary(3.0, -0.2, 1.4))))


def test_rows_to_gather_are_a_power_calculation() -> None:
    """With as many rows in all, a gain of that size is shown (chance >= 0.9) in 8 of 10 samples."""
    n, gain, se = 1000, 0.5, 0.4
    more = more_rows(n, gain, se)
    assert more is not None
    se_then = se * np.sqrt(n / (n + more))
    shown = NormalDist(gain / se_then).cdf(NormalDist().inv_cdf(0.9))
    assert 1.0 - shown == pytest.approx(0.8, abs=0.01)
    assert more_rows(n, -0.1, 1.0) is more_rows(n, 0.1, 1.0) is None, "no gain, and more than ten times the rows"


def test_in_the_users_unit_with_totals() -> None:
    made = summary(3.0, 1.5, 1.4, unit={"sign": "$", "per": "customer", "population": 64_000})
    said = str(advice(read(made)))
    assert "it gains +$300 per customer (95\u00a0% interval $104 to $496; " in said
    assert said.endswith(", about $19,000,000 for 64,000.")
    assert amount(-1.5, 1, "$") == "\u2212$1.5"
    assert amount(39.0, 0, "visits", signed=True) == "+39\u00a0visits"


def test_a_policy_of_one_action_is_not_advised_against() -> None:
    found = advice(read(one_action()))
    assert (found.key, found.against) == ("single", False)
    assert str(found).endswith("That is what the policy does.")
