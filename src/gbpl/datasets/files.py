"""Files in a folder that the user names: where they are looked for, and their columns."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gbpl.tables.frames import column, is_missing, require_columns
from gbpl.tables.read import read_table

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["DATA_DIR_VARIABLE", "DataUnavailableError", "data_folder", "find_file", "read_columns"]

DATA_DIR_VARIABLE = "GBPL_DATA_DIR"


class DataUnavailableError(OSError):
    """A set is not where it was looked for, nor available elsewhere; the message says what to do."""


def data_folder(data_dir: str | os.PathLike[str] | None) -> Path | None:
    """`data_dir`, else the folder that GBPL_DATA_DIR names, else None."""
    named = data_dir if data_dir is not None else os.environ.get(DATA_DIR_VARIABLE) or None
    return None if named is None else Path(named).expanduser()


def find_file(file: str, data_dir: str | os.PathLike[str] | None) -> Path | None:
    """The file in that folder, as it is or with .gz after its name; None if there is none."""
    folder = data_folder(data_dir)
    if folder is None:
        return None
    return next((path for path in (folder / file, folder / f"{file}.gz") if path.is_file()), None)


def read_columns(path: Path, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
    """Columns by name, all of them if None: whole numbers, numbers (NaN where missing) or text (empty where missing).

    Spaces around the names in the header do not count.
    """
    table = read_table(path)
    columns = {name.strip(): name for name in table.column_names}
    wanted = list(columns) if names is None else names
    require_columns(wanted, list(columns), path.name)
    return {name: _without_objects(column(table, columns[name])) for name in wanted}


def _without_objects(values: np.ndarray) -> np.ndarray:
    return np.where(is_missing(values), "", values).astype(str) if values.dtype.kind == "O" else values
