"""Who should be trained? The rules of the literature beside a learned policy, by one evaluator.

    python examples/treatment_choice.py [--figures DIR] [--data-dir DIR]

Two trials of job training, decided by education and earlier earnings: NSW (LaLonde 1986), and JTPA with the file
jtpa_kt.csv in the data folder (GBPL_DATA_DIR). Rules that maximise welfare in the sample (Kitagawa and Tetenov 2018;
Mbakop and Tabord-Meehan 2021), a tree by doubly robust scores (Athey and Wager 2021), and `GBPL()`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.model_selection import KFold

from gbpl import GBPL, Value
from gbpl.datasets import Dataset, DataUnavailableError, load

FEATURES = {"nsw": ["educ", "re75"], "jtpa": ["edu", "prevearn"]}  # education, earnings before
COSTS = {"nsw": (1000.0,), "jtpa": (0.0, 774.0)}  # per person; a round number, and those of the literature
STEPS = 6  # of the finest staircase
FOLDS, REPEATS = 5, 2  # of the cross-fitted rules, whose assignments are averaged over the repeats
Rule = Callable[[np.ndarray], np.ndarray]


def empirical_gains(y: np.ndarray, action: np.ndarray, propensity: float, cost: float) -> np.ndarray:
    """What Kitagawa and Tetenov sum over the treated: inverse propensity weighted outcomes, less their mean."""
    net = y - cost * action
    net = net - net.mean()
    return net * np.where(action == 1, 1 / propensity, -1 / (1 - propensity))


def best_cuts(gain: np.ndarray, steps: int) -> tuple[float, list[int]]:
    """The cuts c_1 >= c_2 >= ... with at most `steps` different positive values that maximise sum_i gain[i, c_i].

    totals[i][s, c] is the largest sum over levels up to i that ends at cut c with s positive values. From one level to
    the next a cut stays, drops to a smaller positive one, or drops to zero.
    """
    totals = [np.full((steps + 1, gain.shape[1]), -np.inf)]
    totals[0][0, 0], totals[0][1, 1:] = 0.0, gain[0, 1:]
    for of_level in gain[1:]:
        best = totals[-1].copy()
        from_here_up = np.maximum.accumulate(best[:-1, ::-1], axis=1)[:, ::-1]
        best[1:, 1:-1] = np.maximum(best[1:, 1:-1], from_here_up[:, 2:])
        best[:, 0] = totals[-1].max(axis=1)
        totals.append(best + of_level)
    s, c = (int(part) for part in np.unravel_index(totals[-1].argmax(), totals[-1].shape))
    value, cuts = float(totals[-1][s, c]), [c]
    for total in totals[-2::-1]:
        row, least = (s, 0) if c == 0 else (s - 1, min(c + 1, gain.shape[1] - 1))
        dropped = least + int(total[row, least:].argmax())
        if total[row, dropped] > total[s, c]:
            s, c = row, dropped
        cuts.append(c)
    return value, cuts[::-1]


def nobody(x: np.ndarray) -> np.ndarray:
    return np.zeros(len(x), bool)


def below_steps(x: np.ndarray, sign: tuple[float, ...], first: np.ndarray, limit: np.ndarray) -> np.ndarray:
    level = np.clip(np.searchsorted(first, x[:, 0] * sign[0], side="right") - 1, 0, None)
    return x[:, 1] * sign[1] <= limit[level]


def beyond_line(x: np.ndarray, normal: np.ndarray, edge: float) -> np.ndarray:
    return x @ normal > edge


def staircase(x: np.ndarray, gain: np.ndarray, steps: int) -> Rule:
    """Treat up to a cut of the second feature that is monotone in the first: the best of all, in all four directions.

    One step is a quadrant: both features below (or above) a threshold.
    """
    best: tuple[float, Rule] = (0.0, nobody)
    for sign in product((1.0, -1.0), repeat=2):
        (first, i), (second, j) = (np.unique(column, return_inverse=True) for column in (x * sign).T)
        table = np.zeros((len(first), len(second) + 1))
        np.add.at(table, (i, j + 1), gain)
        value, cuts = best_cuts(table.cumsum(axis=1), steps)
        if value > best[0]:
            limit = np.append(-np.inf, second)[cuts]
            best = value, partial(below_steps, sign=sign, first=first, limit=limit)
    return best[1]


def chosen_staircase(x: np.ndarray, gain: np.ndarray) -> Rule:
    """Mbakop and Tabord-Meehan's holdout: learn with each number of steps from one half, choose by the other half."""
    half = np.random.default_rng(0).permutation(len(x)) < len(x) / 2
    rules = [staircase(x[half], gain[half], steps) for steps in range(1, STEPS + 1)]
    return max(rules, key=lambda rule: gain[~half][rule(x[~half])].sum())


