"""Files of tables by format: which one it is, by its name, and what pyarrow or the system finds wrong with it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gbpl.tables.frames import TableError, nearest

__all__ = [
    "ARROW",
    "EXCEL",
    "PACKED",
    "PARQUET",
    "TEXT",
    "arrow",
    "checked_input",
    "checked_names",
    "reading",
    "suffixes",
]

TEXT = (".csv", ".tsv", ".txt")
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
PARQUET = (".parquet", ".pq")
ARROW = (".feather", ".arrow", ".ipc")
EXCEL = (".xlsx",)
READABLE = ".csv, .tsv or .txt (also with .gz, .bz2 or .zst), .parquet, .pq, .feather, .arrow, .ipc, .xlsx"


def arrow(module: str = "") -> Any:
    try:
        return importlib.import_module(f"pyarrow{module}")
    except ModuleNotFoundError as error:
        raise ImportError("tables in files need pyarrow: pip install 'gbpl[cli]'") from error


@contextmanager
def reading(path: Path, what: str = "cannot be read") -> Iterator[None]:
    """What pyarrow or the system finds wrong with a file, as a TableError."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith("pyarrow"):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
        raise TableError(f"{path.name} {what}: {reason}; it may be damaged or cut short") from error


def suffixes(path: Path) -> tuple[str, str]:
    """Format and compression, by the file's name."""
    last = path.suffix.lower()
    inner = Path(path.stem).suffix.lower()
    return (inner, last) if last in PACKED and inner in TEXT else (last, "")


def checked_input(path: str | os.PathLike[str]) -> Path:
    file = Path(path)
    if file.is_dir():
        raise TableError(f"{file} is a folder; name a file in it")
    if suffixes(file)[0] not in (*TEXT, *PARQUET, *ARROW, *EXCEL):
        ending = repr(file.suffix) if file.suffix else "nothing"
        raise TableError(f"{file.name} ends in {ending}, so its format is not known; those read are {READABLE}")
    if not file.exists():
        if not file.parent.is_dir():
            raise TableError(f"{file} does not exist, nor does its folder {file.parent}")
        hint = nearest(file.name, sorted(entry.name for entry in file.parent.iterdir()))
        raise TableError(f"{file} does not exist{hint}")
    if file.stat().st_size == 0 and file.is_file():
        raise TableError(f"{file.name} is empty: it has no header and no rows")
    return file


def checked_names(names: Sequence[str], path: Path) -> list[str]:
    first: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if name in first:
            both = f"columns {first[name]} and {number}"
            raise TableError(f"{path.name} has two columns named {name!r} ({both}); rename one")
        first[name] = number
    return list(names)
