"""Learning in passes: seconds, memory and regret of `GBPL()` on arrays and on Parquet files.

    python benchmarks/large.py fit --rows 1000000              from arrays in memory
    python benchmarks/large.py parquet --rows 10000000         from files of 1e5, 1e6, ... up to this size (--file F)
    python benchmarks/large.py fit --design steps              mean outcomes that jump
    python benchmarks/large.py fit --networks                  networks alone, as the default's, with all their zetas
    python benchmarks/large.py fit --estimated                 propensities that are not given
    python benchmarks/large.py fit --seed 1                    other rows of the same design

The designs have 20 standard normal features and 10 actions, mean outcomes of a few features each, smooth or in steps,
noise of standard deviation 1, and a softmax log of strength 0.5 with known propensities. Rows come in pieces with a
seed each, so a file is the same however it is written, and regret is that of the deterministic rule on 100,000 fresh
rows under the known means. Defaults throughout: doubly robust, the auto path, a committee of five.

`fit` prints the seconds of fit and posterior (compilation included), wall clock and CPU, the largest resident memory
above what was resident before the data were made, and its ratio to the data. `parquet` writes the files first and
trains on each in a fresh process.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
from scipy.special import softmax

from gbpl import GBPL, GBPLNet, regret
from gbpl.runtime.memory import give_back_memory

FEATURES, ACTIONS, STRENGTH = 20, 10, 0.5
PIECE = 131_072
NAMES = [f"x{number}" for number in range(FEATURES)]


def outcome_mean(x: np.ndarray, design: str = "smooth") -> np.ndarray:
    """gamma_k(x) = x_0 / 2 + sin(x_a + k) + tanh(x_b x_c), with features a, b, c of action k's own.

    In the design "steps" the signs of the sine and of the product take their places.
    """
    k = np.arange(ACTIONS)
    a, b, c = (k * 3 + 1) % FEATURES, (k * 5 + 2) % FEATURES, (k * 7 + 3) % FEATURES
    wave, product = np.sin(x[:, a] + k), x[:, b] * x[:, c]
    if design == "steps":
        return 0.5 * x[:, :1] + np.sign(wave) + np.sign(product)
    return 0.5 * x[:, :1] + wave + np.tanh(product)


def pieces(rows: int, seed: int = 0, design: str = "smooth") -> Iterator[tuple[np.ndarray, ...]]:
    """Features, action, outcome and propensities, a piece at a time."""
    direction = np.random.default_rng(99).standard_normal((FEATURES, ACTIONS)) / np.sqrt(FEATURES)
    for number, start in enumerate(range(0, rows, PIECE)):
        rng = np.random.default_rng([seed, number])
        x = rng.standard_normal((PIECE, FEATURES))
        chance = softmax(STRENGTH * (x @ direction), axis=1)
        action = np.minimum((rng.random((PIECE, 1)) >= np.cumsum(chance, axis=1)).sum(axis=1), ACTIONS - 1)
        outcome = outcome_mean(x, design)[np.arange(PIECE), action] + rng.standard_normal(PIECE)
        kept = slice(min(PIECE, rows - start))
        yield x[kept], action[kept], outcome[kept], chance[kept]


def memory(which: str) -> float:
    """Resident megabytes now (VmRSS) or at most since the last look (VmHWM)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    megabytes = next(int(line.split()[1]) for line in lines if line.startswith(which)) / 1024
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak
    return megabytes


class Stages:
    """Seconds and peak memory of each stage, printed as it ends."""

    def __init__(self, before: float) -> None:
        self.before, self.name, self.started, self.peak = before, "", time.perf_counter(), 0.0
        self.first, self.cpu = self.started, time.process_time()

    def __call__(self, name: str) -> None:
        now, cpu, high = time.perf_counter(), time.process_time(), memory("VmHWM")
        self.peak = max(self.peak, high)
        if self.name:
            spent = f"{now - self.started:8.1f} s   {cpu - self.cpu:8.1f} CPU s"
            print(f"  {self.name:<16} {spent}   peak {high - self.before:7.0f} MB", flush=True)
        self.name, self.started, self.cpu = name, now, cpu


def learner(device: str, networks: bool) -> GBPLNet:
    """The default, or its networks alone."""
    if networks:
        return GBPLNet(random_state=0, device=device)
    return GBPL(random_state=0, device=device)


