"""Fields of messages: extracted from every message, and computed for every record.

The keys are always extracted, and the fields that indexes and the filters of subscriptions and
conflated topics use, each field as long as one of them uses it. Topics with nothing but keys, as
most of a pattern are, share their state. How fields are extracted is up to the message types.

`Preprocessing` and `Enrichment` compute fields. A published message becomes a record in this order:

    preprocessed ──> its key is read ──> enriched ──> a delta is merged ──> logged and stored

Preprocessing depends on the message alone, so it happens as the message is read
(`PreprocessingDecoder`). Enrichment may depend on the previous record, so it happens when the
record is about to change, where deltas are merged too (`ComputedFields.body`). The result is the
record: it is logged as it is, and never computed a second time.

A value that the message type cannot hold, such as a separator in the value of a FIX field, is NULL.
A value that does not fit the topic's Schema rejects the message; where it is too late for that,
because a part of a large publish has been stored, it is NULL.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, partial

from sow.core.delta import Document, Nulls, merged
from sow.core.paths import Path
from sow.errors import BadMessage, TooLarge
from sow.expressions import NO_TRAITS, Fields, Filter, Known, Trait, compile_fields
from sow.messages import decoder_of
from sow.messages.base import Column, Decoder, MessageType
from sow.messages.declared import DeclaredFields
from sow.messages.json import json_text

WATCHED_MAX = 1024
"""Fields that filters of subscriptions may have extracted from every message: some two microseconds
each for a batch, which all publishers pay for."""
NOTHING_WATCHED: Counter[Path] = Counter()
"""Shared by all topics without extracted fields beside the keys, and never added to."""


class ExtractedFields:
    """The fields that are extracted from a topic's messages: `keys`, and those that were added."""

    __slots__ = ("_counts", "_keys", "paths")

    def __init__(self, keys: tuple[Path, ...]) -> None:
        self._keys = keys
        self._counts = NOTHING_WATCHED
        self.paths = keys
        """All extracted fields. A thread may be reading, so they are replaced, never changed."""

    def add(self, paths: Iterable[Path]) -> None:
        """Extract these fields of every message as it comes in, because a filter or index needs
        them."""
        if self._counts is NOTHING_WATCHED:
            self._counts = Counter()
        for path in paths:
            if path not in self._counts and path not in self._keys:
                # Not rebuilt from scratch: there may be a thousand.
                self.paths += (path,)
            self._counts[path] += 1

    def remove(self, paths: Iterable[Path]) -> None:
        """Undo one `add` of the same paths."""
        known = len(self._counts)
        for path in paths:
            self._counts[path] -= 1
            if not self._counts[path]:
                del self._counts[path]
        if len(self._counts) < known:
            self.paths = tuple(dict.fromkeys((*self._keys, *self._counts)))

    def check_room(self, name: str, condition: Filter, others: Collection[Path] = ()) -> None:
        """Raise TooLarge if a subscription with this filter to the topic `name` would extract too
        many fields. `others` are fields that may be extracted besides: for patterns that have not
        been met."""
        known = len(self._counts)
        if known + len(condition.paths) + len(others) <= WATCHED_MAX:
            return
        watched = len({*self._counts, *condition.paths, *others})
        if watched > known:
            check_watched(name, watched)

    def check(self, wanted: Iterable[Path]) -> None:
        """Assert what is always true; `wanted` are fields that are known to be needed."""
        assert set(self.paths) == {*self._keys, *self._counts}, "other fields than those needed"
        assert set(wanted) <= self._counts.keys()
        assert all(count > 0 for count in self._counts.values())


def check_watched(whose: str, count: int) -> None:
    """Raise TooLarge if the filters of subscriptions to `whose` may not have `count` fields
    extracted."""
    if count > WATCHED_MAX:
        raise TooLarge(
            f"the filters of all subscriptions to {whose} would name {count} fields, and "
            f"{WATCHED_MAX} are the most; name fewer, or such as others name"
        )


DEFINITIONS_MAX = 1024
"""Lists of constructions that are cached compiled, for all topics of a pattern and all its
copies."""


