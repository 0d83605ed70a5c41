"""Members of a policy in SQL: networks, splines and forests, as `gbpl.models.numpy_form` has them in numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from gbpl.frozen.committee import Part
from gbpl.frozen.export.chain import Chain, Units, added, apart, linear, weight
from gbpl.models.basis import spline_basis
from gbpl.models.numpy_form import Forests, Networks

if TYPE_CHECKING:
    from jaxtyping import Float, Int

__all__ = ["raw_outputs", "rounding_edges"]

TOGETHER = 400  # new columns of a query that computes several members
Members = tuple["Int[np.ndarray, ' some']", list[list[str]]]  # which they are, and the raw outputs of each


def raw_outputs(chain: Chain, part: Part, x: Units) -> Iterator[Members]:
    """Some members at a time and the columns of their raw outputs."""
    if isinstance(part.form, Forests):
        for number in np.unique(part.form.forest).tolist():
            members = np.flatnonzero(part.form.forest == number)
            yield members, _forest(chain, part.form, number, members, x)
        return
    form, every = part.form.shared(), np.arange(len(part.weights))
    step = max(1, TOGETHER // max([form.last.shape[2], *(layer.shape[2] for layer in form.hidden)]))
    for first in range(0, len(every), step):
        members = every[first : first + step]
        yield members, _networks(chain, form, members, x)


def _columns(chain: Chain, outputs: list[list[str]]) -> list[list[str]]:
    """The query of raw outputs, a column each."""
    made = {f"gbpl_r{m}_{r}": expression for m, own in enumerate(outputs) for r, expression in enumerate(own)}
    names, width = chain.step(made), len(outputs[0])
    return [names[first : first + width] for first in range(0, len(names), width)]


def _networks(chain: Chain, form: Networks, members: Int[np.ndarray, " some"], x: Units) -> list[list[str]]:
    """Layer after layer; one that members share is computed once."""
    units = [_curves(chain, form.knots, x) if form.knots else x]
    for number, layer in enumerate(form.hidden):
        own = layer if len(layer) == 1 else layer[members]
        inputs = units if len(units) == len(own) else units * len(own)
        blocks = [
            [linear(before, matrix[:-1, unit], matrix[-1, unit]) for unit in range(matrix.shape[1])]
            for before, matrix in zip(inputs, own, strict=True)
        ]
        units = chain.units(f"gbpl_h{number}", _activated(chain, form.activation, blocks))
    inputs = units if len(units) == len(members) else units * len(members)
    last = form.last[members].astype(np.float64)
    last[:, :-1] *= form.gain
    return _columns(
        chain,
        [
            [linear(before, matrix[:-1, raw], matrix[-1, raw]) for raw in range(matrix.shape[1])]
            for before, matrix in zip(inputs, last, strict=True)
        ],
    )


def _activated(chain: Chain, activation: str, blocks: list[list[str]]) -> list[list[str]]:
    """Units of layers; silu, h / (1 + exp(-h)), asks twice for its argument, which is a query of its own then."""
    if activation == "silu":
        arguments = [units.names for units in chain.units("gbpl_in", blocks)]
        return [[f"{h} / (1.0e0 + EXP(-{h}))" for h in own] for own in arguments]
    if activation == "relu":
        return [[chain.positive(expression) for expression in own] for own in blocks]
    return [[f"{activation.upper()}({expression})" for expression in own] for own in blocks]


def _curves(chain: Chain, knots: int, x: Units) -> Units:
    """As `gbpl.models.basis.spline_curves`: linear in t, t^2 and t^3 of the parts t of intervals that lie below x."""
    places, made = spline_basis(knots)
    smallest, say, parts = chain.dialect.smallest, chain.dialect.float, []
    for name in x.names:
        own = [f"{smallest}({name} - {say(places[0])}, 0.0e0)", chain.positive(f"{name} - {say(places[-1])}")]
        for place, width in zip(places[:-1], np.diff(places), strict=True):
            own.append(f"{smallest}({chain.positive(f'{name} - {say(place)}')}, {say(width)})")
        parts.append(own)
    powers = []
    for units in chain.units("gbpl_t", parts):
        inside = units.names[2:]
        powers.append([*units.names, *(f"{t} * {t}" for t in inside), *(f"{t} * {t} * {t}" for t in inside)])
    curves = [
        linear(units, made[1:, curve], made[0, curve])
        for units in chain.units("gbpl_p", powers)
        for curve in range(made.shape[1])
    ]
    return chain.units("gbpl_c", [curves])[0]


def _forest(chain: Chain, form: Forests, number: int, members: Int[np.ndarray, " some"], x: Units) -> list[list[str]]:
    """Sums of `CASE` over trees, with the last layer folded into the leaves."""
    feature, edges, outputs = form.feature[number], rounding_edges(form.threshold[number]), []
    for last in form.last[members].astype(np.float64):
        leaves = form.value[number].astype(np.float64) @ last[:-1]
        outputs.append(
            [
                added(
                    [*(_tree(chain, *tree, raw, x) for tree in zip(feature, edges, leaves, strict=True)), weight(bias)]
                )
                for raw, bias in enumerate(last[-1].tolist())
            ]
        )
    return _columns(chain, outputs)


def rounding_edges(threshold: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
    """The largest float64 that rounds to a float32 not above each threshold; infinite ones stay.

    A policy rounds its standardized features; a row is above one of its thresholds if it is above this before that.
    It is the middle between the threshold and the next float32, if that is rounded down: to the even one.
    """
    never = np.isinf(threshold)
    below = np.where(never, np.float32(0.0), threshold).astype(np.float32)
    above = np.nextafter(below, np.float32(np.inf))
    middle = (below.astype(np.float64) + above.astype(np.float64)) / 2.0
    return np.where(never, np.inf, np.where(middle.astype(np.float32) == below, middle, np.nextafter(middle, -np.inf)))


def _tree(
    chain: Chain, feature: Int[np.ndarray, " node"], edges: Float[np.ndarray, " node"],
    leaves: Float[np.ndarray, "leaf raw"], raw: int, x: Units, node: int = 0,
) -> str:  # fmt: skip
    """One tree from a node on; a node that is not split sends every row to the left."""
    while node < len(feature) and np.isinf(edges[node]):
        node = 2 * node + 1
    if node >= len(feature):
        return weight(leaves[node - len(feature), raw])
    left, right = (_tree(chain, feature, edges, leaves, raw, x, 2 * node + side) for side in (1, 2))
    edge = chain.dialect.float(edges[node])
    edge = edge if chain.dialect.lists else apart(edge)
    return f"CASE WHEN {x.names[feature[node]]} > {edge} THEN {right} ELSE {left} END"
