"""Two CPU devices for every test, asked for before any test computes, whichever file comes first."""

import os

os.environ["GBPL_CPU_DEVICES"] = "2"

import gbpl  # noqa: F401
