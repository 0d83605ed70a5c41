"""The two regression sets of the paper's UCI experiments, with made outcomes of two actions (`openml`)."""

from __future__ import annotations

import os

from gbpl.datasets.dataset import Dataset, Source
from gbpl.datasets.semi_synthetic import SemiSyntheticDesign

__all__ = ["SOURCES"]

OUTCOMES = ["0", "1"]


def regression(source: Source, as_frame: str, *, data_dir: str | os.PathLike[str] | None) -> Dataset:
    """All rows of the set in one random order, standardized, with `SemiSyntheticDesign`'s outcomes of seed 0."""
    from gbpl.datasets.openml import load_regression  # brings scikit-learn's loaders

    x, y, names = load_regression(source.name, data_dir=data_dir)
    drawn = SemiSyntheticDesign(x, y).sample(seed=0)
    columns = dict(zip([*names, *OUTCOMES], [*drawn.x.T, *drawn.outcomes.T], strict=True))
    return source.dataset(
        columns, as_frame, outcomes=list(OUTCOMES), features=list(names),
        source=f"{source.file}, or OpenML",
        notes=("features are real and standardized, outcomes are made: SemiSyntheticDesign(x, y).sample(seed=0)",),
    )  # fmt: skip


SOURCES = (
    Source(
        name="yacht", kind="simulated", rows=308, actions=2, read=regression, file="yacht.csv", openml=True,
        description="yacht hulls and their resistance, with made outcomes of two actions as in the paper",
        reference=(
            "J. Gerritsma, R. Onnink and A. Versluis (1981), Geometry, resistance and stability of the Delft "
            "systematic yacht hull series, Delft University of Technology; UCI Machine Learning Repository"
        ),
    ),
    Source(
        name="energy_efficiency", kind="simulated", rows=768, actions=2, read=regression,
        file="energy_efficiency.csv", openml=True,
        description="buildings and their heating load, with made outcomes of two actions as in the paper",
        reference=(
            "A. Tsanas and A. Xifara (2012), Accurate quantitative estimation of energy performance of residential "
            "buildings using statistical machine learning tools, Energy and Buildings 49, 560-567"
        ),
    ),
)  # fmt: skip
