"""A fingerprint of the rows that a policy learned from: it notices that rows were seen, and holds none of them.

A row is a hash of its features, action and outcome; the hashes set bits of a filter so small that about every second
row that was never seen matches too. So the share of seen rows among many can be estimated, but for no single row can it
be told whether the policy learned from it.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import UInt8, UInt64

    from gbpl.feedback.full import FullFeedback
    from gbpl.feedback.logged import LoggedFeedback

__all__ = ["Fingerprint", "mixed", "seen_words"]

MOST_ROWS = 65_536  # of the filter; of more, a sample
SURE = 4.0  # standard errors above what strangers would match
LEAST = 0.02  # share of seen rows from which it is said


def mixed(bits: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """Well-mixed bits of each number (the finalizer of splitmix64, Steele et al. 2014)."""
    bits = bits + np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _keys(feedback: Any) -> tuple[int, UInt64[np.ndarray, " row"]]:
    """The sum over rows of the hash of their features, and a hash per row of features, and in a log action and outcome.

    All in float32, as files may have them. A table of outcomes does not count: costs have been subtracted from it.
    """
    keys = _hashes(list(feedback.x.T), 0)
    total = int(mixed(keys).sum(dtype=np.uint64))
    if hasattr(feedback, "outcome"):
        keys = keys + _hashes([feedback.action, feedback.outcome], feedback.x.shape[1])
    return total, keys


def _hashes(columns: Sequence[np.ndarray], first: int) -> UInt64[np.ndarray, " row"]:
    keys = np.zeros(len(columns[0]), np.uint64)
    for number, column in enumerate(columns, first):
        with np.errstate(over="ignore"):
            plain = np.asarray(column, np.float32) + np.float32(0.0)  # minus zero is zero
        keys += mixed(plain.view(np.uint32).astype(np.uint64) ^ mixed(np.array([number], np.uint64)))
    return keys


@dataclass(frozen=True, slots=True, eq=False)
class Fingerprint:
    """Rows learned from: their number, the sum of hashes of their features, and a filter of a `share` of them.

    `common` is the share of rows that another one equals: new rows of the same population match as often by chance.
    """

    rows: int
    total: int
    salt: int
    share: float
    common: float
    size: int
    bits: UInt8[np.ndarray, " byte"]

    @classmethod
    def of(cls, feedback: FullFeedback | LoggedFeedback, *, rows: int | None = None) -> Fingerprint:
        """Of training rows; `rows` are all of them, where these are a sample. The salt is made of all rows together."""
        total, keys = _keys(feedback)
        salt = int(mixed(np.array([total], np.uint64))[0])
        kept = keys
        if len(keys) > MOST_ROWS:
            kept = keys[np.random.default_rng(salt).choice(len(keys), MOST_ROWS, replace=False)]
        distinct, counts = np.unique(kept, return_counts=True)
        common = float(counts[counts > 1].sum() / len(kept))
        size = max(8, math.ceil(len(distinct) / math.log(2.0)))
        filled = np.zeros(size, bool)
        filled[_places(distinct, salt, size)] = True
        count = len(keys) if rows is None else rows
        return cls(count, total, salt, len(kept) / count, common, size, np.packbits(filled))

    def seen(self, feedback: FullFeedback | LoggedFeedback) -> float:
        """Estimated share of rows that were learned from; 0 where it may be chance.

        With f the share of bits set, a row that was not seen matches with probability p = f + (1 - f) common.
        """
        total, keys = _keys(feedback)
        if len(keys) == self.rows and total == self.total:
            return 1.0
        distinct, counts = np.unique(keys, return_counts=True)
        once = distinct[counts == 1]  # rows that many equal say nothing
        filled = np.unpackbits(self.bits, count=self.size)
        f = float(filled.mean())
        p = f + (1.0 - f) * self.common
        if not len(once) or p > 0.98:
            return 0.0
        matched = float(filled[_places(once, self.salt, self.size)].mean())
        variance = p * (1.0 - p) / len(once) + (1.0 - f) ** 2 * self.common * (1.0 - self.common) / self.rows
        seen = (matched - p) / (1.0 - p) / self.share
        return min(1.0, seen) if matched - p > SURE * math.sqrt(variance) and seen >= LEAST else 0.0

    def to_json(self) -> dict[str, Any]:
        """Plain types."""
        return {
            "rows": self.rows, "total": self.total, "salt": self.salt, "share": self.share, "common": self.common,
            "size": self.size, "bits": base64.b64encode(self.bits.tobytes()).decode("ascii"),
        }  # fmt: skip

    @classmethod
    def from_json(cls, stored: Any) -> Fingerprint:
        """The fingerprint that `to_json` wrote; anything else is refused."""
        whole, shares = ("rows", "total", "salt", "size"), ("share", "common")
        fine = isinstance(stored, dict) and set(stored) == {*whole, *shares, "bits"} and isinstance(stored["bits"], str)
        fine = fine and all(type(stored[name]) is int and 0 <= stored[name] < 2**64 for name in whole)
        fine = fine and all(type(stored[name]) in (int, float) and 0.0 <= stored[name] <= 1.0 for name in shares)
        if not fine or stored["rows"] < 1 or not stored["share"] > 0.0:
            raise ValueError("its fingerprint of the rows is not one")
        try:
            bits = np.frombuffer(base64.b64decode(stored["bits"], validate=True), np.uint8)
        except binascii.Error as error:
            raise ValueError("its fingerprint of the rows is not one") from error
        if len(bits) != -(-stored["size"] // 8) or not bits.any():
            raise ValueError("its fingerprint of the rows has another size")
        return cls(**(stored | {"bits": bits}))


def _places(keys: UInt64[np.ndarray, " row"], salt: int, size: int) -> np.ndarray:
    return (mixed(keys ^ np.uint64(salt)) % np.uint64(size)).astype(np.int64)


def seen_words(policy: Any, feedback: FullFeedback | LoggedFeedback) -> str | None:
    """What to say where a policy is evaluated on rows that it learned from; None where it is not, or not known."""
    known: Fingerprint | None = getattr(policy, "fingerprint_", None)
    if known is None or feedback.x.shape[1] != policy.n_features_in_:
        return None
    share = known.seen(feedback)
    if share == 0.0:
        return None
    own = "cross_fitted_value, or " if hasattr(policy, "cross_fitted_value") else ""
    whose = "the rows" if share > 0.95 else f"in part (about {share:.0%}) rows"
    return f"these are {whose} the policy learned from: their value is too good; use {own}new rows"
