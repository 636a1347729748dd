"""Only a change moves: what happened to a batch of records of one topic, as columns.

A change is (record, old, new). No old: it was inserted; no new: it left. One batch holds one
kind: all records have a new state, or all of them left for the same reason. Deliveries,
conflation, indexes and out-of-focus messages are all read off these columns.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Reason = Literal["match", "deleted", "expired", "entitlement"]


@dataclass(slots=True)
class Changes:
    """Columns of equal length. `slots` are places in the topic's table, valid while routed.

    `news` is None when the records left; `reason` then says why, and `partings` are the bodies
    that made them leave (reason ``match`` only: the state that no longer matches). `stood` are the
    places in the topic's order that records had before, where they may have got others.
    """

    topic: str
    identities: Sequence[str]
    slots: Sequence[int]
    olds: Sequence[bytes | None]
    news: Sequence[bytes] | None
    seqs: Sequence[int]
    ts_us: Sequence[int]
    reason: Reason | None = None
    partings: Sequence[bytes] | None = None
    stood: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.identities)

    def come_from(self, stood: Sequence[int]) -> None:
        """Set where in the topic's order records were before; new ones where they are."""
        self.stood = stood
