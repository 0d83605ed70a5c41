"""A policy watched while data arrive: do its bounds hold at every row, how soon does it decide, does it survive a kill?

    python benchmarks/watch.py violations   1,000 streams of 5,000 rows per design: bounds wrong at any row
    python benchmarks/watch.py detection    rows until promote and roll back, beside tests of normal theory
    python benchmarks/watch.py widths       how far the lower bound of the gain is below its estimate, even log
    python benchmarks/watch.py kills        gbpl watch killed at random moments, against a run that was left alone
    python benchmarks/watch.py hillstrom    a policy learned from 4,000 customers, watched on the other 60,000

`violations`: a row is of one of two kinds, outcomes are normal (cut at 5 standard deviations), 0/1, heavy-tailed (t
with 2.5 degrees of freedom, cut at 20) or skewed (log-normal, cut at 20); 2 and 5 actions; logs are even, uneven (0.05
for each of the rarer actions), or adaptive: each stream learns for itself which action has done best so far and takes
it with probability 0.9, others alike. Rows in which all propensities are known; "taken" has that of the action taken
alone. The policy gives each kind of row an action; gains are over the first. True means are
integrals. A stream violates a bound if the bound is on the wrong side of the truth after any of its rows. Each of the
four bounds (value and gain, below and above) is at failure probability 0.05, and "any" counts streams in which at least
one of four at 0.05 / 4 fails. "broken" is the largest count of a bound with the threshold of 0.3 in place of 0.05. The
wealth is computed here by products, row by row, and compared with the library's on the first 20 streams.

`detection`: two actions, even log, gain of +0.1, 0 or -0.1 standard deviations of the outcome on average. `watch` has
the shares of the budget that version 1 of a policy has at failure probability 0.05; `watch, all of it` spends 0.025 on
each side. Normal tests see the same centred values: at each of 20 equally spaced looks with Bonferroni's correction, at
the last row alone, and at every row from 100 on without any correction. Two-sided, 0.05. "Later" are policies that were
promoted at row 0, gain 0.2 standard deviations for half of the rows and then lose as much (rows are counted from the
change), or gain nothing all along: these at their share of the budget, and at 0.05, where at most 0.05 may be rolled
back.

`hillstrom`: e-mails and visits (../shared/data), rows in random order, `gbpl.learn` as it is, gains over no e-mail.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.stats import lognorm, norm, t

from gbpl.certificates.betting import Wealth
from gbpl.watch.budget import GAIN, LATER, version_budget
from gbpl.watch.losses import Losses
from gbpl.watch.values import row_values, slack_for

KINDS: dict[str, tuple[tuple[float, float], Any]] = {  # range, and the distribution of an outcome with centre m
    "normal": ((-5.0, 5.0), lambda m: norm(m, 1.0)),
    "0/1": ((0.0, 1.0), None),
    "heavy-tailed": ((-20.0, 20.0), lambda m: t(2.5, m, 1.0)),
    "skewed": ((0.0, 20.0), lambda m: lognorm(1.0, scale=np.exp(m))),
}
CENTRES = {2: [[0.0, 0.3], [0.2, 0.0]], 5: [[0.0, 0.3, 0.1, 0.2, -0.2], [0.2, 0.0, 0.1, -0.1, 0.4]]}
GIVEN = {2: [1, 0], 5: [1, 4]}  # the action of each kind of row
LOGS = ("even", "uneven", "adaptive")


def centres(kind: str, actions: int) -> np.ndarray:
    table = np.array(CENTRES[actions])
    return 0.35 + 0.5 * table if kind == "0/1" else table


def mean_of(kind: str, centre: float) -> float:
    """The true mean of outcomes cut at the range, in units of it."""
    (low, high), law = KINDS[kind]
    if law is None:
        return centre
    whole = quad(lambda y: law(centre).sf(y), low, high, points=[centre] if low < centre < high else None, limit=200)[0]
    return whole / (high - low)  # E min(max(y, low), high) - low = integral of P(y > s)


def outcomes(rng: np.random.Generator, kind: str, centre: np.ndarray) -> np.ndarray:
    (low, high), _ = KINDS[kind]
    if kind == "0/1":
        return (rng.random(centre.shape) < centre).astype(float)
    noise = {
        "normal": lambda: rng.normal(size=centre.shape),
        "heavy-tailed": lambda: rng.standard_t(2.5, centre.shape),
        "skewed": lambda: np.exp(centre + rng.normal(size=centre.shape)) - centre,
    }[kind]()
    return (np.clip(centre + noise, low, high) - low) / (high - low)


def stream(kind: str, actions: int, log: str, streams: int, rows: int, seed: int) -> dict[str, np.ndarray]:
    """Kind of row, action, outcome and propensities of every row of every stream."""
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, (streams, rows))
    table, drawn = centres(kind, actions), rng.random((streams, rows))
    if log != "adaptive":
        rare = 0.05 if log == "uneven" else 1.0 / actions
        chance = np.full((2, actions), rare)
        chance[[0, 1], [0, actions - 1]] = 1.0 - rare * (actions - 1)
        chance = chance[group]
        action = np.minimum((drawn[..., None] > np.cumsum(chance, axis=-1)).sum(axis=-1), actions - 1)
        return {
            "group": group,
            "action": action,
            "chance": chance,
            "outcome": outcomes(rng, kind, table[group, action]),
        }
    action, outcome = np.zeros((streams, rows), np.int64), np.zeros((streams, rows))
    chance, every = np.zeros((streams, rows, actions)), np.arange(streams)
    count, total = np.ones((streams, actions)), np.full((streams, actions), 0.5)
    for row in range(rows):
        now = np.full((streams, actions), 0.1 / (actions - 1))
        now[every, np.argmax(total / count, axis=1)] = 0.9
        chance[:, row] = now
        action[:, row] = np.minimum((drawn[:, [row]] > np.cumsum(now, axis=1)).sum(axis=1), actions - 1)
        outcome[:, row] = outcomes(rng, kind, table[group[:, row], action[:, row]])
        count[every, action[:, row]] += 1.0
        total[every, action[:, row]] += outcome[:, row]
    return {"group": group, "action": action, "chance": chance, "outcome": outcome}


def lines_of(rows: dict[str, np.ndarray], given: np.ndarray, slack: float, *, all_known: bool = True) -> np.ndarray:
    """Lines of values, above their lower end, bound x stream x row; a stream's guess is its mean outcome so far."""
    y = rows["outcome"]
    guess = (0.5 + np.cumsum(y, axis=1) - y) / (1.0 + np.arange(y.shape[1]))
    policy = np.eye(rows["chance"].shape[-1])[given[rows["group"]]].reshape(y.size, -1)
    chance, action = rows["chance"].reshape(y.size, -1), rows["action"].ravel()
    if not all_known:
        chance = chance[np.arange(y.size), action]
    made = row_values(y.ravel(), guess.ravel(), action, chance, policy, 0, slack)
    lines = np.stack([made.value, made.less_value, made.gain, made.less_gain]) + slack
    return np.maximum(lines, 0.0).reshape(4, *y.shape)  # below zero by rounding alone


