"""`gbpl reproduce`: every table from one command, and a run that is killed goes on to the same numbers."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.data import FOLDER
from support.ray import kill_second, sent_whole

import gbpl.datasets.openml
from gbpl.paper import run as running
from gbpl.paper.experiments.catalog import DEFAULT, EXTRAS, TABLES
from gbpl.paper.experiments.records import Record, Records, read_blocks, write_block
from gbpl.paper.experiments.studies import STUDIES
from gbpl.paper.run import Block, Run, reproduce
from gbpl.paper.verdicts.statements import STATEMENTS


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The UCI tables: the real ones where they are, made-up ones of the same shape elsewhere."""
    if (FOLDER / "yacht.csv").exists():
        return FOLDER
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    for name, wanted in gbpl.datasets.openml.SETS.items():
        rows = rng.normal(size=(wanted.rows, len(wanted.columns)))
        np.savetxt(folder / f"{name}.csv", rows, delimiter=",", header=",".join(wanted.columns), comments="")
    return folder


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory, data_dir: Path) -> Path:
    """What `gbpl reproduce --quick` leaves."""
    folder = tmp_path_factory.mktemp("quick") / "run"
    heard: list[tuple[float, float, str]] = []
    asked = Run(quick=True, device="cpu", data_dir=str(data_dir))
    report = reproduce(asked, folder, progress=lambda *what: heard.append(what))
    assert report == folder / "REPORT.md"
    done = [done for done, _, _ in heard]
    assert done == sorted(done)
    assert done[-1] == pytest.approx(heard[-1][1]), "the bar ends full"
    return folder


def test_quick_makes_every_table_and_figure(quick: Path) -> None:
    for name, spec in TABLES.items():
        records = Records.read(quick / "records" / f"{name}.csv")
        found = {(case, method, zeta) for case, method, zeta in records.rows()}
        shown = [case for case in spec.cases if any(row[0] == case for row in found)]
        assert shown, name
        if "learning" not in name and "uci" not in name:
            assert shown == list(spec.cases), name
        for case in shown:
            assert {(method, zeta) for c, method, zeta in found if c == case} >= set(spec.rows), (name, case)
        default = {case for case, *row in found if tuple(row) == DEFAULT}
        assert default == ({"auto"} if name.startswith("uq-") else set(shown)), name
        for metric in spec.metrics:
            if not (name == "weak-overlap" and "pseudo" in metric):
                assert np.isfinite(records.of(shown[0], *spec.rows[0], metric)).any(), (name, metric)
        assert (quick / "tables" / f"{name}.md").read_text().count("†") > len(default)  # each row, and the note
        assert "\\begin{tabular}" in (quick / "tables" / f"{name}.tex").read_text()
    stems = {path.stem for path in (quick / "figures").glob("*.png")}
    assert len(stems) == 13
    assert stems == {path.stem for path in (quick / "figures").glob("*.pdf")}
    report = (quick / "REPORT.md").read_text()
    for picture in re.findall(r"\]\((figures/[^)]+)\)", report):
        assert (quick / picture).exists()
    assert "gbpl default" in report
    assert "## Negative welfare as the loss" in report
    listed = json.loads((quick / "verdicts.json").read_text())
    assert [line["number"] for line in listed] == list(range(1, len(STATEMENTS) + 1))
    for line in listed:
        assert f"| {line['number']} | " in report
        assert line["why"].replace("|", r"\|") in report


def test_cross_validation_picks_among_the_zetas(quick: Path) -> None:
    records = Records.read(quick / "records" / "synthetic-K.csv")
    picked = records.of("DGP1", "GBPLNet", "CV", "picked")
    assert set(picked) <= {1.0, 0.1, 0.01, 0.001}
    for place, zeta in enumerate(picked):
        if zeta > 0.001:
            name = {1.0: "1.0", 0.1: "0.1", 0.01: "0.01"}[zeta]
            chosen = records.of("DGP1", "GBPLNet", "CV", "welfare")[place]
            assert chosen == records.of("DGP1", "GBPLNet", name, "welfare")[place]


def test_a_finished_run_is_only_written_again(quick: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {path: path.read_bytes() for path in sorted(quick.glob("records/*.csv"))}
    monkeypatch.setattr(Block, "compute", lambda block, settings: pytest.fail(f"{block} computed again"))
    monkeypatch.setattr(running, "example", lambda settings: pytest.fail("the example was drawn again"))
    reproduce(Run(quick=True, device="cpu", data_dir=str(data_dir)), quick)
    assert {path: path.read_bytes() for path in sorted(quick.glob("records/*.csv"))} == before


def test_some_tables_only(quick: Path, data_dir: Path, tmp_path: Path) -> None:
    """The same numbers as in the run of all, whatever else is in it."""
    asked = Run(("action-disagreement",), quick=True, device="cpu", data_dir=str(data_dir))
    reproduce(asked, tmp_path / "one")
    assert [path.name for path in (tmp_path / "one" / "records").iterdir()] == ["action-disagreement.csv"]
    name = Path("records") / "action-disagreement.csv"
    assert (tmp_path / "one" / name).read_bytes() == (quick / name).read_bytes()


def test_killed_and_started_again(quick: Path, tmp_path: Path) -> None:
    """SIGKILL at a random moment loses at most the block under way, and no number changes from those of one process."""
    command = [sys.executable, "-m", "gbpl.cli", "reproduce", "synthetic-binary", "--quick", "--device", "cpu", "--out"]
    environment = os.environ | {"COLUMNS": "100"}
    broken = tmp_path / "broken"
    with subprocess.Popen([*command, str(broken)], stdout=-1, stderr=-1, env=environment) as process:
        blocks = broken / "blocks" / "synthetic-binary"
        while process.poll() is None and not (blocks.exists() and any(blocks.glob("*.csv"))):
            time.sleep(0.005)
        time.sleep(random.random() * 3.0)
        process.send_signal(signal.SIGKILL)
    kept = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in blocks.glob("*.csv")}
    assert kept
    subprocess.run([*command, str(broken)], check=True, capture_output=True, env=environment)
    for name, (when, content) in kept.items():
        assert (blocks / name).stat().st_mtime_ns == when, "a block that was done is not computed again"
        assert (blocks / name).read_bytes() == content
    for path in ("records/synthetic-binary.csv", "tables/synthetic-binary.md", "tables/synthetic-binary.tex"):
        assert (broken / path).read_bytes() == (quick / path).read_bytes(), path


