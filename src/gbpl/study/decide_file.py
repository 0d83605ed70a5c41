"""Decisions for a file of any size: batch by batch in, batch by batch out, in bounded memory.

On a Ray cluster, Parquet is cut into pieces at the ends of batches, so that every batch, and with it every digit, is
the same as with a single reader; each piece becomes a file of its own in a folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.decisions.rules import largest
from gbpl.frozen.file import SavedPolicy
from gbpl.runtime.engines import check_engine, run_tasks
from gbpl.runtime.files import PREFIX, check_folder, together
from gbpl.tables.formats import PARQUET, arrow, reading
from gbpl.tables.frames import TableError, column, require_columns
from gbpl.tables.read import open_batches
from gbpl.tables.write import formulas, open_writer

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = [
    "ROWS",
    "Decided",
    "batch_features",
    "batch_group",
    "decide_dataset",
    "decide_file",
    "needed_columns",
    "number_column",
]

ROWS = 32_768  # a batch: large enough for the arithmetic to outweigh the reading
BATCHES_PER_PIECE = 32  # a piece is then a row group as pyarrow writes them, 2^20 rows


@dataclass(slots=True)
class Decided:
    """Totals of the decisions for a file: rows by action, rows for a person, values filled in, and the sum of gains.

    `deferred` is None for a policy without posterior draws, `gain` for one that cannot estimate gains; `review_value`
    is what a person's look at the rows of a `review` is worth at most.
    """

    rows: int = 0
    taken: Counter[Any] = field(default_factory=Counter)
    deferred: int | None = None
    gain: float | None = None
    review_value: float | None = None
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, other: Decided) -> None:
        """Add the totals of another part."""
        self.rows += other.rows
        self.taken.update(other.taken)
        self.counts.update(other.counts)
        if other.deferred is not None:
            self.deferred = (self.deferred or 0) + other.deferred
        if other.gain is not None:
            self.gain = (self.gain or 0.0) + other.gain

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON."""
        return {
            "rows": self.rows,
            "actions": {str(label): count for label, count in self.taken.items()},
            "deferred": self.deferred,
            "mean_expected_gain": None if self.gain is None or not self.rows else self.gain / self.rows,
            "review_value": self.review_value,
            "filled_in": dict(self.counts),
        }


def decide_file(
    policy: SavedPolicy,
    data: Path,
    out: Path,
    *,
    keep: Sequence[str] = (),
    defer: float | None = None,
    encoding: str = "utf-8",
    delimiter: str | None = None,
    progress: Callable[[int, int | None], None] | None = None,
    engine: str = "local",
    review: int | None = None,
) -> Decided:
    """Decide every row of a table and write the decisions; columns named in `keep` are copied to them.

    With a `review` of n, the n rows of the whole file where a person's look is worth most are deferred, and no other;
    the file is then read twice.

    `progress(done, total)` is called after each batch; the total is None if the file does not say it. With
    `engine="ray"` a cluster does it: `data` is a Parquet file or a folder of them, `out` a folder of parts in the order
    of the rows, and every node must see both. `row` counts on from file to file, in the order of their names.
    """
    if check_engine(engine) != "local":
        if review is not None:
            raise TableError("review compares all rows of one file, which a cluster does not; use engine='local'")
        return _decide_pieces(policy, data, out, keep, defer, progress, engine)
    needed, kinds = needed_columns(policy)
    columns = list(dict.fromkeys([*needed, *keep]))
    writer = open_writer(out, inputs=[data])
    with open_batches(data, columns=columns, kinds=kinds, rows=ROWS, encoding=encoding, delimiter=delimiter) as batches:
        totals, chosen = _nothing(policy), None
        if review is not None:
            chosen = _for_review(policy, batches, needed, review)
        with writer:
            for batch in batches:
                made = _decided(policy, batch, needed, keep, defer, totals, chosen)
                if out.suffix.lower() in (".csv", ".tsv"):
                    totals.counts.update(_formulas(made, keep))
                writer.write(made)
                if progress is not None:
                    progress(totals.rows, batches.total_rows)
            if totals.rows == 0:
                raise TableError(f"{data.name} has no rows; there is nothing to decide")
    return totals


def _formulas(made: dict[str, Any], keep: Sequence[str]) -> Counter[str]:
    """Cells that a spreadsheet would run, by column."""
    what = "begin as a formula, which a spreadsheet runs: open the file with another program, or rename them"
    return +Counter({f"cell(s) of {name!r} {what}": formulas(made[name]) for name in ("action", *keep)})


def _nothing(policy: SavedPolicy) -> Decided:
    return Decided(taken=Counter({label: 0 for label in policy.actions_.tolist()}))


def needed_columns(policy: SavedPolicy) -> tuple[list[str], dict[str, str]]:
    """Columns that the policy uses, and their kinds."""
    if policy.encoder is not None:
        kinds, groups = policy.encoder.arrow_types(), policy.rule.groups
        kinds = kinds if groups is None else {groups.column: groups.parts.reads_as} | kinds
        return list(dict.fromkeys([*policy.encoder.columns, *kinds])), kinds
    names = getattr(policy, "feature_names_in_", None)
    if names is None:
        raise TableError(
            "this policy was fitted to an array without names, so columns of a table cannot be matched; fit it to a "
            "frame, or with gbpl fit"
        )
    return names.tolist(), {name: "number" for name in names}


