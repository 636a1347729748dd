"""How live views show themselves in notebooks: a table of HTML, of what there is at the moment.

Whatever records hold is text there, however it is written. A view may hold a million records, and
one of them a megabyte: what is shown is bounded, and says of how many it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any

import orjson

ROWS_SHOWN = 20
"""As many as fit onto a screen below a cell of code."""
COLUMNS_SHOWN = 20
"""More are wider than any screen."""
CELL_CHARS = 100
"""Of a longer text the beginning says what it is."""
VALUE = "value"
"""The column of documents without fields."""


def html_table(title: str, keys: Iterable[str], documents: Iterable[Any], count: int) -> str:
    """The first of `count` documents, with the SowKeys that they are known by."""
    rows = [*islice(zip(keys, documents, strict=False), ROWS_SHOWN)]
    fields = [(key, _fields(document)) for key, document in rows]
    names = [*dict.fromkeys(name for _, known in fields for name in known)]
    shown = names[:COLUMNS_SHOWN]
    heads = ["sow_key", *shown] + ["…"] * (len(names) > len(shown))
    body = [_row([key, *(_text(known.get(name)) for name in shown)]) for key, known in fields]
    said = f"{count:,} record{'s' * (count != 1)}"
    said += f", the first {len(rows):,}" if len(rows) < count else ""
    head = "".join(f"<th>{escape(_clipped(name))}</th>" for name in heads)
    return (
        f"<table><caption>{escape(_clipped(title))}: {said}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )


def _row(cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<td>{escape(_clipped(cell))}</td>' for cell in cells)}</tr>"


def _fields(document: Any) -> Mapping[str, Any]:
    return document if isinstance(document, Mapping) else {VALUE: document}


def _text(value: Any) -> str:
    """A value as text: an object as JSON, and what is not there as nothing."""
    if value is None:
        return ""
    if isinstance(value, (dict, list, bool)):
        return orjson.dumps(value, default=str).decode(errors="replace")
    return value if isinstance(value, str) else str(value)


def _clipped(text: str) -> str:
    return text if len(text) <= CELL_CHARS else f"{text[:CELL_CHARS]}…"
