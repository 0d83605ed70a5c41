"""What the tests of the command line share: a small trial, a policy made by hand, and a command run in-process."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from sklearn.linear_model import LinearRegression

from gbpl import Encoder, FitConfig, GBPLNet, Linear, SavedPolicy, Study, cli, learn
from gbpl.decisions.decisions import Rule
from gbpl.decisions.gain import GainSlope
from gbpl.frozen.committee import Part
from gbpl.models.numpy_form import Networks

SUFFIXES = (".csv", ".parquet", ".feather", ".arrow")


@dataclass(frozen=True)
class Done:
    """How a command ended and what it said; `words` is its error on one line."""

    code: Any
    out: str
    err: str

    @property
    def words(self) -> str:
        return " ".join(self.err.split())


def run(capsys: pytest.CaptureFixture[str], *argv: object) -> Done:
    """`gbpl ARGV`, in this process."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        cli.main([str(word) for word in argv])
    said = capsys.readouterr()
    return Done(stop.value.code, said.out, said.err)


def command(*argv: object) -> list[str]:
    """`gbpl ARGV`, as a process of its own."""
    return [sys.executable, "-m", "gbpl", *(str(word) for word in argv)]


def quick_estimator(seed: int) -> GBPLNet:
    """One that fits in a second or two, most of it compilation."""
    return GBPLNet(
        model=Linear(), outcome_model=LinearRegression(), zeta=1.0, eta=1.0, correction=1.0, committee=3,
        nuisance_folds=3, fit_config=FitConfig(max_epochs=20, learning_rate=0.03), device="cpu", random_state=seed,
    )  # fmt: skip


def quick_learn(frame: Any, *, seed: int = 0, **options: Any) -> Study:
    """`gbpl.learn` with such an estimator, in its place for the command line."""
    return learn(frame, seed=seed, estimator=quick_estimator(seed), **options)


def people(rows: int = 120, seed: int = 0) -> dict[str, Any]:
    """A trial: those below 40 gain from the treatment."""
    rng = np.random.default_rng(seed)
    age = rng.integers(20, 60, rows).astype(float)
    arm = np.where(rng.random(rows) < 0.5, "treat", "none")
    earnings = 10.0 * (arm == "treat") * (age < 40) + rng.normal(0.0, 1.0, rows).round(3)
    return {
        "person": [f"p{number}" for number in range(rows)],
        "age": age,
        "sex": rng.choice(["f", "m"], rows),
        "arm": arm,
        "earnings": earnings,
    }


def changed(columns: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """Columns of a table, some of them changed or added; None takes one out."""
    return {name: values for name, values in {**columns, **changes}.items() if values is not None}


def write(path: Path, columns: Mapping[str, Any]) -> Path:
    """A table in the format of the file's suffix."""
    table = columns if isinstance(columns, pa.Table) else pa.table({name: pa.array(v) for name, v in columns.items()})
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path, row_group_size=1000)
    elif path.suffix == ".feather":
        pyarrow.feather.write_feather(table, path)
    else:
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=1000)
    return path


def read(path: Path) -> pa.Table:
    """A table back from its file."""
    if path.suffix == ".csv":
        return pyarrow.csv.read_csv(path)
    return pyarrow.parquet.read_table(path) if path.suffix == ".parquet" else pyarrow.feather.read_table(path)


def tiny_policy(
    table: Mapping[str, Any],
    features: Sequence[str] = ("age", "sex"),
    *,
    actions: Sequence[Any] = ("none", "treat"),
    draws: int = 50,
    prices: tuple[float, ...] = (),
    encoded: bool = True,
    summary: Mapping[str, Any] | None = None,
) -> SavedPolicy:
    """A policy of two small networks, drawn and not fitted."""
    rng = np.random.default_rng(7)
    encoder = Encoder.fit(table, list(features))[0]
    x, _ = encoder.apply(table)
    width, raw = x.shape[1], 1 if len(actions) == 2 else len(actions)

    def normal(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    made = {
        "format": 1,
        "roles": {"outcome": "earnings", "action": "arm", "propensity": 0.5},
        "actions": [{"label": str(label), "cost": 0.0} for label in actions],
    }
    part = Part(
        Networks((normal(2, width + 1, 4),), normal(2, 5, raw)),
        np.array([0.5, 0.5]),
        normal(draws, 5, raw) if draws else None,
        rng.integers(0, 2, draws).astype(np.int32) if draws else None,
    )
    return SavedPolicy(
        [part],
        squashing="tanh" if raw == 1 else "softmax",
        mean=x.mean(axis=0),
        scale=np.maximum(x.std(axis=0), 1e-9),
        actions=np.array(actions),
        feature_names=None if encoded else encoder.names,
        gain=GainSlope(3.0, 0.5),
        rule=Rule(0, 0.8, prices),
        encoder=encoder if encoded else None,
        summary=made if summary is None else summary,
    )


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder, hidden ones too; None for a folder."""
    paths = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in paths}
