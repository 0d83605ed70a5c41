"""Which portfolio to hold next year, after costs: a learner beside 1/N, minimum variance and Kelly.

    python examples/portfolio.py [--figures DIR] [--quick]

Twelve American industries, month by month, 1950 to 2017. Each January from 1980 on, `GBPL()` learns from finished years
which of five portfolios (or which weights of the industries) to hold next, and pays for every trade. `--quick` learns
every nineteenth year only.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.covariance import LedoitWolf

from gbpl import GBPL, fit_many
from gbpl.datasets import load

FIRST, LAST = 1980, 2017  # years that are decided
MEMORY = 120  # months that minimum variance and Kelly are estimated from
AHEAD = 12  # months of an outcome
GAP = 24  # months left out between blocks of rows: 12 so that no outcome is in two of them, 12 that features look back
BLOCKS = 5  # as many as GBPL() has folds
COST = 0.005  # of each dollar bought or sold, as in DeMiguel, Garlappi and Uppal (2009)
AVERSION = 4.0  # of the mean-variance investor
BLOCK, RESAMPLES, DRAWS = 12, 2_000, 400  # mean length in months and number of resampled series; posterior draws
MARKET = ("MktRF", "SMB", "HML", "Mom", "RF")
MENU = ("1/N", "minimum variance", "Kelly", "momentum", "bills")
LOG, QUADRATIC, WEIGHTS = "gbpl, log", "gbpl, mean-variance", "gbpl, weights"
Fits = dict[str, list[GBPL]]


def load_months() -> dict[str, Any]:
    """Returns of each month, and what was known when it began: the market, the industries, the bill rate."""
    data = load("french")
    table = data.frame.sort_values(data.time)
    state = [name for name in data.features if name.split("_")[0] in MARKET]
    parts = {"state": state, "all": data.features, "returns": data.outcomes, "bill": "RF_last"}
    months = {name: table[part].to_numpy() for name, part in parts.items()}
    months["momentum"] = table[[f"{name}_momentum" for name in data.outcomes]].to_numpy()
    return months | {"year": table[data.time].dt.year.to_numpy()}


def long_only(mean: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """argmax of w'mean - w'covariance w / 2 over weights that are not negative and sum to one."""
    scale, count = 1.0 / np.trace(covariance), len(mean)
    best = minimize(
        lambda w: scale * (w @ covariance @ w / 2 - w @ mean), np.full(count, 1 / count),
        jac=lambda w: scale * (covariance @ w - mean), bounds=[(0, 1)] * count,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
    )  # fmt: skip
    return np.clip(best.x, 0.0, None) / np.clip(best.x, 0.0, None).sum()


def estimated(past: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minimum variance and Kelly: covariance by Ledoit and Wolf, means by Jorion's Bayes-Stein (1986).

    Kelly maximises the mean of log(1 + z), to second order z - z^2 / 2.
    """
    covariance, mean, (rows, count) = LedoitWolf().fit(past).covariance_, past.mean(axis=0), past.shape
    safest = np.linalg.solve(covariance, np.ones(count))
    apart = mean - safest @ mean / safest.sum()
    pull = (count + 2) / (count + 2 + rows * apart @ np.linalg.solve(covariance, apart))
    shrunk = mean - pull * apart
    return long_only(np.zeros(count), covariance), long_only(shrunk, covariance + np.outer(shrunk, shrunk))


