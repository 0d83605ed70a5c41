"""Are planted defects of data found before a fit, and are clean tables left alone?

python benchmarks/defects.py [--seeds FIRST COUNT] [--tables NAME ...]

Each table of `tests/support/defects.py` is written to a file and given to `gbpl fit --json`, which is stopped where
the fit would begin: what it has said by then is what a user reads before any work. A defect is found if its own words
are among them; on a clean table anything is a false alarm. Replication r has data seed r. Then how far stray outcomes
move decisions, if they are cut as shipped or kept:

python benchmarks/defects.py stray [--seeds FIRST COUNT]
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from gbpl import GBPL, cli
from gbpl.estimators.gbplnet import GBPLNet

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from support.defects import CLEAN, DEFECTS

NEW = np.random.default_rng(99).normal(size=(20_000, 5))


class Reached(ValueError):
    """The fit would begin."""


def _reached(*_: Any, **__: Any) -> None:
    raise Reached("the fit would begin")


def command(data: Path, roles: Mapping[str, Any], out: Path) -> list[str]:
    """The words of `gbpl fit`."""
    words = ["fit", str(data), "--json", "--out", str(out)]
    for name, value in roles.items():
        words += [f"--{name}", *([str(part) for part in value] if isinstance(value, list) else [str(value)])]
    return words


def said(words: list[str]) -> list[str]:
    """Warnings and errors of a command, before its fit."""
    err = StringIO()
    with redirect_stdout(StringIO()), redirect_stderr(err), suppress(SystemExit):
        cli.main(words)
    lines = [json.loads(line) for line in err.getvalue().splitlines()]
    sentences = [line.get("warning") or line["error"] for line in lines]
    return [sentence for sentence in sentences if sentence != "the fit would begin"]


def tables(seeds: range, names: list[str]) -> None:
    GBPLNet.fit_feedback = _reached  # type: ignore[assignment, method-assign]
    print("| table | defect | found | other words | seconds of CPU |\n|---|---|---|---|---|")
    makers = {name: make for name, (make, _) in DEFECTS.items()} | CLEAN
    for name, make in makers.items():
        if names and name not in names:
            continue
        words = DEFECTS[name][1] if name in DEFECTS else None
        found = others = 0
        seconds = 0.0
        for seed in seeds:
            frame, roles = make(seed)
            with tempfile.TemporaryDirectory() as folder:
                data = Path(folder) / "table.csv"
                frame.to_csv(data, index=False)
                started = time.process_time()
                sentences = said(command(data, roles, Path(folder) / "out"))
                seconds += time.process_time() - started
            hits = [bool(words and re.search(words, sentence)) for sentence in sentences]
            found += any(hits)
            others += len(hits) - sum(hits)
        kind = "planted" if words else "none"
        shown = f"{found} of {len(seeds)}" if words else ""
        print(f"| {name} | {kind} | {shown} | {others} | {seconds / len(seeds):.2f} |", flush=True)


def stray(seeds: range) -> None:
    """Share of decisions on new rows that a change of the outcomes moves, and regret (gains x0 + x1 / 2, n = 1,000)."""
    gain = NEW[:, 0] + 0.5 * NEW[:, 1]
    results: dict[str, list[tuple[float, float]]] = {}
    for seed in seeds:
        rng = np.random.default_rng(seed)
        x, action = rng.normal(size=(1000, 5)), rng.integers(0, 2, 1000)
        mean = x[:, 2] + action * (x[:, 0] + 0.5 * x[:, 1])
        normal, cauchy = mean + rng.normal(size=1000), mean + rng.standard_cauchy(1000)
        cell = np.where(np.arange(1000) == 7, 1e6, normal)
        skewed = mean + rng.exponential(size=1000)
        first: dict[str, np.ndarray] = {}
        for name, outcome in (("normal", normal), ("skewed", skewed), ("one of 1e6", cell), ("Cauchy", cauchy)):
            for how in ("cut", "keep"):
                policy = GBPL(random_state=0, outliers=how, progress=False)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    decided = policy.fit(x, outcome, action=action, propensity=0.5).predict(NEW)
                first.setdefault("normal" if name != "skewed" else name, decided)
                moved = float(np.mean(decided != first["skewed" if name == "skewed" else "normal"]))
                regret = float(np.mean(np.maximum(gain, 0.0) - decided * gain))
                results.setdefault(f"{name}, {how}", []).append((moved, regret))
    print("| outcomes | decisions moved | regret |\n|---|---|---|")
    for name, pairs in results.items():
        (moved, regret), se = np.mean(pairs, axis=0), np.std(pairs, axis=0, ddof=1) / np.sqrt(len(pairs))
        print(f"| {name} | {moved:.3f} (se {se[0]:.3f}) | {regret:.3f} (se {se[1]:.3f}) |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=("tables", "stray"), default="tables")
    parser.add_argument("--seeds", nargs=2, type=int, default=(100, 20), metavar=("FIRST", "COUNT"))
    parser.add_argument("--tables", nargs="*", default=[], metavar="NAME")
    given = parser.parse_args()
    seeds = range(given.seeds[0], sum(given.seeds))
    if given.what == "stray":
        stray(seeds)
    else:
        tables(seeds, given.tables)


if __name__ == "__main__":
    main()