def first_rows(lines: np.ndarray, means: np.ndarray, levels: tuple[float, ...]) -> np.ndarray:
    """First row, from one, at which each mean is ruled out at each level; 0 for never. level x line x stream."""
    start = Wealth.start(streams=(lines.shape[0], min(20, lines.shape[1])))
    sizes, wealth = np.array(start.bets.sizes), np.array(start.bets.shares) * np.ones((*lines.shape[:2], 1))
    price = 1.0 / (1.0 + means[:, None, None] * sizes)
    found, limits = np.zeros((len(levels), *lines.shape[:2]), np.int64), 1.0 / np.array(levels)[:, None, None]
    for row in range(lines.shape[2]):
        wealth *= (1.0 + lines[:, :, row, None] * sizes) * price
        found[(wealth.sum(axis=-1) >= limits) & (found == 0)] = row + 1
    checked = start.crossing(lines[:, :20], means[:, None], levels[0])
    assert (checked == found[0, :, :20]).all(), "the library finds other rows"
    return found


def violations(streams: int, rows: int, seed: int) -> None:
    error = np.sqrt(0.05 * 0.95 / streams)
    print(f"{streams} streams of {rows} rows, seed {seed}; share of streams (standard error at 5 %: {error:.4f})")
    names = ("value >=", "value <=", "gain >=", "gain <=", "any", "broken")
    print(f"{'outcome':<13}{'K':<3}{'log':<10}" + "".join(f"{name:>9}" for name in names))
    for kind in KINDS:
        for actions in (2, 5):
            truth = np.array([[mean_of(kind, centre) for centre in line] for line in centres(kind, actions)])
            given, slack = np.array(GIVEN[actions]), slack_for(0.5 / actions)
            value = truth[[0, 1], given].mean()
            gain = value - truth[:, 0].mean()
            means = slack + np.array([value, 1.0 - value, 1.0 + gain, 1.0 - gain])
            for log in LOGS + (("taken",) if actions > 2 else ()):
                drawn = stream(kind, actions, "adaptive" if log == "taken" else log, streams, rows, seed)
                lines = lines_of(drawn, given, slack, all_known=log != "taken")
                wrong, all_four, broken = first_rows(lines, means, (0.05, 0.05 / 4, 0.3)) > 0
                shares = [*wrong.mean(axis=1), all_four.any(axis=0).mean(), broken.mean(axis=1).max()]
                print(f"{kind:<13}{actions:<3}{log:<10}" + "".join(f"{share:>9.3f}" for share in shares), flush=True)


