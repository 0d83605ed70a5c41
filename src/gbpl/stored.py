"""What a policy's file must hold, and in which shapes: everything read from one is checked here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from gbpl.encoding import Encoder
from gbpl.gain import GainSlope
from gbpl.networks import ACTIVATIONS, SQUASHINGS, Networks
from gbpl.saved import Rule

__all__ = ["LABELS", "stored_policy"]

LABELS = (str, int, float, bool)
ARRAYS = {"weights": 1, "mean": 1, "scale": 1, "last": 3, "draws": 3, "draw_member": 1}


def _expect(fine: bool, what: str) -> None:
    if not fine:
        raise ValueError(what)


def _number(value: Any, what: str) -> float:
    fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    _expect(fine, f"{what} is {value!r:.40}, not a number")
    return float(value)


def stored_policy(told: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """The arguments of `NumpyPolicy`; raises ValueError, or what comes of a wrong type, where something is off."""
    hidden = _checked_arrays(arrays)
    actions = told["actions"]
    _expect(isinstance(actions, list) and len(actions) >= 2, "it has fewer than two actions")
    _expect(all(type(label) in LABELS for label in actions), "an action is neither text nor a number")
    _expect(len({(type(label), label) for label in actions}) == len(actions), "two actions have the same label")
    gain = _number(told["gain"], "gain")
    networks = Networks(hidden, arrays["last"], told["activation"], told["squashing"], gain)
    _check_networks(networks, arrays, len(actions))
    names, width = told["features"], len(arrays["mean"])
    if names is not None:
        fine = isinstance(names, list) and len(names) == width and all(isinstance(name, str) for name in names)
        _expect(fine, f"it does not name its {width} features")
    encoder = None if told["encoder"] is None else Encoder.from_json(told["encoder"])
    _expect(encoder is None or len(encoder.names) == width, "its encoder makes another number of features")
    _expect(told["summary"] is None or isinstance(told["summary"], dict), "its summary is no table")
    return {
        "networks": networks, "weights": arrays["weights"], "mean": arrays["mean"], "scale": arrays["scale"],
        "actions": _labels(actions), "feature_names": names, "draws": arrays.get("draws"),
        "draw_member": arrays.get("draw_member"), "gain": _slope(told["slope"]),
        "rule": _rule(told["rule"], len(actions)), "encoder": encoder, "summary": told["summary"],
    }  # fmt: skip


def _checked_arrays(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The hidden layers, once every array is one that belongs there."""
    layers = sum(1 for name in arrays if name.startswith("hidden"))
    expected = {"weights", "mean", "scale", "last", *(f"hidden{number}" for number in range(layers))}
    _expect(set(arrays) in (expected, expected | {"draws", "draw_member"}), f"it holds the arrays {sorted(arrays)}")
    for name, array in arrays.items():
        _expect(array.ndim == ARRAYS.get(name, 3) and 0 not in array.shape, f"{name} has shape {array.shape}")
        kind = np.int32 if name == "draw_member" else np.float64 if array.ndim == 1 else np.float32
        _expect(array.dtype == kind, f"{name} holds {array.dtype}")
        _expect(bool(np.isfinite(array).all()), f"{name} has values that are not finite")
    return tuple(arrays[f"hidden{number}"] for number in range(layers))


def _labels(actions: list[Any]) -> np.ndarray:
    """An array that gives the labels back as they came."""
    labels = np.asarray(actions)
    if labels.ndim != 1 or [type(label) for label in labels.tolist()] != [type(label) for label in actions]:
        labels = np.fromiter(actions, object, len(actions))
    return labels


def _slope(told: Any) -> GainSlope | None:
    if told is None:
        return None
    _expect(isinstance(told, list) and len(told) == 2, "its slope is not two numbers")
    return GainSlope(_number(told[0], "slope"), _number(told[1], "its error"))


def _check_networks(networks: Networks, arrays: dict[str, np.ndarray], count: int) -> None:
    """Every layer takes what the one before gives, for every member."""
    members, width = len(arrays["weights"]), len(arrays["mean"])
    _expect(networks.activation in ACTIVATIONS, f"its activation is {networks.activation!r:.40}")
    _expect(networks.squashing in SQUASHINGS, f"its squashing is {networks.squashing!r:.40}")
    _expect(
        arrays["scale"].shape == (width,) and bool((arrays["scale"] > 0).all()), "its scale is not one > 0 a feature"
    )
    for layer in (*networks.hidden, networks.last):
        _expect(layer.shape[:2] == (members, width + 1), f"a layer of shape {layer.shape} does not fit")
        width = layer.shape[2]
    raw = 1 if networks.squashing in ("tanh", "clip") else count
    _expect(width == raw and (raw > 1 or count == 2), f"{width} outputs do not make {count} actions")
    if "draws" in arrays:
        _expect(arrays["draws"].shape[1:] == networks.last.shape[1:], "its draws do not fit its last layer")
        owner = arrays["draw_member"]
        _expect(owner.shape == arrays["draws"].shape[:1], "a draw has no member")
        _expect(bool(((owner >= 0) & (owner < members)).all()), "a draw has no member")


def _rule(told: Any, count: int) -> Rule:
    default, defer, prices = told["default"], _number(told["defer"], "defer"), told["prices"]
    _expect(type(default) is int and 0 <= default < count, f"its default action is {default!r:.40}")
    _expect(0.0 <= defer <= 1.0, f"its level of deferral is {defer}")
    _expect(isinstance(prices, list) and len(prices) in (0, count), "it does not have a price for each action")
    return Rule(default, defer, tuple(_number(price, "a price") for price in prices))
