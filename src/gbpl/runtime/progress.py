"""A progress line for anything longer than two seconds."""

from __future__ import annotations

import sys
import time

__all__ = ["Progress"]


class Progress:
    """One line on standard error, drawn after `delay` seconds and removed when done; `show=False` draws nothing.

    `show=None` draws it where it can be seen: in a terminal or a notebook.
    """

    def __init__(self, what: str, total: int, *, show: bool | None = None, delay: float = 2.0) -> None:
        watched = sys.stderr.isatty() or "ipykernel" in sys.modules
        self.what, self.total, self.show = what, total, watched if show is None else show
        self.started, self.delay, self.drawn = time.monotonic(), delay, 0

    def update(self, done: int, detail: str = "") -> None:
        elapsed = time.monotonic() - self.started
        if not self.show or elapsed < self.delay:
            return
        filled = 24 * done // max(self.total, 1)
        line = f"{self.what} [{'#' * filled}{'.' * (24 - filled)}] {done}/{self.total} {detail} {elapsed:.0f} s"
        print("\r" + line.ljust(self.drawn), end="", file=sys.stderr, flush=True)
        self.drawn = len(line)

    def close(self) -> None:
        if self.drawn:
            print("\r" + " " * self.drawn + "\r", end="", file=sys.stderr, flush=True)
            self.drawn = 0