def detection(streams: int, rows: int, seed: int) -> None:
    print(f"{streams} streams of {rows} rows, seed {seed}; two actions, even log")
    slack, budget = slack_for(0.25), version_budget(0.05, 1)
    for kind in ("0/1", "normal", "skewed"):
        print(f"\n{kind}: share promoted and rolled back, and quartiles of the rows until then")
        for gain in (0.1, 0.0, -0.1):
            log = _two_actions(np.random.default_rng(seed), kind, gain, (streams, rows))
            lines = lines_of(log, np.array([1]), slack)[2:]
            found = first_rows(lines, np.full(2, 1.0 + slack), (budget * GAIN[0], budget * GAIN[1], 0.025))
            _print_times(f"{gain:+.1f} sd", "watch", found[0, 0], found[1, 1])
            _print_times(f"{gain:+.1f} sd", "watch, all of it", *found[2])
            for name, times in _normal_tests((lines[0] - lines[1]) / 2.0, rows).items():
                _print_times(f"{gain:+.1f} sd", name, *times)


def widths(streams: int, seed: int) -> None:
    print(f"standard errors from estimate to bound at 0.025 by least_propensity; {streams} streams, seed {seed}")
    print(f"{'outcome':<13}{'rows':>7}" + "".join(f"{least:>7}" for least in (0.1, 0.25, 0.5)))
    for kind in KINDS:
        for rows in (1000, 5000, 20_000):
            told = []
            for slack in map(slack_for, (0.1, 0.25, 0.5)):
                line = lines_of(stream(kind, 2, "even", streams, rows, seed), np.array(GIVEN[2]), slack)[2]
                below = line.mean(axis=1) - Wealth.start(streams=(streams,)).add(line).lower(0.025)
                told.append(np.mean(below / line.std(axis=1) * np.sqrt(rows)))
            print(f"{kind:<13}{rows:>7}" + "".join(f"{width:>7.2f}" for width in told), flush=True)


