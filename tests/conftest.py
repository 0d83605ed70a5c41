"""Two CPU devices and a shared compilation cache for every test, set before JAX starts."""

import os

os.environ["GBPL_CPU_DEVICES"] = "2"
