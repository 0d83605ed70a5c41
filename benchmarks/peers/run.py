"""Regret and seconds of gbpl beside other policy learners, on fixed cases: one command from nothing to the table.

    python benchmarks/peers/run.py --out DIR [--cases ...] [--methods ...] [--replications N] [--data-dir FOLDER]
                                   [--jobs 1] [--report-only]

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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
from cases import CASES, Case, regret, stored
from environments import NotInstallableError, environment, failure, variables
from report import OURS, Record, table

HERE = Path(__file__).resolve().parent
FAMILIES = {  # an environment and a script each, and its methods in the order of the table
    "ours": (OURS,),
    "plugins": ("forest", "boosting", "mlp", "linear"),
    "econml": ("econml-forest", "econml-tree"),
    "causalml": ("causalml-dr", "causalml-x"),
    "obp": ("obp-ipw-logistic", "obp-ipw-forest"),
}
SCRIPTS = {
    "ours": "ours.py",
    "plugins": "plugins.py",
    "econml": "econml_policies.py",
    "causalml": "causalml_policies.py",
    "obp": "obp_policies.py",
}
DRAWING = threading.Lock()  # two methods may want a problem of one case at once
METHODS = {method: family for family, methods in FAMILIES.items() for method in methods}


class Records:
    """Lines of DIR/records.jsonl, by case, method and replication. Threads may add."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, threading.Lock()
        self.found: dict[tuple[str, str, int], Record] = {}
        if path.exists():
            for line in path.read_text().splitlines():
                self._keep(Record(**json.loads(line)))

    def _keep(self, record: Record) -> None:
        self.found[record.case, record.method, record.replication] = record

    def add(self, record: Record) -> None:
        with self.lock:
            self._keep(record)
            with self.path.open("a") as lines:
                print(json.dumps(record.line()), file=lines)
            print(record, flush=True)


@dataclass(frozen=True, slots=True)
class Work:
    """Replications of a case that one process of a method does, one after the other."""

    case: Case
    method: str
    replications: tuple[int, ...]


def left(asked: argparse.Namespace, records: Records) -> Iterator[Work]:
    """What has no line yet, case by case."""
    for case in asked.cases:
        numbers = range(case.replications if asked.replications is None else asked.replications)
        for method in asked.methods:
            todo = tuple(number for number in numbers if (case.name, method, number) not in records.found)
            if todo:
                yield Work(case, method, todo)


def do(work: Work, interpreter: Path, asked: argparse.Namespace, records: Records) -> None:
    """Run a method on its replications. A process that dies costs the replication it was at; another does the rest."""
    family, process = METHODS[work.method], None
    log = asked.out / "logs" / work.case.name / f"{work.method}.log"
    chosen = asked.out / "chosen" / work.case.name / work.method
    for folder in (log.parent, chosen):
        folder.mkdir(parents=True, exist_ok=True)
    with log.open("a") as output:
        for number in work.replications:
            with DRAWING:
                problem, truth = stored(work.case, number, asked.out, asked.data_dir)
            if process is None:
                process = subprocess.Popen(
                    [str(interpreter), str(HERE / "methods" / SCRIPTS[family])],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True, bufsize=1,
                    env=variables(ours=family == "ours"),
                )  # fmt: skip
            answer_file = chosen / f"{number}.npz"
            job = {"method": work.method, "problem": str(problem), "chosen": str(answer_file), "seed": number}
            answer = asked_of(process, job)
            if answer is None:
                answer = {"error": f"the process ended with exit status {process.wait()}: see {log.name}"}
                process = None
            elif "seconds" in answer:
                answer |= judged(answer_file, truth)
            records.add(Record(work.case.name, work.method, number, **answer))
        if process is not None:
            process.communicate()


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
            return {"regret": regret(answer["action"], known["outcome_mean"])}
        except ValueError as error:
            return {"seconds": None, "error": str(error)}


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
    with ThreadPoolExecutor(asked.jobs) as pool:
        started = [pool.submit(do, each, ready[METHODS[each.method]], asked, records) for each in todo]
        try:
            for future in started:
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


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
    parser.add_argument("--replications", type=int, help="10 up to n = 3000 and of classification, else 5")
    parser.add_argument("--data-dir", type=Path, default=HERE.parents[2] / "shared" / "data")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once; seconds are only fair with 1")
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--gbpl-python", default=sys.executable, help="with the dependencies of gbpl")
    parser.add_argument("--peer-python", default=sys.executable, help="3.11, to make the environments of the peers")
    asked = parser.parse_args()
    for name in ("replications", "jobs"):
        if getattr(asked, name) is not None and getattr(asked, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(asked, name)}; leave it out for the default")
    asked.cases = [CASES[name] for name in matching("cases", asked.cases, list(CASES))]
    asked.methods = matching("methods", asked.methods, list(METHODS))
    asked.out = asked.out.resolve()
    return asked


def main() -> None:
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    records = Records(asked.out / "records.jsonl")
    if not asked.report_only:
        run(asked, records)
    missing = {family: failure(family, asked.out / "envs") for family in FAMILIES}
    failed = {method: reason for method, family in METHODS.items() if (reason := missing[family]) is not None}
    text = table(list(records.found.values()), list(CASES), list(METHODS), failed)
    (asked.out / "table.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
