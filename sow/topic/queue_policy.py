"""Queue policy: how a topic's queued updates may become fewer (docs/semantics.md, Rules 12 and 13).

    ConflationPolicy   whether and when
    Match              which queued update a new one replaces; by default that of the same record
    Merge, Merger      what the two become; by default the newer state stays
    Placement          where the result goes: in the older one's position, or at the end

`QueuePolicy` has these settings for one topic; the queue itself, and when it is full, is up to the
outbox (`sow.streaming.outbox.outbox`).

A merge of two matching messages is either a list of operations on fields (`<Merge>`: the newer
message, but with some fields summed, kept, counted …) or a callable of the user's (`<Merger>`).
Merged pairs are cached, so that a thousand sessions whose queues hold the same two messages cost
one merge.

A merged body has the number of messages behind it in each field that is counted. So that this holds
for the first one too, every message is made a *single* before it is merged: the same message with
counts of one. Two bodies then merge alike, whether they are messages or merged already, and every
engine (a queue, a window, Spark) gets the same counts.
"""

import importlib
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from functools import lru_cache, partial
from math import isfinite
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from sow.core.definitions import BackPressure, ConflatedTopic, Definition, Merge, Operation
from sow.core.delta import merged, same
from sow.core.keys import key_text
from sow.core.paths import Path, Scalar, Value, parse_path, value_at
from sow.errors import BadMessage, ConfigError
from sow.expressions.values import as_number
from sow.messages.base import MessageType
from sow.messages.documents import ONLY_FIELD, OneValue
from sow.topic.batch import Update, compose

PAIRS_KEPT_MAX = 10_000
"""Merges that are cached, so that each pair is merged once for all sessions. Sessions meet a pair
within moments, so the oldest need no special treatment."""

Callback = Callable[[Any, Any], Any]


class Merger(Protocol):
    """Merges two bodies, which are singles or merged already. `counts`: singles differ from
    messages."""

    counts: bool
    errors: int
    """How often it has failed; then the newer message stays, or both."""

    def merge(self, current: bytes, new: bytes) -> bytes | None:
        """`current`, `new` (the same objects), another body, or None: keep both."""
        ...

    def single(self, body: bytes) -> bytes:
        """The form of one message that merging starts from; itself where nothing is counted."""
        ...


class FieldMerger:
    """Merges documents field by field; fields without an operation take the newer value."""

    def __init__(self, message_type: MessageType, merges: Iterable[Merge]) -> None:
        self._type = message_type
        self._merges = [(parse_path(merge.field), merge.operation) for merge in merges]
        self._counted = [path for path, operation in self._merges if operation == "count"]
        self.counts = bool(self._counted)
        self.errors = 0
        """How often a message could not hold a result."""

    def merge(self, current: bytes, new: bytes) -> bytes | None:
        """The newer message with the operations' results; None if it cannot hold one of them."""
        before, after = self._type.parse(current), self._type.parse(new)
        assert isinstance(before, dict)
        assert isinstance(after, dict)
        try:
            for path, operation in self._merges:
                value = FIELD_OPERATIONS[operation](_scalar(before, path), _scalar(after, path))
                if value is not None:
                    after = merged(after, _nested(path, value))
            return self._type.encode(after)
        except (BadMessage, OverflowError):
            # A sum that is no whole number, where a record has nothing else, or beyond doubles.
            self.errors += 1
            return None

    def single(self, body: bytes) -> bytes:
        """The message with counts of one."""
        if not self.counts:
            return body
        document = self._type.parse(body)
        assert isinstance(document, dict)
        for path in self._counted:
            document = merged(document, _nested(path, 1))
        return self._type.encode(document)


class CallableMerger:
    """Merges by a callable that gets two parsed messages and returns one of four things.

    If it raises, or returns what cannot be a message, nothing is merged: both messages stay. Its
    arguments are its own: changed in place and returned, one is a merged message.
    """

    counts = False

    def __init__(self, message_type: MessageType, callback: Callback) -> None:
        self._type = message_type
        self._is_one_value = isinstance(message_type, OneValue)
        self._callback = callback
        self.errors = 0
        """How often the callable failed."""

    def _given(self, body: bytes) -> Any:
        """The callable's argument: the document, or the text or number of a type with one value."""
        document: Any = self._type.parse(body)
        return document[ONLY_FIELD] if self._is_one_value else document

    def merge(self, current: bytes, new: bytes) -> bytes | None:
        """The callable's result; bodies that it returns unchanged are recognised."""
        before, after = self._given(current), self._given(new)
        try:
            result = self._callback(before, after)
            if result is None:
                return None
            for given, body in ((before, current), (after, new)):
                if result is given and same(given, self._given(body)):
                    return body
            return self._type.encode({ONLY_FIELD: result} if self._is_one_value else result)
        except Exception:  # a user's code: whatever it raises must not stop the server
            self.errors += 1
            return None

    def single(self, body: bytes) -> bytes:
        """The message itself."""
        return body


