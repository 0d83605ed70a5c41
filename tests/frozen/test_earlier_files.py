"""Policy files of version 0.1.0, before the modules moved, load and decide as they did."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import gbpl

FILES = Path(__file__).parent / "policies"
DECIDED = json.loads((FILES / "decisions.json").read_text(encoding="utf-8"))  # by the version that wrote them


@pytest.mark.parametrize("name", DECIDED)
def test_files_written_before_decide_the_same(name: str, tmp_path: Path) -> None:
    before = DECIDED[name]
    rows = before["rows"] if isinstance(before["rows"], dict) else np.array(before["rows"])
    policy = gbpl.load(FILES / f"{name}.gbpl")
    decided = policy.decide(rows)
    assert decided.action.tolist() == before["action"]
    assert policy.rule.defer == before["defer"]
    # Members compute in float32: another processor adds up in another order. `save` promises 1e-6.
    assert_allclose(policy.predict_proba(rows), before["policy"], rtol=0, atol=1e-6)
    assert_allclose(decided.draw_share, before["probability"], rtol=0, atol=1e-12)
    assert_allclose(decided.expected_gain, before["expected_gain"], rtol=1e-6, atol=1e-9)
    policy.save(tmp_path / "again.gbpl")
    assert (tmp_path / "again.gbpl").read_bytes() == (FILES / f"{name}.gbpl").read_bytes()
