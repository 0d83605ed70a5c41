"""Whether the default learner is right about itself: probabilities, threshold rules, gains, and the spread of welfare.

python benchmarks/reliability.py run --records FILE [--cases NAME ...] [--seeds FIRST COUNT]
python benchmarks/reliability.py table --records FILE ... [--figure FILE]

`run` fits `GBPL()` as shipped to samples of the designs in `designs.py` and appends one line of JSON per replication;
`table` prints what they come to. Replication r has data seed r and random_state r. Rows to decide are the same 1,000 in
all replications of a design, with known mean outcomes. Seeds from 5,000 on are those of docs/calibration.md; the
constants of `gbpl.posterior.committee` were chosen on seeds below 200.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import defaultdict
from pathlib import Path

import numpy as np
from designs import CASES, fresh, sample

from gbpl import GBPL
from gbpl.decisions.rules import threshold_rule

EDGES = np.array([0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0 + 1e-9])
ALPHAS = (0.05, 0.1, 0.2, 0.3, 0.4)
LEVEL = 0.9


def replicate(name: str, seed: int) -> dict:
    """One fit, and what it says beside the truth."""
    case = CASES[name]
    x, given = sample(case, seed)
    z, mean = fresh(case)
    rows = np.arange(len(z))
    start = time.process_time()
    policy = GBPL(random_state=seed, progress=False).fit(x, **given)
    fitted = time.process_time()
    posterior = policy.posterior()
    p = posterior.action_probability(z)
    seconds = {"fit": fitted - start, "posterior": time.process_time() - fitted}
    top, said = p.argmax(axis=1), p.max(axis=1)
    best = np.isclose(mean, mean.max(axis=1, keepdims=True), atol=1e-9)
    right = best[rows, top] / np.where(best.all(axis=1), mean.shape[1], 1)  # of equal actions, one is as good as any
    place = np.digitize(said, EDGES) - 1
    bins = [[float(part[place == b].sum()) for part in (np.ones(len(z)), said, right)] for b in range(len(EDGES) - 1)]
    chosen = policy.predict(z).astype(int)
    gain = policy.expected_gain(z, level=LEVEL)
    truth = mean - mean[:, :1]
    inside = ((truth >= gain.low) & (truth <= gain.high))[:, 1:]
    welfare = float(mean[rows, chosen].mean())
    thresholds = {}
    for alpha in ALPHAS:
        action = threshold_rule(p, alpha=alpha).action
        leave = 1.0 - p[:, 0]
        thresholds[str(alpha)] = {
            "difference": float(mean[rows, action].mean()) - welfare,
            "uncertain": float(np.mean((leave >= alpha) & (leave <= 1.0 - alpha))),
        }
    return {
        "case": name, "seed": seed, "seconds": seconds, "bins": bins, "welfare": welfare,
        "regret": float(mean.max(axis=1).mean()) - welfare, "default": float(mean[:, 0].mean()),
        "sd": posterior.welfare(z, mean).sd, "inside": float(inside.mean()),
        "width": float((gain.high - gain.low)[:, 1:].mean()), "thresholds": thresholds,
        "agree": float(np.mean(top == chosen)),
    }  # fmt: skip


def run(records: Path, cases: list[str], first: int, count: int) -> None:
    done = set()
    if records.exists():
        done = {(line["case"], line["seed"]) for line in map(json.loads, records.read_text().splitlines())}
    for name in cases:
        for seed in range(first, first + count):
            if (name, seed) in done:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                line = replicate(name, seed)
            with records.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(name, seed, {k: round(v, 1) for k, v in line["seconds"].items()}, flush=True)


def _error(values: list[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values)))


def table(files: list[Path]) -> dict[str, list[dict]]:
    by_case: dict[str, list[dict]] = defaultdict(list)
    for file in files:
        for text in file.read_text().splitlines():
            line = json.loads(text)
            by_case[line["case"]].append(line)
    names = [name for name in CASES if name in by_case]
    print("| design | fits | off by | said over right at most | said, right (share of rows) |\n|---|---|---|---|---|")
    for name in names:
        total = np.sum([line["bins"] for line in by_case[name]], axis=0)
        share = total[:, 0] / total[:, 0].sum()
        with np.errstate(invalid="ignore"):
            said, right = total[:, 1] / total[:, 0], total[:, 2] / total[:, 0]
        off = float(np.nansum(share * np.abs(said - right)))
        worst = np.max((said - right)[share >= 0.05])
        cells = " ".join(
            f"{s:.2f} {r:.2f} ({100 * w:.0f})" for s, r, w in zip(said, right, share, strict=True) if w > 0.01
        )
        print(f"| {name} | {len(by_case[name])} | {off:.3f} | {worst:+.3f} | {cells} |")
    print("\n| design | regret (se) | sd of welfare over fits | said (ratio) | gains covered (se), width | "
          "threshold less rule at 0.05, 0.1, 0.2, 0.4 | uncertain rows at 0.05, 0.2 | most probable = chosen | "
          "CPU s of fit, posterior |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|")
    for name in names:
        lines = by_case[name]
        regret, covered = [line["regret"] for line in lines], [line["inside"] for line in lines]
        spread, said = np.std([line["welfare"] for line in lines], ddof=1), np.mean([line["sd"] for line in lines])
        differences = [
            np.mean([line["thresholds"][a]["difference"] for line in lines]) for a in ("0.05", "0.1", "0.2", "0.4")
        ]
        uncertain = [np.mean([line["thresholds"][a]["uncertain"] for line in lines]) for a in ("0.05", "0.2")]
        seconds = [np.median([line["seconds"][part] for line in lines]) for part in ("fit", "posterior")]
        ratio = f"{said / spread:.2f}" if spread > 1e-9 else "-"
        print(
            f"| {name} | {np.mean(regret):.4f} ({_error(regret):.4f}) | {spread:.4f} | {said:.4f} ({ratio}) | "
            f"{np.mean(covered):.3f} ({_error(covered):.3f}), {np.mean([line['width'] for line in lines]):.2f} | "
            f"{' '.join(f'{d:+.4f}' for d in differences)} | {' '.join(f'{u:.2f}' for u in uncertain)} | "
            f"{np.mean([line['agree'] for line in lines]):.3f} | {seconds[0]:.1f} {seconds[1]:.2f} |"
        )
    print("\n| design | default for all | act where sure (0.05), else default | (0.2) | rule of `predict` |")
    print("|---|---|---|---|---|")
    for name in names:
        lines = by_case[name]
        welfare = np.array([line["welfare"] for line in lines])
        acting = [welfare + [line["thresholds"][alpha]["difference"] for line in lines] for alpha in ("0.05", "0.2")]
        cells = [np.array([line["default"] for line in lines]), *acting, welfare]
        print(f"| {name} | " + " | ".join(f"{np.mean(cell):.4f} ({_error(list(cell)):.4f})" for cell in cells) + " |")
    return by_case


def figure(by_case: dict[str, list[dict]], path: Path) -> None:
    """Said against right, one panel per design; a dot's area is its share of the rows, bins of 1 % and more."""
    from matplotlib.figure import Figure

    names = [name for name in CASES if name in by_case]
    drawn = Figure(figsize=(10, 6.2), layout="constrained")
    axes = drawn.subplots(3, 6, sharex=True, sharey=True).ravel()
    for ax in axes[len(names) :]:
        ax.set_axis_off()
    for ax, name in zip(axes, names, strict=False):
        total = np.sum([line["bins"] for line in by_case[name]], axis=0)
        rows, said, right = total[total[:, 0] >= 0.01 * total[:, 0].sum()].T
        ax.plot([0.2, 1.0], [0.2, 1.0], color="0.7", linewidth=0.8, zorder=0)
        ax.plot(said / rows, right / rows, color="#0072b2", linewidth=0.8)
        ax.scatter(said / rows, right / rows, s=200 * rows / rows.sum(), color="#0072b2", alpha=0.7)
        words = name.split()
        ax.set_title(f"{' '.join(words[:-2])}\n{' '.join(words[-2:])}", fontsize=8)
        ax.set(xlim=(0.3, 1.03), ylim=(0.3, 1.03))
        ax.tick_params(labelsize=7)
    drawn.supxlabel("largest action probability", fontsize=9)
    drawn.supylabel("share of rows where that action is the best", fontsize=9)
    drawn.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--records", type=Path, nargs="+", required=True)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", type=int, nargs=2, default=(5000, 100), metavar=("FIRST", "COUNT"))
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    if given.what == "run":
        run(given.records[0], given.cases, *given.seeds)
    else:
        by_case = table(given.records)
        if given.figure is not None:
            figure(by_case, given.figure)


if __name__ == "__main__":
    main()
