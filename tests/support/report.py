"""Example summaries for the report: invented rows, and the numbers a study would write of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np

PROBABILITIES = (0.5 + np.arange(201)) / 201
NORMAL = np.array([NormalDist().inv_cdf(p) for p in PROBABILITIES])
LEVELS = np.round(np.linspace(0.0, 1.0, 21), 2)

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{7*7}}",
    "</script><script>window.__hacked=1</script>",
    "{% for x in ().__class__.__base__.__subclasses__() %}x{% endfor %}",
    "\u202eמימין לשמאל abc",  # noqa: RUF001
    "👩🏽\u200d🚀 émoji 漢字",
    "long " + "x" * 295,
    "' onmouseover='window.__hacked=2",
    "{gain} & {best:name}\u2028</title></style><style>body{display:none}</style>",
)


def plain(value: Any) -> Any:
    """As a summary comes back from its file: plain Python, None for what is not a number."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value


def example(
    *,
    seed: int,
    rows: int,
    labels: Sequence[str],
    features: Sequence[str],
    effect: float,
    noise: float,
    level: float,
    spread: float,
    costs: Sequence[float],
    ahead: Sequence[float],
    logged: bool,
    outcome: str | None,
    source: str,
    propensities: Sequence[float] | None = None,
    weak: bool = False,
    only: int | None = None,
    averaged: bool = False,
) -> dict[str, Any]:
    """Rows with K latent scores, linear in the features; the policy takes the best as a noisy learner would."""
    rng = np.random.default_rng(seed)
    k = len(labels)
    x = rng.normal(size=(rows, len(features)))
    slopes = rng.normal(size=(len(features), k)) * (0.75 ** np.arange(len(features)))[:, None]
    mean = level + effect * ((x @ slopes) / np.sqrt(len(features)) + np.array(ahead)) - np.array(costs)
    values = mean + noise * rng.normal(size=(rows, k))
    seen = mean + effect * 0.25 * rng.normal(size=(rows, k))
    action = seen.argmax(axis=1) if only is None else np.full(rows, only)
    gap = np.sort(mean, axis=1)[:, -1] - np.sort(mean, axis=1)[:, -2]
    disagreement = np.clip(np.exp(-2.2 * gap / effect) * rng.uniform(0.3, 1.1, rows), 0.0, 1.0)
    disagreement *= 1.0 if only is None else 0.2
    chosen = np.eye(k)[action]
    columns = np.column_stack([(values * chosen).sum(1), values, chosen])
    moments_mean, covariance = columns.mean(0), np.cov(columns.T) / rows
    estimate, se = float(moments_mean[0]), float(np.sqrt(covariance[0, 0]))
    covariance[0, 0] += spread**2
    taken = rng.choice(k, rows, p=propensities) if logged else None
    best = int(np.argmax(moments_mean[1 : 1 + k]))
    alternatives = [
        alternative(f"everybody gets {labels[a]}", a, columns[:, 0], values[:, a], spread, best == a) for a in range(k)
    ]
    if taken is not None:
        as_logged = values[np.arange(rows), taken]
        alternatives.append(alternative("as logged", None, columns[:, 0], as_logged, spread, False))
    return plain(
        {
            "format": 1,
            "title": f"{source}: who should get which {'action' if not logged else 'arm'}",
            "created": "2026-11-15",
            "data": data_of(source, rows, features, logged, outcome, labels, propensities, weak),
            "actions": [
                {
                    "label": label,
                    "cost": costs[a],
                    "capacity": None,
                    "share": chosen[:, a].mean(),
                    "logged_rows": None if taken is None else int((taken == a).sum()),
                }
                for a, label in enumerate(labels)
            ],
            "default": 0,
            "welfare": {
                "estimate": estimate,
                "se": se,
                "spread": spread,
                "quantiles": estimate + np.hypot(se, spread) * NORMAL,
                "net_of_cost": any(costs),
            },
            "alternatives": alternatives,
            "bands": bands(covariance, k),
            "moments": {"mean": moments_mean, "covariance": covariance},
            "who": who(x, chosen, disagreement > 0.5, features),
            "tree": tree(x, action, features, k),
            "disagreement": split(disagreement, action, values, k),
            "review": review(x, disagreement > 0.5, features),
            "overlap": None if taken is None else overlap(rng, taken, labels, propensities, weak),
            "sensitivity": None if taken is None else sensitivity(labels[best], alternatives),
            "zeta_path": zeta_path(rng, estimate, se, logged),
            "calibration": calibration(rng, mean, values, action) | (sureness(seen, values) if averaged else {}),
            "certificate": None,
            "settings": {
                "zeta": "auto",
                "committee": 5,
                "eta": "auto",
                "clip": "auto",
                "random_state": 0,
                "level": 0.5,
            },
            "versions": {"gbpl": "0.1.0", "jax": "0.10.2", "numpy": "2.4.0", "python": "3.11.7"},
            "seconds": 14.2,
        }
    )


