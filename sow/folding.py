"""Folding: how a topic's queued updates may become fewer (contract §2, S12, S13).

    ConflationPolicy   whether and when
    Match              which queued update is "the same" as a new one; by default of the same record
    Merge, Merger      what the two become; by default the newer state stands
    Placement          where the result goes: in the older one's place, or at the end

`Folding` answers these questions for one topic; who holds a queue, and when it is full, is the
outbox's business (`sow.outbox`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from sow.merging import CachedMerger, make_merger
from sow.messages.base import MessageType
from sow.paths import Path, parse_path, value_at
from sow.topics import BackPressure
from sow.updates import Update, compose

if TYPE_CHECKING:
    from sow.messages.base import Decoder

DISPLACEMENTS_MAX = 8
"""How often an update may be moved to the end before it keeps its place: no key starves."""

Key = tuple[object, ...]
Verdict = Literal["kept current", "kept both"]


class Folding:
    """The back-pressure settings of one topic at work."""

    def __init__(self, settings: BackPressure, message_type: MessageType) -> None:
        self.policy = settings.conflation_policy
        self.appends = settings.placement == "append"
        self.merger: CachedMerger | None = make_merger(settings, message_type)
        self._match: tuple[Path, ...] = tuple(map(parse_path, settings.match))
        self._message_type = message_type
        self._decoder: Decoder | None = message_type.decoder(self._match) if self._match else None

    @property
    def matches_records(self) -> bool:
        """Only updates of one record are folded into each other."""
        return not self._match

    def keys(self, updates: Sequence[Update], by_record: bool) -> list[Key | None]:
        """What each update is matched by; None for one that matches nothing.

        `by_record`: whatever the topic says, match records, because deltas are about one each.
        """
        if self._decoder is None or by_record:
            return [(update.identity,) for update in updates]
        return [self._key(update) for update in updates]

    def _key(self, update: Update) -> Key | None:
        if update.new is None:
            return None
        document = self._message_type.parse(update.new)
        # Text, so that a number and the text that spells it are one, as in a SowKey.
        return tuple(str(value_at(document, path)) for path in self._match)

    def fold(self, current: Update, new: Update) -> Update | Verdict:
        """What two updates that match become."""
        if current.new is None or new.new is None or self.merger is None:
            return compose(current, new) if current.identity == new.identity else new
        body = self.merger.merge(current.new, new.new)
        if body is None:
            return "kept both"
        if body is current.new:
            return "kept current"
        # A merged message is no state of the record: it is told whole.
        folded = compose(current, new) if current.identity == new.identity else new
        return folded if body is new.new else folded._replace(new=body, delta=None)
