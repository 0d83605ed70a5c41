"""Files that are written whole or not at all: under another name beside the old one, then put in its place."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["check_folder", "check_target", "placed", "replacing", "together", "write_durably", "write_text", "writing"]

PREFIX = ".gbpl-"  # of what is not finished
UNWRITTEN = "cannot be written"


def check_target(path: Path) -> Path:
    """The file to write (that behind a link); one that cannot be written is refused, before any work."""
    target = Path(os.path.realpath(path))
    folder = target.parent if path.is_symlink() else path.parent
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file that can be replaced; name another")
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}, so {path.name} cannot be written there; make it first")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"the folder {folder} cannot be written to; choose another one")
    return target


def check_folder(out: Path) -> None:
    """Refuse a folder that cannot be written or made, before any work."""
    if os.path.lexists(out) and not out.is_dir():
        raise ValueError(f"{out} is a file; name a folder, or one that does not exist yet")
    if not out.parent.is_dir():
        raise ValueError(f"there is no folder {out.parent}, so {out.name} cannot be made there; make it first")
    place = out if out.is_dir() else out.parent
    if not os.access(place, os.W_OK | os.X_OK):
        raise ValueError(f"the folder {place} cannot be written to; choose another one")


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Errors of the system name the file that was asked for, not a temporary one."""
    try:
        yield
    except OSError as error:
        why = error.strerror or str(error)
        if not why.startswith(UNWRITTEN):
            why = os.strerror(error.errno) if error.errno else why  # pyarrow's own words name the temporary file
            why = f"{UNWRITTEN}: {why}; make room, or choose another place"
        raise OSError(error.errno, why, str(path)) from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` when the block succeeds and is removed when it fails."""
    with writing(path), placed(path) as name:
        yield name


@contextmanager
def placed(path: Path) -> Iterator[Path]:
    """The same for a block that does more than write: errors of the system are raised as they are."""
    target = check_target(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=PREFIX, suffix=path.suffix)
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, target.stat().st_mode if target.exists() else 0o666 & ~_mask())  # mkstemp: the owner alone
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_durably(path: Path, text: str) -> None:
    """Write a text file so that a kill or a power cut at any moment leaves the old one or the new one, whole.

    The temporary file has one name, so that many kills leave one behind, which the next call replaces.
    """
    target = check_target(path)
    new = target.with_name(f"{PREFIX}{target.name}")
    with writing(path):
        with new.open("wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, target)
        if hasattr(os, "O_DIRECTORY"):  # the name is in the folder, which is flushed too where the system can
            folder = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    data = text.encode("utf-8")  # line ends as they are, on every system
    with replacing(path) as name:
        name.write_bytes(data)


@contextmanager
def together(out: Path) -> Iterator[Path]:
    """A folder to write to, whose files go to `out` when the block succeeds: all of them, or none."""
    check_folder(out)
    place = out if out.is_dir() else out.parent
    with writing(out), tempfile.TemporaryDirectory(dir=place, prefix=PREFIX) as name:
        new, old = Path(name) / "new", Path(name) / "old"
        new.mkdir()
        old.mkdir()
        yield new
        _move(new, old, out)


def _move(new: Path, old: Path, out: Path) -> None:
    made, moved = not out.is_dir(), []
    try:
        if made:
            out.mkdir()
        for file in sorted(new.iterdir()):
            target = out / file.name
            if target.exists():
                _keep(target, old / file.name)
            moved.append(target)
            os.replace(file, target)
    except BaseException:
        for target in moved:
            with suppress(OSError):  # the others still go back
                _undo(target, old / target.name)
        if made and out.is_dir():
            out.rmdir()
        raise


def _undo(target: Path, old: Path) -> None:
    if old.exists():
        os.replace(old, target)
    else:
        target.unlink(missing_ok=True)


def _keep(target: Path, old: Path) -> None:
    """Keep the present file under a second name."""
    try:
        os.link(target, old)
    except OSError:  # not every file system has links
        shutil.copy2(target, old)
