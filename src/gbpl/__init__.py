"""General Bayesian Policy Learning: decision rules from data, and how sure they are."""

__version__ = "0.1.0"
