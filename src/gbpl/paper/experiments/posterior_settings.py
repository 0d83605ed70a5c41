"""Other settings of the one-dimensional posterior studies, for the numbers that the stated ones do not give.

Like the readings of the designs, the lists were fixed before a distance of them was computed, `known` says what had
been seen before, and none is used anywhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DECISIONS", "INTERVALS", "SGLD_SETTINGS", "PosteriorSetting"]

ROWS, BATCH = 900, 128  # training rows of the example, and of a minibatch


@dataclass(frozen=True, slots=True)
class PosteriorSetting:
    """One way to draw from the posterior: what is `quote`d, what it is `read` as, and what that changes.

    `eta` multiplies the stated loss scale of the draws; with `refit` the network is fitted at the scale of the draws,
    and not at one. `step_size` and `thin` are those of SGLD. `welfare` is of the "rule" or the "randomized" policy,
    counted by realized outcomes or not. `observed` are the rows of a replication, three quarters of them to train on,
    of which the curvature counts all with `every_row`; `points` are the rows for evaluation.
    """

    name: str
    quote: str = ""
    read: str = ""
    eta: float = 1.0
    prior_sd: float = 1.0
    refit: bool = False
    step_size: float = 2e-5
    thin: int = 8
    welfare: str = ""
    realized: bool | None = None
    standardized: bool = False
    observed: int = 1200
    every_row: bool = False
    points: int = 2000
    known: str = ""


STATED = PosteriorSetting("stated", "", "as written")
_MEAN_LOSS = "the loss averaged, not summed, over the rows: eta / 900"

SGLD_SETTINGS: tuple[PosteriorSetting, ...] = (
    STATED,
    PosteriorSetting(
        "mean loss", "eta = 1.0", _MEAN_LOSS, eta=1 / ROWS, known="widths of 0.10 to 0.51 were known to surround print"
    ),
    PosteriorSetting("2 eta", "eta = 1.0", "the loss without its factor of one half", eta=2.0),
    PosteriorSetting("eta / 2", "eta = 1.0", "one half of the loss", eta=0.5),
    PosteriorSetting(
        "minibatch sum", "scaled to match the full sample objective", "the sum over a minibatch", eta=BATCH / ROWS
    ),
    PosteriorSetting(
        "all divided by n", "Phi(w)", "loss and prior both divided by the number of rows", eta=1 / ROWS,
        prior_sd=ROWS**0.5,
    ),
    PosteriorSetting(
        "mean loss, weight decay", "weight decay 10^-4", "a mean loss, and the weight decay as the only prior",
        eta=1 / ROWS, prior_sd=100.0,
    ),
    PosteriorSetting(
        "double step", "eps / 2 and sqrt(eps)", "steps of eps grad Phi and noise of sqrt(2 eps)", step_size=4e-5
    ),
    PosteriorSetting("tenfold step", "step size 2 * 10^-5", "2 * 10^-4", step_size=2e-4),
    PosteriorSetting("not thinned", "thin by a factor 8", "every draw kept", thin=1),
    PosteriorSetting(
        "randomized policy", "using the deterministic policy", "welfare of (f + 1) / 2", welfare="randomized"
    ),
    PosteriorSetting(
        "conditional means", "Y_i(1) and Y_i(0) of the test set", "their conditional means", realized=False
    ),
)  # fmt: skip

_WHICH = "nothing is said of it"
_TRIED = "tried before: nearer in width and farther in coverage"

INTERVALS: tuple[PosteriorSetting, ...] = (
    STATED,
    PosteriorSetting(
        "eta / 2", "the loss scale eta", "one half of the loss", eta=0.5,
        known="the printed widths were known to be near ours at half of eta",
    ),
    PosteriorSetting("2 eta", "the loss scale eta", "the loss without its factor of one half", eta=2.0),
    PosteriorSetting("mean loss", "the loss scale eta", _MEAN_LOSS, eta=1 / ROWS),
    PosteriorSetting("fitted at each eta", "we fit GBPLNet", "anew for every eta", refit=True, known=_TRIED),
    PosteriorSetting("x standardized", _WHICH, "mean zero and sd one", standardized=True, known="tried before"),
    PosteriorSetting("800 rows", _WHICH, "600 to train on, 200 to stop on", observed=800, known=_TRIED),
    PosteriorSetting(
        "weight decay as prior", "weight decay 10^-4", "a prior of precision 10^-4 times 900 rows",
        prior_sd=1 / (1e-4 * ROWS) ** 0.5, known="tried before",
    ),
    PosteriorSetting("all observed rows", _WHICH, "the curvature counts rows to stop on too", every_row=True),
    PosteriorSetting(
        "deterministic rule", "the welfare of each sampled policy", "of 1[f >= 0], the target being the best rule's",
        welfare="rule",
    ),
    PosteriorSetting(
        "realized outcomes", "on an independent evaluation sample", "welfare of realized outcomes", realized=True
    ),
    PosteriorSetting("300 points", _WHICH, "as many points to evaluate on as test rows in the example", points=300),
)  # fmt: skip

DECISIONS: tuple[PosteriorSetting, ...] = (
    PosteriorSetting("eta 4, x itself", _WHICH, "as in the tables", eta=4.0, known="kept, the nearest of three tried"),
    PosteriorSetting("eta 1, x standardized", _WHICH, "", standardized=True, known="tried before"),
    PosteriorSetting("eta 4, x standardized", _WHICH, "", eta=4.0, standardized=True, known="tried before"),
    PosteriorSetting("eta 1, x itself", _WHICH, ""),
    PosteriorSetting("eta 2, x itself", _WHICH, "half of the calibrated loss scale", eta=2.0),
)
