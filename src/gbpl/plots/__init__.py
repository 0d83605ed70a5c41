"""Plots of a posterior, of decisions made from it, of overlap, and of studies.

Every function takes arrays, or where it says so the policy itself, draws on `ax` or on a figure of its own, and returns
the Axes; `ax.figure.savefig` writes it. Nothing is shown and pyplot is not touched, so no figure stays behind. Legends
stand above the plot: for a title use `ax.figure.suptitle`. The names are listed in `__init__.pyi` and imported where
they are first used: matplotlib is needed only then.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
