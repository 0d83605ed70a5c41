"""How often the band of a budget curve contains the whole true curve.

python benchmarks/budget.py [--learner linear|gbpl] [--samples 200] [--rows 500] [--seed 0] [--out FILE]

Logs with two or four actions at random, costs that are known or estimated from what was spent. What is covered: the
order of the rows is learned without each fold, and the true curve is the mean, over folds, of what each order brings
in the population at every budget, with prices at which it spends that much there. It is looked at in 501 budgets from
0 to the end of the true curve, between points of the band too. Data and learning are new in every sample.

`linear`: least squares with interactions, in five folds, for gains, costs and outcome models; `rows` is the band by the
rows alone, `band` that with the allowance for what is learned, as `policy.budget_curve` has it. `gbpl`: `GBPL()` as it
is shipped; costs, where estimated, are means by action outside the fold for the order, and doubly robust scores for
what is spent, as in `gbpl.learn`; `of the policy itself` asks whether the band contains the curve of the policy that
learned from all rows. One line of JSON per kind, with the standard error of each share; `--out` gets a line per sample.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from typing import Any

import numpy as np

LEVEL, FOLDS, POPULATION, POINTS = 0.9, 5, 10_000, 501


class World:
    """X ~ N(0, I_5); effects that differ by features, costs that grow with one of them; actions at random."""

    def __init__(self, count: int) -> None:
        self.count = count

    def effects(self, x: np.ndarray) -> np.ndarray:
        arms = [0.0 * x[:, 0]] + [0.8 * np.sin(x[:, a - 1]) + 0.4 * x[:, a] + 0.1 for a in range(1, self.count)]
        return np.column_stack(arms)

    def costs(self, x: np.ndarray) -> np.ndarray:
        return np.exp(0.3 * x[:, [4]]) * np.arange(self.count)

    def sample(self, rng: np.random.Generator, n: int) -> dict[str, np.ndarray]:
        x, action = rng.normal(size=(n, 5)), rng.permutation(np.arange(n) % self.count)
        rows = np.arange(n)
        outcome = x[:, 3] + self.effects(x)[rows, action] + rng.normal(size=n)
        spent = self.costs(x)[rows, action] * rng.gamma(4.0, 0.25, n)
        return {"x": x, "action": action, "outcome": outcome, "spent": spent}


def true_curve(world: World, orders: list[tuple[np.ndarray, np.ndarray]], x: np.ndarray) -> tuple[np.ndarray, Any]:
    """Budgets, and the mean over orders of what each brings at them in the population."""
    from gbpl.value.budget import follow, upgrades

    effects, costs = world.effects(x), world.costs(x)
    paths = [follow(upgrades(gain, cost), costs) for gain, cost in orders]
    budgets = np.linspace(0.0, max(path.spend[-1] for path in paths), POINTS)
    return budgets, np.mean([path.means(effects, budgets) for path in paths], axis=0)


def inside(curve: Any, budgets: np.ndarray, true: np.ndarray) -> bool:
    low, high = (np.interp(budgets, curve.spend, side) for side in curve.bands(LEVEL).T)
    return bool(np.all((low - 1e-9 <= true) & (true <= high + 1e-9)))


def least_squares(sample: dict[str, np.ndarray], name: str, rows: np.ndarray, count: int) -> Any:
    """The mean of a column given features and action, linear in the features for each action."""
    fits = []
    for action in range(count):
        own = rows[sample["action"][rows] == action]
        design = np.column_stack([np.ones(len(own)), sample["x"][own]])
        fits.append(np.linalg.lstsq(design, sample[name][own], rcond=None)[0])
    return lambda x: np.column_stack([np.ones(len(x)), x]) @ np.column_stack(fits)


def linear(world: World, rng: np.random.Generator, n: int, population: np.ndarray) -> dict[str, bool]:
    """One sample, learned by least squares."""
    from dataclasses import replace

    from gbpl.estimators.training import LEARNED
    from gbpl.feedback.pseudo_outcomes import doubly_robust
    from gbpl.value.budget_curve import budget_curve

    sample, count = world.sample(rng, n), world.count
    folds = np.array_split(rng.permutation(n), FOLDS)
    tables = {name: np.empty((n, count)) for name in ("outcome", "spent")}
    orders: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {"known": [], "estimated": []}
    for fold in folds:
        others = np.setdiff1d(np.arange(n), fold)
        models = {name: least_squares(sample, name, others, count) for name in tables}
        for name, model in models.items():
            tables[name][fold] = model(sample["x"][fold])
        gain = models["outcome"](population)
        orders["known"].append((gain, world.costs(population)))
        cost = models["spent"](population)
        cost[:, 1:] = np.maximum(cost[:, 1:] - cost[:, [0]], 0.01 * np.mean(cost[:, 1:]))  # as `budget_curve` does
        orders["estimated"].append((gain, cost * (np.arange(count) > 0)))
    chance = np.full(n, 1.0 / count)
    scores, paid = (doubly_robust(sample[name], sample["action"], chance, tables[name]) for name in tables)
    found = {}
    for kind, cost, spent in (
        ("known", world.costs(sample["x"]), None), ("estimated", tables["spent"], paid),
    ):  # fmt: skip
        curve, _ = budget_curve(tables["outcome"], cost, scores, spent=spent, folds=folds)
        truth = true_curve(world, orders[kind], population)
        found[f"{kind}: rows"] = inside(curve, *truth)
        found[f"{kind}: band"] = inside(replace(curve, inflation=LEARNED), *truth)
    return found


def learned(world: World, rng: np.random.Generator, n: int, population: np.ndarray) -> dict[str, bool]:
    """One sample, learned by `GBPL()`."""
    import gbpl.path.held_out as held_out
    from gbpl import GBPL
    from gbpl.estimators.budget import curve_of_training, estimated_cost
    from gbpl.fitting.apply import combined_deviation

    kept: list[Any] = []
    fit_paths = held_out.fit_paths

    def recorded(problems: Any) -> Any:
        kept.extend(fit_paths(problems))
        return list(kept)

    sample, count = world.sample(rng, n), world.count
    policy = GBPL(random_state=int(rng.integers(2**31)), progress=False)
    policy.fit(sample["x"], sample["outcome"], action=sample["action"], propensity=1.0 / count)
    training = policy.training("")
    held_out.fit_paths = recorded
    try:
        gain, folds = policy.expected_gain(), training.held_out.folds
    finally:
        held_out.fit_paths = fit_paths
    gains = []
    for fit in kept:
        deviation = combined_deviation(
            fit.model, fit.settings.surrogate, fit.params, fit.policy_weights, fit.standardizer.apply(population)
        )
        gains.append(fit.effect.mean.deviation(deviation) * fit.effect.mean.unit)
    means = []
    for fold in folds:
        others = np.setdiff1d(np.arange(n), fold)
        action, spent = sample["action"][others], sample["spent"][others]
        means.append(np.bincount(action, spent, count) / np.bincount(action))
    ordered = np.empty((n, count))
    for fold, mean in zip(folds, means, strict=True):
        ordered[fold] = mean
    paid = estimated_cost(training, sample["spent"], policy.cross_fit_settings(0)).scores
    known, costs = world.costs(population), world.costs(sample["x"])
    found = {}
    for kind, cost, scores, orders in (
        ("known", costs, None, [(one, known) for one in gains]),
        ("estimated", ordered, paid, [(g, np.broadcast_to(c, known.shape)) for g, c in zip(gains, means, strict=True)]),
    ):  # fmt: skip
        curve = curve_of_training(training, gain, cost, spent=scores, default=0)
        found[f"{kind}: band"] = inside(curve, *true_curve(world, orders, population))
    own = policy.expected_gain(population)
    curve = curve_of_training(training, gain, costs, default=0)
    found["known, of the policy itself: band"] = inside(curve, *true_curve(world, [(own, known)], population))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--learner", choices=["linear", "gbpl"], default="linear")
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--rows", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--counts", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--out")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    run = linear if given.learner == "linear" else learned
    hits: dict[tuple[int, str], list[bool]] = defaultdict(list)
    started, population = time.perf_counter(), np.random.default_rng([given.seed, 1]).normal(size=(POPULATION, 5))
    for number in range(given.samples):
        for count in given.counts:
            found = run(World(count), np.random.default_rng([given.seed, 2, number]), given.rows, population)
            for kind, hit in found.items():
                hits[count, kind].append(hit)
            if given.out:
                with open(given.out, "a", encoding="utf-8") as file:
                    print(json.dumps({"sample": number, "actions": count, **found}), file=file)
    for (count, kind), hit in sorted(hits.items()):
        share = float(np.mean(hit))
        line = {
            "learner": given.learner, "actions": count, "costs": kind, "inside": round(share, 4),
            "se": round(float(np.sqrt(share * (1.0 - share) / len(hit))), 4), "samples": len(hit),
            "rows": given.rows, "seed": given.seed, "seconds": round(time.perf_counter() - started),
        }  # fmt: skip
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
