"""Score models, from features to raw outputs, and the prior over their parameters (section 6)."""