def test_an_unfinished_file_is_not_a_block(tmp_path: Path) -> None:
    block = Block("synthetic-binary", "DGP1", "paper", (0, 1))
    (path,) = block.paths(tmp_path).values()
    write_block(path, [Record("DGP1", "GBPLNet", "CV", 0, {"welfare": 0.1})])
    write_block(path, [Record("DGP1", "GBPLNet", "CV", 0, {"welfare": 1 / 3}), Record("DGP1", "DiffReg", "", 0)])
    path.with_name(path.name + ".part").write_text("case,meth")  # what a kill leaves
    again = read_blocks(sorted(path.parent.glob("*.csv")))
    assert again.of("DGP1", "GBPLNet", "CV", "welfare").tolist() == [1 / 3], "every digit is kept"
    assert np.isnan(again.of("DGP1", "DiffReg", "", "welfare")).all()


def test_without_the_data_the_rest_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    asked = Run(("uci", "cf-uci-binary", "synthetic-binary"), quick=True, device="cpu", data_dir=str(tmp_path))
    blocks = running._with_data(asked, said.append)
    assert {block.study for block in blocks} == {"synthetic-binary"}
    assert len(said) == 1  # a quick run has one of the two sets
    assert "energy_efficiency is left out" in said[0]
    assert "GBPL_DATA_DIR" in said[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tables": ("table-1",)}, "table must be one of synthetic-binary, .*got 'table-1'"),
        ({"trials": 0}, "trials must be at least 1, got 0"),
        ({"engine": "spark"}, "engine must be 'local', 'ray' or a joblib backend .*got 'spark'"),
        ({"device": "tpu"}, "device must be"),
    ],
)
def test_wrong_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Run(**options)


def test_a_folder_holds_one_run(tmp_path: Path) -> None:
    running._check_folder(tmp_path / "a", Run(quick=True, device="cpu"))
    with pytest.raises(ValueError, match=r"holds another run \(trials was 2 and is 5\)"):
        running._check_folder(tmp_path / "a", Run(quick=True, trials=5, device="cpu"))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.tex").touch()
    with pytest.raises(ValueError, match="not empty and holds no run"):
        running._check_folder(tmp_path / "b", Run(device="cpu"))
    assert (tmp_path / "b" / "thesis.tex").exists()


def test_matplotlib_is_asked_for_before_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'gbpl\[plot\]'"):
        reproduce(Run(("synthetic-K",), quick=True, device="cpu"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_ray_is_asked_for_when_it_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"pip install 'gbpl\[ray\]'"):
        reproduce(Run(("synthetic-K",), quick=True, device="cpu", engine="ray"), tmp_path / "run")


def test_ray_gives_the_same_numbers(quick: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a Ray that the run starts itself, although a worker is killed."""
    pytest.importorskip("ray", reason="Ray is not installed")
    mark = kill_second(tmp_path / "killed", monkeypatch)
    asked = Run(("full-feedback-learning",), quick=True, device="cpu", engine="ray")
    assert len(asked.blocks()) == 2
    with sent_whole():
        reproduce(asked, tmp_path / "run")
    assert mark.exists(), "a worker was killed"
    name = Path("records") / "full-feedback-learning.csv"
    assert (tmp_path / "run" / name).read_bytes() == (quick / name).read_bytes()


def test_the_papers_trial_counts() -> None:
    """As printed in the captions."""
    counts = {
        "synthetic-binary": 100, "synthetic-K": 100, "uci": 100, "cf-synthetic-binary": 50, "cf-synthetic-K": 50,
        "cf-uci-binary": 30, "full-feedback-learning": 100, "logged-feedback-learning": 50, "weak-overlap": 50,
        "uq-calibration": 100, "uq-evaluation": 200, "action-disagreement": 200, "posterior-threshold-rules": 200,
    }  # fmt: skip
    assert {name: spec.trials for name, spec in TABLES.items()} == counts
    asked = Run(device="cpu")
    per_row: dict[tuple[str, str, str], int] = {}
    for block in asked.blocks():
        key = block.study, block.case, block.part
        per_row[key] = per_row.get(key, 0) + len(block.numbers)
        assert len(block.numbers) <= 25
    for study in STUDIES.values():
        for case in study.cases:
            if case != "DGP1 unscaled":
                ran = per_row[study.name, case, "paper"]
                assert ran % counts.get(study.tables[0], 1) == 0
                assert ran == study.trials
                default = per_row.get((study.name, case, "default"), 0)
                assert (default == 0) if study.tables[0] in EXTRAS else (15 <= default <= ran)
    sets = {name: per_row[name, "1-D", "paper"] // counts[name] for name in ("uq-calibration", "uq-evaluation")}
    assert sets == {"uq-calibration": 10, "uq-evaluation": 10}
    assert set(asked.wanted) == {*TABLES, *EXTRAS}


def test_cli_says_what_is_wrong() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gbpl.cli", "reproduce", "table-1", "--device", "cpu"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "got 'table-1'" in " ".join(done.stderr.split())
