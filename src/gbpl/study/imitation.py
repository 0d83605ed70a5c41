"""A policy in a few questions: a small tree that decides as it does wherever it can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gbpl.tables.conditions import at_most, plainest
from gbpl.tables.encoder import Encoder
from gbpl.tables.parts import SMALLEST_GROUP

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

__all__ = ["imitation"]

TREE_DEPTH = 3
TREE_ROWS = 50_000  # of the tree and its cross-validation: with a depth of three, more would change nothing
FOLDS = 3


def _node(
    number: int, inside: Bool[np.ndarray, " row"], given: Int[np.ndarray, " row"], question: dict[str, Any] | None
) -> dict[str, Any]:
    actions = np.bincount(given[inside])
    action, rows = int(np.argmax(actions)), int(actions.sum())
    asked = {"feature": None, "text": None, "left": None, "right": None} if question is None else question
    return {"id": number, **asked, "rows": rows, "action": action, "share": float(actions[action] / rows)}


def imitation(
    x: Float[np.ndarray, "row feature"], encoder: Encoder, given: Int[np.ndarray, " row"], *, seed: int = 0,
    smallest: int = SMALLEST_GROUP,
) -> dict[str, Any]:  # fmt: skip
    """A tree of three questions that decides as the policy does wherever it can, and how often that is.

    `fidelity` is cross-validated: the share of rows, not seen by the tree, that it decides as the policy does.
    """
    from sklearn.model_selection import cross_val_score
    from sklearn.tree import DecisionTreeClassifier

    every = np.ones(len(given), bool)
    if len(np.unique(given)) == 1:
        return {"fidelity": None, "depth": 0, "nodes": [_node(0, every, given, None)]}
    rows = np.sort(np.random.default_rng(seed).permutation(len(x))[:TREE_ROWS])
    # Trees are grown in float32, and treat numbers closer than 1e-7 as equal: ranks avoid both problems.
    ranks = np.column_stack([np.unique(column, return_inverse=True)[1] for column in x[rows].T]).astype(np.float32)
    tree = DecisionTreeClassifier(
        max_depth=TREE_DEPTH,
        min_samples_leaf=max(5, smallest, len(rows) // 100),
        min_impurity_decrease=1e-4,
        random_state=seed,
    )
    rare = np.bincount(given[rows])
    folds = min(FOLDS, int(rare[rare > 0].min()))
    fidelity = float(cross_val_score(tree, ranks, given[rows], cv=folds).mean()) if folds > 1 else None
    grown = tree.fit(ranks, given[rows]).tree_
    cuts = _cuts(grown, ranks, x[rows])
    return {"fidelity": fidelity, "depth": int(grown.max_depth), "nodes": _nodes(grown, cuts, x, encoder, given)}


def _cuts(grown: Any, ranks: Float[np.ndarray, "row feature"], x: Float[np.ndarray, "row feature"]) -> dict[int, float]:
    """Where each question cuts its feature: the plainest number between the rows on both sides."""
    cuts: dict[int, float] = {}
    inside = {0: np.ones(len(x), bool)}
    for number in range(grown.node_count):  # a node comes before its sides
        sides = int(grown.children_left[number]), int(grown.children_right[number])
        if sides[0] < 0:
            continue
        feature = int(grown.feature[number])
        below = ranks[:, feature] <= grown.threshold[number]
        inside |= {sides[0]: inside[number] & below, sides[1]: inside[number] & ~below}
        left, right = (x[inside[side], feature] for side in sides)
        cuts[number] = plainest(float(left.max()), float(right.min()))
    return cuts


def _nodes(
    grown: Any, cuts: dict[int, float], x: Float[np.ndarray, "row feature"], encoder: Encoder,
    given: Int[np.ndarray, " row"],
) -> list[dict[str, Any]]:  # fmt: skip
    """Questions and leaves, with all rows, not only those the tree grew on."""
    names = encoder.names
    inside = {0: np.ones(len(given), bool)}
    nodes = []
    for number in range(grown.node_count):
        question = None
        if number in cuts:
            feature, cut = int(grown.feature[number]), cuts[number]
            sides = int(grown.children_left[number]), int(grown.children_right[number])
            below = x[:, feature] <= cut
            inside |= {sides[0]: inside[number] & below, sides[1]: inside[number] & ~below}
            text = at_most(encoder, feature, cut)
            question = {"feature": names[feature], "text": text, "left": sides[0], "right": sides[1]}
        nodes.append(_node(number, inside[number], given, question))
    return nodes
