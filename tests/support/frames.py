"""One table as every library holds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa


def mixed_columns(n: int = 400, seed: int = 0) -> dict[str, list[Any]]:
    """A small table with every kind of column that a policy uses."""
    rng = np.random.default_rng(seed)
    age: list[Any] = rng.integers(18, 90, n).tolist()
    region: list[Any] = rng.choice(["north", "south", "east", "é'st <b>"], n).tolist()
    for row in range(0, n, 7):
        age[row] = None
    for row in range(0, n, 11):
        region[row] = None
    return {
        "age": age,
        "income": rng.normal(size=n).tolist(),
        "region": region,
        "sex": rng.choice(["f", "m"], n).tolist(),
        "member": (rng.random(n) < 0.5).tolist(),
    }


def frames(table: dict[str, list[Any]]) -> dict[str, Any]:
    arrow = pa.table(table)
    return {
        "mapping": table,
        "arrays": {name: np.array(values, object) for name, values in table.items()},
        "pandas": pd.DataFrame(table),
        "pandas nullable": pd.DataFrame(table).convert_dtypes(),
        "pandas arrow": arrow.to_pandas(types_mapper=pd.ArrowDtype),
        "pandas object": pd.DataFrame(table, dtype=object),
        "polars": pl.DataFrame(table),
        "arrow": arrow,
        "chunks": pa.concat_tables([arrow.slice(0, 150), arrow.slice(150)]),
        "batch": arrow.combine_chunks().to_batches()[0],
        "dictionary": arrow.set_column(2, "region", arrow.column("region").dictionary_encode()),
    }
