"""What the paper states, judged by the experiments."""
