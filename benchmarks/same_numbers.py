"""What a fixed list of cases gives, written down, so that a change that should change nothing can show it.

    python benchmarks/same_numbers.py record FOLDER [--only NAME ...] [--data-dir DIR]
    python benchmarks/same_numbers.py compare BEFORE AFTER

`record` fits small problems of every kind and writes what comes of them: arrays and files, one folder per case. Only
public names are used, so that the script runs on any version of the library (`PYTHONPATH=src`). `compare` says for each
case whether everything is equal byte for byte, or by how much the numbers differ at most.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]
CASES: dict[str, Callable[[Path], Record]] = {}
VOLATILE = ("created", "seconds", "versions", "settings")  # of a summary: when, how long, by what


def case(make: Callable[[Path], Record]) -> Callable[[Path], Record]:
    CASES[make.__name__] = make
    return make


def fast(**more: Any) -> Any:
    from gbpl import FitConfig

    return FitConfig(**{"max_epochs": 12, **more})


def small() -> Any:
    from gbpl import MLP

    return MLP(hidden=(16, 16))


def full(n: int = 240, actions: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    means = np.column_stack([np.zeros(n), np.sin(x[:, 0] + x[:, 1]), 0.5 * x[:, 2], x[:, 0] * x[:, 1]])[:, :actions]
    return x, means + 0.5 * rng.normal(size=(n, actions))


def logged(n: int = 300, actions: int = 2, seed: int = 1) -> Record:
    x, table = full(n, actions, seed)
    rng = np.random.default_rng(seed + 100)
    score = np.exp(0.5 * x[:, :1] * np.arange(actions))
    chance = score / score.sum(axis=1, keepdims=True)
    action = (rng.uniform(size=(n, 1)) > np.cumsum(chance, axis=1)).sum(axis=1).clip(max=actions - 1)
    return {"X": x, "y": table[np.arange(n), action], "action": action, "propensity": chance}


def trial(n: int = 260, seed: int = 2) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    age, city = rng.normal(45, 12, n).round(), rng.choice(["Rome", "Oslo", "Lima"], n)
    arm = np.where(rng.uniform(size=n) < 0.5, "treat", "none")
    gain = np.where(city == "Oslo", 1.0, -0.3) + 0.02 * (age - 45)
    y = (arm == "treat") * gain + rng.normal(size=n)
    weight, site = rng.uniform(0.5, 1.5, n), rng.integers(0, 30, n)
    return {"age": age.tolist(), "city": city.tolist(), "arm": arm.tolist(), "y": y.tolist(), "weight": weight.tolist(),
            "site": site.tolist()}  # fmt: skip


def values(value: Any) -> list[float]:
    return [value.estimate, value.se, *value.interval(0.9)]


def policy_record(policy: Any, x: np.ndarray, folder: Path, *, how_sure: bool = True) -> Record:
    """Scores, weights, path and, with a posterior, what it says; the saved file too."""
    found: Record = {
        "proba": policy.predict_proba(x), "weights": policy.member_weights_,
        "path": np.column_stack([c for c in policy.zeta_path_.to_dict().values() if c.dtype.kind == "f"]),
        "eta": [policy.eta_, policy.outcome_scale_],
    }  # fmt: skip
    if policy.committee is not None:
        found["gain"] = policy.expected_gain(x)
        found["own gain"] = policy.expected_gain()
    if how_sure:
        posterior = policy.posterior()
        found["action probability"] = posterior.action_probability(x, draws=40)
        found["scores"] = posterior.scores(x[:20], draws=20)
        if policy.committee is not None:
            found["population"] = policy.population_welfare(draws=300).values
            found["population gain"] = policy.population_welfare(
                baseline=policy.actions_[0], draws=300, rule="deterministic"
            ).values
            found["out of fold"] = values(policy.cross_fitted_value(baseline=policy.actions_[0]))
            found["calibration"] = [policy.calibrate_eta().eta]
        policy.save(folder / "policy.gbpl", draws=40)
    return found


@case
def full_binary(folder: Path) -> Record:
    from gbpl import GBPLNet

    x, y = full()
    policy = GBPLNet(random_state=0, model=small(), fit_config=fast()).fit(x, y)
    found = policy_record(policy, x, folder)
    found["welfare"] = policy.posterior().welfare(x, y, draws=50).values
    found["regret"] = policy.posterior().regret(x, y, draws=50).values
    found["cross fitted"] = values(policy.cross_fitted_value(baseline=0))
    found["certificate"] = [
        (c := policy.certificate(outcome_range=(-5.0, 5.0), draws=20)).lower, c.estimate, c.kl, *c.forms.values(),
    ]  # fmt: skip
    fresh = full(200, seed=9)
    found["fresh certificate"] = [policy.certificate(*fresh, outcome_range=(-5.0, 5.0), draws=20).lower]
    found["value"] = values(policy.value(*fresh, baseline=1))
    found["score"] = [policy.score(*fresh)]
    found["better"] = [policy.posterior().probability_better(x, y, than=0, draws=60)]
    return found


@case
def default_learner(folder: Path) -> Record:
    from gbpl import GBPL

    x, y = full(200)
    return policy_record(GBPL(random_state=0, fit_config=fast()).fit(x, y), x, folder)


@case
def default_learner_logged(folder: Path) -> Record:
    from gbpl import GBPL

    data = logged(300, 3)
    policy = GBPL(random_state=0, fit_config=fast()).fit(**data)
    found = policy_record(policy, data["X"], folder)
    found["pseudo"] = policy.pseudo_outcomes_
    found["cross fitted"] = values(policy.cross_fitted_value(baseline="logging"))
    return found


@case
def readme_example(folder: Path) -> Record:
    from gbpl import GBPL

    rng = np.random.default_rng(0)
    x = rng.normal(size=(1000, 5))
    y = np.column_stack([np.zeros(1000), np.sin(x[:, 0] + x[:, 1])]) + rng.normal(size=(1000, 2))
    policy = GBPL(actions=["wait", "treat"], random_state=0).fit(x, y)
    return {"proba": policy.predict_proba(x), "score": [policy.score(x, y)], "weights": policy.member_weights_}


@case
def logged_binary(folder: Path) -> Record:
    from gbpl import GBPLNet

    data = logged()
    policy = GBPLNet(random_state=3, model=small(), fit_config=fast()).fit(**data)
    found = policy_record(policy, data["X"], folder)
    found |= {"pseudo": policy.pseudo_outcomes_, "cross fitted": values(policy.cross_fitted_value(baseline="logging"))}
    for estimator in ("dr", "ipw", "snipw", "dm"):
        found[f"value {estimator}"] = values(policy.value(**logged(250, seed=8), estimator=estimator, baseline=0))
        found[f"own {estimator}"] = values(policy.cross_fitted_value(estimator=estimator))
    found["overlap"] = json.dumps(policy.overlap_.to_dict())
    found["certificate"] = [policy.certificate(outcome_range=(-5.0, 5.0), draws=20).lower]
    found["safe bayes"] = policy.calibrate_eta("safe_bayes").curve
    found["refits"] = [policy.calibrate_eta("refit_matching", refits=4).eta]
    return found


@case
def logged_everything(folder: Path) -> Record:
    """Estimated propensities, costs, weights, groups, controls."""
    from gbpl import GBPLNet

    data = logged(320, 3, seed=4)
    rng = np.random.default_rng(0)
    data |= {"propensity": None, "cost": {0: 0.0, 1: 0.1, 2: 0.2}, "sample_weight": rng.uniform(0.5, 2.0, 320),
             "groups": rng.integers(0, 60, 320), "controls": rng.normal(size=(320, 2))}  # fmt: skip
    data["sample_weight"][:7] = 0.0
    policy = GBPLNet(random_state=3, model=small(), fit_config=fast()).fit(**data)
    found = policy_record(policy, data["X"], folder)
    return found | {"pseudo": policy.pseudo_outcomes_, "own": values(policy.cross_fitted_value(baseline=0))}


@case
def other_constructions(folder: Path) -> Record:
    from gbpl import GBPLNet

    found: Record = {}
    for name in ("ipw", "centered_ipw", "dm"):
        data = logged(200, seed=5)
        policy = GBPLNet(random_state=0, model=small(), fit_config=fast(), pseudo_outcome=name).fit(**data)
        found[name] = policy.predict_proba(data["X"])
        found[f"{name} table"] = policy.pseudo_outcomes_
    return found


@case
def surrogates(folder: Path) -> Record:
    from gbpl import BaselineGap, Binary, FullVector, GBPLNet

    found: Record = {}
    kinds = {
        "full": (3, FullVector(3)), "gap": (3, BaselineGap(3, baseline=1)), "robust": (2, Binary(huber=0.7)),
        "robust full": (4, FullVector(4, huber=1.0, centered=False)), "plain": (2, Binary(squash=False)),
        "plain full": (3, FullVector(3, squash=False)), "robust gap": (3, BaselineGap(3, huber=0.5)),
    }  # fmt: skip
    for name, (count, surrogate) in kinds.items():
        x, y = full(150, count, seed=6)
        policy = GBPLNet(surrogate=surrogate, random_state=0, model=small(), fit_config=fast()).fit(x, y)
        own = folder / name.replace(" ", "-")
        own.mkdir()
        found |= {f"{name}: {key}": part for key, part in policy_record(policy, x, own).items()}
    return found


@case
def models(folder: Path) -> Record:
    from gbpl import BoostedScore, ForestFeatures, GBPLNet, Linear, RandomFeatures, Splines

    found: Record = {}
    kinds = [Linear(), RandomFeatures(32), Splines(), ForestFeatures(trees=8, depth=3, components=6)]
    for model in kinds:
        x, y = full(160, seed=7)
        name = type(model).__name__
        policy = GBPLNet(model=model, random_state=0, fit_config=fast()).fit(x, y)
        own = folder / name
        own.mkdir()
        found |= {f"{name}: {key}": part for key, part in policy_record(policy, x, own).items()}
    x, y = full(160, seed=7)
    policy = GBPLNet(model=BoostedScore(rounds=10), random_state=0, zeta=1.0).fit(x, y)
    return found | {"boosted": policy.predict_proba(x)}


@case
def posteriors(folder: Path) -> Record:
    from gbpl import Binary, GBPLNet, Linear

    x, y = full(120, seed=3)
    plain = GBPLNet(
        model=Linear(), surrogate=Binary(squash=False), zeta=1.0, eta=1.0, committee=None, random_state=0,
        fit_config=fast(),
    ).fit(x, y)  # fmt: skip
    found: Record = {}
    options: dict[str, Record] = {
        "exact": {}, "last_layer": {}, "laplace": {}, "sgld": {"chains": 2, "burn_in": 20, "thin": 2},
        "nuts": {"chains": 2, "warmup": 100}, "variational": {"steps": 50}, "bootstrap": {"refits": 8},
    }  # fmt: skip
    for method, more in options.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = plain.posterior(method, **more)
            found[method] = posterior.welfare(x, y, draws=8, seed=1).values
            found[f"{method} probability"] = posterior.action_probability(x, draws=8, seed=1)
    network = GBPLNet(model=small(), zeta=1.0, committee=3, random_state=0, fit_config=fast()).fit(x, y)
    for structure in ("full", "diag", "kron", "low_rank"):
        try:
            posterior = network.posterior("laplace", structure=structure)
        except ValueError as error:
            found[f"laplace {structure}"] = str(error)
            continue
        found[f"laplace {structure}"] = posterior.welfare(x, y, draws=9).values
    return found


@case
def papers_setting(folder: Path) -> Record:
    from gbpl import MLP, GBPLNet

    x, y = full(200, seed=11)
    policy = GBPLNet(
        zeta=[1, 0.1, 0.01], committee=None, random_state=0, model=MLP(activation="relu"), fit_config=fast()
    ).fit(x, y)
    return policy_record(policy, x, folder)


@case
def baselines(folder: Path) -> Record:
    import gbpl

    found: Record = {}
    settings = {"random_state": 0, "model": small(), "fit_config": fast()}
    for name in ("DiffReg", "PluginReg", "WeightedLogistic", "DirectWelfare", "DirectDRWelfare", "DirectIPWWelfare"):
        data: Record = logged(200) if "DR" in name or "IPW" in name else dict(zip("Xy", full(200), strict=True))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            policy = getattr(gbpl, name)(**settings).fit(**data)
        found[name] = policy.predict_proba(data["X"])
        found[f"{name} value"] = values(policy.value(*full(150, seed=12), baseline=0))
    return found


@case
def many(folder: Path) -> Record:
    from gbpl import GBPLNet, fit_many

    data = [dict(zip("Xy", full(120, seed=s), strict=True)) for s in range(3)] + [logged(150, seed=s) for s in range(2)]
    fitted = fit_many([GBPLNet(random_state=r, model=small(), fit_config=fast()) for r in range(5)], data)
    return {str(r): policy.predict_proba(data[r]["X"]) for r, policy in enumerate(fitted)}


@case
def passes(folder: Path) -> Record:
    """From Parquet, in passes over chunks."""
    import pyarrow as pa
    import pyarrow.parquet

    from gbpl import GBPLNet

    data = logged(4000, 3, seed=13)
    columns = {f"x{j}": data["X"][:, j] for j in range(3)}
    taken = np.array(["a", "b", "c"])[data["action"]]
    chance = data["propensity"][np.arange(4000), data["action"]]
    table = pa.table({**columns, "y": data["y"], "arm": taken, "chance": chance})
    pyarrow.parquet.write_table(table, folder / "rows.parquet", row_group_size=900)
    policy = GBPLNet(random_state=0, model=small(), fit_config=fast()).fit_parquet(
        folder / "rows.parquet", outcome="y", action="arm", propensity="chance", cost={"c": 0.1}
    )
    (folder / "rows.parquet").unlink()
    return policy_record(policy, data["X"], folder)


def _study_record(study: Any, folder: Path, name: str) -> Record:
    summary = {key: value for key, value in study.summary.items() if key not in VOLATILE}
    study.policy.with_study(rule=study.policy.rule, encoder=study.policy.encoder, summary=None).save(
        folder / f"{name}.gbpl"
    )
    decided = study.decisions.to_dict()
    found = {f"{name} {key}": np.asarray(part) for key, part in decided.items()}
    return found | {f"{name} summary": json.dumps(summary, sort_keys=True, default=str)}


@case
def studies(folder: Path) -> Record:
    from gbpl import GBPLNet, compare_policies, evaluate_policy, learn

    def quick() -> Any:
        return GBPLNet(random_state=0, model=small(), fit_config=fast())

    table = trial()
    plain = {name: table[name] for name in ("age", "city", "arm", "y")}
    study = learn(plain, outcome="y", action="arm", propensity=0.5, cost={"treat": 0.2}, estimator=quick())
    found = _study_record(study, folder, "plain")
    limited = learn(
        plain, outcome="y", action="arm", propensity=0.5, capacity={"treat": 0.3}, outcome_range=(-6.0, 6.0),
        estimator=quick(),
    )  # fmt: skip
    found |= _study_record(limited, folder, "limited")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        everything = learn(table, outcome="y", action="arm", weight="weight", group="site", estimator=quick())
    found |= _study_record(everything, folder, "everything")
    new = {name: part for name, part in trial(200, seed=20).items() if name in plain}
    found["evaluation"] = json.dumps(evaluate_policy(study.policy, new).to_dict(), sort_keys=True)
    found["comparison"] = json.dumps(compare_policies(study.policy, limited.policy, new).to_dict(), sort_keys=True)
    return found


@case
def default_study(folder: Path) -> Record:
    from gbpl import learn

    plain = {name: part for name, part in trial(200).items() if name in ("age", "city", "arm", "y")}
    return _study_record(learn(plain, outcome="y", action="arm", propensity=0.5), folder, "default")


@case
def command_line(folder: Path) -> Record:
    """`gbpl fit` on a CSV file, then `gbpl decide`, `evaluate` and `compare`."""
    lines = trial(200)
    names = ("age", "city", "arm", "y")
    rows = [",".join(str(lines[name][i]) for name in names) for i in range(200)]
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "trial.csv"
        data.write_text("\n".join([",".join(names), *rows]) + "\n", encoding="utf-8")

        def gbpl(*words: str) -> str:
            run = subprocess.run(
                [sys.executable, "-m", "gbpl", *words], capture_output=True, text=True, cwd=place, check=True,
                env={**os.environ, "NO_COLOR": "1"},
            )  # fmt: skip
            return run.stdout

        said = gbpl("fit", "trial.csv", "--outcome", "y", "--action", "arm", "--propensity", "1/2", "--json")
        told = json.loads(said)
        found: Record = {"fit": json.dumps({k: v for k, v in told.items() if k not in (*VOLATILE, "files")})}
        gbpl("decide", "gbpl-result/policy.gbpl", "trial.csv", "-o", "decided.csv")
        found["decided"] = (Path(place) / "decided.csv").read_text(encoding="utf-8")
        found["evaluate"] = gbpl("evaluate", "gbpl-result/policy.gbpl", "trial.csv", "--json")
    return found


@case
def designs(folder: Path) -> Record:
    from gbpl.datasets import BinaryDesign, EmailDesign, MultiActionDesign, OneDimensionalDesign

    found: Record = {}
    for design in (BinaryDesign("DGP2"), MultiActionDesign("DGP1"), OneDimensionalDesign(), EmailDesign()):
        sample = design.sample(50, seed=3)
        found[type(design).__name__] = np.asarray(getattr(sample, "outcome_mean", 0.0))
    return found


@case
def quick_reproduction(folder: Path) -> Record:
    """`gbpl reproduce --quick`: every number of its records."""
    with tempfile.TemporaryDirectory() as place:
        words = ["reproduce", "--quick", "--out", place]
        if DATA is not None:
            words += ["--data-dir", str(Path(DATA).resolve())]
        subprocess.run([sys.executable, "-m", "gbpl", *words], check=True, capture_output=True)
        found = {}
        for path in sorted(Path(place).rglob("*")):
            if path.is_file() and path.suffix in (".csv", ".json", ".jsonl", ".npz", ".md"):
                text = path.read_bytes()
                found[str(path.relative_to(place))] = (
                    text.decode("utf-8", "replace") if path.suffix != ".npz" else (hashlib.sha256(text).hexdigest())
                )
    return found


DATA: str | None = None


def record(out: Path, only: list[str] | None) -> None:
    for name, make in CASES.items():
        if only and name not in only:
            continue
        folder = out / name
        folder.mkdir(parents=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                found = make(folder)
            except Exception as error:
                print(f"{name}: {type(error).__name__}: {error}", flush=True)
                raise
        texts = {key: part for key, part in found.items() if isinstance(part, str)}
        arrays = {key: np.asarray(part) for key, part in found.items() if key not in texts}
        np.savez(folder / "arrays.npz", **{key.replace("/", "|"): part for key, part in arrays.items()})
        (folder / "texts.json").write_text(json.dumps(texts, indent=1, sort_keys=True), encoding="utf-8")
        print(f"{name}: {len(arrays)} arrays, {len(texts)} texts", flush=True)


def _difference(one: np.ndarray, other: np.ndarray) -> str:
    if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
        return f"{one.dtype} {one.shape} became {other.dtype} {other.shape}"
    if one.dtype.kind not in "fiub":
        return "" if (one == other).all() else "labels differ"
    if np.array_equal(one, other, equal_nan=one.dtype.kind == "f"):
        return ""
    return f"differs by at most {np.nanmax(np.abs(one.astype(float) - other.astype(float))):.3g}"


def _policy_file(path: Path) -> tuple[Record, Record]:
    """What a policy's file says, and its arrays."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        header = json.loads((file.metadata() or {})["gbpl policy"])
        return json.loads(header["policy"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def _file_differences(one: Path, other: Path) -> list[str]:
    if one.read_bytes() == other.read_bytes():
        return []
    (settings, arrays), (new_settings, new_arrays) = _policy_file(one), _policy_file(other)
    names = sorted(arrays.keys() | new_arrays.keys())
    said = [f"array {name} differs" for name in names if not np.array_equal(arrays.get(name), new_arrays.get(name))]
    for name in sorted(settings.keys() | new_settings.keys()):
        if settings.get(name) != new_settings.get(name):
            said.append(f"{name} {settings.get(name)} became {new_settings.get(name)}")
    return said or ["other bytes"]


def compare(before: Path, after: Path) -> int:
    wrong = 0
    for folder in sorted(path for path in before.iterdir() if path.is_dir()):
        other = after / folder.name
        if not other.exists():
            print(f"{folder.name}: not recorded")
            continue
        said = []
        with np.load(folder / "arrays.npz") as one, np.load(other / "arrays.npz") as two:
            said += [f"{key}: missing" for key in set(one) ^ set(two)]
            said += [f"{key}: {d}" for key in sorted(set(one) & set(two)) if (d := _difference(one[key], two[key]))]
        texts = [json.loads((place / "texts.json").read_text(encoding="utf-8")) for place in (folder, other)]
        keys = texts[0].keys() | texts[1].keys()
        said += [f"{key}: text differs" for key in sorted(keys) if texts[0].get(key) != texts[1].get(key)]
        for path in sorted(path.relative_to(folder) for path in folder.rglob("*.gbpl")):
            said += [f"{path}: {d}" for d in _file_differences(folder / path, other / path)]
        print(f"{folder.name}: {'equal' if not said else '; '.join(said)}")
        wrong += bool(said)
    return wrong


def main() -> None:
    global DATA
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--only", nargs="*")
    recording.add_argument("--data-dir")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    given = parser.parse_args()
    if given.command == "record":
        DATA = given.data_dir
        record(given.out, given.only)
    else:
        raise SystemExit(min(compare(given.before, given.after), 1))


if __name__ == "__main__":
    main()
