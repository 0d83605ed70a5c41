"""Tables with one planted defect each, and clean ones: what a look at the data must name, and what it must leave alone.

Each makes a frame and the roles of its columns, as `gbpl.learn` takes them, from a seed. `DEFECTS` have the words that
a user must read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["CLEAN", "DEFECTS", "Table"]

Table = tuple[pd.DataFrame, dict[str, Any]]
N = 1000
TRIAL = {"outcome": "y", "action": "arm", "propensity": 0.5}


def _expit(score: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-score))


def trial(seed: int, n: int = N, **columns: Any) -> pd.DataFrame:
    """A randomized trial of two arms with five features; `columns` are made from (frame, rng) and added."""
    rng = np.random.default_rng([seed, n])
    made = pd.DataFrame(
        {
            "age": rng.integers(18, 80, n), "income": rng.lognormal(10.0, 0.6, n).round(2),
            "region": rng.choice(["north", "south", "west"], n), "score": rng.normal(size=n),
            "member": rng.random(n) < 0.4, "arm": rng.choice(["control", "mail"], n),
        }
    )  # fmt: skip
    gain = np.where(made["age"] > 45, 1.0, -0.5)
    made["y"] = made["score"] + gain * (made["arm"] == "mail") + rng.normal(size=n)
    for name, make in columns.items():
        made[name] = make(made, rng)
    return made


def log(seed: int, n: int = N) -> pd.DataFrame:
    """A log whose propensities vary: `p` is that of the action taken, `p_mail` that of the mail."""
    rng = np.random.default_rng([seed, n, 2])
    made = trial(seed, n)
    chance = 0.1 + 0.8 * _expit(1.5 * made["score"].to_numpy())
    mail = rng.random(n) < chance
    made["arm"] = np.where(mail, "mail", "control")
    made["y"] = made["score"] + np.where(made["age"] > 45, 1.0, -0.5) * mail + rng.normal(size=n)
    return made.assign(p=np.where(mail, chance, 1.0 - chance), p_mail=chance)


def shop(seed: int, n: int = 6000) -> pd.DataFrame:
    """Three randomized e-mails; few customers visit, fewer buy, and only those who buy spend."""
    rng = np.random.default_rng([seed, n, 3])
    made = pd.DataFrame(
        {
            "recency": rng.integers(1, 13, n), "history": rng.lognormal(5.0, 0.8, n).round(2),
            "newbie": rng.integers(0, 2, n), "channel": rng.choice(["phone", "web", "both"], n),
            "zip": rng.choice(["urban", "rural"], n), "segment": rng.choice(["mens", "none", "womens"], n),
        }
    )  # fmt: skip
    rate = made["segment"].map({"mens": 0.3, "none": 0.15, "womens": 0.25}).to_numpy()
    made["visit"] = (rng.random(n) < rate).astype(int)
    made["conversion"] = made["visit"] * (rng.random(n) < 0.3)
    made["spend"] = (made["conversion"] * rng.lognormal(4.0, 0.7, n)).round(2)
    return made


def _changed(made: pd.DataFrame, column: str, rows: Any, value: Any) -> pd.DataFrame:
    values = made[column].astype(float).to_numpy().copy()
    values[rows] = value
    return made.assign(**{column: values})


def _after(seed: int) -> Table:
    return trial(seed, calls=lambda t, rng: (t["arm"] == "mail") + rng.normal(size=len(t))), TRIAL


def _visits(seed: int) -> Table:
    return shop(seed), {"outcome": "spend", "action": "segment"}


def _other_units(seed: int) -> Table:
    return trial(seed, cents=lambda t, rng: 100.0 * t["y"] + 7.0), TRIAL


def _noisy_copy(seed: int) -> Table:
    return trial(seed, paid=lambda t, rng: t["y"] + 0.2 * t["y"].std() * rng.normal(size=len(t))), TRIAL


def _copied_action(seed: int) -> Table:
    return trial(seed, letter=lambda t, rng: np.where(t["arm"] == "mail", "B", "A")), TRIAL


def _given(chance: float) -> Callable[[int], Table]:
    return lambda seed: (trial(seed), TRIAL | {"propensity": chance})


def _second_label(seed: int) -> Table:
    rng = np.random.default_rng([seed, 5])
    made = trial(seed).assign(arm=rng.permutation(np.repeat(["drug", "placebo"], [800, 200])))
    return made, TRIAL | {"propensity": 0.8}


def _of_the_treatment(seed: int) -> Table:
    return log(seed).drop(columns="p"), TRIAL | {"propensity": "p_mail"}


def _percent(seed: int) -> Table:
    made = log(seed).drop(columns="p_mail")
    return made.assign(p=100.0 * made["p"]), TRIAL | {"propensity": "p"}


def _impossible(seed: int) -> Table:
    return _changed(log(seed).drop(columns="p_mail"), "p", [17, 40], 0.0), TRIAL | {"propensity": "p"}


def _out_of_line(seed: int) -> Table:
    made, rng = log(seed).drop(columns="p"), np.random.default_rng([seed, 7])
    taken = rng.permutation(made["arm"].to_numpy())
    chance = np.where(taken == "mail", made["p_mail"], 1.0 - made["p_mail"])
    return made.drop(columns="p_mail").assign(arm=taken, p=chance), TRIAL | {"propensity": "p"}


def _stray(seed: int) -> Table:
    return _changed(trial(seed), "y", 617, 1e6), TRIAL


def _wrong_units(seed: int) -> Table:
    made = trial(seed).assign(y=lambda t: 100.0 + 10.0 * t["y"])
    return _changed(made, "y", [3, 400, 800], 100.0 * made["y"].to_numpy()[[3, 400, 800]]), TRIAL


def _cauchy(seed: int) -> Table:
    return trial(seed, y=lambda t, rng: t["y"] + rng.standard_cauchy(len(t))), TRIAL


def _id_as_action(seed: int) -> Table:
    made = trial(seed, customer=lambda t, rng: [f"c{number}" for number in rng.permutation(len(t))])
    return made, {"outcome": "y", "action": "customer"}


def _rare(seed: int) -> Table:
    rng = np.random.default_rng([seed, 11])
    made = trial(seed, 5000).assign(arm=rng.integers(0, 20, 5000), y=(rng.random(5000) < 0.005).astype(int))
    return made, {"outcome": "y", "action": "arm", "propensity": 1 / 20}


def _repeated(seed: int) -> Table:
    made = trial(seed)
    return pd.concat([made, made.sample(300, random_state=seed)], ignore_index=True), TRIAL


def _dates(seed: int) -> Table:
    return trial(seed, signed=lambda t, rng: [20200101 + 100 * int(m) for m in rng.integers(0, 12, len(t))]), TRIAL


def _percent_sign(seed: int) -> Table:
    made = trial(seed)
    return made.assign(y=[f"{value:.1f} %" for value in made["y"]]), TRIAL


def _one_label_twice(seed: int) -> Table:
    rng = np.random.default_rng([seed, 13])
    made = trial(seed)
    odd = (made["arm"] == "mail") & (rng.random(len(made)) < 0.2)
    return made.assign(arm=np.where(odd, "Mail ", made["arm"])), TRIAL


DEFECTS: dict[str, tuple[Callable[[int], Table], str]] = {
    "a column measured after the action": (_after, r"'calls' depends on the action, given the propensities"),
    "visits and sales, no propensities": (_visits, r"'visit'(, 'conversion')? depends? on the action"),
    "the outcome in other units": (_other_units, r"'cents' is a copy of the outcome"),
    "the outcome with noise": (_noisy_copy, r"'paid' predicts the outcome far better"),
    "the action under other names": (_copied_action, r"'letter' is a copy of the action taken"),
    "0.1 for a propensity of 0.5": (_given(0.1), r"'mail' was taken in \d+\s% of the rows, and they say 10\s%"),
    "0.02 for a propensity of 0.5": (_given(0.02), r"'mail' was taken in \d+\s% of the rows, and they say 2\s%"),
    "the propensity of the other label": (_second_label, r"exchange those of 'drug' and 'placebo'"),
    "P(mail), not that of the action taken": (_of_the_treatment, r"as probabilities of 'mail' in every row"),
    "propensities in percent": (_percent, r"looks like percent: divide it by 100"),
    "a propensity of zero": (_impossible, r"'p' is 0 in row 17 \(2 such row\(s\)\)"),
    "actions out of line with the rows": (_out_of_line, r"the column of actions may be out of line"),
    "one outcome of 1e6": (_stray, r"outcome of row 617 is 1e\+06, and all others are from"),
    "three outcomes in cents": (_wrong_units, r"outcomes of rows (3|400|800), (3|400|800), (3|400|800) are up to"),
    "Cauchy noise": (_cauchy, r"extreme tails on both sides"),
    "an id as the action": (_id_as_action, r"'customer' has 1,000 different values in 1,000 rows"),
    "rare events": (_rare, r"few events: only \d+ of 5,000 outcomes are other than 0"),
    "repeated rows": (_repeated, r"300 of 1,300 rows .* are copies of an earlier row"),
    "dates as numbers": (_dates, r"'signed' looks like dates written as numbers"),
    "a percent sign in the outcome": (_percent_sign, r"outcome 'y' must be numbers, and row 0 has '.* %'"),
    "one label spelled twice": (_one_label_twice, r"look like one label spelled twice"),
}


def _confounded(seed: int) -> Table:
    return log(seed).drop(columns=["p", "p_mail"]), {"outcome": "y", "action": "arm"}


def _observational(seed: int) -> Table:
    """Eight correlated features, of which the action and the outcome depend on most."""
    rng = np.random.default_rng([seed, 21])
    common = rng.normal(size=(N, 1))
    x = 0.7 * common + rng.normal(size=(N, 8))
    arm = rng.random(N) < _expit(x[:, :5].sum(axis=1) / 3.0)
    made = pd.DataFrame(x, columns=[f"x{j}" for j in range(8)])
    return made.assign(arm=arm.astype(int), y=x[:, 2:].sum(axis=1) + arm + rng.normal(size=N)), {
        "outcome": "y", "action": "arm",
    }  # fmt: skip


def _spend(seed: int) -> Table:
    made = shop(seed).drop(columns=["visit", "conversion"])
    return made, {"outcome": "spend", "action": "segment", "propensity": 1 / 3}


def _skewed(seed: int) -> Table:
    return trial(seed, y=lambda t, rng: np.exp(0.5 * t["y"] + 0.8 * rng.normal(size=len(t)))), TRIAL


def _rates(seed: int) -> Table:
    made, rng = trial(seed, 3000), np.random.default_rng([seed, 29])
    return made.assign(y=(rng.random(3000) < 0.05 + 0.03 * (made["arm"] == "mail")).astype(int)), TRIAL


def _before(seed: int) -> Table:
    """Earnings before the programme, which explain two thirds of those after it."""
    made, rng = trial(seed), np.random.default_rng([seed, 31])
    gain = np.where(made["age"] > 45, 1.0, -0.5) * (made["arm"] == "mail")
    earlier = made["y"] - gain + 0.7 * made["y"].std() * rng.normal(size=N)
    return made.assign(earlier=earlier), {"outcome": "y", "action": "arm"}


def _few_values(seed: int) -> Table:
    rng = np.random.default_rng([seed, 23])
    made = pd.DataFrame(rng.integers(0, 3, (N, 4)), columns=list("abcd"))
    arm = rng.integers(0, 2, N)
    return made.assign(arm=arm, y=(rng.random(N) < 0.3 + 0.2 * arm).astype(int)), TRIAL


def _clusters(seed: int) -> Table:
    """Villages: everybody in one has the same arm and a similar income."""
    rng = np.random.default_rng([seed, 25])
    village = np.repeat(np.arange(80), 12)
    made = trial(seed, 960).assign(village=village, arm=np.array(["control", "mail"])[rng.integers(0, 2, 80)][village])
    made["income"] = np.exp(rng.normal(10.0, 1.0, 80)[village] + 0.1 * rng.normal(size=960))
    return made, TRIAL | {"group": "village"}


def _full(seed: int) -> Table:
    made = trial(seed).drop(columns=["arm", "y"])
    rng = np.random.default_rng([seed, 27])
    wait, treat = made["score"] + rng.normal(size=N), np.where(made["age"] > 45, 1.0, -0.5) + rng.normal(size=N)
    return made.assign(wait=wait, treat=treat), {"outcomes": ["wait", "treat"]}


CLEAN: dict[str, Callable[[int], Table]] = {
    "a randomized trial": lambda seed: (trial(seed), TRIAL),
    "a log with its propensities": lambda seed: (log(seed).drop(columns="p_mail"), TRIAL | {"propensity": "p"}),
    "a log without propensities": _confounded,
    "an observational study": _observational,
    "spending, mostly zero": _spend,
    "skewed outcomes": _skewed,
    "rates of a few percent": _rates,
    "a strong predictor": _before,
    "few different values": _few_values,
    "randomized by village": _clusters,
    "outcomes of every action": _full,
}
