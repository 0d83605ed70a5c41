"""What the binary and the multi-action designs of the paper share: names, features and b(x) (experimental details)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbpl.datasets.samples import check_whole

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["BASELINE_MEAN", "NAMES", "baseline_mean", "check_n_features", "check_name"]

NAMES = ("DGP1", "DGP2", "DGP3")
BASELINE_MEAN = {"DGP1": 0.5, "DGP2": -0.2, "DGP3": 0.0}  # E[x_j^2] = 1, and the other terms are odd


def check_name(name: str) -> None:
    if name not in NAMES:
        raise ValueError(f"name must be one of {', '.join(NAMES)}, got {name!r}; try 'DGP2'")


def check_n_features(n_features: int) -> None:
    check_whole("n_features", n_features, 4, "the formulas use four features, the paper has 10")


def baseline_mean(name: str, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
    """gamma_0(x) of the binary designs, which is b(x) of the multi-action ones."""
    match name:
        case "DGP1":
            return x[:, 0] + 0.5 * x[:, 1] ** 2 - 0.25 * x[:, 2] * x[:, 3]
        case "DGP2":
            return 0.5 * np.sin(x[:, 0]) + 0.3 * x[:, 1] - 0.2 * x[:, 2] ** 2
        case _:
            return 0.2 * x[:, 0] - 0.1 * x[:, 1] + 0.1 * np.tanh(x[:, 2])