def sensitivity(best: str, alternatives: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Bounds of the gain over the best single action that widen with the logarithm of Gamma."""
    gain = next(item for item in alternatives if item["best"])
    slope, se = 3.0 * gain["gain_se"], gain["gain_se"]
    rows = []
    for gamma in (1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0, 5.0):
        low, high = (gain["gain"] + side * slope * np.log(gamma) for side in (-1.0, 1.0))
        ends = {"lower": low, "lower_se": se, "upper": high, "upper_se": se, "low": low - 2 * se, "high": high + 2 * se}
        rows.append({"gamma": gamma, **ends, "gain": ends, "rows_left": 1.0 / gamma})
    breakdown = max(float(np.exp(gain["gain"] / slope)), 1.0) if slope > 0.0 else 1.0
    broken = {"breakdown": breakdown if breakdown < 20.0 else None, "breakdown_limit": 1.0}
    return {
        "baseline": best, "level": 0.95, "most": 20.0, "differ": 0.6, "row_breakdown_median": 1.5, "gammas": rows,
        **broken, "against": [{"label": item["label"], "gain": item["gain"], **broken} for item in alternatives],
    }  # fmt: skip


def alternative(
    label: str, action: int | None, policy: np.ndarray, values: np.ndarray, spread: float, best: bool
) -> dict[str, Any]:
    gain = policy - values
    total = np.hypot(gain.std(ddof=1) / np.sqrt(len(gain)), spread)
    return {
        "label": label,
        "action": action,
        "value": values.mean(),
        "se": values.std(ddof=1) / np.sqrt(len(values)),
        "gain": gain.mean(),
        "gain_se": total,
        "gain_quantiles": gain.mean() + total * NORMAL,
        "chance": NormalDist().cdf(gain.mean() / total) if total > 0 else 0.5,
        "best": best,
    }


def bands(covariance: np.ndarray, k: int) -> dict[str, Any]:
    """Standard errors within which the gains over all single actions lie together, by level."""
    contrast = np.column_stack([np.ones(k), -np.eye(k), np.zeros((k, k))])
    of_gains = contrast @ covariance @ contrast.T
    se = np.sqrt(np.diag(of_gains))
    draws = np.random.default_rng(0).multivariate_normal(np.zeros(k), of_gains, 4000, check_valid="ignore")
    furthest = np.max(np.abs(draws[:, se > 0]) / se[se > 0], axis=1, initial=0.0)
    levels = np.arange(50, 100) / 100
    return {"level": levels, "reach": np.quantile(furthest, levels)}


def data_of(
    source: str,
    rows: int,
    features: Sequence[str],
    logged: bool,
    outcome: str | None,
    labels: Sequence[str],
    propensities: Sequence[float] | None,
    weak: bool,
) -> dict[str, Any]:
    written = None if propensities is None else f"{propensities[-1]:.3g} for {labels[-1]}, given"
    return {
        "source": source,
        "rows": rows,
        "dropped": 3,
        "feedback": "logged" if logged else "full",
        "outcome": outcome if logged else None,
        "action": "arm" if logged else None,
        "outcomes": None if logged else [f"y_{label}" for label in labels],
        "features": list(features),
        "controls": ["site"] if weak else [],
        "propensity": ("estimated by multinomial logistic regression" if weak else written) if logged else None,
        "weight": None,
        "group": None,
        "notes": [f"3 rows without {outcome or 'an outcome'} left out", "column 'id' left out: every value differs"],
    }


def who(x: np.ndarray, chosen: np.ndarray, deferred: np.ndarray, features: Sequence[str]) -> list[dict[str, Any]]:
    listed = []
    for j, feature in enumerate(features):
        category = j % 3 == 2
        cuts = np.quantile(x[:, j], [0.35, 0.7] if category else [0.2, 0.4, 0.6, 0.8])
        code = np.searchsorted(cuts, x[:, j])
        ends = [f"{100 * cut + 500:,.0f}" for cut in cuts]
        names = (
            ["none", "primary school", "secondary school or more"]
            if category
            else [
                f"below {ends[0]}",
                *[f"{a} to {b}" for a, b in pairwise(ends)],
                f"{ends[-1]} and above",
            ]
        )
        listed.append(
            {
                "feature": feature,
                "kind": "category" if category else "number",
                "importance": float(np.abs(np.corrcoef(x[:, j], chosen[:, -1])[0, 1]))
                if chosen[:, -1].std() > 0
                else 0.0,
                "bins": [
                    {
                        "label": name,
                        "rows": int((code == b).sum()),
                        "shares": chosen[code == b].mean(0),
                        "deferred": deferred[code == b].mean(),
                    }
                    for b, name in enumerate(names)
                ],
            }
        )
    return sorted(listed, key=lambda item: -item["importance"])[:30]


def tree(x: np.ndarray, action: np.ndarray, features: Sequence[str], k: int, depth: int = 3) -> dict[str, Any]:
    """Splits at the median of the feature that parts the actions best."""
    nodes: list[dict[str, Any]] = []

    def grow(rows: np.ndarray, left: int) -> int:
        counts = np.bincount(action[rows], minlength=k)
        node: dict[str, Any] = {
            "id": len(nodes),
            "feature": None,
            "text": None,
            "left": None,
            "right": None,
            "rows": len(rows),
            "action": int(counts.argmax()),
            "share": counts.max() / len(rows),
        }
        nodes.append(node)
        if left == 0 or len(rows) < 20 or node["share"] > 0.97:
            return int(node["id"])

        def purity(j: int) -> int:
            low = x[rows, j] <= np.median(x[rows, j])
            return int(sum(np.bincount(action[rows[part]], minlength=k).max() for part in (low, ~low)))

        j = max(range(x.shape[1]), key=purity)
        cut = np.median(x[rows, j])
        low = x[rows, j] <= cut
        node["feature"], node["text"] = features[j], f"{features[j]} <= {100 * cut + 500:,.0f}"
        node["left"], node["right"] = grow(rows[low], left - 1), grow(rows[~low], left - 1)
        return int(node["id"])

    grow(np.arange(len(x)), depth)
    leaves = [node for node in nodes if node["left"] is None]
    fidelity = sum(node["rows"] * node["share"] for node in leaves) / len(x)
    return {"fidelity": fidelity if len(nodes) > 1 else None, "depth": depth, "nodes": nodes}


def split(disagreement: np.ndarray, action: np.ndarray, values: np.ndarray, k: int) -> dict[str, Any]:
    edges = np.linspace(0.0, 1.0, 21)
    rows = np.arange(len(action))
    curve = []
    for level in LEVELS:
        given = np.where(disagreement > level, 0, action)
        worth = values[rows, given]
        curve.append(
            {
                "level": level,
                "share": (disagreement > level).mean(),
                "welfare": worth.mean(),
                "se": worth.std(ddof=1) / np.sqrt(len(worth)),
            }
        )
    return {
        "level": 0.5,
        "edges": edges,
        "counts": [np.histogram(disagreement[action == a], edges)[0] for a in range(k)],
        "curve": curve,
    }


def review(x: np.ndarray, deferred: np.ndarray, features: Sequence[str]) -> list[dict[str, Any]]:
    if not deferred.any() or deferred.all():
        return []
    rows = []
    for j, feature in enumerate(features):
        category = j % 3 == 2
        column = (x[:, j] > 0).astype(float) if category else 100 * x[:, j] + 500
        kept, handed = column[~deferred].mean(), column[deferred].mean()
        rows.append(
            {
                "feature": f"{feature}=yes" if category else feature,
                "kind": "category" if category else "number",
                "kept": kept,
                "deferred": handed,
                "difference": (handed - kept) / column.std(),
            }
        )
    return sorted(rows, key=lambda row: -abs(row["difference"]))[:12]


def overlap(
    rng: np.random.Generator,
    taken: np.ndarray,
    labels: Sequence[str],
    propensities: Sequence[float] | None,
    weak: bool,
) -> dict[str, Any]:
    k, n = len(labels), len(taken)
    edges = np.linspace(0, 1, 51) if k == 2 else np.geomspace(0.003, 1.0, 51)
    center = np.full(k, 1 / k) if propensities is None else np.array(propensities)
    scores = np.log(center) + (1.2 if weak else 0.0) * rng.normal(size=(n, k))
    chance = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    counts = np.bincount(taken, minlength=k)
    reasons = (
        ["7.3% of the rows have a propensity below the clip of 0.02 (more than 5%)",
         f"1 of the {k} actions have an effective size below 30: {labels[0]!r} 21.4"] if weak else []
    )  # fmt: skip
    return {
        "actions": list(labels),
        "counts": counts,
        "smallest_propensity": chance.min(0),
        "clip": 0.02 / k,
        "clipped_fraction": 0.073 if weak else 0.0,
        "effective_size": float(n) * (0.41 if weak else 0.89),
        "effective_size_by_action": counts * (0.4 if weak else 0.98),
        "quantile_99": 4.1,
        "largest": 9.7,
        "outside_support": 0.012 if weak else 0.0,
        "outside_by_action": [0.012 / k] * k,
        "estimated": weak,
        "histogram_edges": edges,
        "histogram": [
            [
                np.histogram(chance[taken != a, a], edges)[0],
                np.histogram(chance[taken == a, a], edges)[0],
            ]
            for a in range(k)
        ],
        "welfare_by_clip": [
            {"clip": clip, "welfare": 1.0 - clip, "se": 0.02, "clipped_fraction": 2 * clip, "effective_size": 0.8 * n}
            for clip in (0.005, 0.01, 0.05)
        ] if weak else [],
        "weak": bool(reasons),
        "reasons": reasons,
    }  # fmt: skip


def zeta_path(rng: np.random.Generator, estimate: float, se: float, logged: bool) -> dict[str, Any]:
    zeta = np.array([10.0, 3.0, 1.0, 0.1, 0.001]) * (1.7 if se < 1 else 1700.0)
    zeta = np.concatenate([zeta, zeta]) if logged else zeta
    correction = np.repeat([1.0, 0.0], 5) if logged else np.ones(5)
    welfare = estimate + se * (rng.normal(size=len(zeta)) * 0.3 - np.abs(np.arange(len(zeta)) % 5 - 2) * 0.3)
    weight = np.exp(2.0 * (welfare - welfare.max()) / se)
    return {
        "zeta": zeta,
        "welfare": welfare,
        "welfare_se": np.full(len(zeta), se) * rng.uniform(0.95, 1.05, len(zeta)),
        "weight": weight / weight.sum(),
        "correction": correction,
        "shortfall": welfare.max() - welfare,
    }


def calibration(rng: np.random.Generator, mean: np.ndarray, values: np.ndarray, action: np.ndarray) -> dict[str, Any]:
    rows = np.arange(len(action))
    expected = mean[rows, action] - mean[:, 0]
    gained = values[rows, action] - values[:, 0]
    groups = []
    for part in np.array_split(np.argsort(expected, kind="stable"), 5):
        groups.append(
            {
                "expected": expected[part].mean() * 1.1 + 0.02 * gained.std() * rng.normal(),
                "estimate": gained[part].mean(),
                "se": max(gained[part].std(ddof=1), 0.1 * gained.std()) / np.sqrt(len(part)),
                "rows": len(part),
            }
        )
    return {
        "eta": 0.52,
        "eta_note": "matched to the sandwich variance of welfare (information matching)",
        "coverage": {
            "eta": np.geomspace(0.06, 4.0, 7),
            "coverage": [0.995, 0.985, 0.96, 0.915, 0.85, 0.74, 0.6],
            "level": 0.9,
        },
        "groups": groups,
    }


def sureness(seen: np.ndarray, values: np.ndarray) -> dict[str, Any]:
    """What a study of averaged zetas says instead of eta: rows by how sure it is, with expected and estimated gains."""
    rows, order = np.arange(len(seen)), np.argsort(seen, axis=1)
    expected = seen[rows, order[:, -1]] - seen[rows, order[:, -2]]
    gained = values[rows, order[:, -1]] - values[rows, order[:, -2]]
    said = 1.0 - 0.5 * np.exp(-2.0 * expected / expected.mean())
    groups = [
        {
            "said": said[part].mean(),
            "expected": expected[part].mean(),
            "estimate": gained[part].mean(),
            "se": gained[part].std(ddof=1) / np.sqrt(len(part)),
            "rows": len(part),
        }
        for part in np.array_split(np.argsort(said, kind="stable"), 5)
    ]
    return {"eta": None, "eta_note": None, "coverage": None, "reliability": groups}


def findings() -> dict[str, Any]:
    """A check with one verdict of each kind, and a name of the user's in a sentence."""
    listed = (
        ("balance of the log", "passed", 0.6, "The actions were taken as often as the propensities say (p = 0.6)."),
        ("copied outcome", "failed", None, f"{HOSTILE[0]!r} copies the outcome. Leave it out."),
        ("shuffled actions", "doubt", 0.34, "Shuffled actions would do as well (p = 0.34)."),
    )
    return {
        "verdict": "failed", "level": 0.05, "placebo_level": 0.01, "seconds": 20.5,
        "findings": [
            {"name": name, "verdict": verdict, "p_value": p, "sentence": sentence, "statistic": 1.0, "details": {}}
            for name, verdict, p, sentence in listed
        ],
    }  # fmt: skip


def two_actions() -> dict[str, Any]:
    """A job training trial in dollars, with a cost; the gain over training everybody is not settled."""
    labels = ("0", "1")
    summary = example(
        seed=3, rows=9223, labels=labels, features=("prevearn", "age", "schooling"), effect=900.0, noise=15000.0,
        level=15500.0, spread=45.0, costs=(0.0, 774.0), ahead=(0.0, 1.8), logged=True, outcome="earnings",
        source="jtpa.csv", propensities=(0.333, 0.667),
    )  # fmt: skip
    summary["check"] = findings()
    summary["certificate"] = {
        "of": "policy", "lower": 14028.0, "upper": 15675.0, "estimate": 14839.0, "failure_probability": 0.05,
        "best_action": "0", "gain": {"lower": -132.0}, "gains": {"0": {"lower": -198.0}, "1": {"lower": -1321.0}},
        "over_logging": {"lower": -695.0}, "n": 4612, "learned": 4611,
        "text": "Certified: this policy is worth 14028 or more per person on average.",
    }  # fmt: skip
    return summary


def three_actions() -> dict[str, Any]:
    """An e-mail campaign, visits as outcome: a clear gain, propensities estimated, overlap weak."""
    return example(
        seed=5, rows=6400, labels=("No E-Mail", "Mens E-Mail", "Womens E-Mail"),
        features=("recency", "history", "segment", "mens", "womens", "newbie", "zip_code", "channel", "age"),
        effect=0.12, noise=0.34, level=0.14, spread=0.0012, costs=(0.0, 0.0, 0.0), ahead=(0.0, 0.3, 0.2),
        logged=True, outcome="visit",
        source="hillstrom.parquet", propensities=(0.3, 0.3, 0.4), weak=True, averaged=True,
    )  # fmt: skip


def ten_actions() -> dict[str, Any]:
    """Full feedback with ten actions: which of ten answers to give."""
    return example(
        seed=8, rows=1797, labels=tuple(f"digit {d}" for d in range(10)),
        features=tuple(f"pixel_{j}" for j in range(12)), effect=0.5, noise=0.3, level=0.2, spread=0.004,
        costs=(0.0,) * 10, ahead=np.linspace(0.0, 0.3, 10).tolist(), logged=False, outcome=None, source="digits.csv",
        averaged=True,
    )  # fmt: skip


def one_action() -> dict[str, Any]:
    """A policy that gives everybody the same: no gain over itself, no tree, nobody to review."""
    summary = example(
        seed=3, rows=2000, labels=("wait", "treat"), features=("age", "sex"), effect=1.0, noise=2.0, level=5.0,
        spread=0.0, costs=(0.0, 0.0), ahead=(0.0, 3.0), logged=True, outcome="days at home", source="ward.csv",
        propensities=(0.5, 0.5), only=1,
    )  # fmt: skip
    summary["tree"]["fidelity"] = None
    return summary


def tiny() -> dict[str, Any]:
    """Every key, and null wherever the schema allows to know nothing."""
    return {
        "format": 1,
        "title": "tiny",
        "created": None,
        "data": {
            "source": "memory", "rows": 4, "dropped": 0, "feedback": "full", "outcome": None, "action": None,
            "outcomes": ["a", "b"], "features": ["x"], "controls": [], "propensity": None, "weight": None,
            "group": None, "notes": [],
        },
        "actions": [
            {"label": "a", "cost": 0.0, "capacity": None, "share": None, "logged_rows": None},
            {"label": "b", "cost": 0.0, "capacity": None, "share": None, "logged_rows": None},
        ],
        "default": 0,
        "welfare": {"estimate": None, "se": None, "spread": None, "quantiles": None, "net_of_cost": False},
        "alternatives": [
            {"label": f"everybody gets {name}", "action": a, "value": None, "se": None, "gain": None, "gain_se": None,
             "gain_quantiles": None, "chance": None, "best": False}
            for a, name in enumerate("ab")
        ],
        "bands": None,
        "moments": None,
        "who": [],
        "tree": None,
        "disagreement": None,
        "review": [],
        "overlap": None,
        "zeta_path": None,
        "calibration": {"eta": None, "eta_note": None, "coverage": None, "groups": []},
        "certificate": None,
        "settings": {"zeta": None},
        "versions": {},
        "seconds": None,
    }  # fmt: skip


def nothing() -> dict[str, Any]:
    """Null for every part of a summary but its format."""
    return {key: 1 if key == "format" else None for key in tiny()}


def hostile() -> dict[str, Any]:
    """Names that would break a page that trusts them."""
    summary = example(
        seed=11, rows=900, labels=HOSTILE[:5], features=HOSTILE, effect=1.0, noise=1.0, level=3.0, spread=0.02,
        costs=(0.0, 0.1, 0.2, 0.3, 0.4), ahead=(0.0, 0.1, 0.2, 0.3, 0.5), logged=True, outcome=HOSTILE[1],
        source=HOSTILE[3], propensities=(0.2,) * 5, weak=True,
    )  # fmt: skip
    summary["title"] = HOSTILE[9]
    summary["data"]["notes"] = list(HOSTILE)
    summary["settings"] = dict.fromkeys(HOSTILE, HOSTILE[0])
    summary["versions"] = {HOSTILE[3]: HOSTILE[1]}
    summary["calibration"]["eta_note"] = HOSTILE[0]
    summary["certificate"] = {
        "lower": 1.0, "estimate": 2.0, "failure_probability": 0.05, "best_action": HOSTILE[1],
        "best_action_lower": 0.5, "text": HOSTILE[3],
    }  # fmt: skip
    for place, item in enumerate(summary["who"]):
        for part in item["bins"]:
            part["label"] = HOSTILE[place % len(HOSTILE)] + part["label"]
    return summary


def many_actions() -> dict[str, Any]:
    """Thirty-four actions, as in the Open Bandit log."""
    return example(
        seed=2, rows=3000, labels=tuple(f"item {i}" for i in range(34)), features=("hour", "age", "segment"),
        effect=0.3, noise=0.4, level=1.0, spread=0.004, costs=(0.0,) * 34, ahead=(0.0,) * 34, logged=True,
        outcome="click", source="bandit.csv", propensities=(1 / 34,) * 34,
    )  # fmt: skip


EXAMPLES: dict[str, Callable[[], dict[str, Any]]] = {
    maker.__name__: maker
    for maker in (two_actions, three_actions, ten_actions, one_action, tiny, nothing, hostile, many_actions)
}


def watched() -> dict[str, Any]:
    """What `gbpl watch` hands to its page, with names that would do harm if they were more than text."""
    history = [[float(n), 0.3 - 2 / n**0.5, 0.3, 0.3 + 2 / n**0.5, 0.05 - 2 / n**0.5, 0.05, 0.05 + 2 / n**0.5]
               for n in (1, 5, 10, 40, 100, 400, 1000, 4000, 10000)]  # fmt: skip
    label = "<script>window.__hacked = 1</script>"
    action = {"share": 0.5, "share_learned": 0.4, "share_taken": 0.5, "gain": 0.1, "expected_gain": None}
    return {
        "policy": label, "outcome": label, "baseline": label, "rows": 10_000, "version": 2,
        "verdict": "roll back", "promoted_row": 120, "verdict_row": 4321,
        "sentence": f"Roll back: over {label}.", "alarms": [f"these have moved: {label}"], "history": history,
        "value": {"lower": 0.28, "estimate": 0.3, "upper": 0.32}, "surplus": None,
        "gain": {"lower": -0.07, "estimate": -0.05, "upper": -0.03},
        "by_action": [{"action": label, **action}, {"action": "a long name " * 12, **action}],
        "drift": [{"feature": label, "shift": 0.4, "moved": 1333}, {"feature": "x" * 90, "shift": 0.0, "moved": None}],
        "limits": {"shift": 0.2, "spread": 2.0}, "outcome_range": [0.0, 1.0], "cut": True, "net_of_cost": True,
        "ended": [{"version": 1, "policy": "f00d", "rows": 1200, "verdict": "promote"}],
        "failure_probability": 0.05, "version_budget": 0.0076,
        "shares": {"gain": [0.35, 0.25], "gain since promotion": 0.1, "value": [0.05, 0.05],
                   "expected gain": [0.05, 0.05], "drift": 0.1},
    }  # fmt: skip


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key, and the first and the last item of every list."""
    keys = (
        list(value)
        if isinstance(value, dict)
        else sorted({0, len(value) - 1})
        if isinstance(value, list) and value
        else []
    )
    for key in keys:
        yield (*at, key)
        yield from places(value[key], (*at, key))