def number_column(batch: Any, name: str, first_row: int) -> Float[np.ndarray, " row"]:
    """A column for a policy without an encoder, which takes neither text nor missing values."""
    values = column(batch, name)
    if values.dtype.kind not in "biuf":
        raise TableError(f"column {name!r} must be numbers, as in the fit, and has other values; encode it first")
    numbers = values.astype(np.float64)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        raise TableError(
            f"column {name!r} is missing or infinite in row {first_row + wrong[0]}, and this policy takes numbers "
            "only; fill it in, or drop the row"
        )
    return numbers


def batch_features(policy: SavedPolicy, batch: Any, needed: Sequence[str], first_row: int) -> tuple[Any, Any]:
    """The numbers of a batch, and what was filled in."""
    if policy.encoder is None:
        return np.column_stack([number_column(batch, name, first_row) for name in needed]), {}
    return policy.encoder.apply(batch, first_row=first_row)


def batch_group(policy: SavedPolicy, batch: Any) -> np.ndarray | None:
    """The group of each row of a batch, where the rule has prices by group."""
    return None if policy.rule.groups is None else column(batch, policy.rule.groups.column)


def _for_review(
    policy: SavedPolicy, batches: Iterable[Any], needed: Sequence[str], count: int
) -> Int[np.ndarray, " chosen"]:
    """Numbers of the `count` rows of a file where a person's look is worth most; as many are kept as are needed."""
    rows, values, first = np.zeros(0, np.int64), np.zeros(0), 0
    for batch in batches:
        x = batch_features(policy, batch, needed, first)[0]
        of_batch = policy.review_value(x, group=batch_group(policy, batch))
        rows = np.concatenate([rows, np.arange(first, first + len(of_batch))])
        values = np.concatenate([values, of_batch])
        first += len(of_batch)
        best = largest(values, count)
        rows, values = rows[best], values[best]
    return rows


def _decided(
    policy: SavedPolicy,
    batch: Any,
    needed: Sequence[str],
    keep: Sequence[str],
    defer: float | None,
    totals: Decided,
    chosen: Int[np.ndarray, " chosen"] | None = None,
) -> dict[str, Any]:
    """The columns to write for a batch; `totals` grows by it. `chosen` are the rows of the file for a person."""
    x, counts = batch_features(policy, batch, needed, totals.rows)
    totals.counts.update(counts)
    review = None if chosen is None else 0
    decided = policy.decide(x, defer=defer, review=review, group=batch_group(policy, batch))
    totals.counts.update(decided.counts)
    if chosen is not None and (value := decided.review_value) is not None:
        away = np.isin(np.arange(totals.rows, totals.rows + len(decided)), chosen)
        decided = replace(decided, deferred=away)
        totals.review_value = (totals.review_value or 0.0) + float(value[away].sum())
    made = {"row": np.arange(totals.rows, totals.rows + len(decided)), **decided.to_dict()}
    clash = [name for name in keep if name in made]
    if clash:
        raise TableError(f"the column {clash[0]!r} to keep has the name of a decision's column; rename it first")
    totals.rows += len(decided)
    labels = decided.actions.tolist()
    place = {label: number for number, label in enumerate(labels)}
    codes = np.fromiter(map(place.__getitem__, decided.action.tolist()), np.int32, len(decided))
    for label, count in zip(labels, np.bincount(codes, minlength=len(labels)).tolist(), strict=True):
        totals.taken[label] += count
    if decided.action.dtype == object and all(isinstance(label, str) for label in labels):  # not a text per row
        made["action"] = arrow().DictionaryArray.from_arrays(arrow().array(codes), arrow().array(labels))
    if decided.deferred is not None:
        totals.deferred = (totals.deferred or 0) + int(decided.deferred.sum())
    if decided.expected_gain is not None:
        totals.gain = (totals.gain or 0.0) + float(decided.expected_gain.sum())
    return {"row": made.pop("row"), **{name: batch.column(name) for name in keep}, **made}


# -- by a cluster -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Piece:
    """Consecutive rows of a Parquet file, and where they go; `before` are the rows of the files that come first."""

    file: Path
    start: int
    stop: int
    before: int
    out: str

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[Any]:
        """The batches that reading the whole file would cut from these rows; only their row groups are read."""
        with reading(self.file), arrow(".parquet").ParquetFile(self.file, pre_buffer=False) as parquet:
            sizes = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
            starts = np.cumsum([0, *sizes])
            groups = np.flatnonzero((starts[1:] > self.start) & (starts[:-1] < self.stop)).tolist()
            skipped, left = self.start - int(starts[groups[0]]), self.stop - self.start
            held: list[Any] = []  # read, and less than a batch
            for batch in parquet.iter_batches(rows, row_groups=groups, columns=list(columns), use_threads=False):
                held.append(batch.slice(skipped))
                skipped = max(0, skipped - batch.num_rows)
                table = arrow().Table.from_batches(held).select(list(columns))
                while left and table.num_rows >= (size := min(rows, left)):
                    yield table.slice(0, size).combine_chunks().to_batches()[0]
                    table, left = table.slice(size), left - size
                held = table.to_batches()


