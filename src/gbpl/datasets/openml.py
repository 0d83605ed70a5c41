"""The two regression sets of the paper's UCI experiments, from a folder or from OpenML (UCI and OpenML experiments).

`load_regression` looks in `data_dir`, else in the folder that the environment variable GBPL_DATA_DIR names, else asks
OpenML through scikit-learn, which keeps what it has downloaded.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.datasets import fetch_openml

from gbpl.datasets.files import DATA_DIR_VARIABLE, DataUnavailableError, data_folder
from gbpl.tables.frames import column
from gbpl.tables.read import open_batches

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["RegressionTable", "load_regression"]


class RegressionTable(NamedTuple):
    """Features and one response."""

    x: Float[np.ndarray, "row feature"]
    y: Float[np.ndarray, " row"]
    feature_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Set:
    """Where a set is and what it must look like. The response comes right after the features."""

    data_id: int
    rows: int
    features: tuple[str, ...]
    response: str
    response_mean: float

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.features, self.response)


SETS = {
    "yacht": _Set(
        42370, 308,
        (
            "longitudinal_position", "prismatic_coefficient", "length_displacement_ratio", "beam_draught_ratio",
            "length_beam_ratio", "froude_number",
        ),
        "residuary_resistance", 10.4954,
    ),
    "energy_efficiency": _Set(
        44960, 768,
        (
            "relative_compactness", "surface_area", "wall_area", "roof_area", "overall_height", "orientation",
            "glazing_area", "glazing_area_distribution",
        ),
        "heating_load", 22.3072,
    ),
}  # fmt: skip


def load_regression(name: str, *, data_dir: str | os.PathLike[str] | None = None) -> RegressionTable:
    """Features, response and feature names of "yacht" (308 x 6) or "energy_efficiency" (768 x 8, heating load).

    A folder has `<name>.csv`, with a header row; columns beyond those needed, such as the cooling load, are left out.
    No folder, neither as `data_dir` nor in GBPL_DATA_DIR, means OpenML (data ids 42370 and 44960).

        x, y, names = load_regression("yacht", data_dir="data")
        design = SemiSyntheticDesign(x, y)
    """
    if name not in SETS:
        raise ValueError(f"name must be one of {', '.join(SETS)}, got {name!r}; try 'yacht'")
    wanted = SETS[name]
    folder = data_folder(data_dir)
    source = f"OpenML's data set {wanted.data_id}" if folder is None else str(folder / f"{name}.csv")
    table = _from_openml(name) if folder is None else _from_csv(name, Path(source))
    if len(table) != wanted.rows:
        raise ValueError(f"{source} has {len(table)} rows, {name} has {wanted.rows}; {_remedy(name)}")
    bad = np.flatnonzero(~np.isfinite(table).all(axis=1))
    if len(bad):
        raise ValueError(
            f"{source} must have finite numbers, got {table[bad[0]].tolist()} in row {bad[0]}; {_remedy(name)}"
        )
    return RegressionTable(table[:, :-1], table[:, -1], wanted.features)


def _remedy(name: str) -> str:
    return (
        f"set {DATA_DIR_VARIABLE} or --data-dir (data_dir= in Python) to a folder with {name}.csv, whose header row "
        f"has the columns {', '.join(SETS[name].columns)}, or leave both out and run once with network access: "
        "what OpenML sends is kept"
    )


def _plain(column: str) -> str:
    """Column names are compared without case, blanks and hyphens."""
    return re.sub(r"[^a-z0-9]+", "_", column.strip().lower()).strip("_")


def _from_csv(name: str, path: Path) -> Float[np.ndarray, "row column"]:
    """The columns of the set, response last."""
    if not path.is_file():
        raise DataUnavailableError(f"there is no {path.name} in {path.parent}; {_remedy(name)}")
    with open_batches(path) as batches:
        names = {_plain(header): header for header in batches.names}
    missing = [feature for feature in SETS[name].columns if feature not in names]
    if missing:
        raise ValueError(f"{path} has no column {', '.join(missing)}, it has {list(names)}; {_remedy(name)}")
    wanted = [names[feature] for feature in SETS[name].columns]
    with open_batches(path, columns=wanted, kinds=dict.fromkeys(wanted, "number")) as batches:
        parts = [np.column_stack([column(batch, header) for header in wanted]) for batch in batches]
    return np.concatenate([np.zeros((0, len(wanted))), *parts])


def _from_openml(name: str) -> Float[np.ndarray, "row column"]:
    """The columns of the set, response last."""
    wanted = SETS[name]
    try:  # as_frame and parser are those that do without pandas
        answer = fetch_openml(
            data_id=wanted.data_id, target_column=None, as_frame=False, parser="liac-arff", n_retries=1
        )
    except (OSError, HTTPException, ValueError) as error:  # ValueError: an answer that is not OpenML's
        raise DataUnavailableError(
            f"{name} is not available from OpenML (data id {wanted.data_id}): {type(error).__name__}: {error}; "
            f"{_remedy(name)}"
        ) from error
    named = {_plain(column): values for column, values in _columns(answer).items()}
    if set(wanted.columns) <= set(named):
        return np.column_stack([named[column] for column in wanted.columns])
    # Under other names, the set is known by the order of its columns, and that by the mean of its response.
    table = np.column_stack(list(named.values())[: len(wanted.columns)])
    if table.shape[1] < len(wanted.columns) or abs(table[:, -1].mean() - wanted.response_mean) > 1e-3:
        raise ValueError(
            f"OpenML's data set {wanted.data_id} must have the columns of {name}, it has {list(named)}; {_remedy(name)}"
        )
    return table


def _columns(answer: Any) -> dict[str, Float[np.ndarray, " row"]]:
    """Columns by name; a nominal one, which comes as codes of its categories, as the categories' own numbers."""
    columns = dict(zip(answer.feature_names, np.asarray(answer.data, np.float64).T, strict=True))
    for name, labels in (answer.categories or {}).items():
        columns[name] = np.asarray(labels, np.float64)[columns[name].astype(np.int64)]
    return columns
