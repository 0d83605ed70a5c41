"""One error budget over the whole life of a policy: what each statement of each version may cost of it.

Version k of a policy (k - 1 refits) gets 6 / (pi^2 k^2) of the failure probability, which sums to all of it however
many refits there will be. Within a version every statement has a fixed share, so with probability at least
1 - failure_probability everything that is ever said in the life of the policy is right, at every row.
"""

from __future__ import annotations

import math

__all__ = ["CALIBRATION", "DRIFT", "GAIN", "LATER", "VALUE", "version_budget"]

GAIN = (0.35, 0.25)  # lower bound, by which a policy is promoted, and upper bound, by which it is rolled back
LATER = 0.1  # rolled back after it was promoted
VALUE = (0.05, 0.05)
CALIBRATION = (0.05, 0.05)
DRIFT = 0.1  # over all features


def version_budget(failure_probability: float, version: int) -> float:
    """The failure probability of all statements about version 1, 2, ... of a policy.

    >>> round(version_budget(0.05, 1), 4), round(sum(version_budget(0.05, k) for k in range(1, 10_000)), 4)
    (0.0304, 0.05)
    """
    return failure_probability * 6.0 / (math.pi * version) ** 2
