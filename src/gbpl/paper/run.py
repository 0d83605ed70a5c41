"""Run the studies block by block, keep what is done, and write tables, figures and the report.

A run lives in a folder. Each block of trials is computed from its own seeds alone and written whole, so a run that was
stopped, however it was stopped, goes on with the first block that is missing and ends with the same numbers.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import platform
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from gbpl.datasets.files import DataUnavailableError
from gbpl.paper.experiments.catalog import AUTO, EXAMPLE, EXTRAS, TABLES, UCI
from gbpl.paper.experiments.posterior import example
from gbpl.paper.experiments.protocol import Settings
from gbpl.paper.experiments.records import Record, Records, read_blocks, write_block
from gbpl.paper.experiments.studies import DEFAULT_PART, PAPER_PART, STUDIES, Study, load_table, truths
from gbpl.runtime.devices import resolve_devices
from gbpl.runtime.engines import check_engine, run_tasks, task_needs

__all__ = ["Block", "Run", "reproduce"]

WALL = "wall"  # of seconds.csv: what a session took, whatever ran side by side
VARIANTS = {variant for spec in TABLES.values() for variant, _ in spec.variants}
VARIANT_TRIALS = 25
QUICK_TRIALS = 2
# Of the learning curves one with as many rows as the other designs have when quick: equal shapes are compiled once.
QUICK_CASES = {
    "full-feedback-learning": slice(1, 2), "logged-feedback-learning": slice(1, 2), "uci": slice(1),
    "cf-uci-binary": slice(1),
}  # fmt: skip
BLOCK_TRIALS = {PAPER_PART: 25, DEFAULT_PART: 8}  # few enough to lose little, enough to fill a stack
BLOCK_TRIALS_GPU = 50
DRAWING_TRIALS_GPU = 25  # of the default where it draws from posteriors, which is work of the host
WORKERS_GPU = 14  # processes that share the device, if there are cores for them: most of their time is compiling
# Algorithms picked by timing them differ from run to run, and with them the last digits; and both cost time to compile.
GPU_FLAGS = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"


@dataclass(frozen=True, slots=True)
class Block:
    """Trials of one part of one case of a study."""

    study: str
    case: str
    part: str
    numbers: tuple[int, ...]

    @property
    def work(self) -> float:
        study = STUDIES[self.study]
        size = float(self.case) / 1500 if self.case.isdigit() else 1.0
        return len(self.numbers) * study.work[self.part == DEFAULT_PART] * size

    def paths(self, folder: Path) -> dict[str, Path]:
        """The file of the block's lines of each table."""
        name = f"{self.case.replace(' ', '-')}-{self.part}-{self.numbers[0]:04d}.csv"
        return {table: folder / "blocks" / table / name for table in STUDIES[self.study].tables}

    def compute(self, settings: Settings) -> Mapping[str, list[Record]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # weak overlap, estimated propensities: that is the design
            return STUDIES[self.study].run(self.case, self.part, self.numbers, settings)


@dataclass(frozen=True, slots=True)
class Run:
    """What is asked for: `tables`, all if empty, with `trials` of each instead of the paper's."""

    tables: tuple[str, ...] = ()
    trials: int | None = None
    quick: bool = False
    device: str = "auto"
    engine: str = "local"
    data_dir: str | None = None
    platform: str = field(default="", init=False)

    def __post_init__(self) -> None:
        known = (*TABLES, *EXTRAS)
        for name in self.tables:
            if name not in known:
                raise ValueError(f"table must be one of {', '.join(known)}, got {name!r}")
        if self.trials is not None and self.trials < 1:
            raise ValueError(f"trials must be at least 1, got {self.trials}")
        check_engine(self.engine)
        object.__setattr__(self, "platform", resolve_devices(self.device)[0].platform)  # type: ignore[arg-type]
        if self.quick and self.trials is None:
            object.__setattr__(self, "trials", QUICK_TRIALS)

    @property
    def settings(self) -> Settings:
        return Settings(quick=self.quick, device=self.device, data_dir=self.data_dir)

    @property
    def wanted(self) -> tuple[str, ...]:
        return self.tables or (*TABLES, *EXTRAS)

    @property
    def studies(self) -> list[Study]:
        return [study for study in STUDIES.values() if set(study.tables) & set(self.wanted)]

    def cases(self, study: Study) -> tuple[str, ...]:
        return study.cases[QUICK_CASES.get(study.name, slice(None))] if self.quick else study.cases

    def blocks(self) -> list[Block]:
        """Everything to compute, the default's row of a case after the paper's."""
        blocks = []
        for study in self.studies:
            for case in self.cases(study):
                for part in (PAPER_PART, DEFAULT_PART):
                    if part == DEFAULT_PART and case in VARIANTS:
                        continue  # they are there to explain the print
                    count = study.count(part, self.trials)  # none, where the default has no part in a study
                    if case in VARIANTS:
                        count = min(count, VARIANT_TRIALS)
                    size = BLOCK_TRIALS[part]
                    if self.platform != "cpu":
                        drawing = study.draws and part == DEFAULT_PART
                        size = DRAWING_TRIALS_GPU if drawing else BLOCK_TRIALS_GPU
                    for start in range(0, count, size):
                        blocks.append(Block(study.name, case, part, tuple(range(start, min(start + size, count)))))
        return blocks

    def identity(self) -> dict[str, Any]:
        """What must not change between two parts of one run."""
        return {"trials": self.trials, "quick": self.quick, "platform": self.platform}


def _check_folder(folder: Path, run: Run) -> None:
    """A folder holds one run: refuse to mix two."""
    kept = folder / "run.json"
    if not kept.exists():
        if folder.exists() and any(folder.iterdir()):
            raise ValueError(f"{folder} is not empty and holds no run; give another folder with --out")
        folder.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(run.identity(), indent=1) + "\n")
        return
    before = json.loads(kept.read_text())
    changed = [name for name, value in run.identity().items() if before.get(name) != value]
    if changed:
        why = ", ".join(f"{name} was {before.get(name)!r} and is {run.identity()[name]!r}" for name in changed)
        raise ValueError(f"{folder} holds another run ({why}); give another folder with --out, or the same options")


