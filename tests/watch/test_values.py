"""Values of logged rows: their means over every action and outcome, and how low they can be."""

import numpy as np
import pytest

from gbpl.watch.values import row_values, slack_for

CHANCES = np.array([[0.5, 0.3, 0.2], [0.05, 0.05, 0.9], [0.98, 0.01, 0.01], [0.2, 0.4, 0.4]])
POLICY = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.5, 0.5, 0.0]])
SUCCESS = np.array([[0.2, 0.6, 0.5], [0.9, 0.1, 0.4], [0.3, 0.5, 0.8], [0.5, 0.2, 0.9]])  # P(y = 1 | row, action)
GUESS = np.array([0.3, 0.9, 0.5, 0.02])


def every_case(chances, baseline, slack, *, taken_only=False):
    """Mean of each line over the actions the log takes and outcomes of 0 and 1, and the least of its values."""
    mean, least = np.zeros((4, 4)), np.inf
    for a in range(3):
        for y in (0.0, 1.0):
            action, outcome = np.full(4, a), np.full(4, y)
            possible = chances[:, a] > 0.0
            given = chances[:, a] if taken_only else chances
            with np.errstate(divide="ignore", invalid="ignore"):
                made = row_values(outcome, GUESS, action, given, POLICY, baseline, slack)
            lines = np.stack([made.value, made.less_value, made.gain, made.less_gain])
            probability = chances[:, a] * np.where(y == 1.0, SUCCESS[:, a], 1.0 - SUCCESS[:, a])
            mean += np.where(possible, probability * np.where(possible, lines, 0.0), 0.0)
            least = min(least, lines[:, possible].min())
    return mean, least


def expected(chances, baseline):
    value = np.sum(POLICY * SUCCESS, axis=1)
    other = SUCCESS[:, baseline] if baseline is not None else np.sum(chances * SUCCESS, axis=1)
    return np.stack([value, 1.0 - value, 1.0 + value - other, 1.0 - value + other])


@pytest.mark.parametrize("baseline", [0, 2, None])
@pytest.mark.parametrize("slack", [0.0, 0.5, 40.0])
@pytest.mark.parametrize("taken_only", [False, True])
def test_values_have_the_means_they_stand_for_and_stay_above_their_floor(baseline, slack, taken_only):
    mean, least = every_case(CHANCES, baseline, slack, taken_only=taken_only)
    np.testing.assert_allclose(mean, expected(CHANCES, baseline), atol=1e-12)
    assert least >= -slack - 1e-12
    if slack == 0.5 and not taken_only:
        assert least < -0.4  # the room is used


@pytest.mark.parametrize("baseline", [0, None])
def test_actions_that_the_log_cannot_take_lower_the_means_and_never_raise_them(baseline):
    chances = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.7, 0.3, 0.0], [0.5, 0.5, 0.0]])
    mean, least = every_case(chances, baseline, 2.0)
    right = expected(chances, baseline)
    assert (mean <= right + 1e-12).all()
    np.testing.assert_allclose(mean[:2, 3], right[:2, 3], atol=1e-12)  # nothing is missing there
    assert least >= -2.0 - 1e-12


def test_rows_on_which_policy_and_baseline_agree_say_exactly_nothing_of_the_gain():
    made = row_values(np.ones(4), GUESS, np.array([0, 1, 2, 0]), CHANCES, np.eye(3)[[0, 0, 0, 0]], 0, 1.0)
    np.testing.assert_allclose(made.gain, 1.0)
    np.testing.assert_allclose(made.less_gain, 1.0)


def test_room_for_a_propensity():
    assert slack_for(0.25) == 2.0
    assert slack_for(1.0) == 0.0
    with pytest.raises(ValueError, match=r"in \(0, 1\], got 0"):
        slack_for(0.0)
