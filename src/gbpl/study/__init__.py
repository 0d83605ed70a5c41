"""From a table to a decision: what `gbpl.learn` and `gbpl fit` do, and what they report."""
