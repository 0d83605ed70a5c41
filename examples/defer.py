"""When should the rule decide, and when a clinician? Simulated patients, so that the truth is known.

    python examples/defer.py [--figures DIR]

A trial of 1,500 patients, treated according to a coin toss. The policy decides for 5,000 new patients; where its
posterior draws disagree it hands them to a clinician, whose time costs something.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from gbpl import GBPL, assess, defer_rule, map_rule, threshold_rule

TRIAL, NEW = 1_500, 5_000
LEVELS = np.round(np.linspace(0.0, 1.0, 21), 2)
COSTS = (0.0, 0.01, 0.02, 0.05)  # of a clinician's review of one patient, in units of the outcome
TIME = 0.02  # the cost that the picture shows
RIGHT = 0.85  # how often the clinician takes the better action
ALPHAS = (0.05, 0.1, 0.25, 0.5)
EDGES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def patients(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Features, and mean outcomes of waiting and of treating: treatment helps severe cases and harms frail ones."""
    x = np.random.default_rng(seed).normal(size=(n, 6))  # severity, frailty, one for the outcome, three of noise
    effect = 0.6 * np.tanh(1.5 * x[:, 0]) - 0.5 * np.maximum(x[:, 1], 0.0) + 0.1
    waiting = 0.5 * x[:, 2] - 0.3 * x[:, 0]
    return x, np.column_stack([waiting, waiting + effect])


def trial(n: int, seed: int) -> dict[str, Any]:
    """The data of a trial: who was treated, by a coin toss, and the outcomes. The noise has variance one."""
    x, mean = patients(n, seed)
    rng = np.random.default_rng([seed, 1])
    treated = rng.integers(2, size=n)
    outcome = mean[np.arange(n), treated] + rng.normal(size=n)
    return {"X": x, "y": outcome, "action": np.array(["wait", "treat"])[treated], "propensity": 0.5}


def handing_over(action: np.ndarray, split: np.ndarray, mean: np.ndarray, cost: float) -> list[dict[str, float]]:
    """Welfare when patients with disagreement above a level go to the clinician, and when as many go at random."""
    better, worse, own = mean.max(axis=1), mean.min(axis=1), mean[np.arange(len(mean)), action]
    clinician = RIGHT * better + (1 - RIGHT) * worse - cost
    curve = []
    for level in LEVELS.tolist():
        rule = defer_rule(action, split, level=level)
        assessment = assess(rule, mean, reference=action, deferred_value=clinician)
        perfect = assess(rule, mean, reference=action, deferred_value=better - cost)
        share, gain = assessment.deferred_share, assessment.difference
        lot = own.mean() + share * (clinician - own).mean()
        line = {"level": level, "share": share, "welfare": assessment.welfare, "gain": gain}
        curve.append({**line, "se": assessment.difference_se, "perfect": perfect.welfare, "by_lot": float(lot)})
    return curve


def careful(chance: np.ndarray, action: np.ndarray, mean: np.ndarray) -> list[dict[str, float]]:
    """Waiting is the safe default: treat only where draws agree with probability above 1 - alpha."""
    lines = []
    for alpha in ALPHAS:
        rule = threshold_rule(chance, alpha=alpha, default=0)
        gain = assess(rule, mean, reference=action, action_probability=chance, alpha=alpha).difference
        treated = rule.action == 1
        harmed = float(np.mean(mean[treated, 1] < mean[treated, 0])) if treated.any() else 0.0
        lines.append({"alpha": alpha, "treated": float(treated.mean()), "harmed": harmed, "gain": gain})
    return lines


def groups(action: np.ndarray, split: np.ndarray, mean: np.ndarray) -> list[dict[str, float]]:
    """By disagreement: the share of patients, how often the rule is wrong, and what that costs."""
    parts = []
    wrong, lost = action != mean.argmax(axis=1), mean.max(axis=1) - mean[np.arange(len(mean)), action]
    for low, high in pairwise(EDGES):
        rows = (split > low if low else split >= low) & (split <= high)
        part = {"wrong": float(wrong[rows].mean()), "lost": float(lost[rows].mean())} if rows.any() else {}
        parts.append({"low": low, "high": high, "share": float(rows.mean()), **part})
    return parts


