"""Tables of `sources.py`, made once in the environment of their package and kept."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from environments import NotInstallableError, environment, variables
from sources import ENVIRONMENTS

__all__ = ["Packages"]

SCRIPT = Path(__file__).resolve().parent / "sources.py"


@dataclass(frozen=True, slots=True)
class Packages:
    """Reads DIR/tables/SOURCE/SETTING.npz, after making it with an interpreter that `python` makes."""

    folder: Path
    python: str

    def __call__(self, source: str, setting: int) -> dict[str, np.ndarray]:
        home = self.folder / "tables" / source
        if not home.exists():
            self._make(source, home)
        with np.load(home / f"{setting}.npz") as arrays:
            return dict(arrays)

    def _make(self, source: str, home: Path) -> None:
        """Whole or not at all."""
        name = ENVIRONMENTS.get(source, "data")
        interpreter = environment(name, self.folder / "envs", self.python)
        part = home.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        command = [str(interpreter), str(SCRIPT), source, str(part)]
        done = subprocess.run(command, capture_output=True, text=True, env=variables(None), check=False)
        if done.returncode:
            raise NotInstallableError(f"{source}: {done.stderr.strip().splitlines()[-1]}")
        os.replace(part, home)
