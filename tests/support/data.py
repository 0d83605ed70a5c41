"""Files of real data sets, which the repository does not carry: in GBPL_DATA_DIR, or in ../shared/data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gbpl.datasets.loading import SOURCES

FOLDER = Path(os.environ.get("GBPL_DATA_DIR") or Path(__file__).resolve().parents[3] / "shared" / "data")
ORIGINS = {source.file: source.origin or "OpenML" for source in SOURCES.values() if source.file}


def data_file(name: str) -> Path:
    """The file, as it is or with .gz after its name; a test without it is skipped, with how to get it."""
    for path in (FOLDER / name, FOLDER / f"{name}.gz"):
        if path.exists():
            return path
    origin = ORIGINS.get(name, "the Open Bandit Dataset")
    pytest.skip(f"no {name} in {FOLDER}; it comes from {origin}: put it there, or set GBPL_DATA_DIR to its folder")
