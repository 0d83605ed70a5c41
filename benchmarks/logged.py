"""Logged feedback: regret on the paper's designs, coverage of off-policy intervals, and time.

    python benchmarks/logged.py curve      DGP2, n = 100 to 3000: the paper's setting (DR, IPW) and the default
    python benchmarks/logged.py weak       weak overlap, n = 6000, three clip levels: the same, and the overlap
    python benchmarks/logged.py multi      K = 5, n = 8000: default, fixed zetas, plug-in regressions
    python benchmarks/logged.py selection  K = 5 DGP3: what selecting one zeta on one validation part does, by criterion
    python benchmarks/logged.py coverage   95 % off-policy intervals of fixed policies, 500 replications
    python benchmarks/logged.py honesty    the cross-fitted value of a learned policy against its true value
    python benchmarks/logged.py time       seconds of the default fit at n = 3000, warm
    python benchmarks/logged.py real       JTPA, Hillstrom, Open Bandit from ../shared/data: seconds, values, arithmetic

Every study takes --replications, --start (the first seed), --cases (some of its cases), --methods (some of them, where
a study has several) and --records FILE: a line for each replication and method is appended there and never computed
again, so a study can be interrupted, or shared among machines by joining the files. Replication r draws its data, its
logging policy and its fit with seed r. Regret is that of the deterministic rule on 10,000 fresh rows under the known
conditional means.

"paper" is one ReLU network a zeta, prior sd 1 and eta 1, a validation split of one fifth, patience 20, zeta selected
from {1, 0.1, 0.01, 0.001} by validation pseudo-welfare, true propensities clipped at 0.05, and for DR a two-fold
cross-fitted outcome network with a masked loss; the logging index has unit norm and strength 1 (2.5 under weak
overlap). The paper does not give the strength of the learning curve's index; `--cases 1000/0.5` takes 0.5. Strengths
0.5, 0.75 and 1 were run with these seeds, and none has both n = 500 and n = 1000 within two combined standard errors.
Fits of one sample that differ only in zeta or clip share their outcome models, which do not depend on either.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from gbpl import MLP, CrossFit, FitConfig, GBPLNet, LoggedFeedback, Member, fit_stack, policy_value, regret
from gbpl.datasets import BinaryDesign, LoggedDesign, LoggedSample, MultiActionDesign
from gbpl.estimators.gbplnet import _Prepared
from gbpl.feedback.pseudo_outcomes import clip_propensity, of_logged_action
from gbpl.feedback.standardize import Standardizer
from gbpl.fitting.apply import member_outputs
from gbpl.fitting.members import across_folds, fold_rows
from gbpl.nuisance.cross_fit import MaskedSquare, cross_fit
from gbpl.value.overlap import overlap_report

PRINTED_CURVE = {  # regret and its standard error: GBPLNet-DR, GBPLNet-IPW, and the best of all five methods
    100: ((0.3068, 0.0147), (0.3192, 0.0140), 0.3060),
    500: ((0.1004, 0.0057), (0.1442, 0.0083), 0.0988),
    1000: ((0.0544, 0.0017), (0.0684, 0.0037), 0.0544),
    2000: ((0.0402, 0.0013), (0.0476, 0.0023), 0.0402),
    3000: ((0.0354, 0.0012), (0.0401, 0.0014), 0.0353),
}
PRINTED_WEAK = {  # the same; clipped fraction, effective size, 0.99 quantile of |pseudo-difference| for DR and IPW
    0.01: ((0.0371, 0.0010), (0.0587, 0.0042), 0.0323, 0.0684, 1090.1, 13.6938, 18.1773),
    0.05: ((0.0349, 0.0011), (0.0690, 0.0052), 0.0323, 0.2433, 2071.9, 12.9393, 17.2457),
    0.10: ((0.0334, 0.0008), (0.0821, 0.0054), 0.0323, 0.3845, 2760.7, 11.0675, 14.7522),
}
ZETAS = (1.0, 0.1, 0.01, 0.001)


class Records:
    """Lines (case, method, replication, numbers), kept in a file if there is one."""

    def __init__(self, path: str | None, methods: list[str] | None = None) -> None:
        self.path, self.methods = None if path is None else Path(path), methods
        self.found: dict[tuple[str, str, int], dict[str, float]] = {}
        if self.path is not None and self.path.exists():
            with self.path.open(newline="") as lines:
                for case, method, number, values in csv.reader(lines):
                    self.found[case, method, int(number)] = json.loads(values)

    def add(self, case: str, method: str, number: int, **values: float) -> None:
        self.found[case, method, number] = values
        if self.path is not None:
            with self.path.open("a", newline="") as lines:
                csv.writer(lines).writerow([case, method, number, json.dumps(values)])

    def has(self, case: str, method: str, number: int) -> bool:
        """Whether there is nothing to do: it is done, or not asked for."""
        return (case, method, number) in self.found or (self.methods is not None and method not in self.methods)

    def of(self, case: str, method: str, name: str = "regret") -> np.ndarray:
        return np.array([v[name] for (c, m, _), v in sorted(self.found.items()) if (c, m) == (case, method)])

    def paired(self, case: str, method: str, other: str) -> np.ndarray:
        """Regret of one method less another's, over the replications that have both."""
        numbers = [n for c, m, n in self.found if (c, m) == (case, method) and (case, other, n) in self.found]
        return np.array(
            [self.found[case, method, n]["regret"] - self.found[case, other, n]["regret"] for n in sorted(numbers)]
        )

    def cases(self) -> list[str]:
        return list(dict.fromkeys(case for case, _, _ in self.found))


