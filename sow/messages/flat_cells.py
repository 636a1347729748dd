"""Records as rows of text cells: columns are top-level fields, nested ones named like /a/b.

Values keep their stored spelling (1.10 stays 1.10); arrays stay JSON text. The name of a nested
field is a JSON pointer (RFC 6901), and so is that of a field whose own name begins with a slash; so
names are unique, and `steps_of` maps a name back to its field.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec

from sow.messages.scalars import ONLY_FIELD

FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
TEXT_DECODER = msgspec.json.Decoder(str)

Cells = dict[str, str]


def cells(record: bytes, whole: Collection[str] = ()) -> Cells:
    """One record, given as JSON text, as text by column; null and absent are both empty.

    Objects in the columns `whole` are not looked into.
    """
    found: Cells = {}
    if record.lstrip().startswith(b"{"):
        _add_fields(found, (), record, whole)
    else:
        found[ONLY_FIELD] = _cell(record)
    return found


def _add_fields(found: Cells, above: tuple[str, ...], text: bytes, whole: Collection[str]) -> None:
    for name, raw in FIELDS.decode(text).items():
        value = bytes(raw).strip()
        column = column_of((*above, name))
        if value.startswith(b"{") and value != b"{}" and column not in whole:
            _add_fields(found, (*above, name), value, whole)
        else:
            found[column] = _cell(value)


def _cell(value: bytes) -> str:
    if value.startswith(b'"'):
        return TEXT_DECODER.decode(value)
    return "" if value == b"null" else value.decode()


def column_of(steps: Sequence[str]) -> str:
    """The name of a field's column; `steps` are the names that lead to it."""
    if len(steps) == 1 and not steps[0].startswith("/"):
        return steps[0]
    return "".join([f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps])


def steps_of(column: str) -> tuple[str, ...]:
    """The names that lead to the field of a column."""
    if not column.startswith("/"):
        return (column,)
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in column[1:].split("/"))


def columns(rows: Iterable[Cells]) -> list[str]:
    """The union of all rows' columns, in the order in which they are met."""
    return list(dict.fromkeys(column for row in rows for column in row))
