"""Settings the paper's text leaves open, and what its printed numbers say about them."""

from __future__ import annotations

__all__ = ["OPEN_SETTINGS"]

OPEN_SETTINGS: tuple[tuple[str, str], ...] = (
    (
        "Network and training of the tables",
        "The text gives learning rate 1e-3, weight decay 1e-4 and batch size 128; widths (64, 64) for the "
        "one-dimensional example and (128, 128) in a listing. Patience and the largest number of epochs are not given: "
        "20 epochs and 200 are used here, which reproduce the learning curves, and 10 in the main synthetic tables, "
        "which no patience brings to print. At n = 100 a batch smaller than 128 comes closer.",
    ),
    (
        "Prior and weight decay",
        "A prior sd of 1, eta = 1 and a weight decay of 1e-4 are stated together. With a mean loss, that prior already "
        "is a penalty of 1 / (eta n); the two are not the same.",
    ),
    (
        "Split of the learning curves and of the weak-overlap table",
        "Not stated. The printed effective sample size is that of 4,800 of 6,000 rows: 0.8 to train, 0.2 to validate.",
    ),
    (
        "Evaluation sample of the learning curves",
        "Its size is not stated. Welfare plus regret is the same at every n (0.2723 with full feedback, 0.2712 logged "
        "and under weak overlap), so that a replication has one evaluation sample for all n.",
    ),
    (
        "Logging policy",
        "A logistic model with a random linear index, clipped; neither scale nor clip is given. With true "
        "propensities, a unit-norm index times 0.5 to 1, clipped at 0.05, reproduces the logged learning curve, but "
        "for n = 1000; the factor here is 1.",
    ),
    (
        "Logging policy under weak overlap",
        "Only a stronger index is named. The three printed clipped fractions pin a normal logit of sd 2.52: a "
        "unit-norm index times 2.52, not clipped when generated.",
    ),
    (
        "Cross-fitting of outcome means",
        "Named for the learning curves only, without the number of folds; two reproduce the print, and are used under "
        "weak overlap too. The counterfactual tables have one outcome network, that of PluginReg.",
    ),
    (
        "Methods compared with",
        "Their settings are not given. Here each is the same network, trained and stopped in the same way on its own "
        "loss. PluginReg with logged feedback is one network on all rows to train on; the printed one is worse, as one "
        "of the cross-fitted halves would be. WeightedLogistic is better in the printed learning curve than here, and "
        "worse in the printed UCI table.",
    ),
    (
        "Welfare intervals",
        "Whose welfare, and which target, is not stated. Printed widths shrink like eta^(-1/2), as those of the "
        "randomized policy (f + 1) / 2 do and those of a thresholded rule do not. The covered target is the welfare of "
        "clip(tau / zeta, -1, 1) played as a randomized policy on 2,000 evaluation points (the points of the "
        "disagreement table are 400,000 in 200 replications). The number of rows is not stated for this study: 900 to "
        "train and 300 to stop on are those of the example. Each replication is fitted once, at eta = 1, and drawn "
        "at every eta. Coverages then agree with print and widths do not: they come out a third smaller. Fitted anew "
        "at each eta, or with fewer rows, widths come closer and coverages go apart, and no setting tried (300 to "
        "900 rows, x itself or standardized, three widths of the network, weight decay instead of the prior) has both.",
    ),
    (
        "Disagreement and threshold rules",
        "Here the rule is deterministic: the printed MAP welfare is 0.4315 where the optimum is 0.4323.",
    ),
    (
        "Loss scale with two actions",
        "The full-vector loss is half the binary one plus a constant, so eta has to be doubled for the same posterior.",
    ),
    (
        "Index vectors and UCI shifts",
        "Whether w is drawn once or in every trial is not stated; here it is drawn once. Neither are w_a and c_a of "
        "the UCI construction, on which the level of welfare there depends: standard normal w_a and c_a of sd 0.1 give "
        "the printed level and variance, unit-norm w_a half of it.",
    ),
    (
        "Arithmetic",
        "At zeta = 0.001 in float32 the full squared loss loses about four digits to a constant; its reduced form, "
        "which has the same minimiser, does not.",
    ),
)
