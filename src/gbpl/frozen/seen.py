"""Where the features of the training rows lay, so roughly that no row shows: what a change may be looked for in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

__all__ = ["FEWEST", "Seen"]

FEWEST = 10  # rows at or beyond each end


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Per feature, ends that at least `FEWEST` rows lie at or beyond, rounded; and whether all its values are whole.

    >>> seen = Seen.of(np.arange(100.0)[:, None])
    >>> seen.low.tolist(), seen.high.tolist(), seen.whole.tolist()
    ([9.0], [90.0], [True])
    """

    low: Float[np.ndarray, " feature"]
    high: Float[np.ndarray, " feature"]
    whole: Bool[np.ndarray, " feature"]

    @classmethod
    def of(cls, x: Float[np.ndarray, "row feature"], smallest: int = FEWEST) -> Seen | None:
        """From training rows; None where there are too few of them. Rounded to a tenth of the digit of the spread."""
        if len(x) < 2 * smallest:
            return None
        low, high, whole = np.zeros((3, x.shape[1]))
        for j in range(x.shape[1]):
            values = np.asarray(x[:, j], np.float64)
            ends = np.partition(values, [smallest - 1, len(values) - smallest])[[smallest - 1, -smallest]]
            spread = float(values.std())
            if 0.0 < spread < np.inf:
                ends = np.array([round(end, 1 - int(np.floor(np.log10(spread)))) for end in ends.tolist()])
            low[j], high[j], whole[j] = *ends, (values == np.round(values)).all()
        return cls(low, high, whole.astype(bool))

    def to_json(self) -> dict[str, Any]:
        return {"low": self.low.tolist(), "high": self.high.tolist(), "whole": self.whole.tolist()}

    @classmethod
    def from_json(cls, stored: Any, width: int) -> Seen:
        """What `to_json` wrote, of `width` features; anything else is refused."""
        if not isinstance(stored, dict) or set(stored) != {"low", "high", "whole"}:
            raise ValueError("what it says of the rows seen is not low, high and whole")
        made = []
        for name, kinds in (("low", (int, float)), ("high", (int, float)), ("whole", (bool,))):
            values = stored[name]
            if not isinstance(values, list) or len(values) != width or any(type(one) not in kinds for one in values):
                raise ValueError(f"{name} of the rows seen is not one value for each of {width} features")
            made.append(np.array(values, bool if name == "whole" else np.float64))
        low, high, whole = made
        if not (np.isfinite(low) & np.isfinite(high) & (low <= high)).all():
            raise ValueError("the rows seen do not lie between finite ends")
        return cls(low, high, whole)
