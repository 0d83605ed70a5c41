"""`gbpl report`: the report of a saved policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gbpl.cli.console import Json, guarded, print_json, stdout, verbatim
from gbpl.runtime.files import check_target

__all__ = ["report"]

PAGE = Path("report.html")


@guarded
def report(
    policy: Annotated[Path, typer.Argument(metavar="POLICY", help="Policy file written by gbpl fit.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help=f"HTML file to write; {PAGE} if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Write the report of a policy again, as one HTML page; with --json, print its contents instead."""
    from gbpl.frozen.file import load

    if as_json and out is not None:
        raise ValueError(f"--json prints and writes no page; leave {out} out, or --json")
    page = PAGE if out is None else out
    if page.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"the report is an HTML page, got {str(page)!r}; give a name that ends in .html")
    check_target(page)
    loaded = load(policy)
    if not as_json:
        loaded.report(page)
        stdout().print(f"Written: {verbatim(page)}", soft_wrap=True)
        return
    if loaded.summary is None:
        raise ValueError(f"{policy} has no summary: it was saved by GBPLNet.save; gbpl fit makes one")
    print_json(loaded.summary)
