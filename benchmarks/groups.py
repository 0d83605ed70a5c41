"""Whether what is said by group is true: bands for all groups, and bounds between groups on new rows.

python benchmarks/groups.py arrays
python benchmarks/groups.py learned [REPLICATIONS [STRENGTH]]

`arrays` has 200 samples of each design with a stand-in for the policy, `learned` has `GBPL()` as shipped, and effects
times STRENGTH; each prints a table. Groups are three or five of unequal size, shares and gains differ between them. A
truth is that of 50,000 (arrays: 200,000) new rows.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from gbpl import GBPL
from gbpl.decisions.constraints import bounded_at_level
from gbpl.decisions.decisions import Rule
from gbpl.estimators.many import fit_many, hold_out_many
from gbpl.feedback.read import TableFeedback
from gbpl.study.groups import AskedGroups, bounded_rule
from gbpl.value.by_group import group_table
from gbpl.value.estimate import Value

LEVEL = 0.9
PARTS = ("values", "gains", "shares", "gain_differences", "share_differences")
SHARES = {3: (0.5, 0.35, 0.15), 5: (0.4, 0.25, 0.15, 0.1, 0.1)}


def sample(n: int, seed: int, count: int = 3, strength: float = 1.0) -> dict[str, np.ndarray]:
    """A log of two actions: features, of which some say the group, outcomes, and their means by action."""
    rng = np.random.default_rng([seed, count])
    x, place = rng.normal(size=(n, 4)), rng.choice(count, n, p=SHARES[count])
    effect = strength * (0.3 * x[:, 0] + 0.4 * (place == 1) - 0.3 * (place == 2) * x[:, 1])
    action, mean = rng.integers(0, 2, n), x[:, 1]
    outcome = mean + action * effect + rng.normal(size=n)
    features = np.column_stack([x, *(place == g for g in range(1, count))]).astype(float)
    means = np.column_stack([mean, mean + effect])
    return {"x": features, "place": place, "action": action, "outcome": outcome, "means": means, "effect": effect}


def truth(chosen: np.ndarray, place: np.ndarray, means: np.ndarray, count: int) -> dict[str, np.ndarray]:
    """Values, gains and shares of every group, and its differences from the other rows."""
    value, usual = means[np.arange(len(chosen)), chosen], means[:, 0]

    def by(rows: np.ndarray) -> np.ndarray:
        return np.array([rows[place == g].mean() for g in range(count)])

    def apart(rows: np.ndarray) -> np.ndarray:
        return np.array([rows[place == g].mean() - rows[place != g].mean() for g in range(count)])

    shares = by(chosen.astype(float))
    return {
        "values": by(value), "gains": by(value - usual), "shares": np.column_stack([1 - shares, shares]).ravel(),
        "gain_differences": apart(value - usual), "share_differences": apart(chosen.astype(float)),
    }  # fmt: skip


def covered(table, true) -> list[bool]:
    """Whether the bands contain everything."""
    made = []
    for name in PARTS:
        low, high = getattr(table, name).bands(LEVEL).T
        made.append(bool(np.all((low <= true[name]) & (true[name] <= high))))
    return made


def line(label: str, hits: np.ndarray) -> None:
    """Shares of samples, with their standard errors."""
    hits = np.asarray(hits, float)
    errors = hits.std(axis=0, ddof=1) / np.sqrt(len(hits))
    cells = "  ".join(f"{mean:.3f} ({se:.3f})" for mean, se in zip(hits.mean(axis=0), errors, strict=True))
    print(f"{label:<34} {len(hits):>4}  {cells}", flush=True)


# -- a stand-in for the policy ----------------------------------------------------------------------------------------


def scored(data: dict[str, np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Expected gains as a learner would have them: the effect, shrunk, with a smooth error that a sample has."""
    wrong = rng.normal(scale=0.15, size=4)
    return 0.7 * data["effect"] + data["x"][:, :4] @ wrong + 0.1 * np.sin(3.0 * data["x"][:, 2])


def arrays(replications: int = 200) -> None:
    """Bands under a known policy, with doubly robust scores of known means, and bounds on shares."""
    print("bands of all groups, 90 %              samples  " + "        ".join(PARTS))
    for count in SHARES:
        fresh = sample(200_000, 10**6, count)
        for n in (300, 1000):
            hits = []
            for seed in range(replications):
                data, rng = sample(n, seed, count), np.random.default_rng([seed, 7])
                error = rng.normal(scale=0.15, size=4)
                chosen = (0.7 * data["effect"] + data["x"][:, :4] @ error >= 0).astype(int)
                there = (0.7 * fresh["effect"] + fresh["x"][:, :4] @ error >= 0).astype(int)
                taken, means = np.eye(2)[data["action"]], data["means"]
                scores = means + taken / 0.5 * (data["outcome"][:, None] - means)
                table = group_table(
                    "group", [str(g) for g in range(count)], data["place"], given=np.eye(2)[chosen], actions=["0", "1"],
                    default=0, value=Value(scores[np.arange(n), chosen], "dr"), usual=Value(scores[:, 0], "dr"),
                )  # fmt: skip
                hits.append(covered(table, truth(there, fresh["place"], fresh["means"], count)))
            line(f"{count} groups, n = {n}", np.array(hits))
    words = "gap on new rows above the bound, without it, nearly all or none"
    print(f"\nbound on shares, 95 %                  samples  {words}")
    for count in SHARES:
        for n, bound in ((600, 0.15), (2000, 0.1), (5000, 0.05)):
            hits = [_beyond(seed, n, count, bound) for seed in range(replications)]
            line(f"{count} groups, n = {n}, bound {bound}", np.array(hits))


