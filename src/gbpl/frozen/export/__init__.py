"""Policies and small rules in other languages: SQL, plain Python, and JSON conditions for feature flags."""
