"""Saved policies: one safetensors file with the arrays, JSON in its header for the rest. No pickle, no code, no rows.

The header holds a SHA-256 of everything else, which shows damage. It is no signature: whoever can write a file can also
make its checksum right, and all that is read from it is checked as if it came from a stranger (`gbpl.frozen.schema`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from gbpl.frozen.committee import Part
from gbpl.frozen.export.python import to_python
from gbpl.frozen.export.sql import to_sql
from gbpl.frozen.onnx import to_onnx
from gbpl.frozen.policy import NumpyPolicy
from gbpl.frozen.schema import EFFECTS, LABELS, NOT_SPLIT, group_settings, policy_arguments
from gbpl.frozen.small_rule import SmallRule
from gbpl.models.numpy_form import Forests, Networks, NumpyForm
from gbpl.runtime.files import replacing, write_text
from gbpl.runtime.json import plain
from gbpl.watch.monitor import Monitor

if TYPE_CHECKING:
    from jaxtyping import Shaped

__all__ = ["FORMAT", "SavedPolicy", "SavedPolicyError", "load"]

FORMAT = 5  # 1 and 2 are written where they are enough, so that older versions read them
KIND = "gbpl policy"
MOST_HEADER = 32 << 20  # bytes of JSON: a summary of 1,000 features has one


class SavedPolicyError(ValueError):
    """A file that is no policy, or no longer one: the message says why and what to do."""


def _digest(text: str, arrays: Mapping[str, Shaped[np.ndarray, "..."]]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        digest.update(f"\n{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


class SavedPolicy(NumpyPolicy):
    """A fitted policy without its training rows, as `gbpl.load` returns it; numpy is all it needs to decide.

    It takes what the policy was fitted to: an array or frame of features, or, where it was learned from a table with an
    encoder, such a table.
    """

    def save(self, path: str | Path) -> None:
        """Write the policy to one file, which `gbpl.load` reads; whole or not at all."""
        content = _content(self)
        with replacing(Path(path)) as name:
            name.write_bytes(content)

    def to_onnx(self, path: str | Path, *, encoded: bool = False) -> None:
        """Write the policy as an ONNX file, for programs without Python; `gbpl.to_onnx` says what it holds."""
        to_onnx(self, path, encoded=encoded)

    def to_sql(self, *, dialect: str = "duckdb", table: str = "people", keep: Sequence[str] = ()) -> str:
        """The policy as one SQL query, for where the rows are; `gbpl.to_sql` says what it returns."""
        return to_sql(self, dialect=dialect, table=table, keep=keep)

    def to_python(self) -> str:
        """The policy as a Python file without numpy; `gbpl.to_python` says what it holds."""
        return to_python(self)

    @property
    def small_rule(self) -> SmallRule | None:
        """The small rule of the study the policy comes from; None if none was asked for."""
        told = (self.summary or {}).get("small_rule")
        return None if told is None else SmallRule.of_dict(told["rule"])

    def digest(self) -> str:
        """A SHA-256 of what decides and expects: the same for the policy saved with other draws or another summary."""
        arrays = {f"part{number}/{name}": array for number, part in enumerate(self.parts)
                  for name, array in _part_arrays(part).items() if not name.startswith("draw")}  # fmt: skip
        arrays |= {"mean": self.mean, "scale": self.scale}
        effects, gain = self.effects, self.gain
        if effects is not None and effects.level is not None:
            arrays["level"] = effects.level
        settings = [
            [_settings(part.form) for part in self.parts], self.squashing, None if effects is None else effects.slope,
            None if self.columns is None else np.asarray(self.columns).tolist(), None if gain is None else gain.slope,
            [str(label) for label in self.actions_.tolist()], self.rule.default, list(self.rule.prices),
            None if self.encoder is None else self.encoder.to_json(),
        ]  # fmt: skip
        if self.rule.groups is not None:
            settings.append(group_settings(self.rule.groups))
        return _digest(json.dumps(settings), arrays)

    def monitor(
        self, *, outcome_range: tuple[float, float] | None = None, baseline: Any = None,
        failure_probability: float | None = None, cut: bool | None = None, least_propensity: float | None = None,
        cost: Mapping[Any, float] | None = None, state: Mapping[str, Any] | None = None, refit: bool = False,
    ) -> Monitor:  # fmt: skip
        """A `Monitor` of the policy while data arrive: bounds that hold at every row, and promote or roll back.

        `outcome_range` is the lowest and highest value an outcome can take, known without the data (that of the
        certificate, if there is one); outcomes outside are refused, or with `cut` cut at its ends. Gains are over the
        `baseline`: an action (the default one if None), or "logging", what the log did. `failure_probability` (0.05) is
        for everything that is ever said of the policy and its refits. `cost` is as in `gbpl.learn`, whose costs are
        taken if None. `least_propensity`, 1 over twice the number of actions, is where bounds begin to be less sharp.
        All of this is fixed before the first row. With the `state` of an earlier monitor it goes on from there, also
        for another policy that takes its place (`refit`).
        """
        return Monitor.of(
            self, state=state, refit=refit, outcome_range=outcome_range, baseline=baseline, cut=cut, cost=cost,
            failure_probability=failure_probability, least_propensity=least_propensity,
        )  # fmt: skip

    def report(self, path: str | Path | None = None) -> str:
        """The report of the study the policy comes from, one HTML page; written to `path` if there is one."""
        if self.summary is None:
            raise ValueError(
                "this policy has no summary to report: it was saved by GBPLNet.save; gbpl.learn and gbpl fit make one"
            )
        from gbpl.report import render  # deciding does without

        page = render(self.summary)
        if path is not None:
            write_text(Path(path), page)
        return page


# -- writing ----------------------------------------------------------------------------------------------------------


def _plain_label(label: Any) -> Any:
    if type(label) not in LABELS or (isinstance(label, float) and not math.isfinite(label)):
        raise ValueError(
            f"the action {label!r} is a {type(label).__name__}, which is not saved; use text or numbers as labels"
        )
    return label


def _settings(form: NumpyForm) -> dict[str, Any]:
    """Settings of a part in format 2."""
    if isinstance(form, Forests):
        return {"kind": "forests"}
    return {"kind": "networks", "activation": form.activation, "gain": form.gain, "knots": form.knots}


def _part_arrays(part: Part) -> dict[str, Shaped[np.ndarray, "..."]]:
    form = part.form
    arrays = {"weights": part.weights, "last": form.last}
    if isinstance(form, Forests):
        threshold = np.where(np.isinf(form.threshold), NOT_SPLIT, form.threshold)  # all that is read is finite
        arrays |= {"feature": form.feature, "threshold": threshold, "value": form.value, "forest": form.forest}
    else:
        arrays |= {f"hidden{number}": layer for number, layer in enumerate(form.hidden)}
    if part.draws is not None and part.draw_member is not None:
        arrays |= {"draws": part.draws, "draw_member": part.draw_member}
    return arrays


def _content(policy: SavedPolicy) -> bytes:
    """The bytes of a policy's file."""
    parts, names = policy.parts, getattr(policy, "feature_names_in_", None)
    first = parts[0].form
    common = {"mean": policy.mean, "scale": policy.scale}
    effects = policy.effects
    columns = None if policy.columns is None else np.asarray(policy.columns).tolist()
    early = columns is None and effects is None and policy.rule.groups is None
    if early and len(parts) == 1 and isinstance(first, Networks) and not first.knots:
        version, arrays = 1, common | _part_arrays(parts[0])
        settings = {"activation": first.activation, "squashing": policy.squashing, "gain": first.gain}
    else:
        version, arrays = 2, common
        for number, part in enumerate(parts):
            arrays |= {f"part{number}/{name}": array for name, array in _part_arrays(part).items()}
        settings = {"parts": [_settings(part.form) for part in parts], "squashing": policy.squashing}
    if effects is not None:
        known = {} if effects.freedom is None else {"freedom": effects.freedom}
        version, settings = 3, settings | {"effects": {"slope": effects.slope, "knots": effects.knots, **known}}
        of_effects = {name: getattr(effects, name) for name in EFFECTS}
        arrays |= {f"effects/{name}": array for name, array in of_effects.items() if array is not None}
    if columns is not None:
        version, settings = 4, settings | {"columns": columns}
    rule = {"default": policy.rule.default, "defer": policy.rule.defer, "prices": list(policy.rule.prices)}
    if policy.rule.groups is not None:
        version, rule = 5, rule | {"groups": group_settings(policy.rule.groups)}
    settings |= {
        "actions": [_plain_label(label) for label in policy.actions_.tolist()],
        "features": None if names is None else [str(name) for name in names],
        "slope": None if policy.gain is None else [policy.gain.slope, policy.gain.se],
        "rule": rule,
        "encoder": None if policy.encoder is None else policy.encoder.to_json(),
        "summary": policy.summary,
    }  # fmt: skip
    if policy.fingerprint_ is not None:
        settings |= {"fingerprint": policy.fingerprint_.to_json()}
    if policy.seen is not None:
        settings |= {"seen": policy.seen.to_json()}
    if policy.certificate is not None and not (policy.summary or {}).get("certificate"):
        settings["certificate"] = plain(policy.certificate)
    arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    text = json.dumps(settings, allow_nan=False)
    header = {"format": version, "sha256": _digest(text, arrays), "policy": text}
    return save(arrays, metadata={KIND: json.dumps(header)})  # one key: the order of several is not kept


