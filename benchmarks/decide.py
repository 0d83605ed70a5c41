"""Time of decisions in memory, and memory and time of `gbpl decide` over a large Parquet file.

    gbpl demo
    python benchmarks/decide.py gbpl-demo/policy.gbpl --gigabytes 5
    python benchmarks/decide.py gbpl-demo/policy.gbpl --gigabytes 0     # in memory alone

Times in memory are CPU time of all threads, the least of several, for features as numbers.
The file has the columns of the demo's trial, an id, and 40 columns that the policy does not need.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import gbpl
from gbpl.datasets import EmailDesign

ROWS, OTHERS = 500_000, 40


def write(path: Path, gigabytes: float) -> int:
    """Row groups of 500,000 rows until the file is large enough; the number of rows."""
    rng = np.random.default_rng(0)
    people = EmailDesign().frame(200_000, seed=1, as_frame="arrow").drop_columns(["segment", "visit", "history"])
    writer, rows = None, 0
    while writer is None or path.stat().st_size < gigabytes * 1e9:
        part = people.take(pa.array(rng.integers(0, len(people), ROWS)))
        part = part.append_column("history", pa.array(rng.lognormal(5.0, 1.0, ROWS)))
        part = part.append_column("customer", pa.array(np.arange(rows, rows + ROWS)))
        for number in range(OTHERS):
            part = part.append_column(f"other{number}", pa.array(rng.standard_normal(ROWS)))
        writer = writer or pq.ParquetWriter(path, part.schema)
        writer.write_table(part)
        rows += ROWS
    writer.close()
    return rows


def in_memory(path: Path, rows: int = 10_000) -> None:
    """CPU time of many decisions at once and of one alone."""
    policy = gbpl.load(path)
    x = policy.mean + policy.scale * np.random.default_rng(0).normal(size=(rows, len(policy.mean)))

    def least(decide: Callable[[Any], Any], given: Any, times: int) -> float:
        taken = []
        for _ in range(5):
            started = time.process_time()
            for _ in range(times):
                decide(given)
            taken.append((time.process_time() - started) / times)
        return min(taken)

    for name, decide in (("predict", policy.predict), ("decide", policy.decide)):
        many, one = least(decide, x, 1), least(decide, x[:1], 100)
        print(f"{name}: {rows:,} rows {many:.3f} s, one row {1e3 * one:.2f} ms ({policy!r})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("policy", type=Path)
    parser.add_argument("--gigabytes", type=float, default=5.0)
    parser.add_argument("--file", type=Path, default=Path("large.parquet"))
    given = parser.parse_args()
    in_memory(given.policy)
    if given.gigabytes <= 0.0:
        return
    rows = write(given.file, given.gigabytes)
    size = given.file.stat().st_size / 1e9
    out = given.file.with_name("decided.parquet")
    started = time.perf_counter()
    command = [sys.executable, "-m", "gbpl", "decide", given.policy, given.file, "-o", out, "--keep", "customer"]
    peak, running = 0.0, subprocess.Popen(command)
    status = Path(f"/proc/{running.pid}/status")  # its own peak: that of getrusage begins with its parent's
    while running.poll() is None:
        found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        peak = max(peak, 0.0 if found is None else int(found[1]) / 1e6)
        time.sleep(0.05)
    seconds = time.perf_counter() - started
    if running.returncode:
        sys.exit(running.returncode)
    print(f"{size:.2f} GB, {rows:,} rows: {seconds:.0f} s ({rows / seconds:,.0f} rows a second), peak {peak:.3f} GB")


if __name__ == "__main__":
    main()
