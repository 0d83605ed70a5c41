"""What the README says is what happens."""

import re
from pathlib import Path

import numpy as np
import pytest
from support.data import data_package
from support.examples import small_learners

from gbpl import FitConfig, GBPLNet
from gbpl.value.estimate import ESTIMATORS

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


PICTURES = (ROOT / "docs/theme/pictures.py").read_text()  # drawn when the site is built


def blocks(language, text=README):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def _small_and_elsewhere(tmp_path, monkeypatch):
    """Pages may write files, none of which belongs into the repository; learners are small, as no page is timed."""
    monkeypatch.chdir(tmp_path)
    small_learners(monkeypatch)


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_documentation_runs(page, capsys):
    namespace = {}
    if "import cps_mixtape" in page.read_text():
        data_package("causaldata")
    for block in blocks("python", page.read_text()):
        exec(compile(block, page.name, "exec"), namespace)
    for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", page.read_text()):
        drawn = picture.startswith("figures/plots/") and f'"{Path(picture).stem}"' in PICTURES
        assert drawn or (page.parent / picture).exists(), picture


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


def test_what_contributing_adds_works_everywhere():
    """The model and the estimator that CONTRIBUTING.md adds: fitted, drawn from, refused by name where it says so."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    namespace = {"__name__": "contributing"}
    for block in blocks("python", text):
        if "import" in block:  # the others are single lines of tests
            exec(compile(block, "CONTRIBUTING.md", "exec"), namespace)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    action = rng.integers(2, size=200)
    y = action * np.abs(x[:, 0]) + 0.1 * rng.normal(size=200)
    policy = GBPLNet(model=namespace["Hinges"](), fit_config=FitConfig(max_epochs=3), committee=2, random_state=0)
    policy.fit(x, y, action=action, propensity=0.5)
    probability = policy.posterior().action_probability(x, draws=8)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    with pytest.raises(ValueError, match="Hinges"):
        policy.save("policy.gbpl")
    try:
        chance = np.where(np.arange(200) % 2, 0.05, 0.5)  # of the action taken
        value = policy.value(x + 1.0, y, action=action, propensity=chance, estimator="capped")
        ratio = np.minimum((policy.predict(x + 1.0) == action) / chance, 10.0)
        assert value.estimate == pytest.approx(np.mean(ratio * y))
    finally:
        del ESTIMATORS["capped"]
