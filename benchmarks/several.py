"""Whether guards of a second outcome are kept by the policies that were shown to keep them.

python benchmarks/several.py run --records FILE --learner shipped|cheap|known [--cases NAME ...] [--seeds FIRST COUNT]
python benchmarks/several.py table --records FILE ...

`run` fits samples of designs with known effects and appends one line of JSON per replication. Learners: `shipped` is
`GBPL()`, `cheap` the same estimator with linear scores and outcome models and three folds, `known` no learner at
all: thresholds on the first feature, which tests the evaluation and the walk alone. Replication r has data seed r and
random_state r. A guard is violated where the true change under the chosen policy, on 50,000 new rows, is beyond
the bound; `table` counts that, how often everybody gets the default, and what is gained of the first outcome.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from sklearn.linear_model import LinearRegression

from gbpl import GBPL, FitConfig, GBPLNet, Linear, LoggedFeedback, PerAction, fit_several
from gbpl.nuisance.nuisances import Nuisances
from gbpl.nuisance.off_policy import log_evaluator
from gbpl.value.guards import Guard, walked

LEVEL = 0.95
NEW = 50_000
KNOWN = np.linspace(2.0, -2.0, 9)  # thresholds from the most careful to the least


# name: rows, bound, effect on spend, effect on complaints, base rate (None: complaints are a number)
CASES = {
    "binds": (700, 0.1, lambda x: 0.3 + x[:, 0], lambda x: 0.2 + 0.2 * x[:, 0] + 0.2 * x[:, 1], None),
    "rare": (1000, 0.01, lambda x: 0.4 * x[:, 0], lambda x: 0.04 * (x[:, 0] > -0.5), 0.02),
    "nothing": (700, 0.1, lambda x: 0.0 * x[:, 0], lambda x: 0.0 * x[:, 0] + 0.2, None),
    "harmless": (700, 0.1, lambda x: 0.3 + x[:, 0], lambda x: 0.0 * x[:, 0], None),
}


def sample(name: str, seed: int) -> tuple:
    rows, _, spend_effect, complaint_effect, base = CASES[name]
    rng = np.random.default_rng(seed)
    x, action = rng.normal(size=(rows, 4)), rng.integers(2, size=rows)
    spend = 0.5 * x[:, 2] + action * spend_effect(x) + rng.normal(size=rows)
    mean = action * complaint_effect(x) + (0.3 * x[:, 3] if base is None else base)
    complaints = mean + rng.normal(size=rows) if base is None else (rng.random(rows) < mean).astype(float)
    return x, action, {"spend": spend, "complaints": complaints}


def truth(name: str, treated: np.ndarray, x: np.ndarray) -> list[float]:
    """True changes of both outcomes from action 0 for all."""
    _, _, spend_effect, complaint_effect, _ = CASES[name]
    return [float(np.mean(treated * effect(x))) for effect in (spend_effect, complaint_effect)]


def learner(kind: str, seed: int) -> GBPLNet:
    if kind == "shipped":
        return GBPL(random_state=seed, progress=False)
    return GBPLNet(
        random_state=seed, progress=False, model=Linear(), outcome_model=PerAction(LinearRegression()), committee=3,
        nuisance_folds=3, correction=1.0, fit_config=FitConfig(max_epochs=30, learning_rate=0.03),
    )  # fmt: skip


def replicate(name: str, kind: str, seed: int) -> dict:
    bound = CASES[name][1]
    x, action, outcomes = sample(name, seed)
    new = np.random.default_rng(10**6).normal(size=(NEW, x.shape[1]))
    start = time.process_time()
    several = fit_several(
        x, outcomes, guard={"complaints": f"<={bound}"}, action=action, propensity=0.5, level=LEVEL,
        estimator=learner(kind, seed),
    )  # fmt: skip
    seconds = time.process_time() - start
    changed = truth(name, several.policy.predict(new).astype(float), new)
    point = several.to_dict()["front"][several.chosen]
    return {
        "case": name, "learner": kind, "seed": seed, "chosen": point["label"], "bound": bound, "true": changed,
        "said": [one["change"] for one in point["outcomes"]], "se": [one["change_se"] for one in point["outcomes"]],
        "seconds": seconds,
    }  # fmt: skip


def walk_known(name: str, seed: int) -> dict:
    """Thresholds on the first feature; outcome models are means of each action."""
    bound = CASES[name][1]
    x, action, outcomes = sample(name, seed)
    new = np.random.default_rng(10**6).normal(size=(NEW, x.shape[1]))
    log = LoggedFeedback.of(x, outcomes["complaints"], action, propensity=0.5)
    means = np.tile([outcomes["complaints"][action == a].mean() for a in (0, 1)], (len(x), 1))
    evaluator = log_evaluator(log, Nuisances(log, log.propensity, 0.01, False, means))
    base, guard = evaluator.value(0), Guard("complaints", "<=", bound)
    values = [evaluator.value((x[:, 0] > cut).astype(int)) for cut in KNOWN]
    passed = walked([guard.result(value, base, LEVEL).holds for value in values])
    treated = new[:, 0] > KNOWN[passed - 1] if passed else np.zeros(NEW)
    label = f"{KNOWN[passed - 1]:g}" if passed else "everybody gets 0"
    return {
        "case": name, "learner": "known", "seed": seed, "chosen": label, "bound": bound,
        "true": truth(name, treated, new), "seconds": 0.0,
    }  # fmt: skip


def run(given: argparse.Namespace) -> None:
    first, count = given.seeds
    for seed in range(first, first + count):
        for name in given.cases:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = walk_known(name, seed) if given.learner == "known" else replicate(name, given.learner, seed)
            with given.records.open("a") as file:
                file.write(json.dumps(made) + "\n")


def table(given: argparse.Namespace) -> None:
    records = defaultdict(list)
    for path in given.records:
        for line in path.read_text().splitlines():
            one = json.loads(line)
            records[one["learner"], one["case"]].append(one)
    print("| learner | design | replications | guard violated | default for all | gain in spend | seconds |")
    print("|---|---|---|---|---|---|---|")
    for (kind, name), rows in sorted(records.items()):
        broken = np.array([one["true"][1] > one["bound"] for one in rows])
        fallback = np.mean([one["chosen"].startswith("everybody") for one in rows])
        gain = np.array([one["true"][0] for one in rows])
        error = np.sqrt(max(broken.mean() * (1 - broken.mean()), 0.05 * 0.95) / len(rows))
        spread = gain.std(ddof=1) / np.sqrt(len(rows))
        seconds = np.mean([one["seconds"] for one in rows])
        print(
            f"| {kind} | {name} | {len(rows)} | {broken.mean():.3f} (se {error:.3f}) | {fallback:.2f} | "
            f"{gain.mean():.3f} (se {spread:.3f}) | {seconds:.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    making = commands.add_parser("run")
    making.add_argument("--records", type=Path, required=True)
    making.add_argument("--learner", choices=["shipped", "cheap", "known"], required=True)
    making.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    making.add_argument("--seeds", nargs=2, type=int, default=(0, 50))
    making.set_defaults(call=run)
    showing = commands.add_parser("table")
    showing.add_argument("--records", type=Path, nargs="+", required=True)
    showing.set_defaults(call=table)
    given = parser.parse_args()
    given.call(given)


if __name__ == "__main__":
    main()