def line(x: np.ndarray, gain: np.ndarray) -> Rule:
    """The half plane with the largest sum of gains, exactly: a line turns about each point in turn.

    The points to the left of direction t are those at angles between t and t + pi: one leaves when t reaches its angle,
    and has come half a turn earlier.
    """
    unit = np.ptp(x, axis=0)
    points, where = np.unique(x, axis=0, return_inverse=True)
    weight, points = np.bincount(where.ravel(), gain), points / unit
    best: tuple[float, Rule] = (0.0, nobody)
    for pivot in range(len(points)):
        others = np.delete(points, pivot, axis=0) - points[pivot]
        own, angle = np.delete(weight, pivot), np.arctan2(others[:, 1], others[:, 0])
        turn = np.concatenate([angle, np.where(angle >= 0, angle - np.pi, angle + np.pi)])
        order = np.argsort(turn)
        turn, change = turn[order], np.concatenate([-own, own])[order]
        left = own[(angle > -np.pi) & (angle < 0)].sum() + np.cumsum(change)
        left[:-1][np.diff(turn) < 1e-10] = -np.inf  # points on one line through the pivot change together
        k = int(left.argmax())
        if left[k] + max(weight[pivot], 0.0) > best[0]:
            middle = (turn[k] + (turn[k + 1] if k + 1 < len(turn) else turn[0] + 2 * np.pi)) / 2
            normal = np.array([-np.sin(middle), np.cos(middle)])
            edge = points[pivot] @ normal - (1e-12 if weight[pivot] > 0 else -1e-12)
            best = left[k] + max(weight[pivot], 0.0), partial(beyond_line, normal=normal / unit, edge=edge)
    return best[1]


CLASSES: dict[str, Callable[[np.ndarray, np.ndarray], Rule]] = {
    "quadrant": partial(staircase, steps=1),
    "staircase": chosen_staircase,
    "line": line,
}


def cross_fitted(learn: Callable[[np.ndarray, np.ndarray], Rule], x: np.ndarray, gain: np.ndarray) -> np.ndarray:
    """Action probabilities: how often each row is treated by rules that learned from other rows."""
    treated = np.zeros(len(x))
    for seed in range(REPEATS):
        for others, fold in KFold(FOLDS, shuffle=True, random_state=seed).split(x):
            treated[fold] += learn(x[others], gain[others])(x[fold]) / REPEATS
    return np.column_stack([1 - treated, treated])


def study(data: Dataset, cost: float, seed: int) -> dict[str, Any]:
    """Every rule: its share, its gain in the sample, and its gains over nobody and everybody on rows it did not see."""
    frame, names = data.frame, FEATURES[data.name]
    x, y, action = frame[names].to_numpy(float), frame[data.outcome].to_numpy(float), frame[data.action].to_numpy()
    policy = GBPL(random_state=seed).fit(x, y, action=action, propensity=data.propensity, cost={0: 0.0, 1: cost})
    gain = empirical_gains(y, action, float(data.propensity), cost)
    tree = policy.small_rule("tree", 2)
    none, everybody = policy.cross_fitted_value(0), policy.cross_fitted_value(1)
    rules: dict[str, Rule] = {"everybody": lambda x: ~nobody(x)}
    values: dict[str, Value] = {"everybody": everybody}
    for name, learn in CLASSES.items():
        rules[name] = learn(x, gain)
        values[name] = policy.cross_fitted_value(cross_fitted(learn, x, gain), rule="randomized")
    rules["tree, depth 2"], values["tree, depth 2"] = lambda x: tree.rule.predict(x) == 1, tree.value
    rules["GBPL()"], values["GBPL()"] = lambda x: policy.predict(x) == 1, policy.cross_fitted_value()
    lines = {}
    for name, value in values.items():
        treated = rules[name](x)
        lines[name] = {"share": treated.mean(), "sample": (gain * treated).mean()}
        lines[name] |= {"gain": value - none, "more": value - everybody}
    return {"lines": lines, "rules": rules, "policy": policy, "x": x, "names": names}


