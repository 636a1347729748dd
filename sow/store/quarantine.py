"""A file put in the place of another, which is set aside: nothing is deleted, nothing half there.

A file here is a checkpoint, or the directory of a journal. The new one is made beside the old one
under a temporary name, and renamed when it is complete: after an interruption between these steps
the next run starts again, or finishes what was complete.
"""

from pathlib import Path

from sow.store.environment import sync_directory
from sow.store.journal import DATA_FILE, NEWEST_FILE
from sow.store.secure_files import close_to_others


def begin(path: Path) -> Path:
    """Where the new file is to be made; nothing is there that an interrupted work has left."""
    fresh = path.with_name(path.name + ".repairing")
    for name in (DATA_FILE, NEWEST_FILE):
        (fresh / name).unlink(missing_ok=True) if fresh.is_dir() else None
    _clear_lock(fresh)
    if fresh.is_dir():
        fresh.rmdir()
    fresh.unlink(missing_ok=True)
    return fresh


def put_in_place(path: Path, fresh: Path) -> Path | None:
    """Put `fresh`, which is complete, in the place of `path`; returns where the old one is now, if
    there was one."""
    _clear_lock(fresh)
    fresh.rename(_complete(path))
    sync_directory(path.parent)
    return finish(path)


def is_unfinished(path: Path) -> bool:
    """Whether a new file is complete that `put_in_place` has not put in the place of `path`."""
    return _complete(path).exists()


def finish(path: Path) -> Path | None:
    """Put what is complete in the place of `path`; returns where the old one is now, if there was
    one."""
    aside = set_aside(path) if path.exists() else None
    _complete(path).rename(path)
    sync_directory(path.parent)
    return aside


def set_aside(path: Path) -> Path:
    """Give a file a free name beside its own, closed to others; returns it."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    close_to_others(path)
    path.rename(aside)
    sync_directory(path.parent)
    return aside


def _complete(path: Path) -> Path:
    return path.with_name(path.name + ".repaired")


def _clear_lock(fresh: Path) -> None:
    """Remove what LMDB leaves beside a file that is closed."""
    (fresh / "lock.mdb").unlink(missing_ok=True) if fresh.is_dir() else None
    fresh.with_name(fresh.name + "-lock").unlink(missing_ok=True)