def menu(months: dict[str, Any]) -> np.ndarray:
    """Target weights of each portfolio in each month (month, portfolio, industry), made of earlier months only."""
    returns, year, momentum = months["returns"], months["year"], months["momentum"]
    count = returns.shape[1]
    weights = np.zeros((len(returns), len(MENU), count))
    weights[:, 0] = 1 / count
    best = np.argsort(-momentum, axis=1)[:, : count // 3]
    np.put_along_axis(weights[:, 3], best, 1 / best.shape[1], axis=1)
    for t in range(MEMORY, len(returns)):
        again = t == MEMORY or year[t] > year[t - 1]
        weights[t, 1:3] = estimated(returns[t - MEMORY : t]) if again else weights[t - 1, 1:3]
    return weights


def drifted(weights: np.ndarray, returns: np.ndarray, bill: float) -> np.ndarray:
    """What weights have become when the month is over; what is not in the industries is in bills."""
    return weights * (1 + returns) / (1 + weights @ returns + (1 - weights.sum()) * bill)


def follow(weights: np.ndarray, months: dict[str, Any], rows: np.ndarray) -> dict[str, np.ndarray]:
    """Returns of a portfolio in the months `rows`, after the cost of each month's trades, and what was traded."""
    traded, net, held = np.zeros(len(rows)), np.zeros(len(rows)), weights[0]
    for place, (t, target) in enumerate(zip(rows, weights, strict=True)):
        returns, bill = months["returns"][t], months["bill"][t]
        traded[place] = np.abs(target - held).sum()
        net[place] = target @ returns + (1 - target.sum()) * bill - COST * traded[place]
        held = drifted(target, returns, bill)
    return {"net": net, "traded": traded}


def utilities(net: np.ndarray, bill: np.ndarray) -> dict[str, np.ndarray]:
    """For each month with a year before it ends: the utility of the next year, one column per series of returns."""
    year = np.lib.stride_tricks.sliding_window_view(np.log1p(net), AHEAD, axis=0).sum(axis=-1)
    safe = np.lib.stride_tricks.sliding_window_view(np.log1p(bill), AHEAD).sum(axis=-1)
    excess = np.expm1(year) - np.expm1(safe)[:, None]
    return {"log": year, "quadratic": excess - AVERSION / 2 * excess**2}


def purged_blocks(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of rows in time, each a fold of its own, and weights that are zero in the gaps between them."""
    edges = np.linspace(0, count, BLOCKS + 1).astype(int)[1:-1]
    block = np.searchsorted(edges, np.arange(count), side="right")
    return block, np.array([not np.any((edges - GAP // 2 <= t) & (t < edges + GAP // 2)) for t in range(count)], float)


def fit_years(months: dict[str, Any], tables: dict[str, np.ndarray], januaries: np.ndarray, seed: int) -> Fits:
    """One fit per January and table of outcomes, to all rows whose outcomes are finished by then."""
    fits: Fits = {}
    for name, table in tables.items():
        given, (features, labels) = [], ("all", None) if name == WEIGHTS else ("state", list(MENU))
        for january in januaries:
            rows = np.arange(MEMORY, january - AHEAD + 1)  # the last outcome is over when January begins
            groups, kept = purged_blocks(len(rows))
            x, y = months[features][rows], table[rows - MEMORY]
            given.append({"X": x, "y": y, "groups": groups, "sample_weight": kept})
        fits[name] = [GBPL(random_state=seed, actions=labels) for _ in given]
        fit_many(fits[name], given)
    return fits


def decide(fits: list[GBPL], weights: np.ndarray, months: dict[str, Any], rows: np.ndarray, every: int) -> np.ndarray:
    """The portfolio held in each month: each January the largest expected gain less the cost of moving there."""
    held, choice, choices = weights[rows[0], 0], 0, np.zeros(len(rows), int)
    for place, t in enumerate(rows):
        if place % AHEAD == 0:
            fit = fits[place // (AHEAD * every)]
            gain = fit.expected_gain(months["state"][t : t + 1], default="1/N")[0]
            choice = int(np.argmax(gain - COST * np.abs(weights[t] - held).sum(axis=1)))
        choices[place] = choice
        held = drifted(weights[t, choice], months["returns"][t], months["bill"][t])
    return choices


def stationary_bootstrap(count: int, seed: int = 0) -> np.ndarray:
    """Resampled series of row numbers (Politis and Romano 1994): blocks of random length, on a circle."""
    rng = np.random.default_rng(seed)
    new = rng.random((RESAMPLES, count)) < 1 / BLOCK
    new[:, 0] = True
    start = np.maximum.accumulate(np.where(new, np.arange(count), 0), axis=1)
    return (np.take_along_axis(rng.integers(count, size=new.shape), start, axis=1) + np.arange(count) - start) % count


def measures(paths: dict[str, dict[str, np.ndarray]], bill: np.ndarray) -> dict[str, dict[str, Any]]:
    """Per year, after costs: what each portfolio brought over bills, and what it gained over 1/N, with errors."""
    drawn = np.vstack([np.arange(len(bill)), stationary_bootstrap(len(bill))])  # the first series is the observed one
    known: dict[str, dict[str, np.ndarray]] = {}
    for name, path in paths.items():
        excess, total = (path["net"] - bill)[drawn], np.log1p(path["net"])[drawn]
        mean, volatility = 12 * excess.mean(axis=1), np.sqrt(12) * excess.std(axis=1)
        part = {"mean": mean, "sharpe": mean / volatility, "growth": 12 * total.mean(axis=1)}
        known[name] = part | {"volatility": volatility, "certain": mean - AVERSION / 2 * volatility**2}
    results: dict[str, dict[str, Any]] = {}
    for name, part in known.items():
        own = {key: float(values[0]) for key, values in part.items()}
        own |= {f"{key} se": float(values[1:].std()) for key, values in part.items()}
        for key in ("sharpe", "growth", "certain"):
            gain = part[key] - known["1/N"][key]
            low, high = 2 * gain[0] - np.quantile(gain[1:], [0.975, 0.025])  # the basic bootstrap interval
            own[f"{key} gain"] = (float(gain[0]), float(low), float(high))
        results[name] = own | {"turnover": float(12 * paths[name]["traded"].mean() / 2)}
    return results


def predictive(fits: list[GBPL], months: dict[str, Any], log: np.ndarray, rows: np.ndarray, held: np.ndarray) -> Any:
    """For each January, draws of next year's log return: of its mean alone, and with the noise of a year in it."""
    mean, ahead, rng = [], [], np.random.default_rng(0)
    for fit, t, choice in zip(fits, rows, held, strict=True):
        past = log[: t - AHEAD + 1 - MEMORY]
        level = past[stationary_bootstrap(len(past), seed=t)[:DRAWS], 0].mean(axis=1)  # of 1/N
        (_, effect), *_ = fit.posterior().effects(months["state"][t : t + 1], draws=DRAWS)
        mean.append(level + effect[:, 0, choice] - effect[:, 0, 0])
        ahead.append(mean[-1] + rng.choice(past[:, choice] - past[:, choice].mean(), DRAWS))
    return {"mean": np.array(mean), "ahead": np.array(ahead), "came": log[rows - MEMORY, held]}


def show(results: dict[str, dict[str, Any]], choices: dict[str, np.ndarray], years: dict[str, np.ndarray]) -> None:
    print(f"{'per year, after costs':55}more than 1/N, with 95 % intervals")
    print(f"{'':20} mean   vol. Sharpe (se) traded   {'Sharpe':24}{'certainty equivalent':24}growth")
    for name, part in results.items():
        line = f"{name:20}{part['mean']:5.1%} {part['volatility']:6.1%}{part['sharpe']:6.2f} ({part['sharpe se']:.2f})"
        line += f"{part['turnover']:6.0%}  "
        line += "{:6.2f} ({:5.2f} to {:5.2f})".format(*part["sharpe gain"])
        for gain in (part["certain gain"], part["growth gain"]):
            line += "{:7.1%} ({:5.1%} to {:5.1%})".format(*gain)
        print(line)
    for name, chosen in choices.items():
        print(f"{name} holds", ", ".join(f"{MENU[a]} {np.mean(chosen == a):.0%}" for a in np.unique(chosen)))
    for name, what in (("mean", "posterior of the mean"), ("ahead", "with the noise of a year")):
        low, high = np.quantile(years[name], [0.05, 0.95], axis=1)
        inside = int(np.sum((low <= years["came"]) & (years["came"] <= high)))
        print(f"90 % intervals, {what}: {np.mean(high - low):.0%} wide, {inside} of {len(low)} years inside")


def draw(results: dict[str, Any], choices: dict[str, np.ndarray], years: dict[str, np.ndarray], folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.4, 3.5), dpi=100, layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=(1.15, 1, 1.15))
    names = [name for name in results if name != "1/N"][::-1]
    gain, low, high = np.array([results[name]["certain gain"] for name in names]).T
    left.hlines(range(len(names)), low, high, color="#0072B2", lw=3, alpha=0.5)
    left.plot(gain, range(len(names)), "o", color="#0072B2")
    left.axvline(0, color="#767676", lw=0.8)
    left.set_yticks(range(len(names)), names, fontsize=9)
    left.xaxis.set_major_formatter(lambda value, _: f"{value:.1%}")
    left.set(title="Certainty equivalent less that of 1/N", xlabel="per year, after costs, 95 %")
    for (name, chosen), mark, shift in zip(choices.items(), "o^", (0.12, -0.12), strict=True):
        decided = chosen[::AHEAD]
        middle.plot(FIRST + np.arange(len(decided)), decided + shift, mark, ms=4, label=name)
    middle.set_yticks(range(len(MENU)), MENU, fontsize=9)
    middle.set(title="What is held", ylim=(-0.5, len(MENU) + 0.6))
    middle.legend(frameon=False, fontsize=8, loc="upper left", ncols=2, columnspacing=0.8, handletextpad=0.1)
    at = FIRST + np.arange(len(years["came"]))
    for name, colour, what in (("ahead", "#56B4E9", "year"), ("mean", "#0072B2", "its mean")):
        right.vlines(at, *np.quantile(years[name], [0.05, 0.95], axis=1), color=colour, lw=4, label=what)
    right.plot(at, years["came"], "o", color="#D55E00", ms=4, label="what came")
    right.legend(frameon=False, fontsize=8, loc="upper right", ncols=3, columnspacing=0.8, handletextpad=0.4)
    right.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    right.set(title="Next year's log return, 90 %", ylim=(-0.55, 0.72))
    for ax in (left, middle, right):
        ax.title.set_fontsize(10)
        ax.spines[["top", "right"]].set_visible(False)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "portfolio.png")


