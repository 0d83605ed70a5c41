"""What cannot count is left out before any pass: by the sample that trees are grown on (sections 4.2 and 7).

A learner beside the networks takes as long as they do, and often has no weight in the end. The networks have learned
from all rows when it is looked at, and are taken on rows of the sample outside what each has learned from.

**Outcome models.** With n the network's means, f the learner's and m the true ones, the best average n + s (f - n) has

    s = E[(y - n)(f - n)] / E[(f - n)^2],   and its mean squared error is less by s E[(m - n)(f - n)].

f is fitted to the sample, and saw none of the rows it is judged by. Sums over all rows take the noise out of its
leaves, which leaves the numerator as it is and takes a quarter from the denominator (measured with two forests of
65,536 rows, ten actions, and noise of the size of the effects), so s grows by a third. A learner is left out if its
share is beyond doubt below 5 %, which is also about the share of the network's squared error that it would take away.
Of what has learned from all rows, shares of at most 2 % are dropped.

**Scores.** The last layer of a forest is valued on the rows that it was fitted to, which flatters it: fitted to all
rows, the same trees would do worse there. If the networks, on rows they have not learned from, are still ahead by many
standard errors, then their lead on all rows leaves the forest no weight.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["LEAST_OF_SAMPLE", "cannot_count", "largest_share"]

LEAST_OF_SAMPLE = 0.05  # share in the mean outcomes that a learner of the sample may have
DOUBT, BEHIND = 2.0, 4.0  # standard errors that a share may be larger, and that an entry may be behind


def largest_share(
    network: Float[np.ndarray, " row"],
    learner: Float[np.ndarray, " row"],
    outcome: Float[np.ndarray, " row"],
    weights: Float[np.ndarray, " row"] | None = None,
) -> float:
    """The best share of a learner in the average with the network, and `DOUBT` standard errors more."""
    row = np.ones(len(outcome)) if weights is None else weights / weights.mean()
    apart = learner - network
    products, size = row * (outcome - network) * apart, float(np.mean(row * apart**2))
    if size <= 0.0:
        return 0.0
    return float(products.mean() + DOUBT * products.std() / np.sqrt(len(products))) / size


def cannot_count(
    forest: Float[np.ndarray, "entry row"],
    networks: Float[np.ndarray, "network_entry row"],
    weights: Float[np.ndarray, " row"] | None = None,
) -> bool:
    """Whether every entry of a forest receives less than the best of the networks, beyond any doubt."""
    row = np.ones(networks.shape[1]) if weights is None else weights / weights.mean()
    lead = row * (networks[np.argmax(networks @ row)] - forest)
    return bool(np.all(lead.mean(axis=1) > BEHIND * lead.std(axis=1) / np.sqrt(len(row))))
