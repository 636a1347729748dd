"""The JSON texts of fields: numbers with all their original digits, and what holds them exactly.

To decode a number is to choose a type for it. If the type is not known yet, or if the text itself
is the value, fields are read as their texts in the message.

A double holds a number if it is that number, or if the number is the shortest text of it: 0.1 is
written for a double and comes back from it. Nothing here is rounded.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation

import msgspec

from sow.core.lossless_numbers import LosslessNumber

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
INT64_CHARS_MAX = len(str(INT64_MIN))
"""Longer ones do not fit, and Python takes its time over very long ones."""
SHORT_NUMBER = 16
"""A number of fewer characters has at most 15 digits, which every double holds."""
WHOLE_TEXT = re.compile(rb"-?(?:0|[1-9][0-9]*)\Z")
NUMBER_TEXT = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?\Z")


def fits_int64(text: bytes) -> bool:
    """Whether a number is a whole one of 64 bits, written without a fraction."""
    return (
        len(text) <= INT64_CHARS_MAX
        and WHOLE_TEXT.match(text) is not None
        and INT64_MIN <= int(text) <= INT64_MAX
    )


def fits_double(text: bytes) -> bool:
    """Whether a double is the number of a text, and not only near it."""
    short = len(text) < SHORT_NUMBER and b"e" not in text and b"E" not in text
    return short or _is_double(text.decode())


def _is_double(text: str) -> bool:
    try:
        double = float(text)
        if repr(double) == text:
            return True
        number = Decimal(text)
        return number in (Decimal(double), Decimal(repr(double)))
    except (InvalidOperation, OverflowError, ValueError):
        return False


def fits_decimal(text: bytes, precision: int, scale: int) -> bool:
    """Whether a number has at most `scale` digits behind the point, and `precision` in all."""
    try:
        _, digits, exponent = Decimal(text.decode()).as_tuple()
    except InvalidOperation:
        return False
    assert isinstance(exponent, int)
    kept = "".join(map(str, digits)).rstrip("0")
    if not kept.lstrip("0"):
        return True
    exponent += len(digits) - len(kept)
    whole_digits = len(kept) + exponent
    return -exponent <= scale and whole_digits <= precision - scale


Texts = list[bytes | None]
"""The JSON texts of a field's values; None where it is absent."""

JSON_NULL = b"null"
NO_TEXT = msgspec.Raw(b"")
members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
"""The texts of a document's fields, by name."""
encode = msgspec.json.Encoder().encode


class FieldTexts:
    """Reads the texts of some fields, the outermost ones, out of documents known to be good."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._decode = None
        # A name that would have to be escaped cannot be one of a struct.
        if all(name.isprintable() and not set(name) & set('"\\') for name in names):
            fields = [(f"f{at}", msgspec.Raw, NO_TEXT) for at in range(len(names))]
            rename = {f"f{at}": name for at, name in enumerate(names)}
            row = msgspec.defstruct("Row", fields, rename=rename, gc=False, omit_defaults=True)
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

    def documents(self, bodies: Sequence[bytes]) -> list[bytes]:
        """Documents of these fields only, in the order of the names, each as it is written."""
        decode = self._decode
        if decode is not None:
            return [encode(decode(body)) for body in bodies]
        wanted = self.names
        documents = map(members, bodies)
        return [encode({name: one[name] for name in wanted if name in one}) for one in documents]


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


def value_within(document: object, names: Sequence[str]) -> object:
    """The same in a document that was read."""
    value = document
    for name in names:
        if isinstance(value, list):
            return value
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


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