def main(*, quick: bool = False, figures: Path | None = None, seed: int = 0) -> dict[str, Any]:
    """Measures of each portfolio over the years decided, what was chosen, weights, and the predictive draws."""
    months, every = load_months(), 19 if quick else 1
    weights, lived = menu(months), np.arange(MEMORY, len(months["returns"]))
    bill, rows = months["bill"], np.flatnonzero((months["year"] >= FIRST) & (months["year"] <= LAST))
    alone = np.stack([follow(weights[lived, a], months, lived)["net"] for a in range(len(MENU))], axis=1)
    of_menu, of_industries = (utilities(net, bill[lived]) for net in (alone, months["returns"][lived]))
    tables = {LOG: of_menu["log"], QUADRATIC: of_menu["quadratic"], WEIGHTS: of_industries["log"]}
    januaries = rows[::AHEAD]
    fits = fit_years(months, tables, januaries[::every], seed)
    choices = {name: decide(fits[name], weights, months, rows, every) for name in (LOG, QUADRATIC)}
    targets = {name: weights[rows, a] for a, name in enumerate(MENU[:-1])}
    targets |= {name: weights[rows, chosen] for name, chosen in choices.items()}
    played = [fits[WEIGHTS][year // every].predict_proba(months["all"][[t]]) for year, t in enumerate(januaries)]
    targets[WEIGHTS] = np.repeat(np.concatenate(played), AHEAD, axis=0)[: len(rows)]
    results = measures({name: follow(target, months, rows) for name, target in targets.items()}, bill[rows])
    over = januaries[januaries - MEMORY < len(tables[LOG])]  # years that ended in the data
    again = [fits[LOG][year // every] for year in range(len(over))]
    years = predictive(again, months, tables[LOG], over, choices[LOG][::AHEAD][: len(over)])
    show(results, choices, years)
    if figures is not None:
        draw(results, choices, years, figures)
    return {"measures": results, "choices": choices, "weights": targets, "years": years}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help="folder for the picture")
    parser.add_argument("--quick", action="store_true", help="learn every nineteenth year only")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
