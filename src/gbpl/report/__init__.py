"""One page with the results of a study: `render` turns a summary into a self-contained HTML document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["render", "render_watch"]


def render(summary: Mapping[str, Any]) -> str:
    """The report of a summary (`gbpl.study.summary`) as one HTML document that loads nothing from anywhere.

    The same summary gives the same bytes. Names in the summary are taken as text, whatever they hold. Write the
    document as UTF-8: `path.write_text(render(summary), encoding="utf-8")`.
    """
    _require_jinja()
    import jinja2

    from gbpl.report.page import document

    try:
        return document(summary)
    except (
        ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError, jinja2.TemplateError
    ) as error:  # fmt: skip
        if not isinstance(summary, Mapping) or str(error).startswith("the summary"):
            raise
        raise ValueError(
            f"the summary is damaged: its parts do not go together ({type(error).__name__}: {error}); make it again "
            "with gbpl fit or gbpl.learn"
        ) from error


def render_watch(reading: Mapping[str, Any]) -> str:
    """The page of a watched policy (`gbpl.watch.reading.Reading.to_dict`), a document of the same kind."""
    _require_jinja()
    from gbpl.report.watching import watch_document

    return watch_document(reading)


def _require_jinja() -> None:
    try:
        import jinja2  # noqa: F401  imported here, so that the message says what to install
    except ImportError as error:
        raise ImportError("the report needs jinja2; install it with: pip install 'gbpl[cli]'") from error
