"""Plain values between pyarrow and numpy without pandas, which pyarrow's own conversions import where it is installed.

That import makes `gbpl decide` of a small file a third slower. pyarrow is not imported here: callers hand it over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool

__all__ = ["from_plain", "is_plain", "text_array", "to_plain"]

PLAIN = {
    "bool",
    "halffloat",
    "float",
    "double",
    *(f"{sign}int{size}" for sign in ("", "u") for size in (8, 16, 32, 64)),
}


def is_plain(values: Any) -> bool:
    """Whether a pyarrow array holds numbers or booleans."""
    return str(values.type) in PLAIN


def to_plain(values: Any) -> np.ndarray:
    """Numbers, NaN where missing (integers as floats then), or booleans, None where missing."""
    if hasattr(values, "chunks"):
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
    boolean = str(values.type) == "bool"
    if not values.null_count:
        return _booleans(values) if boolean else np.from_dlpack(values)
    if boolean:
        return np.fromiter(values.to_pylist(), object, len(values))
    numbers = np.from_dlpack(values.drop_null())
    array = np.full(len(values), np.nan, numbers.dtype if numbers.dtype.kind == "f" else np.float64)
    array[_booleans(values.is_valid())] = numbers
    return array


def _booleans(values: Any) -> Bool[np.ndarray, " row"]:
    return np.from_dlpack(values.cast("uint8")).view(bool)


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
