"""Files that are whole or not there."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from gbpl.runtime.files import clean_up, placed, replacing, together, write_text


def test_text_is_written_all_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    write_text(path, "é\r\n")
    assert path.read_bytes() == "é\r\n".encode()
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "\ud800")
    assert path.read_bytes() == "é\r\n".encode()
    with pytest.raises(ValueError, match="is a folder"):
        write_text(tmp_path, "x")
    with pytest.raises(ValueError, match=r"there is no folder .*; make it first"):
        write_text(tmp_path / "nowhere" / "x.json", "x")
    with pytest.raises(ValueError, match="/dev/null is not a file that can be replaced"):
        write_text(Path("/dev/null"), "x")
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert os.listdir(tmp_path) == ["report.html"]


def test_files_have_the_rights_and_the_link_of_before(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_text(tmp_path / "new.json", "x")
        assert stat.S_IMODE((tmp_path / "new.json").stat().st_mode) == 0o640
    finally:
        os.umask(mask)
    (tmp_path / "new.json").chmod(0o604)
    (tmp_path / "link.json").symlink_to("new.json")
    write_text(tmp_path / "link.json", "y")
    assert (tmp_path / "link.json").is_symlink()
    assert (tmp_path / "new.json").read_text() == "y"
    assert stat.S_IMODE((tmp_path / "new.json").stat().st_mode) == 0o604


def test_a_link_that_leads_nowhere_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link.txt").symlink_to("new.txt")
    write_text(tmp_path / "link.txt", "x")
    assert (tmp_path / "link.txt").is_symlink()
    assert (tmp_path / "new.txt").read_text() == "x"
    (tmp_path / "lost.txt").symlink_to(tmp_path / "nowhere" / "x.txt")
    with pytest.raises(ValueError, match=r"there is no folder .*nowhere, so lost.txt cannot be written there"):
        write_text(tmp_path / "lost.txt", "x")


def test_a_full_disk_is_told_of_the_file_and_not_of_the_temporary_one(tmp_path: Path) -> None:
    def fill(name: Path) -> None:
        raise OSError(28, f"Error writing bytes to file {name}. Detail: [errno 28] No space left on device")

    def whole() -> None:
        with replacing(tmp_path / "a.txt") as name:
            fill(name)

    with pytest.raises(OSError, match="cannot be written: No space left on device; make room, or choose") as caught:
        whole()
    assert caught.value.filename == str(tmp_path / "a.txt")
    assert ".gbpl-" not in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_what_else_fails_in_a_block_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    def read() -> None:
        with placed(tmp_path / "a.txt"):
            raise OSError(5, "the input is broken")

    with pytest.raises(OSError, match="the input is broken"):
        read()
    assert os.listdir(tmp_path) == []


def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "policy.gbpl"
    path.write_text("old")
    path.chmod(0o444)
    with pytest.raises(ValueError, match=r"policy.gbpl is read-only; make it writable, or name another file"):
        write_text(path, "new")

    def both() -> None:
        with together(tmp_path) as stage:
            (stage / "policy.gbpl").write_text("new")
            (stage / "other.txt").write_text("new")

    with pytest.raises(ValueError, match="is read-only"):
        both()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["policy.gbpl"]


KILLED = """
import os, sys
from pathlib import Path
import gbpl.runtime.files as files
step = int(sys.argv[2])
calls = 0
def counted(name):
    whole = getattr(os, name)
    def run(*a, **k):
        global calls
        calls += 1
        if calls > step:
            os.kill(os.getpid(), 9)
        return whole(*a, **k)
    setattr(os, name, run)
for name in ("rename", "replace", "link", "chmod", "fsync"):
    counted(name)
exchange = files._exchanged
def exchanged(*both):
    global calls
    calls += 1
    if calls > step:
        os.kill(os.getpid(), 9)
    return exchange(*both) if sys.argv[3] == "exchange" else False
files._exchanged = exchanged
with files.together(Path(sys.argv[1])) as stage:
    for name in "abc":
        (stage / name).write_text("new")
"""


@pytest.mark.parametrize("how", ["exchange", "renames"])
def test_a_kill_at_any_step_leaves_all_old_or_all_new(how: str, tmp_path: Path) -> None:
    out, seen = tmp_path / "result", set()
    for step in range(40):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()
        for name in (*"abc", "kept"):
            (out / name).write_text("old")
        done = subprocess.run([sys.executable, "-c", KILLED, str(out), str(step), how], check=False)
        clean_up(tmp_path)
        assert os.listdir(tmp_path) == ["result"], "what was left is cleaned up"
        assert sorted(os.listdir(out)) == ["a", "b", "c", "kept"]
        found = {(out / name).read_text() for name in "abc"}
        assert len(found) == 1, f"old and new are mixed after {step} steps"
        assert (out / "kept").read_text() == "old"
        seen |= found
        if done.returncode == 0:
            break
    assert seen == {"old", "new"}
    assert done.returncode == 0


def test_a_folder_in_use_gets_its_files_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a").write_text("old")
    monkeypatch.chdir(tmp_path)
    with together(Path()) as stage:
        (stage / "a").write_text("new")
    assert sorted(os.listdir(tmp_path)) == ["a", "inner"]
    assert Path("a").read_text() == "new"


def test_what_another_process_is_writing_is_left_alone(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.txt") as name:
        write_text(tmp_path / "b.txt", "x")
        assert name.exists()
        name.write_text("y")
    (tmp_path / ".gbpl-of-somebody").write_text("z")
    write_text(tmp_path / "a.txt", "x")
    assert sorted(os.listdir(tmp_path)) == [".gbpl-of-somebody", "a.txt", "b.txt"]


def test_a_durable_write_leaves_the_old_file_whole_until_the_new_one_is(tmp_path, monkeypatch):
    file = tmp_path / "state.json"
    write_text(file, "old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    for _ in range(2):
        with pytest.raises(OSError, match="cannot be written"):
            write_text(file, "new")
    assert file.read_text() == "old"
    monkeypatch.undo()
    write_text(file, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]  # what was left behind went with it
    assert file.read_text() == "new"
