"""Room on the disk: whether a change may be taken that will have to be stored.

Asked before anything is changed. Messages need room on the disk as it is, beside what is on its
way there. What helps a full disk (removals make room, and so do consumers that come forward) may
have the reserve that is kept for it. While the disk refuses to write, nothing is taken at all. How
much there is says whoever has the disk; memory is bounded elsewhere (`sow.engine.capacity`).
"""

from collections.abc import Callable, Iterable

from sow.engine.wal import CommitSequencer
from sow.errors import DiskFull, StoreError


class DiskReserve:
    """The door before the disk.

    `has_room` says whether the disk takes so many bytes of messages more, 0 for some, and `takes`
    whether it takes so many out of the reserve; where it takes none for another reason than that it
    is full, `lost` says why. `ledger` knows what is on its way there.
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
        """What the disk said when it refused a write, until it takes one."""
        return self._failure

    def fail(self, failure: StoreError) -> None:
        """The disk refuses to write: refuse all messages with this, deletes too."""
        self._failure = failure

    def recover(self) -> None:
        """The disk takes messages again."""
        self._failure = None

    def check(self) -> None:
        """Raise DiskFull if the disk takes no more messages, or what it says while it fails."""
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
        """What was taken and is not stored yet; takes time for each of it."""
        return sum(entry.size_bytes() for entry in self._ledger.in_flight())

    def check_reserve(self, size_bytes: Callable[[], int]) -> None:
        """Raise DiskFull if not even the reserve has room for so much.

        The size is asked for only when the disk is full.
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
        """Raise DiskFull if these records cannot be removed any more."""
        self.check_reserve(lambda: self.removal_bytes(identities))

    @staticmethod
    def removal_bytes(identities: Iterable[str]) -> int:
        """About how much the removal of these records takes."""
        return sum(len(identity.encode(errors="replace")) for identity in identities)

    def check_failure(self) -> None:
        """Raise what the disk said while it fails."""
        if self._failure is not None:
            # Raised many times: it would gather everybody's traceback.
            raise self._failure.with_traceback(None)
