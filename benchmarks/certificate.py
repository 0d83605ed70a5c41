"""PAC-Bayes bounds: how often each form fails, for posteriors chosen after looking at the rows.

    python benchmarks/certificate.py violations   1,000 data sets with a known population: each form, each posterior

`violations`: x has 50 equally likely values, outcomes are 0 or 1, n = 100, failure probability 0.05. Rules are all 2^50
choices of an action for each value, the prior is uniform, and posteriors decide each value by itself, so risk and KL
are exact. "gibbs eta" is exp(-eta n R_hat) times the prior; "best bound" is the one of ten etas, the best rule and the
prior with the smallest bound; "all at once" counts a data set where any of them fails. A violation is a true risk above
the bound. Lines marked "wrong" have a constant broken on purpose: they should fail more often than 5 %.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, rel_entr

from gbpl.certificates.bounds import (
    Moments,
    catoni_bound,
    catoni_bound_over_rates,
    inverse_kl_bound,
    mcallester_bound,
    optimal_rate,
    pac_bayes_bound,
    pac_bayes_bound_over_rates,
    pac_bayes_interval,
)

STATES, ROWS, RHO = 50, 100, 0.05
UNIT = Moments.bounded(0.0, 1.0)
FIXED = float(optimal_rate(10.0, ROWS, UNIT, RHO))  # for a KL guessed before the data
SMALL = Moments(UNIT.variance_proxy / 50, 0.0, False)
FORMS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "theorem, fixed rate": lambda r, d: pac_bayes_bound(r, d, ROWS, rate=FIXED, moments=UNIT),
    "corollary, two-sided": lambda r, d: pac_bayes_interval(r, d, ROWS, rate=FIXED, moments=UNIT)[1],
    "theorem, grid of rates": lambda r, d: pac_bayes_bound_over_rates(r, d, ROWS, moments=UNIT),
    "Catoni, fixed rate": lambda r, d: catoni_bound(r, d, ROWS, rate=1.0),
    "Catoni, grid of rates": lambda r, d: catoni_bound_over_rates(r, d, ROWS),
    "inverse kl": lambda r, d: inverse_kl_bound(r, d, ROWS),
    "McAllester": lambda r, d: mcallester_bound(r, d, ROWS),
    "wrong: theorem, v / 50": lambda r, d: pac_bayes_bound_over_rates(r, d, ROWS, moments=SMALL),
    "wrong: theorem, no KL": lambda r, d: pac_bayes_bound_over_rates(r, 0.0 * d, ROWS, moments=UNIT),
    "wrong: Catoni, no KL": lambda r, d: catoni_bound_over_rates(r, 0.0 * d, ROWS),
    "wrong: inverse kl, no KL": lambda r, d: inverse_kl_bound(r, 0.0 * d, ROWS),
}


def violations(count: int) -> None:
    rng = np.random.default_rng(1)
    mean = 0.5 + 0.1 * rng.choice([-1.0, 1.0], size=(STATES, 2))
    x = rng.integers(0, STATES, (count, ROWS))
    loss = 1.0 - (rng.uniform(size=(count, ROWS, 2)) < mean[x])
    place = (np.arange(count)[:, None] * STATES + x).ravel()
    sums = [np.bincount(place, loss[..., a].ravel(), count * STATES).reshape(count, STATES) for a in range(2)]
    empirical, population = np.stack(sums, axis=-1) / ROWS, (1.0 - mean) / STATES
    gain = ROWS * (empirical[..., 0] - empirical[..., 1])
    chances = {"prior": np.full(gain.shape, 0.5)}
    chances |= {f"gibbs {eta:g}": expit(eta * gain) for eta in 2.0 ** np.arange(-6, 4)}
    chances["best rule"] = np.where(gain == 0, 0.5, gain > 0).astype(float)
    risks, truths, kls = [], [], []
    for chance in chances.values():
        both = np.stack([1.0 - chance, chance], axis=-1)
        risks.append(np.sum(both * empirical, axis=(1, 2)))
        truths.append(np.sum(both * population, axis=(1, 2)))
        kls.append(np.sum(rel_entr(both, 0.5), axis=(1, 2)))
    risk, truth, kl = np.array(risks), np.array(truths), np.array(kls)
    names = list(chances)
    print("| posterior | " + " | ".join(names) + " |\n|---|" + "---|" * len(names))
    for what, values in (("KL", kl), ("empirical risk", risk), ("true risk", truth)):
        print(f"| {what} | " + " | ".join(f"{v:.3g}" for v in values.mean(axis=1)) + " |")
    shown = ["prior", "gibbs 0.25", "gibbs 1", "best rule"]
    error = 100 * math.sqrt(RHO * (1 - RHO) / count)
    print(
        f"\nViolations in % of {count} data sets; 5 % has a binomial error of {error:.1f} %. Mean bound in brackets.\n"
    )
    print("| form | " + " | ".join(shown) + " | best bound | all at once |\n|---|" + "---|" * (len(shown) + 2))
    for form, bound in FORMS.items():
        found = np.asarray(bound(risk, kl))
        wrong = found < truth
        cells = [(wrong[i], found[i]) for i in (names.index(name) for name in shown)]
        best = (np.argmin(found, axis=0), np.arange(count))
        cells.append((wrong[best], found[best]))
        told = [f"{100 * w.mean():.1f} ({b.mean():.3f})" for w, b in cells]
        print(f"| {form} | " + " | ".join(told) + f" | {100 * wrong.any(axis=0).mean():.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["violations"])
    parser.add_argument("--sets", type=int, default=1000)
    violations(parser.parse_args().sets)


if __name__ == "__main__":
    main()