# -- reading ----------------------------------------------------------------------------------------------------------


def _refuse(path: Path, why: str) -> NoReturn:
    raise SavedPolicyError(f"{path} is damaged, or was never a policy: {why}; save it again where it was fitted")


def load(path: str | Path) -> SavedPolicy:
    """The policy in a file that `save` wrote; nothing in the file is run, and everything in it is checked.

    Raises `SavedPolicyError` for a file that is missing, damaged, of a newer format, or something else.
    """
    path = Path(path)
    version, settings, arrays = _read(path)
    try:
        return SavedPolicy(**policy_arguments(settings, arrays, version))
    except RecursionError:
        _refuse(path, "its header is nested too deeply")
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        _refuse(path, f"{error}" if isinstance(error, ValueError) else f"{type(error).__name__} ({error})")


def _read(path: Path) -> tuple[int, dict[str, Any], dict[str, np.ndarray]]:
    """Format, settings and arrays of a file."""
    if not path.exists():
        raise SavedPolicyError(f"there is no file {path}; policies are written by policy.save and by gbpl fit")
    if not path.is_file():
        raise SavedPolicyError(f"{path} is not a file; give the policy file itself, such as {path / 'policy.gbpl'}")
    try:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
        if size > MOST_HEADER:
            _refuse(path, f"its header claims {size} bytes, and at most {MOST_HEADER} are read")
        with safe_open(path, framework="numpy") as file:
            header = _header(path, (file.metadata() or {}).get(KIND))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, KeyError, MemoryError, UnicodeDecodeError) as error:
        _refuse(path, str(error) or type(error).__name__)
    text = header.get("policy")
    if not isinstance(text, str) or _digest(text, arrays) != header.get("sha256"):
        _refuse(path, "its content does not match its checksum")
    return header["format"], _json(path, text), arrays


def _json(path: Path, text: str) -> dict[str, Any]:
    try:
        content = json.loads(text, parse_constant=lambda name: _refuse(path, f"{name} is no number of JSON"))
    except (ValueError, RecursionError) as error:
        _refuse(path, str(error))
    if not isinstance(content, dict):
        _refuse(path, "its header holds no table of settings")
    return content


def _header(path: Path, text: str | None) -> dict[str, Any]:
    if text is None:
        _refuse(path, "its header does not say that it is one")
    header = _json(path, text)
    given = header.get("format")
    if type(given) is not int or given < 1:
        _refuse(path, f"its format is {given!r:.40}")
    if given > FORMAT:
        raise SavedPolicyError(
            f"{path} has format {given}, and this gbpl reads up to {FORMAT}; install a newer gbpl to use it"
        )
    return header
