"""A small rule or a whole policy as one SQL query, for where the rows are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbpl.frozen.export.dialects import Dialect, Sql, dialect_of
from gbpl.frozen.export.language import Rules, said
from gbpl.frozen.export.query import policy_query
from gbpl.frozen.export.subject import is_small, subject
from gbpl.frozen.policy import NumpyPolicy

__all__ = ["to_sql"]


def to_sql(
    policy: Any,
    *,
    dialect: str = "duckdb",
    table: str | None = "people",
    keep: Sequence[str] | None = None,
    name: str = "action",
) -> str:
    """A query that decides every row of a table where it is: `CASE` for a small rule, layer after layer for a policy.

    `policy` is a `SmallRule`, or a policy that was fitted or saved; `dialect` is "duckdb" or "sqlite" (3.35 or later,
    with its mathematical functions). The query reads raw columns of `table` by name: NULL (and NaN) is missing, a
    category is compared as text, and new levels count as in `decide`. It returns the `keep` columns and the label of
    the action, called `name`; without `keep`, a small rule returns all columns, a policy none but the action. With
    `table=None` a small rule is the expression alone.

    The action is that of `decide`, prices of limited actions included, and NULL where there is no score: a number is
    infinite or beyond all that can be computed with, or missing where the policy has no encoder. A small rule decides
    exactly as `predict`; a policy computes in float64 what numpy does in float32, so that actions that are level to
    about 1e-6 may be exchanged.

    >>> import numpy as np
    >>> from gbpl.decisions.tree import LEAF, Tree
    >>> from gbpl.frozen.small_rule import SmallRule
    >>> nan = float("nan")
    >>> stump = Tree.of([0, LEAF, LEAF], [34.5, nan, nan], [1, -1, -1], [2, -1, -1], [-1, 0, 1])
    >>> rule = SmallRule(stump, np.array(["wait", "call"]), ("age",))
    >>> print(to_sql(rule, dialect="sqlite", table=None))
    CASE
    WHEN CAST(`age` AS DOUBLE PRECISION) IS NULL THEN NULL
    WHEN CAST(`age` AS DOUBLE PRECISION) > 34.5 THEN 'call'
    ELSE 'wait'
    END
    """
    written, of = dialect_of(dialect), subject(policy, "to_sql")
    if isinstance(keep, str):
        raise ValueError(f"keep is a list of columns, got the text {keep!r}; try keep=[{keep!r}]")
    if isinstance(of, NumpyPolicy):
        if table is None:
            raise ValueError("a whole policy is no single expression, got table=None; give the name of a table")
        return policy_query(of, written, table, keep or (), name)
    assert is_small(of)
    return _rule_query(of, written, table, keep, name)


def _rule_query(small: Rules, dialect: Dialect, table: str | None, keep: Sequence[str] | None, name: str) -> str:
    expression = said(small, Sql(dialect, small.actions_))
    if table is None:
        return expression
    kept = ["*"] if keep is None else [dialect.quoted(column) for column in keep]
    return f"SELECT {', '.join([*kept, expression])} AS {dialect.quoted(name)}\nFROM {dialect.quoted(table)}"
