"""Open windows as of some records of the log, in files beside it.

Which windows of a conflated topic are open follows from all changes before, so to send again what
it has sent would begin with the log. With what was open after some record it begins there. These
files are an index of the log, and nothing else: where one is missing, or not as it was written, a
replay begins earlier, and says the same.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from sow.errors import StoreError
from sow.store.files import make_directory, rewrite
from sow.store.layout import HEADER_BYTES, OPEN_WINDOWS, seal, unseal
from sow.store.protocols import OpenWindows, WindowsPlace

log = logging.getLogger("sow")

SUFFIX, UNFINISHED = ".windows", ".unfinished"


def encode_windows(found: OpenWindows) -> bytes:
    """Open windows as bytes."""
    return msgspec.msgpack.encode(found)


def decode_windows(content: bytes) -> OpenWindows:
    """Open windows; raises ValueError."""
    return msgspec.msgpack.decode(content, type=OpenWindows)


class WindowFiles:
    """The files in `directory`, of a log that ends with record `last_seq`. One thread writes."""

    def __init__(self, directory: Path, last_seq: int) -> None:
        self._directory = directory
        found = map(_place_of, directory.glob(f"*{SUFFIX}"))
        self._places = sorted(one for one in found if one is not None)
        # What a repair has taken from the log may be numbered otherwise by now.
        self._drop([one for one in self._places if one.seq > last_seq])
        # A process has died while it wrote one.
        for path in directory.glob(f"*{UNFINISHED}"):
            path.unlink(missing_ok=True)

    @property
    def places(self) -> Sequence[WindowsPlace]:
        """Where some are kept, in order."""
        return self._places

    def put(self, found: OpenWindows) -> None:
        """Keep these, of a record that is durable and later than all others; raises StoreError."""
        place = WindowsPlace(found.seq, found.time_us)
        block, _ = seal(
            OPEN_WINDOWS,
            encode_windows(found),
            seq=found.seq,
            count=len(found.windows),
            ts_us=found.time_us,
        )
        path = self._path(place)
        unfinished = path.with_suffix(UNFINISHED)
        try:
            make_directory(self._directory)
            with rewrite(unfinished) as file:
                file.write(block)
            unfinished.rename(path)
        except OSError as error:
            # The disk may be full: what is there of it takes room from the log.
            with suppress(OSError):
                unfinished.unlink()
            raise StoreError(f"{path} cannot be written: {error.strerror}") from error
        self._places = [*self._places, place]

    def load(self, place: WindowsPlace) -> OpenWindows | None:
        """Those of a place; None where they are kept no more, or are not as they were written."""
        path = self._path(place)
        try:
            block = path.read_bytes()
            unseal(block, OPEN_WINDOWS)
            return decode_windows(block[HEADER_BYTES:])
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            log.warning(
                "%s is left out, and what was sent is computed from an earlier place: %s",
                path,
                error,
            )
            self._places = [one for one in self._places if one != place]
            return None

    def forget(self, before_seq: int) -> None:
        """Keep none that are of earlier records than one."""
        self._drop([one for one in self._places if one.seq < before_seq])

    def _drop(self, gone: Sequence[WindowsPlace]) -> None:
        for place in gone:
            self._path(place).unlink(missing_ok=True)
        if gone:
            self._places = [one for one in self._places if one not in gone]

    def _path(self, place: WindowsPlace) -> Path:
        return self._directory / f"{place.seq}-{place.time_us}{SUFFIX}"


def _place_of(path: Path) -> WindowsPlace | None:
    """The place in a file's name, if it names one."""
    seq, _, time_us = path.stem.partition("-")
    is_place = seq.isascii() and seq.isdigit() and time_us.isascii() and time_us.isdigit()
    return WindowsPlace(int(seq), int(time_us)) if is_place else None
