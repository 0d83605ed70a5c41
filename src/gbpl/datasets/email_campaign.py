"""A simulated e-mail campaign with known truth, with the columns of Hillstrom's trial (section 7)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from gbpl.datasets.dataset import Dataset, Source, check_choice, to_frame
from gbpl.datasets.samples import LOGGED_ACTION, Sample, check_whole, stream
from gbpl.datasets.truth import piecewise_rule

if TYPE_CHECKING:
    from jaxtyping import Float

__all__ = ["SOURCES", "EmailDesign"]

ARMS = ("No E-Mail", "Mens E-Mail", "Womens E-Mail")
OUTCOMES = ("visit", "spend")
FEATURES = ["recency", "history", "mens", "womens", "zip_code", "newbie", "channel"]
COLUMNS = ("recency", "history", "mens", "womens", "newbie", "urban", "rural", "web", "multichannel")  # of x

# Values and shares of each part of a customer; what they bought before is one part of two columns.
RECENCY = (tuple(range(1, 13)), (1 / 12,) * 12)
BOUGHT = (((1, 0), (0, 1), (1, 1)), (0.45, 0.45, 0.10))
ZIP = (("Suburban", "Urban", "Rural"), (0.45, 0.40, 0.15))
NEWBIE = ((0, 1), (0.5, 0.5))
CHANNEL = (("Phone", "Web", "Multichannel"), (0.44, 0.44, 0.12))
KINDS: tuple[tuple[tuple[Any, ...], tuple[float, ...]], ...] = (RECENCY, BOUGHT, ZIP, NEWBIE, CHANNEL)
LOG_HISTORY, RECENCY_MEAN, RECENCY_SD = 5.0, 6.5, 3.45  # log(history) is normal with mean 5 and standard deviation 1

# Coefficients of the logit of a visit, in the order of COLUMNS, and its constant. The first line is without e-mail, the
# others what each e-mail adds.
SLOPE = np.array(
    [
        [-0.30, 0.25, 0.60, 0.55, -0.50, -0.10, 0.40, 0.15, 0.10],
        [0.30, 0.20, 0.60, -0.10, 0.0, 0.0, 0.0, 0.0, 0.0],
        [0.30, -0.20, -0.15, 0.65, 0.0, 0.0, 0.0, 0.15, 0.0],
    ]
)
CONSTANT = np.array([-2.75, 0.45, 0.40])
FATIGUE = 0.40  # times recency squared: e-mails do little for those just gone and those long gone
BUYS, ORDER, ORDER_SLOPE, ORDER_SD = 0.10, 60.0, 0.30, 0.50  # a visitor in ten buys, for 60 dollars where history is 0


@dataclass(frozen=True, slots=True)
class EmailDesign:
    """Three arms, customers like those of Hillstrom's trial, and a visit (0 or 1) or the dollars spent.

    The features x are numbers: recency (1 to 12 months, uniform, standardized), the logarithm of history (standard
    normal), and dummies for what was bought before, newbies, zip code and channel (`COLUMNS`). With a = 0 no e-mail,

        P(visit under a | x) = sigmoid(c_0 + x'b_0 + 1[a > 0] (c_a + x'b_a - 0.4 recency^2))

    The same uniform number decides a customer's visit under every arm, so that an arm under which a visit is likelier
    gets all the visits of one under which it is not. One visitor in ten buys, for about 60 dollars, more where history
    is large; `outcome="spend"` counts the dollars.

    >>> design = EmailDesign()
    >>> design.sample(3, seed=0).outcomes.shape
    (3, 3)
    >>> [round(value, 3) for value in (*design.action_welfare().tolist(), design.optimal_welfare())]
    [0.103, 0.149, 0.144, 0.191]
    """

    outcome: str = "visit"

    def __post_init__(self) -> None:
        check_choice("outcome", self.outcome, OUTCOMES)

    @property
    def actions(self) -> tuple[str, ...]:
        """The arms, in the order of the columns of outcomes."""
        return ARMS

    @property
    def n_features(self) -> int:
        """Columns of x."""
        return len(COLUMNS)

    @property
    def n_actions(self) -> int:
        """Three."""
        return len(ARMS)

    def outcome_mean(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
        """gamma_a(x): the chance of a visit, or the dollars expected."""
        return expit(_index(x)) * self._visit_value(x)[:, None]

    def _visit_value(self, x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
        """Mean value of a visit."""
        return np.ones(len(x)) if self.outcome == "visit" else BUYS * _order(x)

    def sample(self, n: int, *, seed: int) -> Sample:
        """Draw n independent customers, with the outcome of every arm."""
        check_whole("n", n, 1, "try 10000")
        rng = np.random.default_rng(seed)
        parts = [rng.choice(len(part[0]), n, p=part[1]) for part in KINDS]
        x = _cells()[0][np.ravel_multi_index(parts, [len(part[0]) for part in KINDS])]
        x[:, 1] = rng.standard_normal(n)
        outcomes = (rng.random((n, 1)) < expit(_index(x))).astype(np.float64)
        if self.outcome == "spend":
            paid = (rng.random(n) < BUYS) * _order(x) * rng.lognormal(-(ORDER_SD**2) / 2, ORDER_SD, n)
            outcomes *= paid[:, None]
        return Sample(x, outcomes, self.outcome_mean(x))

    def frame(self, n: int, *, seed: int, as_frame: str = "pandas") -> Any:
        """A trial: the customers of sample(n, seed=seed), each with an arm drawn at random, one third each.

        Columns are named as in Hillstrom's file, with the zip code and the channel in words, and history in dollars
        and cents.
        """
        return to_frame(self._columns(n, seed), as_frame)

    def _columns(self, n: int, seed: int) -> dict[str, np.ndarray]:
        drawn = self.sample(n, seed=seed)
        arm = stream(seed, LOGGED_ACTION).integers(len(ARMS), size=n)
        seen = drawn.outcomes[np.arange(n), arm]
        whole = {name: drawn.x[:, j].astype(np.int64) for j, name in enumerate(COLUMNS)}
        return {
            "recency": np.rint(drawn.x[:, 0] * RECENCY_SD + RECENCY_MEAN).astype(np.int64),
            "history": np.exp(drawn.x[:, 1] + LOG_HISTORY).round(2),
            "mens": whole["mens"],
            "womens": whole["womens"],
            "zip_code": np.array(ZIP[0])[whole["urban"] + 2 * whole["rural"]],
            "newbie": whole["newbie"],
            "channel": np.array(CHANNEL[0])[whole["web"] + 2 * whole["multichannel"]],
            "segment": np.array(ARMS)[arm],
            self.outcome: seen.astype(np.int64) if self.outcome == "visit" else seen.round(2),
        }

    def numeric(self, frame: Any) -> Float[np.ndarray, "row feature"]:
        """The x of a frame's rows, up to the rounding of history: `outcome_mean` of it is the truth to compare with."""
        part = {name: np.asarray(frame[name].to_numpy()) for name in FEATURES}
        dummies = [part["zip_code"] == "Urban", part["zip_code"] == "Rural"]
        dummies += [part["channel"] == "Web", part["channel"] == "Multichannel"]
        recency = (part["recency"] - RECENCY_MEAN) / RECENCY_SD
        history = np.log(part["history"]) - LOG_HISTORY
        return np.column_stack([recency, history, part["mens"], part["womens"], part["newbie"], *dummies])

    def optimal_welfare(self) -> float:
        """E[max_a gamma_a(X)], by enumeration and quadrature to rounding (`_values`)."""
        return _values(self)[0]

    def oracle_welfare(self) -> float:
        """The same as `optimal_welfare`: where the likeliest arm brings no visit, no other does."""
        return self.optimal_welfare()

    def action_welfare(self) -> Float[np.ndarray, " action"]:
        """E[Y(a)], by the same quadrature."""
        return np.array(_values(self)[1])