def mean_se(values: np.ndarray) -> tuple[float, float]:
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def shown(values: np.ndarray, digits: int = 4) -> str:
    if len(values) < 2:
        return "-"
    mean, se = mean_se(values)
    return f"{mean:.{digits}f} ({se:.{digits}f})"


def apart(values: np.ndarray, printed: tuple[float, float]) -> str:
    if len(values) < 2:
        return "-"
    mean, se = mean_se(values)
    return f"{(mean - printed[0]) / np.hypot(se, printed[1]):+.1f}"


def compared(found: dict[str, np.ndarray], dr: tuple[float, float], ipw: tuple[float, float], best: float) -> str:
    cells = []
    for name, printed in (("dr", dr), ("ipw", ipw)):
        cells += [shown(found[name]), f"{printed[0]:.4f} ({printed[1]:.4f})", apart(found[name], printed)]
    return " | ".join([*cells, shown(found["default"]), f"{best:.4f}"])


class Sharing(GBPLNet):
    """GBPLNet that takes the outcome models of an earlier fit to the same log, with the same seed and settings."""

    made: ClassVar[dict] = {}

    def _prepared(self, *data: object) -> _Prepared:
        prepared, made = super()._prepared(*data), self.made
        fitting = prepared.fitting
        log, settings = fitting.feedback, fitting.settings
        rows = log.x.tobytes(), log.outcome.tobytes(), log.action.tobytes()
        key = rows, settings.seed, fitting.construction, settings.folds, settings.outcome_model, fitting.outer is None
        if key not in made:
            made.clear()
            made[key] = cross_fit([fitting])[0]
        return replace(prepared, nuisances=replace(made[key], clip=settings.clip_for(len(log.actions))))


def paper(construction: str, seed: int, clip: float, device: str) -> GBPLNet:
    network = MLP(activation="relu")
    return Sharing(
        zeta=list(ZETAS),
        eta=1.0,
        committee=None,
        model=network,
        outcome_model=network,
        pseudo_outcome=construction,
        correction=1.0 if construction == "dr" else "auto",
        nuisance_folds=2,
        clip=clip,
        fit_config=FitConfig(patience=20),
        random_state=seed,
        device=device,
    )


def fit(policy: GBPLNet, sample: LoggedSample) -> GBPLNet:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # weak overlap is the point
        return policy.fit(sample.x, sample.outcome, action=sample.action, propensity=sample.propensity)


def judged(policy: GBPLNet, fresh: LoggedSample) -> float:
    return regret(np.eye(fresh.outcome_mean.shape[1])[policy.predict(fresh.x)], fresh.outcome_mean)


def drawn(design: BinaryDesign | MultiActionDesign, strength: float, clip: float, n: int, seed: int) -> tuple:
    log = LoggedDesign(design, strength=strength, clip=clip, index_seed=seed)
    return log.sample(n, seed=seed), design.sample(10_000, seed=10**6 + seed)


