"""Docstrings of gbpl are plain text; this makes Markdown of the parts that Markdown would read otherwise."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SECTION = re.compile(r"^(?=(?:Parameters|Attributes|Examples)\n-{3,}\n)", re.MULTILINE)
# Up to the next blank line; unfenced, `>>>` is a quotation in a quotation in a quotation.
DOCTEST = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)
# `name, name : what it is`, and lines below that are indented.
ENTRY = re.compile(r"^(\w+(?:, \w+)*) : (\S.*(?:\n    .*)*)\n?", re.MULTILINE)


def as_markdown(text: str) -> str:
    """Fenced doctests and bulleted entries; in the sections of a numpy docstring only what its parser misreads."""
    parts = SECTION.split(text)
    for number, part in enumerate(parts):
        if part.startswith("Attributes\n"):  # a description in the place of the type
            parts[number] = ENTRY.sub(r"\1\n    \2\n", part)
        elif not part.startswith(("Parameters\n", "Examples\n")):
            parts[number] = DOCTEST.sub(r"```pycon\n\g<0>\n```", ENTRY.sub(r"- **\1**: \2\n", part))
    return "".join(parts)


class PlainText(Extension):
    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
