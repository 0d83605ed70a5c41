"""How often welfare intervals cover: the paper's tables, and eta from the data alone.

python benchmarks/calibration.py paper          the paper's two interval tables and figures (--figures DIR)
python benchmarks/calibration.py auto           eta="auto" and the other methods, full and logged feedback
python benchmarks/calibration.py cost           seconds of a fit, and of calibrating eta for it

`--records FILE` keeps a line a replication and goes on where it stopped; `--replications 0` only prints the table.
`--cases "DGP2 1000 full" ...` picks cases, `--methods` ways to choose eta, `--zeta auto` fits the default path instead
of zeta = 1. Replication r uses data seed r and random_state r; the evaluation sample of `auto` is one and the same for
all replications of a design (seed 10^6, 20,000 points, known means; its first 2,000 for the draws), that of `paper` is
new each time (2,000 points).
"""

from __future__ import annotations

import argparse
import time
import warnings
from functools import cache
from pathlib import Path

import numpy as np
from logged import Records
from posterior import Unscaled

from gbpl import FitConfig, GBPLNet
from gbpl.datasets import BinaryDesign, LoggedDesign, OneDimensionalDesign
from gbpl.eta_coverage import eta_coverage
from gbpl.posterior.refits import refit

LEVELS = (0.5, 0.9, 0.95)
PRINTED = {  # coverage and width at 50, 80, 90 and 95 %
    "calibration": {
        0.25: (0.93, 0.0479, 1.00, 0.1114, 1.00, 0.1670, 1.00, 0.2219),
        0.5: (0.78, 0.0376, 0.99, 0.0822, 0.99, 0.1195, 1.00, 0.1566),
        1.0: (0.69, 0.0274, 0.95, 0.0604, 0.99, 0.0869, 0.99, 0.1152),
        2.0: (0.63, 0.0195, 0.88, 0.0426, 0.97, 0.0615, 0.99, 0.0830),
        4.0: (0.54, 0.0135, 0.80, 0.0289, 0.90, 0.0413, 0.93, 0.0545),
        8.0: (0.47, 0.0093, 0.72, 0.0192, 0.80, 0.0265, 0.84, 0.0342),
    },
    "evaluation": {
        1.0: (0.750, 0.0283, 0.945, 0.0624, 0.980, 0.0913, 0.990, 0.1231),
        4.0: (0.635, 0.0139, 0.855, 0.0300, 0.910, 0.0433, 0.950, 0.0575),
    },
}
METHODS = {
    "information": ("information_matching", {}),
    "refits": ("refit_matching", {}),
    "refits, bias": ("refit_matching", {"bias": True}),
    "SafeBayes": ("safe_bayes", {}),
}
SIZES = {"1-D": (1000,), "DGP1": (1000, 3000), "DGP2": (1000, 3000), "DGP3": (1000, 3000)}
CASES = [f"{design} {n} {seen}" for seen in ("full", "logged") for design, sizes in SIZES.items() for n in sizes]


def design_of(name: str) -> OneDimensionalDesign | BinaryDesign:
    return OneDimensionalDesign() if name == "1-D" else BinaryDesign(name)


def paper(replications: int | None, figures: Path | None) -> None:
    """One (64, 64) ReLU network on 900 of 1,200 rows, zeta = 1, last-layer draws of the network itself."""
    template = GBPLNet(
        zeta=1.0, eta=1.0, committee=None, validation_fraction=0.25, model=Unscaled((64, 64), activation="relu"),
        fit_config=FitConfig(batch_size=128, patience=20),
    )  # fmt: skip
    for name, etas, count, start in (
        ("calibration", tuple(PRINTED["calibration"]), 100, 0),
        ("evaluation", (1.0, 4.0), 200, 1000),
    ):
        study = eta_coverage(
            OneDimensionalDesign(), etas, estimator=template, n=1200, replications=replications or count, start=start,
            levels=(0.5, 0.8, 0.9, 0.95), of="member",
        )  # fmt: skip
        print(f"\n{name}: coverage (standard error) [printed], width [printed]\n")
        print("| eta | " + " | ".join(f"{100 * level:g} %" for level in study.levels) + " |")
        print("|---|" + "---|" * len(study.levels))
        for eta, rates, widths in zip(study.etas, study.coverage, study.width, strict=True):
            printed = PRINTED[name][eta]
            cells = [
                f"{rate:.3f} ({np.sqrt(rate * (1 - rate) / study.replications):.3f}) [{printed[2 * i]:.3f}], "
                f"{width:.4f} [{printed[2 * i + 1]:.4f}]"
                for i, (rate, width) in enumerate(zip(rates, widths, strict=True))
            ]
            print(f"| {eta:g} | " + " | ".join(cells) + " |")
        if figures:
            from gbpl.plots import plot_coverage

            figures.mkdir(parents=True, exist_ok=True)
            plot_coverage(study).figure.savefig(figures / f"coverage-{name}.png", dpi=120)


