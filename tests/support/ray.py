"""A worker of Ray that is killed once, and modules of tests that are sent to workers."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gbpl.runtime.engines


@contextmanager
def sent_whole(*modules: ModuleType) -> Iterator[None]:
    """Workers get the functions of these modules and of this one by value, as they do not find the files."""
    from ray import cloudpickle

    given = (*modules, sys.modules[__name__])
    for module in given:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in given:
        cloudpickle.unregister_pickle_by_value(module)


def kill_second(mark: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The worker of the second task is killed, once, when its work is done and nobody has it yet; `mark` is there then.

    Only where `sent_whole` is in force.
    """
    plain, home = gbpl.runtime.engines._numbered, os.getpid()

    def numbered(function: Callable[[Any], Any], number: int, item: Any) -> tuple[int, Any]:
        result = plain(function, number, item)
        if number == 1 and os.getpid() != home and not mark.exists():
            mark.write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    monkeypatch.setattr(gbpl.runtime.engines, "_numbered", numbered)
    return mark
