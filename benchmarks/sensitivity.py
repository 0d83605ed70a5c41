"""Whether bounds under hidden confounding contain the truth, and how wide they are beside the sharp ones.

python benchmarks/sensitivity.py run --out FILE [--seeds A:B] [--kinds NAME ...] [--learned]
python benchmarks/sensitivity.py table FILE ...

A kind is an outcome (normal or 0/1), a number of actions, and how the hidden U works: weakly or strongly on the
outcome, with odds of the actions that it changes by up to Gamma; or "worst", where those not seen are as unlike those
seen as Gamma allows, so that the truth of the lower bound is the sharp bound itself. Gamma is 1.5, 2 or 3 by seed.
`run` appends one line of JSON per kind and seed: the value of a policy and its gain over the first action, their truth,
the bounds at the right Gamma with their errors, and the sharp bounds of the population. The policy is the best one by
what is seen, or with --learned that of `GBPL()`, by `policy.sensitivity()`. Propensities are estimated.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, softmax
from scipy.stats import norm

from gbpl import GBPL, CrossFit, LoggedFeedback, policy_sensitivity

ROWS, FEATURES, POPULATION = 2_000, 4, 20_000
GAMMAS = (1.5, 2.0, 3.0)
LEVELS = (0.9, 0.95, 0.99)
EFFECT = {"weak": 0.5, "strong": 2.0, "worst": 0.0}
KINDS = [f"{y}-{k}-{how}" for y in ("normal", "binary") for k in (2, 4) for how in ("weak", "strong")]
KINDS += ["normal-2-worst", "binary-2-worst"]


@dataclass(frozen=True)
class Design:
    """The law of (x, U, A, Y), U in {0, 1}."""

    outcome: str
    count: int
    effect: float
    gamma: float

    def features(self, n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.uniform(-1.5, 1.5, (n, FEATURES))

    def level(self, x: np.ndarray) -> np.ndarray:
        """Linear predictor of each action's outcome at U = 1/2."""
        arms = [0.4 * np.sin(2 * x[:, (a + 1) % FEATURES]) + 0.15 * a + 0.3 * x[:, 0] for a in range(self.count)]
        return np.column_stack(arms)

    def spread(self, x: np.ndarray) -> np.ndarray:
        return np.repeat((0.6 + 0.4 * (x[:, 2] > 0))[:, None], self.count, axis=1)

    def logits(self, x: np.ndarray) -> np.ndarray:
        return np.column_stack([0.5 * a * x[:, a % FEATURES] for a in range(self.count)])

    def propensity(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """P(U = 1 | x), and P(A = a | x, u) as (2, row, action); nominal odds are changed by at most Gamma."""
        if self.count == 2:
            e, g = expit(self.logits(x)[:, 1]), self.gamma
            ends = np.stack([e / (e + g * (1 - e)), g * e / (g * e + 1 - e)])
            return (e - ends[0]) / (ends[1] - ends[0]), np.stack([1 - ends, ends], axis=2)
        size = brentq(lambda s: np.log(self._ratio(GRID, s)) - np.log(self.gamma), 0.0, 6.0)
        return np.full(len(x), 0.5), self._tilted(x, size)

    def _tilted(self, x: np.ndarray, size: float) -> np.ndarray:
        tilt = np.where(np.arange(self.count) % 2, 0.5, -0.5)
        return np.stack([softmax(self.logits(x) + side * size * tilt, axis=1) for side in (-1.0, 1.0)])

    def _ratio(self, x: np.ndarray, size: float) -> float:
        by_u = self._tilted(x, size)
        e = by_u.mean(axis=0)
        ratio = by_u / (1 - by_u) / (e / (1 - e))
        return float(np.maximum(ratio, 1 / ratio).max())

    def parts(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Linear predictors by u, (2, row, action)."""
        shift = self.effect * np.array([-0.5, 0.5])
        return self.level(x)[None] + shift[:, None, None], self.spread(x)

    def log(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        x = self.features(n, rng)
        share, by_u = self.propensity(x)
        u = (rng.uniform(size=n) < share).astype(int)
        rows = np.arange(n)
        action = (rng.uniform(size=(n, 1)) > np.cumsum(by_u[u, rows], axis=1)).sum(axis=1).clip(0, self.count - 1)
        line, spread = self.parts(x)
        at = line[u, rows, action]
        if self.outcome == "normal":
            return x, action, at + spread[rows, action] * rng.normal(size=n)
        return x, action, (rng.uniform(size=n) < expit(at)).astype(float)

    def truth(self, x: np.ndarray) -> np.ndarray:
        """E[Y(a) | x]."""
        share, _ = self.propensity(x)
        line, _ = self.parts(x)
        mean = line if self.outcome == "normal" else expit(line)
        return (1 - share)[:, None] * mean[0] + share[:, None] * mean[1]

    def sharp(self, x: np.ndarray, *, upper: bool, gamma: float | None = None) -> np.ndarray:
        """The sharp bound of E[Y(a) | x] at Gamma, from the law of what is seen."""
        gamma = self.gamma if gamma is None else gamma
        share, by_u = self.propensity(x)
        joint = np.stack([(1 - share)[:, None] * by_u[0], share[:, None] * by_u[1]])
        e = joint.sum(axis=0)
        chance = joint[1] / e  # P(U = 1 | x, a)
        line, spread = self.parts(x)
        if self.outcome == "binary":
            p = (1 - chance) * expit(line[0]) + chance * expit(line[1])
            ends = (p * gamma, 1 - (1 - p) / gamma) if upper else (p / gamma, 1 - gamma * (1 - p))
            return e * p + (1 - e) * (np.minimum if upper else np.maximum)(*ends)
        sign = -1.0 if upper else 1.0
        line, weights = sign * line, np.stack([1 - chance, chance])
        order, low, high = 1 / (1 + gamma), line.min(axis=0) - 6 * spread, line.max(axis=0) + 6 * spread
        for _ in range(60):
            middle = (low + high) / 2
            above = (weights * norm.cdf((middle - line) / spread)).sum(axis=0) > order
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        z = (middle - line) / spread
        below = (weights * (line * norm.cdf(z) - spread * norm.pdf(z))).sum(axis=0)
        mean = (weights * line).sum(axis=0)
        return sign * (e * mean + (1 - e) * (mean / gamma + (1 - 1 / gamma) * below / order))


GRID = np.random.default_rng(99).uniform(-1.5, 1.5, (20_000, FEATURES))
GRID = np.vstack([GRID, 1.5 * (2 * ((np.arange(2**FEATURES)[:, None] >> np.arange(FEATURES)) & 1) - 1)])


def replicate(kind: str, seed: int, learned: bool) -> dict:
    """One log, and bounds at the right Gamma beside the truth."""
    outcome, count, how = kind.split("-")
    gamma = GAMMAS[seed % len(GAMMAS)]
    design = Design(outcome, int(count), EFFECT[how], gamma)
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    x, action, y = design.log(ROWS, rng)
    start = time.perf_counter()
    if learned:
        policy = GBPL(random_state=seed, progress=False).fit(x, y, action=action)
        found = policy.sensitivity((gamma,), baseline=0)
        place, chosen = x, policy.training("fit again").untouched.argmax(axis=1)
    else:
        place = design.features(POPULATION, np.random.default_rng(1))
        chosen = design.level(place).argmax(axis=1)
        found = policy_sensitivity(
            design.level(x).argmax(axis=1), LoggedFeedback.of(x, y, action, actions=list(range(design.count))),
            gammas=(gamma,), baseline=0, nuisances=CrossFit(outcome_model="auto", seed=seed),
        )  # fmt: skip
    seconds = time.perf_counter() - start
    rows, low, high = np.arange(len(place)), design.sharp(place, upper=False), design.sharp(place, upper=True)
    moved = chosen != 0
    if how == "worst":  # those not seen are as bad for the policy, and as good for the baseline, as can be
        mine, base = low[rows, chosen], np.where(moved, high[:, 0], low[:, 0])
    else:
        mean = design.truth(place)
        mine, base = mean[rows, chosen], mean[:, 0]
    return {
        "kind": kind, "seed": seed, "gamma": gamma, "seconds": seconds,
        "value": {
            "truth": mine.mean(), "sharp": [low[rows, chosen].mean(), high[rows, chosen].mean()],
            "bounds": [found.lower[0].estimate, found.upper[0].estimate], "se": [found.lower[0].se, found.upper[0].se],
        },
        "gain": {
            "truth": (mine - base).mean(),
            "sharp": [
                (moved * (low[rows, chosen] - high[:, 0])).mean(),
                (moved * (high[rows, chosen] - low[:, 0])).mean(),
            ],
            "bounds": [found.gain_lower[0].estimate, found.gain_upper[0].estimate],
            "se": [found.gain_lower[0].se, found.gain_upper[0].se],
        },
    }  # fmt: skip


def run(out: Path, kinds: list[str], seeds: range, learned: bool) -> None:
    done = set()
    if out.exists():
        done = {(line["kind"], line["seed"]) for line in map(json.loads, out.read_text().splitlines())}
    for seed in seeds:
        for kind in kinds:
            if (kind, seed) in done:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                line = replicate(kind, seed, learned)
            with out.open("a") as file:
                file.write(json.dumps(line, default=float) + "\n")


def table(files: list[Path]) -> None:
    """By kind: how often bounds contain the truth, bare and widened, and their distance to the sharp ones."""
    by_kind = defaultdict(list)
    for file in files:
        for line in map(json.loads, file.read_text().splitlines()):
            by_kind[line["kind"]].append(line)
    reach = [norm.ppf(0.5 + level / 2) for level in LEVELS]
    heads = ["bare", *(f"{level:.0%}" for level in LEVELS), "width/sharp", "z low", "z high"]
    print(f"{'kind':<16}{'what':<7}{'logs':>5}" + "".join(f"{head:>12}" for head in heads))
    total = {what: np.zeros(1 + len(LEVELS)) for what in ("value", "gain")}
    for kind in [kind for kind in KINDS if kind in by_kind]:
        for what, sums in total.items():
            lines = [line[what] for line in by_kind[kind]]
            truth = np.array([line["truth"] for line in lines])
            bounds, se, sharp = (np.array([line[name] for line in lines]) for name in ("bounds", "se", "sharp"))
            inside = [
                (bounds[:, 0] - r * se[:, 0] <= truth) & (truth <= bounds[:, 1] + r * se[:, 1]) for r in (0.0, *reach)
            ]
            sums += [part.sum() for part in inside]
            z = ((bounds - sharp) / se).mean(axis=0)
            shown = [f"{part.mean():.3f}" for part in inside]
            ratio = np.ptp(bounds, axis=1).mean() / np.ptp(sharp, axis=1).mean()
            shown += [f"{ratio:.3f}", f"{z[0]:.2f}", f"{z[1]:.2f}"]
            print(f"{kind:<16}{what:<7}{len(lines):>5}" + "".join(f"{text:>12}" for text in shown))
    count = sum(map(len, by_kind.values()))
    for what, sums in total.items():
        shown = "".join(f"{f'{int(part)}/{count}':>12}" for part in sums)
        print(f"{'all':<16}{what:<7}{count:>5}{shown}")
    print(f"seconds per log: {np.mean([line['seconds'] for lines in by_kind.values() for line in lines]):.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--out", type=Path, required=True)
    running.add_argument("--seeds", default="0:20", help="first and one past the last")
    running.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    running.add_argument("--learned", action="store_true")
    commands.add_parser("table").add_argument("files", nargs="+", type=Path)
    given = parser.parse_args()
    if given.command == "table":
        table(given.files)
    else:
        run(given.out, given.kinds, range(*map(int, given.seeds.split(":"))), given.learned)


if __name__ == "__main__":
    main()
