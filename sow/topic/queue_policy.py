"""Queue policy: how a topic's queued updates may become fewer (docs/semantics.md, Rules 12 and 13).

    ConflationPolicy   whether and when
    Match              which queued update a new one replaces; by default that of the same record
    Merge, Merger      what the two become; by default the newer state stays
    Placement          where the result goes: in the older one's position, or at the end

`QueuePolicy` has these settings for one topic; the queue itself, and when it is full, is up to the
outbox (`sow.streaming.outbox.outbox`).
"""

from collections.abc import Sequence
from dataclasses import fields
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal

from sow.core.definitions import BackPressure, ConflatedTopic, Definition
from sow.core.keys import key_text
from sow.core.paths import Path, Value, parse_path, value_at
from sow.messages.base import MessageType
from sow.topic.merging import CachedMerger, make_merger
from sow.topic.updates import Update, compose

if TYPE_CHECKING:
    from sow.messages.base import Decoder

DISPLACEMENTS_MAX = 8
"""How often an update may be moved to the end before it keeps its position: no key starves."""

POLICIES_MAX = 256
"""Combinations of settings that are cached: a hundred thousand topics of a pattern have one."""

Key = tuple[object, ...]
Verdict = Literal["kept current", "kept both"]


def key_of(values: Sequence[Value], identity: str) -> Key:
    """The key by which an update is matched, from its values of the match fields. An update that
    lacks one of them matches only its own record."""
    texts = tuple(map(key_text, values))
    return (None, identity) if None in texts else texts


class QueuePolicy:
    """The back-pressure settings of one topic at runtime, or of all topics with the same ones
    (`queue_policy`)."""

    __slots__ = ("_decoder", "_match", "_message_type", "_of_copy", "appends", "merger", "policy")

    def __init__(self, settings: BackPressure, of_copy: bool, message_type: MessageType) -> None:
        self.policy = settings.conflation_policy
        self.appends = settings.placement == "append"
        self.merger: CachedMerger | None = make_merger(settings, message_type)
        self._match: tuple[Path, ...] = tuple(map(parse_path, settings.match))
        self._of_copy = of_copy
        self._message_type = message_type
        self._decoder: Decoder | None = message_type.decoder(self._match) if self._match else None

    def keys(self, updates: Sequence[Update], by_record: bool) -> list[Key]:
        """The key of each update; updates with equal keys match.

        `by_record`: match records whatever the topic's settings, because the subscriber needs each.
        """
        if self._decoder is None or by_record:
            return [(update.identity,) for update in updates]
        return [self._key(update) for update in updates]

    def _key(self, update: Update) -> Key:
        document = self._message_type.parse(update.new or b"")
        return key_of([value_at(document, path) for path in self._match], update.identity)

    def _counted(self, update: Update, body: bytes) -> bytes:
        """A body as it is merged. A conflated copy's body has its counts already."""
        if self.merger is None or update.merged or self._of_copy:
            return body
        return self.merger.single(body)

    def fold(self, current: Update, new: Update, merges: bool = True) -> Update | Verdict:
        """Fold two matching updates; without `merges` the newer state stays."""
        folded = compose(current, new)
        if current.new is None or new.new is None or self.merger is None or not merges:
            return folded
        older, newer = self._counted(current, current.new), self._counted(new, new.new)
        body = self.merger.merge(older, newer)
        if body is None:
            return "kept both"
        if body is older:
            return "kept current"
        # A merged message is no state of the record, so it is sent whole.
        return folded if body is newer else folded._replace(new=body, delta=None, merged=True)


def queue_policy(definition: Definition, message_type: MessageType) -> QueuePolicy:
    """The policy of a definition. Topics with the same settings and message type share it, unless
    they merge: each counts its own merges."""
    of_copy = isinstance(definition, ConflatedTopic)
    if definition.merger is not None or definition.merges:
        return QueuePolicy(definition, of_copy, message_type)
    return _shared(_values(definition), of_copy, message_type)


@lru_cache(maxsize=POLICIES_MAX)
def _shared(values: tuple[Any, ...], of_copy: bool, message_type: MessageType) -> QueuePolicy:
    settings = BackPressure(**dict(zip(_NAMES, values, strict=True)))
    return QueuePolicy(settings, of_copy, message_type)


_NAMES = [one.name for one in fields(BackPressure)]
_values = attrgetter(*_NAMES)
