"""Small rules and policies to export, tables with every edge in them, and what a file of each kind decides."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from gbpl.decisions.scorecard import Scorecard
from gbpl.decisions.tree import LEAF, Tree
from gbpl.frozen.small_rule import SmallRule
from gbpl.tables.encoder import Encoder
from gbpl.tables.features import CategoryColumn, NumberColumn

HOSTILE = "a\"ge`; DROP TABLE people; --\n'{0}%s\\"
LEVELS = ("", "it's", 'q"uo`te', "é'st <b>\n")
LABELS = ["wait", "'; DROP TABLE people; --", 'call "now"\n']
CUTS = (0.1, 34.5, 1.0 / 3.0, 1e-7, 123456.789012345, -(2.0**-40))
ENCODER = Encoder(
    (
        NumberColumn(HOSTILE, 34.5, True),
        NumberColumn("income", 0.1, False),
        NumberColumn("vip", 1.0, True, True),
        CategoryColumn("région", LEVELS, True, True),
        CategoryColumn("sex", ("f", "m"), False, False),
        CategoryColumn("town", ("Bonn", "Köln", "Ulm"), True, False),
        CategoryColumn("door", ("web",), False, True),
    )
)


def people(rows: int, seed: int = 0) -> dict[str, np.ndarray]:
    """A table of ENCODER's columns: values on thresholds and next to them, missing ones, and levels that are new."""
    rng = np.random.default_rng(seed)
    near = [value for cut in CUTS for value in (cut, np.nextafter(cut, -np.inf), np.nextafter(cut, np.inf))]
    numbers = rng.choice(np.array([*near, np.nan, 0.0, -0.0, 1e300, -1e300]), (2, rows))
    numbers[:, ::3] = rng.normal(size=(2, len(range(0, rows, 3)))) * 40.0

    def levels(*texts: str | None) -> np.ndarray:
        return np.array(texts, object)[rng.integers(len(texts), size=rows)]

    return {
        HOSTILE: numbers[0],
        "income": numbers[1],
        "vip": np.array([True, False, None], object)[rng.integers(3, size=rows)],
        "région": levels(*LEVELS, None, "new"),
        "sex": levels("f", "m", None, "x"),
        "town": levels("Bonn", "Ulm", "Köln", None, "Rom"),
        "door": levels("web", "shop", None),
    }


def _asked(rng: np.random.Generator, kinds: list[str], count: int) -> np.ndarray:
    """Features to ask about: numbers twice as often as all others."""
    numbers = np.flatnonzero(np.array(kinds) == "number")[:2]
    return np.where(rng.random(count) < 0.67, rng.choice(numbers, count), rng.integers(len(kinds), size=count))


def random_tree(depth: int, seed: int, actions: int = 3, encoder: Encoder | None = ENCODER, width: int = 2) -> Tree:
    """A whole tree of random questions, about numbers and about marks and levels."""
    rng = np.random.default_rng([seed, depth])
    kinds = ["number"] * width if encoder is None else encoder.kinds
    inner, nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    feature = np.where(np.arange(nodes) < inner, _asked(rng, kinds, nodes), LEAF)
    cuts = [
        np.nan if number == LEAF else rng.choice(CUTS) if kinds[number] == "number" else rng.choice([0.5, 0.0])
        for number in feature.tolist()
    ]
    left = np.where(feature == LEAF, -1, 2 * np.arange(nodes) + 1)
    action = np.where(feature == LEAF, rng.integers(actions, size=nodes), -1)
    return Tree.of(feature, cuts, left, np.where(left < 0, -1, left + 1), action)


def random_card(conditions: int, seed: int, actions: int, encoder: Encoder | None = ENCODER) -> Scorecard:
    """A scorecard of few points, so that many rows have as many of two actions."""
    rng = np.random.default_rng([seed, conditions])
    kinds = ["number"] * 2 if encoder is None else encoder.kinds
    feature = _asked(rng, kinds, conditions)
    cuts = np.array([rng.choice(CUTS) if kinds[number] == "number" else 0.5 for number in feature])
    return Scorecard(feature, cuts, rng.integers(-2, 3, (conditions, actions)), rng.integers(-1, 2, actions))


def small_rules() -> dict[str, SmallRule]:
    names, labels, nan = tuple(ENCODER.names), np.array(LABELS, object), np.nan
    stump = Tree.of([2, LEAF, LEAF], [0.1, nan, nan], [1, -1, -1], [2, -1, -1], [-1, 0, 1])
    card = Scorecard(
        np.array([0, 2, 2, 4, 7]), np.array([34.5, 0.1, 1.0 / 3.0, 0.5, 0.5]),
        np.array([[0, 2], [0, -2], [0, 1], [0, -1], [0, 1]]), np.array([0, -1]),
    )  # fmt: skip
    return {
        "one action": SmallRule(Tree.of([LEAF], [nan], [-1], [-1], [2]), labels, names, ENCODER),
        "tree of depth 1": SmallRule(stump, labels, names, ENCODER),
        "tree of depth 4": SmallRule(random_tree(4, 1), labels, names, ENCODER),
        "tree of depth 6": SmallRule(random_tree(6, 2), labels, names, ENCODER),
        "scorecard of 2": SmallRule(card, np.array([7, 3]), names, ENCODER),
        "scorecard of 3": SmallRule(random_card(6, 1, 3), labels, names, ENCODER),
    }


