"""The value of a policy, with its error, and how far a log supports it (sections 2, 7 and 8)."""
