"""The command line: thin, it calls the library and prints."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Annotated

try:
    import typer
    from rich.markup import escape
except ModuleNotFoundError:
    sys.exit("the command line needs typer and rich: pip install 'gbpl[cli]'")

__all__ = ["main"]


def main() -> None:
    """Entry point of `gbpl`."""
    app = typer.Typer(add_completion=True, no_args_is_help=True, help="Learn who gets which action, from data.")
    app.command()(demo)
    app.command()(reproduce)
    app()


def demo(rows: int = 2000, seed: int = 0) -> None:
    """Fit a policy on a simulated trial with known truth and say what it is worth."""
    import numpy as np
    from rich.console import Console
    from rich.table import Table

    from gbpl import GBPLNet, regret, welfare
    from gbpl.datasets import BinaryDesign

    console = Console()
    if rows < 100:
        console.print(f"[red]rows must be at least 100, got {rows}[/]")
        raise SystemExit(2)
    design = BinaryDesign("DGP2")
    sample, fresh = design.sample(rows, seed=seed), design.sample(50_000, seed=seed + 10**6)
    console.print(
        f"A simulated study: {rows:,} people, 10 features, the outcomes of [b]wait[/] and [b]treat[/] both seen."
    )
    started = time.perf_counter()
    policy = GBPLNet(actions=["wait", "treat"], random_state=seed).fit(sample.x, sample.outcomes)
    console.print(f"GBPLNet() fitted {len(policy.history_)} networks in {time.perf_counter() - started:.1f} s.\n")

    treated = policy.predict(fresh.x) == "treat"
    rules = {
        "learned policy": treated,
        "wait for all": np.zeros(len(treated), bool),
        "treat all": np.ones(len(treated), bool),
        "best possible": design.effect(fresh.x) >= 0,
    }
    table = Table(title=f"What each rule is worth (true welfare, {len(treated):,} new people)")
    for name in ("rule", "treats", "welfare", "lost to the best possible"):
        table.add_column(name, justify="left" if name == "rule" else "right")
    for name, chosen in rules.items():
        taken = np.eye(2)[chosen.astype(int)]
        value, lost = welfare(taken, fresh.outcome_mean), regret(taken, fresh.outcome_mean)
        table.add_row(name, f"{chosen.mean():.0%}", f"{value:.3f}", f"{lost:.3f}")
    console.print(table)

    path = policy.zeta_path_
    table = Table(title="Why: welfare out of fold along the zeta path")
    for name in ("zeta", "welfare", "+-", "behind the best", "+-", "weight"):
        table.add_column(name, justify="right")
    for i in range(len(path.zeta)):
        table.add_row(
            f"{path.zeta[i]:.3g}", f"{path.welfare[i]:.3f}", f"{path.welfare_se[i]:.3f}",
            f"{path.shortfall[i]:.3f}", f"{path.shortfall_se[i]:.3f}", f"{path.weight[i]:.2f}",
        )  # fmt: skip
    console.print(table)
    console.print("Large zeta is regression, small zeta direct welfare maximisation; the policy averages over them.")


def reproduce(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="Tables to make; all if none is named.")
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials of every table, instead of the paper's.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A small imitation of every table, in two minutes.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or gpu.")] = "auto",
    engine: Annotated[str, typer.Option(help="local, or ray to spread blocks over a cluster.")] = "local",
    out: Annotated[Path, typer.Option(help="Folder of the run; one that was interrupted goes on.")] = Path(
        "reproduction"
    ),
    data_dir: Annotated[str | None, typer.Option(help="Folder with yacht.csv and energy_efficiency.csv.")] = None,
) -> None:
    """Run the paper's experiments: every table and figure, beside the printed numbers."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes will share a GPU
    from gbpl.paper.run import Run
    from gbpl.paper.run import reproduce as run_all

    console = Console(stderr=True)
    columns = [
        TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False),
    ]  # fmt: skip
    started = time.perf_counter()
    try:
        run = Run(tuple(tables or ()), trials, quick, device, engine, data_dir)
        with Progress(*columns, console=console, speed_estimate_period=600.0) as bar:
            task = bar.add_task("starting", total=None)

            def told(done: float, total: float, what: str) -> None:
                bar.update(task, completed=done, total=total, description=what)

            report = run_all(run, out, told=told, say=lambda text: console.print(text, style="yellow"))
    except ValueError as error:
        console.print(f"[red]{escape(str(error))}[/]")
        raise SystemExit(2) from error
    except KeyboardInterrupt:
        console.print(f"stopped; the same command goes on from {out}")
        raise SystemExit(130) from None
    print(f"{report} written, {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
