"""Disk reserve: whether a change that has to be stored may be accepted.

Checked before anything is changed. Messages need free space beside what is being written. What
helps a full disk (removals free space, and so do consumers that advance) may use the reserve that
is kept for it. While the disk refuses to write, nothing is accepted. The store knows how much space
there is; memory is bounded elsewhere (`sow.engine.capacity`).
"""

from collections.abc import Callable, Iterable

from sow.engine.wal import CommitSequencer
from sow.errors import DiskFull, StoreError


class DiskReserve:
    """Admission control of writes.

    `has_room` returns whether the disk takes so many more bytes of messages, 0 for some, and
    `takes` whether the reserve takes so many; where the disk takes none although it is not full,
    `lost` returns why. `ledger` knows what is being written.
    """

    def __init__(
        self,
        ledger: CommitSequencer,
        has_room: Callable[[int], bool],
        takes: Callable[[int], bool],
        lost: Callable[[], StoreError | None] = lambda: None,
    ) -> None:
        self._ledger = ledger
        self._has_room = has_room
        self._takes = takes
        self._lost = lost
        self._failure: StoreError | None = None

    @property
    def is_full(self) -> bool:
        """The disk takes no more messages; removals may have the reserve."""
        return not self._has_room(0)

    @property
    def failure(self) -> StoreError | None:
        """The error of the last write, until one succeeds."""
        return self._failure

    def fail(self, failure: StoreError) -> None:
        """A write failed: refuse all messages with this error, deletes too."""
        self._failure = failure

    def recover(self) -> None:
        """Writes succeed again."""
        self._failure = None

    def check(self) -> None:
        """Raise DiskFull if the disk takes no more messages, or its error while it fails."""
        if self._failure is not None:
            self.check_failure()
        if not self._has_room(0):
            raise self._refused("the disk is full; nothing was stored, reads are still served")

    def _refused(self, full: str) -> StoreError:
        return self._lost() or DiskFull(full)

    def check_whole(self, size_bytes: int) -> None:
        """Raise DiskFull if messages of so many bytes do not all fit."""
        if not self._has_room(self.on_the_way_bytes() + size_bytes):
            raise self._refused(
                f"the disk has no room for {size_bytes} bytes: nothing was stored; send less at "
                "once, or free some space"
            )

    def on_the_way_bytes(self) -> int:
        """Bytes accepted and not stored yet; takes time in proportion to the entries."""
        return sum(entry.size_bytes() for entry in self._ledger.in_flight())

    def check_reserve(self, size_bytes: Callable[[], int]) -> None:
        """Raise DiskFull if not even the reserve has room for so much.

        `size_bytes` is called only when the disk is full.
        """
        self.check_failure()
        if self._has_room(0):
            return
        if not self._takes(self.on_the_way_bytes() + size_bytes()):
            raise self._refused(
                "the disk is full, and so is its reserve: nothing was changed; free some space, "
                "or delete less at once"
            )

    def spares(self, size_bytes: int) -> bool:
        """Whether the disk has room for so much, or its reserve has."""
        return self._has_room(0) or self._takes(self.on_the_way_bytes() + size_bytes)

    def check_removal(self, identities: Iterable[str]) -> None:
        """Raise DiskFull if there is no room to log the removal of these records."""
        self.check_reserve(lambda: self.removal_bytes(identities))

    @staticmethod
    def removal_bytes(identities: Iterable[str]) -> int:
        """About how many bytes the removal of these records takes."""
        return sum(len(identity.encode(errors="replace")) for identity in identities)

    def check_failure(self) -> None:
        """Raise the error of the disk while it fails."""
        if self._failure is not None:
            # Raised many times: it would collect a traceback each time.
            raise self._failure.with_traceback(None)
