"""A portfolio is a randomized policy: weights over assets, learned from months in which all returns are known.

    python examples/portfolio.py [--figures DIR] [--full]

Twelve American industries, 1950 to 2017. Every seven years from 1975 on, policies are fitted to all earlier months;
their probabilities are the weights of the months that follow. They are compared with equal weights and with
mean-variance portfolios from the same months. `--full` refits every year, with small networks instead of linear scores.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from sklearn.covariance import LedoitWolf

from gbpl import MLP, FitConfig, GBPLNet, Linear, fit_many
from gbpl.datasets import load

FIRST, LAST = 1975, 2017  # first and last year of the months held
ZETAS = (0.01, 0.03, 0.1, 0.3)  # in monthly returns: the penalty is zeta/2 times the sum of squared weights
SHOWN = 0.1  # the zeta whose posterior is shown
AVERSION = {"mean-variance": 4.0, "minimum variance": np.inf}  # to the variance of a month's return
PERIODS = (1975, 1985, 1996, 2006, 2018)
BLOCK, RESAMPLES, DRAWS = 12, 2_000, 400  # months and series of the bootstrap; draws of the posterior
Windows = list[tuple[np.ndarray, np.ndarray]]


def months() -> dict[str, Any]:
    """In order of time: features known when a month begins, its returns, and the bill rate of the month before."""
    data = load("french")
    table = data.frame.sort_values(data.time)
    columns = {name: table[part].to_numpy() for name, part in (("x", data.features), ("y", data.outcomes))}
    columns |= {"bill": table["RF_last"].to_numpy(), "year": table[data.time].dt.year.to_numpy()}
    return columns | {"names": data.outcomes}


def windows(year: np.ndarray, step: int) -> Windows:
    """Months to learn from, and months to hold, all of them later."""
    edges = pairwise([*range(FIRST, LAST, step), LAST + 1])
    return [(np.flatnonzero(year < a), np.flatnonzero((year >= a) & (year < b))) for a, b in edges]


def fit_windows(x: np.ndarray, y: np.ndarray, parts: Windows, zetas: Any, full: bool) -> dict[Any, list[GBPLNet]]:
    """For each zeta, one fit to the past of each window; all of them train as one stack."""
    model = {"model": MLP(hidden=(16,))} if full else {"model": Linear(), "fit_config": FitConfig(learning_rate=0.01)}
    made = {zeta: [GBPLNet(zeta=zeta, random_state=0, **model) for _ in parts] for zeta in zetas}
    fit_many([one for some in made.values() for one in some], [{"X": x[a], "y": y[a]} for _ in zetas for a, _ in parts])
    return made


def weights_of(fitted: list[GBPLNet], x: np.ndarray, parts: Windows) -> np.ndarray:
    return np.concatenate([policy.predict_proba(x[held]) for policy, (_, held) in zip(fitted, parts, strict=True)])


def mean_variance(past: np.ndarray, aversion: float) -> np.ndarray:
    """argmax of w'm - aversion/2 w'Sw over w >= 0 that sum to one: S by Ledoit and Wolf, m half way to its average."""
    covariance, mean = 1e3 * LedoitWolf().fit(past).covariance_, past.mean(axis=0)
    pull = 1e3 * (mean + mean.mean()) / 2 / aversion
    best = minimize(
        lambda w: w @ covariance @ w / 2 - w @ pull, np.full(len(mean), 1 / len(mean)),
        jac=lambda w: covariance @ w - pull, bounds=[(0, 1)] * len(mean),
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
    )  # fmt: skip
    return best.x / best.x.sum()


def turnover(weights: np.ndarray, returns: np.ndarray) -> float:
    """Share of the portfolio that is sold, and bought again, in a month; in between, weights drift with returns."""
    drifted = weights[:-1] * (1 + returns[:-1])
    return float(np.abs(weights[1:] - drifted / drifted.sum(axis=1, keepdims=True)).sum(axis=1).mean() / 2)


def measures(weights: dict[str, np.ndarray], returns: np.ndarray, bill: np.ndarray) -> dict[str, dict[str, float]]:
    """Per year, in excess of bills: mean, volatility, Sharpe ratio, and gains over equal weights, with errors.

    Errors are standard deviations over series made of blocks of twelve months, the same for every portfolio.
    """
    n = len(returns)
    begin = np.random.default_rng(0).integers(n, size=(RESAMPLES, -(-n // BLOCK), 1))
    drawn = ((begin + np.arange(BLOCK)) % n).reshape(RESAMPLES, -1)[:, :n]
    drawn = np.vstack([np.arange(n), drawn])  # the first series is the observed one
    known: dict[str, dict[str, np.ndarray]] = {}
    for name, table in weights.items():
        series = (np.sum(table * returns, axis=1) - bill)[drawn]
        mean, volatility = 12 * series.mean(axis=1), np.sqrt(12) * series.std(axis=1)
        known[name] = {"mean": mean, "volatility": volatility, "sharpe": mean / volatility}
        known[name] |= {f"{key} gain": known[name][key] - known["equal"][key] for key in ("mean", "sharpe")}
    results = {name: {key: float(of[0]) for key, of in part.items()} for name, part in known.items()}
    for name, part in results.items():
        part |= {f"{key} se": float(of[1:].std()) for key, of in known[name].items()}
        part |= {"assets": float(1 / np.mean(np.sum(weights[name] ** 2, axis=1)))}
        part |= {"turnover": turnover(weights[name], returns)}
    return results


def posterior_of(fitted: list[GBPLNet], x: np.ndarray, y: np.ndarray, parts: Windows) -> dict[str, np.ndarray]:
    """Draws of the mean annual return over all months held, and of the mean weights in the last window."""
    posteriors, count, mean = [policy.posterior() for policy in fitted], sum(len(b) for _, b in parts), np.zeros(DRAWS)
    for number, (posterior, (_, held)) in enumerate(zip(posteriors, parts, strict=True)):
        drawn = posterior.welfare(x[held], y[held], rule="randomized", draws=DRAWS, seed=number)
        mean += 12 * len(held) / count * drawn.values
    return {"mean": mean, "weights": posteriors[-1].scores(x[parts[-1][1]], draws=DRAWS).mean(axis=1)}


def show(results: dict[str, dict[str, float]], draws: np.ndarray, ahead: np.ndarray, year: np.ndarray) -> None:
    print(f"{'a year, over bills':19}mean   (se) volat. Sharpe (se)     gain (se)  in Sharpe (se) assets turnover")
    for name, part in results.items():
        line = f"{name:17}{part['mean']:6.1%} ({part['mean se']:.1%}){part['volatility']:6.1%}{part['sharpe']:6.2f}"
        line += f" ({part['sharpe se']:.2f}){part['mean gain']:8.2%} ({part['mean gain se']:.2%})"
        line += f"{part['sharpe gain']:6.2f} ({part['sharpe gain se']:.2f}){part['assets']:7.1f}{part['turnover']:7.1%}"
        print(line)
    low, high = np.quantile(draws, [0.05, 0.95])
    print(f"posterior of the mean at zeta {SHOWN}: {draws.mean():.1%}, 90 % between {low:.1%} and {high:.1%}")
    parts = [f"{a}-{(b - 1) % 100:02} {12 * ahead[(year >= a) & (year < b)].mean():+.2%}" for a, b in pairwise(PERIODS)]
    print("what zeta auto gains in the mean:", ", ".join(parts))
    auto, equal = results["gbpl, zeta auto"], results["equal"]
    traded = 12 * (auto["turnover"] - equal["turnover"])
    print(f"the gain is zero if selling and buying again costs {auto['mean gain'] / traded:.2%}")


def draw(weights: dict[str, np.ndarray], posterior: np.ndarray, ahead: np.ndarray, data: dict[str, Any], folder: Path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.2, 3.6), dpi=100, layout="constrained")
    left, middle, right = figure.subplots(1, 3)
    mean = np.array([np.sort(weights[f"gbpl, zeta {zeta}"])[:, ::-1].mean(axis=0) for zeta in ZETAS])
    for rank, (share, begin) in enumerate(zip(mean.T, (np.cumsum(mean, axis=1) - mean).T, strict=True)):
        left.bar(range(len(ZETAS)), share, bottom=begin, color=str(0.2 + 0.055 * rank), ec="w")
    left.set_xticks(range(len(ZETAS)), [f"{zeta:g}" for zeta in ZETAS])
    left.set(xlabel="zeta", ylabel="weights of a month, largest below", title="Large zeta: equal weights", ylim=(0, 1))
    order = np.argsort(posterior.mean(axis=0))
    low, high = np.quantile(posterior, [0.05, 0.95], axis=0)[:, order]
    middle.hlines(range(len(order)), low, high, color="#0072B2", lw=3, alpha=0.5)
    middle.plot(posterior.mean(axis=0)[order], range(len(order)), "o", color="#0072B2", ms=5)
    middle.axvline(1 / len(order), color="#767676", ls=":")
    middle.set_yticks(range(len(order)), [data["names"][asset] for asset in order], fontsize=8)
    middle.set(xlabel="mean weight since 2010, 90 % of draws", title=f"Posterior of the weights, zeta {SHOWN}")
    right.plot(data["year"][-len(ahead) :] + np.arange(len(ahead)) % 12 / 12, np.cumsum(ahead), color="#0072B2")
    right.axhline(0, color="#767676", lw=0.8)
    right.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    right.set(ylabel="zeta auto less equal weights, summed", title="Before trading costs")
    for ax in (left, middle, right):
        ax.title.set_fontsize(10)
        ax.spines[["top", "right"]].set_visible(False)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "portfolio.png")


def main(*, full: bool = False, figures: Path | None = None) -> dict[str, Any]:
    """Measures of each portfolio over the months held, its weights, and the posterior."""
    data = months()
    x, y, parts = data["x"], data["y"], windows(data["year"], 1 if full else 7)
    held = np.concatenate([part for _, part in parts])
    weights = {"equal": np.full((len(held), y.shape[1]), 1 / y.shape[1])}
    for name, aversion in AVERSION.items():
        weights[name] = np.concatenate([np.tile(mean_variance(y[a], aversion), (len(b), 1)) for a, b in parts])
    fits = fit_windows(x, y, parts, ("auto", *ZETAS), full)
    weights |= {f"gbpl, zeta {zeta}": weights_of(fitted, x, parts) for zeta, fitted in fits.items()}
    results = measures(weights, y[held], data["bill"][held])
    posterior = posterior_of(fits[SHOWN], x, y, parts)
    ahead = np.sum((weights["gbpl, zeta auto"] - weights["equal"]) * y[held], axis=1)
    show(results, posterior["mean"] - 12 * data["bill"][held].mean(), ahead, data["year"][held])
    if figures is not None:
        draw(weights, posterior["weights"], ahead, data, figures)
    return {"measures": results, "weights": weights, "posterior": posterior}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help="folder for the picture")
    parser.add_argument("--full", action="store_true", help="refit every year, small networks")
    main(**vars(parser.parse_args()))
