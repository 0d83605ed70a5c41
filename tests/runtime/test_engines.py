"""Tasks give the same wherever they run: here, by joblib, and on a Ray of two workers, one of which is killed.

The tests' process has two CPU devices (conftest.py), so that a task that fits takes two CPUs: four make two workers.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pyarrow.parquet
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from support.calls import forbid_calls
from support.cli import people, read, run, snapshot, tiny_policy, write
from support.ray import kill_second, sent_whole

import gbpl.runtime.engines
import gbpl.study.decide_file
from gbpl import MLP, Binary, FitConfig, GBPLNet, Member, TableError
from gbpl.posterior.bootstrap import REFITS_PER_TASK, fit_bootstrap
from gbpl.posterior.problem import Problem
from gbpl.runtime.engines import RETRIES, WAITING, check_engine, in_chunks, run_tasks, task_needs
from gbpl.study.decide_file import decide_dataset, decide_file

HERE = ("local", "threading", "loky")


def test_two_devices_are_what_is_asked_for_here() -> None:
    assert task_needs("cpu") == {"cpus": 2} == task_needs(jax.local_devices())
    assert task_needs(jax.local_devices()[:1]) == {"cpus": 1}


@pytest.mark.parametrize("engine", HERE)
def test_every_item_once(engine: str) -> None:
    assert sorted(run_tasks(abs, [-3, 2, -1, 0], engine=engine)) == [(0, 3), (1, 2), (2, 1), (3, 0)]
    assert list(run_tasks(abs, [], engine=engine)) == []


def test_local_tasks_run_in_order_and_when_asked() -> None:
    ran: list[int] = []
    tasks = run_tasks(ran.append, [5, 6, 7])
    assert ran == []
    assert next(tasks) == (0, None)
    assert ran == [5]
    list(tasks)
    assert ran == [5, 6, 7]


@pytest.mark.parametrize("engine", HERE)
def test_what_a_task_raises_is_raised(engine: str) -> None:
    with pytest.raises(ZeroDivisionError):
        list(run_tasks(partial(divmod, 1), [1, 0], engine=engine))


def squares(some: Sequence[int]) -> list[tuple[int, int]]:
    return [(i * i, len(some)) for i in some]


@pytest.mark.parametrize("engine", HERE)
def test_chunks_come_back_in_order_and_do_not_depend_on_the_workers(engine: str) -> None:
    sizes = [3, 3, 3, 3, 3, 3, 2, 2]
    assert in_chunks(squares, range(8), engine=engine, size=3) == [(i * i, sizes[i]) for i in range(8)]


@pytest.mark.parametrize("name", ["spark", "multiprocessing", ""])
def test_unknown_engines_are_refused_before_any_work(name: str) -> None:
    with pytest.raises(ValueError, match=rf"engine must be 'local', 'ray' or a joblib backend \(loky, .*got '{name}'"):
        run_tasks(pytest.fail, ["computed"], engine=name)


def test_ray_is_asked_for_when_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ValueError, match=r"engine='ray' needs Ray: pip install 'gbpl\[ray\]', or use engine='local'"):
        check_engine("ray")


# -- what is to come out the same -------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(60, 3)), RNG.normal(size=(60, 2))
PEOPLE = people(2500)


@cache
def bootstrap(engine: str) -> list[np.ndarray]:
    """Weights of the refits of two members: more than a task's, of unlike counts."""
    data = X.astype(np.float32), (Y[:, 1:] - Y[:, :1]).astype(np.float32)
    members = [Member(np.arange(start, start + 40), np.arange(20), seed=start) for start in (0, 20)]
    problem = Problem(MLP((4,)), Binary(), *data, None, 1.0, 1.0, 1.0, params=None)
    refits = 2 * REFITS_PER_TASK  # and no second number of refits in a task, for which workers would compile
    parts = fit_bootstrap(
        [problem, problem], members, data, shares=np.array([0.75, 0.25]), refits=refits, seed=3,
        config=FitConfig(max_epochs=5, batch_size=20), device="cpu", progress=False, engine=engine,
    )  # fmt: skip
    assert [part.count for part in parts] == [refits * 3 // 4, refits // 4]
    return [leaf for part in parts for leaf in jax.tree.leaves(part.params)]


def fit_pairs(pairs: Sequence[tuple[GBPLNet, dict[str, Any]]]) -> list[GBPLNet]:
    return [policy.fit(**data) for policy, data in pairs]


def trials() -> list[tuple[GBPLNet, dict[str, Any]]]:
    quick = FitConfig(max_epochs=5)
    made = [GBPLNet(zeta=1.0, committee=None, model=MLP((4,)), fit_config=quick, random_state=r) for r in range(3)]
    return [(policy, {"X": X + r, "y": Y}) for r, policy in enumerate(made)]


def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of 300 rows and pieces of 600, neither of which ends where a row group does."""
    monkeypatch.setattr(gbpl.study.decide_file, "ROWS", 300)
    monkeypatch.setattr(gbpl.study.decide_file, "BATCHES_PER_PIECE", 2)


def test_bootstraps_in_tasks_are_those_of_one_stack() -> None:
    for whole, parts in zip(bootstrap("local"), bootstrap("loky"), strict=True):
        assert_allclose(parts, whole, rtol=1e-3, atol=1e-5)


def test_pieces_by_processes_are_the_file_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces(monkeypatch)
    data = write(tmp_path / "in.parquet", PEOPLE)
    policy = tiny_policy(PEOPLE)
    decide_file(policy, data, tmp_path / "whole.parquet", keep=["person"])
    decide_file(policy, data, tmp_path / "parts", keep=["person"], engine="loky")
    assert pyarrow.parquet.read_table(tmp_path / "parts").equals(read(tmp_path / "whole.parquet"))


# -- Ray --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="error")
    with sent_whole(sys.modules[__name__]):  # workers do not find this file
        yield ray
    ray.shutdown()


@pytest.fixture
def killed(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The worker of the second task is killed, once, when its work is done and nobody has it yet."""
    mark = kill_second(tmp_path / "killed", monkeypatch)
    yield mark
    assert mark.exists(), "a worker was killed"


def where(_: int) -> tuple[int, int, str | None]:
    return os.getpid(), jax.local_device_count(), os.environ.get("PJRT_NPROC")


def test_workers_have_the_devices_of_this_process(cluster: Any) -> None:
    told = [found for _, found in run_tasks(where, range(4), engine="ray", **task_needs("cpu"))]
    assert {found[1:] for found in told} == {(2, "2")}
    assert os.getpid() not in {found[0] for found in told}


def test_a_killed_worker_costs_its_task_only(killed: Path) -> None:
    assert sorted(run_tasks(abs, range(-6, 0), engine="ray")) == list(enumerate(range(6, 0, -1)))


def crash(number: int) -> int:
    return os.kill(os.getpid(), signal.SIGKILL) or number if number else number


def test_a_task_that_always_crashes_ends_the_run(cluster: Any) -> None:
    tasks = run_tasks(crash, [0, 1], engine="ray")
    assert next(tasks) == (0, 0)
    with pytest.raises(RuntimeError, match=rf"task 1 was lost with its worker {RETRIES + 1} times.*memory"):
        next(tasks)


def test_errors_are_those_of_the_function(cluster: Any) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        list(run_tasks(partial(divmod, 1), [1, 0], engine="ray"))
    assert type(caught.value) is ZeroDivisionError, "and no wrapping of Ray's around it"


def test_few_tasks_are_handed_out_at_a_time(cluster: Any) -> None:
    taken: list[int] = []
    items: Any = (taken.append(number) or number for number in range(40))
    tasks = run_tasks(abs, items, engine="ray", cpus=2)
    next(tasks)
    assert len(taken) == WAITING * 2
    assert len(list(tasks)) == 39


def test_tasks_that_fit_on_no_node_are_refused(cluster: Any) -> None:
    with pytest.raises(ValueError, match=r"a task takes 64 CPU.*largest node .* has 4; set GBPL_CPU_DEVICES=4, or use"):
        next(run_tasks(abs, [1], engine="ray", cpus=64))
    with pytest.raises(ValueError, match=r"a task takes 9 GPU.*add a GPU node, or use engine='local'"):
        next(run_tasks(abs, [1], engine="ray", gpus=9))


def test_bootstraps_on_ray_with_a_killed_worker(killed: Path) -> None:
    for here, there in zip(bootstrap("loky"), bootstrap("ray"), strict=True):
        assert_array_equal(there, here)


def test_trials_on_ray(cluster: Any) -> None:
    """What comes back decides as if it had been fitted here, and has left its rows behind."""
    back = in_chunks(fit_pairs, trials(), engine="ray", size=2, device="cpu")
    for policy, fitted in zip(fit_pairs(trials()), back, strict=True):
        assert_array_equal(fitted.predict_proba(X), policy.predict_proba(X))
        with pytest.raises(ValueError, match="posterior"):
            fitted.posterior()


# -- decisions on Ray -------------------------------------------------------------------------------------------------


def test_decisions_on_ray_with_a_killed_worker(killed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pieces(monkeypatch)
    data, policy, heard = write(tmp_path / "in.parquet", PEOPLE), tiny_policy(PEOPLE), []
    expected = decide_file(policy, data, tmp_path / "whole.parquet", keep=["person", "earnings"])

    def told(done: int, total: int | None) -> None:
        heard.append((done, total))
        for folder in tmp_path.glob(".gbpl-*/new"):
            (folder / ".gbpl-left.parquet").touch()  # as a worker leaves it that is killed while it writes

    decided = decide_file(policy, data, tmp_path / "parts", keep=["person", "earnings"], engine="ray", progress=told)
    assert [path.name for path in sorted((tmp_path / "parts").iterdir())] == [
        f"part-{number:05d}.parquet" for number in range(5)
    ]
    assert not list(tmp_path.glob(".gbpl-*"))
    assert pyarrow.parquet.read_table(tmp_path / "parts").equals(read(tmp_path / "whole.parquet"))
    assert decided.to_dict() == expected.to_dict() | {"mean_expected_gain": pytest.approx(expected.gain / 2500)}
    assert heard[-1] == (2500, 2500)
    assert len(heard) == 5


def test_a_folder_of_files_by_name(cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are counted through the files, and every digit is that of its file decided alone."""
    pieces(monkeypatch)
    folder, policy = tmp_path / "in", tiny_policy(PEOPLE)
    folder.mkdir()
    ends = [0, 700, 700, 2500]
    for number in range(3):
        part = {name: values[ends[number] : ends[number + 1]] for name, values in PEOPLE.items()}
        write(folder / f"{number}.parquet", part)
    (folder / "_metadata.parquet").touch()
    (folder / "notes.txt").touch()
    decided = decide_file(policy, folder, tmp_path / "parts", keep=["person"], engine="ray")
    assert decided.rows == 2500
    written = pyarrow.parquet.read_table(tmp_path / "parts")
    assert written["row"].to_pylist() == list(range(2500))
    assert written["person"].to_pylist() == PEOPLE["person"]
    decide_file(policy, folder / "2.parquet", tmp_path / "alone.parquet")
    alone = read(tmp_path / "alone.parquet").drop_columns("row")
    assert written.slice(700).select(alone.column_names).combine_chunks().equals(alone.combine_chunks())


def test_a_bad_value_is_named_by_its_row_and_leaves_nothing(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces(monkeypatch)
    age = PEOPLE["age"].copy()
    age[2101] = np.inf
    data = write(tmp_path / "in.parquet", PEOPLE | {"age": age})
    before = snapshot(tmp_path)
    with pytest.raises(TableError, match=r"'age'.*infinite.*row 2101"):
        decide_file(tiny_policy(PEOPLE), data, tmp_path / "parts", engine="ray")
    assert snapshot(tmp_path) == before


def test_refusals_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    forbid_calls(monkeypatch, (gbpl.study.decide_file, "run_tasks"))
    policy, data = tiny_policy(PEOPLE), write(tmp_path / "in.parquet", PEOPLE)
    text, full, mixed = write(tmp_path / "in.csv", PEOPLE), tmp_path / "full", tmp_path / "mixed"
    for folder in (full, mixed, tmp_path / "none"):
        folder.mkdir()
    (full / "thesis.tex").touch()
    write(mixed / "a.parquet", PEOPLE)
    write(mixed / "b.parquet", PEOPLE | {"person": np.arange(2500)})
    empty = tmp_path / "empty.parquet"
    pyarrow.parquet.write_table(pyarrow.table(PEOPLE).slice(0, 0), empty)
    before = snapshot(tmp_path)
    for source, out, keep, message in (
        (data, "parts", ["persn"], r"in.parquet has no column 'persn'; did you mean 'person'\?"),
        (text, "parts", [], "in.csv is not Parquet.*use engine='local'"),
        (data, "full", [], "full has files in it.*name a new one"),
        (data, "in.csv", [], "in.csv is a file; name a folder"),
        (data, "no/parts", [], "there is no folder"),
        (tmp_path / "none", "parts", [], "none has no Parquet files; their names end in .parquet or .pq"),
        (tmp_path / "gone.parquet", "parts", [], "gone.parquet does not exist"),
        (mixed, "parts", ["person"], "'person' to keep is int64 and string in the files of"),
        (empty, "parts", [], "empty.parquet has no rows; there is nothing to decide"),
    ):
        with pytest.raises(ValueError, match=message):
            decide_file(policy, source, tmp_path / out, keep=keep, engine="ray")
    assert snapshot(tmp_path) == before


def test_the_command_decides_on_ray(cluster: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tiny_policy(PEOPLE).save(tmp_path / "policy.gbpl")
    data = write(tmp_path / "in.parquet", PEOPLE)
    done = run(capsys, "decide", tmp_path / "policy.gbpl", data, "-o", tmp_path / "parts", "--engine", "ray")
    assert done.code == 0, done.err
    assert "2,500 rows decided" in done.out
    assert pyarrow.parquet.read_table(tmp_path / "parts").num_rows == 2500
    done = run(capsys, "decide", tmp_path / "policy.gbpl", data, "-o", tmp_path / "more", "--engine", "spark")
    assert done.code == 2
    assert "engine must be 'local', 'ray'" in done.words


def test_a_dataset_of_ray(cluster: Any, tmp_path: Path) -> None:
    data = pytest.importorskip("ray.data")
    policy = tiny_policy(PEOPLE)
    source = data.read_parquet(str(write(tmp_path / "in.parquet", PEOPLE)), override_num_blocks=2)
    with pytest.raises(TableError, match=r"the dataset has no column 'persn'; did you mean 'person'\?"):
        decide_dataset(policy, source, keep=["persn"])
    frame = decide_dataset(policy, source, keep=["person"]).to_pandas()
    order = np.argsort([int(name[1:]) for name in frame["person"]])
    for name, values in policy.decide(PEOPLE).to_dict().items():
        if values.dtype.kind == "f":
            assert_allclose(frame[name].to_numpy()[order], values, atol=1e-5)
        else:
            assert_array_equal(frame[name].to_numpy()[order], values)
