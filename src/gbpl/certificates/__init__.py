"""Lower bounds of a policy's welfare: PAC-Bayes bounds and certificates (section 8)."""
