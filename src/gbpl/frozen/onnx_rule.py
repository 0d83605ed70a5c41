"""A small rule as a graph of ONNX: all its questions at once, then the leaf they lead to, or the points they give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gbpl.decisions.tree import LEAF, Tree
from gbpl.frozen.export.language import Rules
from gbpl.frozen.onnx_graph import DOUBLE, INT64, Graph, add_encoder

if TYPE_CHECKING:
    from gbpl.tables.encoder import Encoder

__all__ = ["rule_graph"]


def rule_graph(small: Rules, encoder: Encoder | None) -> Graph:
    """The column number of the action, -1 where a feature is missing or infinite; everything is in float64."""
    graph, rule = Graph(), small.rule
    if encoder is not None:
        add_encoder(graph, encoder)
    asked = np.flatnonzero(rule.feature != LEAF)
    # A rule without a question gets one that no row meets.
    feature, cut = (
        (rule.feature[asked], rule.threshold[asked]) if len(asked) else (np.zeros(1, int), np.array([np.inf]))
    )
    answers = graph("Cast", graph("Greater", graph("Gather", "features", feature, axis=1), cut), to=DOUBLE)
    if isinstance(rule, Tree):
        action = _leaf_actions(graph, rule, answers, asked)
    else:
        given = rule.points if len(asked) else np.zeros((1, len(rule.start)), int)
        points = graph("Add", graph("MatMul", answers, given.astype(float)), rule.start.astype(float))
        last = int(len(rule.start) == 2)  # of two equal ones the second, of more the first
        action = graph("ArgMax", points, axis=1, keepdims=0, select_last_index=last)
    blank = graph("IsNaN", graph("ReduceSum", graph("Mul", "features", 0.0), [1], keepdims=0))
    graph("Where", blank, -1, action, output="action")
    return graph


def _leaf_actions(graph: Graph, tree: Tree, answers: str, asked: np.ndarray) -> str:
    """A row is in the leaf where as many answers are right, less those that are wrong, as the way to it turns right."""
    place = {node: number for number, node in enumerate(asked.tolist())}
    ways, actions = [], []
    open_nodes = [(0, np.zeros(max(len(asked), 1)))]
    while open_nodes:
        node, way = open_nodes.pop()
        if node not in place:
            ways.append(way)
            actions.append(float(tree.action[node]))
            continue
        for child, turn in ((tree.left, -1.0), (tree.right, 1.0)):
            longer = way.copy()
            longer[place[node]] = turn
            open_nodes.append((int(child[node]), longer))
    turns = np.array(ways).T
    there = graph("Equal", graph("MatMul", answers, turns), (turns > 0.0).sum(axis=0).astype(float))
    number = graph("MatMul", graph("Cast", there, to=DOUBLE), np.array(actions)[:, None])
    return graph("Cast", graph("Squeeze", number, [1]), to=INT64)
