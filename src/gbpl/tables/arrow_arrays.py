"""Plain values between pyarrow and numpy without pandas, which pyarrow's own conversions import where it is installed.

pyarrow is not imported here: an array of it has what is needed, and who makes one hands the module over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool

__all__ = ["from_plain", "is_plain", "text_array", "to_plain"]

FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
PLAIN = {"bool", *FLOATS, *(f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64))}


def is_plain(values: Any) -> bool:
    """Whether a pyarrow array holds numbers or booleans."""
    return str(values.type) in PLAIN


def to_plain(values: Any) -> np.ndarray:
    """Numbers, NaN where missing (integers as floats then), or booleans, None where missing."""
    chunks = values.chunks if hasattr(values, "chunks") else [values]
    name = str(values.type)
    if name == "bool" and values.null_count:
        return np.fromiter(values.to_pylist(), object, len(values))
    parts = [_numbers(chunk) for chunk in chunks]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, FLOATS.get(name, name))


def _numbers(chunk: Any) -> np.ndarray:
    valid, data = chunk.buffers()
    name, start, rows = str(chunk.type), chunk.offset, len(chunk)
    if name == "bool":
        return _bits(data, start, rows)
    dtype = np.dtype(FLOATS.get(name, name))
    if rows == 0:
        return np.zeros(0, dtype)
    found = np.frombuffer(data, dtype, rows, start * dtype.itemsize)
    if not chunk.null_count:
        return found
    return np.where(_bits(valid, start, rows), found, found.dtype.type(np.nan) if dtype.kind == "f" else np.nan)


def _bits(buffer: Any, start: int, rows: int) -> Bool[np.ndarray, " row"]:
    """Single bits, lowest first, of which only those asked for are unpacked."""
    if rows == 0:
        return np.zeros(0, bool)
    packed = np.frombuffer(buffer, np.uint8)[start // 8 : (start + rows + 7) // 8]
    return np.unpackbits(packed, bitorder="little")[start % 8 :][:rows].astype(bool)


def from_plain(pa: Any, values: np.ndarray) -> Any:
    """A pyarrow array of numbers, booleans or text, null where NaN or None; None where it holds anything else."""
    kind = values.dtype.kind
    if values.ndim != 1 or not values.dtype.isnative or (values.dtype.itemsize > 8 and kind in "iuf"):
        return None
    if kind in "OU":
        listed = values.tolist()
        return text_array(pa, listed) if set(map(type, listed)) <= {str, type(None)} and any(listed) else None
    if kind not in "biuf":
        return None
    missing = np.isnan(values) if kind == "f" else None
    data = np.packbits(values, bitorder="little") if kind == "b" else np.ascontiguousarray(values)
    type_of = pa.bool_() if kind == "b" else getattr(pa, values.dtype.name)()
    return pa.Array.from_buffers(type_of, len(values), [_validity(pa, missing), pa.py_buffer(data)])


def text_array(pa: Any, texts: list[str | None]) -> Any:
    """A pyarrow array of text, null where None."""
    encoded = [b"" if text is None else text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)])
    wide = ends[-1] >= 2**31
    missing = np.fromiter((text is None for text in texts), bool, len(texts))
    offsets = pa.py_buffer(ends.astype(np.int64 if wide else np.int32))
    buffers = [_validity(pa, missing), offsets, pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string() if wide else pa.string(), len(texts), buffers)


def _validity(pa: Any, missing: Bool[np.ndarray, " row"] | None) -> Any:
    if missing is None or not missing.any():
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))