def show(title: str, result: dict[str, Any]) -> None:
    print(f"\n{title}, {len(result['x']):,} people; gains per person, net of cost")
    print(f"{'':15}treated  in the sample     on other rows (95 %)     more than everybody (95 %)")
    for rule, part in result["lines"].items():
        line = f"{rule:15}{part['share']:7.0%}{part['sample']:12,.0f}"
        for value in (part["gain"], part["more"]):
            low, high = value.interval()
            line += f"{value.estimate:14,.0f} ({low:6,.0f} to {high:6,.0f})"
        print(line)


def draw(title: str, result: dict[str, Any], folder: Path) -> None:
    """Whom each rule treats, over education and earlier earnings; what GBPL expects; and what each gains."""
    from matplotlib.figure import Figure

    x, figure = result["x"], Figure(figsize=(10.4, 5.8), dpi=80, layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    first, second = np.unique(x[:, 0]), np.linspace(0, np.quantile(x[:, 1], 0.995), 120)
    grid = np.column_stack([part.ravel() for part in np.meshgrid(first, second)])
    rng = np.random.default_rng(0)
    people = x[rng.permutation(len(x))[:900]] + [1, 0] * rng.uniform(-0.35, 0.35, (min(900, len(x)), 1))
    shape, shown = (len(second), len(first)), [name for name in result["rules"] if name != "everybody"]
    for ax, name in zip(panels, shown, strict=False):
        treated = result["rules"][name](grid).reshape(shape)
        if name == "GBPL()":
            gain = result["policy"].expected_gain(grid, default=0)[:, 1].reshape(shape)
            top = np.abs(gain).max()
            colours = ax.pcolormesh(first, second, gain, cmap="RdBu", vmin=-top, vmax=top, rasterized=True)
            figure.colorbar(colours, ax=ax, fraction=0.08)
        else:
            ax.pcolormesh(first, second, treated, cmap="Blues", vmin=0, vmax=2.2, rasterized=True)
        ax.plot(*people.T, ",", color="black", alpha=0.6)
        what = ", expected gain" if name == "GBPL()" else ""
        ax.set(title=f"{name}: {result['lines'][name]['share']:.0%} treated{what}", ylim=(0, second[-1]))
        ax.set_xticks(first[1::2])
    for ax in panels[::3]:
        ax.set_ylabel("earnings before, dollars")
    for ax in panels[3:5]:
        ax.set_xlabel("education, years")
    last, at = panels[-1], np.arange(len(result["lines"]))[::-1]
    for place, part in zip(at, result["lines"].values(), strict=True):
        last.plot(part["gain"].interval(), [place, place], color="#0072B2", lw=3, alpha=0.5)
        last.plot(part["gain"].estimate, place, "o", color="#0072B2")
        last.plot(part["sample"], place, "x", color="#D55E00")
    last.axvline(0, color="#767676", lw=0.8)
    last.set_yticks(at, result["lines"])
    last.set(title="Gain: in the sample (x), on others", xlabel="dollars per person, 95 %")
    for ax in panels:
        ax.title.set_fontsize(10)
    figure.suptitle(title, fontsize=11)
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "treatment_choice.png")


def main(*, figures: Path | None = None, data_dir: str | None = None, seed: int = 0) -> dict[str, Any]:
    """For each trial and cost: the table, the rules, and the fitted policy."""
    results: dict[str, Any] = {}
    for name, costs in COSTS.items():
        try:
            data = load(name, data_dir=data_dir)
        except DataUnavailableError as error:
            print(f"\n{error}")
            continue
        for cost in costs:
            title = f"{name} at {cost:g} dollars per person"
            results[title] = study(data, cost, seed)
            show(title, results[title])
    if figures is not None:
        draw(*list(results.items())[-1], figures)
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figures", type=Path, help="folder for the picture")
    parser.add_argument("--data-dir", help="folder with jtpa_kt.csv (else GBPL_DATA_DIR)")
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
