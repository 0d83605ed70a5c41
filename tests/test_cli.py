"""The command line prints what the library finds."""

import re
import subprocess
import sys

import pytest

from gbpl import cli


def test_demo_prints_the_table(capsys):
    cli.demo(rows=300, seed=1)
    out = capsys.readouterr().out
    rows = dict(re.findall(r"│ (learned policy|wait for all|treat all|best possible) +│ +\d+% │ +(-?\d\.\d+) │", out))
    assert float(rows["best possible"]) > float(rows["learned policy"]) > float(rows["treat all"])


def test_demo_refuses_too_few_rows(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.demo(rows=5)
    assert stop.value.code == 2
    assert "at least 100, got 5" in capsys.readouterr().out


def test_entry_point_lists_the_command():
    out = subprocess.run([sys.executable, "-m", "gbpl.cli", "--help"], capture_output=True, text=True, check=True)
    assert "demo" in out.stdout
