"""Whether what `GBPL()` says about its value, its gains and its chances is true, also where there is little to find.

python benchmarks/coverage.py run --records FILE [--designs NAME ...] [--seeds FIRST COUNT] [--step N] [--together N]
python benchmarks/coverage.py table --records FILE ...

`run` fits `GBPL()` as shipped to samples of the designs in `designs.STUDIES` (`gbpl.coverage_study`) and appends one
line of JSON per replication; `table` prints what they come to. With `--step 16` only every sixteenth batch of seeds
is run, from FIRST on, so that sixteen processes can share the work.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from pathlib import Path

from designs import STUDIES

from gbpl import GBPL, GBPLNet, coverage_study
from gbpl.coverage import CoverageStudy

LEARNERS = {"GBPL": GBPL, "GBPLNet": GBPLNet}


def run(records: Path, designs: list[str], seeds: list[int], together: int, learner: str) -> None:
    for first in seeds:
        for name in designs:
            design, n = STUDIES[name]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                study = coverage_study(
                    design, n=n, replications=together, together=together, start=first,
                    estimator=LEARNERS[learner](progress=False),
                )  # fmt: skip
            with records.open("a") as file:
                for one in study.records():
                    file.write(json.dumps({"design": name, **one}) + "\n")
            print(name, first, study.to_dict()["seconds_fit"], study.to_dict()["seconds_held_out"], flush=True)


def table(files: list[Path]) -> None:
    by_design = defaultdict(list)
    for file in files:
        for text in file.read_text().splitlines():
            line = json.loads(text)
            by_design[line.pop("design")].append(line)
    print("| design | fits | value covered (se) | gains covered (se), least | bands | z mean, sd | width | "
          "said > 90 %, right | > 95 %, right | regret (se) | CPU s: fit, held out |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    said, right = 0, 0
    for name in STUDIES:
        if name not in by_design:
            continue
        found = CoverageStudy.of_records(by_design[name]).to_dict()
        said, right = said + found["said_90"][0], right + found["said_90"][1]
        print(
            f"| {name} | {found['replications']} | {found['value_coverage']:.3f} ({found['value_coverage_se']:.3f}) | "
            f"{found['gain_coverage']:.3f} ({found['gain_coverage_se']:.3f}), {found['worst_gain_coverage']:.3f} | "
            f"{found['band_coverage']:.3f} | {found['z_mean']:+.2f}, {found['z_sd']:.2f} | {found['width']:.2f} | "
            f"{found['said_90'][0]}, {found['said_90'][1]} | {found['said_95'][0]}, {found['said_95'][1]} | "
            f"{found['regret']:.4f} ({found['regret_se']:.4f}) | {found['seconds_fit']:.1f}, "
            f"{found['seconds_held_out']:.1f} |"
        )
    print(f"\nsaid > 90 % in {said} fits, right in {right} ({right / max(said, 1):.3f})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--records", type=Path, nargs="+", required=True)
    parser.add_argument("--designs", nargs="*", default=list(STUDIES))
    parser.add_argument("--seeds", type=int, nargs=2, default=(20_000, 200), metavar=("FIRST", "COUNT"))
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--together", type=int, default=2)
    parser.add_argument("--learner", choices=list(LEARNERS), default="GBPL")
    given = parser.parse_args()
    if given.what == "table":
        table(given.records)
        return
    first, count = given.seeds
    seeds = list(range(first, first + count, given.together * given.step))
    run(given.records[0], given.designs, seeds, given.together, given.learner)


if __name__ == "__main__":
    main()
