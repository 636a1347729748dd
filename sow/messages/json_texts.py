"""The JSON texts of fields: numbers with all their original digits.

To decode a number is to choose a type for it. If the type is not known yet, or if the text itself
is the value, fields are read as their texts in the message.
"""

import base64
import json
from collections.abc import Sequence

import msgspec

from sow.core.lossless_numbers import LosslessNumber

Texts = list[bytes | None]
"""The JSON texts of a field's values; None where it is absent."""

JSON_NULL = b"null"
NO_TEXT = msgspec.Raw(b"")
members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""The texts of a document's fields, by name."""


class FieldTexts:
    """Reads the texts of some fields, the outermost ones, out of documents known to be good."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._decode = None
        # A name that would have to be escaped cannot be one of a struct.
        if all(name.isprintable() and not set(name) & set('"\\') for name in names):
            fields = [(f"f{at}", msgspec.Raw, NO_TEXT) for at in range(len(names))]
            rename = {f"f{at}": name for at, name in enumerate(names)}
            row = msgspec.defstruct("Row", fields, rename=rename, gc=False)
            self._decode = msgspec.json.Decoder(row).decode

    def __call__(self, bodies: Sequence[bytes]) -> list[Texts]:
        """For each name the texts, one for each body; absent ones are None, nulls texts."""
        if self._decode is None:
            documents = list(map(members, bodies))
            return [
                [bytes(one[name]) if name in one else None for one in documents]
                for name in self.names
            ]
        rows = list(map(self._decode, bodies))
        found: list[Texts] = []
        for at in range(len(self.names)):
            field = f"f{at}"
            texts = [getattr(row, field) for row in rows]
            found.append([None if text is NO_TEXT else bytes(text) for text in texts])
        return found


def text_within(text: bytes | None, names: Sequence[str]) -> bytes | None:
    """The text of a field of a field: `names` are followed through objects.

    At an array on the way the search ends with it, since a name does not select an element.
    """
    for name in names:
        if text is None or text[:1] == b"[":
            return text
        if text[:1] != b"{":
            return None
        found = members(text).get(name)
        text = None if found is None else bytes(found)
    return text


def json_text(value: object) -> bytes:
    """The JSON text of a value as Python has it; bytes are in base64, and numbers keep their
    digits."""
    return _with_digits(value) if _has_digits(value) else _text(value)


def _text(value: object) -> bytes:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain)
    return text.encode("utf-8", "replace")


def _has_digits(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_digits, value.values()))
    return (
        any(map(_has_digits, value))
        if isinstance(value, list)
        else isinstance(value, LosslessNumber)
    )


def _with_digits(value: object) -> bytes:
    if isinstance(value, LosslessNumber):
        return value.text.encode()
    if isinstance(value, dict):
        fields = [b"%b:%b" % (_text(name), _with_digits(one)) for name, one in value.items()]
        return b"{%b}" % b",".join(fields)
    if isinstance(value, list):
        return b"[%b]" % b",".join(map(_with_digits, value))
    return _text(value)


def _plain(value: object) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
