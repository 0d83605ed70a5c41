"""Files that are written whole or not at all: under another name beside the old one, then put in its place."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = [
    "check_folder", "check_target", "check_writable", "clean_up", "placed", "replacing", "together", "write_text",
    "writing",
]  # fmt: skip

PREFIX = ".gbpl-"  # of what is not finished
UNWRITTEN = "cannot be written"
TARGET = "target"  # in an unfinished folder: the name of the one it is to replace
AT_FDCWD, EXCHANGE = -100, 2  # of renameat2


def check_target(path: Path) -> Path:
    """The file to write (that behind a link); one that cannot be written is refused, before any work."""
    target = Path(os.path.realpath(path))
    folder = target.parent if path.is_symlink() else path.parent
    if path.is_dir():
        raise ValueError(f"{path} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is not a file that can be replaced; name another")
    check_writable(path)
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}, so {path.name} cannot be written there; make it first")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"the folder {folder} cannot be written to; choose another one")
    return target


def check_writable(path: Path) -> None:
    """Refuse a file that somebody has made read-only: it would be replaced, not written, and so could be."""
    if path.is_file() and not (os.stat(path).st_mode & 0o222 and os.access(path, os.W_OK)):
        raise ValueError(f"{path} is read-only; make it writable, or name another file")


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
    clean_up(target.parent)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=_own_prefix(), suffix=path.suffix)
    os.close(handle)
    try:
        yield Path(name)
        os.chmod(name, target.stat().st_mode if target.exists() else 0o666 & ~_mask())  # mkstemp: the owner alone
        _to_disk(Path(name))
        os.replace(name, target)
        _to_disk(target.parent)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    data = text.encode("utf-8")  # line ends as they are, on every system
    with replacing(path) as name:
        name.write_bytes(data)


def _to_disk(path: Path) -> None:
    """What was written is on the disk before a name leads to it: a crash leaves the old file or the new one, whole."""
    with suppress(OSError):  # folders cannot be opened everywhere
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _own_prefix() -> str:
    """Of what this process has not finished: it says whose it is."""
    return f"{PREFIX}{zlib.crc32(platform.node().encode()):08x}-{os.getpid()}-"


def clean_up(folder: Path) -> None:
    """Remove what processes of this machine that were killed have left in a folder, and finish what they had begun."""
    own = re.compile(rf"{re.escape(PREFIX)}{zlib.crc32(platform.node().encode()):08x}-(\d+)-")
    for left in list(folder.glob(f"{PREFIX}*")) if os.name == "posix" else []:
        match = own.match(left.name)
        if match is None or _alive(int(match[1])):
            continue
        with suppress(OSError):  # another process cleans up too
            if left.is_dir() and (left / TARGET).is_file():
                target = folder / (left / TARGET).read_text(encoding="utf-8")
                if (left / "old").is_dir() and (left / "new").is_dir() and not target.exists():
                    os.rename(left / "new", target)  # killed between two renames
            shutil.rmtree(left) if left.is_dir() else left.unlink()


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # of another user
        return True
    return True


@contextmanager
def together(out: Path) -> Iterator[Path]:
    """A folder to write to, which takes the place of `out` when the block succeeds: all of it at once, or nothing.

    Other files of `out` are kept. Where the folder cannot be replaced (it is in use, or holds folders) its files are,
    one after the other.
    """
    check_folder(out)
    place = Path(os.path.realpath(out))
    whole = _replaceable(place)
    home = place.parent if whole or not place.is_dir() else place
    clean_up(home)
    with writing(out), tempfile.TemporaryDirectory(dir=home, prefix=_own_prefix(), ignore_cleanup_errors=True) as name:
        stage = Path(name)
        new, old = stage / "new", stage / "old"
        new.mkdir()
        yield new
        for file in new.iterdir():
            check_writable(place / file.name)
            if (place / file.name).is_file():
                os.chmod(file, stat.S_IMODE((place / file.name).stat().st_mode))
            _to_disk(file)
        if whole:
            _swap(stage, new, place)
        else:
            old.mkdir()
            _move(new, old, place)
        _to_disk(home)


def _replaceable(place: Path) -> bool:
    """Whether a folder, or its place, can be taken by another one at once."""
    if not os.access(place.parent, os.W_OK | os.X_OK):
        return False
    if not place.exists():
        return True
    here = Path.cwd()
    if place == here or place in here.parents or os.path.ismount(place):
        return False
    return all(entry.is_file() and not entry.is_symlink() for entry in place.iterdir())


def _swap(stage: Path, new: Path, place: Path) -> None:
    """Put the new folder, with the other files of the present one, in its place."""
    (stage / TARGET).write_text(place.name, encoding="utf-8")
    if not place.exists():
        _to_disk(new)
        os.rename(new, place)
        return
    for entry in place.iterdir():
        if not (new / entry.name).exists() and not entry.name.startswith(PREFIX):
            _keep(entry, new / entry.name)
    os.chmod(new, stat.S_IMODE(place.stat().st_mode))
    _to_disk(new)
    if _exchanged(new, place):
        return
    os.rename(place, stage / "old")
    try:
        os.rename(new, place)
    except BaseException:
        os.rename(stage / "old", place)
        raise


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, which Linux can do."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):  # another C library
        return False
    return rename(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), EXCHANGE) == 0


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
