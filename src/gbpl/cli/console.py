"""What the commands share: where to print, how to fail, and a progress bar.

Exit codes: 0 done, 1 a fault of gbpl itself, 2 wrong usage or input, 130 interrupted, 143 terminated. With `--json`
standard output holds JSON and nothing else, and an error is one line of JSON on standard error.
"""

from __future__ import annotations

import atexit
import codecs
import functools
import json
import os
import re
import signal
import sys
import threading
import time
import traceback
import unicodedata
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Annotated, Any, NoReturn, ParamSpec

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)  # fmt: skip
from rich.table import Table
from rich.text import Text

from gbpl.runtime.json import plain
from gbpl.runtime.progress import Job, running, time_left

__all__ = [
    "FAULT", "INTERRUPTED", "TERMINATED", "WRONG", "Delimiter", "Encoding", "Json", "Screen", "as_json_text", "guarded",
    "guarding", "held", "learning", "print_json", "progress_bar", "ready_streams", "stderr", "stdout", "stop", "table",
    "verbatim", "warnings_shown",
]  # fmt: skip

FAULT, WRONG, INTERRUPTED, TERMINATED = 1, 2, 130, 143
WIDE = 120  # columns of what goes to a file
LEARNING = {
    "reading": 2.0, "models of the outcomes": 30.0, "policies": 25.0, "certificate": 60.0,
    "policies without a part of the rows": 35.0, "decisions": 2.0, "summary": 10.0, "small rule": 20.0,
    "checks": 300.0, "writing": 2.0,
}  # fmt: skip  # about how long each takes
LINE_EVERY = 15.0  # seconds between lines about progress where nobody watches a bar
# Control characters and those that turn the direction of writing could rewrite what else is on the screen; lone
# surrogates come with odd file names and cannot be printed.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
TEXT_FILES = "CSV and other text files"
Json = Annotated[
    bool, typer.Option("--json", help="Print JSON for a script instead of text.", rich_help_panel="Output")
]
Encoding = Annotated[str, typer.Option(metavar="NAME", help="Encoding, such as latin-1.", rich_help_panel=TEXT_FILES)]
Delimiter = Annotated[
    str | None,
    typer.Option(
        metavar="SIGN",
        help="What separates cells; taken from the header if not given.",
        rich_help_panel=TEXT_FILES,
    ),
]
Given = ParamSpec("Given")


def ready_streams() -> None:
    """Standard streams that take whatever is written: closed ones lead nowhere, and of letters that an encoding lacks,
    as on Windows, the nearest is written."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - as long as the process lives
        elif hasattr(stream, "reconfigure") and stream.errors == "strict":
            stream.reconfigure(errors=NEAREST)


def _nearest_letters(error: UnicodeError) -> tuple[str, int]:
    """A minus for the long one, a letter without its accent, or a question mark."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    made = []
    for letter in error.object[error.start : error.end]:
        plain = PLAIN_LETTERS.get(letter) or unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
        made.append(plain or "?")
    return "".join(made), error.end


NEAREST = "gbpl-nearest"
PLAIN_LETTERS = {
    "\u2212": "-",
    "\u2013": "-",
    "\u2014": "-",
    "\u2018": "'",
    "\u2019": "'",
    "\u201c": '"',
    "\u201d": '"',
}
codecs.register_error(NEAREST, _nearest_letters)


class Screen(Console):
    """A console that shows text as it is: no `:smile:` turned into a picture, no line broken on its way to a file."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, emoji=False, **options)
        if not self.is_terminal and not os.environ.get("COLUMNS"):
            self.width = WIDE

    def say(self, text: str, style: str | None = None) -> None:
        """A sentence, wrapped if it goes to a screen."""
        self.print(text, style=style, soft_wrap=not self.is_terminal)

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # for `guarded` to end quietly


def stdout() -> Screen:
    return Screen()


def stderr() -> Screen:
    return Screen(stderr=True)


def verbatim(text: object) -> str:
    """A user's text for the console: without markup, and with control characters written out, as \\x1b."""
    return escape(UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text)))


def table(first: str, *numbers: str, title: str | None = None) -> Table:
    """A table of text and then numbers, in which long text is folded and nothing is cut off."""
    made = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    made.add_column(first, overflow="fold")
    for name in numbers:
        made.add_column(name, justify="right", overflow="fold")
    return made


def as_json_text(content: Any, *, indent: int | None = 2, encoding: str | None = "utf-8") -> str:
    """JSON that can be written in this encoding; letters that it lacks are escaped."""
    made = plain(content)
    text = json.dumps(made, indent=indent, ensure_ascii=False, allow_nan=False)
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return json.dumps(made, indent=indent, allow_nan=False)
    return text


def print_json(content: Any) -> None:
    print(as_json_text(content, encoding=sys.stdout.encoding))


def stop(message: str, code: int, as_json: bool) -> NoReturn:
    """End with a message on standard error and an exit code."""
    if as_json:
        content = {"error": message, "code": code}
        print(as_json_text(content, indent=None, encoding=sys.stderr.encoding), file=sys.stderr)
    else:
        stderr().say(f"[bold red]error:[/] {verbatim(message)}")
    raise SystemExit(code)


class _Terminated(BaseException):
    """SIGTERM, as of `timeout`: temporary files go before the process does."""


