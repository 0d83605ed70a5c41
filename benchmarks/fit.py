"""Speed of the stacked fit, as ratios measured in one run.

    python benchmarks/fit.py [throughput] [cold] [growth] [torch]

throughput  members per second of stacks of 1, 4, 16 and 64 against the same members one after another, and the
            share of this machine's matmul peak
cold        import, compilation and first fit at n = 1,000, and a second fit of the same shape
growth      time and peak memory for 1e3 to 1e6 rows, 20 features, five actions
torch       the default fit on full-feedback DGP2 at n = 3,000 against the paper's listing in a plain PyTorch loop
            over the same zetas and folds (only where PyTorch is installed)

Machines are shared and noisy: read the ratios, not the seconds.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time

import numpy as np

SECTIONS = ("throughput", "cold", "growth", "torch")


def matmul_peak() -> float:
    """FLOP/s of one large float32 product on all cores, the best of several."""
    import jax
    import jax.numpy as jnp

    a = jnp.ones((2048, 2048))
    product = jax.jit(lambda m: m @ m)
    product(a).block_until_ready()
    times = []
    for _ in range(8):
        started = time.perf_counter()
        product(a).block_until_ready()
        times.append(time.perf_counter() - started)
    return 2 * 2048**3 / min(times)


def throughput() -> None:
    from gbpl import MLP, Binary, FitConfig, Member, fit_stack
    from gbpl.datasets import BinaryDesign

    n, epochs = 2400, 30
    sample = BinaryDesign("DGP2").sample(n + 600, seed=0)
    gap = sample.outcomes[:, 1:] - sample.outcomes[:, :1]
    config = FitConfig(max_epochs=epochs, patience=epochs, batch_size=128)
    steps, size = config.batch_shape(n)
    weights = 10 * 128 + 128 * 128 + 128
    flop = 6 * weights * steps * size * epochs + 2 * weights * 600 * epochs  # forward and backward; validation

    def seconds(count: int) -> float:
        members = [Member(np.arange(n), np.arange(n, n + 600), seed=s) for s in range(count)]
        best = np.inf
        for _ in range(3):
            started = time.perf_counter()
            fit_stack(sample.x, gap, members, Binary(), MLP(), config=config)
            best = min(best, time.perf_counter() - started)
        return best

    one = seconds(1)
    print("\nthroughput: (10, 128, 128, 1) network, 2,400 rows, batches of 128, 30 epochs")
    print(f"{'stack':>6} {'members/s':>10} {'ratio to one by one':>20} {'GFLOP/s':>9} {'share of peak':>14}")
    for count in (1, 4, 16, 64):
        taken, peak = seconds(count), matmul_peak()
        rate = count * flop / taken
        print(f"{count:6d} {count / taken:10.2f} {one * count / taken:20.2f} {rate / 1e9:9.1f} {rate / peak:14.0%}")


COLD = """
import time; started = time.perf_counter()
import numpy as np
from gbpl import GBPLNet
from gbpl.datasets import BinaryDesign
imported = time.perf_counter()
sample = BinaryDesign("DGP2").sample(1000, seed=0)
GBPLNet(random_state=0).fit(sample.x, sample.outcomes).predict(sample.x)
first = time.perf_counter()
other = BinaryDesign("DGP2").sample(1000, seed=1)
GBPLNet(random_state=1).fit(other.x, other.outcomes).predict(other.x)
second = time.perf_counter()
print(f"{imported - started:10.2f} {first - imported:12.2f} {first - started:10.2f} {second - first:12.2f}")
"""


def cold() -> None:
    print("\ncold start: the default fit on DGP2, n = 1,000, seconds in a new process")
    print(f"{'compiled before':>16} {'import':>9} {'first fit':>12} {'sum':>10} {'second fit':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for before in ("never", "last process", "last process"):
            environment = {**os.environ, "GBPL_CACHE_DIR": folder}
            out = subprocess.run(
                [sys.executable, "-c", COLD], env=environment, capture_output=True, text=True, check=True
            )
            print(f"{before:>16} {out.stdout.rstrip()}")


GROWTH = """
import resource, sys, time
import numpy as np
from gbpl import GBPLNet
n = int(sys.argv[1])
rng = np.random.default_rng(0)
warm = rng.standard_normal((1000, 20))
GBPLNet(random_state=0).fit(warm, rng.standard_normal((1000, 5)))
x = rng.standard_normal((n, 20))
y = np.empty((n, 5))
for a in range(5):
    y[:, a] = np.sin(x[:, a] + x[:, a + 1]) + rng.standard_normal(n)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
