"""The multi-action designs of the paper (experimental details)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from gbpl.datasets.baseline import BASELINE_MEAN, baseline_mean, check_n_features, check_name
from gbpl.datasets.samples import OUTCOME_INDEX, Sample, check_index_seed, check_whole, stream, unit_rows
from gbpl.datasets.truth import expected_max, normal_rule, symmetric_normals

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["MultiActionDesign"]


@dataclass(frozen=True, slots=True)
class MultiActionDesign:
    """DGP1 (sine), DGP2 (tanh) or DGP3 (steps) of the paper with K actions.

    With the actions numbered a = 1, ..., K (column a - 1) and z_a = x'w_a / sqrt(d),

        DGP1  gamma_a(x) = b(x) + 1.5 sin(z_a + 0.3 a)
        DGP2  gamma_a(x) = b(x) + 2 tanh(z_a - 0.2 a)
        DGP3  gamma_a(x) = b(x) + 1[z_a > 0] + 0.1 a

    X is standard normal, Y(a) = gamma_a(X) + standard normal noise. `index_seed` draws the unit-norm vectors w_a, the
    same for the three designs; the first ones stay when `n_actions` grows.

    >>> MultiActionDesign("DGP3", n_actions=4).sample(3, seed=0).outcomes.shape
    (3, 4)
    """

    name: str = "DGP1"
    n_actions: int = 5
    n_features: int = 10
    index_seed: int = 0

    def __post_init__(self) -> None:
        check_name(self.name)
        check_whole("n_actions", self.n_actions, 2, "the paper has 5")
        check_n_features(self.n_features)
        check_index_seed(self.index_seed)

    def baseline(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """b(x), which all actions share: it moves welfare but no decision."""
        return baseline_mean(self.name, x)

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_a(x)."""
        return self._mean_at(x @ self._directions().T / np.sqrt(self.n_features), self.baseline(x)[:, None])

    def _directions(self) -> Float[np.ndarray, "action feature"]:
        return unit_rows(self.n_actions, self.n_features, stream(self.index_seed, OUTCOME_INDEX))

    def _mean_at(
        self, z: Float[np.ndarray, "row action"], low: Float[np.ndarray, "row 1"] | float
    ) -> Float[np.ndarray, "row action"]:
        """gamma_a where the indices are z and b(x) is `low`."""
        a = np.arange(1, self.n_actions + 1)
        match self.name:
            case "DGP1":
                return low + 1.5 * np.sin(z + 0.3 * a)
            case "DGP2":
                return low + 2.0 * np.tanh(z - 0.2 * a)
            case _:
                return low + (z > 0) + 0.1 * a

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent rows."""
        rng = np.random.default_rng(seed)
        x = rng.standard_normal((n, self.n_features))
        mean = self.outcome_mean(x)
        return Sample(x, mean + rng.standard_normal(mean.shape), mean)

    def optimal_welfare(self) -> float:
        """E[max_a gamma_a(X)] = E[b] + E[max_a (gamma_a - b)], to about 1e-4 (`_multi_action_gain`)."""
        return BASELINE_MEAN[self.name] + _multi_action_gain(self)[0]

    def oracle_welfare(self) -> float:
        """E[max_a Y(a)] = E[b] + E[max_a (gamma_a - b + e_a)], to about 1e-4 (`_multi_action_gain`)."""
        return BASELINE_MEAN[self.name] + _multi_action_gain(self)[1]

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """E[Y(a)], to rounding: z_a alone is N(0, 1/d)."""
        z, weight = normal_rule()
        z_a = np.repeat(z[:, None] / math.sqrt(self.n_features), self.n_actions, axis=1)
        return BASELINE_MEAN[self.name] + weight @ self._mean_at(z_a, 0.0)


@cache
def _multi_action_gain(design: MultiActionDesign) -> tuple[float, float]:
    """E[max_a (gamma_a - b)] and E[max_a (gamma_a - b + e_a)], of one draw of the w_a.

    The indices z_a are normal and correlated, so that neither maximum has a product form: the mean over z is that over
    Sobol points, and the noise is integrated for each of them (`expected_max`). At K = 5 and d = 10 other scramblings
    of the points give answers with a standard deviation of at most 2e-5 in DGP1 and DGP2, and 7e-5 in DGP3.
    """
    _, factor = np.linalg.qr(design._directions().T)

    def indices(log2_points: int) -> Float[np.ndarray, "point action"]:
        # u R / sqrt(d) has the covariance of z for u standard normal, also where actions outnumber features
        return symmetric_normals(log2_points, len(factor)) @ factor / math.sqrt(design.n_features)

    if design.name == "DGP3":  # which indices are positive is all that counts: at most 2^K cases
        positive = indices(18) > 0
        as_text = positive.view(f"S{design.n_actions}")[:, 0]  # a row is one value: faster to sort than with axis=0
        _, first, times = np.unique(as_text, return_index=True, return_counts=True)
        gain, share = design._mean_at(positive[first], 0.0), times / times.sum()
        return float(share @ gain.max(axis=1)), float(share @ expected_max(gain))
    # The noise rounds the kinks of the maximum, so that fewer points do.
    best, noisy = (design._mean_at(indices(log2_points), 0.0) for log2_points in (17, 14))
    return float(best.max(axis=1).mean()), float(expected_max(noisy).mean())
