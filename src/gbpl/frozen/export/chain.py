"""Queries in WITH, each of which reads the one before: one per layer of a policy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gbpl.frozen.export.dialects import Dialect

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Chain", "Units", "added", "apart", "linear", "weight"]

WIDEST = 1900  # columns of a query; SQLite takes 2,000
TERMS = 50  # of a sum in one pair of brackets, and of MAX; SQLite takes a depth of 1,000 and 100 arguments


class Units(NamedTuple):
    """Numbers of a layer: each by name, and the list that holds them, where the database has lists."""

    names: list[str]
    packed: str | None


def weight(value: float) -> str:
    """A factor in ten digits, more than the seven of the float32 it was."""
    return f"{value:.9e}"


def added(terms: Sequence[str], sign: str = "+") -> str:
    """Terms added up, or conditions in AND, in brackets of brackets where there are many."""
    between = f" {sign} "
    while len(terms) > TERMS:
        terms = [f"({between.join(terms[first : first + TERMS])})" for first in range(0, len(terms), TERMS)]
    return between.join(terms)


def linear(units: Units, weights: Float[np.ndarray, " unit"], bias: float) -> str:
    """sum_j weight_j unit_j + bias."""
    factors = [weight(value) for value in np.asarray(weights, np.float64).tolist()]
    if units.packed is not None:
        return f"LIST_INNER_PRODUCT({units.packed}, CAST('[{', '.join(factors)}]' AS DOUBLE[])) + {weight(bias)}"
    terms = [f"{apart(factor)} * {name}" for name, factor in zip(units.names, factors, strict=True)]
    return added([*terms, weight(bias)])


def apart(constant: str) -> str:
    """A constant that SQLite leaves where it is: it looks up others among all before, which takes minutes for many."""
    return f"CASE WHEN gbpl_fine THEN {constant} END"


class Chain:
    """The queries so far; `carried` columns go along to the end."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.queries: list[str] = []
        self.carried: list[str] = []

    @property
    def last(self) -> str:
        """The name of the last query."""
        return f"gbpl_{len(self.queries) - 1}"

    def step(self, made: Mapping[str, str], kept: Iterable[str] = (), table: str | None = None) -> list[str]:
        """One more query: what is carried, `kept` and `made`, expressions by name; returns the names that are made."""
        listed = [name for name in dict.fromkeys([*self.carried, *kept]) if name not in made]
        if len(listed) + len(made) > WIDEST:
            raise ValueError(
                f"the policy needs a query of {len(listed) + len(made):,} columns, and databases take {WIDEST:,}; use "
                "to_onnx, or a small rule"
            )
        columns = [", ".join(listed)] if listed else []
        columns += [f"{expression} AS {name}" for name, expression in made.items()]
        source = self.last if table is None else table
        body = ",\n".join(columns)
        self.queries.append(f"gbpl_{len(self.queries)} {self.dialect.fence} (\nSELECT {body}\nFROM {source})")
        return list(made)

    def units(self, name: str, blocks: Sequence[Sequence[str]], kept: Iterable[str] = ()) -> list[Units]:
        """One more query of the numbers of some layers, a block of expressions each."""
        if self.dialect.lists:
            packed = self.step({f"{name}_{b}": f"[{', '.join(block)}]" for b, block in enumerate(blocks)}, kept)
            return [
                Units([f"{of}[{number}]" for number in range(1, len(block) + 1)], of)
                for of, block in zip(packed, blocks, strict=True)
            ]
        named = [[f"{name}_{b}_{number}" for number in range(len(block))] for b, block in enumerate(blocks)]
        pairs = [pair for own in zip(named, blocks, strict=True) for pair in zip(*own, strict=True)]
        self.step(dict(pairs), kept)
        return [Units(own, None) for own in named]

    def largest(self, names: Sequence[str]) -> str:
        """The largest of some columns."""
        while len(names) > 1:
            parts = [names[first : first + TERMS] for first in range(0, len(names), TERMS)]
            names = [f"{self.dialect.largest}({', '.join(part)})" if len(part) > 1 else part[0] for part in parts]
        return names[0]

    def positive(self, expression: str) -> str:
        """What is above zero of an expression."""
        return f"{self.dialect.largest}({expression}, 0.0e0)"
