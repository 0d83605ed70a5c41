"""Rows of Parquet files as a source to learn from in passes, in memory that does not grow with the files."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gbpl.feedback.actions import check_propensity
from gbpl.feedback.checks import label_array
from gbpl.feedback.read import Feedback, read_table
from gbpl.passes.rows import FEW_GROUPS, Chunk, few_groups
from gbpl.tables.encoder import Encoder
from gbpl.tables.formats import PARQUET, arrow, checked_input, checked_names, reading, suffixes
from gbpl.tables.frames import TableError, as_codes, column, column_places, picked_column, require_columns
from gbpl.tables.labels import by_label, check_labels, labels_taken, read_labels
from gbpl.tables.roles import Roles

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["ParquetRows"]

BUFFER = 1 << 18  # bytes of a column read at a time
READ = 16_384  # rows decoded at a time, however large a row group is
OPEN = 4  # row groups read side by side, so that rows far from each other meet in a chunk
MIX = 3  # chunks of rows that a chunk is drawn from
SAMPLE, SAMPLED = 65_536, 16  # rows the encoding is learned from, and the row groups they come from, at most


class _Part(NamedTuple):
    """A row group: its file, its place there, and the numbers of its first row in the file and in all of them."""

    file: int
    group: int
    in_file: int
    first: int
    rows: int


class ParquetRows:
    """One or several Parquet files of the same columns, one below the other, read by roles.

    Outcomes, actions, propensities, weights and groups are checked when this is made, by a pass over those columns.
    Features are encoded as in `gbpl.learn`, by an `Encoder` learned from a sample of rows spread over the files unless
    one is given. `cost` maps actions to costs, `actions` gives their order. Rows are numbered through the files in the
    order given.
    """

    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        roles: Roles,
        *,
        cost: Mapping[Any, float] | None = None,
        actions: Sequence[Any] | None = None,
        encoder: Encoder | None = None,
    ) -> None:
        listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
        if not listed:
            raise TableError("no file is named; give one Parquet file or several")
        if roles.controls:
            raise TableError("controls have no use in learning in passes; fit in memory, or leave them out")
        self.roles, self.paths = roles, [_checked(path) for path in listed]
        self._open()
        roles = self.roles  # with plain names
        self._scan(actions)
        labels = self.actions.tolist()
        self._cost = None
        if cost is not None:
            known = by_label(cost, labels, "cost")
            self._cost = np.array([known.get(label, 0.0) for label in labels])
        self.encoder, self.notes = (
            (encoder, [])
            if encoder is not None
            else Encoder.fit(self._sample(), roles.features, exclude=[*roles.used(), *roles.exclude])
        )
        self._columns = list(dict.fromkeys([*self.encoder.columns, *roles.used()]))

    def sample(self) -> Feedback:
        """Rows spread over the files, read and checked as a table in memory is."""
        return read_table(self._sample(), self.roles, self.encoder, actions=self.actions.tolist()).feedback

    @property
    def n_rows(self) -> int:
        return sum(part.rows for part in self._parts)

    @property
    def n_features(self) -> int:
        return len(self.encoder.names)

    @property
    def logged(self) -> bool:
        return self.roles.outcomes is None

    @property
    def classifier(self) -> None:
        return None

    def chunks(self, rows: int, seed: int | None) -> Iterator[Chunk]:
        """Every row once; with a seed, row groups in random order, and chunks drawn from a buffer of several."""
        rng = None if seed is None else np.random.default_rng(seed)
        held: list[Chunk] = []
        count, enough = 0, rows if rng is None else MIX * rows
        for piece in self._pieces(rng):
            held.append(piece)
            count += len(piece)
            del piece  # nothing but the buffer and what is given stays in memory
            while count >= enough:  # a piece may have several chunks
                given, kept = _drawn(Chunk.join(held), rows, rng)
                held, count = [kept], len(kept)
                del kept
                yield self._filled(given)
        whole = Chunk.join(held)
        while len(whole):
            given, whole = _drawn(whole, rows, rng)
            yield self._filled(given)

    def _pieces(self, rng: np.random.Generator | None) -> Iterator[Chunk]:
        """Decoded batches, of one row group after the other, or of several in turns."""
        order = range(len(self._parts)) if rng is None else rng.permutation(len(self._parts))
        waiting = deque(self._parts[number] for number in order)
        turns: deque[Iterator[Chunk]] = deque()
        while waiting or turns:
            while waiting and len(turns) < (1 if rng is None else OPEN):
                turns.append(self._decoded(waiting.popleft()))
            piece = next(turns[0], None)
            if piece is None:
                turns.popleft()
            else:
                yield piece
                turns.rotate(-1)

    def _decoded(self, part: _Part) -> Iterator[Chunk]:
        for start, batch in self._batches(part, self._columns):
            numbers = np.arange(part.first + start, part.first + start + batch.num_rows)
            x = self.encoder.apply(batch, first_row=part.first + start)[0]
            yield Chunk(numbers, x, **self._role_arrays(part, start, batch))

    def _role_arrays(self, part: _Part, start: int, batch: Any) -> dict[str, Any]:
        """Outcomes, actions, propensities, weights and groups of a batch, checked."""
        roles, place = self.roles, (part, start)
        arrays: dict[str, Any] = {}
        if roles.outcomes is not None:
            arrays["outcomes"] = np.column_stack([self._numbers(batch, n, "outcome", *place) for n in roles.outcomes])
        else:
            arrays["outcome"] = self._numbers(batch, str(roles.outcome), "outcome", *place)
            codes, labels = _labels(batch, str(roles.action))
            self._refuse(codes < 0, "action", str(roles.action), "missing; drop the row, or name what was done", *place)
            known = self._place
            new = [label for label in labels if label not in known]
            if new:
                raise TableError(
                    f"{self.paths[part.file].name} has the action {new[0]!r}, which it did not have before; has the "
                    "file changed?"
                )
            arrays["action"] = np.array([known[label] for label in labels], np.int64)[codes]
            if isinstance(roles.propensity, str):
                arrays["propensity"] = self._chances(batch, arrays["action"], *place)
        if roles.weight is not None:
            arrays["weight"] = self._numbers(batch, roles.weight, "weight", *place)
            self._refuse(arrays["weight"] < 0.0, "weight", roles.weight, "below 0; correct it", *place)
        if roles.group is not None:
            arrays["group"] = self._groups(batch, roles.group, *place)
        return arrays

    def _groups(self, batch: Any, name: str, part: _Part, start: int) -> Int[np.ndarray, " row"]:
        """A number for each group: numbers are their own, other labels are hashed."""
        values = column(batch, name)
        if values.dtype.kind in "iu":
            return values.astype(np.int64)
        if values.dtype.kind == "f":
            return self._numbers(batch, name, "group", part, start).view(np.int64)
        codes, labels = _labels(batch, name)
        self._refuse(codes < 0, "group", name, "missing; drop the row, or give it a group of its own", part, start)
        digests = [hashlib.blake2b(repr(label).encode(), digest_size=8).digest() for label in labels]
        return np.frombuffer(b"".join(digests), np.int64)[codes]

    def _chances(self, batch: Any, action: np.ndarray, part: _Part, start: int) -> Float[np.ndarray, "..."]:
        """Propensities: of the action taken; with two actions, of both."""
        name = str(self.roles.propensity)
        chance = self._numbers(batch, name, "propensity", part, start)
        rows = part.in_file + start + np.arange(len(chance))
        whose = f"{self.paths[part.file].name}: propensity {name!r}"
        return check_propensity(chance, action, self.actions, name=whose, rows=rows)

    def _numbers(self, batch: Any, name: str, role: str, part: _Part, start: int) -> Float[np.ndarray, " row"]:
        values = column(batch, name)
        if values.dtype.kind not in "biuf":
            raise TableError(f"{self.paths[part.file].name}: {role} {name!r} must be numbers, and is not; convert it")
        numbers = values.astype(np.float64)
        self._refuse(np.isnan(numbers), role, name, "missing; drop the row, or fill it in", part, start)
        self._refuse(np.isinf(numbers), role, name, "infinite; correct or drop it", part, start)
        return numbers

    def _refuse(self, wrong: np.ndarray, role: str, name: str, why: str, part: _Part, start: int) -> None:
        if wrong.any():
            row = part.in_file + start + int(np.argmax(wrong))
            raise TableError(f"{self.paths[part.file].name}, row {row}: {role} {name!r} is {why}")

    def _filled(self, chunk: Chunk) -> Chunk:
        """With what is the same for every row: costs, and propensities that are no column."""
        shape = (len(chunk), len(self.actions))
        cost = None if self._cost is None else np.broadcast_to(self._cost, shape)
        if chunk.outcomes is not None:
            outcomes = chunk.outcomes if cost is None else chunk.outcomes - cost
            return Chunk(chunk.number, chunk.x, outcomes=outcomes, weight=chunk.weight, group=chunk.group)
        chance = chunk.propensity if self._chance is None else np.broadcast_to(self._chance, shape)
        return Chunk(
            chunk.number, chunk.x, outcome=chunk.outcome, action=chunk.action, propensity=chance, cost=cost,
            weight=chunk.weight, group=chunk.group,
        )  # fmt: skip

    # -- opening ------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Row groups of all files, after a look at their columns."""
        self._metadata: list[Any] = []
        self._parts: list[_Part] = []
        first = 0
        for number, path in enumerate(self.paths):
            with reading(path, "is not a Parquet file that can be read"):
                metadata = arrow(".parquet").read_metadata(path)
            names = checked_names(metadata.schema.to_arrow_schema().names, path)
            if number == 0:
                self._names, self.roles = names, self.roles.resolved(names, path.name)
            self.roles.check(names, path.name)
            require_columns(self._names, names, path.name)
            self._metadata.append(metadata)
            in_file = 0
            for group in range(metadata.num_row_groups):
                rows = int(metadata.row_group(group).num_rows)
                if rows:
                    self._parts.append(_Part(number, group, in_file, first, rows))
                in_file, first = in_file + rows, first + rows
        if not self._parts:
            raise TableError(f"{self.paths[0].name} has columns but no rows")

    def _batches(self, part: _Part, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Batches of a row group, with the place of their first row in it."""
        path, start = self.paths[part.file], 0
        options: dict[str, Any] = {"metadata": self._metadata[part.file], "buffer_size": BUFFER, "pre_buffer": False}
        with reading(path), arrow(".parquet").ParquetFile(path, **options) as file:
            for batch in file.iter_batches(READ, row_groups=[part.group], columns=list(columns), use_threads=False):
                yield start, batch
                start += batch.num_rows

    def _scan(self, actions: Sequence[Any] | None) -> None:
        """A pass over the columns with a role: labels first, then everything that is checked row by row."""
        roles = self.roles
        self._chance: np.ndarray | None = None
        if roles.outcomes is not None:
            self.actions = label_array(list(roles.outcomes) if actions is None else list(actions))
            if len(self.actions) != len(roles.outcomes):
                raise TableError(f"actions must name the {len(roles.outcomes)} outcomes, got {list(self.actions)}")
        else:
            name, distinct = str(roles.action), set()
            for part in self._parts:
                for start, batch in self._batches(part, [name]):
                    codes, labels = _labels(batch, name)
                    why = "missing; drop the row, or name what was done"
                    self._refuse(codes < 0, "action", name, why, part, start)
                    distinct.update(labels)
            labels = sorted(distinct) if len({type(label) for label in distinct}) == 1 else sorted(distinct, key=str)
            check_labels(labels, name, self.n_rows)
            twice = np.tile(np.arange(len(labels)), 2)  # of fewer rows it would be no choice among few
            places, order = labels_taken(twice, labels, name, actions)
            self.actions = label_array(order)
            self._place = dict(zip(labels, places.tolist(), strict=False))
            if not (roles.propensity is None or isinstance(roles.propensity, str)):
                self._chance = check_propensity(roles.propensity, np.zeros(1, np.int64), self.actions)[0]
        total = 0.0
        groups: set[int] = set()
        for part in self._parts:
            for start, batch in self._batches(part, roles.used()):
                arrays = self._role_arrays(part, start, batch)
                weight = arrays.get("weight")
                total += batch.num_rows if weight is None else float(weight.sum())
                if "group" in arrays and len(groups) < FEW_GROUPS:
                    groups.update(np.unique(arrays["group"])[:FEW_GROUPS].tolist())
        if groups and len(groups) < FEW_GROUPS:
            raise TableError(few_groups(len(groups)))
        if total == 0.0:
            raise TableError(f"weight {roles.weight!r} is 0 in every row; leave it out, or name another column")

    def _sample(self) -> Any:
        """Rows spread over the files, to learn the encoding from."""
        pa = arrow()
        places = np.unique(np.linspace(0, len(self._parts) - 1, min(SAMPLED, len(self._parts))).round().astype(int))
        chosen = [self._parts[place] for place in places]
        step = max(1, sum(part.rows for part in chosen) // SAMPLE)
        taken = []
        for part in chosen:
            for start, batch in self._batches(part, self._names):
                some = batch.take(pa.array(np.arange(-start % step, batch.num_rows, step)))
                taken.append(pa.Table.from_batches([some]).select(self._names))
        return pa.concat_tables(taken, promote_options="permissive")  # files may differ in the width of numbers


def _checked(path: str | os.PathLike[str]) -> Path:
    checked = checked_input(path)
    if suffixes(checked)[0] not in PARQUET:
        raise TableError(
            f"{checked.name} is not a Parquet file, and learning in passes reads no other; write it as one, for "
            "example with pyarrow.parquet.write_table"
        )
    return checked


def _labels(batch: Any, name: str) -> tuple[Int[np.ndarray, " row"], list[Any]]:
    """Code of each row's label, -1 where missing, and the labels; text is looked at once for each distinct one."""
    coded = as_codes(picked_column(batch, column_places(batch)[name]))
    if coded is None:
        return read_labels(column(batch, name), name)
    codes, distinct = coded
    inner, labels = read_labels(np.fromiter(distinct, object, len(distinct)), name)
    return np.append(inner, -1)[codes], labels


def _drawn(whole: Chunk, rows: int, rng: np.random.Generator | None) -> tuple[Chunk, Chunk]:
    """A chunk of the buffer, and what stays there."""
    if rng is None:
        return whole.take(slice(rows)), whole.take(slice(rows, None))
    order = rng.permutation(len(whole))
    return whole.take(order[:rows]), whole.take(np.sort(order[rows:]))
