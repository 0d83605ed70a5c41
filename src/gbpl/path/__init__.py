"""The path over zeta: fitted as one stack, weighted out of fold (section 4.2)."""
