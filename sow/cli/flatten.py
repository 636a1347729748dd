"""Records as rows of text cells: columns are top-level fields, nested ones named like /a/b.

Values keep the spelling they are stored with (1.10 stays 1.10); arrays stay JSON text.
"""

from collections.abc import Iterable

import msgspec

from sow.messages.scalars import ONLY_FIELD

FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
TEXT_DECODER = msgspec.json.Decoder(str)

Cells = dict[str, str]


def cells(record: bytes) -> Cells:
    """One record, given as JSON text, as text by column; null and absent are both empty."""
    found: Cells = {}
    if record.lstrip().startswith(b"{"):
        _add_fields(found, "", record)
    else:
        found[ONLY_FIELD] = _cell(record)
    return found


def _add_fields(found: Cells, parent: str, text: bytes) -> None:
    for name, raw in FIELDS.decode(text).items():
        value = bytes(raw).strip()
        column = f"{parent}/{name}" if parent else name
        if value.startswith(b"{") and value != b"{}":
            _add_fields(found, column if parent else f"/{name}", value)
        else:
            found[column] = _cell(value)


def _cell(value: bytes) -> str:
    if value.startswith(b'"'):
        return TEXT_DECODER.decode(value)
    return "" if value == b"null" else value.decode()


def columns(rows: Iterable[Cells]) -> list[str]:
    """The union of all rows' columns, in the order in which they are met."""
    return list(dict.fromkeys(column for row in rows for column in row))
