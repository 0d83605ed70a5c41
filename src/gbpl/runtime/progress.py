"""How far a job is: a line for anything longer than two seconds, or one bar for a job of several stages."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["Job", "Progress", "running", "stage", "time_left"]

OF_THE_REST = 0.7  # share of what is left of a stage that one part of it takes; how many more there are is not known
EARLY = 0.03  # share of a job before which nothing is said about its end


class Job:
    """Named stages in their order, and about how long each takes; `show(share done, stage)` is called as they pass.

    >>> job = Job({"reading": 1.0, "fitting": 3.0}, lambda share, name: print(f"{share:.2f} {name}"))
    >>> with running(job):
    ...     stage("reading")
    ...     stage("fitting")
    ...     stage("reading")  # a later stage reads again: that is a part of it
    0.00 reading
    0.25 fitting
    """

    def __init__(self, stages: Mapping[str, float], show: Callable[[float, str], None]) -> None:
        total = sum(stages.values())
        self.names, self.shares = list(stages), [share / total for share in stages.values()]
        self.show, self.number, self.inside = show, -1, 0.0
        self.owner: Progress | None = None  # the line that moves it; others within that one do not

    def enter(self, name: str) -> None:
        """Begin a stage; one that is over, or of another job, is a part of the one that runs."""
        if name in self.names[self.number + 1 :]:
            self.number, self.inside = self.names.index(name), 0.0
            self.report()

    def part(self, share: float) -> None:
        """How much of the stage is done; it never goes back."""
        if self.number >= 0 and share > self.inside:
            self.inside = min(share, 1.0)
            self.report()

    def report(self) -> None:
        done = sum(self.shares[: self.number]) + self.shares[self.number] * self.inside
        self.show(done, self.names[self.number])


_JOB: ContextVar[Job | None] = ContextVar("job", default=None)


@contextmanager
def running(job: Job) -> Iterator[None]:
    """Within it, stages and progress lines are those of the job."""
    token = _JOB.set(job)
    try:
        yield
    finally:
        _JOB.reset(token)


def stage(name: str) -> None:
    """Say that a stage begins, where a job runs."""
    job = _JOB.get()
    if job is not None:
        job.enter(name)


def time_left(elapsed: float, share: float) -> str:
    """`2:05` minutes left, or nothing where too little is done to tell.

    >>> time_left(60.0, 0.25), time_left(10.0, 0.01)
    ('3:00', '')
    """
    if share < EARLY:
        return ""
    minutes, seconds = divmod(round(elapsed * (1.0 - share) / share), 60)
    return f"{minutes}:{seconds:02d}"


class Progress:
    """One line on standard error, drawn after `delay` seconds and removed when done; `show=False` draws nothing.

    `show=None` draws it where it can be seen: in a terminal or a notebook. Where a `Job` runs, it moves that instead.
    """

    def __init__(self, what: str, total: int, *, show: bool | None = None, delay: float = 2.0) -> None:
        watched = sys.stderr.isatty() or "ipykernel" in sys.modules
        self.job = _JOB.get()
        self.before = 0.0 if self.job is None else self.job.inside
        if self.job is not None and self.job.owner is None:
            self.job.owner = self
        self.what, self.total, self.show = what, total, watched if show is None else show
        self.started, self.delay, self.drawn = time.monotonic(), delay, 0

    def update(self, done: int, detail: str = "") -> None:
        if self.job is not None:
            if self.job.owner is not self:
                return
            self.job.part(self.before + (1.0 - self.before) * OF_THE_REST * done / max(self.total, 1))
            return
        elapsed = time.monotonic() - self.started
        if not self.show or elapsed < self.delay:
            return
        filled = 24 * done // max(self.total, 1)
        line = f"{self.what} [{'#' * filled}{'.' * (24 - filled)}] {done}/{self.total} {detail} {elapsed:.0f} s"
        print("\r" + line.ljust(self.drawn), end="", file=sys.stderr, flush=True)
        self.drawn = len(line)

    def close(self) -> None:
        if self.job is not None and self.job.owner is self:
            self.job.owner = None
        if self.drawn:
            print("\r" + " " * self.drawn + "\r", end="", file=sys.stderr, flush=True)
            self.drawn = 0
