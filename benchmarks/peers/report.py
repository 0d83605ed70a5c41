"""Tables of regret and seconds by kind of case, ranks, and how far gbpl is from the best of the others and before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from cases import CASES, KINDS, SPEED
from records import OURS_VALUED
from results import Distance, Results

__all__ = ["distances", "from_before", "notes", "ranks", "regrets", "speed", "table"]


def table(results: Results) -> str:
    """Everything as Markdown."""
    if not results.cases() and not results.cases(SPEED):
        return "No results yet.\n"
    parts = [f"## {kind.capitalize()}\n\n{regrets(results, kind)}" for kind in KINDS[:-1] if results.cases(kind)]
    head = (
        "Mean regret (standard error) and median CPU seconds of fit and prediction; the smallest regret in bold.\n"
        "A method with fewer replications (of 5) is compared in those that it has.\n"
    )
    rest = [
        ("Mean ranks", ranks(results)), ("gbpl less the best of the others", distances(results)),
        ("gbpl less its earlier self", from_before(results)), ("Speed", speed(results)), ("Notes", notes(results)),
    ]  # fmt: skip
    return "\n".join([head, *parts, *(f"## {title}\n\n{text}" for title, text in rest if text)])


def rows(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    every = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in every) + "\n"


def number(value: float, sign: str = "") -> str:
    """Four decimals, or four digits of what is large."""
    return f"{value:{sign}.4f}" if abs(value) < 10 else f"{value:{sign}.4g}"


def regrets(results: Results, kind: str, short: bool = False) -> str:
    """A row a case, a column a method. `short`: means alone, those within a standard error of the best in italics."""
    cases = results.cases(kind)
    methods = [m for m in results.order if m in results.missing or m in results.methods(cases)]
    lines = []
    for case in cases:
        here = {method: results.cells[case, method] for method in methods if (case, method) in results.cells}
        count, best = max(len(cell.records) for cell in here.values()), results.best(case)
        line = [case, str(count)]
        for method in methods:
            if method not in here:
                line.append("not installable" if method in results.missing else "")
                continue
            cell = here[method]
            mark = "**" if method == best else "*" if short and results.near(case, method) else ""
            shown = "failed" if cell.error else f"{mark}{number(cell.mean)}{mark}"
            of = "" if len(cell.records) == count else f"of {len(cell.records)}"
            if short or cell.error:
                line.append(f"{shown} ({of})" if of else shown)
            else:
                line.append(f"{shown} ({number(cell.se)}{of and ', '}{of}) {cell.cpu_seconds:.1f} s")
        lines.append(line)
    return rows(["case", "replications", *methods], lines)


def ranks(results: Results) -> str:
    """Mean rank over all cases and by kind. A method that fails on a case is last there; ties share their mean rank."""
    methods, cases = results.ranked()
    if not cases:
        return "No case has been run by every method: no ranks yet.\n"
    by_kind = {kind: [case for case in results.cases(kind) if case in cases] for kind in KINDS[:-1]}
    kinds = [kind for kind in KINDS[:-1] if by_kind[kind]]
    by_case = {case: list(results.ranks(case, methods).values()) for case in cases}
    means = {kind: np.mean([by_case[case] for case in by_kind[kind]], axis=0) for kind in kinds}
    overall = np.mean(list(by_case.values()), axis=0)
    lines = []
    for i in np.argsort(overall, kind="stable"):
        done = [results.cells[case, methods[i]] for case in cases]
        near = sum(results.near(case, methods[i]) for case in cases)
        spent = "failed" if any(cell.error for cell in done) else f"{sum(cell.cpu_seconds for cell in done):.1f}"
        parts = [f"{means[kind][i]:.2f}" for kind in kinds]
        lines.append([methods[i], f"{overall[i]:.2f}", *parts, f"{near} of {len(cases)}", spent])
    counts = [f"{kind} ({len(by_kind[kind])})" for kind in kinds]
    head = [
        "method",
        f"mean rank ({len(cases)} cases)",
        *counts,
        "within a standard error of the best",
        "CPU seconds, medians summed",
    ]
    return rows(head, lines)


def distances(results: Results) -> str:
    """gbpl less the best of the others."""
    lines = [
        [each.case, each.other, number(each.theirs), number(each.mean, "+"), number(each.se), _ratio(each), _word(each)]
        for each in results.distances()
    ]
    head = ["case", "best of the others", "its regret", "gbpl less that", "paired se", "in se", "gbpl is"]
    return rows(head, lines) if lines else "gbpl has not been run beside another method in two replications.\n"


def from_before(results: Results) -> str:
    """gbpl less its earlier self; nothing where there are no earlier records."""
    lines = [
        [
            each.case,
            number(each.theirs),
            number(each.mean, "+"),
            number(each.se),
            _ratio(each),
            _word(each, "higher", "lower"),
        ]
        for each in results.from_before()
    ]
    return rows(["case", "before", "now less before", "paired se", "in se", "regret is"], lines) if lines else ""


def _word(each: Distance, behind: str = "behind", ahead: str = "ahead") -> str:
    return behind if each.behind else ahead if each.ahead else "level"


def _ratio(each: Distance) -> str:
    return f"{each.mean / each.se:+.1f}" if each.se > 0 else "-"


def speed(results: Results) -> str:
    """CPU seconds after the first fit of a process, and by the clock of the first fit of gbpl with its value."""
    spent = results.later_seconds()
    methods = [m for m in results.order if any(m in by_method for by_method in spent.values())]
    lines = []
    for n, by_method in spent.items():
        first = results.cells.get((f"speed/{n}", OURS_VALUED))
        clock = "" if first is None or first.error else f"{first.records[0].seconds:.1f}"
        lines.append([f"{n:,}", *(f"{by_method[m]:.2f}" if m in by_method else "" for m in methods), clock])
    return rows(["n", *methods, f"first fit of {OURS_VALUED}, by the clock"], lines) if lines else ""


def notes(results: Results) -> str:
    """What failed, what a method said of its own fits, what could not be installed, what was not run everywhere."""
    lines = [f"{method} on {case} {cell.error}" for (case, method), cell in results.cells.items() if cell.error]
    for method in results.order:
        told = [(case, cell) for (case, m), cell in results.cells.items() if m == method and cell.note]
        if told:
            count = sum(record.note is not None for _, cell in told for record in cell.records)
            fits = sum(len(cell.records) for (_, m), cell in results.cells.items() if m == method)
            text = next(record.note for record in told[0][1].records if record.note)
            where = ", ".join(f"{case} ({sum(r.note is not None for r in cell.records)})" for case, cell in told)
            lines.append(f"{method}, {count} of {fits} fits: {text}. {where}")
    lines += [f"{method} is not installable: {reason}" for method, reason in results.missing.items()]
    lines += _fewer(results) + _never(results)
    methods, every = results.ranked()[0], results.cases()
    lines += [f"{m} was run on too few cases for a rank" for m in results.methods(every) if m not in methods]
    apart: dict[str, list[str]] = {}
    for case in every:
        apart.setdefault(", ".join(m for m in methods if (case, m) not in results.cells), []).append(case)
    lines += [
        f"not in the mean ranks, for want of {lacks}: {', '.join(names)}" for lacks, names in apart.items() if lacks
    ]
    return "".join(f"- {line}\n" for line in lines)


def _fewer(results: Results) -> list[str]:
    """How many cases have fewer replications of a method than they should."""
    lines = []
    for method in results.order:
        counts = [(len(cell.records), CASES[c].replications) for (c, m), cell in results.cells.items() if m == method]
        few = Counter(pair for pair in counts if pair[0] < pair[1])
        if few:
            told = [f"{done} of {asked} (cases: {cases})" for (done, asked), cases in sorted(few.items(), reverse=True)]
            lines.append(f"{method} has fewer replications than planned: {', '.join(told)}")
    return lines


def _never(results: Results) -> list[str]:
    """Methods and kinds of cases without any record."""
    ran = {method for _, method in results.cells}
    methods = [m for m in results.order if m not in ran and m not in results.missing]
    kinds = [kind for kind in KINDS if not results.cases(kind)]
    return [f"not run at all: {', '.join(names)}" for names in (methods, kinds) if names]