class ComputedFields:
    """Computes `fields` of messages of one type with fields, and merges deltas."""

    def __init__(self, message_type: MessageType, fields: Fields) -> None:
        self._type = message_type
        self._fields = fields
        self._of_previous = fields.of_previous
        self.ahead: dict[bytes, Document] = {}
        """Long messages that `parse` has parsed in steps of their own, until they are merged."""

    @property
    def traits(self) -> tuple[Trait, ...]:
        """What they use of a message beside its fields."""
        return self._fields.traits

    def body(
        self,
        body: bytes,
        previous: bytes | None = None,
        nulls: Nulls | None = None,
        declared: DeclaredFields | None = None,
        fitted: bool = False,
        known: Known = NO_TRAITS,
    ) -> bytes:
        """The message with its computed fields; the same bytes where nothing is computed.

        `previous` is the record as it was before. With `nulls` the message is a delta, in which an
        explicit null means this, and the resulting record is returned. `known` has the `traits` of
        the message. Raises BadMessage for a result that does not fit what is `declared`; if
        `fitted`, it is NULL instead.
        """
        document = self._document(body)
        needs_previous = nulls is not None or self._of_previous
        before = None if previous is None or not needs_previous else self._document(previous)
        holds = None if declared is None else partial(self._holds, declared, fitted)
        made = self._fields.apply(document, before, holds, known)
        try:
            return self._written(body, document, made, before, nulls)
        except BadMessage:
            holds = partial(self._holds, declared, True)
            made = self._fields.apply(document, before, holds, known)
            return self._written(body, document, made, before, nulls)

    def _written(
        self,
        body: bytes,
        document: Document,
        made: Document,
        before: Document | None,
        nulls: Nulls | None,
    ) -> bytes:
        result = made if nulls is None else merged(before or {}, made, nulls)
        # Where a delta is the whole record, the bytes that came are the record.
        if made is document and (nulls is None or (before is None and result == document)):
            return body
        return self._type.encode(result)

    def parse(self, body: bytes) -> None:
        """Parse a message now, for later."""
        self.ahead[body] = self._document(body)

    def _document(self, body: bytes) -> Document:
        if self.ahead and body in self.ahead:
            return self.ahead[body]
        document = self._type.parse(body)
        assert isinstance(document, dict)
        return document

    def _holds(self, declared: DeclaredFields | None, fitted: bool, field: Document) -> bool:
        """Whether a message can hold a field; raises BadMessage, unless `fitted`, where only the
        Schema rejects it."""
        try:
            text = self._type.encode(field)
        except BadMessage:
            return False
        if declared is not None:
            try:
                declared.check([text])
            except BadMessage:
                if not fitted:
                    raise
                return False
        return True


class PreprocessingDecoder:
    """Reads what `decoder` does, of messages whose fields are computed first. `known` gives the
    traits of a message, if the fields use any."""

    def __init__(
        self,
        message_type: MessageType,
        fields: ComputedFields,
        decoder: Decoder,
        known: Callable[[bytes], Known] | None = None,
    ) -> None:
        self._checking = decoder_of(message_type, ())
        self._known = known
        self._fields = fields
        self._decoder = decoder

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column per path of bodies that `read` has returned."""
        return self._decoder.columns(bodies)

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """The messages with their computed fields, and their columns; raises BadMessage."""
        checked, _ = self._checking.read(bodies)
        if self._known is None:
            made = list(map(self._fields.body, checked))
        else:
            made = [self._fields.body(body, known=self._known(body)) for body in checked]
        return made, self._decoder.columns(made)


@lru_cache(maxsize=DEFINITIONS_MAX)
def computed_fields(message_type: MessageType, texts: tuple[str, ...]) -> ComputedFields:
    """The computed fields of these texts, possibly none; shared by equal topics. Raises what
    `compile_fields` does."""
    return ComputedFields(message_type, compile_fields(texts, text_of=_json_text))


def _json_text(container: object) -> str | None:
    """An object or a list as the text of a field; None where JSON has no way to write it."""
    try:
        return json_text(container).decode()
    except BadMessage:
        return None
