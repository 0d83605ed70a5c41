"""`gbpl reproduce`: the paper's experiments beside the printed numbers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Annotated

import typer

from gbpl.cli.console import guarded, progress_bar, stderr, verbatim

__all__ = ["reproduce"]


@guarded
def reproduce(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="TABLE", help="Tables to make; all if none is named.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(metavar="N", help="Trials per table, instead of the paper's number.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small imitation of every table, in two minutes.")] = False,
    device: Annotated[str, typer.Option(metavar="NAME", help="auto, cpu or gpu.")] = "auto",
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="local, or ray to spread blocks over a cluster.")
    ] = "local",
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder of the run; an interrupted run continues.")
    ] = Path("reproduction"),
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Folder with yacht.csv and energy_efficiency.csv.")
    ] = None,
) -> None:
    """Run the paper's experiments: every table and figure, beside the printed numbers."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # what is done is kept, so that there is nothing to clear away
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes will share a GPU
    from gbpl.paper.run import Run
    from gbpl.paper.run import reproduce as run_all

    console = stderr()
    started = time.perf_counter()
    try:
        run = Run(tuple(tables or ()), trials, quick, device, engine, data_dir)
        with progress_bar(speed_estimate_period=600.0) as bar:
            task = bar.add_task("starting", total=None)

            def progress(done: float, total: float, what: str) -> None:
                bar.update(task, completed=done, total=total, description=what)

            report = run_all(run, out, progress=progress, say=lambda text: console.say(verbatim(text), style="yellow"))
    except KeyboardInterrupt:
        console.say(f"stopped; the same command continues from {verbatim(out)}")
        raise SystemExit(130) from None
    print(f"{report} written, {time.perf_counter() - started:.0f} s")
