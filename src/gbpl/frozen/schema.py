"""What a policy's file must hold, and in which shapes: everything read from one is checked here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gbpl.decisions.decisions import GroupPrices, Rule
from gbpl.decisions.gain import GainSlope
from gbpl.feedback.fingerprint import Fingerprint
from gbpl.frozen.committee import Effects, Part
from gbpl.frozen.seen import Seen
from gbpl.models.numpy_form import ACTIVATIONS, Forests, Networks, NumpyForm
from gbpl.report.schema import check_summary
from gbpl.squashing import squashings
from gbpl.tables.encoder import Encoder
from gbpl.tables.parts import Parts

__all__ = ["EFFECTS", "LABELS", "NOT_SPLIT", "group_settings", "labels_of", "policy_arguments"]

LABELS = (str, int, float, bool)
EFFECTS = ("level", "functions", "draw_weight", "draw_coefficient")
AXES = {
    "weights": 1, "mean": 1, "scale": 1, "draw_member": 1, "forest": 1, "value": 4, "level": 1, "functions": 2,
    "draw_weight": 2,
}  # fmt: skip  # the others have three
WHOLE = ("draw_member", "feature", "forest")
TREES = ("feature", "threshold", "value", "forest")
NOT_SPLIT = np.finfo(np.float32).max  # the threshold of a node that sends every row to the left
DEEPEST = 10  # as `ForestFeatures`
KNOTS = range(3, 51)  # as `Splines`


def _expect(fine: bool, what: str) -> None:
    if not fine:
        raise ValueError(what)


def _number(value: Any, what: str) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    _expect(fine, f"{what} is {value!r:.40}, not a number")
    return float(value)


def policy_arguments(settings: dict[str, Any], arrays: dict[str, np.ndarray], version: int) -> dict[str, Any]:
    """The arguments of `NumpyPolicy`; raises ValueError, or the error of a wrong type, where something is off.

    Format 1 has one part, its arrays and settings among the others. Format 2 has a list of them, `parts`, and the
    arrays of the first are called part0/weights and so on. Format 3 has effects; format 4 has the columns that members
    see, and may have effects; format 5 may have both, and has prices by group. A file of format 5 has its parts as
    format 2 has.
    """
    actions = settings["actions"]
    _expect(isinstance(actions, list) and len(actions) >= 2, "it has fewer than two actions")
    _expect(all(type(label) in LABELS for label in actions), "an action is neither text nor a number")
    _expect(len({(type(label), label) for label in actions}) == len(actions), "two actions have the same label")
    _expect(settings["squashing"] in squashings(len(actions)), f"its squashing is {settings['squashing']!r:.40}")
    for name, array in arrays.items():
        _check_array(name.rpartition("/")[2], array)
    of_effects = {name.removeprefix("effects/"): arrays.pop(name) for name in list(arrays) if name[:8] == "effects/"}
    mean, scale, each = _split(settings, arrays, version)
    _expect(scale.shape == mean.shape and bool((scale > 0).all()), "its scale is not one number > 0 per feature")
    squashing = settings["squashing"]
    columns = _columns(settings.get("columns"), len(mean), version)
    seen = len(mean) if columns is None else len(columns)
    parts = [_part(part, own, squashing, seen, len(actions)) for part, own in each]
    names, width = settings["features"], len(mean)
    if names is not None:
        fine = isinstance(names, list) and len(names) == width and all(isinstance(name, str) for name in names)
        _expect(fine, f"it does not name its {width} features")
    encoder = None if settings["encoder"] is None else Encoder.from_json(settings["encoder"])
    _expect(encoder is None or len(encoder.names) == width, "its encoder makes another number of features")
    for name in ("summary", "certificate"):
        _expect(isinstance(settings.get(name), dict | None), f"its {name} is no table")
    check_summary(settings["summary"] or {})
    return {
        "parts": parts, "squashing": squashing, "mean": mean, "scale": scale, "columns": columns,
        "actions": labels_of(actions), "feature_names": names, "gain": _slope(settings["slope"]),
        "rule": _rule(settings["rule"], len(actions), version), "encoder": encoder, "summary": settings["summary"],
        "fingerprint": None if settings.get("fingerprint") is None else Fingerprint.from_json(settings["fingerprint"]),
        "certificate": settings.get("certificate"),
        "seen": None if settings.get("seen") is None else Seen.from_json(settings["seen"], width),
        "effects": _effects(settings.get("effects"), of_effects, version, seen, parts, len(actions)),
    }  # fmt: skip


def _columns(listed: Any, width: int, version: int) -> np.ndarray | None:
    """The columns that members see, of those that standardized rows have; None for all of them."""
    _expect(version == 5 or (listed is not None) == (version == 4), "it does not have the columns of its format")
    if listed is None:
        return None
    whole = isinstance(listed, list) and all(type(number) is int for number in listed)
    fine = whole and len(set(listed)) == len(listed) > 0 and min(listed) >= 0 and max(listed) < width
    _expect(fine, f"its columns are not among the {width} features")
    return np.array(listed, np.int64)


def _check_array(name: str, array: np.ndarray) -> None:
    _expect(array.ndim == AXES.get(name, 3) and 0 not in array.shape, f"{name} has shape {array.shape}")
    kind = np.int32 if name in WHOLE else np.float64 if array.ndim == 1 else np.float32
    _expect(array.dtype == kind, f"{name} holds {array.dtype}")
    _expect(bool(np.isfinite(array).all()), f"{name} has values that are not finite")


def _split(
    settings: dict[str, Any], arrays: dict[str, np.ndarray], version: int
) -> tuple[np.ndarray, np.ndarray, list[tuple[dict[str, Any], dict[str, np.ndarray]]]]:
    """Mean, scale, and the settings and arrays of each part."""
    folders: dict[str, dict[str, np.ndarray]] = {"": {}}
    for name, array in arrays.items():
        end = name.rfind("/") + 1
        folders.setdefault(name[:end], {})[name[end:]] = array
    common = folders.pop("")
    mean, scale = common.pop("mean"), common.pop("scale")
    if version == 1:
        _expect(not folders, f"it holds the arrays {sorted(arrays)}")
        part = {"kind": "networks", "activation": settings["activation"], "gain": settings["gain"], "knots": 0}
        return mean, scale, [(part, common)]
    parts = settings["parts"]
    _expect(isinstance(parts, list) and len(parts) > 0, "it has no members")
    numbered = [f"part{number}/" for number in range(len(parts))]
    _expect(not common and set(folders) == set(numbered), f"it holds the arrays {sorted(arrays)}")
    return mean, scale, [(part, folders[name]) for part, name in zip(parts, numbered, strict=True)]


def _part(settings: dict[str, Any], arrays: dict[str, np.ndarray], squashing: str, width: int, count: int) -> Part:
    """One part of the committee: every layer takes what the one before gives, for every member."""
    layers = sum(1 for name in arrays if name.startswith("hidden"))
    expected = {"weights", "last", *(TREES if settings["kind"] == "forests" else map("hidden{}".format, range(layers)))}
    _expect(set(arrays) in (expected, expected | {"draws", "draw_member"}), f"it holds the arrays {sorted(arrays)}")
    members, last = len(arrays["weights"]), arrays["last"]
    hidden = tuple(arrays[f"hidden{number}"] for number in range(layers))
    form: NumpyForm
    match settings["kind"]:
        case "networks":
            form = _networks(settings, hidden, last)
            width = width * (form.knots - 1) if form.knots else width
        case "forests":
            form = _forests(arrays, width)
            width = form.value.shape[3]
        case other:
            raise ValueError(f"its members are {other!r:.40}")
    for layer in (*hidden, last):
        _expect(layer.shape[:2] == (members, width + 1), f"a layer of shape {layer.shape} does not fit")
        width = layer.shape[2]
    raw = 1 if squashing in ("tanh", "clip") else count
    _expect(width == raw and (raw > 1 or count == 2), f"{width} outputs do not make {count} actions")
    if "draws" in arrays:
        _expect(arrays["draws"].shape[1:] == last.shape[1:], "its draws do not fit its last layer")
        owner = arrays["draw_member"]
        _expect(owner.shape == arrays["draws"].shape[:1] and _within(owner, members), "a draw has no member")
    return Part(form, arrays["weights"], arrays.get("draws"), arrays.get("draw_member"))


def _effects(
    settings: Any, arrays: dict[str, np.ndarray], version: int, width: int, parts: list[Part], count: int
) -> Effects | None:
    """Expected effects and their draws, which format 3 has."""
    _expect(version >= 4 or (settings is not None) == (version == 3), "it does not have the effects of its format")
    if settings is None:
        _expect(not arrays, f"it holds the arrays {sorted(arrays)}")
        return None
    _expect(set(arrays) in ({"level"}, set(EFFECTS)), f"its effects hold the arrays {sorted(arrays)}")
    slope, knots = _number(settings["slope"], "slope"), settings["knots"]
    _expect(type(knots) is int and (knots == 0 or knots in KNOTS), f"the knots of its effects are {knots!r:.40}")
    freedom = settings.get("freedom")
    _expect(freedom is None or (type(freedom) is int and freedom >= 0), f"its freedom is {freedom!r:.40}")
    _expect(arrays["level"].shape == (count,), "its effects do not have a level for each action")
    if len(arrays) > 1:
        functions, weight, drawn = (arrays[name] for name in EFFECTS[1:])
        members = sum(len(part.weights) for part in parts)
        _expect(functions.shape[0] == width + 1, "its rough functions do not fit its features")
        _expect(weight.shape[1] == members, "a draw does not weigh every member")
        rows = 1 + width * (knots - 1 if knots else 1), 1
        fine = drawn.shape[0] == len(weight) and drawn.shape[2] == count
        _expect(fine and drawn.shape[1] - functions.shape[1] in rows, "a draw has no coefficients")
        _expect(all(part.draws is None for part in parts), "it has draws of two kinds")
    return Effects(slope, knots, *(arrays.get(name) for name in EFFECTS), freedom)  # type: ignore[arg-type,call-arg]


def _within(numbers: np.ndarray, count: int) -> bool:
    return bool(((numbers >= 0) & (numbers < count)).all())


def _networks(settings: dict[str, Any], hidden: tuple[np.ndarray, ...], last: np.ndarray) -> Networks:
    gain, knots, activation = _number(settings["gain"], "gain"), settings["knots"], settings["activation"]
    _expect(activation in ACTIVATIONS, f"its activation is {activation!r:.40}")
    _expect(type(knots) is int and (knots == 0 or knots in KNOTS), f"its knots are {knots!r:.40}")
    return Networks(hidden, last, activation, gain, knots)


def _forests(arrays: dict[str, np.ndarray], width: int) -> Forests:
    """Whole trees of one depth, whose nodes look at features there are."""
    feature, threshold, value, forest = (arrays[name] for name in TREES)
    depths = [depth for depth in range(1, DEEPEST + 1) if feature.shape[2] == 2**depth - 1]
    _expect(len(depths) == 1, f"trees of {feature.shape[2]} nodes are not whole, or deeper than {DEEPEST}")
    _expect(_within(feature, width), "a node looks at a feature that does not exist")
    _expect(threshold.shape == feature.shape, "a node has no threshold")
    _expect(value.shape[:3] == (*feature.shape[:2], feature.shape[2] + 1), "a leaf has no values")
    _expect(forest.shape == arrays["weights"].shape and _within(forest, len(feature)), "a member has no forest")
    split = np.where(threshold == NOT_SPLIT, np.float32(np.inf), threshold)
    return Forests(feature, split, value, forest, arrays["last"])


def labels_of(actions: list[Any]) -> np.ndarray:
    """An array that gives the labels back as they came."""
    labels = np.asarray(actions)
    if labels.ndim != 1 or [type(label) for label in labels.tolist()] != [type(label) for label in actions]:
        labels = np.fromiter(actions, object, len(actions))
    return labels


def _slope(settings: Any) -> GainSlope | None:
    if settings is None:
        return None
    _expect(isinstance(settings, list) and len(settings) == 2, "its slope is not two numbers")
    return GainSlope(_number(settings[0], "slope"), _number(settings[1], "its error"))


def group_settings(groups: GroupPrices) -> dict[str, Any]:
    """Prices by group as JSON."""
    return {"column": groups.column, "parts": groups.parts.to_json(), "prices": list(groups.prices)}


def _groups(settings: Any) -> GroupPrices:
    fine = isinstance(settings, dict) and isinstance(settings.get("column"), str)
    _expect(fine and isinstance(settings.get("prices"), list), "its prices by group have no column")
    parts = Parts.from_json(settings["parts"])
    _expect(len(parts.names) == len(settings["prices"]), "it does not have a price for each group")
    return GroupPrices(settings["column"], parts, tuple(_number(price, "a price") for price in settings["prices"]))


def _rule(settings: Any, count: int, version: int) -> Rule:
    default, defer, prices = settings["default"], _number(settings["defer"], "defer"), settings["prices"]
    _expect(type(default) is int and 0 <= default < count, f"its default action is {default!r:.40}")
    _expect(0.0 <= defer <= 1.0, f"its level of deferral is {defer}")
    _expect(isinstance(prices, list) and len(prices) in (0, count), "it does not have a price for each action")
    _expect((settings.get("groups") is not None) == (version == 5), "it does not have the prices of its format")
    groups = _groups(settings["groups"]) if version == 5 else None
    return Rule(default, defer, tuple(_number(price, "a price") for price in prices), groups)
