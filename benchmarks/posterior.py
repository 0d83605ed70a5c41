"""The paper's posterior studies on its one-dimensional design, and the speed of the posterior.

    python benchmarks/posterior.py [example] [disagreement] [methods] [sbc] [speed] [--replications 200] [--figures DIR]

example       MAP validation loss, posterior welfare mean and 95 % interval of one run (printed: 0.348, 0.470 and
              [0.333, 0.502] on 300 test points), by SGLD as in the paper, and the spread over 20 runs
disagreement  action disagreement (five groups) and posterior-threshold rules (four alphas), last-layer draws. The paper
              gives neither eta nor the scale of x here: eta = 1 and 4 on standardised x, then eta = 4 on x itself were
              run, and the one nearest the printed tables kept
methods       every posterior on one small network, beside NUTS as the reference: bands, welfare, seconds
sbc           simulation-based calibration: parameters from the prior, data from the pseudo-likelihood, ranks of the
              truth among 19 draws, for every method on a linear score (exact where it is not squashed)
speed         the last-layer posterior for a million rows and ten actions; 400 draws on 2,000 points

Replication r uses data seed r, evaluation seed 10^6 + r and random_state r.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy.stats

from gbpl import (
    MLP,
    Binary,
    FitConfig,
    GBPLNet,
    Linear,
    Member,
    PosteriorWarning,
    RandomFeatures,
    fit_stack,
    threshold_rule,
)
from gbpl.datasets import OneDimensionalDesign
from gbpl.posterior.bootstrap import fit_bootstrap
from gbpl.posterior.exact import Exact
from gbpl.posterior.laplace import Laplace
from gbpl.posterior.last_layer import LastLayer
from gbpl.posterior.nuts import NUTS
from gbpl.posterior.problem import Problem
from gbpl.posterior.sgld import SGLD
from gbpl.posterior.variational import Variational

DESIGN = OneDimensionalDesign()
ALPHAS = (0.05, 0.10, 0.20, 0.30)
PRINTED_GROUPS = [(0.9955, 0.0002), (0.7176, 0.0165), (0.6568, 0.0219), (0.5799, 0.0278), (0.5225, 0.0348)]
PRINTED_RULES = [(0.4309, -0.0006, 0.0285, 0.0144), (0.4311, -0.0004, 0.0222, 0.0112),
                 (0.4313, -0.0002, 0.0146, 0.0074), (0.4314, -0.0001, 0.0090, 0.0046)]  # fmt: skip


@dataclass(frozen=True)
class Unscaled(MLP):
    """A network on x itself, as in the paper: undoes the estimator's division by the standard deviation of x."""

    def features(self, params, x):
        return MLP.features(self, params, x * (2.5 / 3**0.5))


def fit(seed: int, eta: float = 1.0) -> GBPLNet:
    """The paper's setting: n = 1500, 0.6 to train and 0.2 to stop, one (64, 64) ReLU network, zeta = eta = 1."""
    sample = DESIGN.sample(1500, seed=seed)
    return GBPLNet(
        zeta=1.0, eta=eta, committee=None, validation_fraction=0.25, model=Unscaled((64, 64), activation="relu"),
        fit_config=FitConfig(batch_size=128, patience=20), random_state=seed,
    ).fit(sample.x[:1200], sample.outcomes[:1200])  # fmt: skip


def example(folder: Path | None) -> None:
    print("\nposterior example, SGLD with the paper's settings, deterministic policy, 300 test points, 20 runs")
    rows: dict[float | None, list] = {None: [], 100.0: [], 30.0: [], 10.0: []}
    for seed in range(20):
        policy, sample = fit(seed), DESIGN.sample(1500, seed=seed)
        x, y = sample.x[1200:], sample.outcomes[1200:]
        held = np.setdiff1d(np.arange(1200), policy._training.fit.members[0].train)
        gap = np.diff(sample.outcomes[:1200][held], axis=1)
        loss = 0.5 * np.mean((gap[:, 0] - policy.decision_function(sample.x[:1200][held])) ** 2)  # the full loss
        for clip, found in rows.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PosteriorWarning)
                posterior = policy.posterior("sgld", chains=1, clip_norm=clip)
                draws = posterior.welfare(x, y, rule="deterministic", draws=300, seed=seed)
            found.append([loss, draws.mean, *draws.interval()])
            if seed == 0 and folder and clip is None:
                figures(policy, posterior, draws, folder)
    print(f"{'gradient clipped at':22}{'validation loss':>18} {'welfare mean':>18} {'2.5 %':>18} {'97.5 %':>18}")
    print(f"{'(printed, one run)':22}{0.3482:18.4f} {0.4699:18.4f} {0.3327:18.4f} {0.5021:18.4f}")
    for clip, found in rows.items():
        cells = zip(np.mean(found, axis=0), np.std(found, axis=0, ddof=1), strict=True)
        print(f"{clip or 'never'!s:22}" + " ".join(f"{mean:9.4f} sd {sd:.4f}" for mean, sd in cells))


