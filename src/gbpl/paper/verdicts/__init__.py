"""What the paper states, and whether the experiments bear it out."""
