"""A data set with the roles of its columns: the action, the outcome, and what is known before."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["FRAMES", "Dataset", "Source", "check_choice", "import_package", "to_frame"]

FRAMES = ("pandas", "polars", "arrow")


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Dataset:
    """A frame and the roles of its columns. A column without a role is not in the frame.

    Logged feedback has `outcome` and `action`, full feedback has `outcomes`: one column per action, named after
    it. `features` are what a policy may see; `controls` only models of outcomes and propensities. `propensity` is a
    number, a mapping from action to number, the column with the chance of the action taken, or None where it has to be
    estimated. `cost` is a suggestion: what each action costs, in units of the outcome. `time` is the column to split by
    when later rows must not teach decisions about earlier ones. `notes` say how the propensity is known, which rows
    were left out, and what to look out for.

        data = load("nsw")
        GBPLNet().fit(**data.arguments(), cost=data.cost)
    """

    name: str
    frame: Any
    features: list[str]
    outcome: str | None = None
    action: str | None = None
    outcomes: list[str] | None = None
    controls: list[str] = field(default_factory=list)
    propensity: float | Mapping[Any, float] | str | None = None
    cost: Mapping[Any, float] | None = None
    time: str | None = None
    description: str = ""
    reference: str = ""
    source: str = ""
    notes: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Rows of the frame."""
        return len(self.frame)

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for `GBPLNet.fit`: X and y; with logged feedback action and propensity, and any controls.

        Features have to be numbers. The cost is left out: give it as `cost=data.cost` if it is wanted.
        """
        self._check_numbers(self.features)
        given: dict[str, Any] = {"X": self._part(self.features)}
        if self.outcomes is not None:
            return {**given, "y": self._part(self.outcomes)}
        chances = self.frame[self.propensity] if isinstance(self.propensity, str) else self.propensity
        given |= {"y": self.frame[self.outcome], "action": self.frame[self.action], "propensity": chances}
        return {**given, "controls": self._part(self.controls)} if self.controls else given

    def _part(self, names: list[str]) -> Any:
        if hasattr(self.frame, "column_names"):  # a pyarrow table, which scikit-learn does not know
            return np.column_stack([self.frame[name].to_numpy() for name in names])
        return self.frame[names]

    def _check_numbers(self, names: Sequence[str]) -> None:
        numeric = [name for name in names if self.frame[name].to_numpy().dtype.kind in "biuf"]
        if len(numeric) < len(names):
            others = ", ".join(name for name in names if name not in numeric)
            raise ValueError(
                f"the features of {self.name} must be numbers, got text in {others}; encode the frame first, for "
                f"example with gbpl.Encoder, or do without: dataclasses.replace(data, features={numeric})"
            )

    def __repr__(self) -> str:
        if self.outcomes is None:
            seen = f"outcome {self.outcome!r}, action {self.action!r}"
        else:
            seen = f"outcomes of {len(self.outcomes)} actions"
        return f"<Dataset {self.name}: {self.n_rows:,} rows, {len(self.features)} features, {seen}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What is known of a set before it is read, and the function that reads it.

    `read` is called with this object, the kind of frame, and what it needs by name: `path` where there is a `file`
    (`data_dir` where OpenML may stand in for it), `outcome` where there are `choices`.
    """

    name: str
    kind: str
    rows: int
    actions: int
    description: str
    reference: str
    read: Callable[..., Dataset]
    package: str = ""
    extra: str = "data"  # of gbpl, with the package
    file: str = ""
    origin: str = ""  # where the file comes from
    openml: bool = False  # OpenML has it too, so the file is not needed with a network
    choices: tuple[str, ...] = ()  # of the outcome, the first one unless asked for

    def dataset(self, columns: Mapping[str, np.ndarray], as_frame: str, **roles: Any) -> Dataset:
        """The data set of these columns."""
        where = self.file or (f"the package {self.package}" if self.package else "made by gbpl")
        about = {"description": self.description, "reference": self.reference, "source": where}
        return Dataset(name=self.name, frame=to_frame(columns, as_frame), **{**about, **roles})


def check_choice(name: str, given: Any, known: Sequence[str], remedy: str = "") -> None:
    """Refuse a value that is not among those known, with the nearest of them."""
    if given in known:
        return
    near = difflib.get_close_matches(str(given).lower(), [word.lower() for word in known], 1, cutoff=0.5)
    hint = next((f"did you mean {word!r}?" for word in known if near and word.lower() == near[0]), f"try {known[0]!r}")
    raise ValueError(f"{name} must be one of {', '.join(known)}, got {given!r}; {hint}{remedy}")


def to_frame(columns: Mapping[str, np.ndarray], as_frame: str) -> Any:
    """A pandas or a polars frame of these columns, or a pyarrow table."""
    check_choice("as_frame", as_frame, FRAMES)
    if as_frame == "arrow":
        return import_package("pyarrow", "as_frame='arrow'", "'gbpl[cli]'").table(dict(columns))
    library = import_package(as_frame, f"as_frame={as_frame!r}", as_frame)
    return library.DataFrame(dict(columns))


def import_package(module: str, wanted_by: str, install: str) -> ModuleType:
    """The module, or an ImportError that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(
            f"{wanted_by} needs the package {package}, which cannot be imported ({error}): pip install {install}",
            name=package,
        ) from error
