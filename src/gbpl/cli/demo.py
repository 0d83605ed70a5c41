"""`gbpl demo`: a simulated trial with known truth, and a policy learned from it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from gbpl.cli import parse
from gbpl.cli.console import guarded, held, learning, stdout, table, verbatim
from gbpl.runtime.platforms import leave_gpu
from gbpl.runtime.progress import stage

__all__ = ["demo"]

LEAST_ROWS, MOST_ROWS = 200, 1_000_000
NEW_PEOPLE = 20_000


def _truth(design: Any, policy: Any, seed: int) -> Table:
    """The true welfare of rules, which only a simulation knows."""
    import numpy as np

    from gbpl import regret, welfare

    new = design.frame(NEW_PEOPLE, seed=seed + 10**6, as_frame="arrow")
    means = design.outcome_mean(design.numeric(new))
    labels = list(design.actions)
    chosen = [labels.index(label) for label in policy.predict(new).tolist()]
    rules: dict[str, Any] = {"learned policy": np.eye(len(labels))[chosen]}
    for number, label in enumerate(labels):
        rules[f"{label} for all"] = np.tile(np.eye(len(labels))[number], (len(means), 1))
    rules["best possible"] = np.eye(len(labels))[np.argmax(means, axis=1)]
    title = f"The truth, which a simulation knows ({NEW_PEOPLE:,} new customers)"
    shown = table("rule", "visits per 100", "lost to the best possible", title=title)
    for name, taken in rules.items():
        shown.add_row(name, f"{100 * welfare(taken, means):.2f}", f"{100 * regret(taken, means):.2f}")
    return shown


@guarded
def demo(
    rows: Annotated[int, typer.Option(metavar="N", help="Customers in the trial.")] = 2000,
    seed: Annotated[int, typer.Option(metavar="N", help="Seed of the simulation and of the fit.")] = 0,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Folder for data, policy, decisions and report.")
    ] = Path("gbpl-demo"),
) -> None:
    """Simulate an e-mail trial with known truth, learn from it, explain the policy, and write a report."""
    if not LEAST_ROWS <= rows <= MOST_ROWS:
        raise ValueError(f"--rows must be from {LEAST_ROWS} to {MOST_ROWS:,}, got {rows}; try 2000")
    parse.check_settings(seed, None, None)
    from gbpl.cli.fit import check_out, write_study

    check_out(out)
    console = stdout()
    console.say(
        f"A simulated trial: {rows:,} customers got no e-mail, the men's or the women's, a third of them each; "
        "the outcome is whether they visited the shop."
    )
    leave_gpu(rows)
    with held():
        from gbpl.cli.messages import print_study
        from gbpl.datasets import EmailDesign
        from gbpl.study.study import learn
    design = EmailDesign()
    trial = design.frame(rows, seed=seed, as_frame="arrow")
    roles: dict[str, Any] = {"outcome": "visit", "action": "segment", "propensity": 1 / 3, "default": "No E-Mail"}
    with learning():
        study = learn(trial, **roles, seed=seed, source="trial.csv", unit="visits", per="customer")
        stage("writing")
        files = write_study(study, out / "trial.csv", out, frame=trial)
    print_study(console, study, files)
    console.print()
    console.print(_truth(design, study.policy, seed))
    console.print(f"Open {verbatim(files['report'])} in a browser. The same from a table of yours:\n", soft_wrap=True)
    words = ["gbpl", "fit", str(files["data"]), "--outcome", "visit", "--action", "segment", "--propensity", "1/3"]
    console.print(f"  {verbatim(shlex.join([*words, '--default', 'No E-Mail']))}", soft_wrap=True)