def fitted(case: str, seed: int, zeta: float | str, device: str) -> GBPLNet:
    name, n, seen = case.split()
    design = design_of(name)
    policy = GBPLNet(zeta=zeta, random_state=seed, device=device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weak overlap in the odd sample
        if seen == "full":
            sample = design.sample(int(n), seed=seed)
            return policy.fit(sample.x, sample.outcomes)
        log = LoggedDesign(design, clip=0.05, index_seed=seed).sample(int(n), seed=seed)
        return policy.fit(log.x, log.outcome, action=log.action, propensity=log.propensity)


def auto(records: Records, case: str, seed: int, zeta: float | str, device: str) -> None:
    """Intervals from the data alone, and those of the policy's welfare where the means are known."""
    if all(records.has(case, method, seed) for method in METHODS):
        return
    policy, fresh = fitted(case, seed, zeta, device), design_of(case.split()[0]).sample(20_000, seed=10**6)
    x, means = fresh.x[:2000], fresh.outcome_mean[:2000]
    numbers = {
        "worth": worth(policy.predict_proba(fresh.x) - 0.5, fresh.outcome_mean) + mean_outcome(case.split()[0]),
        "worth there": worth(policy.predict_proba(x), means),
    }
    if zeta != "auto":
        numbers["target there"] = worth(policy.surrogate_.population_policy(means, zeta), means)
    refits = None
    for method, (function, options) in METHODS.items():
        if records.has(case, method, seed):
            continue
        if function == "refit_matching":
            refits = refits or refit(policy._training.fit, refits=25, seed=seed)
            options = {**options, "refits": refits}
        choice = policy.calibrate_eta(function, **options)
        policy._training.choice[:] = [choice]  # what eta="auto" does with the default's
        from_data = policy.population_welfare(rule="randomized", seed=seed)
        known = policy.posterior().welfare(x, means, rule="randomized", draws=400, seed=seed)
        ends = {
            f"{name} {level}": list(draws.interval(level))
            for name, draws in (("data", from_data), ("known", known))
            for level in LEVELS
        }
        records.add(case, method, seed, eta=choice.eta, spread=choice.spread or 0.0, **numbers, **ends)


@cache
def mean_outcome(name: str) -> float:
    """Population mean of the two actions' average outcome, from 4,000,000 points: it varies more than the rest."""
    parts = [design_of(name).sample(400_000, seed=2 * 10**6 + part).outcome_mean.mean() for part in range(10)]
    return float(np.mean(parts))


def worth(policy: np.ndarray, means: np.ndarray) -> float:
    return float(np.mean(np.sum(np.asarray(policy) * means, axis=1)))


def auto_table(records: Records) -> None:
    print(
        "Coverage in % (standard error). From the data alone: the true welfare of the learned policy. Known means: "
        "what fits are worth on average, and what the population target is worth.\n"
    )
    print(
        "| case | method | replications | eta, median | data 50 % | data 90 % | data 95 % | width 90 % "
        "| fits 50 % | fits 90 % | fits 95 % | width 90 % | target 90 % | spread of fits | by method |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        for method in METHODS:
            lines = [v for (c, m, _), v in sorted(records.found.items()) if (c, m) == (case, method)]
            if len(lines) < 2:
                continue
            column = {name: np.array([line[name] for line in lines]) for name in lines[0]}
            fits = np.full(len(lines), column["worth there"].mean())

            def cell(name: str, level: float, truth: np.ndarray, column: dict = column) -> str:
                ends = column[f"{name} {level}"]
                inside = np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))
                return f"{100 * inside:.1f} ({100 * np.sqrt(inside * (1 - inside) / len(truth)):.1f})"

            cells = [cell("data", level, column["worth"]) for level in LEVELS]
            cells.append(f"{np.mean(np.diff(column['data 0.9'], axis=1)):.4f}")
            cells += [cell("known", level, fits) for level in LEVELS]
            cells.append(f"{np.mean(np.diff(column['known 0.9'], axis=1)):.4f}")
            cells.append(cell("known", 0.9, column["target there"]) if "target there" in column else "-")
            cells.append(f"{column['worth there'].std(ddof=1):.4f} | {np.sqrt(np.mean(column['spread'] ** 2)):.4f}")
            print(f"| {case} | {method} | {len(lines)} | {np.median(column['eta']):.3g} | " + " | ".join(cells) + " |")


def cost(zeta: float | str, device: str) -> None:
    print("| case | fit, s | information matching, s | ratio to fit | refit matching, s | SafeBayes, s |")
    print("|---|---|---|---|---|---|")
    for case in ("DGP2 1000 full", "DGP2 3000 full", "DGP2 3000 logged"):
        rows = []
        for seed in range(4):
            started = time.perf_counter()
            policy = fitted(case, seed, zeta, device)
            row = [time.perf_counter() - started]
            for function in ("information_matching", "refit_matching", "safe_bayes"):
                started = time.perf_counter()
                policy.calibrate_eta(function)
                row.append(time.perf_counter() - started)
            rows.append(row)
        fit, matching, refits, safe = np.median(rows[1:], axis=0)  # the first compiles
        print(f"| {case} | {fit:.2f} | {matching:.2f} | {matching / fit:.2f} | {refits:.2f} | {safe:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=("paper", "auto", "cost"))
    parser.add_argument("--replications", type=int)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--cases", nargs="+")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--records")
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--zeta", default="1.0")
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    zeta = "auto" if asked.zeta == "auto" else float(asked.zeta)
    if asked.study == "paper":
        paper(asked.replications, asked.figures)
    elif asked.study == "cost":
        cost(zeta, asked.device)
    else:
        records = Records(asked.records, asked.methods)
        for seed in range(asked.start, asked.start + (300 if asked.replications is None else asked.replications)):
            for case in asked.cases or CASES:
                auto(records, case, seed, zeta, asked.device)
        auto_table(records)


if __name__ == "__main__":
    main()
