"""What a policy is worth, with its error, and what a log can say about that (sections 2, 7 and 8)."""
