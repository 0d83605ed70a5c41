"""Members and the builders that turn one into many: zeta grids, folds, bootstrap weights.

A member is one fit. It names rows of a shared table and never copies them; a stack is a list of members, and
the fields of a member say what it is for. Everything that repeats a fit (a path of zetas, cross-fitting, a
committee, a hundred trials) is: build members, fit the stack once, find the members by their fields.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["Member", "across_folds", "dealt_rows", "fold_rows", "outside", "over_zeta"]

NO_ROWS: Int[np.ndarray, " row"] = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Member:
    """One fit: its rows, its weights, its constants, its seed, and what it is for.

    `weights` belong to the rows of `train`; only their ratios matter. `validation` rows stop the fit; without
    any it runs to the last epoch. Where several tables of targets lie one below the other, `table` is the number of the
    member's. `fold` is the fold it leaves out, `entry` its place on a zeta path, `model` the place of its model in a
    committee.
    """

    train: Int[np.ndarray, " row"]
    validation: Int[np.ndarray, " row"] = field(default_factory=lambda: NO_ROWS)
    weights: Float[np.ndarray, " row"] | None = None
    validation_weights: Float[np.ndarray, " row"] | None = None
    zeta: float = 1.0
    eta: float = 1.0
    prior_sd: float = 1.0
    seed: int = 0
    table: int = 0
    fold: int | None = None
    entry: int | None = None
    model: int | None = None

    def __post_init__(self) -> None:
        if len(self.train) == 0:
            raise ValueError(f"a member needs training rows, got none; {self}")
        for name in ("zeta", "eta", "prior_sd"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ValueError(f"{name} must be a finite number > 0, got {getattr(self, name)}")

    def __str__(self) -> str:
        """What it is for, and by which seed: `member (fold 2, entry 0, zeta 1.0, seed 5)`."""
        named = {name: getattr(self, name) for name in ("fold", "entry", "model")}
        shown = [f"{name} {place}" for name, place in named.items() if place is not None]
        return f"member ({', '.join([*shown, f'zeta {self.zeta}', f'seed {self.seed}'])})"


def over_zeta(members: Iterable[Member], zetas: Sequence[float]) -> list[Member]:
    """Each member at each zeta; the seed stays, so the path shares its random numbers."""
    return [replace(member, zeta=float(zeta)) for zeta in zetas for member in members]


def across_folds(member: Member, folds: Sequence[Int[np.ndarray, " row"]], *, seed: int) -> list[Member]:
    """One member per fold: it stops on its fold and trains on the other rows of the member."""
    weight_of = None
    if member.weights is not None:
        weight_of = np.zeros(int(member.train.max()) + 1)
        weight_of[member.train] = member.weights
    seeds = np.random.SeedSequence(seed).generate_state(len(folds))
    built = []
    for number, fold in enumerate(folds):
        train = member.train[~np.isin(member.train, fold)].astype(np.int32)  # in their order
        built.append(
            replace(
                member,
                train=train,
                validation=np.asarray(fold, np.int32),
                weights=None if weight_of is None else weight_of[train],
                validation_weights=None if weight_of is None else weight_of[fold],
                seed=int(seeds[number]),
                fold=number,
            )
        )
    return built


def dealt_rows(n: int, folds: Sequence[Int[np.ndarray, " row"]]) -> Int[np.ndarray, " row"]:
    """All rows, in the order in which they were dealt to the folds; as they come where not all were."""
    dealt = np.concatenate(folds)
    return (dealt if len(dealt) == n else np.arange(n)).astype(np.int32)


def outside(folds: Sequence[Int[np.ndarray, " row"]], *left_out: int) -> Int[np.ndarray, " row"]:
    """Rows of the other folds, in the order in which they were dealt."""
    return np.concatenate([fold for number, fold in enumerate(folds) if number not in left_out])


def fold_rows(
    n: int,
    folds: int,
    *,
    seed: int,
    strata: Int[np.ndarray, " row"] | None = None,
    groups: Int[np.ndarray, " row"] | None = None,
    order: Int[np.ndarray, " row"] | None = None,
) -> list[Int[np.ndarray, " row"]]:
    """Rows 0..n-1 divided at random into `folds` parts of (nearly) equal size, evenly within each stratum.

    Rows of one group stay together; the strata are then as even as the groups allow. With an `order` of the rows, they
    are dealt as if they came in it, and those of a fold are in it.
    """
    if order is not None:
        strata, groups = (None if part is None else part[order] for part in (strata, groups))
        return [order[part].astype(np.int32) for part in fold_rows(n, folds, seed=seed, strata=strata, groups=groups)]
    if groups is not None:
        count = len(np.unique(groups))
        if count < folds:
            raise ValueError(f"{count} groups cannot be divided into {folds} folds; use at most {count} folds")
        dealer = StratifiedGroupKFold(folds, shuffle=True, random_state=seed % 2**32)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a stratum of few rows; callers check
            parts = dealer.split(np.zeros(n), np.zeros(n, int) if strata is None else strata, groups)
            return [np.sort(part).astype(np.int32) for _, part in parts]
    rng = np.random.default_rng(seed)
    order = rng.permutation(n)
    if strata is not None:
        order = order[np.argsort(strata[order], kind="stable")]
    return [np.sort(order[start::folds]).astype(np.int32) for start in range(folds)]