class MergedPair(NamedTuple):
    """The result of a pair: one of its own two, another body, or (None) both stay."""

    body: bytes | None
    is_current: bool
    is_new: bool


class CachedMerger:
    """Caches the results of pairs of messages."""

    def __init__(self, merger: Merger) -> None:
        self.merger = merger
        self.hits = 0
        self.misses = 0
        self._pairs: dict[tuple[bytes, bytes], MergedPair] = {}
        self._singles: dict[bytes, bytes] = {}

    def merge(self, current: bytes, new: bytes) -> bytes | None:
        """As the merger does; the same pair is merged once."""
        verdict = self._pairs.get((current, new))
        if verdict is None:
            self.misses += 1
            if len(self._pairs) >= PAIRS_KEPT_MAX:
                self._pairs.clear()
            result = self.merger.merge(current, new)
            verdict = MergedPair(result, result is current, result is new)
            self._pairs[current, new] = verdict
        else:
            self.hits += 1
        return current if verdict.is_current else new if verdict.is_new else verdict.body

    def single(self, body: bytes) -> bytes:
        """As the merger does; the same body is made a single once."""
        if not self.merger.counts:
            return body
        found = self._singles.get(body)
        if found is None:
            if len(self._singles) >= PAIRS_KEPT_MAX:
                self._singles.clear()
            found = self._singles[body] = self.merger.single(body)
        return found


def make_merger(settings: BackPressure, message_type: MessageType) -> CachedMerger | None:
    """The merger of a topic's configuration, or None; raises ConfigError."""
    if settings.merger is not None:
        return CachedMerger(CallableMerger(message_type, load_callable(settings.merger)))
    if settings.merges:
        return CachedMerger(FieldMerger(message_type, settings.merges))
    return None


def load_callable(name: str) -> Callback:
    """The callable called ``package.module:name``; raises ConfigError."""
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{name} cannot be loaded: {error}; write package.module:callable, and put the "
            "package where Python finds it",
            element="Merger",
        ) from None
    if not callable(found):
        raise ConfigError(f"{name} is not callable; name a function", element="Merger")
    callback: Callback = found
    return callback


def _scalar(document: object, path: Path) -> Value:
    """The field's value; a list as it is in the document, which `concat` takes whole."""
    found: Any = document
    for step in path.steps:
        found = found.get(step) if isinstance(found, dict) else None
    return found if isinstance(found, list) else value_at(document, path)


def _nested(path: Path, value: object) -> dict[str, Any]:
    for step in reversed(path.steps):
        value = {step: value}
    assert isinstance(value, dict)
    return value


def _number(value: Value) -> int | float | None:
    """The number that a value is, or that its text spells (FIX has nothing but text)."""
    if isinstance(value, str):
        return as_number(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _like(value: int | float, *models: Value) -> Scalar:
    """Text where the fields were text."""
    return str(value) if any(isinstance(model, str) for model in models) else value


def _sum(current: Value, new: Value) -> Value:
    one, other = _number(current), _number(new)
    if one is None or other is None:
        return new if one is None else current
    total = one + other
    if not isfinite(total):
        raise OverflowError("beyond doubles")
    return _like(total, current, new)


def _extreme(better: Callable[[Any, Any], bool], current: Value, new: Value) -> Value:
    """The better of two comparable values, the first of equals; null is ignored."""
    one, other = _rank(current), _rank(new)
    if one is None or other is None:
        return new if one is None else current
    if one[0] != other[0]:
        return current if one[0] < other[0] else new
    return current if better(one[1], other[1]) else new


def _rank(value: Value) -> tuple[int, object] | None:
    """The rank of a value: numbers stand before all texts, and those before booleans.

    So the least or the greatest of several never depends on the order of folding.
    """
    number = _number(value)
    if number is not None:
        return 0, number
    return (1 + isinstance(value, bool), value) if isinstance(value, str | bool) else None


def _first(current: Value, new: Value) -> Value:
    return new if current is None else current


def _latest(_current: Value, new: Value) -> Value:
    return new


def _count(current: Value, new: Value) -> Value:
    """Both are singles or were merged, so their counts have the numbers of messages behind them."""
    return sum(number for value in (current, new) if isinstance(number := _number(value), int))


def _concat(current: Value, new: Value) -> Value:
    if current is None or new is None:
        return new if current is None else current
    if isinstance(current, list) or isinstance(new, list):
        parts = (current, new)
        return [one for part in parts for one in (part if isinstance(part, list) else [part])]
    return f"{current}{new}" if isinstance(current, str) and isinstance(new, str) else new


FIELD_OPERATIONS: dict[Operation, Callable[[Value, Value], Value]] = {
    "latest": _latest,
    "sum": _sum,
    "min": partial(_extreme, operator.le),
    "max": partial(_extreme, operator.ge),
    "first": _first,
    "count": _count,
    "concat": _concat,
}


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
