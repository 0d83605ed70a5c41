"""Rules that turn a policy and its posterior into actions: thresholds, deferral, capacities, gains."""
