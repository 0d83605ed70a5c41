"""Designs with known truth, and real data sets with their roles (appendices on experiments).

The designs of the paper are the formulas of its text as written; some of its tables come from others: the binary and
the multi-action ones, the one-dimensional example of its posterior visualization, real features with made outcomes, and
any of them seen through a logging policy. Each knows its conditional means, so regret is exact, and what rules are
worth under it:

    optimal_welfare()  E[max_a gamma_a(X)], the best any rule of the features can do
    oracle_welfare()   E[max_a Y(a)], the paper's oracle, who sees the realized outcomes
    action_welfare()   E[Y(a)] of each action, given to everybody

Real data come by name: `catalog()` lists them, `load("nsw")` brings one, from a package that carries it or from a
folder that you name.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
