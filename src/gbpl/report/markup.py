"""Elements and sentences that escape all they hold; a template takes them as they are, through `__html__`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TypeAlias

__all__ = ["Child", "Sentence", "Tag", "tag"]

SHAPES = ("circle", "line", "path", "rect")  # of SVG, which may close themselves
PLACE = re.compile(r"\{(\w+)(?::(name|b))?\}")  # controls.js reads the same marks


@dataclass(frozen=True, slots=True)
class Tag:
    """An element of HTML or SVG: attributes and text are escaped when it is written."""

    name: str
    attributes: Mapping[str, str]
    children: tuple[Child, ...]

    def __html__(self) -> str:
        attributes = "".join(f' {name}="{escape(value)}"' for name, value in self.attributes.items())
        inner = "".join(child.__html__() if hasattr(child, "__html__") else escape(child) for child in self.children)
        if not inner and self.name in SHAPES:
            return f"<{self.name}{attributes}/>"
        return f"<{self.name}{attributes}>{inner}</{self.name}>"


@dataclass(frozen=True, slots=True)
class Sentence:
    """Words with places for numbers, {low} or in bold {gain:b}, and for names of the user's, {action:name}.

    Names are isolated, so that one written from right to left does not turn the sentence round.
    """

    pattern: str
    values: Mapping[str, str] = field(default_factory=dict)

    def _parts(self) -> Iterator[tuple[str, str]]:
        end = 0
        for place in PLACE.finditer(self.pattern):
            yield "", self.pattern[end : place.start()]
            yield {"name": "bdi", "b": "b", None: ""}[place[2]], self.values[place[1]]
            end = place.end()
        yield "", self.pattern[end:]

    def __html__(self) -> str:
        return "".join(f"<{kind}>{escape(text)}</{kind}>" if kind else escape(text) for kind, text in self._parts())

    def __str__(self) -> str:
        return "".join(text for _, text in self._parts())


Child: TypeAlias = Tag | Sentence | str


def tag(name: str, *children: Child, **attributes: object) -> Tag:
    """`tag("rect", x="3%", class_="bar", data_low=1.5)`; attributes that are None are left out."""
    written = {
        key.rstrip("_").replace("_", "-"): f"{value:.10g}" if isinstance(value, float) else str(value)
        for key, value in attributes.items()
        if value is not None
    }
    return Tag(name, written, children)
