"""The path over zeta: fitted as one stack, weighed out of fold (section 4.2)."""