def figures(policy: GBPLNet, posterior, draws, folder: Path) -> None:
    """The paper's three posterior figures."""
    from gbpl.plots import plot_score_at, plot_scores, plot_welfare

    folder.mkdir(parents=True, exist_ok=True)
    grid = np.linspace(-2.5, 2.5, 201)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        scores = posterior.scores(grid, draws=300)[..., 0]
        at = posterior.scores(np.array([[1.0], [2.0]]), draws=300)[..., 0]
    target = np.clip(DESIGN.effect(grid), -1, 1)
    for name, ax in {
        "scores": plot_scores(grid[:, 0], scores, target=target),
        "welfare": plot_welfare(draws.values),
        "score-at": plot_score_at(at, [1.0, 2.0]),
    }.items():
        ax.figure.savefig(folder / f"posterior-{name}.png", dpi=120)


def disagreement_study(replications: int, eta: float) -> None:
    groups, rules = [], []
    for seed in range(replications):
        policy, fresh = fit(seed, eta), DESIGN.sample(2000, seed=10**6 + seed)
        tau = DESIGN.effect(fresh.x)
        p = policy.posterior("last_layer").action_probability(fresh.x, draws=400, seed=seed)
        u = 2 * np.minimum(p[:, 0], p[:, 1])
        chosen, best = policy.decision_function(fresh.x) >= 0, tau >= 0
        lost = np.abs(tau) * (chosen != best)
        number = np.minimum((u / 0.2).astype(int), 4)
        groups.append([
            [np.sum(number == g), *(values[number == g].mean() if (number == g).any() else np.nan
             for values in (u, chosen == best, np.abs(tau), lost))] for g in range(5)
        ])  # fmt: skip

        def worth(treated, fresh=fresh):
            return np.where(treated, fresh.outcome_mean[:, 1], fresh.outcome_mean[:, 0]).mean()

        row = []
        for alpha in ALPHAS:
            treated = threshold_rule(p, alpha=alpha).action == 1
            uncertain = np.mean((p[:, 1] >= alpha) & (p[:, 1] <= 1 - alpha))
            row.append([worth(treated), worth(chosen), uncertain, np.mean(treated != chosen)])
        rules.append(row)
    table = np.array(groups)
    print(f"\naction disagreement, {replications} replications, last-layer draws, eta = {eta:g} (printed in brackets)")
    print(f"{'group':>5} {'points':>8} {'disagreement':>13} {'agreement':>25} {'margin':>8} {'regret':>27}")
    for g in range(5):
        mean, error = np.nanmean(table[:, g], axis=0), np.nanstd(table[:, g], axis=0, ddof=1)
        error = error / np.sqrt(np.sum(~np.isnan(table[:, g]), axis=0))
        agreement, loss = PRINTED_GROUPS[g]
        print(
            f"{g + 1:5d} {table[:, g, 0].sum():8.0f} {mean[1]:13.4f} {mean[2]:9.4f} ({error[2]:.4f}) [{agreement:.4f}] "
            f"{mean[3]:8.4f} {mean[4]:9.4f} ({error[4]:.4f}) [{loss:.4f}]"
        )
    table = np.array(rules)
    print("\nposterior-threshold rules (printed in brackets)")
    print(f"{'alpha':>5} {'welfare':>17} {'MAP':>7} {'difference':>26} {'uncertain':>17} {'change':>17}")
    for i, alpha in enumerate(ALPHAS):
        mean = table[:, i].mean(axis=0)
        difference = table[:, i, 0] - table[:, i, 1]
        printed = PRINTED_RULES[i]
        print(
            f"{alpha:5.2f} {mean[0]:8.4f} [{printed[0]:.4f}] {mean[1]:7.4f} {difference.mean():8.4f} "
            f"({difference.std(ddof=1) / np.sqrt(replications):.4f}) [{printed[1]:.4f}] "
            f"{mean[2]:8.4f} [{printed[2]:.4f}] {mean[3]:8.4f} [{printed[3]:.4f}]"
        )


