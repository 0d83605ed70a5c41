"""Do the refuters of `policy.check` find what is wrong, and leave alone what is right?

python benchmarks/refuters.py run --records FILE [--cases NAME ...] [--defects NAME ...] [--seeds FIRST COUNT]
    [--refits]
python benchmarks/refuters.py table --records FILE ...

`run` draws samples of the designs in `designs.py`, plants a defect in each (none for "clean"), runs the tests and
appends one line of JSON per sample. Without `--refits` it runs the tests that need no fit: balance, columns, leak and
placebo, in a tenth of a second; these are the ones that find the defects. With it `GBPLNet()` is fitted and `check()`
run as shipped. `table` prints how often each defect was found, alarms on clean tables, the distribution of placebo
p-values where no action does anything, and seconds. Replication r has data seed r.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from designs import CASES, Case, Simple, sample
from scipy.stats import kstest

from gbpl import CrossFit, FullFeedback, GBPLNet, LoggedFeedback, TableError
from gbpl.checks.balance import COLUMNS, PROPENSITIES, check_balance
from gbpl.checks.finding import Finding
from gbpl.checks.leak import LEAK, check_leak
from gbpl.checks.placebo import PLACEBO, check_placebo
from gbpl.feedback.read import read_feedback

MORE = {
    "null logged 1000": Case(Simple("null", 2), 1000, "logged"),
    "null three randomized 300": Case(Simple("null", 3), 300, "randomized"),
    "null estimated 1500": Case(Simple("null", 2), 1500, "estimated"),
    "null tails randomized 1000": Case(Simple("null", 2, noise="tails"), 1000, "randomized"),
    "null full 500": Case(Simple("null", 2), 500, "full"),
    "tails logged 2000": Case(Simple("tails", 2), 2000, "logged"),
    "steps randomized 1500": Case(Simple("steps", 2), 1500, "randomized"),
    "steps estimated 1500": Case(Simple("steps", 2), 1500, "estimated"),
    "five actions logged 2000": Case(Simple("many", 5), 2000, "logged"),
}
EVERY = CASES | MORE
NULL = tuple(name for name in EVERY if name.startswith("null"))
WEAK = ("constant", "weak", "rates")  # nothing that tests of this size could see
MODERATE = tuple(name for name in EVERY if not name.startswith(("null", *WEAK)))


def _copy(x: np.ndarray, given: dict, rng: np.random.Generator, noise: float) -> tuple[np.ndarray, dict]:
    y = given["y"] if given["y"].ndim == 1 else given["y"][:, 0]
    return np.column_stack([x, 3.0 * (y + noise * y.std() * rng.standard_normal(len(y))) - 7.0]), given


def leak_copy(x, given, rng):
    return _copy(x, given, rng, 0.0)


def leak_near_copy(x, given, rng):
    return _copy(x, given, rng, 0.1)


def leak_noisy_copy(x, given, rng):
    return _copy(x, given, rng, 0.3)


def leak_consequence(x, given, rng):
    """A column that the action moves by half a standard deviation."""
    return np.column_stack([x, 0.5 * given["action"] + rng.standard_normal(len(x))]), given


def leak_action(x, given, rng):
    return np.column_stack([x, given["action"]]), given


def shuffled(x, given, rng):
    """The column of actions is out of line with the rows; propensities of every action stay where they were."""
    return x, given | {"action": rng.permutation(given["action"])}


def wrong_constant(x, given, rng):
    """0.1 where it was 0.5, or 1/K of all but the last of K actions halved."""
    count = given["propensity"].shape[1]
    chance = np.full(count, 0.5 / count)
    chance[-1] = 1.0 - chance[:-1].sum()
    return x, given | {"propensity": np.tile([0.9, 0.1] if count == 2 else chance, (len(x), 1))}


def wrong_tiny(x, given, rng):
    return x, given | {"propensity": np.tile([0.98, 0.02], (len(x), 1))}


def labels_swapped(x, given, rng):
    return x, given | {"propensity": given["propensity"][:, ::-1]}


def of_treatment(x, given, rng):
    """P(second action) as one number per row, where that of the action taken is meant."""
    return x, given | {"propensity": given["propensity"][:, 1]}


def percent(x, given, rng):
    taken = given["propensity"][np.arange(len(x)), given["action"]]
    return x, given | {"propensity": 100.0 * taken}


def constant_where_it_varies(x, given, rng):
    return x, given | {"propensity": np.full_like(given["propensity"], 1.0 / given["propensity"].shape[1])}


DEFECTS: dict[str, Callable[..., tuple[np.ndarray, dict]]] = {
    "clean": lambda x, given, rng: (x, given),
    "copy of the outcome": leak_copy,
    "copy with noise 0.1": leak_near_copy,
    "copy with noise 0.3": leak_noisy_copy,
    "consequence of the action": leak_consequence,
    "copy of the action": leak_action,
    "shuffled actions": shuffled,
    "constant 0.1 for 0.5": wrong_constant,
    "constant 0.02 for 0.5": wrong_tiny,
    "labels swapped": labels_swapped,
    "P(treat) for the action taken": of_treatment,
    "percent": percent,
    "constant where it varies": constant_where_it_varies,
}


def applies(defect: str, case: Case) -> bool:
    """Whether a defect is one in this case: swapping 0.5 and 0.5 is none, and without propensities none are wrong."""
    two, varies = case.design.n_actions == 2, case.seen == "logged"
    logged, known = case.seen != "full", case.seen in ("logged", "randomized")
    return {
        "clean": True, "copy of the outcome": True, "copy with noise 0.1": True, "copy with noise 0.3": True,
        "consequence of the action": known, "copy of the action": logged, "shuffled actions": logged,
        "constant 0.1 for 0.5": known, "constant 0.02 for 0.5": known and two, "labels swapped": varies and two,
        "P(treat) for the action taken": varies and two, "percent": known, "constant where it varies": varies,
    }[defect]  # fmt: skip


def quick(x: np.ndarray, given: dict[str, Any], seed: int) -> list[Finding]:
    """The tests that need no fit, as `check` runs them."""
    data = read_feedback(x, **given)
    names = [f"x{j}" for j in range(x.shape[1])]
    if isinstance(data, FullFeedback):
        return [check_leak(data, names, seed=seed), check_placebo(data, seed=seed)]
    assert isinstance(data, LoggedFeedback)
    estimated = data.propensity is None
    chances = CrossFit(seed=seed).run(data, "ipw").propensity if data.propensity is None else data.propensity
    return [
        *check_balance(data, chances, names, estimated=estimated, tests=2 if estimated else 3, seed=seed),
        check_leak(data, names, seed=seed),
        check_placebo(data, chances, estimated=estimated, seed=seed),
    ]


def replicate(name: str, defect: str, seed: int, refits: bool) -> dict:
    """One sample with a defect, and the verdicts on it; input that is refused is a defect found."""
    x, given = sample(EVERY[name], seed)
    x, given = DEFECTS[defect](x, given, np.random.default_rng([seed, 11]))
    record: dict[str, Any] = {"case": name, "defect": defect, "seed": seed, "refits": refits}
    start = time.perf_counter()
    try:
        if refits:
            policy = GBPLNet(random_state=seed, progress=False).fit(x, **given)
            start = time.perf_counter()
            findings = list(policy.check(seed=seed, progress=False).findings)
        else:
            findings = quick(x, given, seed)
    except TableError as error:
        return record | {"refused": str(error)}
    seconds = time.perf_counter() - start
    verdicts = {one.name: [one.verdict, one.p_value, one.statistic, one.sentence] for one in findings}
    return record | {"findings": verdicts, "seconds": seconds}


def run(args: argparse.Namespace) -> None:
    first, count = args.seeds
    with args.records.open("a", encoding="utf-8") as lines:
        for name in args.cases or EVERY:
            for defect in args.defects or DEFECTS:
                if not applies(defect, EVERY[name]):
                    continue
                for seed in range(first, first + count):
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        print(json.dumps(replicate(name, defect, seed, args.refits)), file=lines, flush=True)


RIGHT = {  # the tests that a defect should be found by; any other verdict than "passed" counts
    "copy of the outcome": {LEAK}, "copy with noise 0.1": {LEAK}, "copy with noise 0.3": {LEAK},
    "consequence of the action": {COLUMNS}, "copy of the action": {LEAK, COLUMNS, PROPENSITIES},
    "shuffled actions": {PLACEBO, PROPENSITIES, COLUMNS},
}  # fmt: skip


def found(record: dict) -> bool:
    """Whether one of the right tests raised an alarm."""
    right = RIGHT.get(record["defect"], {PROPENSITIES, COLUMNS})
    return "refused" in record or any(record["findings"].get(name, ["passed"])[0] != "passed" for name in right)


def table(args: argparse.Namespace) -> None:
    records = [json.loads(line) for path in args.records for line in path.open(encoding="utf-8")]
    groups: dict[tuple[str, str], list[dict]] = defaultdict(list)
    for record in records:
        groups[record["defect"], record["case"]].append(record)
    print("\nPlacebo p-values where no action does anything\n")
    print("| design | samples | Kolmogorov-Smirnov p | share <= 0.01 | <= 0.05 | <= 0.1 | <= 0.5 |")
    print("|---|---|---|---|---|---|---|")
    for name in NULL:
        values = np.array([r["findings"][PLACEBO][1] for r in groups.get(("clean", name), [])])
        if len(values):
            shares = " | ".join(f"{np.mean(values <= level):.3f}" for level in (0.01, 0.05, 0.1, 0.5))
            print(f"| {name} | {len(values)} | {kstest(values, 'uniform').pvalue:.2f} | {shares} |")
    print("\nFound, of samples\n\n| defect | design | found | samples |\n|---|---|---|---|")
    for (defect, name), own in groups.items():
        if defect != "clean" and name in MODERATE:
            print(f"| {defect} | {name} | {sum(map(found, own))} | {len(own)} |")
    print("\nClean tables: share of samples with a verdict other than passed\n")
    print("| design | samples | tests with a level | shuffled actions | any other | by test | seconds, median |")
    print("|---|---|---|---|---|---|---|")
    for (defect, name), own in groups.items():
        if defect != "clean":
            continue
        counts: dict[str, int] = defaultdict(int)
        for record in own:
            for test, (verdict, *_) in record["findings"].items():
                counts[test] += verdict != "passed"

        def any_of(record: dict, tested: bool) -> bool:
            return any(
                verdict != "passed" and test != PLACEBO and (p is not None) == tested
                for test, (verdict, p, *_) in record["findings"].items()
            )

        tested, rules = (np.mean([any_of(r, kind) for r in own]) for kind in (True, False))
        listed = ", ".join(f"{test} {count}" for test, count in counts.items() if count and test != PLACEBO)
        seconds = np.median([r["seconds"] for r in own])
        share = counts[PLACEBO] / len(own)
        print(f"| {name} | {len(own)} | {tested:.3f} | {share:.3f} | {rules:.3f} | {listed or '-'} | {seconds:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    running = commands.add_parser("run")
    running.add_argument("--records", type=Path, required=True)
    running.add_argument("--cases", nargs="*", choices=list(EVERY))
    running.add_argument("--defects", nargs="*", choices=list(DEFECTS))
    running.add_argument("--seeds", type=int, nargs=2, default=(0, 5), metavar=("FIRST", "COUNT"))
    running.add_argument("--refits", action="store_true")
    running.set_defaults(run=run)
    showing = commands.add_parser("table")
    showing.add_argument("--records", type=Path, nargs="+", required=True)
    showing.set_defaults(run=table)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