def reproduce(
    run: Run,
    folder: Path,
    *,
    progress: Callable[[float, float, str], None] = lambda done, total, what: None,
    say: Callable[[str], None] = print,
) -> Path:
    """Compute what is missing in the folder, write everything, and return the path of the report.

    `progress(done, total, what)` is called with units of work done, `say` with what users should know.
    """
    if find_spec("matplotlib") is None:  # an error before the work, not after it
        raise ValueError("the figures need matplotlib, which is not installed: pip install 'gbpl[plot]'")
    _check_folder(folder, run)
    blocks = _with_data(run, say)
    waiting = [block for block in blocks if not all(path.exists() for path in block.paths(folder).values())]
    total = sum(block.work for block in blocks)
    done = total - sum(block.work for block in waiting)
    progress(done, total, "starting")
    started = time.perf_counter()
    try:
        for block in _finished(run, folder, waiting):
            done += block.work
            progress(done, total, f"{block.study} {block.case}")
    finally:
        _log_seconds(folder, WALL, "", "", 0, time.perf_counter() - started)
    return _write(run, folder, blocks)


def _with_data(run: Run, say: Callable[[str], None]) -> list[Block]:
    """The blocks that can be run: without the UCI tables the others still are."""
    blocks = run.blocks()
    for case in ("yacht", "energy_efficiency"):
        if not any(block.case == case for block in blocks):
            continue
        try:
            load_table(case, run.data_dir)
        except DataUnavailableError as error:
            say(f"{case} is left out: {error}")
            blocks = [block for block in blocks if block.case != case]
    return blocks


def _keep(folder: Path, block: Block, lines: Mapping[str, list[Record]], seconds: float) -> Block:
    for table, path in block.paths(folder).items():
        write_block(path, lines[table])
    _log_seconds(folder, block.study, block.case, block.part, block.numbers[0], seconds)
    return block


def _log_seconds(folder: Path, study: str, case: str, part: str, first: int, seconds: float) -> None:
    with (folder / "seconds.csv").open("a") as log:
        log.write(f"{study},{case},{part},{first},{seconds:.3f}\n")


def _timed(block: Block, settings: Settings) -> tuple[Mapping[str, list[Record]], float]:
    started = time.perf_counter()
    return block.compute(settings), time.perf_counter() - started


def _all_of(folder: Path, blocks: Sequence[Block], settings: Settings) -> list[Block]:
    return [_keep(folder, block, *_timed(block, settings)) for block in blocks]


def _finished(run: Run, folder: Path, blocks: Sequence[Block]) -> Iterator[Block]:
    """Blocks as they are computed and kept; what is in them does not depend on the order."""
    if run.engine != "local":
        yield from _by_engine(run, folder, blocks)
    elif run.platform == "cpu":
        for block in blocks:
            yield _keep(folder, block, *_timed(block, run.settings))
    elif blocks:
        yield from _by_processes(run, folder, blocks)


def _is_drawing(block: Block) -> bool:
    return STUDIES[block.study].draws and block.part == DEFAULT_PART


