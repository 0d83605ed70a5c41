"""The paper's experiments: designs, methods, trials and their records (section 9 and appendices)."""