def _parquet_files(data: Path, columns: Sequence[str], keep: Sequence[str]) -> dict[Path, int]:
    """The file, or the folder's Parquet files by name, with their rows; all have the columns, and keep one type."""
    rows_by_file = {}
    if not data.is_dir() and data.suffix.lower() not in PARQUET:
        raise TableError(f"{data.name} is not Parquet, which is what a cluster reads; use engine='local'")
    files = [data]
    if data.is_dir():  # names that begin with . or _ are not data, as for Spark and pyarrow
        files = sorted(path for path in data.iterdir() if path.suffix.lower() in PARQUET and path.name[0] not in "._")
        if not files:
            raise TableError(f"the folder {data} has no Parquet files; their names end in {' or '.join(PARQUET)}")
    for file in files:
        with open_batches(file, columns=columns) as batches:
            rows_by_file[file] = int(batches.total_rows or 0)
    for name in keep:
        types = {arrow(".parquet").read_schema(file).field(name).type for file, rows in rows_by_file.items() if rows}
        if len(types) > 1:
            names = " and ".join(sorted(map(str, types)))
            raise TableError(f"the column {name!r} to keep is {names} in the files of {data}; write them with one type")
    if not sum(rows_by_file.values()):
        raise TableError(f"{data.name} has no rows; there is nothing to decide")
    return rows_by_file


def _pieces(files: dict[Path, int]) -> list[_Piece]:
    size, before = ROWS * BATCHES_PER_PIECE, 0
    pieces: list[_Piece] = []
    for file, rows in files.items():
        for start in range(0, rows, size):
            out = f"part-{len(pieces):05d}.parquet"
            pieces.append(_Piece(file.resolve(), start, min(start + size, rows), before, out))
        before += rows
    return pieces


def _decide_pieces(
    policy: SavedPolicy,
    data: Path,
    out: Path,
    keep: Sequence[str],
    defer: float | None,
    progress: Callable[[int, int | None], None] | None,
    engine: str,
) -> Decided:
    check_folder(out)
    if out.is_dir() and any(out.iterdir()):
        raise TableError(f"{out} has files in it; decisions of a cluster go to a folder of their own: name a new one")
    needed, _ = needed_columns(policy)
    files = _parquet_files(data, list(dict.fromkeys([*needed, *keep])), keep)
    pieces, total, done = _pieces(files), sum(files.values()), 0
    parts: dict[int, Decided] = {}
    with together(out) as folder:
        decide = partial(_decide_piece, policy=policy, keep=keep, defer=defer, rows=ROWS, folder=folder.resolve())
        for number, part in run_tasks(decide, pieces, engine=engine):
            parts[number] = part
            done += part.rows
            if progress is not None:
                progress(done, total)
        for left in folder.glob(f"{PREFIX}*"):  # left by workers that were killed
            left.unlink()
    totals = _nothing(policy)
    for number in range(len(pieces)):  # so that sums of gains do not depend on which part was first
        totals.add(parts[number])
    return totals


def _decide_piece(
    piece: _Piece, *, policy: SavedPolicy, keep: Sequence[str], defer: float | None, rows: int, folder: Path
) -> Decided:
    needed, _ = needed_columns(policy)
    totals, first = _nothing(policy), piece.before + piece.start
    totals.rows = first
    with open_writer(folder / piece.out) as writer:
        for batch in piece.batches(list(dict.fromkeys([*needed, *keep])), rows):
            writer.write(_decided(policy, batch, needed, keep, defer, totals))
    totals.rows -= first
    return totals


def decide_dataset(policy: SavedPolicy, dataset: Any, *, keep: Sequence[str] = (), defer: float | None = None) -> Any:
    """The decisions as a Ray Dataset, from a Dataset with the policy's columns: for data that are on Ray already.

    It has the columns of `decide_file` except `row`, since the rows of a Dataset have no numbers; row numbers in error
    messages count within a batch.

    >>> people = ray.data.read_parquet("s3://trial/people")  # doctest: +SKIP
    >>> decide_dataset(gbpl.load("policy.gbpl"), people, keep=["id"]).write_parquet("s3://trial/decisions")
    ... # doctest: +SKIP
    """
    needed, _ = needed_columns(policy)
    require_columns([*needed, *keep], dataset.columns(), "the dataset")
    decide = partial(_decided_table, policy=policy, needed=needed, keep=keep, defer=defer)
    return dataset.map_batches(decide, batch_format="pyarrow", batch_size=ROWS)


def _decided_table(
    table: Any, *, policy: SavedPolicy, needed: Sequence[str], keep: Sequence[str], defer: float | None
) -> Any:
    pa = arrow()
    columns = _decided(policy, table, needed, keep, defer, _nothing(policy))
    columns.pop("row")
    return pa.table({name: pa.array(v) if isinstance(v, np.ndarray) else v for name, v in columns.items()})
