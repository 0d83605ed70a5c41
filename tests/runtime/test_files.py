"""Files that are whole or not there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from gbpl.runtime.files import placed, replacing, write_durably, write_text


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


def test_a_durable_write_leaves_the_old_file_whole_until_the_new_one_is(tmp_path, monkeypatch):
    file = tmp_path / "state.json"
    write_durably(file, "old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    for _ in range(2):
        with pytest.raises(OSError, match="cannot be written"):
            write_durably(file, "new")
    assert file.read_text() == "old"
    monkeypatch.undo()
    write_durably(file, "new")
    assert [path.name for path in tmp_path.iterdir()] == ["state.json"]  # what was left behind went with it
    assert file.read_text() == "new"
