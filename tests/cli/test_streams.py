"""Commands on the streams of Windows, of old terminals, and on none."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.cli import changed, command, people, read, tiny_policy, write
from support.policies import small_net

from gbpl import cli


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A policy that loses, so that a minus is printed, with an action that no old encoding has."""
    folder, table = tmp_path_factory.mktemp("streams"), people(60)
    table["arm"] = np.where(table["arm"] == "none", "nic \u0159", "treat")
    tiny_policy(table, actions=("nic \u0159", "treat")).save(folder / "p.gbpl")
    return folder / "p.gbpl", write(folder / "new.csv", changed(table, earnings=-1000.0 - 5.0 * table["age"]))


@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "utf-8"])
def test_what_an_encoding_lacks_is_written_as_the_nearest(
    files: tuple[Path, Path], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding))
    with pytest.raises(SystemExit) as stop:
        cli.main(["evaluate", *map(str, files), "--estimator", "ipw"])
    assert stop.value.code == 0
    text = written.getvalue().decode(encoding)
    assert ("\u22121" in text) == (encoding == "utf-8")
    assert "-1" in text.replace("\u2212", "-")
    assert ("nic r" in text) == (encoding != "utf-8")


@pytest.mark.skipif(os.name != "posix", reason="a shell that closes streams")
def test_closed_streams_are_no_fault(files: tuple[Path, Path], tmp_path: Path) -> None:
    words = " ".join(f"'{word}'" for word in command("decide", *files, "-o", tmp_path / "out.csv"))
    done = subprocess.run(["sh", "-c", f"{words} >&- 2>&-"], check=False)
    assert done.returncode == 0
    assert read(tmp_path / "out.csv").num_rows == 60
    half = subprocess.run(["sh", "-c", f"{words} >&-"], check=False, capture_output=True, text=True)
    assert (half.returncode, half.stderr) == (0, "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a system that forks")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_child_says_that_it_would_hang() -> None:
    x, noise = np.random.default_rng(0).normal(size=(2, 40, 2))
    y = np.column_stack([np.zeros(40), x[:, 0] + noise[:, 0]])
    policy = small_net().fit(x, y)
    frozen, posterior = policy.frozen(draws=0), policy.posterior()
    child = os.fork()
    if child == 0:
        said = []
        for ask in (policy.predict, posterior.disagreement, lambda rows: small_net().fit(rows, y)):
            try:
                ask(x)
            except RuntimeError as error:
                said.append("forked from one in which JAX was running" in str(error))
        os._exit(0 if said == [True] * 3 and len(frozen.predict(x[:5])) == 5 else 3)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.1)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child hangs")
    assert os.waitstatus_to_exitcode(status) == 0
