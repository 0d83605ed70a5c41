"""Watch a policy on log files: rows in order, each counted once, in a state that survives a kill at any moment.

A row is recognised by its outcome, action and propensity, which do not depend on what a policy looks at. Each file has
a chain of SHA-256 digests over its rows, digest_i = SHA-256(digest_(i-1), row_i), and the state holds how many of its
rows were counted and the digest of the last. The next run reads those rows again, compares, and goes on behind them, so
a file may grow between runs; one whose counted rows have changed, are fewer, or begin another file too, is refused by
name. The state is written after every block of rows, to disk and in one step. Blocks begin at fixed rows, so a killed
run ends with the same numbers, to the last bit, as one that was left alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.frozen.file import SavedPolicy
from gbpl.study.decide_file import needed_columns, number_column
from gbpl.study.watch_state import Counted, SavedWatch
from gbpl.tables.formats import arrow
from gbpl.tables.frames import TableError, column
from gbpl.tables.read import open_batches
from gbpl.watch.log import read_actions, read_propensity
from gbpl.watch.monitor import Monitor
from gbpl.watch.reading import Reading

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["LogColumns", "watch_files"]

BLOCK = 4096  # rows between two writes of the state
HEAD = 64  # rows by which a file is recognised under another name
DIGITS = 12  # of a propensity, which may be given as that of the action taken or with those of the others
Propensity = str | float | Mapping[Any, float] | Mapping[Any, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogColumns:
    """Columns of a log; `propensity` is a column (of the action taken), a number, or a number or column per action."""

    outcome: str
    action: str
    propensity: Propensity

    @classmethod
    def of(cls, policy: SavedPolicy, *, outcome: str | None, action: str | None, propensity: Propensity) -> LogColumns:
        """Those given, else those that the policy was learned from."""
        roles = (policy.summary or {}).get("roles") or {}
        outcome, action = outcome or roles.get("outcome"), action or roles.get("action")
        if not outcome or not action:
            raise TableError(
                f"the policy does not say which column is the {'action' if outcome else 'outcome'}; name it"
            )
        return cls(
            outcome=outcome, action=action, propensity=roles.get("propensity") if propensity is None else propensity
        )

    @property
    def least(self) -> float | None:
        """The smallest propensity, where all of them are known before the first row."""
        given = self.propensity
        if isinstance(given, Mapping):
            return None if self.chances else min(float(chance) for chance in given.values())
        return None if given is None or isinstance(given, str) else min(given, 1.0 - given)

    @property
    def chances(self) -> list[str]:
        """Columns with propensities."""
        given = self.propensity
        listed = list(given.values()) if isinstance(given, Mapping) else [given]
        return [name for name in listed if isinstance(name, str)]


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """Rows as read; outcome, action and its propensity are the `content` by which a row is recognised."""

    x: Float[np.ndarray, "row feature"]
    outcome: Any
    action: Any
    propensity: Any
    content: Float[np.ndarray, "row number"]

    def part(self, rows: slice) -> _Block:
        chance = self.propensity[rows] if isinstance(self.propensity, np.ndarray) else self.propensity
        return _Block(self.x[rows], self.outcome[rows], self.action[rows], chance, self.content[rows])


def watch_files(
    policy: SavedPolicy,
    data: Sequence[Path],
    state: Path,
    *,
    columns: LogColumns,
    refit: bool = False,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    **terms: Any,
) -> Reading:
    """Take the rows of log files that are not yet counted, file by file, and say how things stand.

    `state` is the file that keeps what is known; one that does not exist begins the life of a policy with the `terms`
    of `policy.monitor` (by default, `least_propensity` is that of constant propensities). With `refit` the policy takes
    the place of the one watched so far.
    """
    names = [path.name for path in data]
    if len(set(names)) < len(names):
        raise TableError(f"two files have the name {next(n for n in names if names.count(n) > 1)!r}; rename one")
    if not state.exists() and terms.get("least_propensity") is None:
        terms["least_propensity"] = columns.least
    saved = SavedWatch.open(state, policy, refit, terms)
    for path in data:
        _watch_file(saved, path, columns, encoding, delimiter, progress)
    saved.write()
    return saved.monitor.reading()


def _watch_file(
    saved: SavedWatch, path: Path, columns: LogColumns, encoding: str, delimiter: str | None,
    progress: Callable[[int, int | None], None] | None,
) -> None:  # fmt: skip
    policy = saved.monitor.policy
    needed, kinds = needed_columns(policy)  # type: ignore[arg-type]
    wanted = list(dict.fromkeys([*needed, columns.outcome, columns.action, *columns.chances]))
    kinds = kinds | {name: "number" for name in (columns.outcome, *columns.chances)}
    before = saved.files.get(path.name, Counted())
    counted, first, digest = before.rows, 0, hashlib.sha256(b"gbpl watch").digest()
    with open_batches(path, columns=wanted, kinds=kinds, encoding=encoding, delimiter=delimiter) as batches:
        for table in _blocks(batches):
            block = _read(saved.monitor, table, needed, columns, first)
            done = min(max(counted - first, 0), table.num_rows)
            digest = _chained(digest, block.content[:done])
            if done and first + done == counted and digest.hex() != before.digest:
                raise TableError(
                    f"{path.name} has changed: its first {counted:,} rows are not those that were counted; bring the "
                    "file back, and give new rows behind them or in a file of another name"
                )
            if first == 0 and not counted:
                _check_new(saved, path, block)
            if done < table.num_rows:
                rest = block.part(slice(done, None))
                saved.monitor.update(
                    rest.x, rest.outcome, action=rest.action, propensity=rest.propensity, first_row=first + done
                )
                digest = _chained(digest, rest.content)
                head = min(HEAD, table.num_rows)
                start = hashlib.sha256(block.content[:head].tobytes()).hexdigest()
                old = saved.files.get(path.name) or Counted(head_rows=head, head=start)
                saved.files[path.name] = Counted(first + table.num_rows, digest.hex(), old.head_rows, old.head)
                saved.write()
            first += table.num_rows
            if progress is not None:
                progress(first, batches.total_rows)
    if first < counted:
        raise TableError(f"{path.name} has {first:,} rows, and {counted:,} of it were counted; bring the file back")
    if not first:
        raise TableError(f"{path.name} has no rows; there is nothing to watch yet")


def _blocks(batches: Any) -> Iterator[Any]:
    """Tables of `BLOCK` rows, the last with the rest, however the file is cut."""
    held: list[Any] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        while rows >= BLOCK:
            table = arrow().Table.from_batches(held)
            yield table.slice(0, BLOCK).combine_chunks()
            held, rows = table.slice(BLOCK).to_batches(), rows - BLOCK
    if rows:
        yield arrow().Table.from_batches(held).combine_chunks()


def _read(monitor: Monitor, table: Any, needed: Sequence[str], columns: LogColumns, first_row: int) -> _Block:
    policy: Any = monitor.policy
    if policy.encoder is None:
        x = np.column_stack([number_column(table, name, first_row) for name in needed])
    else:
        x, _ = policy.encoder.apply(table, first_row=first_row)
    outcome, action = column(table, columns.outcome), column(table, columns.action)
    if outcome.dtype.kind not in "biuf":
        raise TableError(f"outcome {columns.outcome!r} must be numbers, and has others; turn yes and no into 1 and 0")
    given = columns.propensity
    chance: Any = given
    if isinstance(given, str):
        chance = column(table, given).astype(np.float64)
    elif isinstance(given, Mapping) and columns.chances:
        actions = monitor.terms.actions
        by_name = {str(label): str(name) for label, name in given.items()}
        absent = next((label for label in actions if str(label) not in by_name), None)
        if absent is not None or len(by_name) != len(actions):
            raise TableError(
                f"propensity must name one column for each of the actions {list(actions)}, got {list(by_name)}"
            )
        chance = np.column_stack([column(table, by_name[str(label)]).astype(np.float64) for label in actions])
    numbers = read_actions(action, monitor.terms.actions, first_row)
    known = read_propensity(chance, numbers, monitor.terms.actions, first_row)
    taken = known if known.ndim == 1 else known[np.arange(len(numbers)), numbers]
    content = np.column_stack([outcome.astype(np.float64), numbers, taken.round(DIGITS)])
    return _Block(x, outcome, action, chance, np.ascontiguousarray(content, "<f8"))


def _chained(digest: bytes, content: Float[np.ndarray, "row number"]) -> bytes:
    for row in content:
        digest = hashlib.sha256(digest + row.tobytes()).digest()
    return digest


def _check_new(saved: SavedWatch, path: Path, block: _Block) -> None:
    """Refuse a file that begins as one that was counted under another name."""
    for name, part in saved.files.items():
        same = len(block.content) >= part.head_rows > 0
        if same and hashlib.sha256(block.content[: part.head_rows].tobytes()).hexdigest() == part.head:
            raise TableError(
                f"{path.name} begins with the rows of {name}, which are counted already; give it the same name to go "
                "on with it"
            )
