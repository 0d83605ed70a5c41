"""Calls recorded while a test runs, and calls that a test forbids."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import pytest


class Call(NamedTuple):
    """One call of a function: what it was given and what it returned."""

    arguments: tuple[Any, ...]
    options: dict[str, Any]
    result: Any


def record_calls(monkeypatch: pytest.MonkeyPatch, name: str, *modules: ModuleType) -> list[Call]:
    """Calls of the function of this name in these modules, from now on and in their order."""
    calls: list[Call] = []
    whole = getattr(modules[0], name)

    def recorded(*arguments: Any, **options: Any) -> Any:
        calls.append(Call(arguments, options, whole(*arguments, **options)))
        return calls[-1].result

    for module in modules:
        monkeypatch.setattr(module, name, recorded)
    return calls


def forbid_calls(monkeypatch: pytest.MonkeyPatch, *functions: tuple[Any, str]) -> None:
    """The test fails where one of these, each an object and the name of its attribute, is called."""

    def fail(*_: Any, **__: Any) -> None:
        pytest.fail("work began before everything was checked")

    for owner, name in functions:
        monkeypatch.setattr(owner, name, fail)
