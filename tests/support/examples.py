"""The worked examples as modules, and what they return, each run once."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import gbpl.estimators.gbplnet
import gbpl.nuisance.averaged
import gbpl.nuisance.confounding
import gbpl.nuisance.plan
from gbpl import MLP, FitConfig, ForestFeatures
from support.data import data_package

ROOT = Path(__file__).resolve().parents[2]
CARRIED = {"treatment_choice": "causaldata", "portfolio": "linearmodels"}


def example(name: str) -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def run_once(folders: pytest.TempPathFactory) -> Callable[..., Any]:
    """What `main` of an example returns, run once, with its pictures in the folder `figures`."""
    results: dict[str, Any] = {}

    def run(name: str, **given: Any) -> Any:
        if name in CARRIED:
            data_package(CARRIED[name])
        if name not in results:
            folder = folders.mktemp(name)
            results[name] = example(name).main(figures=folder, **given)
            assert [path.name for path in folder.iterdir()] == [f"{name}.png"]
        return results[name]

    return run


def small_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not named is small: networks, their epochs, forests. The two networks for outcomes are one to compile."""
    monkeypatch.setattr(MLP.__init__, "__defaults__", ((16,), "tanh"))
    network = MLP()
    monkeypatch.setattr(gbpl.estimators.gbplnet, "NETWORK", network)
    monkeypatch.setattr(gbpl.nuisance.plan, "AUTO_NETWORKS", {"network": network, "relu network": network})
    monkeypatch.setitem(FitConfig.__init__.__kwdefaults__, "max_epochs", 10)
    monkeypatch.setattr(gbpl.estimators.gbplnet, "STEPS", FitConfig(learning_rate=2e-3, max_epochs=10))
    monkeypatch.setattr(gbpl.nuisance.averaged, "TREES", 25)
    monkeypatch.setattr(gbpl.nuisance.confounding, "TREES", 10)
    monkeypatch.setattr(gbpl.estimators.gbplnet, "BESIDE", (ForestFeatures(trees=10, depth=3, components=16),))
