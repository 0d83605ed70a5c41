"""Keywords that other libraries use, answered with the one that is meant here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import ParamSpec, TypeVar

__all__ = ["answer_keywords"]

Given = ParamSpec("Given")
Result = TypeVar("Result")
# By what EconML, CausalML, DoubleML, obp, grf, policytree and scikit-learn call things; the first that a function has.
MEANT = {
    ("treatment", "treatments", "treat", "T", "w", "W", "D", "d", "arm", "actions_taken", "action_col"): ("action",),
    ("cluster", "clusters", "cluster_id", "group", "groups", "group_id"): ("groups", "group"),
    ("weights", "weight", "sample_weights", "sample_weight"): ("sample_weight", "weight"),
    ("propensities", "p", "pscore", "propensity_score", "ps"): ("propensity",),
    ("reward", "rewards", "Y", "response", "target", "outcome", "outcomes"): ("y", "outcome", "outcomes"),
    ("confounders", "covariates", "controls", "adjust"): ("controls", "features"),
    ("x", "X", "data", "df", "features"): ("X", "frame", "features"),
    ("costs", "price", "prices"): ("cost",),
    ("capacities",): ("capacity",),
    ("budgets",): ("budget",),
    ("seed", "random_state"): ("seed", "random_state"),
    ("baseline", "control", "control_name", "reference"): ("default", "baseline"),
}


def answer_keywords(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A function that answers an unknown keyword with the one that is meant, or with those there are."""
    known = [
        name
        for name, one in inspect.signature(function).parameters.items()
        if name != "self" and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    ]

    @functools.wraps(function)
    def checked(*args: Given.args, **options: Given.kwargs) -> Result:
        wrong = next((name for name in options if name not in known), None)
        if wrong is not None:
            raise TypeError(f"{function.__name__}() has no keyword {wrong!r}; {_answer(wrong, known)}")
        return function(*args, **options)

    return checked


def _answer(wrong: str, known: list[str]) -> str:
    for names, meant in MEANT.items():
        right = next((name for name in meant if name in known and name != wrong), None)
        if wrong in names and right is not None:
            return f"it is {right}= here"
    near = get_close_matches(wrong, known, 1, 0.75)
    return f"did you mean {near[0]}=?" if near else f"those there are: {', '.join(known)}"
