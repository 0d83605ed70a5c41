"""Imports between the folders of gbpl go one way, and optional dependencies are imported where they are used."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "gbpl"
OPTIONAL = {
    "causaldata", "duckdb", "equinox", "flax", "jaxtyping", "jinja2", "lightgbm", "linearmodels", "matplotlib", "onnx",
    "pandas", "polars", "pyarrow", "ray", "rich", "torch", "typer",
}  # fmt: skip
OPTIONAL_AT_TOP = {"cli": {"typer", "rich"}, "plots": {"matplotlib"}}


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    """The contracts of pyproject.toml, checked on the sources below a folder."""
    run = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, 'src'); {run}", "--no-cache"]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)


def test_imports_go_one_way() -> None:
    found = linted(ROOT)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(
    ("module", "line", "said"),
    [
        (
            "fitting/members.py",
            "from gbpl.path.path import fit_paths",
            "gbpl.fitting is not allowed to import gbpl.path",
        ),
        ("value/welfare.py", "import gbpl.value.overlap", "No cycles are allowed"),
        ("frozen/policy.py", "import jax", "gbpl.frozen is not allowed to import jax"),
        ("helpers.py", "", "gbpl.helpers"),
    ],
)
def test_what_breaks_a_contract_is_named(tmp_path: Path, module: str, line: str, said: str) -> None:
    shutil.copytree(SOURCE, tmp_path / "src" / "gbpl")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    broken = tmp_path / "src" / "gbpl" / module
    text = broken.read_text(encoding="utf-8") if broken.exists() else ""
    broken.write_text(f"{text}\n{line}\n", encoding="utf-8")
    if "cycle" in said:
        other = tmp_path / "src" / "gbpl" / "value" / "overlap.py"
        other.write_text(other.read_text(encoding="utf-8") + "\nimport gbpl.value.welfare\n", encoding="utf-8")
    found = linted(tmp_path)
    assert found.returncode != 0
    assert said in " ".join(found.stdout.split())


def is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def eager_imports(node: ast.AST) -> Iterator[str]:
    """Packages that are imported as soon as a module is: not inside a function, nor for types alone."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.level == 0:
            yield str(child.module).partition(".")[0]
        elif is_type_checking(child):
            for statement in child.orelse:  # type: ignore[attr-defined]
                yield from eager_imports(ast.Module([statement], []))
        elif not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from eager_imports(child)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_optional_dependencies_are_lazy(path: Path) -> None:
    folder = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    eager = set(eager_imports(ast.parse(path.read_text(encoding="utf-8"))))
    assert not eager & (OPTIONAL - OPTIONAL_AT_TOP.get(folder, set())), "import it in the function that needs it"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import pandas as pd", {"pandas"}),
        ("try:\n    from polars import DataFrame\nexcept ImportError:\n    pass", {"polars"}),
        ("def f():\n    import pandas", set()),
        ("class A:\n    import torch", {"torch"}),
        ("import typing\nif typing.TYPE_CHECKING:\n    import ray\nelse:\n    import onnx", {"typing", "onnx"}),
    ],
)
def test_laziness_is_checked(text: str, found: set[str]) -> None:
    assert set(eager_imports(ast.parse(text))) == found
