"""The command line: thin, it calls the library and prints."""

from __future__ import annotations

import sys
import time

__all__ = ["main"]


def main() -> None:
    """Entry point of `gbpl`."""
    try:
        import typer
    except ModuleNotFoundError:
        sys.exit("the command line needs typer and rich: pip install 'gbpl[cli]'")
    app = typer.Typer(add_completion=True, no_args_is_help=True, help="Learn who gets which action, from data.")
    app.callback()(lambda: None)  # keeps `demo` a subcommand while it is the only one
    app.command()(demo)
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


if __name__ == "__main__":
    main()