METHODS = {
    "NUTS (reference)": ("nuts", {"chains": 4, "warmup": 1000}),
    "SGLD": ("sgld", {"step_size": 1e-4, "burn_in": 20_000, "thin": 200}),
    "Laplace, full": ("laplace", {"structure": "full"}),
    "Laplace, Kronecker": ("laplace", {"structure": "kron"}),
    "Laplace, diagonal": ("laplace", {"structure": "diag"}),
    "Laplace, not linearised": ("laplace", {"structure": "full", "linearized": False}),
    "Laplace, low rank": ("laplace", {"structure": "low_rank", "rank": 10}),
    "last layer": ("last_layer", {}),
    "variational, mean field": ("variational", {"family": "mean_field"}),
    "variational, last layer": ("variational", {"family": "last_layer"}),
    "bootstrap": ("bootstrap", {"refits": 400}),
    "exact (random features)": ("exact", {}),
}


def methods(folder: Path | None) -> None:
    """All methods on one network of 49 weights, and the exact one on unsquashed random features."""
    sample, fresh = DESIGN.sample(300, seed=0), DESIGN.sample(2000, seed=1)
    common = {"zeta": 1.0, "eta": 1.0, "committee": None, "random_state": 0, "fit_config": FitConfig(patience=50)}
    network = GBPLNet(model=MLP((16,)), **common).fit(sample.x, sample.outcomes)
    flat = GBPLNet(model=RandomFeatures(64, 1.0), surrogate=Binary(squash=False), **common)
    flat.fit(sample.x, sample.outcomes)
    grid = np.linspace(-2.5, 2.5, 121)[:, None]
    bands = {}
    print("\nevery method: 400 draws, 240 training rows, randomized policy, known means, 2,000 points")
    print(f"{'method':26} {'welfare':>8} {'sd':>7} {'band width':>11} {'seconds':>8}")
    for name, (method, options) in METHODS.items():
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            posterior = (flat if method == "exact" else network).posterior(method, **options)
            draws = posterior.welfare(fresh.x, fresh.outcome_mean, rule="randomized")
            taken = time.perf_counter() - started
            scores = posterior.scores(grid, draws=400)[..., 0]
        bands[name] = scores
        width = np.mean(np.diff(np.quantile(scores, [0.025, 0.975], axis=0), axis=0))
        print(f"{name:26} {draws.mean:8.4f} {draws.sd:7.4f} {width:11.3f} {taken:8.1f}", flush=True)
    if folder:
        from matplotlib.figure import Figure

        from gbpl.plots import plot_scores

        folder.mkdir(parents=True, exist_ok=True)
        figure = Figure(figsize=(12, 9), layout="constrained")
        target = np.clip(DESIGN.effect(grid), -1, 1)
        for i, (name, scores) in enumerate(bands.items()):
            ax = plot_scores(grid[:, 0], scores, target=target, shown=30, ax=figure.add_subplot(3, 4, i + 1))
            ax.set(title=name, xlabel="", ylabel="", ylim=(-1.6, 1.6))
            ax.legend().remove()
        figure.savefig(folder / "posterior-methods.png", dpi=80)


