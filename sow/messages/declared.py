"""Declared fields: messages are validated by the types in a topic's `<Schema>`.

Incoming messages of a topic with a Schema are read through this module; the decoder of a topic
without one is not wrapped. A field that is absent or null is valid, and undeclared fields are not
checked. So a delta is validated by its own fields: the others of its record were validated before.

Records that are older than the Schema are not validated: they are kept and shown as they are until
they are published again. Only a typed column cannot hold such a value; the error of a query for it
names the record (`sow.messages.arrow`).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache

from sow.core.definitions import Declared
from sow.core.paths import Path, parse_path
from sow.errors import BadMessage, clipped
from sow.messages.base import Column, Decoder, MessageType
from sow.messages.json import Json
from sow.messages.json_texts import JSON_NULL, FieldTexts, Texts, json_text, text_within
from sow.messages.value_types import ValueType, from_text, value_type

SCHEMAS_MAX = 256
"""Schemas that are kept ready, some kilobytes each."""
TextsOf = Callable[[Sequence[bytes]], Sequence[Texts]]
"""Gives for each declared field the JSON texts of its values, one for each body."""


class DeclaredFields:
    """The declared fields of messages of one type."""

    def __init__(self, kind: MessageType, declared: Sequence[Declared]) -> None:
        self.paths = tuple(parse_path(one.path) for one in declared)
        self.types = tuple(value_type(one.type) for one in declared)
        self.texts = self._reader(kind)

    def _reader(self, kind: MessageType) -> TextsOf:
        if isinstance(kind, Json):
            return JsonTexts(self.paths)
        return DocumentTexts(kind, self.paths, self.types)

    def check(self, bodies: Sequence[bytes]) -> None:
        """Raise BadMessage with the index of the first message that does not fit, and the field."""
        wrong: list[tuple[int, Path, ValueType, bytes]] = []
        for path, kind, texts in zip(self.paths, self.types, self.texts(bodies), strict=True):
            fits = kind.fits
            for index, text in enumerate(texts):
                if text is not None and text != JSON_NULL and not fits(text):
                    wrong.append((index, path, kind, text))
                    break
        if wrong:
            index, path, kind, text = min(wrong, key=lambda found: found[0])
            value = clipped(text[:400].decode("utf-8", "replace"))
            raise BadMessage(
                f"message {index}: {path} is {value}, and its type in the Schema is {kind.name}: "
                f"{kind.about}",
                index=index,
                field=str(path),
            )


@lru_cache(maxsize=SCHEMAS_MAX)
def declared_fields(kind: MessageType, declared: tuple[Declared, ...]) -> DeclaredFields:
    """The declarations of a Schema, shared by the topics of a pattern."""
    return DeclaredFields(kind, declared)


class JsonTexts:
    """The texts of fields of JSON documents."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._outer = FieldTexts(list(dict.fromkeys(path.steps[0] for path in paths)))
        self._paths = paths

    def __call__(self, bodies: Sequence[bytes]) -> list[Texts]:
        """For each path the texts, one for each body."""
        found = dict(zip(self._outer.names, self._outer(bodies), strict=True))
        return [
            [text_within(text, path.steps[1:]) for text in found[path.steps[0]]]
            if len(path.steps) > 1
            else found[path.steps[0]]
            for path in self._paths
        ]


class DocumentTexts:
    """The same of messages of other types: their values as JSON has them."""

    def __init__(
        self, kind: MessageType, paths: Sequence[Path], types: Sequence[ValueType]
    ) -> None:
        self._parse = kind.parse
        self._from_text = getattr(kind, "has_only_texts", False)
        self._fields = list(zip(paths, types, strict=True))

    def __call__(self, bodies: Sequence[bytes]) -> list[Texts]:
        """For each path the texts, one for each body."""
        documents = list(map(self._parse, bodies))
        return [[self._text(one, path, kind) for one in documents] for path, kind in self._fields]

    def _text(self, document: object, path: Path, kind: ValueType) -> bytes | None:
        value: object = document
        for name in path.steps:
            if isinstance(value, list):
                break
            value = value.get(name) if isinstance(value, dict) else None
        if value is None:
            return None
        if self._from_text and isinstance(value, str):
            read = from_text(value, kind)
            if read is not None:
                return read
        return json_text(value)


class JudgingDecoder:
    """A decoder of what arrives, which takes only what fits."""

    def __init__(self, decoder: Decoder, declared: DeclaredFields) -> None:
        self._decoder = decoder
        self._declared = declared

    def columns(self, bodies: Sequence[bytes]) -> list[Column]:
        """One column for each path, of bodies that were taken."""
        return self._decoder.columns(bodies)

    def read(self, bodies: Sequence[bytes]) -> tuple[list[bytes], list[Column]]:
        """The bodies as they are to be stored, and their columns; raises BadMessage."""
        stored, columns = self._decoder.read(bodies)
        self._declared.check(stored)
        return stored, columns