def _beyond(seed: int, n: int, count: int, bound: float) -> tuple[bool, bool, bool]:
    data, fresh = sample(n, seed, count), sample(50_000, 10**6 + seed, count)
    gain = [scored(one, np.random.default_rng([seed, 8])) for one in (data, fresh)]
    inside, outside = (np.column_stack([np.zeros(len(one)), one]) for one in gain)
    rows = np.bincount(data["place"], minlength=count).astype(float)
    found = bounded_at_level(inside, data["place"], bound, independent=rows)

    def gap(chosen: np.ndarray) -> float:
        return float(np.ptp([chosen[fresh["place"] == g].mean() for g in range(count)]))

    within = gap(found.priced(outside, fresh["place"], 0)) > bound
    extreme = found.reached.min() > found.free.max() or found.reached.max() < found.free.min()
    return within, gap((outside[:, 1] >= 0).astype(int)) > bound, bool(extreme)


# -- as shipped -------------------------------------------------------------------------------------------------------


def learned(replications: int = 60, together: int = 10, n: int = 800, strength: float = 1.0) -> None:
    """Bands and bounds of `GBPL()` on logs of a randomized experiment."""
    count, bounds = 3, (AskedGroups(("g",), "g", 0.15, "shares"), AskedGroups(("g",), "g", 0.3, "gains"))
    fresh, hits, kept, begun = sample(50_000, 10**6, count, strength), [], [], time.process_time()
    for first in range(0, replications, together):
        seeds = range(first, min(first + together, replications))
        samples = [sample(n, seed, count, strength) for seed in seeds]
        policies = [GBPL(random_state=seed, progress=False) for seed in seeds]
        given = [{"X": s["x"], "y": s["outcome"], "action": s["action"], "propensity": 0.5} for s in samples]
        fit_many(policies, given)
        hold_out_many(policies)
        for policy, data in zip(policies, samples, strict=True):
            chosen = policy.predict(fresh["x"])
            table = policy.by_group(np.array([f"{g}" for g in data["place"]]), default=0)
            hits.append(covered(table, truth(chosen, fresh["place"], fresh["means"], count)))
            kept.append([one for asked in bounds for one in _kept(policy, data, fresh, asked, chosen)])
        print(f"{len(hits)} fitted, {time.process_time() - begun:.0f} s", file=sys.stderr, flush=True)
    print(f"n = {n}, effects times {strength:g}           samples  " + "        ".join(PARTS))
    line("bands of all groups, 90 %", np.array(hits))
    print("                                    samples  above the bound, without it, price covered (95 %), mean price")
    line("bound 0.15 on shares, 95 %", np.array([row[:4] for row in kept]))
    line("bound 0.3 on gains, 95 %", np.array([row[4:] for row in kept]))


def _kept(policy, data, fresh, asked, chosen) -> tuple[float, ...]:
    """Whether new rows are beyond the bound with and without it, whether its price is covered, and that price."""
    rows, frozen = len(data["x"]), policy.frozen(draws=0)
    feedback = policy.training("fit again").nuisances.feedback
    table = TableFeedback(feedback, data["x"], np.ones(rows, bool), [])
    free = np.argmax(policy.training("fit again").untouched, axis=1)
    names = {"g": np.array([f"{g}" for g in data["place"]])}
    made = bounded_rule(policy, frozen, table, names, Rule(), free, asked, 10, [])
    groups = np.array([f"{g}" for g in fresh["place"]])
    within = frozen.with_study(rule=made.rule, encoder=None, summary=None).decide(fresh["x"], group=groups).action

    def gap(actions: np.ndarray) -> float:
        of = truth(actions, fresh["place"], fresh["means"], 3)
        return float(np.ptp(of["shares"][1::2] if asked.of == "shares" else of["gains"]))

    at, means = np.arange(len(within)), fresh["means"]
    price = float(np.mean(means[at, chosen] - means[at, within]))
    low, high = made.price.interval(0.95)
    return gap(within) > asked.bound, gap(chosen) > asked.bound, low <= price <= high, price


if __name__ == "__main__":
    if sys.argv[1:] == ["arrays"]:
        arrays()
    elif sys.argv[1:2] == ["learned"]:
        learned(*map(int, sys.argv[2:3]), strength=float(sys.argv[3]) if len(sys.argv) > 3 else 1.0)
    else:
        sys.exit("say arrays, or learned [replications [strength of the effects]]")
