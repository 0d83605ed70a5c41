"""The page of the documentation: what was compared, in words that fit any outcome, around the tables of the report."""

from __future__ import annotations

from cases import CLASSES, KINDS, OTHER, PAPER, SEMI, TRIAL
from records import OURS, OURS_VALUED
from report import distances, from_before, notes, ranks, regrets, speed
from results import Results

__all__ = ["page"]

INTRODUCTION = """\
# Beside other libraries

Regret and CPU seconds of `GBPL()`, the learner that `gbpl fit`, `gbpl.learn` and the demo use, and of other ways to
learn a policy from a log, each as its library offers it. Nothing is set for a case. One command makes an environment
for each library, draws the cases, runs everything and writes this page:

```
python benchmarks/peers/run.py --out DIR --data-dir DATA --page docs/peers.md
```

`benchmarks/peers/README.md` says what each method is, where the data come from, and what is left out.

`GBPL()` has had an advantage in some of these cases ([docs/design.md](design.md)). A change of its outcome models was
chosen on seeds 0 to 3 of optdigits, vehicle, two actions DGP2 and DGP3, and five actions DGP1 and DGP3. Two more began
with a look at this table: curves of single features because others were ahead on satimage and linear-sine, a larger
zeta for 5,000 rows and more because one was on two actions DGP2 at n = 8,000. So did lines before curves in the
additive regression, because ridge regression was ahead on linear-sine and five actions DGP2. How they were made was
chosen on other seeds of the same cases, 100 and up, as was the size of forests for more than five actions. That outcome
models share folds only from 750 rows per action on was decided by looking at seeds 200 and up, and at seeds 0 to 4 of
all cases: without that limit `GBPL()` did a little worse on steps, optdigits, satimage and letter.
"""

ABOUT = {
    PAPER: """\
Two or five actions, n = 500 to 8,000, and weak overlap; regret under the known means, on 10,000 fresh rows.
""",
    OTHER: """\
XOR, steps, ten actions with linear and sine means, effects that are constant, weak, or of rates between 0.1 and 0.2,
and outcomes with heavy tails; regret under the known means, on 10,000 fresh rows.
""",
    CLASSES: """\
One guess a row, and whether it was right; regret is the error rate on the other half. At most 3,000 rows to learn from:
the halves of satimage, pendigits and letter have more.
""",
    SEMI: """\
Features and outcomes of every action as others made them, of which a logging policy with known chances shows one: the
stable dose of warfarin in three classes, the ten settings of ACIC 2016 (one per replication), Hill's surfaces A and B
on the features of IHDP, and generators of CausalML and DoubleML. On surface A one action is best for everybody.
""",
    TRIAL: """\
A random half to learn from (at most 3,000 rows), the other half as judge, by doubly robust scores with the known
chances. Regret is the value of the best single action on that half less that of the policy: below zero, the policy
does better than any single action. Outcomes are noisy and the halves overlap between replications, so standard errors
are too small here, and ranks say little.
""",
}


def _names(cases: list[str]) -> str:
    return ", ".join(f"`{case}`" for case in cases)


def _summary(results: Results) -> str:
    found = results.distances()
    behind, ahead = [d.case for d in found if d.behind], [d.case for d in found if d.ahead]
    level = len(found) - len(behind) - len(ahead)
    lines = [
        f"`GBPL()` is ahead of the best of the others by more than a standard error in {len(ahead)} of {len(found)} "
        f"cases, level in {level} and behind in {len(behind)}" + (f": {_names(behind)}." if behind else ".")
    ]
    lines += _times(results)
    earlier = results.from_before()
    if earlier:
        higher = [d.case for d in earlier if d.behind]
        lines.append(
            f"Beside the version before, its regret is higher by more than a standard error in {len(higher)} of "
            f"{len(earlier)} cases" + (f": {_names(higher)}." if higher else ".")
        )
    return "\n".join(f"- {line}" for line in lines) + "\n"


def _times(results: Results) -> list[str]:
    """What gbpl takes beside the others, without and with its value, by n."""
    spent, lines = results.later_seconds(), []
    for method in results.order:
        if method in (OURS, OURS_VALUED):
            continue
        for own, what in ((OURS, "A fit takes"), (OURS_VALUED, "A fit and its value take")):
            ratios = [
                f"{by_method[own] / by_method[method]:.2f} at n = {n:,}"
                for n, by_method in spent.items()
                if method in by_method and own in by_method
            ]
            if ratios:
                lines.append(f"{what}, in CPU seconds of `{method}`: {', '.join(ratios)}.")
    return lines


RANKS = """\
By mean regret, over the cases that every method here was run on; a case counts as one, whatever its outcomes are
measured in.
"""
DISTANCES = """\
The best of the others is picked by the same figures, which makes that one look a little better than it is. Ahead and
behind mean by more than a standard error of the paired difference.
"""
REGRETS = """\
The smallest mean in bold; in italics what is within a standard error of it, paired. A method with fewer replications
(of 3) is compared in those that it has. Standard errors are in the table that the command writes beside its records.
"""
TIMES = f"""\
Two actions, five at n = 8,000, and ten features. `{OURS}` fits and decides; `{OURS_VALUED}` also says what its policy
is worth (`population_welfare`). CPU seconds of all threads, on one core, in fits after the first of a process.
"""


def page(results: Results) -> str:
    """Markdown."""
    parts = [INTRODUCTION, "## In short\n", _summary(results), "## Mean ranks\n", RANKS, ranks(results)]
    parts += ["## GBPL() beside the best of the others\n", DISTANCES, distances(results)]
    parts += ["## Regret by kind of case\n", REGRETS]
    for kind in KINDS[:-1]:
        if results.cases(kind):
            parts += [f"### {kind[0].upper()}{kind[1:]}\n", ABOUT[kind], regrets(results, kind, short=True)]
    if speed(results):
        parts += ["## Speed\n", TIMES, speed(results)]
    if from_before(results):
        parts += ["## Beside the version before\n", "The same cases and seeds, paired.\n", from_before(results)]
    if notes(results):
        parts += ["## What went wrong, and what was not run\n", notes(results)]
    return "\n".join(parts)