def curve(records: Records, case: str, seed: int, device: str) -> None:
    """A case is a sample size, or "size/strength" for another strength of the logging index."""
    size, _, strength = case.partition("/")
    sample, fresh = drawn(BinaryDesign("DGP2"), float(strength or 1.0), 0.05, int(size), seed)
    for method in ("dr", "ipw", "default"):
        if not records.has(case, method, seed):
            policy = GBPLNet(random_state=seed, device=device)
            policy = fit(policy if method == "default" else paper(method, seed, 0.05, device), sample)
            records.add(case, method, seed, regret=judged(policy, fresh))


def curve_table(records: Records) -> None:
    print("| n | paper's DR | printed | apart | paper's IPW | printed | apart | default | best printed |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in sorted(records.cases(), key=lambda case: (case.partition("/")[2], int(case.partition("/")[0]))):
        found = {method: records.of(case, method) for method in ("dr", "ipw", "default")}
        print(f"| {case} | {compared(found, *PRINTED_CURVE[int(case.partition('/')[0])])} |")


def weak(records: Records, case: str, seed: int, device: str) -> None:
    clip = float(case)
    sample, fresh = drawn(BinaryDesign("DGP2"), 2.5, 0.0, 6000, seed)
    for method in ("dr", "ipw", "default"):
        if records.has(case, method, seed):
            continue
        policy = Sharing(random_state=seed, clip=clip, device=device)
        policy = fit(policy if method == "default" else paper(method, seed, clip, device), sample)
        values = {"regret": judged(policy, fresh)}
        if method != "default":  # of the training portion, as in the paper
            rows, nuisances = policy._training.fit.members[0].train, policy._training.nuisances
            told = overlap_report(
                sample.action[rows], sample.propensity[rows], nuisances.logged_propensity[rows],
                policy.pseudo_outcomes_[rows], actions=policy.actions_, clip=clip,
            )  # fmt: skip
            values |= {"clipped": told.clipped_fraction, "size": told.effective_size, "q99": told.quantile_99}
        records.add(case, method, seed, **values)


def weak_table(records: Records) -> None:
    print("| clip | paper's DR | printed | apart | paper's IPW | printed | apart | default | best printed |")
    print("|---|---|---|---|---|---|---|---|---|")
    for clip, (dr, ipw, best, *_) in PRINTED_WEAK.items():
        found = {method: records.of(str(clip), method) for method in ("dr", "ipw", "default")}
        print(f"| {clip} | {compared(found, dr, ipw, best)} |")
    print("\nThe paper prints no errors for these; ours are of the mean, and the printed mean has as much again.\n")
    print("| clip | clipped | printed | effective size | printed | q99 DR | printed | q99 IPW | printed |")
    print("|---|---|---|---|---|---|---|---|---|")
    for clip, (_, _, _, clipped, size, q_dr, q_ipw) in PRINTED_WEAK.items():
        case = str(clip)
        cells = [
            shown(records.of(case, "dr", "clipped")),
            str(clipped),
            shown(records.of(case, "dr", "size"), 1),
            str(size),
        ]
        cells += [
            shown(records.of(case, "dr", "q99"), 2),
            str(q_dr),
            shown(records.of(case, "ipw", "q99"), 2),
            str(q_ipw),
        ]
        print(f"| {clip} | " + " | ".join(cells) + " |")
    print("\nThe printed clipped fractions are those of an index of strength 2.52; 50 samples of 4,800 rows there:\n")
    print("| clip | clipped | printed | effective size | printed |")
    print("|---|---|---|---|---|")
    samples = [LoggedDesign(BinaryDesign("DGP2"), 2.52, 0.0, seed).sample(4800, seed=seed) for seed in range(50)]
    for clip, (_, _, _, clipped, size, *_) in PRINTED_WEAK.items():
        told = []
        for sample in samples:
            logged = of_logged_action(clip_propensity(sample.propensity, clip), sample.action)
            told.append(
                overlap_report(
                    sample.action, sample.propensity, logged, sample.propensity, actions=np.arange(2), clip=clip
                )
            )
        shares, sizes = (np.array([getattr(t, name) for t in told]) for name in ("clipped_fraction", "effective_size"))
        print(f"| {clip} | {shown(shares)} | {clipped} | {shown(sizes, 1)} | {size} |")


def plugin(sample: LoggedSample, fresh: LoggedSample, network: MLP, members: int, seed: int, device: str) -> float:
    """Regret of the action with the largest predicted outcome: networks with a masked loss, stopped on a fold each."""
    count = sample.propensity.shape[1]
    rows = np.arange(len(sample.x), dtype=np.int32)
    standardizer = Standardizer.fit(sample.x, rows)
    x, scale = standardizer.apply(sample.x), sample.outcome.std()
    target = (sample.outcome / scale).astype(np.float32), sample.action.astype(np.int32)
    folds = fold_rows(len(rows), 5, seed=seed, strata=sample.action)
    config = FitConfig(patience=20) if members == 1 else None
    stacked = across_folds(Member(rows), folds, seed=seed)[:members]
    stack = fit_stack(x, target, stacked, MaskedSquare(count), network, config=config, device=device)
    means = member_outputs(network, stack.params, standardizer.apply(fresh.x)).mean(axis=0)
    return regret(np.eye(count)[means.argmax(axis=1)], fresh.outcome_mean)


def multi(records: Records, case: str, seed: int, device: str) -> None:
    sample, fresh = drawn(MultiActionDesign(case, index_seed=seed), 1.0, 0.05, 8000, seed)
    fits = {"default": {}, **{f"zeta {z:g}": {"zeta": z} for z in ZETAS[:3]}}
    for method, options in fits.items():
        if not records.has(case, method, seed):
            policy = fit(Sharing(random_state=seed, device=device, **options), sample)
            records.add(case, method, seed, regret=judged(policy, fresh))
    for method, network, members in (("PluginReg", MLP(activation="relu"), 1), ("plug-in committee", MLP(), 5)):
        if not records.has(case, method, seed):
            records.add(case, method, seed, regret=plugin(sample, fresh, network, members, seed, device))


def multi_table(records: Records) -> None:
    methods = ("default", "zeta 1", "zeta 0.1", "zeta 0.01", "PluginReg", "plug-in committee")
    print("| design | trials | " + " | ".join(methods) + " |")
    print("|---|---|" + "---|" * len(methods))
    for case in ("DGP1", "DGP2", "DGP3"):
        found = {method: records.of(case, method) for method in methods}
        print(f"| {case} | {len(found['default'])} | " + " | ".join(shown(v) for v in found.values()) + " |")
    print("\nDefault less the other, paired over trials:\n")
    print("| design | " + " | ".join(methods[1:]) + " |")
    print("|---|" + "---|" * (len(methods) - 1))
    for case in ("DGP1", "DGP2", "DGP3"):
        cells = [shown(records.paired(case, "default", method)) for method in methods[1:]]
        print(f"| {case} | " + " | ".join(cells) + " |")


def selection(records: Records, case: str, seed: int, device: str) -> None:
    """One network a zeta and one validation part: which zeta each criterion picks, and what that costs."""
    if records.has(case, "picks", seed):
        return
    sample, fresh = drawn(MultiActionDesign(case, index_seed=seed), 1.0, 0.05, 8000, seed)
    policy = fit(paper("dr", seed, 0.05, device), sample)
    path, nuisances = policy.zeta_path_, policy._training.nuisances
    held = np.setdiff1d(np.arange(8000), policy._training.fit.members[0].train)
    scores = nuisances.pseudo_outcomes("dr")[held]
    reduced = np.array([min(member["validation_loss"]) for member in policy.history_]) * policy.outcome_scale_
    constant = np.mean(np.sum((scores - scores.mean(axis=1, keepdims=True)) ** 2, axis=1)) / (2.0 * path.zeta)
    picks = {
        "loss": np.argmin(reduced + constant),
        "randomized": np.argmax(path.randomized_welfare),
        "deterministic": np.argmax(path.welfare),
    }
    values = {f"pick {name}": float(path.zeta[pick]) for name, pick in picks.items()}
    for zeta in ZETAS:
        one = paper("dr", seed, 0.05, device).set_params(zeta=zeta)
        one = fit(one, sample)
        values[f"randomized {zeta:g}"] = regret(one.predict_proba(fresh.x), fresh.outcome_mean)
        values[f"deterministic {zeta:g}"] = judged(one, fresh)
    records.add(case, "picks", seed, **values)


def selection_table(records: Records) -> None:
    for case in records.cases():
        trials = [v for (c, _, _), v in records.found.items() if c == case]
        print(f"{case}, {len(trials)} trials. Regret of one network at each zeta:")
        for rule in ("randomized", "deterministic"):
            cells = [f"{z:g}: {shown(np.array([t[f'{rule} {z:g}'] for t in trials]))}" for z in ZETAS]
            print(f"  {rule} policy  " + "  ".join(cells))
        for name in ("loss", "randomized", "deterministic"):
            picked = [t[f"pick {name}"] for t in trials]
            counts = "  ".join(f"{z:g}: {picked.count(z)}" for z in ZETAS)
            for rule in ("randomized", "deterministic"):
                lost = np.array([t[f"{rule} {t[f'pick {name}']:g}"] for t in trials])
                print(f"  picked by {name:13s} {counts}  regret of the {rule} policy {shown(lost)}")


def coverage(records: Records, case: str, seed: int, device: str) -> None:
    """A fixed deterministic rule and a fixed randomized one; the truth from two million rows."""
    if records.has(case, "dr", seed):
        return
    design = BinaryDesign("DGP2") if case == "two actions" else MultiActionDesign("DGP1", n_actions=3)
    log = LoggedDesign(design, index_seed=0).sample(1000, seed=seed)
    feedback = LoggedFeedback.of(log.x, log.outcome, log.action, propensity=log.propensity)
    nuisances = CrossFit(seed=seed, device=device).run(feedback)
    for estimator in ("dr", "ipw", "snipw", "dm"):
        values = {}
        for rule in ("deterministic", "randomized"):
            value = policy_value(
                fixed(log.x, log.propensity.shape[1]), feedback, estimator=estimator, rule=rule, nuisances=nuisances
            )
            low, high = value.interval(0.95)
            values |= {
                f"{rule} low": low,
                f"{rule} high": high,
                f"{rule} estimate": value.estimate,
                f"{rule} se": value.se,
            }
        records.add(case, estimator, seed, **values)


def fixed(x: np.ndarray, count: int) -> np.ndarray:
    """A softmax rule of the first features, the same in every replication."""
    weight = np.exp(2.0 * x[:, :count])
    return weight / weight.sum(axis=1, keepdims=True)


def coverage_table(records: Records) -> None:
    print(
        "| case | rule | estimator | replications | covers, of 95 % | mean se over sd of estimates | bias, in its se |"
    )
    print("|---|---|---|---|---|---|---|")
    for case in records.cases():
        design = BinaryDesign("DGP2") if case == "two actions" else MultiActionDesign("DGP1", n_actions=3)
        big = design.sample(2_000_000, seed=10**7)
        probability = fixed(big.x, big.outcome_mean.shape[1])
        rules = {"deterministic": np.eye(probability.shape[1])[probability.argmax(axis=1)], "randomized": probability}
        for rule, table in rules.items():
            truth = float(np.mean(np.sum(table * big.outcome_mean, axis=1)))
            for estimator in ("dr", "ipw", "snipw", "dm"):
                low, high, estimate, se = (
                    records.of(case, estimator, f"{rule} {name}") for name in ("low", "high", "estimate", "se")
                )
                covers = (low <= truth) & (truth <= high)
                error = (estimate.mean() - truth) / (estimate.std(ddof=1) / np.sqrt(len(estimate)))
                print(
                    f"| {case} | {rule} | {estimator} | {len(covers)} | {shown(covers.astype(float), 3)} | "
                    f"{se.mean() / estimate.std(ddof=1):.3f} | {error:+.1f} |"
                )


def honesty(records: Records, case: str, seed: int, device: str) -> None:
    if records.has(case, "default", seed):
        return
    design = {"DGP2": BinaryDesign("DGP2"), "K = 5 DGP3": MultiActionDesign("DGP3")}[case]
    sample, _ = drawn(design, 1.0, 0.05, 1000, seed)
    policy = fit(GBPLNet(random_state=seed, device=device), sample)
    value = policy.cross_fitted_value()
    table = policy._training.untouched[0]  # the policy that was judged
    rule = np.eye(table.shape[1])[table.argmax(axis=1)]
    truth = float(np.mean(np.sum(rule * sample.outcome_mean, axis=1)))
    records.add(case, "default", seed, error=value.estimate - truth, se=value.se)


def honesty_table(records: Records) -> None:
    print("| case | replications | cross-fitted value less the true one | 95 % interval covers |")
    print("|---|---|---|---|")
    for case in records.cases():
        error, se = records.of(case, "default", "error"), records.of(case, "default", "se")
        print(f"| {case} | {len(error)} | {shown(error)} | {shown((np.abs(error) <= 1.96 * se).astype(float), 3)} |")


def seconds(records: Records, case: str, seed: int, device: str) -> None:
    sample, _ = drawn(BinaryDesign("DGP2"), 1.0, 0.05, int(case), seed)
    started = time.perf_counter()
    fit(GBPLNet(random_state=seed, device=device), sample)
    records.add(case, "default", seed, seconds=time.perf_counter() - started)


def seconds_table(records: Records) -> None:
    for case in records.cases():
        times = records.of(case, "default", "seconds")
        print(f"{case}: first {times[0]:.1f} s" + "".join(f", {t:.1f} s" for t in times[1:]))


def real(records: Records, case: str, seed: int, device: str) -> None:
    import pandas as pd

    folder = Path(__file__).resolve().parents[2] / "shared" / "data"
    if case == "JTPA":
        table = pd.read_csv(folder / "jtpa_kt.csv")
        log = LoggedFeedback.from_frame(
            table, outcome="earnings", action="D", features=["prevearn", "edu"], propensity=2 / 3, cost={1: 774.0}
        )
        arms = {1: table.earnings[table.D == 1].mean() - 774.0, 0: table.earnings[table.D == 0].mean()}
    elif case == "Hillstrom":
        table = pd.read_csv(folder / "hillstrom.csv.gz")
        columns = ["recency", "history", "mens", "womens", "newbie", "zip_code", "channel"]
        x = pd.get_dummies(table[columns], dtype=float)
        log = LoggedFeedback.of(x, table.visit, table.segment, propensity=1 / 3)
        arms = table.groupby("segment").visit.mean().to_dict()
    else:
        table = pd.read_csv(folder / "obd_random_men.csv.gz")
        x = pd.get_dummies(table[[f"user_feature_{i}" for i in range(4)]], dtype=float)
        x = pd.concat([x, pd.get_dummies(table.position, prefix="position", dtype=float)], axis=1)
        log = LoggedFeedback.of(x, table.click, table.item_id, propensity=table.propensity_score)
        arms = {item: table.click[table.item_id == item].mean() for item in (0, 1)}
    started = time.perf_counter()
    policy = GBPLNet(random_state=seed, device=device).fit(log)
    took = time.perf_counter() - started
    print(f"{case}, {len(log)} rows, {len(log.actions)} actions: fitted in {took:.1f} s")
    print(f"  learned policy: {policy.cross_fitted_value()}")
    print(f"  gain over the log: {policy.cross_fitted_value(baseline='logging')}")
    for arm, mean in arms.items():
        value = policy_value(arm, log, estimator="snipw")
        print(f"  everybody {arm!r}: arm's mean {mean:.5g}, snipw {value.estimate:.5g} (se {value.se:.2g})")
    records.add(case, "default", seed, seconds=took)


STUDIES = {  # what to do with a replication, the table, cases, replications
    "curve": (curve, curve_table, [str(n) for n in PRINTED_CURVE], 50),
    "weak": (weak, weak_table, [str(clip) for clip in PRINTED_WEAK], 50),
    "multi": (multi, multi_table, ["DGP1", "DGP2", "DGP3"], 50),
    "selection": (selection, selection_table, ["DGP3"], 20),
    "coverage": (coverage, coverage_table, ["two actions", "three actions"], 500),
    "honesty": (honesty, honesty_table, ["DGP2", "K = 5 DGP3"], 100),
    "time": (seconds, seconds_table, ["3000"], 6),
    "real": (real, seconds_table, ["JTPA", "Hillstrom", "Open Bandit"], 1),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--replications", type=int)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--cases", nargs="+")
    parser.add_argument("--methods", nargs="+")
    parser.add_argument("--records")
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    once, table, cases, count = STUDIES[asked.study]
    records, started = Records(asked.records, asked.methods), time.perf_counter()
    for seed in range(asked.start, asked.start + (count if asked.replications is None else asked.replications)):
        for case in asked.cases or cases:
            once(records, case, seed, asked.device)
    table(records)
    print(f"\n{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
