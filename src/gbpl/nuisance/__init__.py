"""Models of the log, cross-fitted: mean outcomes and propensities, and off-policy values from them (section 7)."""
