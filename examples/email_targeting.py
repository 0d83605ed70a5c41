"""Which e-mail for whom, from a campaign in which the e-mail was drawn at random.

    python examples/email_targeting.py [--figures DIR] [--report FILE] [--data-dir DIR] [--customers N]

Hillstrom's trial (64,000 customers, three arms) where hillstrom.csv is in the data folder (GBPL_DATA_DIR); otherwise a
simulated campaign with the same columns, whose truth is known, so that every estimate can be compared with it.
It learns from N customers drawn from the table, 8,000 if not told otherwise.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gbpl import Study, learn
from gbpl.datasets import Dataset, DataUnavailableError, EmailDesign, load
from gbpl.study.summary import PROBABILITIES

COST = {
    "Mens E-Mail": 0.01,
    "Womens E-Mail": 0.01,
}  # of an e-mail, in visits: a hundred for one visit
CUSTOMERS, NEW_CUSTOMERS = 8_000, 20_000
COLORS = {"Mens E-Mail": "#0072B2", "No E-Mail": "#BBBBBB", "Womens E-Mail": "#E69F00"}


def campaign(data_dir: Any, customers: int, seed: int) -> tuple[Dataset, EmailDesign | None]:
    """The trial, and the design behind it where there is one."""
    try:
        data, design = load("hillstrom", data_dir=data_dir, outcome="visit"), None
    except DataUnavailableError:
        data, design = load("email", outcome="visit"), EmailDesign("visit")
    some = np.random.default_rng(seed).permutation(data.n_rows)[:customers]
    return replace(data, frame=data.frame.iloc[some]), design


def study_of(data: Dataset, seed: int) -> Study:
    """From the table to the policy: text columns are encoded, missing values filled in, and everything evaluated."""
    return learn(
        data.frame, outcome=data.outcome, action=data.action, features=data.features, propensity=data.propensity,
        cost=COST, default="No E-Mail", source=data.name, seed=seed,
    )  # fmt: skip


def truth_of(study: Study, design: EmailDesign, seed: int) -> dict[str, float]:
    """True welfare of the policy, of each arm and of the best possible rule, for new customers."""
    new = design.frame(NEW_CUSTOMERS, seed=seed + 1)
    mean = design.outcome_mean(design.numeric(new)) - [COST.get(arm, 0.0) for arm in design.actions]
    place = {arm: number for number, arm in enumerate(design.actions)}
    chosen = [place[label] for label in study.policy.decide(new).action.tolist()]
    arms = {f"everybody gets {arm}": float(mean[:, number].mean()) for arm, number in place.items()}
    policy, best = mean[np.arange(len(new)), chosen], mean.max(axis=1)
    return {"the policy": float(policy.mean()), **arms, "as logged": float(mean.mean()), "best": float(best.mean())}


def table_of(study: Study, truth: dict[str, float]) -> list[dict[str, Any]]:
    """The policy and its alternatives: visits per customer net of cost, and what the policy gains over each."""

    def central(quantiles: list[float]) -> list[float]:
        return np.interp([0.025, 0.975], PROBABILITIES, quantiles).tolist()

    welfare = study.summary["welfare"]
    lines = [{"label": "the policy", "value": welfare["estimate"], "ends": central(welfare["quantiles"])}]
    for other in study.summary["alternatives"]:
        ends = [other["value"] - 1.96 * other["se"], other["value"] + 1.96 * other["se"]]
        line = {name: other[name] for name in ("label", "value", "gain", "chance")}
        lines.append({**line, "ends": ends, "gain_ends": central(other["gain_quantiles"])})
    for line in lines:
        line["truth"] = truth.get(line["label"])
        line["true_gain"] = truth["the policy"] - line["truth"] if truth else None
    return lines


def show(study: Study, lines: list[dict[str, Any]], truth: dict[str, float]) -> None:
    data = study.summary["data"]
    print(f"{data['source']}: {data['rows']:,} customers, visits per customer net of cost")
    for line in lines:
        known = f"  truth {line['truth']:.4f}" if truth else ""
        print(f"  {line['label']:30} {line['value']:.4f} ({line['ends'][0]:.4f} to {line['ends'][1]:.4f}){known}")
    if truth:
        print(f"  {'the best possible rule':55}  truth {truth['best']:.4f}")
    print("what the policy gains over")
    for line in lines[1:]:
        known = f"  truth {line['true_gain']:.4f}" if truth else ""
        ends = f"({line['gain_ends'][0]:.4f} to {line['gain_ends'][1]:.4f})"
        print(f"  {line['label']:30} {line['gain']:.4f} {ends}, chance {line['chance']:.3f}{known}")
    print("who gets what:", ", ".join(f"{arm['share']:.1%} {arm['label']}" for arm in study.summary["actions"]))


def draw(study: Study, lines: list[dict[str, Any]], folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 3.4), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2)
    for place, line in enumerate(reversed(lines)):
        color = "#0072B2" if line["label"] == "the policy" else "#767676"
        left.plot(line["ends"], [place, place], color=color, lw=2)
        left.plot(line["value"], place, "o", color=color, label=None if place else "estimate, 95 %")
        if line["truth"] is not None:
            left.plot(line["truth"], place, "x", color="#D55E00", ms=8, mew=2, label=None if place else "truth")
    left.set_yticks(range(len(lines)), [line["label"].replace("everybody gets ", "all: ") for line in reversed(lines)])
    left.set(xlabel="visits per customer, net of cost", ylim=(-0.6, len(lines) - 0.4))
    bars = [(f"{who['feature']} {part['label']}", part["shares"]) for who in study.summary["who"][:3]
            for part in who["bins"]][::-1]  # fmt: skip
    begin = np.zeros(len(bars))
    for number, arm in enumerate(study.summary["actions"]):
        share = np.array([shares[number] for _, shares in bars])
        right.barh(range(len(bars)), share, left=begin, color=COLORS[arm["label"]], height=0.8, label=arm["label"])
        begin += share
    right.set_yticks(range(len(bars)), [name for name, _ in bars], fontsize=8)
    right.set(xlabel="share of customers who get it", xlim=(0, 1))
    for ax, columns in ((left, 2), (right, 3)):
        ax.legend(
            frameon=False, fontsize=8, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=columns, handlelength=0.8
        )
        ax.spines[["top", "right"]].set_visible(False)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / f"email_targeting{'' if lines[0]['truth'] else '-hillstrom'}.png")


def main(
    *,
    figures: Path | None = None,
    report: Path | None = None,
    data_dir: Any = None,
    customers: int = CUSTOMERS,
    seed: int = 0,
) -> dict[str, Any]:
    """Estimates and, where it is known, truth of the policy and its alternatives, and the share of each arm."""
    data, design = campaign(data_dir, customers, seed)
    study = study_of(data, seed)
    truth = {} if design is None else truth_of(study, design, seed)
    lines = table_of(study, truth)
    show(study, lines, truth)
    if report is not None:
        study.report(report)
    if figures is not None:
        draw(study, lines, figures)
    shares = {arm["label"]: arm["share"] for arm in study.summary["actions"]}
    return {"source": data.name, "lines": lines, "truth": truth, "shares": shares}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help="folder for the picture")
    parser.add_argument("--report", type=Path, help="file for the report, one HTML page")
    parser.add_argument("--data-dir", help="folder with hillstrom.csv or hillstrom.csv.gz (else GBPL_DATA_DIR)")
    parser.add_argument("--customers", type=int, default=CUSTOMERS, help="how many to learn from (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
