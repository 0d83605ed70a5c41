"""Warnings name the user's line, however deep in the package they are raised."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import gbpl.runtime.warn
from gbpl.runtime.warn import collected, warn

INSIDE = str(Path(gbpl.runtime.warn.PACKAGE) / "made_up.py")


def called_from(filename: str, depth: int) -> Any:
    """A chain of functions of one file, the last of which warns."""
    space: dict[str, Any] = {"warn": warn}
    exec(compile("def f0(): warn('careful', RuntimeWarning)", filename, "exec"), space)
    for number in range(1, depth):
        exec(compile(f"def f{number}(): f{number - 1}()", filename, "exec"), space)
    return space[f"f{depth - 1}"]


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_the_first_line_outside_the_package_is_named(depth: int) -> None:
    with pytest.warns(RuntimeWarning, match="careful") as caught:
        called_from(INSIDE, depth)()
    assert [one.filename for one in caught] == [__file__]


def test_a_caller_outside_the_package_is_not_passed_over() -> None:
    with pytest.warns(RuntimeWarning) as caught:
        called_from("somebody.py", 2)()
    assert caught[0].filename == "somebody.py"


def test_warnings_to_the_user_become_notes_once() -> None:
    notes = ["known"]

    def said() -> None:
        with collected(notes):
            for text in ("known", "new", "new"):
                warn(text)
            warnings.warn("for programmers", DeprecationWarning, stacklevel=1)

    with pytest.warns(DeprecationWarning, match="for programmers"):
        said()
    assert notes == ["known", "new"]
