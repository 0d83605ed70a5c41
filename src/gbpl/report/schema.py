"""What a summary must hold where it holds something: whoever can write a file can write anything into it.

A part may be missing or None; what is there has the type below. Parts that are not listed are not looked at.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

__all__ = ["check_summary"]

TEXT, NUMBER, WHOLE, FLAG, ANY = "text", "a number", "a whole number", "true or false", "anything"
SHARE = "a number from 0 to 1"
NUMBERS, TEXTS = [NUMBER], [TEXT]
BOUNDS = dict.fromkeys(("lower", "lower_se", "upper", "upper_se", "low", "high"), NUMBER)
GROUPS = [dict.fromkeys(("said", "expected", "estimate", "se"), NUMBER) | {"rows": WHOLE}]
SPAN = dict.fromkeys(("estimate", "se", "low", "high", "band_low", "band_high"), NUMBER)
NODES = [
    {
        "feature": TEXT, "text": TEXT, "share": NUMBER,
        **dict.fromkeys(("id", "left", "right", "rows", "action"), WHOLE),
    }
]  # fmt: skip
ESTIMATE = dict.fromkeys(("estimate", "se", "low", "high", "level"), NUMBER)
SCHEMA: dict[str, Any] = {
    "title": TEXT,
    "created": TEXT,
    "data": {
        **dict.fromkeys(("source", "feedback", "outcome", "action", "propensity", "weight", "group"), TEXT),
        **dict.fromkeys(("rows", "dropped"), WHOLE),
        **dict.fromkeys(("outcomes", "features", "controls", "notes"), TEXTS),
    },
    "roles": {
        **dict.fromkeys(("outcome", "action", "weight", "group"), TEXT),
        **dict.fromkeys(("outcomes", "controls", "features"), TEXTS),
        "propensity": ANY,
    },
    "actions": [{"label": TEXT, "cost": NUMBER, "capacity": NUMBER, "share": NUMBER, "logged_rows": WHOLE}],
    "default": WHOLE,
    "welfare": {**dict.fromkeys(("estimate", "se", "spread"), NUMBER), "quantiles": NUMBERS, "net_of_cost": FLAG},
    "alternatives": [
        {
            **dict.fromkeys(("value", "se", "gain", "gain_se"), NUMBER),
            "chance": SHARE,
            **{"label": TEXT, "action": WHOLE, "gain_quantiles": NUMBERS, "best": FLAG},
        }
    ],
    "bands": {"level": NUMBERS, "reach": NUMBERS},
    "moments": {"mean": NUMBERS, "covariance": [NUMBERS]},
    "who": [
        {
            "feature": TEXT, "kind": TEXT, "importance": NUMBER,
            "bins": [{"label": TEXT, "rows": WHOLE, "shares": NUMBERS, "deferred": NUMBER}],
        }
    ],
    "tree": {"fidelity": NUMBER, "depth": WHOLE, "nodes": NODES},
    "small_rule": {
        "kind": TEXT, "size": WHOLE, "exact": FLAG, "text": TEXT, "value": ESTIMATE, "price": ESTIMATE,
        "agreement": SHARE, "shares": [SHARE], "nodes": NODES,
        "card": {"start": [WHOLE], "conditions": [{"text": TEXT, "points": [WHOLE]}]},
        "splits": {
            "replicates": WHOLE, "same_columns": SHARE, "agreement": SHARE,
            "first": [{"column": TEXT, "share": SHARE, "low": NUMBER, "high": NUMBER}],
            "columns": [{"column": TEXT, "share": SHARE}],
        },
        "constraints": {"without": TEXTS, "monotone": ANY, "leaves": WHOLE, "min_share": SHARE}, "rule": ANY,
    },
    "disagreement": {
        "level": NUMBER, "edges": NUMBERS, "counts": [[WHOLE]],
        "curve": [dict.fromkeys(("level", "share", "welfare", "se"), NUMBER)],
    },
    "review": [{"feature": TEXT, "kind": TEXT, **dict.fromkeys(("kept", "deferred", "difference"), NUMBER)}],
    "budget": {
        **dict.fromkeys(("asked", "level"), NUMBER), "rows": WHOLE, "cost_column": TEXT, "shares": [NUMBERS],
        **dict.fromkeys(("cost", "spend", "gain", "se", "low", "high", "lot", "price"), NUMBERS),
        "at": {
            **dict.fromkeys(("spend", "gain", "se", "low", "high", "price", "marginal", "marginal_se"), NUMBER),
            "shares": NUMBERS,
        },
        **dict.fromkeys(("area", "over_lot"), dict.fromkeys(("estimate", "se", "low", "high"), NUMBER)),
        "inclusion": {"edges": NUMBERS, "counts": [WHOLE]},
    },
    "overlap": {
        "actions": [ANY], "counts": [WHOLE], "reasons": TEXTS, "weak": FLAG, "estimated": FLAG,
        **dict.fromkeys(("clip", "clipped_fraction", "effective_size", "quantile_99", "largest"), NUMBER),
        **dict.fromkeys(("smallest_propensity", "effective_size_by_action", "outside_by_action"), NUMBERS),
        "outside_support": NUMBER, "histogram_edges": NUMBERS, "histogram": [[[WHOLE]]],
        "welfare_by_clip": [dict.fromkeys(("clip", "welfare", "se", "clipped_fraction", "effective_size"), NUMBER)],
    },
    "sensitivity": {
        **dict.fromkeys(("level", "most", "differ", "row_breakdown_median", "breakdown", "breakdown_limit"), NUMBER),
        "baseline": TEXT,
        "gammas": [{"gamma": NUMBER, **BOUNDS, "gain": BOUNDS, "rows_left": NUMBER}],
        "against": [{"label": TEXT, **dict.fromkeys(("gain", "breakdown", "breakdown_limit"), NUMBER)}],
    },
    "zeta_path": dict.fromkeys(("zeta", "welfare", "welfare_se", "weight", "correction", "shortfall"), NUMBERS),
    "calibration": {
        "eta": NUMBER, "eta_note": TEXT, "coverage": {"eta": NUMBERS, "coverage": NUMBERS, "level": NUMBER},
        "groups": GROUPS, "reliability": GROUPS,
    },
    "certificate": {"text": TEXT, **dict.fromkeys(("best_action_lower", "failure_probability", "lower"), NUMBER)},
    "by_group": {
        "level": NUMBER,
        "columns": [
            {
                "column": TEXT, "kind": TEXT, "feature": FLAG, "same": {"gain": SHARE, "share": SHARE},
                "groups": [
                    {
                        "label": TEXT, "rows": WHOLE, "shares": [SPAN],
                        **dict.fromkeys(("value", "gain", "gain_difference", "share_difference"), SPAN),
                    }
                ],
            }
        ],
        "bound": {
            "column": TEXT, "of": TEXT, "chance": SHARE, "price": SPAN,
            **dict.fromkeys(("bound", "level", "aim", "gap", "held_out_gap", "free_gap"), NUMBER),
            "groups": [
                {"label": TEXT, "rows": WHOLE, **dict.fromkeys(("free", "reached", "held_out", "price"), NUMBER)}
            ],
        },
    },
    "check": {
        "findings": [{"name": TEXT, "verdict": TEXT, "sentence": TEXT}], "level": NUMBER, "placebo_level": NUMBER,
    },
    "explained": {
        "level": NUMBER, "reference": TEXT,
        "rows": [
            {
                **dict.fromkeys(("kind", "decided", "default", "about", "mode", "text"), TEXT),
                **dict.fromkeys(("level", "gain", "reference_gain"), NUMBER),
                "rows": WHOLE, "draw_share": SHARE, "fixed": TEXTS,
                "others": {"columns": WHOLE, "contribution": NUMBER},
                "gains": [
                    {"action": TEXT, "draw_share": SHARE, **dict.fromkeys(("gain", "low", "high", "price"), NUMBER)}
                ],
                "contributions": [
                    {**dict.fromkeys(("column", "value", "reference"), TEXT), "contribution": NUMBER, "se": NUMBER}
                ],
                "flips": [
                    {"changes": [dict.fromkeys(("column", "from", "to"), TEXT)], "decided": TEXT, "distance": NUMBER}
                ],
            }
        ],
    },
    "several": {
        **dict.fromkeys(("kind", "against", "against_label", "text"), TEXT), "outcomes": TEXTS, "level": NUMBER,
        "chosen": WHOLE, "fallback": FLAG, "allowed": [WHOLE],
        "guards": [
            {
                **dict.fromkeys(("outcome", "text", "sign"), TEXT), **dict.fromkeys(("relative", "holds"), FLAG),
                **dict.fromkeys(("bound", "change", "se", "limit", "value", "base"), NUMBER),
            }
        ],
        "front": [
            {
                "label": TEXT, "lambda": NUMBER, "weights": {},
                **dict.fromkeys(("tested", "holds", "chosen", "dominated"), FLAG),
                "outcomes": [
                    dict.fromkeys(("value", "se", "change", "change_se", "band_low", "band_high"), NUMBER)
                ],
            }
        ],
    },
    "settings": {},
    "versions": {},
    "seconds": NUMBER,
}  # fmt: skip


def check_summary(summary: Mapping[str, Any]) -> None:
    """Refuse a summary with a part of another kind than a study writes, by its name."""
    _check(summary, SCHEMA, "summary")
    unknown = set(summary.get("roles") or {}) - set(SCHEMA["roles"])
    if unknown:
        _refuse("roles", f"one of {', '.join(SCHEMA['roles'])}", sorted(map(str, unknown))[0])


def _check(value: Any, spec: Any, where: str) -> None:
    if value is None or spec == ANY:
        return
    if isinstance(spec, dict):
        if not isinstance(value, Mapping):
            _refuse(where, "a table", value)
        for name in spec.keys() & value.keys():
            _check(value[name], spec[name], name if where == "summary" else f"{where}.{name}")
    elif isinstance(spec, list):
        if not isinstance(value, list):
            _refuse(where, "a list", value)
        for number, item in enumerate(value):
            _check(item, spec[0], f"{where}[{number}]")
    elif not _is(value, spec):
        _refuse(where, spec, value)


def _is(value: Any, spec: str) -> bool:
    if spec in (TEXT, FLAG):
        return isinstance(value, str if spec == TEXT else bool)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
        return False
    return 0 <= value <= 1 if spec == SHARE else spec == NUMBER or float(value).is_integer()


def _refuse(where: str, wanted: str, value: Any) -> None:
    raise ValueError(
        f"the summary is damaged: {where} must be {wanted}, got {value!r:.40}; make it again with gbpl fit or "
        "gbpl.learn"
    )
