"""Threads: of linear algebra, its own choice or one where more would only wait for each other, and of our own work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

__all__ = ["beside", "cores", "few_threads", "in_threads", "one_thread"]

SMALL = 2_000  # order of a matrix up to which one thread is as fast
MOST = 4  # threads of numpy work: beyond it they wait for the interpreter

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Cores that this process may use: those it is allowed, or `GBPL_CPU_DEVICES`."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, int(os.environ.get("GBPL_CPU_DEVICES", allowed)))


def in_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> Iterator[Result]:
    """The result of each item in their order, made by several threads: numpy works outside the interpreter's lock."""
    threads = min(MOST, cores(), len(items))
    if threads < 2:
        yield from map(function, items)
        return
    with one_thread():
        pool = ThreadPoolExecutor(threads)
        try:
            yield from pool.map(function, items)
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def beside() -> Iterator[Callable[..., Future[Any]]]:
    """Hands work to one other thread, such as numpy work while a program is compiled.

    What has not begun is dropped if the body fails.
    """
    pool = ThreadPoolExecutor(1)
    try:
        yield pool.submit
    finally:
        pool.shutdown(cancel_futures=True)


class _OneThread:
    """BLAS on one thread while every core has work of its own; calls that overlap share the limit.

    Threads of BLAS under threads of ours wait for each other: on two busy cores that is five times slower.
    """

    def __init__(self) -> None:
        self.lock, self.inside = threading.Lock(), 0
        self.controller: Any = None
        self.limit: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self.lock:
            if self.inside == 0:
                if self.controller is None:
                    from threadpoolctl import ThreadpoolController

                    self.controller = ThreadpoolController()
                self.limit = self.controller.limit(limits=1, user_api="blas")
            self.inside += 1
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if self.inside == 0:
                    self.limit.restore_original_limits()


one_thread = _OneThread()


def few_threads(order: int) -> AbstractContextManager[None]:
    """One thread for a small matrix: on busy cores more of them cost more by waiting than they save."""
    return one_thread() if order <= SMALL else nullcontext()
