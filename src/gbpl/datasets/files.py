"""Files in a folder that the user names: where they are looked for, and how a table is read."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["DATA_DIR_VARIABLE", "DataUnavailableError", "data_folder", "find_file", "read_columns"]

DATA_DIR_VARIABLE = "GBPL_DATA_DIR"


class DataUnavailableError(OSError):
    """A set is neither where it was looked for nor to be had from elsewhere; the message says what to do."""


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
    """Columns of a CSV file with a header row: whole numbers, numbers (an empty cell is NaN) or text."""
    unpack = gzip.open if path.suffix == ".gz" else open
    with unpack(path, "rt", newline="", encoding="utf-8-sig") as file:
        lines = csv.reader(file)
        header = [name.strip() for name in next(lines, [])]
        missing = [name for name in names or [] if name not in header]
        if missing or not header:
            raise ValueError(f"{path} must have the column(s) {', '.join(missing)}, it has {header}; add them")
        rows = []
        for line in lines:
            if len(line) == len(header):
                rows.append(line)
            elif line:
                raise ValueError(
                    f"{path}, line {lines.line_num}: got {len(line)} cells for {len(header)} columns; mend that line"
                )
    if not rows:
        raise ValueError(f"{path} must have rows, got its header only; bring the whole file")
    columns = dict(zip(header, zip(*rows, strict=True), strict=True))
    return {name: _typed(columns[name]) for name in (header if names is None else names)}


def _typed(cells: Iterable[str]) -> np.ndarray:
    text = np.array(list(cells))
    try:
        return text.astype(np.int64)
    except (ValueError, OverflowError):
        pass
    try:
        return np.where(text == "", "nan", text).astype(np.float64)
    except ValueError:
        return text
