"""What the paper's text leaves open: what was tried here, what was kept and why, and whether print decided it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CHOICES", "Choice"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A setting the text leaves open. `by_print` says whether it was chosen because it comes nearer to print."""

    what: str
    tried: str
    kept: str
    why: str
    by_print: str


CHOICES: tuple[Choice, ...] = (
    Choice(
        "Network of the tables (widths (64, 64) for the example, (128, 128) in a listing)",
        "(128, 128), (100,) and (32, 32), in committees at n = 3,000",
        "(128, 128) in tables of policies, (64, 64) in the one-dimensional studies",
        "the listing and the example; widths hardly matter",
        "no",
    ),
    Choice(
        "Patience and largest number of epochs",
        "patience 10 and 20, 200 epochs",
        "20 and 200; patience 10 in the four synthetic tables",
        "20 reproduces the learning curves; no patience brings the synthetic tables to print",
        "yes, 20 by the learning curves",
    ),
    Choice(
        "Batch at small n (128 is stated; at n = 100 that is all rows)",
        "128, and smaller ones at n = 100",
        "128, or a fifth of the rows to train on where that is less",
        "a smaller one comes closer at n = 100",
        "yes, at n = 100",
    ),
    Choice(
        "Prior sd 1, eta = 1 and weight decay 1e-4 are stated together",
        "the prior; weight decay instead of it, in the interval study only",
        "the prior",
        "with a mean loss the prior already is a penalty of 1 / (eta n), which is not the stated weight decay",
        "no",
    ),
    Choice(
        "Split of the learning curves and of weak overlap",
        "nothing else",
        "0.8 to train, 0.2 to stop on",
        "the printed effective sample size is that of 4,800 of 6,000 rows",
        "yes, read off the print",
    ),
    Choice(
        "Evaluation sample of the learning curves and of weak overlap",
        "nothing else",
        "10,000 new rows, the same for all n of a replication",
        "printed welfare plus regret is one number for all n (0.2723 and 0.2712); the printed errors are about those "
        "of 10,000 rows",
        "yes, that it is shared; the size no",
    ),
    Choice(
        "Logging policy: scale and clip of the logistic index",
        "unit-norm index times 0.5 and 1, clipped at 0.05",
        "factor 1, clipped at 0.05, true propensities",
        "both reproduce the logged learning curve but for n = 1000; print does not tell them apart",
        "yes, of the order of magnitude",
    ),
    Choice(
        "Logging policy under weak overlap: a stronger index",
        "factors 2.5 and 2.52, not clipped when generated",
        "2.52",
        "the three printed clipped fractions are those of a normal logit of this sd",
        "yes, read off the print",
    ),
    Choice(
        "Folds of the cross-fitted outcome means; named for the learning curves only",
        "two",
        "two in the learning curves and under weak overlap, one network in the counterfactual tables",
        "two reproduce the print; the other tables speak of no cross-fitting",
        "yes",
    ),
    Choice(
        "Settings of the methods compared with",
        "nothing else",
        "one network each, trained and stopped alike on its own loss",
        "the plainest. PluginReg with logged feedback comes out better here than in print, which is as one of two "
        "cross-fitted halves would be; WeightedLogistic worse in the learning curve and better in the UCI table",
        "no",
    ),
    Choice(
        "Welfare intervals: whose welfare, and which target",
        "a thresholded rule, and the randomized policy (f + 1) / 2",
        "the randomized policy; the target is clip(tau / zeta, -1, 1) played so, on 2,000 evaluation points",
        "printed widths shrink like eta^(-1/2), which a thresholded rule's do not; the points of the disagreement "
        "table are 400,000 in 200 replications",
        "yes",
    ),
    Choice(
        "Welfare intervals: rows, scale of x, and at which eta the network is fitted",
        "300 to 900 rows to train on; x itself and standardized; three widths of the network; weight decay instead of "
        "the prior; fitted once at eta = 1, and anew at each eta",
        "900 rows and 300 to stop on, x itself, fitted once at eta = 1",
        "the rows of the example. Coverages agree with print and widths are a third smaller; fitted anew, or with "
        "fewer rows, widths come closer and coverages go apart. No setting tried has both",
        "yes, by the coverages",
    ),
    Choice(
        "Disagreement and threshold rules: eta and scale of x",
        "three: eta = 1 and eta = 4 on standardized x, eta = 4 on x itself",
        "eta = 4 on x itself, with the deterministic rule",
        "the nearest to the printed tables of the three; printed MAP welfare is 0.4315 where the optimum is 0.4323",
        "yes, the nearest of three",
    ),
    Choice(
        "Loss scale with two actions",
        "--",
        "the binary loss",
        "the full-vector loss is half of it plus a constant, so that its eta would have to be doubled",
        "no",
    ),
    Choice(
        "Index vectors of the synthetic designs: drawn once, or in every trial",
        "nothing else",
        "drawn once",
        "the text says fixed for two actions and random for five; see the variances above, and other readings, "
        "which are adopted nowhere",
        "no",
    ),
    Choice(
        "w_a and c_a of the UCI construction",
        "w_a standard normal and of unit norm; c_a of sd 0, 0.1 and 0.5",
        "standard normal w_a, c_a of sd 0.1, drawn in every trial",
        "they give the printed level and variance of welfare; unit norm gives half the level",
        "yes",
    ),
    Choice(
        "Arithmetic at zeta = 0.001",
        "the full squared loss, and its reduced form",
        "the reduced form, in float32",
        "the same minimiser; the full loss loses about four digits to a constant",
        "no",
    ),
)
