"""The public names. `__init__.py` imports each where it is first used."""

from .binary import BinaryDesign
from .dataset import Dataset
from .email_campaign import EmailDesign
from .files import DATA_DIR_VARIABLE, DataUnavailableError
from .loading import Entry, catalog, load
from .logged_design import LoggedDesign
from .multi_action import MultiActionDesign
from .one_dimensional import OneDimensionalDesign
from .samples import Design, KnownWelfare, LoggedSample, Sample
from .semi_synthetic import SemiSyntheticDesign

__all__ = [
    "DATA_DIR_VARIABLE", "BinaryDesign", "DataUnavailableError", "Dataset", "Design", "EmailDesign", "Entry",
    "KnownWelfare", "LoggedDesign", "LoggedSample", "MultiActionDesign", "OneDimensionalDesign", "Sample",
    "SemiSyntheticDesign", "catalog", "load",
]  # fmt: skip