# -- what a file decides ----------------------------------------------------------------------------------------------


def in_duckdb(query: str, table: dict[str, Any], threads: int = 1) -> list[Any]:
    """Actions by DuckDB, in the order of the rows; the query keeps `id`."""
    import duckdb
    import pandas as pd

    with duckdb.connect() as connection:
        connection.execute(f"SET threads = {threads}")
        frame = pd.DataFrame(table | {"id": np.arange(len(next(iter(table.values()))))})
        connection.execute("CREATE TABLE people AS SELECT * FROM frame")
        found = connection.execute(query)
        names = [column[0] for column in found.description]
        assert names[-1] == "action"
        decided = found.fetchall()
    assert [row[0] for row in connection_order(decided)] == list(range(len(frame)))
    return [row[-1] for row in connection_order(decided)]


def connection_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda row: row[0])


def in_sqlite(query: str, table: dict[str, Any]) -> list[Any]:
    """Actions by SQLite, in the order of the rows; the query keeps `id`."""
    columns = {name: [_plain(value) for value in np.asarray(values).tolist()] for name, values in table.items()}
    columns["id"] = list(range(len(next(iter(columns.values())))))
    connection = sqlite3.connect(":memory:")
    quoted = ", ".join("`" + name.replace("`", "``") + "`" for name in columns)
    connection.execute(f"CREATE TABLE people ({quoted})")
    marks = ", ".join("?" * len(columns))
    connection.executemany(f"INSERT INTO people VALUES ({marks})", zip(*columns.values(), strict=True))
    decided = connection_order(connection.execute(query).fetchall())
    assert [row[0] for row in decided] == columns["id"]
    connection.close()
    return [row[-1] for row in decided]


def _plain(value: Any) -> Any:
    return None if value is None or value != value else int(value) if isinstance(value, bool) else value


def in_python(source: str, table: dict[str, Any]) -> list[Any]:
    """Actions by the function of a written file."""
    made: dict[str, Any] = {}
    exec(compile(source, "exported", "exec"), made)
    decide, names = made["decide"], list(table)
    rows = zip(*(np.asarray(values).tolist() for values in table.values()), strict=True)
    return [decide(dict(zip(names, row, strict=True))) for row in rows]


def json_rows(table: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows as JSON has them: null where a value is missing."""
    columns = [[None if v is None or v != v else v for v in np.asarray(values).tolist()] for values in table.values()]
    return [dict(zip(table, row, strict=True)) for row in zip(*columns, strict=True)]


def json_logic(rule: Any) -> Callable[[dict[str, Any]], Any]:
    """JsonLogic as jsonlogic.com and its JavaScript say it, of the operations that are used: what a row gets."""
    if not isinstance(rule, dict):
        return lambda row: rule
    ((operation, given),) = rule.items()
    if operation == "var":
        return lambda row: row.get(given)
    if operation == "in":
        of, among = json_logic(given[0]), given[1]
        return lambda row: of(row) in among
    parts = [json_logic(part) for part in given]
    match operation:
        case "if":
            pairs, last = list(zip(parts[::2], parts[1::2], strict=False)), parts[-1]
            assert len(parts) % 2

            def chosen(row: dict[str, Any]) -> Any:
                for condition, then in pairs:
                    if condition(row):
                        return then(row)
                return last(row)

            return chosen
        case "and":
            return lambda row: all(part(row) for part in parts)
        case "or":
            return lambda row: any(part(row) for part in parts)
        case "!":
            return lambda row: not parts[0](row)
        case "+":
            return lambda row: sum(part(row) for part in parts)
    one, two = parts
    match operation:
        case "===":
            return lambda row: _same(one(row), two(row))
        case "!==":
            return lambda row: not _same(one(row), two(row))
        case ">":
            return lambda row: one(row) > two(row)
        case ">=":
            return lambda row: one(row) >= two(row)
    raise AssertionError(f"JsonLogic has no {operation}")


def _same(one: Any, two: Any) -> bool:
    return type(one) is type(two) and one == two


def in_onnx(path: Path, encoder: Encoder | None, table: dict[str, Any], names: dict[str, str] | None = None) -> Any:
    """Action numbers by onnxruntime: numbers with NaN, categories as text with "" where missing."""
    import json

    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    assert encoder is not None
    fed = {}
    for part in encoder.parts:
        values = np.asarray(table[part.name])
        if isinstance(part, NumberColumn):
            column = np.array([np.nan if v is None else float(v) for v in values.tolist()])
        else:
            column = np.array(["" if v is None else v for v in values.tolist()], object)
        fed[inputs[part.name]] = column[:, None]
    return session.run(["action"], fed)[0]
