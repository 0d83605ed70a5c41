"""Who should get it? Real trials, a price, and places for half of the people.

    python examples/treatment_choice.py [--figures DIR] [--data-dir DIR] [--full]

Cash for people in Malawi who come to learn the result of an HIV test (Thornton 2008), and jobs for men who had none
(the NSW programme; LaLonde 1986). With the file jtpa_kt.csv in the data folder (GBPL_DATA_DIR) also job training under
JTPA at 774 dollars per person. `--full` fits the default networks instead of small ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression

from gbpl import MLP, FitConfig, GBPLNet, Study, Value, learn
from gbpl.datasets import Dataset, DataUnavailableError, load

PLACES = 0.5  # the largest share of people who can get it
# Cost per person, in units of the outcome. Cash: one more person who learns the result is worth five payments. Work: a
# round number. Training: the number in the literature.
COST = {"thornton_hiv": 0.2, "nsw": 1000.0, "jtpa": 774.0}
WHAT = {"thornton_hiv": "cash: share who come", "nsw": "work: dollars in 1978", "jtpa": "training: dollars, 30 months"}


def estimator(full: bool, seed: int) -> GBPLNet:
    """The default, or something that takes seconds: small networks, linear outcome models, fewer folds."""
    if full:
        return GBPLNet(random_state=seed)
    quick = {"model": MLP(hidden=(32,)), "fit_config": FitConfig(learning_rate=3e-3, max_epochs=60)}
    return GBPLNet(outcome_model=LinearRegression(), committee=3, nuisance_folds=3, random_state=seed, **quick)


def study_of(data: Dataset, full: bool, seed: int) -> Study:
    """Action 1 costs something and is limited; the others get action 0."""
    frame, group = data.frame, None
    if data.name == "thornton_hiv":  # people of a village walk the same way: keep them together
        frame, group = frame.assign(village=frame["villnum"]), "village"
    return learn(
        frame, outcome=data.outcome, action=data.action, features=data.features, controls=data.controls,
        propensity=data.propensity, group=group, cost={1: COST[data.name]}, capacity={1: PLACES}, default=0,
        source=data.name, estimator=estimator(full, seed),
    )  # fmt: skip


def first_places(gain: np.ndarray, share: float) -> np.ndarray:
    """Action probabilities, zeros and ones: action 1 for the share of rows with most to gain by it."""
    taken = np.zeros(len(gain), int)
    taken[np.argsort(-gain, kind="stable")[: int(share * len(gain))]] = 1
    return np.eye(2)[taken]


def gains_of(study: Study) -> dict[str, Value]:
    """Gains net of cost, each row decided by a fit that saw nothing of its fold."""
    policy = study.fitted
    limited = first_places(policy.expected_gain(default=0)[:, 1], PLACES)
    by_lot = np.tile([1 - PLACES, PLACES], (len(limited), 1))
    return {
        "everybody against nobody": policy.cross_fitted_value(1, baseline=0),
        "rule against nobody": policy.cross_fitted_value(baseline=0),
        "rule against everybody": policy.cross_fitted_value(baseline=1),
        "half by the rule against nobody": policy.cross_fitted_value(limited, baseline=0),
        "half by the rule against half by lot": policy.cross_fitted_value(limited, rule="randomized", baseline=by_lot),
    }


def verdict(gain: Value) -> str:
    """What the 95 % interval of a gain says."""
    low, high = gain.interval()
    return "the same" if low == high == 0 else "better" if low > 0 else "worse" if high < 0 else "not settled"


def show(study: Study, gains: dict[str, Value], cost: float) -> None:
    summary, whole = study.summary, gains["everybody against nobody"]
    form = "{:9,.0f}" if cost > 10 else "{:9.3f}"
    print(f"\n{summary['data']['source']}: {summary['data']['rows']:,} people; action 1 costs {cost:g} per person")
    for name, gain in gains.items():
        low, high = (form.format(end) for end in gain.interval())
        print(f"  {name:37}{form.format(gain.estimate)} ({low} to{high})  {verdict(gain)}")
    at_most, low, high = (form.format(cost + end) for end in (whole.estimate, *whole.interval()))
    print(f"  for everybody it pays up to a cost of{at_most} ({low} to{high})")
    first = summary["who"][0]
    parts = "; ".join(f"{part['label']}: {part['shares'][1]:.0%}" for part in first["bins"])
    print(f"  who has a place ({summary['actions'][1]['share']:.1%} of all), by {first['feature']}:\n    {parts}")


def curve(study: Study) -> dict[str, list[float]]:
    """Gain over nobody when the first 0, 5, ..., 100 percent get it: by the rule, with its interval, and by lot."""
    policy, gain = study.fitted, study.fitted.expected_gain(default=0)[:, 1]
    whole = policy.cross_fitted_value(1, baseline=0).estimate
    shares = np.linspace(0.0, 1.0, 21)
    values = [policy.cross_fitted_value(first_places(gain, share), baseline=0) for share in shares]
    low, high = zip(*(value.interval() for value in values), strict=True)
    rule = [value.estimate for value in values]
    return {"share": shares.tolist(), "rule": rule, "low": low, "high": high, "lot": (shares * whole).tolist()}


def draw(curves: dict[str, dict[str, list[float]]], folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 * len(curves), 3.0), dpi=90, layout="constrained")
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for ax, (name, line) in zip(panels, curves.items(), strict=True):
        ax.fill_between(line["share"], line["low"], line["high"], color="#56B4E9", alpha=0.35, lw=0, label="95 %")
        ax.plot(line["share"], line["rule"], color="#0072B2", lw=2, label="most to gain first")
        ax.plot(line["share"], line["lot"], color="#D55E00", ls="--", label="by lot")
        ax.axvline(PLACES, color="#767676", lw=1, ls=":")
        ax.axhline(0, color="#767676", lw=0.8)
        ax.set_title(f"{name}\n{WHAT[name]}", fontsize=10)
        ax.set_xlabel("share of people who get it")
        ax.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("gain over nobody, net of cost")
    panels[0].legend(frameon=False, fontsize=9, loc="upper left")
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "treatment_choice.png")


def main(
    *, full: bool = False, figures: Path | None = None, data_dir: str | None = None, seed: int = 0
) -> dict[str, Any]:
    """For each trial: the gains with their intervals, the share with a place, and the curve."""
    results: dict[str, Any] = {}
    for name, cost in COST.items():
        try:
            data = load(name, data_dir=data_dir)
        except DataUnavailableError as error:
            print(f"\n{error}")
            continue
        study = study_of(data, full, seed)
        gains = gains_of(study)
        show(study, gains, cost)
        numbers = {label: value.to_dict() | {"verdict": verdict(value)} for label, value in gains.items()}
        results[name] = {"gains": numbers, "places": study.summary["actions"][1]["share"], "curve": curve(study)}
    if figures is not None:
        draw({name: part["curve"] for name, part in results.items()}, figures)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help="folder for the picture")
    parser.add_argument("--data-dir", help="folder with jtpa_kt.csv (else GBPL_DATA_DIR)")
    parser.add_argument("--full", action="store_true", help="the default networks")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