started = time.perf_counter()
policy = GBPLNet(random_state=0).fit(x, y)
taken = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
data = x.nbytes + y.nbytes
epochs = sum(len(h["train_loss"]) for h in policy.history_)
print(f"{n:10d} {taken:9.1f} {1e6 * taken / n:10.1f} {epochs:8d} {data / 1e6:9.0f} {peak / 1e6:10.0f}", end="")
print(f"{(data + peak) / data:19.2f}")
"""


def growth() -> None:
    print("\ngrowth: the default fit, 20 features, five actions, float64 input")
    print(
        f"{'rows':>10} {'seconds':>9} {'us a row':>10} {'epochs':>8} {'data MB':>9} {'added MB':>10} "
        f"{'(data+added)/data':>18}"
    )
    for n in (1_000, 10_000, 100_000, 1_000_000):
        out = subprocess.run([sys.executable, "-c", GROWTH, str(n)], capture_output=True, text=True, check=True)
        print(out.stdout.rstrip(), flush=True)


def listing_members(x, outcomes, zetas, folds, config, seed):
    """The paper's printed listing, trained member by member: the functions are its own, the loop is the plainest."""
    import torch
    from torch import nn

    class TanhScoreNet(nn.Module):
        def __init__(self, in_dim, hidden=(128, 128)):
            super().__init__()
            layers, d = [], in_dim
            for h in hidden:
                layers += [nn.Linear(d, h), nn.ReLU()]
                d = h
            layers += [nn.Linear(d, 1)]
            self.net = nn.Sequential(*layers)

        def forward(self, x):
            return torch.tanh(self.net(x)).view(-1)

    def surrogate_loss(y1, y0, f, zeta):
        d = y1 - y0
        return 0.5 * (d / (zeta**0.5) - (zeta**0.5) * f) ** 2

    def map_objective(model, xb, y1b, y0b, n_total, eta, prior_sd, zeta):
        f = model(xb)
        loss_batch = surrogate_loss(y1b.view(-1), y0b.view(-1), f, zeta).sum()
        data_term = eta * (n_total / xb.size(0)) * loss_batch
        prior_term = 0.0
        for p in model.parameters():
            prior_term = prior_term + (p**2).sum()
        return data_term + 0.5 * prior_term / (prior_sd**2)

    torch.manual_seed(seed)
    x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(outcomes, dtype=torch.float32)
    models, epochs = {}, 0
    for zeta in zetas:
        for number, fold in enumerate(folds):
            train = torch.tensor(np.setdiff1d(np.arange(len(x)), fold))
            held = torch.tensor(fold.astype(np.int64))
            model = TanhScoreNet(x.shape[1])
            optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
            best, state, waited = np.inf, None, 0
            for _ in range(config.max_epochs):
                epochs += 1
                order = train[torch.randperm(len(train))]
                for batch in order.split(128):
                    optimizer.zero_grad()
                    map_objective(model, x[batch], y[batch, 1], y[batch, 0], len(train), 1.0, 1.0, zeta).backward()
                    optimizer.step()
                with torch.no_grad():
                    loss = surrogate_loss(y[held, 1], y[held, 0], model(x[held]), zeta).mean().item()
                if loss < best:
                    best, waited = loss, 0
                    state = {name: value.clone() for name, value in model.state_dict().items()}
                else:
                    waited += 1
                if waited >= config.patience:
                    break
            model.load_state_dict(state)
            models[zeta, number] = model
    return models, epochs


def against_torch(trials: int = 3) -> None:
    if importlib.util.find_spec("torch") is None:
        print("\ntorch: PyTorch is not installed (pip install torch==2.13.0); left out")
        return
    import torch

    from gbpl import Binary, FitConfig, GBPLNet, regret
    from gbpl.datasets import BinaryDesign
    from gbpl.fitting.members import fold_rows
    from gbpl.path.out_of_fold import OutOfFold, average_weights

    design, config = BinaryDesign("DGP2"), FitConfig()
    warm = design.sample(3000, seed=99)
    GBPLNet(random_state=0).fit(warm.x, warm.outcomes)
    print("\ntorch: default fit (25 members) on full-feedback DGP2, n = 3,000, warm; same zetas, folds and patience")
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, the paper's listing")
    print(
        f"{'trial':>6} {'gbpl s':>8} {'torch s':>8} {'ratio':>6} {'gbpl regret':>12} {'torch regret':>13} "
        f"{'epochs':>12}"
    )
    for trial in range(trials):
        sample, fresh = design.sample(3000, seed=trial), design.sample(20_000, seed=1000 + trial)
        started = time.perf_counter()
        policy = GBPLNet(random_state=trial).fit(sample.x, sample.outcomes)
        ours = time.perf_counter() - started
        zetas, folds = policy.zeta_path_.zeta, fold_rows(3000, 5, seed=trial)
        started = time.perf_counter()
        models, epochs = listing_members(sample.x, sample.outcomes, zetas, folds, config, trial)
        theirs = time.perf_counter() - started
        sums = OutOfFold(zetas, Binary())
        with torch.no_grad():

            def policies(number, x, models=models, zetas=zetas):
                tensor = torch.tensor(x, dtype=torch.float32)
                f = np.stack([models[zeta, number](tensor).numpy() for zeta in zetas])
                return np.stack([1 - f, 1 + f], axis=-1) / 2

            for number, fold in enumerate(folds):
                sums.add(policies(number, sample.x[fold]), sample.outcomes[fold], None)
            path = sums.path()
            scores = np.mean([policies(k, fresh.x)[..., 1] - 0.5 for k in range(5)], axis=0)
        combined = (average_weights(path) / path.size) @ scores
        chosen = np.eye(2)[(combined >= 0).astype(int)]
        mine = np.eye(2)[policy.predict(fresh.x)]
        passed = sum(len(h["train_loss"]) for h in policy.history_)
        print(
            f"{trial:6d} {ours:8.2f} {theirs:8.2f} {theirs / ours:6.1f} {regret(mine, fresh.outcome_mean):12.4f} "
            f"{regret(chosen, fresh.outcome_mean):13.4f} {passed:5d} / {epochs}",
            flush=True,
        )


if __name__ == "__main__":
    asked = sys.argv[1:] or list(SECTIONS)
    if unknown := set(asked) - set(SECTIONS):
        sys.exit(f"unknown section(s) {sorted(unknown)}; there are {', '.join(SECTIONS)}")
    run = {"throughput": throughput, "cold": cold, "growth": growth, "torch": against_torch}
    for name in asked:
        run[name]()
