"""The file that keeps what is known of a watched policy, and which rows of which files are counted in it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from gbpl.frozen.file import SavedPolicy
from gbpl.runtime.files import write_text
from gbpl.watch.monitor import Monitor

__all__ = ["Counted", "SavedWatch"]

FORMAT = 1


@dataclass(slots=True)
class Counted:
    """Rows of a file that are in the state: how many, the digest of the last, and how the file begins."""

    rows: int = 0
    digest: str = ""
    head_rows: int = 0
    head: str = ""


@dataclass(slots=True)
class SavedWatch:
    """The state file."""

    path: Path
    monitor: Monitor
    files: dict[str, Counted] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, policy: SavedPolicy, refit: bool, terms: Mapping[str, Any]) -> Self:
        if not path.exists():
            return cls(path, policy.monitor(refit=refit, **terms))
        state = _read_state(path)
        monitor = policy.monitor(state=state["monitor"], refit=refit, **terms)
        return cls(path, monitor, {name: Counted(**part) for name, part in state["files"].items()})

    def write(self) -> None:
        files = {name: asdict(part) for name, part in self.files.items()}
        text = json.dumps({"monitor": self.monitor.state(), "files": files}, allow_nan=False)
        check = hashlib.sha256(text.encode()).hexdigest()
        write_text(self.path, json.dumps({"gbpl watch": FORMAT, "sha256": check, "state": text}))


def _read_state(path: Path) -> dict[str, Any]:
    try:
        outer = json.loads(path.read_text(encoding="utf-8"))
        version, text = outer["gbpl watch"], outer["state"]
        whole = hashlib.sha256(text.encode()).hexdigest() == outer["sha256"]
    except (UnicodeDecodeError, json.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise ValueError(f"{path} is not a state of gbpl watch; name another file for it") from None
    if version != FORMAT:
        raise ValueError(f"{path} has format {version!r:.40}, not {FORMAT}; use the gbpl that wrote it")
    if not whole:
        raise ValueError(f"{path} is damaged: its checksum is wrong; take a copy of it, or begin a new life")
    state: dict[str, Any] = json.loads(text)
    return state
