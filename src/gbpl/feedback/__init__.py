"""The user's data, read and checked once: features, outcomes, actions, propensities (sections 2 and 7)."""
