"""What a policy is worth at least: PAC-Bayes bounds (section 8)."""
