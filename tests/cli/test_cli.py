"""The command line writes and prints what the library finds, in words for people and in JSON for scripts."""

from __future__ import annotations

import functools
import json
import os
import re
import subprocess
import sys
import textwrap
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from support.cli import Done, command, people, quick_estimator, quick_learn, read, run, snapshot, tiny_policy, write
from support.report import two_actions

import gbpl
import gbpl.study.compare
import gbpl.study.study
import gbpl.tables.read
from gbpl import CrossFit, cli, learn, load
from gbpl.cli import parse
from gbpl.cli.console import as_json_text, verbatim
from gbpl.runtime.files import replacing, together, write_text
from gbpl.version import __version__

COMMANDS = (
    "demo", "fit", "check", "decide", "evaluate", "compare", "watch", "export", "report", "datasets", "reproduce",
)  # fmt: skip
TRIAL = people(240)
ROLES = ("--outcome", "earnings", "--action", "arm", "--propensity", "1/2")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gbpl.study.study, "learn", quick_learn)
    monkeypatch.setattr(gbpl.study.compare, "CrossFit", functools.partial(CrossFit, outcome_model=LinearRegression()))
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trial, more of it, and what `gbpl fit` made of it; what it printed is in the file `said`."""
    folder = tmp_path_factory.mktemp("cli")
    write(folder / "trial.csv", {**TRIAL, "earnings": [*TRIAL["earnings"][:-2], None, None]})
    write(folder / "next.parquet", people(300, seed=1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gbpl.study.study, "learn", quick_learn)
        patch.delenv("COLUMNS", raising=False)
        roles = [*ROLES, "--cost", "treat=2", "--seed", "3", "--out", folder / "made"]
        argv = [str(word) for word in ("fit", folder / "trial.csv", *roles)]
        said = StringIO()
        patch.setattr(sys, "stdout", said)
        with pytest.raises(SystemExit) as stop:
            cli.main(argv)
    assert stop.value.code == 0
    (folder / "said").write_text(said.getvalue(), encoding="utf-8")
    return folder


def on(folder: Path, *words: str) -> list[str]:
    """Words with the files of a folder in place of their names."""
    return [str(folder / word) if (folder / word).exists() else word for word in words]


# -- fit --------------------------------------------------------------------------------------------------------------


def test_fit_writes_four_files_and_says_so(fitted: Path) -> None:
    assert sorted(path.name for path in (fitted / "made").iterdir()) == [
        "decisions.csv", "policy.gbpl", "report.html", "summary.json"
    ]  # fmt: skip
    assert sorted(path.name for path in fitted.iterdir()) == ["made", "next.parquet", "said", "trial.csv"]
    said = (fitted / "said").read_text()
    assert re.search(r"The policy gives \w+ to \d+ of 100 rows and \w+ to \d+ of 100\.", said)
    assert "Under it, the mean of earnings less costs is" in said
    assert "238 rows, 2 more left out, 2 columns decide." in said
    assert "2 rows without an outcome (earnings) left out" in said
    assert "column 'person' left out: every value is different" in said
    assert "Overlap: no sign of weakness (propensities known)." in said
    for name in ("policy.gbpl", "decisions.csv", "report.html", "summary.json"):
        assert str(fitted / "made" / name) in said
    mode = (fitted / "made" / "policy.gbpl").stat().st_mode & 0o777
    assert mode == (fitted / "trial.csv").stat().st_mode & 0o777, "made for everybody the user lets read"


def test_fit_is_learn(fitted: Path) -> None:
    """The same table, roles and seed give the same numbers in Python."""
    table = gbpl.tables.read.read_table(fitted / "trial.csv")
    study = learn(
        table, outcome="earnings", action="arm", propensity=0.5, cost={"treat": 2.0}, seed=3, source="trial.csv",
        estimator=quick_estimator(3),
    )  # fmt: skip
    written, summary = json.loads((fitted / "made" / "summary.json").read_text()), study.summary
    assert written["actions"] == summary["actions"]
    assert written["data"] == summary["data"]
    assert written["welfare"]["estimate"] == summary["welfare"]["estimate"]
    low, high = written["welfare"]["interval"]
    assert low < written["welfare"]["estimate"] < high
    assert np.quantile(summary["welfare"]["quantiles"], 0.025) == pytest.approx(low, rel=0.01)
    for made, known in zip(written["alternatives"], summary["alternatives"], strict=True):
        assert {name: made[name] for name in ("label", "gain", "chance")} == {
            name: known[name] for name in ("label", "gain", "chance")
        }
    assert written["default"] == "none"
    assert written["deferred"] == {"level": 1.0, "share": 0.0}, "nobody asked for a review"
    assert written["files"]["policy"] == str(fitted / "made" / "policy.gbpl")
    loaded = gbpl.load(fitted / "made" / "policy.gbpl")
    assert loaded.summary["welfare"] == summary["welfare"]
    decided = read(fitted / "made" / "decisions.csv")
    assert decided.num_rows == 240, "also those without an outcome"
    assert decided["action"].to_pylist() == study.policy.decide(TRIAL).action.tolist()
    assert set(decided["action"].to_pylist()) == {"none", "treat"}, "one action would prove nothing"
    assert f"{summary['title']}" in (fitted / "made" / "report.html").read_text(encoding="utf-8")


def test_fit_as_json(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = (
        "fit",
        fitted / "trial.csv",
        *ROLES,
        "--cost",
        "treat=2",
        "--seed",
        "3",
        "--out",
        tmp_path / "made",
        "--json",
    )
    done = run(capsys, *argv)
    assert (done.code, done.err) == (0, "")
    answer = json.loads(done.out)
    assert answer == json.loads((tmp_path / "made" / "summary.json").read_text())
    before = json.loads((fitted / "made" / "summary.json").read_text())
    for changing in ("seconds", "files"):
        answer.pop(changing), before.pop(changing)
    assert answer == before


def test_fit_with_everything(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Full names of options, values after `=` and after spaces, weights, groups, a capacity, another default."""
    rows = len(TRIAL["age"])
    extra = {"w": np.linspace(1, 2, rows), "home": np.arange(rows) // 2, "p": np.full(rows, 0.5), "x": TRIAL["age"] % 7}
    write(tmp_path / "all.feather", TRIAL | extra)
    done = run(
        capsys, "fit", tmp_path / "all.feather", "--outcome=earnings", "--action", "arm", "--features", "age", "sex",
        "--controls=x", "--propensity", "p", "--weight", "w", "--group", "home", "--cost=none=-1", "treat=1/2",
        "--capacity", "none=0.25", "--default", "treat", "--defer", "0.9", "-o", tmp_path / "r", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    answer = json.loads(done.out)
    assert answer["data"]["features"] == ["age", "sex"]
    assert answer["data"]["controls"] == ["x"]
    assert [answer["data"][name] for name in ("weight", "group")] == ["w", "home"]
    assert [action["cost"] for action in answer["actions"]] == [-1.0, 0.5]
    assert [action["capacity"] for action in answer["actions"]] == [0.25, None]
    assert answer["actions"][0]["share"] <= 0.25
    assert answer["default"] == "treat"
    assert answer["deferred"]["level"] == 0.9
    assert answer["certificate"] is None


def test_fit_within_a_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Amounts by action or a column of what was spent; the decisions that are written keep to it."""
    paid = np.where(np.array(TRIAL["arm"]) == "treat", 3.0, 0.0)
    write(tmp_path / "paid.csv", TRIAL | {"paid": paid})
    asked = ("fit", tmp_path / "paid.csv", *ROLES, "--features", "age", "sex", "--budget", "90")
    for cost in ("treat=3", "paid"):
        done = run(capsys, *asked, "--budget-cost", cost, "-o", tmp_path / "r", "--json")
        assert done.code == 0, done.err
        found = json.loads(done.out)["budget"]
        assert (found["asked"], found["cost"]) == (90.0, [0.0, 3.0])
        decided = read(tmp_path / "r" / "decisions.csv")["action"].to_pylist()
        assert 3 * decided.count("treat") <= 90 * len(decided) / found["rows"] + 3
    said = run(capsys, *asked, "--budget-cost", "treat=3", "-o", tmp_path / "r")
    assert "Of a budget of 90" in " ".join(said.out.split())
    refused = run(capsys, *asked[:-2], "--budget-cost", "treat=3", "-o", tmp_path / "r")
    assert refused.code != 0
    assert "give budget too" in " ".join(refused.err.split())


def test_fit_for_hidden_confounding(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def keeping(*args: Any, **given: Any) -> Any:
        asked.update(given)
        return quick_learn(*args, **{name: value for name, value in given.items() if name != "estimator"})

    monkeypatch.setattr(gbpl.study.study, "learn", keeping)
    roles = ("--outcome", "earnings", "--action", "arm", "--confounding", "1.5", "--out", tmp_path / "r")
    done = run(capsys, "fit", fitted / "trial.csv", *roles)
    assert done.code == 0, done.err
    assert asked["estimator"].confounding == 1.5
    said = " ".join(done.out.split())
    assert "Hidden confounding that changes the odds" in said or "that hidden confounding would have to" in said
    written = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert written["sensitivity"]["gammas"][0]["gamma"] == 1.0
    for wrong, why in (("0.5", "must be a finite number >= 1, got 0.5"), ("nan", "got nan")):
        done = run(capsys, "fit", fitted / "trial.csv", *roles[:4], "--confounding", wrong, "--out", tmp_path / "no")
        assert done.code != 0
        assert why in " ".join(done.err.split())
        assert not (tmp_path / "no").exists()


def test_fit_with_full_feedback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    write(tmp_path / "full.parquet", {"x": x, "stocks": x + rng.normal(size=200), "bonds": np.zeros(200)})
    done = run(capsys, "fit", tmp_path / "full.parquet", "--outcomes", "stocks", "bonds", "--out", tmp_path / "r",
               "--certify", "--outcome-range", "-9", "9")  # fmt: skip
    assert done.code == 0, done.err
    assert "Certificate  Certified: this policy is worth" in done.out
    assert "\\n" not in done.out
    assert "full.parquet" in done.out
    assert "everybody gets bonds" in done.out
    assert "Overlap" not in done.out
    answer = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert [action["label"] for action in answer["actions"]] == ["stocks", "bonds"]
    assert answer["overlap"] is None
    assert -9.0 <= answer["certificate"]["lower"] <= answer["certificate"]["estimate"]
    assert answer["data"]["rows"] == answer["certificate"]["n"] == 100
    assert load(tmp_path / "r" / "policy.gbpl").certificate["lower"] == answer["certificate"]["lower"]


# -- decide, evaluate, compare, report --------------------------------------------------------------------------------


def test_decide(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "decisions.feather"
    done = run(capsys, "decide", *on(fitted, "made/policy.gbpl", "next.parquet"), "-o", out, "--keep", "person", "sex")
    assert (done.code, done.err) == (0, "")
    expected = gbpl.load(fitted / "made" / "policy.gbpl").decide(people(300, seed=1))
    written = read(out)
    assert written["action"].to_pylist() == expected.action.tolist()
    assert written.column_names[:3] == ["row", "person", "sex"]
    assert "300 rows decided" in done.out
    assert f"{int(np.sum(expected.action == 'treat'))}" in done.out
    assert f"Written: {out}" in done.out
    as_json = run(
        capsys, "decide", *on(fitted, "made/policy.gbpl", "next.parquet"), "-o", out, "--json", "--defer", "0"
    )
    answer = json.loads(as_json.out)
    assert answer["rows"] == 300
    assert answer["actions"] == {label: int(np.sum(expected.action == label)) for label in ("none", "treat")}
    assert answer["deferred"] == int((expected.disagreement > 0).sum())
    assert answer["mean_expected_gain"] == pytest.approx(expected.expected_gain.mean())
    assert answer["file"] == str(out)


def test_evaluate(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = on(fitted, "made/policy.gbpl", "next.parquet")
    answer = json.loads(run(capsys, "evaluate", *files, "--json").out)
    from gbpl.study.compare import evaluate_policy

    policy = gbpl.load(files[0])
    expected = evaluate_policy(policy, gbpl.tables.read.read_table(files[1])).to_dict(0.95)
    assert answer == json.loads(as_json_text(expected))
    assert answer["rows"] == 300
    done = run(capsys, "evaluate", *files, "--cost", "treat=100", "--estimator", "ipw")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"On these 300 rows the policy gives none to [\d.]+\s%, treat to [\d.]+\s%\.", done.out)
    assert "ipw" in done.out
    for name in ("everybody gets none", "everybody gets treat", "as logged"):
        assert name in done.out


def test_compare(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_policy(TRIAL).save(tmp_path / "other.gbpl")
    files = [str(fitted / "made" / "policy.gbpl"), str(tmp_path / "other.gbpl"), str(fitted / "next.parquet")]
    done = run(capsys, "compare", *files)
    assert (done.code, done.err) == (0, "")
    assert re.search(r"They differ in [\d.]+\s% of 300 rows\. The chance that the first is better is", done.out)
    answer = json.loads(run(capsys, "compare", *files, "--json").out)
    assert answer["difference"]["estimate"] == pytest.approx(answer["first"]["estimate"] - answer["second"]["estimate"])
    assert 0.0 < answer["differ"] < 1.0
    same = run(capsys, "compare", files[0], files[0], files[2])
    assert "They decide alike in all of 300 rows." in same.out


def test_report(
    fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = fitted / "made" / "policy.gbpl"
    done = run(capsys, "report", policy, "-o", tmp_path / "page.html")
    assert (done.code, done.out) == (0, f"Written: {tmp_path / 'page.html'}\n")
    assert (tmp_path / "page.html").read_bytes() == (fitted / "made" / "report.html").read_bytes()
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "report", policy).out == "Written: report.html\n"
    assert json.loads(run(capsys, "report", policy, "--json").out) == gbpl.load(policy).summary
    both = run(capsys, "report", policy, "--json", "-o", "x.html")
    assert both.code == 2
    assert "leave x.html out, or --json" in both.err


# -- datasets, demo ---------------------------------------------------------------------------------------------------


def test_datasets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "datasets")
    assert (done.code, done.err) == (0, "")
    entries = json.loads(run(capsys, "datasets", "--json").out)
    for entry in entries:
        assert entry["name"] in done.out
    out = tmp_path / "e mail.csv"
    answer = json.loads(run(capsys, "datasets", "email", "-o", out, "--json").out)
    assert answer["file"] == str(out)
    data = gbpl.datasets.load("email")
    assert read(out).num_rows == answer["rows"] == data.n_rows
    done = run(capsys, "datasets", "email")
    assert "Nothing is written without -o FILE." in done.out
    assert "gbpl fit email.csv --outcome visit --action segment" in done.out


def test_the_command_of_a_data_set_fits_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for a shell: parted as one does, it names columns that are there and chances that are right."""
    import shlex

    heard: dict[str, Any] = {}
    monkeypatch.setattr(gbpl.study.study, "learn", lambda table, **roles: heard.update(roles) or sys.exit(7))
    for name in ("email", "digits", "nsw", "digits_logged"):
        answer = json.loads(run(capsys, "datasets", name, "-o", tmp_path / f"{name}.csv", "--json").out)
        words = shlex.split(answer["fit"])
        assert words[:2] == ["gbpl", "fit"]
        done = run(capsys, *words[1:], "--out", tmp_path / "r")
        assert done.code == 7, done.err
        data = gbpl.datasets.load(name)
        assert heard["features"] == data.features
        assert heard["outcome"] == data.outcome
        assert heard["propensity"] == (
            pytest.approx(data.propensity) if isinstance(data.propensity, float) else data.propensity
        )


def test_demo_tells_the_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    absent = ("pandas", "polars", "matplotlib")  # not in gbpl[cli], which is all that the README installs

    class Absent:
        def find_spec(self, name: str, *_: object) -> None:
            if name in absent:
                raise ModuleNotFoundError(f"No module named {name!r}")

    for name in absent:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "meta_path", [Absent(), *sys.meta_path])
    done = run(capsys, "demo", "--rows", "300", "--seed", "1")
    assert (done.code, done.err) == (0, "")
    assert "The truth, which a simulation knows" in done.out
    rows = dict(re.findall(r"^ ?(learned policy|No E-Mail for all|best possible) +([\d.]+) ", done.out, re.MULTILINE))
    assert float(rows["best possible"]) > float(rows["learned policy"]) >= 10.0
    assert float(rows["No E-Mail for all"]) == pytest.approx(10.3, abs=0.5)
    assert sorted(path.name for path in (tmp_path / "gbpl-demo").iterdir()) == [
        "decisions.csv", "policy.gbpl", "report.html", "summary.json", "trial.csv"
    ]  # fmt: skip
    assert "Open gbpl-demo/report.html in a browser" in done.out
    assert "gbpl fit gbpl-demo/trial.csv --outcome visit --action segment --propensity 1/3" in done.out
    assert json.loads(Path("gbpl-demo/summary.json").read_text())["files"]["data"] == "gbpl-demo/trial.csv"


# -- words ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("name", COMMANDS)
def test_help(name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERMINAL_WIDTH", str(width))
    done = run(capsys, name, "--help")
    assert (done.code, done.err) == (0, "")
    assert f"gbpl {name}" in done.out
    assert max(len(line) for line in done.out.splitlines()) <= width
    assert "…" not in done.out, "nothing is cut off"
    options = [line for line in done.out.splitlines() if "--" in line]
    assert options
    assert not [line for line in options if re.search("<(bool|str|int|float|list|path)", line)], "people's words"


def test_help_lists_every_command_and_option() -> None:
    """docs/command-line.md promises these; the page's own examples run in its tests."""
    page = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
    done = subprocess.run(command("--help"), capture_output=True, text=True, env=os.environ | {"COLUMNS": "100"})
    assert done.returncode == 0
    order = [done.stdout.index(f"\u2502 {name} ") for name in COMMANDS]
    assert order == sorted(order), "in the order a new user needs them"
    helped = subprocess.run(command("fit", "-h"), capture_output=True, text=True, env=os.environ | {"COLUMNS": "100"})
    table = page.split("## Try to break it")[0]
    for option in set(re.findall(r"(--[a-z][a-z-]+)", table)):
        if option != "--help":
            assert option in helped.stdout, option


def test_version_and_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == Done(0, f"gbpl {__version__}\n", "")
    nothing = run(capsys)
    assert nothing.code == 2
    assert "Usage" in nothing.out + nothing.err


def test_the_first_words_of_the_readme() -> None:
    """The first commands there name options and commands that exist."""
    page = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    assert "gbpl demo" in page
    assert "gbpl fit trial.csv --outcome earnings --action offered --propensity 2/3 --cost 1=774" in page
    assert "gbpl decide gbpl-result/policy.gbpl new_people.parquet -o decisions.parquet" in page


def test_completion() -> None:
    under_bash = ["bash", "-c", '"$@"; exit $?', "bash", *command("--show-completion")]  # it asks what started it
    done = subprocess.run(under_bash, capture_output=True, text=True)
    assert done.returncode == 0
    assert "COMPREPLY" in done.stdout
    words = {"COMP_WORDS": "gbpl fit --ou", "COMP_CWORD": "2", "_GBPL_COMPLETE": "complete_bash"}
    code = "import sys; sys.argv = ['gbpl']; from gbpl.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | words)
    assert set(done.stdout.split()) == {"--outcome", "--outcomes", "--outcome-range", "--out"}


def test_a_nearest_column_is_named(fitted: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(capsys, "fit", fitted / "trial.csv", "--outcome", "Earning", "--action", "arm", "--out", fitted / "made")
    assert done.code == 2
    assert "trial.csv has no column 'Earning'; did you mean 'earnings'?" in done.err


def test_names_are_shown_as_they_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No markup, no pictures for `:smile:`, and nothing cut off at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")
    labels = (":smile: [bold]a[/]", "b" * 200)
    tiny_policy(TRIAL, actions=labels).save(tmp_path / "p.gbpl")
    done = run(capsys, "decide", tmp_path / "p.gbpl", write(tmp_path / "d.csv", TRIAL), "-o", tmp_path / "o.csv")
    assert labels[0] in done.out
    assert done.out.count("b") >= 200
    assert verbatim("\x1b[1m\n\u202e") == "\\x1b[1m\\n\\u202e"


# -- values of options ------------------------------------------------------------------------------------------------


def test_numbers_and_fractions() -> None:
    assert [parse.number(text) for text in ("0.5", "2/3", "-1e3", "1/0", "x", "1" + "0" * 400 + "/3")] == [
        0.5, 2 / 3, -1000.0, None, None, None
    ]  # fmt: skip
    assert parse.by_action("--cost", ["a=b=3", "0=-1"]) == {"a=b": 3.0, "0": -1.0}
    assert parse.propensity(["0.5"], ["age"]) == 0.5
    assert parse.propensity(["0.5"], ["0.5"]) == "0.5", "a column of that name goes first"
    assert parse.propensity(["a=0.5"], ["a=0.5"]) == "a=0.5"
    assert parse.propensity(["a=0.5", "b=1/2"], ["age"]) == {"a": 0.5, "b": 0.5}
    assert parse.propensity([], []) is None


def test_several_values_in_a_row(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """After an option, after `=`, repeated, up to the next option, negative numbers among them."""
    from gbpl.cli import app

    many = {"--features", "--cost"}

    def grouped(line: str) -> list[tuple[str, list[str]]]:
        return list(app._grouped(line.split(), many))

    assert grouped("d.csv --features a b --seed 3") == [
        ("", ["d.csv"]), ("--features", ["a", "b"]), ("", ["--seed"]), ("", ["3"])
    ]  # fmt: skip
    assert grouped("--features=a b --features c") == [("--features", ["a", "b"]), ("--features", ["c"])]
    assert grouped("--cost=x=1 -1=2 -.5=3") == [("--cost", ["x=1", "-1=2", "-.5=3"])]
    assert grouped("--features a -- d.csv") == [("--features", ["a"]), ("", ["--", "d.csv"])]
    assert grouped("--features") == [("--features", [])]


# -- in scripts -------------------------------------------------------------------------------------------------------


def test_json_knows_no_nan() -> None:
    assert json.loads(as_json_text({"a": [float("nan"), 1.0], 2: float("inf")})) == {"a": [None, 1.0], "2": None}
    assert as_json_text("größe", encoding="ascii") == '"gr\\u00f6\\u00dfe"'
    assert as_json_text("größe", indent=None) == '"größe"'
    assert json.loads(as_json_text("\udcff")) == "\udcff"


def test_a_reader_that_has_enough(tmp_path: Path) -> None:
    """`gbpl ... | head -1` says nothing on standard error, and is no failure."""
    tiny_policy(TRIAL, summary=two_actions()).save(tmp_path / "p.gbpl")
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    for words in (["datasets"], ["datasets", "email", "--json"], ["report", str(tmp_path / "p.gbpl"), "--json"]):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": buffered}
        with subprocess.Popen(command(*words), **pipes) as process:
            process.stdout.close()
            said = process.stderr.read()
        assert (process.returncode, said) == (0, "")


STOPPED = """
    import os, signal, sys, time, types
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job has it ignored
    def pressed(*_, **__):
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
        time.sleep(30)
    if sys.argv[1] == "SIGINT":
        import gbpl.estimators.gbplnet
        gbpl.estimators.gbplnet.fit_together = pressed
    else:
        sys.modules["gbpl.study.study"] = types.SimpleNamespace(learn=pressed)  # sooner there, without JAX
    from gbpl.cli import main
    main(sys.argv[2:])
"""


@pytest.mark.skipif(os.name == "nt", reason="signals are of Unix")
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_in_the_middle_of_a_fit(name: str, code: int, fitted: Path) -> None:
    before = snapshot(fitted)
    argv = ["fit", str(fitted / "trial.csv"), *ROLES, "--out", str(fitted / "made")]
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(STOPPED), name, *argv], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert "nothing was written" in done.stderr
    assert snapshot(fitted) == before


def test_a_fault_of_ours_is_told_apart(
    fitted: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(gbpl.study.study, "learn", broken)
    done = run(capsys, "fit", fitted / "trial.csv", *ROLES, "--out", fitted / "made")
    assert done.code == 1
    assert "ZeroDivisionError: division by zero" in done.err
    assert "GBPL_TRACEBACK=1" in done.err
    assert "Traceback" not in done.err
    monkeypatch.setenv("GBPL_TRACEBACK", "1")
    assert "Traceback" in run(capsys, "fit", fitted / "trial.csv", *ROLES, "--out", fitted / "made").err
    monkeypatch.setattr(gbpl.study.study, "learn", lambda *_, **__: bytearray(1 << 62))
    done = run(capsys, "fit", fitted / "trial.csv", *ROLES, "--out", fitted / "made")
    assert done.code == 2
    assert "not enough memory; take fewer rows" in done.err


def test_without_its_packages_the_command_says_what_to_install() -> None:
    code = "import sys; sys.modules['typer'] = None; import gbpl.cli"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "the command line needs typer and rich: pip install 'gbpl[cli]'\n"


def test_deciding_needs_no_jax(tmp_path: Path) -> None:
    tiny_policy(TRIAL).save(tmp_path / "p.gbpl")
    write(tmp_path / "d.csv", TRIAL)
    code = (
        "import sys; sys.modules['jax'] = sys.modules['sklearn'] = None; from gbpl.cli import main; main(sys.argv[1:])"
    )
    argv = ["decide", str(tmp_path / "p.gbpl"), str(tmp_path / "d.csv"), "-o", str(tmp_path / "o.csv")]
    done = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


# -- files ------------------------------------------------------------------------------------------------------------


def test_a_file_is_replaced_whole_and_keeps_its_mode_and_links(tmp_path: Path) -> None:
    target, link = tmp_path / "a.txt", tmp_path / "link.txt"
    write_text(target, "one")
    target.chmod(0o640)
    link.symlink_to(target)
    write_text(link, "two")
    assert link.is_symlink()
    assert target.read_text() == "two"
    assert target.stat().st_mode & 0o777 == 0o640

    def half() -> None:
        with replacing(target) as name:
            name.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        half()
    assert snapshot(tmp_path) == {"a.txt": b"two", "link.txt": b"two"}


def test_files_are_replaced_together(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a").write_text("old")

    def half() -> None:
        with together(tmp_path / "out") as stage:
            (stage / "a").write_text("new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        half()
    assert snapshot(tmp_path) == {"out": None, "out/a": b"old"}
    with together(tmp_path / "out") as stage:
        (stage / "a").write_text("new")
        (stage / "b").write_text("more")
    assert snapshot(tmp_path) == {"out": None, "out/a": b"new", "out/b": b"more"}


def test_check_tells_what_would_break_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    paid = 2.0 * TRIAL["earnings"] + 0.01 * (np.arange(len(TRIAL["earnings"])) % 7)
    data, page = write(tmp_path / "leak.csv", {**TRIAL, "paid": paid}), tmp_path / "page.html"
    bad = run(capsys, "check", data, *ROLES, "--report", page)
    assert bad.code == 3
    assert "warning: 'paid' depends on the action, given the propensities" in bad.words
    assert "'paid' copies the outcome" in " ".join(bad.out.split())
    assert "What would break it?" in page.read_text(encoding="utf-8")
    wrong = run(capsys, "check", data, *ROLES, "--report", tmp_path / "page.txt")
    assert (wrong.code, "ends in .html" in wrong.words) == (2, True)
    done = run(capsys, "fit", data, *ROLES, "--check", "-o", tmp_path / "made")
    assert done.code == 0
    assert "'paid' copies the outcome" in " ".join(done.out.split())
    summary = json.loads((tmp_path / "made" / "summary.json").read_text(encoding="utf-8"))
    assert summary["check"]["verdict"] == "failed"
    assert [one["name"] for one in summary["check"]["findings"]][:2] == [
        "balance of the log",
        "columns after the action",
    ]


def test_decide_explains_rows(fitted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "decisions.csv"
    files = on(fitted, "made/policy.gbpl", "next.parquet")
    done = run(capsys, "decide", *files, "-o", out, "--explain", "17", "3", "--fixed", "sex")
    assert (done.code, done.err) == (0, "")
    policy, rows = gbpl.load(fitted / "made" / "policy.gbpl"), people(300, seed=1)
    beside = json.loads((tmp_path / "decisions.explained.json").read_text(encoding="utf-8"))
    for made, number in zip(beside, (17, 3), strict=True):
        why = policy.explain({name: values[number] for name, values in rows.items()}, fixed=["sex"])
        assert made == json.loads(as_json_text({"row": number} | why.to_dict() | {"text": str(why)}))
        assert f"Row {number}\nDecided: {why.decided}" in done.out
    assert read(out)["action"].to_pylist()[17] == beside[0]["decided"]
    assert "decisions.explained.json" in done.out
    answer = json.loads(run(capsys, "decide", *files, "-o", out, "--explain", "3", "--json").out)
    assert answer["explained"][0]["row"] == 3
    for given, words in (
        (["--explain", "300"], "--explain names row 300, and next.parquet has 300 rows, counted from 0"),
        (["--explain", "-1"], "--explain takes row numbers, 0 for the first, got -1"),
        (["--explain", "1", "--fixed", "height"], "--fixed names 'height', which the policy does not use"),
        (["--fixed", "age"], "--fixed is for the changes of --explain"),
        (["--explain", "1", "--engine", "ray"], "--explain reads rows of one file, which a cluster does not"),
    ):
        refused = run(capsys, "decide", *files, "-o", tmp_path / "none.csv", *given)
        assert refused.code == 2
        assert words in refused.err
        assert not (tmp_path / "none.csv").exists()
