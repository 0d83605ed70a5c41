"""Score models that are grown, not only trained: forests and boosting."""