def sbc(replications: int) -> None:
    """Ranks of a score at one point; uniform ranks mean calibrated draws."""
    n, zeta, eta, sd, draws, at = 30, 1.0, 1.0, 1.0, 19, np.array([0.5, -1.0], np.float32)
    rng = np.random.default_rng(0)
    truth = sd * rng.standard_normal((replications, 3))
    x = rng.standard_normal((replications, n, 2)).astype(np.float32)
    raw = np.einsum("rnp,rp->rn", x, truth[:, :2]) + truth[:, 2:]
    noise = np.sqrt(zeta / eta) * rng.standard_normal((replications, n))
    config = FitConfig(max_epochs=1500, batch_size=n, learning_rate=0.02, clip_norm=1e6)

    def problems(surrogate: Binary) -> tuple:
        scores = np.tanh(raw) if surrogate.squash else raw
        gap = (zeta * scores + noise).astype(np.float32)
        rows = np.arange(replications * n, dtype=np.int32).reshape(replications, n)
        members = [Member(r, zeta=zeta, eta=eta, prior_sd=sd, seed=i) for i, r in enumerate(rows)]
        data = (x.reshape(-1, 2), gap.reshape(-1, 1))
        fit = fit_stack(*data, members, surrogate, Linear(), config=config)
        built = []
        for i in range(replications):
            params = [{name: leaf[i] for name, leaf in layer.items()} for layer in fit.params]
            built.append(Problem(Linear(), surrogate, x[i], gap[i, :, None], None, zeta, eta, sd, params, i))
        return built, members, data

    squashed, members, data = problems(Binary())
    flat, _, _ = problems(Binary(squash=False))
    kinds = {
        "exact (not squashed)": lambda: [Exact(p) for p in flat],
        "NUTS": lambda: [NUTS(p, warmup=300, chains=1) for p in squashed],
        "SGLD": lambda: [SGLD(p, step_size=0.02, burn_in=1000, thin=100, chains=1) for p in squashed],
        "last layer": lambda: [LastLayer(p) for p in squashed],
        "Laplace, diagonal": lambda: [Laplace(p, structure="diag") for p in squashed],
        "variational, mean field": lambda: [Variational(p, family="mean_field", steps=1000) for p in squashed],
        "variational, last layer": lambda: [Variational(p, family="last_layer") for p in squashed],
        "bootstrap": lambda: fit_bootstrap(
            squashed, members, data, refits=draws * replications, seed=1, config=config, device="auto", progress=None
        ),
    }
    print(f"\nsimulation-based calibration, {replications} replications, n = {n}, 19 draws")
    print(
        f"{'method':26} {'p-value of uniform':>19} {'inside central 80 %':>20} {'(0.80 +-)':>10} {'mean rank/19':>13}"
    )
    for name, build in kinds.items():
        ranks = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            for i, part in enumerate(build()):
                apart = 10 if name == "NUTS" else 1  # neighbours in a chain are alike, and ranks ask for independence
                drawn = part.sample(draws * apart, seed=i)[-1]
                value = (drawn["weight"][:, :, 0] @ at + drawn["bias"][:, 0])[::apart]
                ranks.append(np.sum(value < truth[i, :2] @ at + truth[i, 2]))
        ranks = np.array(ranks)
        p_value = scipy.stats.chisquare(np.bincount(ranks // 2, minlength=10)).pvalue
        inside = np.mean((ranks >= 2) & (ranks <= 17))
        print(f"{name:26} {p_value:19.3g} {inside:20.3f} {0.4 / np.sqrt(replications):10.3f} {ranks.mean() / 19:13.3f}",
              flush=True)  # fmt: skip


def speed() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1_000_000, 20))
    y = np.stack([np.sin(x[:, a] + x[:, a + 1]) for a in range(10)], axis=1) + rng.standard_normal((1_000_000, 10))
    policy = GBPLNet(zeta=1.0, committee=None, fit_config=FitConfig(max_epochs=2), random_state=0).fit(x, y)
    started = time.perf_counter()
    posterior = policy.posterior("last_layer")
    print(
        "\nlast-layer posterior, 800,000 training rows of a million, ten actions: "
        f"{time.perf_counter() - started:.1f} s"
    )
    small = fit(0).posterior("last_layer")
    fresh = DESIGN.sample(2000, seed=1)
    for name, one, data in (
        ("two actions", small, (fresh.x, fresh.outcomes)),
        ("ten actions", posterior, (x[:2000], y[:2000])),
    ):
        one.welfare(*data, seed=0)
        started = time.perf_counter()
        one.welfare(*data, seed=1)
        print(f"400 draws and their welfare on 2,000 points, {name}: {time.perf_counter() - started:.3f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["example", "disagreement", "methods", "sbc", "speed"])
    parser.add_argument("--replications", type=int, default=200)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--eta", type=float, default=4.0, help="loss scale of the disagreement study (default 4)")
    asked = parser.parse_args()
    if "example" in asked.parts:
        example(asked.figures)
    if "disagreement" in asked.parts:
        disagreement_study(asked.replications, asked.eta)
    if "methods" in asked.parts:
        methods(asked.figures)
    if "sbc" in asked.parts:
        sbc(asked.replications)
    if "speed" in asked.parts:
        speed()


if __name__ == "__main__":
    main()
