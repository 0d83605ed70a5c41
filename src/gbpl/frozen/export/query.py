"""A whole policy in SQL: features, members, what they deviate from uniform, effects, prices, and the action."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gbpl.feedback.reach import FARTHEST
from gbpl.frozen.export.chain import Chain, Units, added, weight
from gbpl.frozen.export.dialects import Dialect, Sql
from gbpl.frozen.export.language import Features
from gbpl.frozen.export.members import raw_outputs
from gbpl.frozen.export.subject import feature_columns
from gbpl.frozen.policy import NumpyPolicy
from gbpl.models.numpy_form import Forests
from gbpl.squashing import NO_PROBABILITY, gap_doubt
from gbpl.tables.features import NumberColumn

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

__all__ = ["policy_query"]


def policy_query(policy: NumpyPolicy, dialect: Dialect, table: str, keep: Sequence[str], name: str) -> str:
    """The query that decides every row of a table."""
    chain, count, say = Chain(dialect), len(policy.actions_), dialect.float
    labels, called = Sql(dialect, policy.actions_).labels, dialect.quoted(name)
    x = _standardized(chain, policy, table, keep)
    for part in policy.parts:
        for members, raw in raw_outputs(chain, part, x):
            _add(chain, raw, part.weights[members], policy.squashing, count)
    value = [f"gbpl_d{action}" for action in range(count)]
    if policy.effects is not None:
        slope, levels = policy.effects.slope, policy.effects.level.tolist()
        chain.step({d: f"{say(slope)} * {d} + {say(level)}" for d, level in zip(value, levels, strict=True)})
    if policy.gain is not None and any(policy.rule.prices):
        slope, default, prices = policy.gain.slope, value[policy.rule.default], policy.rule.prices
        chain.step(
            {d: f"{say(slope)} * ({d} - {default}) - {say(price)}" for d, price in zip(value, prices, strict=True)}
        )
    kept = [f"gbpl_k{number} AS {dialect.quoted(column)}" for number, column in enumerate(keep)]
    action = f"CASE\nWHEN gbpl_fine = 0 THEN NULL\n{_best(value, labels)}\nEND AS {called}"
    return "WITH " + ",\n".join(chain.queries) + "\nSELECT " + ",\n".join([*kept, action]) + f"\nFROM {chain.last}"


def _best(value: Sequence[str], labels: Sequence[str]) -> str:
    """As `gbpl.value.welfare.deterministic`: of two equal ones the second, of more the first."""
    if len(value) == 2:
        return f"WHEN {value[1]} >= {value[0]} THEN {labels[1]}\nELSE {labels[0]}"
    lines = []
    for action, label in enumerate(labels[:-1]):
        wins = added([f"{value[action]} >= {later}" for later in value[action + 1 :]], "AND")
        lines.append(f"WHEN {wins} THEN {label}")
    return "\n".join([*lines, f"ELSE {labels[-1]}"])


def _standardized(chain: Chain, policy: NumpyPolicy, table: str, keep: Sequence[str]) -> Units:
    """The features that members see, standardized; a mark of the rows that get a score; deviations of zero."""
    dialect, say, labels = chain.dialect, Sql(chain.dialect, policy.actions_), feature_columns(policy)
    features, made, numbers = Features(labels, policy.encoder), {}, []
    for number, (mean, scale) in enumerate(zip(policy.mean.tolist(), policy.scale.tolist(), strict=True)):
        part, place = features.places[number] if features.places else (None, 0)
        if part is None or (isinstance(part, NumberColumn) and place == 0):
            value = say.number(labels[number] if part is None else part.name, None if part is None else part.fill)
            numbers.append(f"gbpl_z{number}")
        else:
            value = f"CASE WHEN {features.there(say, number)} THEN 1.0e0 ELSE 0.0e0 END"
        made[f"gbpl_z{number}"] = f"({value} - {dialect.float(mean)}) / {dialect.float(scale)}"
    kept = {f"gbpl_k{number}": dialect.quoted(column) for number, column in enumerate(keep)}
    chain.step(kept | made, table=dialect.quoted(table))
    fine = added([f"ABS({name}) <= {dialect.float(FARTHEST)}" for name in numbers] or ["1 = 1"], "AND")
    zeros = {f"gbpl_d{action}": "0.0e0" for action in range(len(policy.actions_))}
    chain.carried = list(kept)
    chain.carried += chain.step({"gbpl_fine": f"CASE WHEN {fine} THEN 1 ELSE 0 END"} | zeros, made)
    # Rows without a score get zeros, of which nothing comes that a database refuses to compute.
    names = list(made) if policy.columns is None else [f"gbpl_z{number}" for number in policy.columns.tolist()]
    x = chain.step({z: f"CASE WHEN gbpl_fine = 1 THEN {z} ELSE 0.0e0 END" for z in names})
    if not dialect.lists:
        chain.carried += x
        return Units(x, None)
    trees = any(isinstance(part.form, Forests) for part in policy.parts)  # ask for one number at a time
    (packed,) = chain.step({"gbpl_x": f"[{', '.join(x)}]"}, x if trees else ())
    chain.carried += [packed, *(x if trees else ())]
    return Units(x if trees else [f"{packed}[{number}]" for number in range(1, len(x) + 1)], packed)


# -- the committee ----------------------------------------------------------------------------------------------------


def _add(chain: Chain, raw: list[list[str]], weights: Float[np.ndarray, " some"], squashing: str, count: int) -> None:
    """Add what some members deviate from uniform, as `gbpl.squashing.advantage_of`, times their weights."""
    if squashing in ("tanh", "clip"):
        cut = f"{chain.dialect.smallest}({chain.dialect.largest}({{0}}, -1.0e0), 1.0e0)"
        chain.step({r: ("TANH({0})" if squashing == "tanh" else cut).format(r) for (r,) in raw})
        raw = [[f"-0.5e0 * {r}", f"0.5e0 * {r}"] for (r,) in raw]
    else:
        (_projected if squashing == "project" else _softmax)(chain, raw)
        if squashing.startswith("gap "):
            _gaps(chain, raw, int(squashing.removeprefix("gap ")))
    say, less = chain.dialect.float, 1.0 / count if squashing in ("softmax", "project") else 0.0
    made = {}
    for action in range(count):
        terms = [f"{say(w)} * {own[action]}" for own, w in zip(raw, weights.tolist(), strict=True)]
        made[f"gbpl_d{action}"] = added([f"gbpl_d{action}", *terms, weight(-less * float(weights.sum()))])
    chain.step(made)


def _softmax(chain: Chain, raw: list[list[str]]) -> None:
    every = [r for own in raw for r in own]
    chain.step({f"gbpl_most{m}": chain.largest(own) for m, own in enumerate(raw)}, every)
    chain.step({r: f"EXP({r} - gbpl_most{m})" for m, own in enumerate(raw) for r in own})
    chain.step({f"gbpl_sum{m}": added(own) for m, own in enumerate(raw)}, every)
    chain.step({r: f"{r} / gbpl_sum{m}" for m, own in enumerate(raw) for r in own})


def _projected(chain: Chain, raw: list[list[str]]) -> None:
    """max(p - c, 0) with c = max_a (sum of the p_b >= p_a, less one) / (how many they are)."""
    made = {}
    for own in raw:
        for r in own:
            total = added([f"CASE WHEN {other} >= {r} THEN {other} ELSE 0.0e0 END" for other in own])
            many = added([f"CASE WHEN {other} >= {r} THEN 1.0e0 ELSE 0.0e0 END" for other in own])
            made[f"{r}_c"] = f"({total} - 1.0e0) / ({many})"
    every = [r for own in raw for r in own]
    chain.step(made, every)
    chain.step({f"gbpl_most{m}": chain.largest([f"{r}_c" for r in own]) for m, own in enumerate(raw)}, every)
    chain.step({r: chain.positive(f"{r} - gbpl_most{m}") for m, own in enumerate(raw) for r in own})


def _gaps(chain: Chain, raw: list[list[str]], baseline: int) -> None:
    """Scores of the gaps less their mean, as `gbpl.squashing.gap_advantage`."""
    doubt, made = gap_doubt(len(raw[0])), {}
    for own in raw:
        for action, r in enumerate(own):
            missing = chain.positive(f"1.0e0 - {r} / {weight(NO_PROBABILITY)}")
            made[r] = f"{weight(-doubt)} * {missing}" if action == baseline else f"2.0e0 * {r} - 1.0e0"
    every = chain.step(made)
    chain.step({f"gbpl_sum{m}": added(own) for m, own in enumerate(raw)}, every)
    chain.step({r: f"{r} - gbpl_sum{m} / {len(own)}.0e0" for m, own in enumerate(raw) for r in own})
