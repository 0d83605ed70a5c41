"""`gbpl watch`: verdicts and exit codes, rows counted once, files that grow or change, kills, and the page."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest
from support.cli import command, run, tiny_policy, write

RANGE = ("--outcome-range", "0", "1")
ROLES = {"outcome": "sale", "action": "arm", "propensity": "chance"}


def table(rows, gain=0.0, seed=0):
    """A log with changing propensities, of the action taken and of each action."""
    rng = np.random.default_rng(seed)
    chance = 0.2 + 0.6 * rng.random(rows)
    treated = rng.random(rows) < chance
    return {
        "age": rng.uniform(20.0, 60.0, rows), "sex": rng.choice(["f", "m"], rows),
        "arm": np.where(treated, "treat", "none"), "chance": np.where(treated, chance, 1.0 - chance),
        "chance_treat": chance, "chance_none": 1.0 - chance,
        "sale": np.clip(0.4 + gain * treated + 0.1 * rng.normal(size=rows), 0.0, 1.0),
    }  # fmt: skip


def first(columns, rows):
    return {name: values[:rows] for name, values in columns.items()}


@pytest.fixture
def policy(tmp_path):
    file = tmp_path / "policy.gbpl"
    shares = [{"label": "none", "cost": 0.0, "share": 0.7}, {"label": "treat", "cost": 0.0, "share": 0.3}]
    tiny_policy(table(300), summary={"format": 1, "roles": ROLES, "actions": shares}).save(file)
    return file


def state_of(file):
    return json.loads(json.loads(file.read_text())["state"])


def counted(file):
    return state_of(file)["files"]["log.parquet"]["rows"] if file.exists() else 0


@pytest.mark.parametrize(
    ("gain", "code", "verdict"), [(0.4, 0, "promote"), (-0.4, 3, "roll back"), (0.0, 4, "keep watching")]
)
def test_the_exit_code_is_the_verdict(tmp_path, capsys, policy, gain, code, verdict):
    log = write(tmp_path / "log.parquet", table(1500, gain))
    done = run(capsys, "watch", policy, log, *RANGE, "--json")
    said = json.loads(done.out)
    assert (done.code, said["code"], said["verdict"]) == (code, code, verdict)
    assert said["value"]["lower"] < said["value"]["estimate"] < said["value"]["upper"]
    assert said["state"] == str(tmp_path / "policy.watch.json")
    again = run(capsys, "watch", policy, log)  # what was agreed on need not be said again
    assert again.code == code
    assert "1,500 rows" in again.out
    assert verdict.capitalize() in again.out
    assert counted(tmp_path / "policy.watch.json") == 1500


def test_a_growing_file_in_either_format_ends_where_one_run_does(tmp_path, capsys, policy):
    rows = table(5000, 0.05, seed=1)
    readings = []
    for suffix in (".csv", ".parquet"):
        log, state = tmp_path / f"log{suffix}", tmp_path / f"state{suffix}.json"
        for size in (10, 4100, 5000, 5000):
            write(log, first(rows, size))
            done = run(capsys, "watch", policy, log, *RANGE, "--state", state, "--json")
            assert json.loads(done.out)["rows"] == size
        readings.append(json.loads(done.out) | {"state": None})
    whole = run(capsys, "watch", policy, log, *RANGE, "--state", tmp_path / "whole.json", "--json")
    readings.append(json.loads(whole.out) | {"state": None})
    for name in ("value", "gain", "verdict_row", "drift", "history", "verdict"):
        assert readings[0][name] == readings[1][name] == readings[2][name]
    days = [
        write(tmp_path / f"day{n}.parquet", {k: v[4500 * n : 4500 * (n + 1)] for k, v in rows.items()}) for n in (0, 1)
    ]
    split = run(capsys, "watch", policy, *days, *RANGE, "--state", tmp_path / "days.json", "--json")
    assert json.loads(split.out)["gain"] == readings[2]["gain"]


def test_propensities_of_each_action_say_the_same_as_that_of_the_action_taken(tmp_path, capsys, policy):
    log = write(tmp_path / "log.csv", table(600, 0.2))
    given = ("--propensity", "none=chance_none", "treat=chance_treat")
    one = run(capsys, "watch", policy, log, *RANGE, "--state", tmp_path / "a.json", "--json")
    two = run(capsys, "watch", policy, log, *RANGE, *given, "--state", tmp_path / "b.json", "--json")
    assert json.loads(one.out)["gain"]["lower"] == pytest.approx(json.loads(two.out)["gain"]["lower"], abs=1e-9)


def test_constant_propensities_say_how_small_they_can_be(tmp_path, capsys, policy):
    log = write(tmp_path / "log.csv", table(50))
    for given, least in ((("0.3",), 0.3), (("none=0.6", "treat=0.4"), 0.4), (("chance",), 0.25)):
        state = tmp_path / f"{len(given)}{given[0]}.json"
        run(capsys, "watch", policy, log, *RANGE, "--state", state, "--propensity", *given)
        assert state_of(state)["monitor"]["terms"]["least_propensity"] == pytest.approx(least)


def test_rows_are_not_counted_twice_and_changed_files_are_refused_by_name(tmp_path, capsys, policy):
    rows, state = table(1200), tmp_path / "policy.watch.json"
    log = write(tmp_path / "log.parquet", rows)
    run(capsys, "watch", policy, log, *RANGE)
    before = state.read_bytes()
    copy = run(capsys, "watch", policy, write(tmp_path / "copy.csv", first(rows, 1000)))
    assert (copy.code, "copy.csv begins with the rows of log.parquet" in copy.words) == (2, True)
    for name, change in (("sale", 0.5), ("chance", 0.3), ("arm", "treat" if rows["arm"][1111] == "none" else "none")):
        other = {**rows, name: np.where(np.arange(1200) == 1111, change, rows[name])}
        done = run(capsys, "watch", policy, write(log, other))
        assert done.code == 2
        assert "log.parquet has changed: its first 1,200 rows are not those that were counted" in done.words
    shorter = run(capsys, "watch", policy, write(log, first(rows, 1190)))
    assert "log.parquet has 1,190 rows, and 1,200 of it were counted" in shorter.words
    assert state.read_bytes() == before
    bad = {**rows, "sale": np.append(rows["sale"][:-1], 7.0)}
    fresh = run(capsys, "watch", policy, write(tmp_path / "bad.parquet", bad), *RANGE, "--state", tmp_path / "new.json")
    assert "outcome is 7 in row 1199, outside its range 0 to 1" in fresh.words


def test_what_is_wrong_with_a_state_is_said(tmp_path, capsys, policy):
    log, state = write(tmp_path / "log.csv", table(100)), tmp_path / "policy.watch.json"
    assert "outcome_range must be" in run(capsys, "watch", policy, log).words
    assert not state.exists()
    assert run(capsys, "watch", policy, log, *RANGE).code == 4
    whole = json.loads(state.read_text())
    assert "baseline was none when the watch began" in run(capsys, "watch", policy, log, "--baseline", "logging").words
    state.write_text(json.dumps(whole | {"state": whole["state"].replace('"rows": 100', '"rows": 99')}))
    assert "is damaged: its checksum is wrong" in run(capsys, "watch", policy, log).words
    state.write_text("{}")
    assert "is not a state of gbpl watch" in run(capsys, "watch", policy, log).words
    state.write_text(json.dumps(whole | {"gbpl watch": 99}))
    assert "has format 99, not 1" in run(capsys, "watch", policy, log).words


def test_a_refit_begins_behind_the_rows_that_are_counted(tmp_path, capsys, policy):
    rows = table(900, 0.4)
    log = write(tmp_path / "log.parquet", first(rows, 600))
    run(capsys, "watch", policy, log, *RANGE)
    tiny_policy(table(300), ("age",), summary={"format": 1, "roles": ROLES}).save(policy)
    assert "not the policy that was watched so far" in run(capsys, "watch", policy, log).words
    write(log, rows)
    for _ in range(2):
        said = json.loads(run(capsys, "watch", policy, log, "--refit", "--json").out)
        assert (said["version"], said["rows"]) == (2, 300)
    assert said["ended"][0]["rows"] == 600
    assert said["version_budget"] == pytest.approx(0.05 * 6.0 / (4.0 * np.pi**2))


def test_the_page_says_what_the_command_says(tmp_path, capsys, policy):
    rows = table(2000, 0.4)
    rows["age"] = rows["age"] + 15.0
    page = tmp_path / "page.html"
    done = run(capsys, "watch", policy, write(tmp_path / "log.csv", rows), *RANGE, "--report", page, "--json")
    said, text = json.loads(done.out), page.read_text(encoding="utf-8")
    assert said["sentence"] in text
    assert f"row {said['drift'][0]['moved']:,}" in text
    assert "<script" not in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")
    assert text.count("<svg") >= 4
    assert "ends in .html" in run(capsys, "watch", policy, tmp_path / "log.csv", "--report", "page.pdf").words


def test_killed_at_random_moments_it_goes_on_to_the_same_numbers(tmp_path, capsys, policy):
    log = write(tmp_path / "log.parquet", table(30_000, 0.01, seed=2))
    alone, killed = tmp_path / "alone.json", tmp_path / "killed.json"
    run(capsys, "watch", policy, log, *RANGE, "--state", alone)
    rng, kills = np.random.default_rng(), []
    while len(kills) < 2:
        process = subprocess.Popen(command("watch", policy, log, *RANGE, "--state", killed), stdout=subprocess.DEVNULL)
        before = counted(killed)
        while process.poll() is None and counted(killed) <= before:
            time.sleep(0.002)
        time.sleep(0.03 * rng.random())
        if process.poll() is not None:
            break  # it was too fast for us
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        kills.append(counted(killed))
    assert kills
    done = run(capsys, "watch", policy, log, *RANGE, "--state", killed)
    assert done.code in (0, 3, 4)
    assert killed.read_bytes() == alone.read_bytes()
    assert counted(killed) == 30_000
