"""`gbpl fit`: from a table to a policy, decisions, a report and a summary."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbpl.cli import parse
from gbpl.cli.console import (
    Delimiter,
    Encoding,
    Json,
    as_json_text,
    guarded,
    held,
    learning,
    print_json,
    stdout,
    warnings_shown,
)
from gbpl.cli.fit_options import (
    Budget,
    BudgetCost,
    By,
    Capacity,
    Certify,
    Check,
    Confounding,
    Default,
    Defer,
    GainGap,
    Out,
    OutcomeRange,
    Per,
    Population,
    Rule,
    RuleLeaves,
    RuleMonotone,
    RuleWithout,
    ShareGap,
    SmallestGroup,
    Title,
    Unit,
)
from gbpl.cli.roles import (
    Action,
    Controls,
    Cost,
    Data,
    Exclude,
    Features,
    Group,
    KeepOutliers,
    Models,
    Outcome,
    Outcomes,
    Propensity,
    Review,
    Seed,
    Weight,
    check_models,
    estimator_of,
    read_by_roles,
)  # fmt: skip
from gbpl.cli.several import GuardAgainst, Guards, WeightOutcome, wanted
from gbpl.runtime.files import check_folder, check_writable, together
from gbpl.runtime.platforms import leave_gpu
from gbpl.runtime.progress import stage

if TYPE_CHECKING:
    from gbpl.study.study import Study

__all__ = ["check_out", "fit", "write_study"]

NAMES = {
    "policy": "policy.gbpl",
    "decisions": "decisions.csv",
    "report": "report.html",
    "summary": "summary.json",
}
RULE = "rule.json"  # beside them where a small rule is asked for


def check_out(out: Path, data: Path | None = None) -> None:
    """Refuse a folder that cannot be written, or would lose the data, before any work."""
    check_folder(out)
    for target in (out / name for name in (*NAMES.values(), RULE)):
        if target.is_dir():
            raise ValueError(f"{target} is a folder, where a file has to be written; give another --out")
        check_writable(target)
        if data is not None and target.exists() and data.exists() and os.path.samefile(target, data):
            raise ValueError(f"{data} would be written over by the result; give another --out")


def write_study(
    study: Study, data: Path, out: Path, *, frame: Any = None, encoding: str = "utf-8", delimiter: str | None = None
) -> dict[str, Path]:
    """Policy, decisions, report, summary and small rule in a folder, and a frame as its data: all of them, or none."""
    from gbpl.cli.data import write_frame
    from gbpl.cli.messages import study_json
    from gbpl.study.decide_file import decide_file

    files = {name: out / written for name, written in NAMES.items()}
    with together(out) as stage:
        if frame is not None:
            files = {"data": data, **files}
            data = stage / data.name
            write_frame(data, frame)
        rule = study.policy.small_rule
        if rule is not None:
            rule.save(stage / RULE)
            files["rule"] = out / RULE
        study.save(stage / NAMES["policy"])
        study.report(stage / NAMES["report"])
        review = (study.summary.get("reviewed") or {}).get("asked")
        decided = stage / NAMES["decisions"]
        decide_file(study.policy, data, decided, encoding=encoding, delimiter=delimiter, review=review)
        text = as_json_text(study_json(study, files))
        (stage / NAMES["summary"]).write_text(text + "\n", encoding="utf-8")
    return files


@guarded
def fit(
    data: Data,
    outcome: Outcome = None,
    action: Action = None,
    outcomes: Outcomes = None,
    features: Features = None,
    exclude: Exclude = None,
    controls: Controls = None,
    weight: Weight = None,
    group: Group = None,
    propensity: Propensity = None,
    cost: Cost = None,
    capacity: Capacity = None,
    budget: Budget = None,
    budget_cost: BudgetCost = None,
    default: Default = None,
    guard: Guards = None,
    weight_outcome: WeightOutcome = None,
    guard_against: GuardAgainst = "default",
    by: By = None,
    share_gap: ShareGap = None,
    gain_gap: GainGap = None,
    outcome_range: OutcomeRange = None,
    review: Review = None,
    certify: Certify = False,
    defer: Defer = None,
    title: Title = None,
    unit: Unit = None,
    per: Per = None,
    population: Population = None,
    out: Out = Path("gbpl-result"),
    models: Models = "auto",
    confounding: Confounding = 1.0,
    keep_outliers: KeepOutliers = False,
    check: Check = False,
    rule: Rule = None,
    rule_without: RuleWithout = None,
    rule_monotone: RuleMonotone = None,
    rule_leaves: RuleLeaves = None,
    smallest_group: SmallestGroup = 10,
    seed: Seed = 0,
    encoding: Encoding = "utf-8",
    delimiter: Delimiter = None,
    as_json: Json = False,
) -> None:
    """Learn who should get which action, and write policy, decisions, report and summary."""
    check_out(out, data)
    parse.check_settings(seed, defer, outcome_range)
    check_models(models)
    asked = parse.small_rule(rule, rule_without or (), rule_monotone or (), rule_leaves)
    costs, limits = parse.by_action("--cost", cost or ()), parse.by_action("--capacity", capacity or ())
    paid = parse.amounts_or_column("--budget-cost", budget_cost or ())
    if not 1.0 <= confounding < float("inf"):
        raise ValueError(f"--confounding must be a finite number >= 1, got {confounding:g}; 1 is none, try 1.5")
    if confounding > 1.0 and outcomes:
        raise ValueError("--confounding is for a log of actions; with --outcomes nothing is hidden")
    gaps = [
        parse.by_action(option, given or (), "COLUMN", "city=0.2")
        for option, given in (("--share-gap", share_gap), ("--gain-gap", gain_gap))
    ]
    with held():
        from gbpl.cli.messages import print_study, study_json
        from gbpl.study.groups import AskedGroups
        from gbpl.study.options import Wording, check_review
        from gbpl.study.small_rule import check_rule_text
    guards, weights = wanted(guard, weight_outcome, guard_against)
    check_review(review, defer)
    groups = AskedGroups.read(by, gaps[0], gaps[1], limits)
    check_rule_text(asked)
    Wording(title, unit, per, population)
    with learning(certificate=certify or outcome_range is not None, check=check, rule=asked is not None, quiet=as_json):
        stage("reading")
        table, roles = read_by_roles(
            data, outcome=outcome, action=action, outcomes=outcomes, features=features, exclude=exclude,
            controls=controls, weight=weight, group=group, propensity=propensity, encoding=encoding,
            delimiter=delimiter, also=[*groups.by, *([paid] if isinstance(paid, str) else [])],
            beside=[name for name in (*guards, *weights) if name != outcome],
        )  # fmt: skip
        with held():
            from gbpl.tables.frames import rows_of

            leave_gpu(rows_of(table))
            from gbpl.study.study import learn
        with warnings_shown(as_json):
            study = learn(
                table, **roles, cost=costs, capacity=limits, budget=budget, budget_cost=paid, default=default,
                defer=defer, review=review, outcome_range=outcome_range, certify=certify, title=title, unit=unit,
                per=per, population=population, seed=seed, source=parse.text_of(data.name), check=check,
                small_rule=asked, smallest_group=smallest_group, guard=guards, outcome_weights=weights,
                against=guard_against, by=by or (), share_gap=gaps[0], gain_gap=gaps[1],
                **estimator_of(models, seed, confounding, keep_outliers),
            )  # fmt: skip
        stage("writing")
        files = write_study(study, data, out, encoding=encoding, delimiter=delimiter)
    if as_json:
        print_json(study_json(study, files))
    else:
        print_study(stdout(), study, files)