def report(policy: GBPLNet, rows: int, stages: Stages, design: str) -> None:
    """The posterior, and the value of the policy beside the truth."""
    stages("posterior")
    posterior = policy.posterior()
    stages("")
    seconds = time.perf_counter() - stages.first
    print(f"  {rows:,} rows in {seconds:.1f} s, {1e6 * seconds / rows:.2f} us per row; ", end="")
    print(f"{len(posterior.parts)} members count; peak {stages.peak - stages.before:.0f} MB")
    x = next(pieces(100_000, seed=10**6))[0]
    mean = outcome_mean(x, design)
    rule = np.eye(ACTIONS)[policy.predict(x)]
    value = policy.cross_fitted_value()
    known = policy._training.nuisances
    if known is not None and known.shares is not None:
        print("  outcome models: " + ", ".join(f"{name} {share:.2f}" for name, share in known.shares.items()))
    print("  " + str(policy.zeta_path_).replace("\n", "\n  "))
    print(f"  regret {regret(rule, mean):.4f} (best {mean.max(axis=1).mean():.4f}, ", end="")
    print(f"one action for all {mean.mean(axis=0).max():.4f}); ", end="")
    print(f"value {value.estimate:.4f} (se {value.se:.4f}), true {(rule * mean).sum(axis=1).mean():.4f}")


def fit(rows: int, device: str, design: str, networks: bool, estimated: bool, seed: int) -> None:
    next(pieces(1))  # what making data needs but for the data
    give_back_memory()
    before = memory("VmRSS")
    x, chance = np.empty((rows, FEATURES)), np.empty((rows, ACTIONS))
    action, outcome, start = np.empty(rows, np.int64), np.empty(rows), 0
    for piece in pieces(rows, seed, design):
        here = slice(start, start + len(piece[0]))
        x[here], action[here], outcome[here], chance[here] = piece
        start = here.stop
    size = sum(part.nbytes for part in (x, chance, action, outcome)) / 2**20
    del piece
    give_back_memory()
    stages = Stages(before)
    stages("fit")
    policy = learner(device, networks).fit(x, outcome, action=action, propensity=None if estimated else chance)
    report(policy, rows, stages, design)
    above = stages.peak - before
    print(f"  data {size:.0f} MB, peak {above:.0f} MB with the data in it: ratio {above / size:.2f}")


def write(path: Path, rows: int, design: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for x, action, outcome, chance in pieces(rows, design=design):
        taken = chance[np.arange(len(x)), action]
        columns = {name: x[:, number].astype(np.float32) for number, name in enumerate(NAMES)}
        table = pa.table({**columns, "action": action, "outcome": outcome, "chance": taken})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def train(path: Path, device: str, design: str, networks: bool, estimated: bool) -> None:
    import pyarrow.parquet as pq

    stages = Stages(memory("VmRSS"))
    stages("fit")
    policy = learner(device, networks)
    known = None if estimated else "chance"
    policy.fit_parquet(path, outcome="outcome", action="action", propensity=known, features=NAMES)
    report(policy, pq.ParquetFile(path).metadata.num_rows, stages, design)


def parquet(rows: int, file: Path | None, design: str, options: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sizes = [rows] if file is not None else [size for size in (10**5, 10**6, 10**7) if size < rows] + [rows]
        for size in sizes:
            path = file or Path(folder) / f"rows{size}.parquet"
            if not path.exists():
                write(path, size, design)
            print(f"{size:,} rows, {path.stat().st_size / 2**20:.0f} MB of Parquet", flush=True)
            subprocess.run([sys.executable, __file__, "train", "--file", str(path), *options], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fit", "parquet", "train"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--design", choices=("smooth", "steps"), default="smooth")
    parser.add_argument("--networks", action="store_true")
    parser.add_argument("--estimated", action="store_true")
    parser.add_argument("--seed", type=int, default=0, help="of the rows of `fit`")
    given = parser.parse_args()
    if given.what == "fit":
        fit(given.rows, given.device, given.design, given.networks, given.estimated, given.seed)
    elif given.what == "train":
        train(given.file, given.device, given.design, given.networks, given.estimated)
    else:
        options = [name for name in ("networks", "estimated") if getattr(given, name)]
        chosen = ["--device", given.device, "--design", given.design, *(f"--{name}" for name in options)]
        parquet(given.rows, given.file, given.design, chosen)


if __name__ == "__main__":
    main()
