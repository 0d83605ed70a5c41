"""One bar for a job of several stages: it names them, never goes back, and says about how long it takes."""

from __future__ import annotations

import time

import pytest

import gbpl.cli.console
from gbpl.cli.console import learning
from gbpl.runtime.progress import Job, Progress, running, stage, time_left


def test_stages_add_up_and_never_go_back() -> None:
    shown: list[tuple[float, str]] = []
    with running(Job({"reading": 1.0, "fitting": 3.0}, lambda share, name: shown.append((share, name)))):
        stage("reading")
        stage("fitting")
        for _ in range(3):  # parts, of which the stage does not know how many there are
            bar = Progress("members", 10, show=False)
            inner = Progress("trees", 2, show=False)
            for done in range(11):
                inner.update(2)
                bar.update(done)
            inner.close()
            bar.close()
            stage("reading")
    shares = [share for share, _ in shown]
    assert shares == sorted(shares)
    assert shown[1] == (0.25, "fitting")
    assert {name for _, name in shown[1:]} == {"fitting"}
    assert shares[-1] == pytest.approx(0.25 + 0.75 * (1.0 - 0.3**3))
    stage("reading")  # nobody listens


def test_time_left_is_in_proportion() -> None:
    assert time_left(90.0, 0.5) == "1:30"
    assert time_left(1.0, 0.001) == ""


def test_a_log_gets_lines_with_stage_and_time_left(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a terminal nothing was said for minutes. The line comes while a step lasts, not after it."""
    monkeypatch.setattr(gbpl.cli.console, "LINE_EVERY", 0.05)
    with learning():
        stage("policies")
        time.sleep(0.4)
        during = capfd.readouterr()
    assert during.out == ""
    line = during.err.splitlines()[0]
    assert " policies, 0 s so far, about 0:0" in line
    assert line.endswith(" left")


def test_json_has_nothing_beside_it(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gbpl.cli.console, "LINE_EVERY", 0.02)
    with learning(quiet=True):
        stage("policies")
        time.sleep(0.2)
    assert capfd.readouterr() == ("", "")