def _index(x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, "row action"]:
    """The logit of a visit under each arm."""
    parts = x @ SLOPE.T + CONSTANT
    added = parts[:, 1:] - FATIGUE * x[:, :1] ** 2
    return np.column_stack([parts[:, 0], parts[:, :1] + added])


def _order(x: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " row"]:
    """Dollars of an order, on average."""
    return ORDER * np.exp(ORDER_SLOPE * x[:, 1])


@cache
def _cells() -> tuple[Float[np.ndarray, "cell feature"], Float[np.ndarray, " cell"]]:
    """The 648 kinds of customers, with history zero, and their shares."""
    rows, shares = [], []
    for number in product(*(range(len(part[0])) for part in KINDS)):
        recency, (mens, womens), place, newbie, channel = (part[0][i] for part, i in zip(KINDS, number, strict=True))
        dummies = [place == "Urban", place == "Rural", channel == "Web", channel == "Multichannel"]
        rows.append([(recency - RECENCY_MEAN) / RECENCY_SD, 0.0, mens, womens, newbie, *dummies])
        shares.append(np.prod([part[1][i] for part, i in zip(KINDS, number, strict=True)]))
    return np.array(rows, np.float64), np.array(shares)


@cache
def _values(design: EmailDesign) -> tuple[float, tuple[float, ...]]:
    """E[max_a gamma_a(X)] and E[gamma_a(X)]: a sum over the kinds of customers, an integral over history in each.

    The logits are linear in history, so that the best arm changes where two lines cross: at most three points a kind,
    between which Gauss-Legendre is exact to rounding.
    """
    cells, share = _cells()
    at_zero = _index(cells)
    slope = _index(cells[:1] + np.eye(len(COLUMNS))[1])[0] - at_zero[0]
    pairs = np.array([(0, 1), (0, 2), (1, 2)]).T
    crossing = -np.diff(at_zero[:, pairs], axis=1)[:, 0] / np.diff(slope[pairs], axis=0)[0]
    steps = np.tile(np.arange(-9.0, 10.0, 3.0), (len(cells), 1))
    edges = np.sort(np.hstack([steps, crossing.clip(-9, 9)]), axis=1)
    # One call for all kinds: the piece that leads from one kind's last edge to the next one's first is dropped.
    node, weight = piecewise_rule([*edges.ravel(), edges[-1, -1]])
    node, weight = (part.reshape(*edges.shape, -1)[:, :-1].reshape(len(cells), -1) for part in (node, weight))
    weight = share[:, None] * weight * np.exp(-(node**2) / 2) / np.sqrt(2 * np.pi)
    x = np.repeat(cells, node.shape[1], axis=0)
    x[:, 1] = node.ravel()
    mean = design.outcome_mean(x)
    return float(weight.ravel() @ mean.max(axis=1)), tuple((weight.ravel() @ mean).tolist())


def email(source: Source, as_frame: str, *, outcome: str) -> Dataset:
    """A trial of 10,000 simulated customers, always the same."""
    return source.dataset(
        EmailDesign(outcome)._columns(source.rows, 0), as_frame, outcome=outcome, action="segment",
        features=list(FEATURES), propensity=1 / 3,
        notes=(
            "propensity: by design, a third of the customers each",
            f"the truth: EmailDesign({outcome!r}).outcome_mean at EmailDesign({outcome!r}).numeric(data.frame), with "
            f"the arms in the order {', '.join(ARMS)}",
        ),
    )  # fmt: skip


SOURCES = (
    Source(
        name="email", kind="simulated", rows=10_000, actions=3, read=email, choices=OUTCOMES,
        description="a simulated campaign with the columns of hillstrom, for use without its file",
        reference="gbpl.datasets.EmailDesign, after K. Hillstrom (2008)",
    ),
)  # fmt: skip
