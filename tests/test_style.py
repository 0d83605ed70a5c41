"""Style and types: ruff and mypy, configured in pyproject.toml, find nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path.home() / ".cache" / "gbpl" / "mypy"  # beside the compiled functions: a new clone is checked in seconds


@pytest.mark.parametrize("command", ["ruff check", "ruff format --check", f"mypy --cache-dir {CACHE}"])
def test_tool_finds_nothing(command: str) -> None:
    done = subprocess.run([sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{command} failed:\n{done.stdout}{done.stderr}"
