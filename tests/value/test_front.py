"""The front between outcomes: dominated points by brute force, bands that hold for all of it, and its words."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gbpl import Value
from gbpl.value.front import Front, FrontPoint, dominated

TRUE = np.array([[0.0, 0.0], [0.2, 0.1], [0.5, 0.4], [0.4, 0.5]])


def front_of(rng: np.random.Generator, level: float = 0.9, n: int = 200) -> Front:
    """Four points of two outcomes whose rows share noise; the first is the baseline."""
    shared = rng.normal(size=(n, 2))
    base = tuple(Value(column, "dr") for column in shared.T)
    points = [FrontPoint("everybody gets 0", None, None, base)]
    for place, true in enumerate(TRUE[1:], start=1):
        rows = shared + true + rng.normal(size=(n, 2)) * place
        values = tuple(Value(column, "dr") for column in rows.T)
        points.append(FrontPoint(f"lambda {4 - place}", 4.0 - place, (1.0, -2.0), values))
    return Front(("spend", "complaints"), (1.0, -1.0), tuple(points), base, "everybody gets 0", level)


def test_dominated_by_brute_force() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        good = rng.integers(0, 4, size=(7, 2)).astype(float)  # ties included
        expected = [
            any(all(other >= own) and any(other > own) for other in good) for own in good
        ]  # fmt: skip
        assert_array_equal(dominated(good), expected)


def test_less_of_an_outcome_may_be_better() -> None:
    front = front_of(np.random.default_rng(1), n=20_000)
    assert_array_equal(front.dominated, [False, False, False, True])  # less spend and more complaints than the third


def test_changes_and_errors_are_those_of_differences() -> None:
    front = front_of(np.random.default_rng(2))
    for place, point in enumerate(front.points):
        for number in range(2):
            rows = point.values[number].influence - front.base[number].influence
            assert front.changes[place, number] == pytest.approx(rows.mean())
            assert front.ses[place, number] == pytest.approx(rows.std(ddof=1) / np.sqrt(len(rows)), abs=1e-12)
    bands = front.bands()
    assert_array_equal(bands[0], np.zeros((2, 2)))  # the baseline is known
    reach = (bands[1:, :, 1] - front.changes[1:]) / front.ses[1:]
    assert_allclose(reach, reach[0, 0])  # one number of errors for all points and outcomes
    assert reach[0, 0] > 1.645


def test_bands_contain_the_whole_front_as_often_as_they_say() -> None:
    rng = np.random.default_rng(3)
    inside = []
    for _ in range(400):
        bands = front_of(rng).bands()
        inside.append(np.all((bands[..., 0] <= TRUE + 1e-12) & (bands[..., 1] >= TRUE - 1e-12)))
    assert np.mean(inside) == pytest.approx(0.9, abs=3 * np.sqrt(0.09 / 400))


def test_it_is_plain_json_and_a_table_in_words() -> None:
    front = front_of(np.random.default_rng(4))
    points = json.loads(json.dumps(front.to_dict(), allow_nan=False))
    assert [point["lambda"] for point in points] == [None, 3.0, 2.0, 1.0]
    assert points[1]["weights"] == {"spend": 1.0, "complaints": -2.0}
    assert points[2]["outcomes"][0]["change"] == pytest.approx(front.changes[2, 0])
    lines = str(front).splitlines()
    assert lines[0] == "change from everybody gets 0"
    assert len(lines) == 6
