"""General Bayesian Policy Learning: decision rules from data, and how sure they are.

The public names are listed in `__init__.pyi` and imported where they are first used (scientific Python's SPEC 1): a
saved policy decides without JAX.
"""

import lazy_loader

from gbpl.version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
