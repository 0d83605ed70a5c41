"""Propensities that are not given, in passes: models of the sample outside a row's fold (section 7).

A logistic regression has few coefficients, and the sample settles them. A forest takes its splits from the sample and
its shares from all rows. As in memory, the two are mixed by how likely they make the actions of rows they did not see
(`gbpl.nuisance.averaged`), or the logistic regression stands alone where outcome models are not averaged either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from gbpl.feedback.pseudo_outcomes import of_logged_action
from gbpl.nuisance.averaged import PROPENSITY_LEAF, mixture_weights
from gbpl.nuisance.cross_fit import warn_estimated
from gbpl.nuisance.learners import fitted
from gbpl.passes.chunks import Passes, ReadChunk
from gbpl.passes.leaf_means import LeafMeans, weight_of
from gbpl.trees.grow import Binned

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["Propensities"]


class Propensities:
    """Probabilities of the actions of any row, by models that know nothing of its fold."""

    def __init__(self, passes: Passes, *, average: bool) -> None:
        self.passes, self.actions, grown = passes, len(passes.source.actions), passes.grown
        self.classifier = passes.source.classifier
        learner = LogisticRegression(max_iter=1000) if self.classifier is None else self.classifier
        action, weight = grown.chunk.action, grown.chunk.weight
        assert action is not None
        outside = [np.flatnonzero(grown.fold != fold) for fold in range(passes.folds)]
        for rows in outside:
            self._check(np.bincount(action[rows], minlength=self.actions), len(rows))
        x = self._features(grown)
        self.models = [
            fitted(learner, x[rows], action[rows], None if weight is None else weight[rows]) for rows in outside
        ]
        self.forests: list[LeafMeans] = []
        if average and self.classifier is None:
            seeds = np.random.SeedSequence([passes.seed, 9]).generate_state(passes.folds)
            binned, taken = Binned.of(grown.x), np.eye(self.actions)[action]
            self.forests = [
                LeafMeans(
                    binned, taken, rows, columns=self.actions, min_leaf=PROPENSITY_LEAF, seed=int(seed) % 2**31,
                    weights=weight,
                )
                for rows, seed in zip(outside, seeds, strict=True)
            ]  # fmt: skip
        self.shares = np.ones((passes.folds, 1))

    def _check(self, taken: np.ndarray, rows: int) -> None:
        if taken.min() == 0:
            label = self.passes.source.actions.tolist()[int(np.argmin(taken))]
            raise ValueError(
                f"propensity is not given, and none of the {rows} rows that it is estimated from took action "
                f"{label!r}; give the propensities, or leave the action out"
            )

    def _features(self, read: ReadChunk) -> Float[np.ndarray, "row feature"]:
        """As they came for the user's classifier, standardised for ours."""
        return read.x if self.classifier is None else read.chunk.x

    def add(self, read: ReadChunk) -> None:
        """Give the forests the rows outside their fold."""
        action, weight = read.chunk.action, weight_of(read.chunk)
        assert action is not None
        for fold, forest in enumerate(self.forests):
            rows = np.flatnonzero(read.fold != fold)
            forest.add(read.x[rows], action[rows], np.ones(len(rows)), weight[rows])

    def close(self) -> None:
        """Mix the models, for each fold by the other folds; and say what was done."""
        grown, passes = self.passes.grown, self.passes
        assert grown.chunk.action is not None
        if self.forests:
            for forest in self.forests:
                forest.close()
            tables = self._tables(grown)
            likelihood = np.column_stack([of_logged_action(table, grown.chunk.action) for table in tables])
            weight = weight_of(grown.chunk)
            outside = [grown.fold != fold for fold in range(passes.folds)]
            self.shares = np.stack([mixture_weights(likelihood[rows], weight[rows]) for rows in outside])
        if self.classifier is None:
            how = "multinomial logistic regression" + (" averaged with a forest" if self.forests else "")
            warn_estimated(grown.chunk.logged(passes.source.actions), self.table(grown), how)

    def _tables(self, read: ReadChunk) -> list[Float[np.ndarray, "row action"]]:
        """Probabilities by each kind of model."""
        x, shape = self._features(read), (len(read.x), self.actions)
        tables: list[Any] = [np.zeros(shape) for _ in range(2 if self.forests else 1)]
        for fold, model in enumerate(self.models):
            rows = np.flatnonzero(read.fold == fold)
            if len(rows):
                tables[0][np.ix_(rows, model.classes_)] = model.predict_proba(x[rows])
                if self.forests:
                    tables[1][rows] = self.forests[fold].predict(read.x[rows])
        return tables

    def table(self, read: ReadChunk) -> Float[np.ndarray, "row action"]:
        """Probabilities of the actions of some rows."""
        tables = self._tables(read)
        return np.sum([self.shares[read.fold, place, None] * table for place, table in enumerate(tables)], axis=0)