def _by_processes(run: Run, folder: Path, blocks: Sequence[Block]) -> Iterator[Block]:
    """Several processes on one device; blocks of the same shapes go to the same one, which compiles for them once."""
    together: dict[tuple[str, str, str], list[Block]] = {}
    for block in blocks:
        shape = block.case if block.case.isdigit() or block.case in UCI else ""
        if _is_drawing(block):
            shape = str(block.numbers[0])
        if STUDIES[block.study].once:
            shape = block.case
        together.setdefault((block.study, block.part, shape), []).append(block)
    longest_first = sorted(together.values(), key=lambda task: -sum(block.work for block in task))
    tasks = sorted(longest_first, key=lambda task: not _is_drawing(task[0]))
    flags = f"{os.environ.get('XLA_FLAGS', '')} {GPU_FLAGS}".strip()
    workers = max(1, min(WORKERS_GPU, (os.cpu_count() or 2) - 2))
    with (
        _environment(XLA_FLAGS=flags, XLA_PYTHON_CLIENT_PREALLOCATE="false"),
        ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool,
    ):
        for future in as_completed([pool.submit(_all_of, folder, task, run.settings) for task in tasks]):
            yield from future.result()


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Variables for the processes started inside."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _by_engine(run: Run, folder: Path, blocks: Sequence[Block]) -> Iterator[Block]:
    """The same blocks as tasks elsewhere, the longest first, so that no worker ends alone; they are kept here."""
    tasks = sorted(blocks, key=lambda block: -block.work)
    compute = partial(_timed, settings=replace(run.settings, device=run.platform))
    for number, computed in run_tasks(compute, tasks, engine=run.engine, **task_needs(run.platform)):  # type: ignore[arg-type]
        yield _keep(folder, tasks[number], *computed)


# -- what is written ----------------------------------------------------------------------------------------


def _write(run: Run, folder: Path, blocks: Sequence[Block]) -> Path:
    """Records, tables, figures and the report, from the blocks."""
    from gbpl.paper.printing.figures import draw
    from gbpl.paper.printing.tables import latex, markdown
    from gbpl.paper.report import report
    from gbpl.paper.verdicts.statements import as_json

    files: dict[str, list[Path]] = {}
    for block in blocks:
        for table, path in block.paths(folder).items():
            if table in run.wanted:
                files.setdefault(table, []).append(path)
    records: dict[str, Records] = {}
    for table, paths in files.items():
        records[table] = read_blocks(paths)
        records[table].write(folder / "records" / f"{table}.csv")
    (folder / "tables").mkdir(exist_ok=True)
    printed = {table: lines for table, lines in records.items() if table in TABLES}
    for table, lines in printed.items():
        (folder / "tables" / f"{table}.md").write_text(markdown(TABLES[table], lines))
        (folder / "tables" / f"{table}.tex").write_text(latex(TABLES[table], lines))
    arrays = _example(run, folder) if EXAMPLE in run.wanted else None
    figures = draw(printed, folder / "figures", example=arrays)
    cases = [
        (table, case)
        for table, lines in printed.items()
        for case in dict.fromkeys(row[0] for row in lines.rows())
        if case != AUTO
    ]
    text = report(records, truths=truths(run.settings, cases), run=_facts(run, folder), figures=figures)
    (folder / "verdicts.json").write_text(as_json(records))
    path = folder / "REPORT.md"
    path.write_text(text)
    return path


def _example(run: Run, folder: Path) -> dict[str, np.ndarray]:
    """Arrays of the posterior example, kept like a block."""
    path = folder / "records" / f"{EXAMPLE}.npz"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".part.npz")
        np.savez_compressed(unfinished, allow_pickle=False, **example(run.settings))
        unfinished.replace(path)
    with np.load(path) as kept:
        return {name: kept[name] for name in kept.files}


def _facts(run: Run, folder: Path) -> dict[str, Any]:
    seconds: dict[str, float] = {}
    with contextlib.suppress(FileNotFoundError):
        for line in (folder / "seconds.csv").read_text().splitlines():
            study, *_, taken = line.split(",")
            seconds[study] = seconds.get(study, 0.0) + float(taken)
    versions = {"python": platform.python_version()}
    for name in ("gbpl", "jax", "numpy", "optax"):
        with contextlib.suppress(PackageNotFoundError):
            versions[name] = version(name)
    device = resolve_devices(run.device)[0]  # type: ignore[arg-type]
    return {
        "wall": seconds.pop(WALL, 0.0),
        "seconds": seconds,
        "device": f"{device.device_kind} ({device.platform})",
        "versions": versions,
        **asdict(run),
    }
