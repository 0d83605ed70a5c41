"""Imports between the modules of gbpl go one way, and optional dependencies are imported where they are used."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "gbpl"

# From low to high. A module imports from lower layers, or from its own without a cycle. A package has one place.
LAYERS = (
    (
        "version",
        "blas",
        "files",
        "arrow_arrays",
        "frames",
        "columns",
        "features",
        "encoding",
        "table_formats",
        "delimited",
        "tables",
        "table_writer",
        "report",
        "gain",
        "surrogates",
        "losses",
        "models",
        "priors",
        "devices",
        "progress",
        "feedback",
        "logged",
        "pseudo_outcomes",
        "overlap",
        "value",
        "welfare",
        "engines",
        "basis",
        "splines",
        "freed",
        "row_source",
        "row_statistics",
        "roles",
        "labels",
        "table_data",
        "parquet_rows",
    ),
    ("stack",),
    ("batches", "hosts"),
    ("fit", "evaluate", "chunk_fit", "fold_outputs"),
    ("forest", "averaged"),
    ("zeta", "nuisance", "offpolicy", "eta", "posteriors", "path", "row_sums", "large", "boosting"),
    ("decisions", "bounds"),
    ("networks",),
    ("saved", "stored"),
    ("persistence", "onnx"),
    ("posterior", "certificate", "policy", "stream", "describe", "imitation", "notes"),
    ("freeze",),
    ("estimator", "baselines"),
    ("learner",),
    ("terms", "worth"),
    ("summary", "judge"),
    ("study",),
    ("plots", "truth", "datasets", "openml", "coverage"),
    ("cli", "__main__"),
    ("paper",),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
UPWARD = {("cli", "paper")}  # a command may run the paper's studies, from inside a function
FROM_ROOT = {"cli", "__main__", "paper"}  # may use the public names as users do

OPTIONAL = {
    "causaldata", "equinox", "flax", "jaxtyping", "jinja2", "lightgbm", "linearmodels", "matplotlib", "onnx", "pandas",
    "polars", "pyarrow", "ray", "rich", "torch", "typer",
}  # fmt: skip
OPTIONAL_AT_TOP = {"cli": {"typer", "rich"}, "plots": {"matplotlib"}}


@dataclass(frozen=True, slots=True)
class Import:
    """One import statement's target: `lazy` when it sits in a function, and so runs only when called."""

    target: str
    lazy: bool


def is_type_checking(node: ast.expr) -> bool:
    return (isinstance(node, ast.Name) and node.id == "TYPE_CHECKING") or (
        isinstance(node, ast.Attribute) and node.attr == "TYPE_CHECKING"
    )