def later(streams: int, rows: int, seed: int) -> None:
    slack = slack_for(0.25)
    print("\nlater: share rolled back after promotion, and quartiles of the rows from the change until then")
    for kind in ("0/1", "normal", "skewed"):
        for name, gains in (("gains, then loses", (0.2, -0.2)), ("gains nothing", (0.0, 0.0))):
            rng = np.random.default_rng(seed)
            parts = [_two_actions(rng, kind, gain, (streams, rows // 2)) for gain in gains]
            lines = np.concatenate([lines_of(part, np.array([1]), slack)[3] for part in parts], axis=1)
            for level in (LATER * version_budget(0.05, 1), 0.05):
                found = [Losses.start(1.0 + slack).add(line, level)[1] for line in lines]
                before = np.mean([0 < row <= rows // 2 for row in found])
                hits = [row for row in found if row > rows // 2]
                delay = "/".join(f"{q - rows // 2:.0f}" for q in np.quantile(hits, [0.25, 0.5, 0.75])) if hits else "-"
                print(f"  {kind:<8}{name:<19}at {level:.4f}: in the first half {before:.3f}, in the second "
                      f"{len(hits) / streams:.3f} {delay}", flush=True)  # fmt: skip


def _two_actions(rng: np.random.Generator, kind: str, gain: float, shape: tuple[int, int]) -> dict[str, np.ndarray]:
    """An even log in which the second action gains that many standard deviations."""
    action, low = rng.integers(0, 2, shape), 0.35 if kind == "0/1" else 0.0
    if kind == "0/1":
        y = (rng.random(shape) < low + action * gain * np.sqrt(low * (1.0 - low))).astype(float)
    else:
        y = outcomes(rng, kind, np.full(shape, low))
        y = np.clip(y + action * gain * y.std(), 0.0, 1.0)
    return {"group": np.zeros_like(action), "action": action, "outcome": y, "chance": np.full((*shape, 2), 0.5)}


def _normal_tests(x: np.ndarray, rows: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Rows at which tests of a mean of zero reject above and below; 0 for never."""
    count = np.arange(1, rows + 1)
    mean, square = np.cumsum(x, axis=1) / count, np.cumsum(x**2, axis=1) / count
    z = mean / np.sqrt(np.maximum(square - mean**2, 1e-12) / count)
    looks = np.arange(1, 21) * rows // 20
    plans = {
        "20 looks, Bonferroni": (looks, norm.isf(0.025 / 20)),
        "one look at the end": (np.array([rows]), norm.isf(0.025)),
        "every row, uncorrected": (np.arange(100, rows + 1), norm.isf(0.025)),
    }
    found = {}
    for name, (at, limit) in plans.items():
        seen = z[:, at - 1]
        first = [
            np.where((side * seen > limit).any(axis=1), at[(side * seen > limit).argmax(axis=1)], 0) for side in (1, -1)
        ]
        never = rows + 1
        up, down = (np.where(times > 0, times, never) for times in first)
        found[name] = (np.where((up < never) & (up <= down), up, 0), np.where((down < never) & (down < up), down, 0))
    return found


def _print_times(gain: str, name: str, up: np.ndarray, down: np.ndarray) -> None:
    def told(times: np.ndarray) -> str:
        hits = times[times > 0]
        quartiles = "/".join(f"{q:.0f}" for q in np.quantile(hits, [0.25, 0.5, 0.75])) if len(hits) else "-"
        return f"{len(hits) / len(times):>7.3f} {quartiles:>18}"

    print(f"  {gain:<9}{name:<24} promoted {told(up)}   rolled back {told(down)}", flush=True)


def kills(rows: int, least: int, seed: int) -> None:
    """Kill `gbpl watch` after random times until it gets through, and compare states with a run that was left alone."""
    rng, clock = np.random.default_rng(seed), random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
        from support.cli import people, tiny_policy, write

        table = people(rows, seed)
        chance = np.clip(rng.beta(2.0, 2.0, rows), 0.1, 0.9)
        table["arm"] = np.where(rng.random(rows) < chance, "treat", "none")
        table["chance"] = np.where(table["arm"] == "treat", chance, 1.0 - chance)
        tiny_policy(table).save(folder / "policy.gbpl")
        write(folder / "log.parquet", table)

        def command(state: str) -> list[str]:
            return [
                sys.executable, "-m", "gbpl", "watch", str(folder / "policy.gbpl"), str(folder / "log.parquet"),
                "--state", str(folder / state), "--outcome-range", "-10", "20", "--propensity", "chance",
                "--baseline", "none", "--json",
            ]  # fmt: skip

        started = time.perf_counter()
        subprocess.run(command("alone.json"), capture_output=True, check=False)
        usual, wanted = time.perf_counter() - started, (folder / "alone.json").read_bytes()
        state, killed, rounds, found = folder / "killed.json", 0, 0, set()
        while killed < least:
            process = subprocess.Popen(command(state.name), stdout=subprocess.DEVNULL)
            try:
                process.wait(timeout=clock.uniform(0.05, 0.6) * usual)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed += 1
                found.add(counted(state))
            if counted(state) == rows:  # finished: compare, and begin again
                assert state.read_bytes() == wanted, f"round {rounds} ended with other numbers"
                state.unlink()
                rounds += 1
        subprocess.run(command(state.name), capture_output=True, check=False)
        assert state.read_bytes() == wanted, "the last round ended with other numbers"
        print(f"{rows} rows in blocks of 4,096, {usual:.1f} s left alone, seed {seed}; killed {killed} times in")
        print(f"{rounds + 1} rounds, with {', '.join(f'{n:,}' for n in sorted(found))} rows counted")
        print("every round ended with the state of the run left alone, byte for byte")


def hillstrom(seed: int) -> None:
    import pandas as pd

    import gbpl

    data = pd.read_csv(Path(__file__).resolve().parents[2] / "shared" / "data" / "hillstrom.csv.gz")
    features = ["recency", "history", "mens", "womens", "zip_code", "newbie", "channel"]
    data = data.sample(frac=1.0, random_state=seed).reset_index(drop=True)[[*features, "segment", "visit"]]
    even = {"Mens E-Mail": 1 / 3, "Womens E-Mail": 1 / 3, "No E-Mail": 1 / 3}
    roles: dict[str, Any] = {"outcome": "visit", "action": "segment", "propensity": even, "default": "No E-Mail"}
    monitor = gbpl.learn(data[:4000], seed=seed, **roles).policy.monitor(outcome_range=(0, 1))
    for first in range(4000, len(data), 1000):
        rows = data[first : first + 1000]
        reading = monitor.update(rows, rows["visit"], action=rows["segment"], propensity=even)
        if reading.rows in (1000, 3000, 10_000, 30_000, 60_000):
            low, middle, high = reading.gain
            print(f"{reading.rows:>6} rows: gain {middle:.4f}, {low:.4f} to {high:.4f}; {reading.verdict}", flush=True)
    print(reading)


def counted(state: Path) -> int:
    """Rows in a state."""
    if not state.exists():
        return 0
    return int(json.loads(json.loads(state.read_text())["state"])["files"]["log.parquet"]["rows"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["violations", "detection", "widths", "kills", "hillstrom"])
    parser.add_argument("--streams", type=int)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    if asked.study == "violations":
        violations(asked.streams or 1000, asked.rows or 5000, asked.seed)
    elif asked.study == "detection":
        detection(asked.streams or 500, asked.rows or 20_000, asked.seed)
        later(asked.streams or 500, asked.rows or 20_000, asked.seed)
    elif asked.study == "widths":
        widths(asked.streams or 20, asked.seed)
    elif asked.study == "hillstrom":
        hillstrom(asked.seed)
    else:
        kills(asked.rows or 100_000, asked.kills, asked.seed)
