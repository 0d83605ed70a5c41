"""The document: sections put into the template, style and script into the page, and a policy that allows no more."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from gbpl.report import appendix, confounding, sections
from gbpl.report.advice import MOST, SHOWN, WANTED
from gbpl.report.bars import definitions, swatch
from gbpl.report.budget import budget
from gbpl.report.check import check
from gbpl.report.doubts import doubts
from gbpl.report.explained import explained
from gbpl.report.glance import glance
from gbpl.report.groups import by_group
from gbpl.report.numbers import count, number, percent
from gbpl.report.reading import LEVEL, Study, read
from gbpl.report.rule import small_rule
from gbpl.report.several import several
from gbpl.report.words import ADVISED, GLOSSARY, PATTERNS, TIPS, VERDICTS, rivals

if TYPE_CHECKING:
    import jinja2

__all__ = ["Verbatim", "document", "resource", "template"]

SCRIPTS = ("numbers.js", "charts.js", "tables.js", "controls.js")
EXTRAS = {"budget": "budget.js", "explained": "search.js"}  # scripts of parts that are not always there
SECTIONS: tuple[Callable[[Study], Any], ...] = (
    sections.decision, glance, doubts, sections.welfare, sections.alternatives, sections.who, sections.disagreement,
    budget, several, small_rule, by_group, explained, appendix.overlap, confounding.confounding, appendix.zeta,
    appendix.calibration, check, appendix.certificate,
    appendix.record,
)  # fmt: skip
OPTIONAL = (
    "budget",
    "several",
    "rule",
    "groups",
    "explained",
    "overlap",
    "confounding",
)  # sections that are left out where the summary has nothing of them
CONTENTS = (
    (
        "The decision",
        (
            ("decision", "What to do"), ("budget", "What a budget brings"), ("several", "Several outcomes"),
            ("welfare", "What it is worth"), ("alternatives", "Alternatives"),
        ),
    ),
    (
        "For whom",
        (
            ("who", "Who gets what"), ("rule", "A small rule"), ("groups", "Group by group"),
            ("explained", "One decision explained"), ("disagreement", "Close calls"),
        ),
    ),
    (
        "What could be wrong",
        (
            ("check", "What would break it?"), ("calibration", "Expected and found"), ("overlap", "Overlap"),
            ("confounding", "Hidden confounding"), ("certificate", "Certificate"),
        ),
    ),
    ("For the analyst", (("zeta", "Zeta path"), ("record", "For the record"))),
)  # fmt: skip
VIEWS = {"rule": "small_rule", "groups": "by_group"}  # sections whose names are not those of their part
DIGITS = 10  # of the numbers that go to the script: more than any that are shown


def document(summary: Mapping[str, Any]) -> str:
    """One HTML document; see `gbpl.report.render`."""
    study = read(summary)
    views = {section.__name__: section(study) for section in SECTIONS}
    script = _script(views)
    return template("page.html.jinja").render(
        **views,
        study=study,
        summary=study.summary,
        level=LEVEL,
        definitions=definitions(),
        legend=[(swatch(style), label) for style, label in zip(study.slots.styles, study.slots.labels, strict=True)],
        contents=contents(study, views),
        costs=_adjustable_costs(study),
        rivals=rivals(study),
        tips=TIPS,
        glossary=GLOSSARY,
        number=number,
        style=Verbatim(lean(resource("style.css"))),
        script=Verbatim(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii"),
        figures=Verbatim(_json(_figures(study, views))),
    )


def contents(study: Study, views: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, str]]]]:
    """The sections there are, by the question they answer: their ids and names."""
    gone = {name for name in OPTIONAL if not views[VIEWS.get(name, name)]}
    if study.data.get("feedback") == "logged":
        gone -= {"overlap"}  # it is said there that nothing is known
    return [(title, [(name, called) for name, called in listed if name not in gone]) for title, listed in CONTENTS]


@cache
def template(name: str) -> jinja2.Template:
    """A page to fill in; all that goes in is escaped."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(resource), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {"count": count, "percent": percent, "plain": _plain}
    return environment.get_template(name)


class Verbatim:
    """Our own style and script, and JSON without signs that mean anything in HTML: written as they are."""

    def __init__(self, content: str) -> None:
        self.content = content

    def __html__(self) -> str:
        return self.content


def resource(name: str) -> str:
    """A file of this folder."""
    return files("gbpl.report").joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def lean(code: str) -> str:
    """Style or script without indents, empty lines and lines that are comments; no string there spans lines."""
    lines = (line.strip() for line in code.splitlines())
    return "".join(f"{line}\n" for line in lines if line and not line.startswith(("//", "/*")))


def _script(views: Mapping[str, Any]) -> str:
    extras = [name for part, name in EXTRAS.items() if views[part]]
    body = lean("\n".join(resource(name) for name in (*SCRIPTS, *extras))) + "start();\n"
    return f'\n(() => {{\n"use strict";\n{body}}})();\n'


def _adjustable_costs(study: Study) -> list[tuple[str, float]]:
    """Label and cost of each action; none where the moments to recompute values with are missing."""
    moments, count = study.summary.get("moments") or {}, len(study.actions)
    size = 1 + 2 * count
    complete = (
        len(moments.get("mean") or []) == size
        and [len(row) for row in moments.get("covariance") or []] == [size] * size
    )
    if not complete or study.welfare.get("estimate") is None or study.best is None:
        return []
    return [(name, float(action.get("cost") or 0.0)) for name, action in zip(study.names, study.actions, strict=True)]


def _figures(study: Study, views: Mapping[str, Any]) -> dict[str, Any]:
    """What the script needs to follow the controls."""
    curve = None if views["welfare"] is None else views["welfare"]["curve"]
    deferral = views["disagreement"]
    costs = _adjustable_costs(study)
    return {
        "level": LEVEL,
        "places": study.places,
        "rows": study.data.get("rows"),
        "labels": study.names,
        "names": {"outcome": study.outcome, "default": study.default},
        "net": bool(study.welfare.get("net_of_cost")),
        "only": study.only,
        "unit": {"sign": study.unit.sign, "per": study.unit.per, "population": study.unit.population},
        "usual": study.default_place,
        "rivals": rivals(study),
        "adviceLimits": {"shown": SHOWN, "wanted": WANTED, "most": MOST},
        "costs": [cost for _, cost in costs],
        "estimate": study.welfare.get("estimate"),
        "quantiles": study.welfare.get("quantiles"),
        "curve": None if curve is None else {"x": curve.x, "height": curve.height},
        "alternatives": [
            {key: item.get(key) for key in ("action", "value", "gain", "chance")}
            | {"label": study.short(place), "se": item.get("gain_se")}
            | {"quantiles": item.get("gain_quantiles"), "share": item.get("share"), "mix": study.mix(place)}
            for place, item in enumerate(study.alternatives)
        ],
        "best": study.best,
        "reaches": study.reaches,
        "moments": study.summary.get("moments") if costs else None,
        "deferral": None if deferral is None else {"level": deferral["level"], "curve": deferral["curve"]},
        "slots": study.slots.labels,
        "budget": None if views["budget"] is None else views["budget"]["figures"] | {"start": views["budget"]["start"]},
        "groups": [] if views["calibration"] is None else views["calibration"]["groups"],
        "advised": ADVISED,
        "patterns": PATTERNS,
        "verdicts": VERDICTS,
    }


def _plain(value: float) -> str:
    """A number as an input element takes it."""
    return f"{value:.{DIGITS}g}"


def _json(value: Any) -> str:
    """JSON that can stand inside a script element."""
    text = json.dumps(_rounded(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(item) for item in value]
    return value
