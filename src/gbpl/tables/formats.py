"""Files of tables by format: which one it is, by its name, and what pyarrow or the system finds wrong with it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gbpl.tables.frames import TableError, nearest

__all__ = ["ARROW", "PACKED", "PARQUET", "TEXT", "arrow", "checked_input", "checked_names", "reading", "suffixes"]

TEXT = (".csv", ".tsv", ".txt")
PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
PARQUET = (".parquet", ".pq")
ARROW = (".feather", ".arrow", ".ipc")
READABLE = ".csv, .tsv or .txt (also with .gz, .bz2 or .zst), .parquet, .pq, .feather, .arrow, .ipc"


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
    found = Path(path)
    if found.is_dir():
        raise TableError(f"{found} is a folder; name a file in it")
    if suffixes(found)[0] not in (*TEXT, *PARQUET, *ARROW):
        ending = repr(found.suffix) if found.suffix else "nothing"
        raise TableError(f"{found.name} ends in {ending}, so its format is not known; those read are {READABLE}")
    if not found.exists():
        if not found.parent.is_dir():
            raise TableError(f"{found} does not exist, nor does its folder {found.parent}")
        hint = nearest(found.name, sorted(entry.name for entry in found.parent.iterdir()))
        raise TableError(f"{found} does not exist{hint}")
    if found.stat().st_size == 0 and found.is_file():
        raise TableError(f"{found.name} is empty: it has no header and no rows")
    return found


def checked_names(names: Sequence[str], path: Path) -> list[str]:
    first: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if name in first:
            both = f"columns {first[name]} and {number}"
            raise TableError(f"{path.name} has two columns named {name!r} ({both}); rename one")
        first[name] = number
    return list(names)