_terminated: list[int] = []  # the exit code, once a signal has ended the command


@atexit.register  # when this is imported, so that what is registered later still clears up before it
def _end() -> None:
    """Threads of C++ that are still at work abort a process that ends in the usual way."""
    if _terminated:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_terminated[0])


@contextmanager
def _terminable() -> Iterator[None]:
    def end(*_: object) -> NoReturn:
        raise _Terminated

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:  # not the main thread, which alone gets signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def held() -> Iterator[None]:
    """Signals wait for the end of the block: an interrupted import can crash Python."""
    caught_signals: list[int] = []
    before: dict[int, Any] = {}
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, lambda caught, _: caught_signals.append(caught))
    except ValueError:  # not the main thread
        pass
    try:
        yield
    finally:
        for caught, handler in before.items():
            signal.signal(caught, handler)
    for caught in caught_signals:
        signal.raise_signal(caught)


def guarding(left: str) -> Callable[[Callable[Given, None]], Callable[Given, None]]:
    """A command whose errors are one message and an exit code; `left` says what an interrupted one leaves behind."""

    def guard(command: Callable[Given, None]) -> Callable[Given, None]:
        @functools.wraps(command)
        def run(*args: Given.args, **options: Given.kwargs) -> None:
            as_json = bool(options.get("as_json"))
            try:
                with _terminable():
                    command(*args, **options)
                    sys.stdout.flush()
            except KeyboardInterrupt:
                stop(f"interrupted; {left}", INTERRUPTED, as_json)
            except _Terminated:
                _terminated.append(TERMINATED)
                stop(f"terminated; {left}", TERMINATED, as_json)
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has what it wanted
                raise SystemExit(0) from None
            except Exception as error:
                if os.environ.get("GBPL_TRACEBACK"):
                    traceback.print_exc()
                stop(*_message_and_code(error), as_json)

        return run

    return guard


guarded = guarding("nothing was written")


def _message_and_code(error: Exception) -> tuple[str, int]:
    """The message about an error, and the exit code."""
    if isinstance(error, MemoryError):
        return "there is not enough memory; take fewer rows or columns, or a larger machine", WRONG
    if isinstance(error, OSError):
        about = f"{error.filename}: " if error.filename else ""
        return f"{about}{error.strerror or error}", WRONG
    ours = isinstance(error, ImportError) and str(error.name).startswith("gbpl")
    if isinstance(error, ValueError | ImportError) and not ours:
        return str(error) or type(error).__name__, WRONG
    where = "GBPL_TRACEBACK=1 shows where, for a bug report"
    return f"this should not have happened ({type(error).__name__}: {error}); {where}", FAULT


@contextmanager
def warnings_shown(as_json: bool = False) -> Iterator[None]:
    """What is wrong with the data is said on standard error at once, before minutes of work."""

    def show(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        if not issubclass(category, UserWarning):
            return
        if as_json:
            print(as_json_text({"warning": str(message)}, indent=None, encoding=sys.stderr.encoding), file=sys.stderr)
        else:
            stderr().say(f"[bold red]warning:[/] {verbatim(message)}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


def progress_bar(**options: Any) -> Progress:
    """A bar on standard error, drawn only where somebody sees it."""
    console = stderr()
    columns = [
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False),
    ]  # fmt: skip
    return Progress(*columns, console=console, disable=not console.is_terminal, **options)


class _Left(ProgressColumn):
    """Time left, by the share of the whole that is done."""

    def render(self, task: Task) -> Text:
        left = time_left(task.elapsed or 0.0, task.percentage / 100.0)
        return Text(f"about {left} left" if left else "")


def learning(
    *, certificate: bool = False, check: bool = False, rule: bool = False, quiet: bool = False
) -> AbstractContextManager[None]:
    """The stages of `learn`, with reading before and writing after it."""
    left_out = {"certificate": not certificate, "checks": not check, "small rule": not rule}
    return _shown({name: share for name, share in LEARNING.items() if not left_out.get(name)}, quiet=quiet)


@contextmanager
def _shown(shares: Mapping[str, float], *, quiet: bool) -> Iterator[None]:
    """The stages of a job on standard error: a bar on a terminal, a line now and then in a log, nothing if `quiet`."""
    if quiet:
        yield
        return
    console = stderr()
    if not console.is_terminal:
        with _lines(shares):
            yield
        return
    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"), _Left()]
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        with running(Job(shares, lambda share, name: bar.update(task, completed=share, description=name))):
            yield


@contextmanager
def _lines(shares: Mapping[str, float]) -> Iterator[None]:
    """One line every `LINE_EVERY` seconds, from a thread of its own: a long step says nothing while it lasts."""
    started, ended = time.monotonic(), threading.Event()
    now: list[Any] = [0.0, "starting"]

    def show(share: float, name: str) -> None:
        now[:] = share, name

    def report() -> None:
        while not ended.wait(LINE_EVERY):
            elapsed = time.monotonic() - started
            left = time_left(elapsed, now[0])
            rest = f", about {left} left" if left else ""
            print(f"{now[0]:4.0%} {now[1]}, {elapsed:.0f} s so far{rest}", file=sys.stderr, flush=True)

    thread = threading.Thread(target=report, daemon=True)
    thread.start()
    try:
        with running(Job(shares, show)):
            yield
    finally:
        ended.set()
        thread.join()