def statements(node: ast.AST, lazy: bool = False) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Every import statement that runs, and whether it waits for a call."""
    children: list[ast.AST] = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.If) and is_type_checking(node.test):
        children = list(node.orelse)
    inside = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    for child in children:
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child, inside
        else:
            yield from statements(child, inside)


def imports_of(module: str, is_package: bool, source: str, modules: set[str]) -> list[Import]:
    """What a module imports, by full name; `from gbpl.a import b` is `gbpl.a.b` where that is a module."""
    found = []
    for statement, lazy in statements(ast.parse(source)):
        if isinstance(statement, ast.Import):
            found += [Import(alias.name, lazy) for alias in statement.names]
            continue
        base = statement.module or ""
        if statement.level:
            parts = module.split(".")
            parts = parts[: len(parts) - statement.level + is_package]
            base = ".".join([*parts, base] if base else parts)
        for alias in statement.names:
            full = f"{base}.{alias.name}"
            found.append(Import(full if full in modules else base, lazy))
    return found


def read_package(folder: Path) -> dict[str, list[Import]]:
    """Each module of the package in `folder`, by full name, with its imports."""
    paths = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        paths[".".join(["gbpl", *(parts[:-1] if is_package else parts)])] = (path, is_package)
    found = {
        name: imports_of(name, is_package, path.read_text(encoding="utf-8"), set(paths))
        for name, (path, is_package) in paths.items()
    }
    stub = folder / "__init__.pyi"  # the public names, which __init__.py imports where they are used
    if stub.exists():
        found["gbpl"] += imports_of("gbpl", True, stub.read_text(encoding="utf-8"), set(paths))
    return found


def part(module: str) -> str:
    """The part of the package that has a place in the table: `posteriors` for `gbpl.posteriors.nuts`."""
    return module.split(".")[1] if "." in module else ""


def unplaced(package: Mapping[str, list[Import]]) -> list[str]:
    return sorted({part(module) for module in package} - {""} - set(LEVEL))


def upward_imports(package: Mapping[str, list[Import]]) -> list[str]:
    """Imports that go up the layers, or take from gbpl/__init__.py what a lower module defines."""
    wrong = []
    for module, imports in package.items():
        here = part(module)
        for item in imports:
            there = part(item.target)
            if item.target.split(".")[0] != "gbpl" or here not in LEVEL:
                continue  # __init__.py may import anything
            if not there:
                if here not in FROM_ROOT:
                    wrong.append(f"{module} imports from gbpl itself: import from the module that defines the name")
            elif there not in LEVEL:
                wrong.append(f"{module} imports {item.target}, which has no place in LAYERS")
            elif LEVEL[there] > LEVEL[here] and not (item.lazy and (here, there) in UPWARD):
                wrong.append(f"{module} (layer {LEVEL[here]}) imports {item.target} (layer {LEVEL[there]})")
    return wrong


def cycle(package: Mapping[str, list[Import]]) -> list[str]:
    """One cycle of imports, lazy ones included, or nothing."""
    inner = {module: {item.target for item in imports if item.target in package} for module, imports in package.items()}
    try:
        TopologicalSorter(inner).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def eager_optional_imports(package: Mapping[str, list[Import]]) -> list[str]:
    """Optional dependencies that a module imports at its top, where it may not."""
    return [
        f"{module} imports {item.target} at its top: move it into the function that needs it"
        for module, imports in package.items()
        for item in imports
        if not item.lazy and item.target.split(".")[0] in OPTIONAL - OPTIONAL_AT_TOP.get(part(module), set())
    ]


def loaded_by_import(package: Mapping[str, list[Import]]) -> set[str]:
    """The modules of gbpl that its public names run; a module brings its parent packages with it."""
    loaded: set[str] = set()
    waiting = ["gbpl"]
    while waiting:
        module = waiting.pop()
        if module in loaded or module not in package:
            continue
        loaded.add(module)
        waiting += [module.rpartition(".")[0], *(item.target for item in package[module] if not item.lazy)]
    return loaded


@pytest.fixture(scope="module")
def package() -> dict[str, list[Import]]:
    return read_package(SOURCE)


def test_every_module_has_a_place(package: dict[str, list[Import]]) -> None:
    missing = unplaced(package)
    assert not missing, f"add {', '.join(missing)} to LAYERS in {Path(__file__).name}"


def test_imports_go_one_way(package: dict[str, list[Import]]) -> None:
    wrong = upward_imports(package)
    assert not wrong, "\n".join(wrong)


def test_no_import_cycle(package: dict[str, list[Import]]) -> None:
    found = cycle(package)
    assert not found, "import cycle: " + " -> ".join(found)


def test_optional_dependencies_are_lazy(package: dict[str, list[Import]]) -> None:
    wrong = eager_optional_imports(package)
    assert not wrong, "\n".join(wrong)


def test_import_gbpl_needs_no_optional_dependency(package: dict[str, list[Import]]) -> None:
    wrong = {part(module) for module in loaded_by_import(package)} & set(OPTIONAL_AT_TOP)
    assert not wrong, f"`import gbpl` runs {sorted(wrong)}, which may need optional dependencies: import them lazily"


# The checks themselves, on small packages that break one rule each.


def written(folder: Path, files: Mapping[str, str]) -> dict[str, list[Import]]:
    for name, text in {"__init__.py": "", **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_package(folder)


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("fit.py", "import gbpl.stack", 0),
        ("stack.py", "from gbpl.fit import fit_stack", 1),
        ("stack.py", "from gbpl import fit", 1),
        ("stack.py", "import gbpl.fit as f", 1),
        ("stack.py", "from . import fit", 1),
        ("stack.py", "from .fit import fit_stack", 1),
        ("stack.py", "def f():\n    from gbpl.fit import fit_stack", 1),
        ("stack.py", "try:\n    import gbpl.fit\nexcept ImportError:\n    pass", 1),
        ("stack.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from gbpl.fit import fit_stack", 0),
        ("stack.py", "import typing\nif typing.TYPE_CHECKING:\n    pass\nelse:\n    import gbpl.fit", 1),
        ("stack.py", "from gbpl import GBPLNet", 1),
        ("posteriors/nuts.py", "from ..decisions import defer", 1),
        ("posteriors/nuts.py", "from .base import Posterior\nfrom ..fit import fit_stack", 0),
        ("posteriors/__init__.py", "from .base import Posterior\nfrom ..decisions import defer", 1),
        ("cli.py", "def f():\n    import gbpl.paper.tables", 0),
        ("cli.py", "import gbpl.paper.tables", 1),
        ("cli.py", "from gbpl import GBPLNet", 0),
        ("__init__.py", "from gbpl.estimator import GBPLNet", 0),
    ],
)
def test_direction_is_checked(tmp_path: Path, name: str, text: str, count: int) -> None:
    around = dict.fromkeys(
        ["fit.py", "stack.py", "decisions.py", "estimator.py", "posteriors/base.py", "paper/tables.py"], ""
    )
    assert len(upward_imports(written(tmp_path, {**around, name: text}))) == count


def test_unknown_module_is_named(tmp_path: Path) -> None:
    assert unplaced(written(tmp_path, {"helpers.py": "", "fit.py": ""})) == ["helpers"]


def test_cycle_is_named_in_order(tmp_path: Path) -> None:
    package = written(
        tmp_path,
        {
            "models.py": "from gbpl.priors import GaussianPrior",
            "priors.py": "def f():\n    import gbpl.surrogates",
            "surrogates.py": "from .models import MLP",
        },
    )
    found = cycle(package)
    assert found[0] == found[-1]
    assert all(b in {item.target for item in package[a]} for a, b in pairwise(found))


@pytest.mark.parametrize(
    ("name", "text", "count"),
    [
        ("feedback.py", "import pandas as pd", 1),
        ("feedback.py", "try:\n    from polars import DataFrame\nexcept ImportError:\n    pass", 1),
        ("feedback.py", "def f():\n    import pandas", 0),
        ("feedback.py", "class A:\n    import torch", 1),
        ("plots.py", "import matplotlib.pyplot as plt", 0),
        ("plots.py", "import pandas", 1),
        ("cli.py", "import typer\nfrom rich.table import Table", 0),
    ],
)
def test_laziness_is_checked(tmp_path: Path, name: str, text: str, count: int) -> None:
    assert len(eager_optional_imports(written(tmp_path, {name: text}))) == count


def test_what_import_gbpl_runs(tmp_path: Path) -> None:
    package = written(
        tmp_path,
        {
            "__init__.py": "from gbpl.estimator import GBPLNet",
            "estimator.py": "from gbpl.posteriors.base import Posterior\ndef f():\n    import gbpl.plots",
            "posteriors/__init__.py": "import gbpl.fit",
            "posteriors/base.py": "",
            "fit.py": "",
            "plots.py": "",
        },
    )
    assert loaded_by_import(package) == {
        "gbpl", "gbpl.estimator", "gbpl.posteriors", "gbpl.posteriors.base", "gbpl.fit",
    }  # fmt: skip
