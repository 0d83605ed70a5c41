"""Small rules: how long their search takes as rows grow, and whether the intervals of their price contain it.

python benchmarks/small_rules.py speed [--rows 1000 10000 100000] [--features 20] [--actions 2]
python benchmarks/small_rules.py price [--samples 200] [--design NAME ...] [--rule tree:2] [--start 0]
python benchmarks/small_rules.py learner [--samples 40] [--start 0] [--together 4]

`price` takes tables of outcomes with known means and a stand-in for the full policy, least squares on the features, so
that what is tested is the price alone. `learner` fits `GBPL()` as shipped to logs of 500 rows. Both print the share of
90 % intervals that contain the true price: the welfare, on 50,000 new rows, of the policy that learned from all rows
less that of the rule that did. Sample r has seed start + r.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import numpy as np

from gbpl import GBPL
from gbpl.decisions.cuts import Cuts, Limits
from gbpl.decisions.every_cut import best_of_every_cut
from gbpl.decisions.rule_fits import fit_rules, fold_doubt
from gbpl.decisions.rule_search import search_rule
from gbpl.decisions.rule_settings import Columns, RuleSettings
from gbpl.decisions.tree_search import TreeSearch
from gbpl.estimators.many import fit_many, hold_out_many
from gbpl.value.estimate import Value, mean_value

LEVEL, FRESH, ROWS, FEATURES, FOLDS = 0.9, 50_000, 600, 5, 5


def means(design: str, x: np.ndarray) -> np.ndarray:
    """Mean outcome of each action."""
    count = 4 if design.endswith("4") else 2
    table = np.zeros((len(x), count))
    if design.startswith("smooth"):
        for action in range(1, count):
            table[:, action] = 0.8 * x[:, action - 1] + 0.4 * x[:, action]
    elif design.startswith("steps"):
        for action in range(1, count):
            table[:, action] = np.where((x[:, 0] > 0.3 * action) & (x[:, 1] > 0.0), 1.0 + 0.2 * action, -0.5)
    return table  # "nothing": no action does anything


def columns(count: int) -> Columns:
    names = tuple(f"x{number}" for number in range(count))
    return Columns(names, names, (True,) * count)


def linear(x: np.ndarray, y: np.ndarray, at: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """What least squares decides."""
    design, new = (np.column_stack([np.ones(len(z)), z]) for z in (x, at))
    root = np.ones((len(x), 1)) if weights is None else np.sqrt(weights)[:, None]
    return np.argmax(new @ np.linalg.lstsq(root * design, root * y, rcond=None)[0], axis=1)


def stand_in(design: str, rule: str, seed: int) -> tuple[float, float, float, float, float]:
    """Estimate, error, ends of the interval and truth of the price in one sample."""
    rng = np.random.default_rng([seed, 1])
    x = rng.normal(size=(ROWS, FEATURES))
    mean = means(design, x)
    y = mean + rng.normal(size=mean.shape)
    settings = RuleSettings.of({"kind": rule.split(":")[0], "size": int(rule.split(":")[1]), "seed": seed})
    resolved = settings.resolved(columns(FEATURES), list(range(mean.shape[1])), ROWS)
    folds = np.array_split(rng.permutation(ROWS), FOLDS)
    fits = fit_rules(x, lambda fold: y, folds, settings, resolved)
    held = np.empty(ROWS, int)
    for fold in folds:
        rest = np.setdiff1d(np.arange(ROWS), fold)
        held[fold] = linear(x[rest], y[rest], x[fold])
    eye = np.eye(mean.shape[1])
    value = replace(mean_value(eye[fits.held], y), dependence=fold_doubt(fits.given, y), inflation=0.12)
    drawn = np.stack([linear(x, y, x, rng.standard_exponential(ROWS)) for _ in range(settings.replicates)])
    full = replace(mean_value(eye[held], y), dependence=fold_doubt(drawn, y), inflation=0.12)
    price: Value = full - value
    new = np.random.default_rng([seed, 2]).normal(size=(FRESH, FEATURES))
    truth, rows = means(design, new), np.arange(FRESH)
    true = truth[rows, linear(x, y, new)] - truth[rows, fits.found.rule.actions(new)]
    return price.estimate, price.se, *price.interval(LEVEL), float(true.mean())


def learners(seeds: range, together: int) -> list[tuple[float, float, float, float, float]]:
    """The same for `GBPL()` on logs of 500 rows, half of them with each action."""
    found = []
    for first in range(seeds.start, seeds.stop, together):
        own = range(first, min(first + together, seeds.stop))
        policies = [GBPL(random_state=seed, progress=False) for seed in own]
        fit_many(policies, [log(seed) for seed in own])
        hold_out_many(policies)
        new = np.random.default_rng(10**6).normal(size=(FRESH, FEATURES))
        truth, rows = means("smooth", new), np.arange(FRESH)
        for policy, seed in zip(policies, own, strict=True):
            fit = policy.small_rule("tree", 2, seed=seed)
            given = (policy.predict(new), fit.rule.predict(new))
            true = truth[rows, given[0]].mean() - truth[rows, given[1]].mean()
            found.append((fit.price.estimate, fit.price.se, *fit.price.interval(LEVEL), float(true)))
            print(f"seed {seed}: {found[-1]}", flush=True)
    return found


def log(seed: int, n: int = 500) -> dict:
    rng = np.random.default_rng([seed, 1])
    x, action = rng.normal(size=(n, FEATURES)), rng.integers(0, 2, n)
    y = means("smooth", x)[np.arange(n), action] + rng.normal(size=n) + x[:, 2]
    return {"X": x, "y": y, "action": action, "propensity": np.full(n, 0.5)}


def counted(name: str, found: list[tuple[float, float, float, float, float]], seconds: float) -> str:
    estimate, se, low, high, true = np.array(found).T
    covered = (low <= true) & (true <= high)
    share, error = covered.mean(), covered.std(ddof=1) / np.sqrt(len(covered))
    z = (estimate - true) / se
    return (
        f"{name:<10} {len(found):>4} samples, covered {share:.3f} (se {error:.3f}), z mean {z.mean():+.2f} sd "
        f"{z.std(ddof=1):.2f}, true price {true.mean():+.4f}, estimated {estimate.mean():+.4f}, se {se.mean():.4f}, "
        f"{seconds:.0f} s"
    )


def speed(rows: list[int], features: int, actions: int) -> None:
    """Seconds of each search; depth 3 on a grid, depth 2 on a grid and over every cut."""
    print(f"{'rows':>8} {'search':<24} {'wall s':>8} {'cpu s':>8}")
    for n in rows:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(n, features))
        y = rng.normal(size=(n, actions))
        y[:, 1] += 0.5 * (x[:, 0] > 0.3) * (x[:, 1] > 0.0) - 0.1

        def every_cut(x: np.ndarray = x, y: np.ndarray = y) -> bool:
            limits = Limits(rows=len(x) // 20)
            return best_of_every_cut(TreeSearch(Cuts.of(x, tuple(range(features))), y[:, 1:] - y[:, :1], limits))[1]

        def grid(depth: int, x: np.ndarray = x, y: np.ndarray = y) -> bool:
            settings = RuleSettings(size=depth)
            few = settings.resolved(columns(features), list(range(actions)), len(x))
            return search_rule(x, y, settings, few).exact

        for name, search in (
            ("depth 1, every cut", lambda: grid(1)), ("depth 2, every cut", every_cut),
            ("depth 2, as shipped", lambda: grid(2)), ("depth 3, grid", lambda: grid(3)),
            ("depth 4, look-ahead", lambda: grid(4)),
        ):  # fmt: skip
            begun, cpu = time.perf_counter(), time.process_time()
            exact = search()
            took = time.perf_counter() - begun, time.process_time() - cpu
            print(f"{n:>8,} {name:<24} {took[0]:>8.2f} {took[1]:>8.2f} {'exact' if exact else 'grid'}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="what", required=True)
    of_speed = parts.add_parser("speed")
    of_speed.add_argument("--rows", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    of_speed.add_argument("--features", type=int, default=20)
    of_speed.add_argument("--actions", type=int, default=2)
    of_price, of_learner = parts.add_parser("price"), parts.add_parser("learner")
    of_price.add_argument("--design", nargs="+", default=["smooth", "smooth4", "steps", "nothing"])
    of_price.add_argument("--rule", default="tree:2")
    for one, samples in ((of_price, 200), (of_learner, 40)):
        one.add_argument("--samples", type=int, default=samples)
        one.add_argument("--start", type=int, default=0)
    of_learner.add_argument("--together", type=int, default=4)
    given = parser.parse_args()
    if given.what == "speed":
        speed(given.rows, given.features, given.actions)
        return
    seeds, begun = range(given.start, given.start + given.samples), time.process_time()
    if given.what == "learner":
        print(counted("GBPL()", learners(seeds, given.together), time.process_time() - begun))
        return
    for design in given.design:
        begun = time.process_time()
        found = [stand_in(design, given.rule, seed) for seed in seeds]
        print(counted(design, found, time.process_time() - begun), flush=True)


if __name__ == "__main__":
    main()
