"""A graph of ONNX, step by step: its constants, the encoder of a table, and the file it is written to."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gbpl.runtime.files import replacing
from gbpl.tables.encoder import Encoder
from gbpl.tables.features import NumberColumn
from gbpl.version import __version__

__all__ = ["DOUBLE", "FLOAT", "INT64", "Graph", "add_encoder", "write_graph"]

OPSET, IR = 17, 8  # old enough for onnxruntime 1.17
ML, ML_OPSET = "ai.onnx.ml", 2
FLOAT, INT64, STRING, DOUBLE = 1, 7, 8, 11  # as onnx.TensorProto numbers them
OURS = re.compile(r"[A-Za-z]+_\d+(_places)?|features|probability|action")  # names of steps and outputs


class Graph:
    """Steps in the order they are computed; numbers among their inputs become constants."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self.constants: dict[str, np.ndarray] = {}

    def __call__(self, operator: str, *inputs: Any, output: str = "", **attributes: Any) -> str:
        output = output or f"{operator}_{len(self.steps)}"
        outputs = [output, f"{output}_places"] if operator == "TopK" else [output]
        self.steps.append((operator, [self.name(value) for value in inputs], outputs, attributes))
        return output

    def name(self, value: Any) -> str:
        """The name of a value: its own, or that of a constant made of it."""
        if isinstance(value, str):
            return value
        array, name = np.asarray(value), f"constant_{len(self.constants)}"
        self.constants[name] = array.astype(np.int64) if array.dtype.kind == "i" else array
        return name


def _input_names(encoder: Encoder) -> dict[str, str]:
    """Raw columns and the inputs they are: the same name, but for one that a step of the graph has."""
    return {name: f"column {name}" if OURS.fullmatch(name) else name for name in encoder.columns}


def add_encoder(graph: Graph, encoder: Encoder) -> None:
    """Raw columns, "row 1" each, to `features`, as `Encoder.apply`: NaN and "" are missing."""
    features, names = [], _input_names(encoder)
    for part in encoder.parts:
        x = names[part.name]
        if isinstance(part, NumberColumn):
            gone = graph("IsNaN", x)
            features.append(graph("Where", gone, part.fill, x))
            if part.missing:
                features.append(graph("Cast", gone, to=DOUBLE))
            continue
        count = len(part.levels)
        fallback = count if part.other else -1
        absent = count + part.other if part.missing else fallback
        place = {"": absent} | {level: number for number, level in enumerate(part.levels)}
        levels = [number - part.single if number >= 0 else -1 for number in place.values()]
        index = graph(
            "LabelEncoder", x, domain=ML, keys_strings=list(place), values_int64s=levels,
            default_int64=fallback - part.single if fallback >= 0 else -1,
        )  # fmt: skip
        features.append(graph("Cast", graph("Equal", index, np.arange(len(part.names))), to=DOUBLE))
    graph("Concat", *features, axis=1, output="features")


def write_graph(
    graph: Graph, path: str | Path, *, actions: np.ndarray, names: Sequence[Any] | None, encoder: Encoder | None,
    width: int, outputs: Sequence[tuple[str, int, list[Any]]],
) -> None:  # fmt: skip
    """Write a graph, whole or not at all: its inputs are `features`, or the raw columns of an encoder.

    `outputs` are names, types and shapes. Metadata are labels, names of features, and which input each column is.
    """
    try:
        from onnx import helper, numpy_helper
    except ImportError as error:
        raise ImportError("ONNX files need the package onnx: pip install 'gbpl[onnx]'") from error
    for label in actions.tolist():
        if not isinstance(label, str | int | float):
            raise ValueError(f"the action {label!r} is a {type(label).__name__}; use text or numbers as labels")
    listed = None if names is None else [str(name) for name in names]
    columns = None if encoder is None else _input_names(encoder)
    metadata = {"actions": actions.tolist(), "features": listed, "inputs": columns}
    value = helper.make_tensor_value_info
    inputs = [value("features", DOUBLE, ["row", width])]
    if encoder is not None and columns is not None:
        kinds = [DOUBLE if isinstance(part, NumberColumn) else STRING for part in encoder.parts]
        inputs = [value(name, kind, ["row", 1]) for name, kind in zip(columns.values(), kinds, strict=True)]
    whole = helper.make_graph(
        [helper.make_node(operator, inputs, outputs, **more) for operator, inputs, outputs, more in graph.steps],
        "policy",
        inputs,
        [value(*output) for output in outputs],
        [numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    known = [helper.make_opsetid("", OPSET), *([] if encoder is None else [helper.make_opsetid(ML, ML_OPSET)])]
    model = helper.make_model(whole, opset_imports=known, ir_version=IR)
    model.producer_name, model.producer_version = "gbpl", __version__
    helper.set_model_props(model, {name: json.dumps(values, allow_nan=False) for name, values in metadata.items()})
    with replacing(Path(path)) as name:
        name.write_bytes(model.SerializeToString())
