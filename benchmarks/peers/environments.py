"""An environment for each family of methods: their libraries do not agree on versions."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["NotInstallableError", "environment", "failure", "variables"]

REQUIREMENTS = Path(__file__).resolve().parent / "requirements"


class NotInstallableError(Exception):
    """A family's packages cannot be installed here; the reason is the last line of pip's error."""


def _files(name: str) -> list[tuple[Path, list[str]]]:
    """Requirement files in the order they are installed, with the options of each."""
    alone = REQUIREMENTS / f"{name}.alone.txt"
    files: list[tuple[Path, list[str]]] = [(REQUIREMENTS / f"{name}.txt", [])]
    return [*files, (alone, ["--no-deps", "--ignore-requires-python"])] if alone.exists() else files


def environment(name: str, folder: Path, python: str = sys.executable) -> Path:
    """The family's interpreter under folder/name, made unless it is there with the same requirements.

    A failure is not remembered: the next call tries again. pip's output is in folder/name.log.
    """
    files = _files(name)
    wanted = hashlib.sha256(b"".join(path.read_bytes() for path, _ in files)).hexdigest()
    home, mark, log = folder / name, folder / name / "requirements.sha256", folder / f"{name}.log"
    interpreter = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    if mark.exists() and mark.read_text() == wanted:
        return interpreter
    shutil.rmtree(home, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    _failed(name, folder).unlink(missing_ok=True)
    with log.open("w") as output:
        commands = [[python, "-m", "venv", str(home)]]
        commands += [[str(interpreter), "-m", "pip", "install", *options, "-r", str(path)] for path, options in files]
        for command in commands:
            if subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, env=_outside(), check=False).returncode:
                output.flush()
                reason = _reason(log)
                _failed(name, folder).write_text(reason)
                raise NotInstallableError(reason)
    mark.write_text(wanted)
    return interpreter


def _outside() -> dict[str, str]:
    """The environment variables, less those that would put other packages on a family's path."""
    return {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}


def variables(source: Path | None) -> dict[str, str]:
    """For a family's process: only that of gbpl sees a checkout, and it keeps nothing compiled for the next process."""
    return _outside() | ({} if source is None else {"PYTHONPATH": str(source), "GBPL_CACHE_DIR": "off"})


def _reason(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no output"])[-1]


def _failed(name: str, folder: Path) -> Path:
    return folder / f"{name}.failed"


def failure(name: str, folder: Path) -> str | None:
    """Why the family could not be installed the last time, if so."""
    path = _failed(name, folder)
    return path.read_text() if path.exists() else None
