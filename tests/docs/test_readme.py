"""What the README says is what happens."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _work_elsewhere(tmp_path, monkeypatch):
    """Pages may write files; none of them belongs into the repository."""
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_documentation_runs(page, capsys):
    namespace = {}
    for block in blocks("python", page.read_text()):
        exec(compile(block, page.name, "exec"), namespace)
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text()):
        assert (page.parent / picture).exists(), picture


def test_code_blocks_run(capsys):
    namespace = {}
    assert len(blocks("python")) >= 2
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), namespace)
    welfare = float(capsys.readouterr().out.splitlines()[0])
    assert welfare > namespace["Y"].mean(axis=0).max(), "the learned rule beats every single action"


def test_first_block_is_ten_lines():
    code = [line for line in blocks("python")[0].splitlines() if line.strip()]
    assert len(code) <= 10


def test_exactly_two_setup_commands_and_ci_runs_the_second():
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 2
    assert commands[0].endswith("gbpl demo")
    assert commands[1] in (ROOT / ".ci" / "run").read_text().splitlines()
