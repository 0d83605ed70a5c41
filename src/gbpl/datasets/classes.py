"""Classification as decisions: 1 for the right class, 0 for the others, all seen or one guess per row (section 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import softmax

from gbpl.datasets.dataset import Dataset, Source
from gbpl.datasets.files import read_columns
from gbpl.datasets.samples import LOGGED_ACTION, LOGGING_INDEX, stream, unit_rows
from gbpl.tables.frames import require_columns

if TYPE_CHECKING:
    from pathlib import Path

    from jaxtyping import Float, Int

__all__ = ["SOURCES"]

LOG_SEED = 0  # of the guesses in digits_logged: its rows never change
LOG_STRENGTH = 0.5  # the smallest chance of a guess is about 0.01


def _full_feedback(features: dict[str, np.ndarray], labels: np.ndarray) -> tuple[dict[str, np.ndarray], list[str]]:
    """Features and one column per class, 1 where it is the row's."""
    classes = np.unique(labels)
    return features | {str(label): (labels == label).astype(np.int64) for label in classes}, [str(c) for c in classes]


def _digits() -> tuple[dict[str, np.ndarray], Int[np.ndarray, " row"]]:
    from sklearn.datasets import load_digits

    bunch = load_digits()
    return dict(zip(bunch.feature_names, np.asarray(bunch.data, np.int64).T, strict=True)), bunch.target


def digits(source: Source, as_frame: str) -> Dataset:
    """Which digit is in the picture, full feedback."""
    pixels, label = _digits()
    columns, classes = _full_feedback(pixels, label)
    return source.dataset(columns, as_frame, outcomes=classes, features=list(pixels), source="scikit-learn")


def log_propensity(x: Float[np.ndarray, "row feature"], count: int) -> Float[np.ndarray, "row action"]:
    """e_a(x) = exp(z'w_a / 2) / sum over b of exp(z'w_b / 2), with w_a unit vectors of a fixed seed.

    z are the features less their means, over one scale for all, their root mean square: a pixel that is hardly ever
    black does not count for more than the others. As the logging policy of the paper's designs (`LoggedDesign`) it
    knows nothing of the classes, but guesses some of them more often for some pictures, so that means of the guessed
    rows mislead.
    """
    z = x - x.mean(axis=0)
    z /= np.sqrt(np.mean(z**2))
    index = z @ unit_rows(count, x.shape[1], stream(LOG_SEED, LOGGING_INDEX)).T
    return softmax(LOG_STRENGTH * index, axis=1)


def digits_logged(source: Source, as_frame: str) -> Dataset:
    """One guess per picture, drawn by a known policy, and whether it was right."""
    pixels, label = _digits()
    chance = log_propensity(np.column_stack(list(pixels.values())).astype(np.float64), 10)
    u = stream(LOG_SEED, LOGGED_ACTION).random((len(label), 1))
    guess = np.sum(u >= np.cumsum(chance, axis=1)[:, :-1], axis=1)
    logged = {"guess": guess, "right": (guess == label).astype(np.int64)}
    columns = pixels | logged | {"propensity": chance[np.arange(len(label)), guess]}
    return source.dataset(
        columns, as_frame, outcome="right", action="guess", features=list(pixels), propensity="propensity",
        source="scikit-learn",
        notes=(
            "propensity: known. The guesses are drawn from a softmax of linear indices of the pixels (log_propensity), "
            "with a fixed seed: the rows never change",
        ),
    )  # fmt: skip


def from_file(source: Source, as_frame: str, *, path: Path) -> Dataset:
    """Features x1, x2, ... and the column `class`, as full feedback."""
    table = read_columns(path)
    require_columns(["class"], list(table), path.name)
    label = table.pop("class")
    columns, classes = _full_feedback(table, label)
    return source.dataset(columns, as_frame, outcomes=classes, features=list(table))


KAYNAK = "E. Alpaydin and C. Kaynak (1998), Optical recognition of handwritten digits, UCI Machine Learning Repository"
SOURCES = (
    Source(
        name="digits", kind="classification", rows=1797, actions=10, read=digits, reference=KAYNAK,
        description="which digit is in the picture: 1 for the right one, full feedback",
    ),
    Source(
        name="digits_logged", kind="logged", rows=1797, actions=10, read=digits_logged, reference=KAYNAK,
        description="the pictures of digits, one guess each by a known random policy: 1 if it was right",
    ),
    Source(
        name="optdigits", kind="classification", rows=5620, actions=10, read=from_file, reference=KAYNAK,
        file="optdigits.csv", origin="UCI's optdigits, columns x1 to x64 and class",
        description="pictures of digits, those of scikit-learn among them, full feedback",
    ),
    Source(
        name="vehicle", kind="classification", rows=846, actions=4, read=from_file, file="vehicle.csv",
        origin="UCI's Statlog vehicle silhouettes, columns x1 to x18 and class",
        description="bus, van, saab or opel by its silhouette: 1 for the right one, full feedback",
        reference=(
            "J. P. Siebert (1987), Vehicle recognition using rule based methods, Turing Institute research memorandum "
            "TIRM-87-018; Statlog (vehicle silhouettes), UCI Machine Learning Repository"
        ),
    ),
)  # fmt: skip
