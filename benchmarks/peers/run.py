"""Regret and seconds of gbpl beside other policy learners, on fixed cases: one command from nothing to the table.

    python benchmarks/peers/run.py --out DIR [--cases ...] [--methods ...] [--replications N] [--data-dir FOLDER]
                                   [--jobs 1] [--report-only] [--page docs/peers.md] [--before records.jsonl]

DIR takes everything: the environments of the peers, the problems, the log of each process, and a line for each case,
replication and method in records.jsonl, which is never computed again; then table.md, also printed. A run can be
interrupted and taken up again. README.md says what the methods are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, SPEED, Case, stored
from environments import NotInstallableError, environment, failure, variables
from packages import Packages
from page import page
from problems import Tables, regret
from records import OURS, OURS_VALUED, Record, Records, by_cell
from report import table
from results import Results

HERE = Path(__file__).resolve().parent
FAMILIES = {  # an environment each; its script, and its methods in the order of the tables
    "ours": ("ours.py", (OURS, OURS_VALUED)),
    "plugins": ("plugins.py", ("forest", "boosting", "boosting-tuned", "mlp", "linear")),
    "econml": ("econml_policies.py", ("econml-forest", "econml-tree", "econml-causal-forest")),
    "causalml": ("causalml_policies.py", ("causalml-dr", "causalml-x")),
    "obp": ("obp_policies.py", ("obp-ipw-logistic", "obp-ipw-forest", "obp-neural-dr")),
    "perpetual": ("perpetual_policies.py", ("perpetual-ipw", "perpetual-aipw")),
}
TIMED = (OURS, OURS_VALUED, "econml-forest", "forest")  # all that the cases of speed have, and no other has the value
DRAWING = threading.Lock()  # two methods may want a problem of one case at once
METHODS = {method: family for family, (_, methods) in FAMILIES.items() for method in methods}


@dataclass(frozen=True, slots=True)
class Work:
    """Replications of a case that a method does, one after the other."""

    case: Case
    method: str
    replications: tuple[int, ...]


def left(asked: argparse.Namespace, records: Records) -> Iterator[Work]:
    """What has no line yet, case by case."""
    for case in asked.cases:
        numbers = range(case.replications if asked.replications is None else asked.replications)
        for method in asked.methods:
            if method not in TIMED if case.kind == SPEED else method == OURS_VALUED:
                continue
            todo = tuple(number for number in numbers if (case.name, method, number) not in records.found)
            if todo:
                yield Work(case, method, todo)


class Processes:
    """A process for each family and thread, started when it is first asked and kept for all its cases."""

    def __init__(self, interpreters: Mapping[str, Path], asked: argparse.Namespace) -> None:
        self.interpreters, self.asked = interpreters, asked
        self.running: dict[tuple[str, int], subprocess.Popen[str]] = {}

    def answer(self, family: str, job: dict[str, Any]) -> dict[str, Any]:
        """A process that dies costs the job it was at; the next job has another."""
        key = family, threading.get_ident()
        if key not in self.running:
            self.running[key] = self._start(family)
        answer = asked_of(self.running[key], job)
        if answer is None:
            status = self.running.pop(key).wait()
            return {"error": f"the process ended with exit status {status}: see logs/{family}.log"}
        return answer

    def _start(self, family: str) -> subprocess.Popen[str]:
        log = self.asked.out / "logs" / f"{family}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("a") as output:
            return subprocess.Popen(
                [str(self.interpreters[family]), str(HERE / "methods" / FAMILIES[family][0])],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True, bufsize=1,
                env=variables(self.asked.gbpl_source if family == "ours" else None),
            )  # fmt: skip

    def end(self, family: str | None = None) -> None:
        """This thread's process of a family; all processes without one."""
        keys = list(self.running) if family is None else [(family, threading.get_ident())]
        for key in keys:
            if key in self.running:
                self.running.pop(key).communicate()


def do(work: Work, processes: Processes, asked: argparse.Namespace, records: Records) -> None:
    """Run a method on its replications, for speed in a process of its own: its first fit is that of a fresh process."""
    family = METHODS[work.method]
    chosen = asked.out / "chosen" / work.case.name / work.method
    chosen.mkdir(parents=True, exist_ok=True)
    if work.case.kind == SPEED:
        processes.end(family)
    for number in work.replications:
        with DRAWING:
            try:
                problem, truth = stored(work.case, number, asked.out, asked.tables)
            except (NotInstallableError, FileNotFoundError) as error:
                print(f"{work.case.name} cannot be drawn: {error}", flush=True)
                return
        answer_file = chosen / f"{number}.npz"
        job = {"method": work.method, "problem": str(problem), "chosen": str(answer_file), "seed": number}
        answer = processes.answer(family, job)
        if "seconds" in answer:
            answer |= judged(answer_file, truth)
        records.add(Record(work.case.name, work.method, number, **answer))