def show(results: dict[str, Any]) -> None:
    known = results["known"]
    print(f"welfare of {NEW:,} new patients: the rule {known['rule']:.3f}, all wait {known['wait']:.3f}, "
          f"all treated {known['treat']:.3f}, best possible {known['best']:.3f}")  # fmt: skip
    print(f"from the trial alone: {results['estimate']}")
    print("disagreement    patients   wrong    lost")
    for part in results["groups"]:
        line = f"{part['low']:.1f} to {part['high']:.1f}     {part['share']:8.1%}"
        print(line + (f" {part['wrong']:8.1%} {part['lost']:7.3f}" if "wrong" in part else ""))
    print(f"a clinician who is right in {RIGHT:.0%} of cases, by cost per patient")
    for cost, curve in results["curves"].items():
        best = max(curve, key=lambda line: line["welfare"])
        advice = f"hand over above {best['level']:.2f}: {best['share']:5.1%} of patients"
        everybody = known["clinician"] - cost - known["rule"]
        print(f"  {cost:.2f}: {advice}, gain {best['gain']:.4f} ({best['se']:.4f}); everybody: {everybody:+.4f}")
    print("treat only where draws agree: alpha, treated, harmed by it, change in welfare")
    for line in results["careful"]:
        print(f"  {line['alpha']:.2f} {line['treated']:7.1%} {line['harmed']:7.1%} {line['gain']:+8.4f}")


def draw(results: dict[str, Any], folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.5), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2)
    curve = results["curves"][TIME]
    share = [line["share"] for line in curve]
    left.plot(share, [line["perfect"] for line in curve], color="#009E73", ls="-.", label="never wrong")
    left.plot(
        share, [line["welfare"] for line in curve], color="#0072B2", marker="o", ms=3, label=f"right in {RIGHT:.0%}"
    )
    left.plot(share, [line["by_lot"] for line in curve], color="#D55E00", ls="--", label="same, patients by lot")
    left.axhline(results["known"]["rule"], color="#767676", lw=1, ls=":", label="the rule alone")
    left.set(xlabel="share handed to the clinician", ylabel=f"welfare, at {TIME:g} a look")
    left.legend(frameon=False, fontsize=8, title="clinician", title_fontsize=8, loc="lower left")
    known = [part for part in results["groups"] if "wrong" in part]
    names = [f"{part['low']:.1f}–{part['high']:.1f}\n{part['share']:.0%}" for part in known]  # noqa: RUF001
    right.bar(names, [part["wrong"] for part in known], color="#56B4E9", width=0.7)
    right.axhline(1 - RIGHT, color="#0072B2", lw=1.5, label="the clinician's rate")
    right.set(xlabel="disagreement (below: share of patients)", ylabel="rule takes the worse action")
    right.legend(frameon=False, fontsize=8)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "defer.png")


def main(*, figures: Path | None = None, seed: int = 0) -> dict[str, Any]:
    """Welfare over the share handed over, errors by disagreement, threshold rules, and each patient's disagreement."""
    policy = GBPL(actions=["wait", "treat"], random_state=seed).fit(**trial(TRIAL, seed))
    x, mean = patients(NEW, seed + 1)
    chance = policy.posterior().action_probability(x)
    split = 2 * chance.min(axis=1)  # what posterior.disagreement gives for two actions
    action = map_rule(policy.predict_proba(x)).action
    results = {
        "known": {
            "rule": float(mean[np.arange(NEW), action].mean()), "wait": float(mean[:, 0].mean()),
            "treat": float(mean[:, 1].mean()), "best": float(mean.max(axis=1).mean()),
            "clinician": float((RIGHT * mean.max(axis=1) + (1 - RIGHT) * mean.min(axis=1)).mean()),
        },
        "estimate": str(policy.population_welfare(rule="deterministic")),
        "groups": groups(action, split, mean),
        "curves": {cost: handing_over(action, split, mean, cost) for cost in COSTS},
        "careful": careful(chance, action, mean),
        "disagreement": split,
    }  # fmt: skip
    show(results)
    if figures is not None:
        draw(results, figures)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help="folder for the picture")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
