"""Exports against numpy: rows that each decides otherwise, and rows per second.

    python benchmarks/export.py                     # small rules, a million rows in every target
    python benchmarks/export.py --policy POLICY     # a whole policy of gbpl fit

Small rules are random trees and scorecards over numbers, marks of missing ones and categories; two thirds of the
numbers are thresholds, or the floats next to them, and all columns have missing values and, if categories, new levels.
Times include bringing the rows there and the actions back. JSON conditions are interpreted
by the few lines of `tests/support/exports.py`, which are no measure of speed. For a policy the rows that are decided
otherwise are told with the largest gap between their two best actions, in outcome units.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.exports import (
    ENCODER,
    in_duckdb,
    in_onnx,
    in_python,
    in_sqlite,
    json_logic,
    json_rows,
    people,
    small_rules,
)

import gbpl
from gbpl.frozen.small_rule import SmallRule
from gbpl.tables.features import CategoryColumn

MILLION, AT_ONCE = 1_000_000, 250_000
RULES = ["tree of depth 1", "tree of depth 4", "scorecard of 2", "scorecard of 3"]


def some(table: dict[str, Any], rows: Any) -> dict[str, Any]:
    return {name: values[rows] for name, values in table.items()}


def of_rule(
    rule: SmallRule, table: dict[str, Any], folder: Path
) -> Iterator[tuple[str, np.ndarray, Callable[[dict[str, Any]], Any]]]:
    """Each target, the rows it takes, and what decides them with it."""
    logic = json_logic(json.loads(json.dumps(rule.to_conditions())))
    place = {label: number for number, label in enumerate(rule.actions_.tolist())}
    every = np.ones(len(next(iter(table.values()))), bool)

    def numbered(labels: Iterable[Any]) -> np.ndarray:
        return np.array([place[label] for label in labels])

    yield "duckdb", every, lambda own: numbered(in_duckdb(rule.to_sql(keep=["id"]), own, threads=2))
    yield "sqlite", every, lambda own: numbered(in_sqlite(rule.to_sql(dialect="sqlite", keep=["id"]), own))
    yield "python", every, lambda own: numbered(in_python(rule.to_python(), own))
    yield "json", every, lambda own: numbered(map(logic, json_rows(own)))
    rule.to_onnx(folder / "rule.onnx")
    # An empty text stands for a missing one in ONNX files, unless it is a level, as it is of this column.
    known = np.array([level is not None for level in table["région"].tolist()])
    yield "onnx", known, lambda own: in_onnx(folder / "rule.onnx", rule.encoder, own)


def on_a_threshold(rule: SmallRule, table: dict[str, Any]) -> float:
    """The share of rows with a number that is one of the rule's thresholds."""
    x, kinds, tied = rule.encode(table), ENCODER.kinds, np.zeros(len(table["income"]), bool)
    for feature, cut in zip(rule.rule.feature.tolist(), rule.rule.threshold.tolist(), strict=True):
        if feature >= 0 and kinds[feature] == "number":
            tied |= x[:, feature] == cut
    return float(tied.mean())


def small(rows: int, names: list[str]) -> None:
    table = people(rows)
    gone = [float(np.mean([v is None or v != v for v in values.tolist()])) for values in table.values()]
    print(f"{rows:,} rows; missing in {', '.join(f'{share:.0%}' for share in gone)} of them, by column")
    print(f"{'rule':<16} {'on a threshold':>14} {'target':<7} {'rows':>9} {'differ':>6} {'seconds':>8} {'rows/s':>10}")
    for name, rule in small_rules().items():
        if name not in names:
            continue
        share, expected = on_a_threshold(rule, table), rule.rule.actions(rule.encode(table))
        with tempfile.TemporaryDirectory() as folder:
            for target, taken, decide in of_rule(rule, table, Path(folder)):
                numbers, differ, started = np.flatnonzero(taken), 0, time.perf_counter()
                for first in range(0, len(numbers), AT_ONCE):
                    own = numbers[first : first + AT_ONCE]
                    differ += int(np.count_nonzero(decide(some(table, own)) != expected[own]))
                took = time.perf_counter() - started
                print(
                    f"{name:<16} {share:>14.1%} {target:<7} {len(numbers):>9,} {differ:>6} {took:>8.1f} "
                    f"{len(numbers) / took:>10,.0f}",
                    flush=True,
                )


def rows_like(policy: gbpl.SavedPolicy, rows: int, seed: int = 0) -> dict[str, Any]:
    """A table for a policy: numbers around those it learned from, its levels, new ones, and missing values."""
    encoder, rng, table = policy.encoder, np.random.default_rng(seed), {}
    if encoder is None:
        raise SystemExit("the policy has no encoder; give one of gbpl fit or gbpl.learn")
    ends = np.cumsum([len(part.names) for part in encoder.parts])
    for part, end in zip(encoder.parts, ends, strict=True):
        gone = rng.random(rows) < 0.1
        if isinstance(part, CategoryColumn):
            values = rng.choice(np.array([*part.levels, "new"], object), rows)
            values[gone] = None
        elif part.boolean:
            values = rng.random(rows) < 0.5
        else:
            at = end - len(part.names)
            values = np.where(gone, np.nan, policy.mean[at] + policy.scale[at] * rng.normal(size=rows))
        table[part.name] = values
    return table


def whole(path: str, rows: dict[str, int]) -> None:
    policy = gbpl.load(path)
    print(policy)
    table = rows_like(policy, max(rows.values()))
    expected = policy.decide(table).action
    gain = np.sort(policy.expected_gain(table), axis=1)
    apart = gain[:, -1] - gain[:, -2]
    print(f"{'target':<7} {'rows':>9} {'differ':>6} {'largest gap':>11} {'MB':>5} {'first row':>9} {'rows/s':>8}")
    sources = {
        "duckdb": (policy.to_sql(keep=["id"]), lambda text, own: in_duckdb(text, own, threads=2)),
        "sqlite": (policy.to_sql(dialect="sqlite", keep=["id"]), in_sqlite),
        "python": (policy.to_python(), in_python),
    }
    for target, (text, run) in sources.items():
        count = rows[target]
        if not count:
            continue
        started = time.perf_counter()
        run(text, some(table, slice(1)))
        first = time.perf_counter() - started
        started = time.perf_counter()
        decided = np.array(run(text, some(table, slice(count))), object)
        took = time.perf_counter() - started - first
        differ = decided != expected[:count]
        print(
            f"{target:<7} {count:>9,} {differ.sum():>6} {apart[:count][differ].max(initial=0.0):>11.1e} "
            f"{len(text) / 1e6:>5.1f} {first:>8.1f}s {count / max(took, 1e-9):>8,.0f}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=MILLION, help="rows for small rules")
    parser.add_argument("--rules", nargs="*", default=RULES, help="names of the rules")
    parser.add_argument("--policy", help="a policy file of gbpl fit, in place of small rules")
    parser.add_argument("--duckdb", type=int, default=MILLION, help="rows of a policy in DuckDB")
    parser.add_argument("--sqlite", type=int, default=20_000, help="rows of a policy in SQLite")
    parser.add_argument("--python", type=int, default=5_000, help="rows of a policy in Python")
    given = parser.parse_args()
    if given.policy is None:
        small(given.rows, given.rules)
    else:
        whole(given.policy, {"duckdb": given.duckdb, "sqlite": given.sqlite, "python": given.python})


if __name__ == "__main__":
    main()
