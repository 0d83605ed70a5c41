"""Data, fits and helpers that several tests share."""
