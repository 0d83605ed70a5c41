"""Strong scaling: the same work on more devices, on more Ray workers, and beside a GPU or not.

    python benchmarks/scaling.py devices [--counts 1 2 4 8] [--members 400] [--epochs 40]
    python benchmarks/scaling.py gpu [--rows 500 3000 20000 ...] [--actions 2] [--where host default gpu]
    python benchmarks/scaling.py ray [--trials 16]

devices  a stack of (10, 128, 128, 1) networks on 1,000 rows, batches of 128, 40 epochs without early stopping, on 1, 2,
         4, ... CPU devices of as many cores, or GPUs where there are any; compilation is left out. The peak is that of
         large float32 products, one on each device at a time, in the same process. Eight epochs are one compiled block,
         after which members make place for others: the fewer epochs, the larger the share of that, which one core does
gpu      `GBPL()` on logged rows of the paper's DGP2, with its value: seconds by the clock of the first fit of a process
         without a cache (imports left out) and of a second one, of other rows. "host" sees no GPU, "default" is what a
         user of the machine gets, "gpu" has every network on the GPU
ray      `gbpl reproduce synthetic-binary synthetic-K` here and on a Ray of one and of two workers with one core each:
         seconds of the blocks, after Ray has started, and whether every record has the same bytes

Speed-ups mean something only while nothing else runs.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from joblib import cpu_count

ROWS, FEATURES = 1_000, 10
TABLES = ("synthetic-binary", "synthetic-K")  # with eight trials or more: thirteen blocks of about the same work


def run(arguments: list[str], **environment: str) -> list[str]:
    """Words that this file prints when it is run with other arguments and variables."""
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.split()


# -- devices ----------------------------------------------------------------------------------------------------------


def product_peak(devices: list) -> float:
    """FLOP/s of large products, one on each device at a time, the best of several."""
    import jax

    size = 2048 if devices[0].platform == "cpu" else 8192
    matrices = [jax.device_put(np.ones((size, size), np.float32), device) for device in devices]
    product = jax.jit(lambda matrix: matrix @ matrix)
    times = []
    for _ in range(8):
        started = time.perf_counter()
        jax.block_until_ready([product(matrix) for matrix in matrices])
        times.append(time.perf_counter() - started)
    return len(devices) * 2 * size**3 / min(times)


def cores(count: int) -> set[int]:
    """So many of the cores there are, hardware threads of one core last."""
    usable, seen = sorted(os.sched_getaffinity(0)), set()

    def siblings(core: int) -> str:
        path = Path(f"/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list")
        return path.read_text().strip() if path.exists() else str(core)

    def repeated(core: int) -> bool:
        known, name = siblings(core) in seen, siblings(core)
        seen.add(name)
        return known

    return set(sorted(usable, key=repeated)[:count])


def one_count(count: int, members: int, epochs: int, platform: str) -> None:
    """Seconds of the second fit, FLOP/s and the peak, for a process of its own, on some cores or GPUs."""
    if hasattr(os, "sched_setaffinity") and platform == "cpu":  # before XLA makes its threads
        os.sched_setaffinity(0, cores(count))
    from gbpl import MLP, Binary, FitConfig, Member, fit_stack
    from gbpl.runtime.devices import resolve_devices

    devices = resolve_devices("auto")[:count]
    rng = np.random.default_rng(0)
    x, gap = rng.normal(size=(ROWS, FEATURES)), rng.normal(size=(ROWS, 1))
    stack = [Member(np.arange(ROWS), seed=seed) for seed in range(members)]
    config = FitConfig(max_epochs=epochs, batch_size=128)
    taken = 0.0
    for _ in range(2):
        started = time.perf_counter()
        fit_stack(x, gap, stack, Binary(), MLP((128, 128)), config=config, device=devices, progress=False)
        taken = time.perf_counter() - started
    weights = FEATURES * 128 + 128 * 128 + 128
    print(taken, members * epochs * ROWS * 6 * weights / taken, product_peak(devices))  # 6: forward and backward


def devices(counts: list[int], members: int, epochs: int) -> None:
    platform, found = run(["look"])
    most = int(found) if platform != "cpu" else cpu_count()
    left_out = [count for count in counts if count > most]
    print(f"\n{members} members, {epochs} epochs, on {platform} devices; there are {most}", end="")
    print(f", so {', '.join(map(str, left_out))} left out" if left_out else "")
    print(f"{'devices':>8} {'seconds':>8} {'speed-up':>9} {'GFLOP/s':>9} {'peak':>9} {'share':>6}")
    first = None
    for count in counts:
        if count > most:
            continue
        arguments = ["one", str(count), str(members), str(epochs), platform]
        taken, rate, peak = map(float, run(arguments, GBPL_CPU_DEVICES=str(count)))
        first = first or taken * count  # of one device, had it all the work
        print(
            f"{count:8d} {taken:8.2f} {first / taken:9.2f} {rate / 1e9:9.1f} {peak / 1e9:9.1f} {rate / peak:6.1%}",
            flush=True,
        )


# -- a GPU ------------------------------------------------------------------------------------------------------------


def one_learner(rows: int, actions: int, where: str) -> None:
    """Seconds of the first and of the second fit of a process, each with its value."""
    from gbpl import GBPL
    from gbpl.datasets import BinaryDesign, LoggedDesign, MultiActionDesign

    design = LoggedDesign(BinaryDesign("DGP2") if actions == 2 else MultiActionDesign("DGP2", n_actions=actions))
    for seed in range(2):
        log = design.sample(rows, seed=seed)
        started = time.perf_counter()
        policy = GBPL(random_state=seed, device="gpu" if where == "gpu" else "auto")
        policy.fit(log.x, log.outcome, action=log.action, propensity=log.propensity)
        fitted = time.perf_counter() - started
        policy.population_welfare()
        print(fitted, time.perf_counter() - started)


def beside_gpu(sizes: list[int], actions: int, where: list[str]) -> None:
    print(f"\nGBPL(), {actions} actions, logged: seconds of a fit / with its value, first and second of a process")
    print(f"{'rows':>9} {'where':>8} {'first':>16} {'second':>16}")
    for rows in sizes:
        for place in where:
            environment = {"GBPL_CACHE_DIR": "off"} | ({"JAX_PLATFORMS": "cpu"} if place == "host" else {})
            first, with_value, second, second_with_value = map(
                float, run(["learner", str(rows), str(actions), place], **environment)
            )
            told = f"{first:7.1f} / {with_value:6.1f} {second:7.1f} / {second_with_value:6.1f}"
            print(f"{rows:9,} {place:>8} {told}", flush=True)


# -- Ray --------------------------------------------------------------------------------------------------------------


def one_run(workers: int, trials: int, folder: Path) -> None:
    """Seconds of the blocks of a reproduction, on a Ray of some workers or, with none, here."""
    from gbpl.paper.run import WALL, Run, reproduce

    if workers:
        import ray

        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="error")
    reproduce(Run(TABLES, trials, device="cpu", engine="ray" if workers else "local"), folder)
    (wall,) = [line for line in (folder / "seconds.csv").read_text().splitlines() if line.startswith(WALL)]
    print(wall.rpartition(",")[2])


def ray_workers(trials: int) -> None:
    print(f"\ngbpl reproduce {' '.join(TABLES)} --trials {trials}, one core a worker")
    print(f"{'where':>10} {'seconds':>8} {'speed-up':>9}  records")
    with tempfile.TemporaryDirectory() as name:
        folder, seconds = Path(name), {}
        for workers in (0, 1, 2):  # the first fills the compilation cache for the others
            out = folder / str(workers)
            arguments = ["reproduce", str(workers), str(trials), str(out)]
            (taken,) = run(arguments, GBPL_CPU_DEVICES="1", PJRT_NPROC="1", OMP_NUM_THREADS="1")
            seconds[workers] = float(taken)
            gained = f"{seconds[1] / seconds[workers]:9.2f}" if workers else " " * 9
            names = [path.name for path in (folder / "0" / "records").iterdir()]
            same = not any(filecmp.cmpfiles(folder / "0" / "records", out / "records", names, shallow=False)[1:])
            told = "the same bytes" if same else "DIFFERENT"
            print(
                f"{f'{workers} on Ray' if workers else 'here':>10} {seconds[workers]:8.1f} {gained}  {told}", flush=True
            )


def main() -> None:
    inner = sys.argv[1:2]
    if inner == ["look"]:
        from gbpl.runtime.devices import resolve_devices

        print(resolve_devices("auto")[0].platform, len(resolve_devices("auto")))
    elif inner == ["one"]:
        one_count(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
    elif inner == ["learner"]:
        one_learner(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
    elif inner == ["reproduce"]:
        one_run(int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
    else:
        parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
        sections = parser.add_subparsers(dest="section", required=True)
        scaled = sections.add_parser("devices")
        scaled.add_argument("--counts", type=int, nargs="+", default=[1, 2, 4, 8])
        scaled.add_argument("--members", type=int, default=400)
        scaled.add_argument("--epochs", type=int, default=40)
        gpu = sections.add_parser("gpu")
        gpu.add_argument("--rows", type=int, nargs="+", default=[500, 3_000, 20_000, 100_000])
        gpu.add_argument("--actions", type=int, default=2)
        gpu.add_argument("--where", nargs="+", choices=("host", "default", "gpu"), default=["host", "default", "gpu"])
        sections.add_parser("ray").add_argument("--trials", type=int, default=16)
        asked = parser.parse_args()
        if asked.section == "devices":
            devices(asked.counts, asked.members, asked.epochs)
        elif asked.section == "gpu":
            beside_gpu(asked.rows, asked.actions, asked.where)
        else:
            ray_workers(asked.trials)


if __name__ == "__main__":
    main()
