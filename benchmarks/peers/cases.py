"""The cases that methods are compared on.

    binary/DGP{1,2,3}/{500,2000,8000}   two actions, 10 features, a logging index of strength 1 clipped at 0.05
    binary/DGP{1,3}/3000                the same, the sample size that figures are quoted for
    multi/DGP{1,2,3}/{2000,8000}        five actions, the same strength, never clipped
    weak/DGP2/6000                      two actions, strength 2.5, no clipping: weak overlap
    xor, steps, linear-sine, ...        other designs, of benchmarks/designs.py
    digits, letter, ...                 a random half to learn from, one guess a row, 1 if it is right
    acic2016, ihdp-a, ...               outcomes of both or all actions that others made, one of them logged
    trial/...                           a random half of a real trial to learn from, the other half as judge
    speed/...                           the paper's designs again, for seconds alone

Replication r draws its design, its logging policy and its rows, or its halves, with seed r. README.md says what regret
is in each kind.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from problems import (
    TEST_ROWS,
    TRAINING_ROWS,
    Problem,
    Simple,
    Tables,
    classification,
    design,
    file_trial,
    simple,
    table,
    trial,
)

from gbpl.datasets import BinaryDesign, MultiActionDesign

__all__ = ["CASES", "KINDS", "SPEED", "Case", "stored"]

FEW, MANY = 5, 10  # replications, of cases above 3,000 rows and of the others
SPEED_REPLICATIONS = 2  # the first has what a library does at its first use
SPEED_TEST_ROWS = 1_000
PAPER, OTHER, CLASSES, SEMI, TRIAL, SPEED = KINDS = (
    "the paper's designs", "other designs", "classification", "semi-synthetic", "real trials", "speed",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """A name, a kind, how many replications it has unless asked for, and how one is drawn from its seed."""

    name: str
    kind: str
    replications: int
    draw: Callable[[int, Tables], Problem]


def _paper(folder: str, kind: type, name: str, n: int, strength: float = 1.0, clip: float = 0.05) -> Case:
    draw = partial(design, kind, name, n, strength, clip, TEST_ROWS)
    return Case(f"{folder}/{name}/{n}", PAPER, MANY if n <= 3000 else FEW, draw)


def _speed(kind: type, n: int) -> Case:
    draw = partial(design, kind, "DGP2", n, 1.0, 0.05, SPEED_TEST_ROWS)
    return Case(f"speed/{n}", SPEED, SPEED_REPLICATIONS, draw)


def _simple(name: str, drawn: Simple, n: int, strength: float) -> Case:
    return Case(f"{name}/{n}", OTHER, MANY, partial(simple, drawn, n, strength))


def _table(source: str, kind: str, settings: int = 1, n: int = TRAINING_ROWS) -> Case:
    return Case(source, kind, MANY, partial(table, source, settings, n))


def _file_trial(name: str, outcome: str | None = None) -> Case:
    label = name.removesuffix("_covariates") if outcome is None else f"{name}-{outcome}"
    return Case(f"trial/{label}", TRIAL, MANY, partial(file_trial, name, outcome))


NAMES = ("DGP1", "DGP2", "DGP3")
CASES = {
    case.name: case
    for case in (
        *(_paper("binary", BinaryDesign, name, n) for name in NAMES for n in (500, 2000, 8000)),
        *(_paper("binary", BinaryDesign, name, 3000) for name in ("DGP1", "DGP3")),
        *(_paper("multi", MultiActionDesign, name, n) for name in NAMES for n in (2000, 8000)),
        _paper("weak", BinaryDesign, "DGP2", 6000, strength=2.5, clip=0.0),
        _simple("xor", Simple("xor", 2), 1000, 1.0),
        _simple("steps", Simple("steps", 2), 1000, 1.0),
        _simple("linear-sine", Simple("linear-sine", 10, n_features=10), 2000, 1.0),
        _simple("constant-effect", Simple("constant", 2), 1500, 0.0),
        _simple("weak-effect", Simple("weak", 3), 1500, 0.0),
        _simple("rates", Simple("rates", 3), 1500, 0.0),
        _simple("heavy-tails", Simple("tails", 2, noise="tails"), 1500, 0.0),
        *(Case(name, CLASSES, MANY, partial(classification, name)) for name in ("digits", "optdigits", "vehicle")),
        *(_table(name, CLASSES) for name in ("satimage", "pendigits", "letter", "segment", "vowel")),
        _table("warfarin", SEMI),
        _table("acic2016", SEMI, settings=10),
        _table("ihdp-a", SEMI, settings=10),
        _table("ihdp-b", SEMI, settings=10),
        _table("causalml-2", SEMI, settings=10, n=1000),
        _table("causalml-4", SEMI, settings=10, n=1000),
        _table("doubleml", SEMI, settings=10, n=1000),
        _file_trial("nsw"),
        _file_trial("jtpa_covariates"),
        _file_trial("hillstrom", "visit"),
        _file_trial("hillstrom", "spend"),
        *(Case(f"trial/{name}", TRIAL, MANY, partial(trial, name)) for name in ("star", "rand")),
        *(_speed(BinaryDesign, n) for n in (500, 3000, 20_000)),
        _speed(MultiActionDesign, 8000),
    )
}


def stored(case: Case, seed: int, folder: Path, tables: Tables) -> tuple[Path, Path]:
    """Two files, drawn if they are not there: what methods see, and the truth at the test rows."""
    seen, truth = (folder / kind / case.name / f"{seed}.npz" for kind in ("problems", "truths"))
    if not (seen.exists() and truth.exists()):
        problem = case.draw(seed, tables)
        names = ("x", "action", "outcome", "propensity", "x_test", "propensity_test")
        _save(truth, outcome_mean=problem.outcome_mean, best=np.array(problem.best))
        _save(seen, **{name: getattr(problem, name) for name in names})
    return seen, truth


def _save(path: Path, **arrays: np.ndarray) -> None:
    """Whole or not at all: an interrupted run must not leave half a file to be read by the next."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part.npz")
    np.savez(part, **arrays)
    os.replace(part, path)
