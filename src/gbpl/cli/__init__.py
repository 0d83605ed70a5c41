"""The command line: thin, it reads files, calls the library, prints and writes."""

from __future__ import annotations

import sys

try:
    import rich
    import typer

    from gbpl.cli.app import main
except ModuleNotFoundError as error:
    if error.name not in ("rich", "typer"):
        raise
    sys.exit("the command line needs typer and rich: pip install 'gbpl[cli]'")
except KeyboardInterrupt:
    sys.exit(130)

__all__ = ["main", "rich", "typer"]