def asked_of(process: subprocess.Popen[str], job: dict[str, Any]) -> dict[str, Any] | None:
    """The answer, or None if the process is no more."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        print(json.dumps(job), file=process.stdin)
    except BrokenPipeError:
        return None
    line = process.stdout.readline()
    return json.loads(line) if line else None


def judged(chosen: Path, truth: Path) -> dict[str, Any]:
    with np.load(chosen) as answer, np.load(truth) as known:
        try:
            return {"regret": regret(answer["action"], known["outcome_mean"], float(known["best"]))}
        except ValueError as error:
            return {"seconds": None, "cpu_seconds": None, "error": str(error)}


def interpreters(asked: argparse.Namespace, work: Sequence[Work]) -> dict[str, Path]:
    """Those of the families with work left, without the ones that cannot be installed."""
    found: dict[str, Path] = {}
    for family in dict.fromkeys(METHODS[each.method] for each in work):
        if family == "ours":
            found[family] = Path(asked.gbpl_python)
            continue
        try:
            print(f"environment of {family}", flush=True)
            found[family] = environment(family, asked.out / "envs", asked.peer_python)
        except NotInstallableError as error:
            print(f"{family} is not installable: {error}", flush=True)
    return found


def run(asked: argparse.Namespace, records: Records) -> None:
    work = list(left(asked, records))
    ready = interpreters(asked, work)
    todo = [each for each in work if METHODS[each.method] in ready]
    processes = Processes(ready, asked)
    with ThreadPoolExecutor(asked.jobs) as pool:
        started = [pool.submit(do, each, processes, asked, records) for each in todo]
        try:
            for future in started:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    processes.end()


def matching(name: str, patterns: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    """Known names that match a pattern, all without one, in their order."""
    for pattern in patterns or ():
        if not any(fnmatchcase(each, pattern) for each in known):
            raise SystemExit(f"--{name} must match some of {', '.join(known)}, got {pattern!r}; try {known[0]!r}")
    return [each for each in known if patterns is None or any(fnmatchcase(each, pattern) for pattern in patterns)]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--cases", nargs="+", help="names or patterns such as 'binary/*/500'")
    parser.add_argument("--methods", nargs="+", help="names or patterns such as 'econml-*'")
    parser.add_argument("--replications", type=int, help="10 up to 3,000 rows to learn from, else 5")
    parser.add_argument("--data-dir", type=Path, default=HERE.parents[2] / "shared" / "data")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once; seconds are only fair with 1")
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--page", type=Path, help="also write the page of the documentation there")
    parser.add_argument("--before", type=Path, help="records.jsonl of an earlier gbpl, to compare with")
    parser.add_argument("--gbpl-python", default=sys.executable, help="with the dependencies of gbpl")
    parser.add_argument("--gbpl-source", type=Path, default=HERE.parents[1] / "src", help="of another checkout")
    parser.add_argument("--peer-python", default=sys.executable, help="3.11, to make the environments of the peers")
    asked = parser.parse_args()
    for name in ("replications", "jobs"):
        if getattr(asked, name) is not None and getattr(asked, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(asked, name)}; leave it out for the default")
    asked.cases = [CASES[name] for name in matching("cases", asked.cases, list(CASES))]
    asked.methods = matching("methods", asked.methods, list(METHODS))
    for name in ("before", "gbpl_source"):
        given = getattr(asked, name)
        if given is not None and not given.exists():
            parser.error(f"--{name.replace('_', '-')} must exist, got {given}; leave it out for the default")
    asked.out, asked.gbpl_source = asked.out.resolve(), asked.gbpl_source.resolve()
    asked.tables = Tables(asked.data_dir, Packages(asked.out, asked.peer_python))
    return asked


def main() -> None:
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    records = Records(asked.out / "records.jsonl")
    if not asked.report_only:
        run(asked, records)
    missing = {family: failure(family, asked.out / "envs") for family in FAMILIES}
    failed = {method: reason for method, family in METHODS.items() if (reason := missing[family]) is not None}
    before = by_cell(Records(asked.before).found.values()) if asked.before else {}
    results = Results(by_cell(records.found.values()), list(METHODS), failed, before)
    text = table(results)
    (asked.out / "table.md").write_text(text)
    if asked.page is not None:
        asked.page.write_text(page(results))
    print(text)


if __name__ == "__main__":
    main()
