"""The generalized posterior over policies, one method per file (sections 3 and 6)."""
