"""`gbpl export`: a policy or a small rule in another language."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gbpl.cli.console import Json, guarded, held, print_json, stdout, verbatim
from gbpl.runtime.files import check_target, write_text

if TYPE_CHECKING:
    from gbpl.frozen.file import SavedPolicy
    from gbpl.frozen.small_rule import SmallRule

__all__ = ["export"]

TARGETS = ("sql", "python", "json", "onnx")


@guarded
def export(
    policy: Annotated[
        Path,
        typer.Argument(metavar="POLICY", help="Policy file written by gbpl fit, or rule.json, its small rule."),
    ],
    to: Annotated[str, typer.Option(metavar="KIND", help="sql, python, json (conditions of a small rule) or onnx.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="File to write; printed if not given.")
    ] = None,
    rule: Annotated[
        bool, typer.Option("--rule", help="The small rule that was learned beside the policy, instead of it.")
    ] = False,
    dialect: Annotated[str | None, typer.Option(metavar="NAME", help="Of SQL: duckdb (as usual) or sqlite.")] = None,
    table: Annotated[str | None, typer.Option(metavar="NAME", help="Table of SQL; people if not given.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN...", help="Columns that SQL returns beside the action.")
    ] = None,
    flag: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --to json: a file of flagd with a flag of that name.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a policy, or its small rule, as SQL, plain Python, JSON conditions or ONNX."""
    _check(to, out, as_json, {"--dialect": dialect, "--table": table, "--keep": keep}, flag)
    if out is not None:
        check_target(out)
    with held():
        from gbpl.frozen.onnx import to_onnx
    of = _subject(policy, rule)
    if to == "onnx":
        assert out is not None
        to_onnx(of, out)
    else:
        text = _text(of, to, dialect or "duckdb", table or "people", keep, flag)
        if out is None:
            print(text, end="")
            return
        write_text(out, text)
    if as_json:
        print_json({"file": str(out), "to": to, "bytes": out.stat().st_size})
        return
    stdout().print(f"Written: {verbatim(out)}", soft_wrap=True)


def _check(to: str, out: Path | None, as_json: bool, of_sql: dict[str, Any], flag: str | None) -> None:
    """Refuse what does not go together, before anything is read."""
    if to not in TARGETS:
        raise ValueError(f"--to must be one of {', '.join(TARGETS)}, got {to!r}; try sql")
    given = next((name for name, value in of_sql.items() if value is not None), None)
    if given is not None and to != "sql":
        raise ValueError(f"{given} is for --to sql, got --to {to}; leave it out")
    if flag is not None and to != "json":
        raise ValueError(f"--flag is for --to json, got --to {to}; leave it out")
    if out is None and (to == "onnx" or as_json):
        raise ValueError(f"{'--to onnx' if to == 'onnx' else '--json'} needs a file to write; give one with -o")


def _subject(path: Path, rule: bool) -> SavedPolicy | SmallRule:
    """The policy of a file, the small rule beside it, or that of a file of its own."""
    from gbpl.frozen.file import load
    from gbpl.frozen.small_rule import SmallRule

    if path.suffix.lower() == ".json":
        return SmallRule.load(path)
    loaded = load(path)
    if not rule:
        return loaded
    if loaded.small_rule is None:
        raise ValueError(f"{path} has no small rule, which --rule asks for; learn one with gbpl fit --rule tree:2")
    return loaded.small_rule


def _text(of: Any, to: str, dialect: str, table: str, keep: list[str] | None, flag: str | None) -> str:
    from gbpl.frozen.export.conditions import to_conditions
    from gbpl.frozen.export.python import to_python
    from gbpl.frozen.export.sql import to_sql

    if to == "python":
        return to_python(of)
    if to == "json":
        return json.dumps(to_conditions(of, flag=flag), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
    return to_sql(of, dialect=dialect, table=table, keep=keep) + ";\n"
