"""Policies that need numpy alone: deciding, saving, loading, exporting."""
