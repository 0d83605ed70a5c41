"""Ten actions, one guess per picture: reading digits from a log that says only whether the guess was right.

    python examples/many_actions.py [--figures DIR]

A policy that knows nothing about digits guessed once for each of scikit-learn's 1,797 pictures, with known chances.
Policies are learned from 1,200 such rows with several pseudo-outcomes, and evaluated on the other 597 twice: by the
log, as one would have to in practice, and by the labels, which nothing has learned from.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from gbpl import GBPL, GBPLNet, OverlapReport
from gbpl.datasets import load

TRAIN, FEW = 1_200, 120
CONSTRUCTIONS = ("dr", "ipw", "dm")


def estimator(name: str, seed: int) -> GBPLNet:
    """`GBPL()`, which takes doubly robust pseudo-outcomes, or what it is made of with another construction."""
    if name == "dr":
        return GBPL(random_state=seed)
    return GBPLNet(model="auto", outcome_model="auto", pseudo_outcome=name, random_state=seed)


def rows(seed: int) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """The log of the training rows and of the test rows as arguments of `fit`, and the right answers for both."""
    data, answers = load("digits_logged"), load("digits")
    log = {name: np.asarray(part) for name, part in data.arguments().items()}
    right = answers.frame[answers.outcomes].to_numpy(float)
    order = np.random.default_rng(seed).permutation(len(right))
    train, test = order[:TRAIN], order[TRAIN:]
    parts = [{name: column[some] for name, column in log.items()} for some in (train, test)]
    return parts[0], parts[1], right[train], right[test]


def by_labels(policy: GBPLNet, x: np.ndarray, right: np.ndarray) -> dict[str, Any]:
    """Share of right answers on the test rows: of the most probable answer, of a random draw, and by digit."""
    chance = policy.predict_proba(x)
    hit = right[np.arange(len(x)), chance.argmax(axis=1)]
    return {
        "accuracy": float(hit.mean()),
        "se": float(hit.std() / np.sqrt(len(hit))),
        "drawn": float(np.sum(chance * right, axis=1).mean()),
        "by_digit": [float(hit[right[:, digit] == 1].mean()) for digit in range(10)],
    }


def learned(
    train: dict[str, Any], test: dict[str, Any], right: list[np.ndarray], seed: int
) -> tuple[dict[str, dict[str, Any]], OverlapReport]:
    """Each construction, then full feedback on the same rows and on a tenth of them; and the overlap of the log."""
    policies: dict[str, dict[str, Any]] = {}
    for name in CONSTRUCTIONS:
        policy = estimator(name, seed).fit(**train)
        policies[name] = by_labels(policy, test["X"], right[1])
        policies[name]["log"] = policy.value(**test, estimator="snipw").to_dict()
        if name == "dr":  # the default
            overlap, policies[name]["inside"] = policy.overlap_, policy.cross_fitted_value().to_dict()
    for count in (TRAIN, FEW):
        policy = GBPL(random_state=seed).fit(train["X"][:count], right[0][:count])
        policies[f"labels, {count:,} rows"] = by_labels(policy, test["X"], right[1])
    return policies, overlap


def show(policies: dict[str, dict[str, Any]], log: dict[str, Any]) -> None:
    print(f"the log: {log['rows']:,} guesses to learn from, {log['hits']} of them right ({log['share']:.1%})")
    print(f"  chance of the guess made: {log['smallest']:.3f} to {log['largest']:.3f}; {log['overlap']}")
    print(f"  effective rows per digit: {min(log['effective']):.0f} to {max(log['effective']):.0f}")
    print("right on the 597 other pictures:   truth          by their log           inside     drawn")
    print(f"  {'the policy that wrote the log':31} {log['truth']:.3f}")
    print(f"  {'a digit at random':31} 0.100")
    for name, part in policies.items():
        line = f"  {name:31} {part['accuracy']:.3f} ({part['se']:.3f})"
        if "log" in part:
            value = part["log"]
            line += f"  {value['estimate']:.3f} ({value['low']:.3f} to {value['high']:.3f})"
        if "inside" in part:
            line += f"  {part['inside']['estimate']:.3f}"
        print(f"{line:80} {part['drawn']:.3f}")


def draw(policies: dict[str, dict[str, Any]], log: dict[str, Any], folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.4), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2)
    for place, part in enumerate(reversed(policies.values())):
        if "log" in part:
            ends = [part["log"]["low"], part["log"]["high"]]
            left.plot(ends, [place, place], color="#0072B2", lw=2)
            left.plot(part["log"]["estimate"], place, "o", color="#0072B2", label="by the log, 95 %")
        left.plot(part["accuracy"], place, "x", color="#D55E00", ms=8, mew=2, label="by the labels")
    left.axvline(log["truth"], color="#767676", ls=":", label="policy of the log")
    handles = dict(zip(*left.get_legend_handles_labels()[::-1], strict=True))  # one entry per name
    left.legend(handles.values(), handles.keys(), frameon=False, fontsize=8, loc="lower center",
                bbox_to_anchor=(0.4, 1.0), ncols=3, handlelength=1, columnspacing=1)  # fmt: skip
    left.set_yticks(range(len(policies)), list(reversed(policies)))
    left.set(xlabel="share right on other pictures", xlim=(0, 1.06), ylim=(-0.5, len(policies) - 0.5))
    for name, color, marker in ((f"labels, {TRAIN:,} rows", "#E69F00", "s"), ("dr", "#0072B2", "o")):
        right.plot(range(10), policies[name]["by_digit"], marker, color=color, ms=7, label=name)
    right.set_xticks(range(10), [f"{digit}\n{hits}" for digit, hits in enumerate(log["hits_by_digit"])])
    right.set(xlabel="digit (below: right guesses in the log)", ylabel="share right, by digit", ylim=(None, 1.02))
    right.grid(axis="y", alpha=0.3)
    right.legend(frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, handlelength=1)
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "many_actions.png")


def main(*, figures: Path | None = None, seed: int = 0) -> dict[str, Any]:
    """Accuracy of each construction on other pictures, by their log and by their labels; the log in numbers."""
    train, test, *right = rows(seed)
    policies, overlap = learned(train, test, right, seed)
    hit = train["y"] == 1
    log = {
        "rows": len(hit), "hits": int(hit.sum()), "share": float(hit.mean()), "truth": float(test["y"].mean()),
        "hits_by_digit": [int(np.sum(train["action"][hit] == digit)) for digit in range(10)],
        "smallest": float(train["propensity"].min()), "largest": float(train["propensity"].max()),
        "effective": overlap.effective_size_by_action.tolist(),
        "overlap": "; ".join(overlap.reasons()) or "the overlap is not weak",
    }  # fmt: skip
    show(policies, log)
    if figures is not None:
        draw(policies, log, figures)
    return {"policies": policies, "log": log}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help="folder for the picture")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
