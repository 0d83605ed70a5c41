"""Parts of a summary that are there only when asked for: a budget, a small rule, groups, explained rows, outcomes."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.report import EXAMPLES as PLAIN
from support.report import HOSTILE, hostile, plain, three_actions


def budget(summary: dict[str, Any], points: int = 41) -> dict[str, Any]:
    """A concave curve with a band that widens, of three actions or more."""
    k, rows = len(summary["actions"]), summary["data"]["rows"]
    spend = np.linspace(0.0, 0.8, points)
    gain = 0.09 * (1.0 - np.exp(-3.0 * spend))
    se = 0.012 * np.sqrt(spend / 0.8)
    shares = np.zeros((points, k))
    shares[:, 1], shares[:, 2] = 0.5 * spend, 0.25 * spend
    shares[:, 0] = 1.0 - shares[:, 1:].sum(1)
    at = 0.313
    here = 0.09 * (1.0 - np.exp(-3.0 * at))
    return plain(
        {
            "asked": at * rows,
            "rows": rows,
            "cost": [0.0, 1.0, 2.0, *([1.0] * (k - 3))],
            "cost_column": None,
            "level": 0.9,
            "spend": spend,
            "gain": gain,
            "se": se,
            "low": gain - 2.4 * se,
            "high": gain + 2.4 * se,
            "lot": 0.07 * spend,
            "price": 0.27 * np.exp(-3.0 * spend),
            "shares": shares,
            "at": {
                "spend": at,
                "gain": here,
                "se": 0.0075,
                "low": here - 0.0123,
                "high": here + 0.0123,
                "price": 0.1,
                "marginal": 0.104,
                "marginal_se": 0.031,
                "shares": [1 - 0.75 * at, 0.5 * at, 0.25 * at, *([0.0] * (k - 3))],
            },
            "area": {"estimate": 0.055, "se": 0.01, "low": 0.039, "high": 0.071},
            "over_lot": {"estimate": 0.027, "se": 0.008, "low": 0.014, "high": 0.04},
            "inclusion": {
                "edges": np.linspace(0.0, 1.0, 11),
                "counts": [2900, 310, 190, 150, 140, 120, 130, 170, 290, 2000],
            },
        }
    )


def small_rule(names: tuple[str, str] = ("history", "segment")) -> dict[str, Any]:
    """A tree of depth two."""
    leaf = {"feature": None, "text": None, "left": None, "right": None}
    return {
        "kind": "tree",
        "size": 2,
        "exact": True,
        "text": "...",
        "agreement": 0.83,
        "shares": [0.2, 0.5, 0.3],
        "value": {"estimate": 0.2143, "se": 0.0052, "low": 0.2041, "high": 0.2245, "level": 0.95},
        "price": {"estimate": 0.0071, "se": 0.0029, "low": 0.0014, "high": 0.0128, "level": 0.95},
        "nodes": [
            {
                "id": 0,
                "feature": names[0],
                "text": f"{names[0]} <= 212.5",
                "left": 1,
                "right": 2,
                "rows": 6400,
                "action": 1,
                "share": 0.5,
            },
            {
                "id": 1,
                "feature": f"{names[1]}=new",
                "text": f"{names[1]} is not new",
                "left": 3,
                "right": 4,
                "rows": 2900,
                "action": 0,
                "share": 0.6,
            },
            {"id": 2, **leaf, "rows": 3500, "action": 1, "share": 0.81},
            {"id": 3, **leaf, "rows": 1300, "action": 0, "share": 0.9},
            {"id": 4, **leaf, "rows": 1600, "action": 2, "share": 0.77},
        ],
        "card": None,
        "splits": {
            "replicates": 50,
            "first": [
                {"column": names[0], "share": 0.82, "low": 180.0, "high": 260.0},
                {"column": names[1], "share": 0.18, "low": None, "high": None},
            ],
            "columns": [{"column": names[0], "share": 0.98}, {"column": names[1], "share": 0.4}],
            "same_columns": 0.35,
            "agreement": 0.93,
        },
        "constraints": {"without": ["zip_code"], "monotone": {"age": "Mens E-Mail"}, "leaves": 4, "min_share": 0.01},
    }


def scorecard(names: tuple[str, str] = ("history", "segment")) -> dict[str, Any]:
    card = {
        "start": [0, -2, -1],
        "conditions": [
            {"text": f"{names[0]} > 212.5", "points": [0, 3, 1]},
            {"text": f"{names[1]} is new", "points": [0, 0, 2]},
        ],
    }
    return small_rule(names) | {"kind": "scorecard", "nodes": None, "card": card}


def _span(estimate: float, se: float) -> dict[str, float]:
    one, both = 1.645 * se, 2.4 * se
    return {
        "estimate": estimate,
        "se": se,
        "low": estimate - one,
        "high": estimate + one,
        "band_low": estimate - both,
        "band_high": estimate + both,
    }


def by_group(
    k: int = 3, labels: tuple[str, ...] = ("Phone", "Web", "Multichannel"), column: str = "channel"
) -> dict[str, Any]:
    groups = []
    for i, label in enumerate(labels):
        other = (0.25 + 0.1 * i) / (k - 1)
        shares = [_span(0.75 - 0.1 * i, 0.01), *(_span(other, 0.01) for _ in range(k - 1))]
        groups.append(
            {
                "label": label,
                "rows": 2000 + 100 * i,
                "shares": shares,
                "value": _span(0.2 + 0.02 * i, 0.008),
                "gain": _span(0.05 * i - 0.01, 0.011),
                "gain_difference": _span(0.03 * i - 0.03, 0.013),
                "share_difference": _span(0.1 * i - 0.1, 0.015),
            }
        )
    return {
        "level": 0.9,
        "columns": [
            {
                "column": column,
                "kind": "category",
                "feature": True,
                "same": {"gain": 0.0004, "share": 0.2},
                "groups": groups,
            }
        ],
        "bound": {
            "column": column,
            "of": "shares",
            "bound": 0.1,
            "level": 0.95,
            "aim": 0.06,
            "chance": 0.04,
            "gap": 0.06,
            "held_out_gap": 0.07,
            "free_gap": 0.31,
            "groups": [
                {"label": label, "rows": 2000, "free": 0.7, "reached": 0.55, "held_out": 0.56, "price": 0.012}
                for label in labels
            ],
            "price": {"estimate": 0.002, "se": 0.001, "low": 0.0004, "high": 0.0036},
        },
    }


def explained(
    actions: list[str], columns: tuple[str, ...] = ("recency", "history", "channel", "age")
) -> dict[str, Any]:
    rows = []
    for i, (kind, decided) in enumerate((("typical", 1), ("close call", 2), ("large gain", 1))):
        parts = [0.05 - 0.02 * i, -0.03, 0.012, 0.004]
        contributions = [
            {
                "column": column,
                "value": f"{3 + i}" if j % 2 == 0 else "Web",
                "reference": "5.8" if j % 2 == 0 else None,
                "contribution": part,
                "se": 0.0,
            }
            for j, (column, part) in enumerate(zip(columns, parts, strict=True))
        ]
        gains = [
            {
                "action": action,
                "gain": 0.0 if a == 0 else 0.03 * a,
                "low": 0.0 if a == 0 else 0.03 * a - 0.05,
                "high": 0.0 if a == 0 else 0.03 * a + 0.05,
                "draw_share": 0.3,
                "price": 0.0,
            }
            for a, action in enumerate(actions)
        ]
        rows.append(
            {
                "kind": kind,
                "rows": 20 + i,
                "decided": actions[decided],
                "default": actions[0],
                "draw_share": 0.93 - 0.3 * (i == 1),
                "gains": gains,
                "about": actions[decided],
                "gain": 0.02 + sum(parts),
                "reference_gain": 0.02,
                "contributions": contributions,
                "others": None,
                "level": 0.9,
                "fixed": [],
                "mode": "exact",
                "flips": [
                    {
                        "changes": [{"column": columns[0], "from": "3", "to": "9"}],
                        "decided": actions[0],
                        "distance": 1.7,
                    }
                ]
                if i < 2
                else [],
                "text": f"Decided: {actions[decided]}.",
            }
        )
    return {"level": 0.9, "reference": "the average row", "fixed": [], "rows": rows}


def several(outcomes: tuple[str, str] = ("visit", "complaints")) -> dict[str, Any]:
    front = []
    for i, label in enumerate(
        ("default for all", f"{outcomes[1]} alone", "lambda 4", "lambda 1", f"{outcomes[0]} alone")
    ):
        changes = ((0.0, 0.0), (0.01, -0.004), (0.04, 0.001), (0.06, 0.004), (0.07, 0.013))[i]
        spans = [
            {
                "value": 0.1 + change,
                "se": 0.004,
                "change": change,
                "change_se": se,
                "band_low": change - 2.6 * se,
                "band_high": change + 2.6 * se,
            }
            for change, se in zip(changes, (0.0 if i == 0 else 0.006, 0.0 if i == 0 else 0.002), strict=True)
        ]
        front.append(
            {
                "label": label,
                "lambda": None,
                "weights": {},
                "holds": i < 4,
                "tested": i < 5,
                "dominated": False,
                "chosen": i == 3,
                "outcomes": spans,
            }
        )
    return {
        "kind": "guard",
        "outcomes": list(outcomes),
        "against": "default",
        "against_label": "everybody gets No E-Mail",
        "level": 0.95,
        "chosen": 3,
        "fallback": False,
        "text": f"{outcomes[0]} changes by +0.06, {outcomes[1]} by 0.004.",
        "guards": [
            {
                "outcome": outcomes[1],
                "text": f"{outcomes[1]}<=0.01",
                "sign": "<=",
                "bound": 0.01,
                "relative": False,
                "change": 0.004,
                "se": 0.002,
                "limit": 0.0073,
                "value": 0.05,
                "base": 0.046,
                "holds": True,
            }
        ],
        "front": front,
    }


def everything() -> dict[str, Any]:
    """An e-mail campaign with all that can be asked for."""
    summary = three_actions()
    labels = [action["label"] for action in summary["actions"]]
    parts = {
        "budget": budget(summary),
        "small_rule": small_rule(),
        "by_group": by_group(),
        "explained": explained(labels),
    }
    return summary | parts | {"several": several(), "unit": {"sign": "$", "per": "customer", "population": 64_000}}


def hostile_everything() -> dict[str, Any]:
    """The same parts with names that would break a page that trusts them."""
    summary = hostile()
    labels = [action["label"] for action in summary["actions"]]
    names = (HOSTILE[0], HOSTILE[3])
    return summary | {
        "budget": budget(summary) | {"cost_column": HOSTILE[1]},
        "small_rule": scorecard(names),
        "by_group": by_group(len(labels), HOSTILE[:4], HOSTILE[9]),
        "explained": explained(labels, HOSTILE[:4]),
        "several": several(names) | {"text": HOSTILE[3], "against_label": HOSTILE[0]},
    }


EXAMPLES = PLAIN | {"everything": everything, "hostile_everything": hostile_everything}
