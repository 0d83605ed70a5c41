"""Several score models in one committee, and which member belongs to which."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.models.base import ScoreModel

if TYPE_CHECKING:
    from jaxtyping import Int

__all__ = ["Mixed", "Mixture", "by_model"]


@dataclass(frozen=True, slots=True)
class Mixture:
    """Score models that stand side by side in one committee; its parameters are `Mixed`."""

    models: tuple[ScoreModel, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Mixed:
    """Parameters of members of several models: `parts` has those of each model, with a leading member axis.

    `owner` is the model of each member; members of a model come in the order of its part.
    """

    owner: Int[np.ndarray, " member"]
    parts: tuple[Any, ...]

    def members_of(self, model: int) -> Int[np.ndarray, " member"]:
        """Numbers of the members of a model."""
        return np.flatnonzero(self.owner == model)


def by_model(model: ScoreModel | Mixture, params: Any) -> list[tuple[ScoreModel, Any, Any]]:
    """Model, parameters and numbers (an array, or a slice of all) of the members of each model that has any."""
    if not isinstance(model, Mixture):
        return [(model, params, slice(None))]
    owned = [params.members_of(number) for number in range(len(params.parts))]
    parts = zip(model.models, params.parts, owned, strict=True)
    return [(one, part, numbers) for one, part, numbers in parts if len(numbers)]
