"""What notebooks show of what is not a table of records: topics, plans and events as the server
describes them, single messages, and how far that has come which publishes or follows.

Dictionaries and lists stay what they are, and have HTML besides. Nothing is requested to show an
object, and whatever it holds is bounded text (`sow.client.tables`).
"""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, ClassVar

from sow.client.tables import ROWS_SHOWN, ShownTable, short_text, shown_table

NOTHING: Sequence[object] = (None, "", (), [], {})
"""Values that are left out."""


def fields_html(title: str, fields: Mapping[str, Any]) -> str:
    """The first fields that have a value, one a row, below a title."""
    there = ((name, value) for name, value in fields.items() if value not in NOTHING)
    rows = [[short_text(name), short_text(value)] for name, value in islice(there, ROWS_SHOWN + 1)]
    if len(rows) > ROWS_SHOWN:
        rows[ROWS_SHOWN:] = [["…", ""]]
    return ShownTable(short_text(title), [], rows).html()


class ShownDict(dict[str, Any]):
    """A dictionary of the server's, called `title` where a notebook shows it as a table."""

    def __init__(self, title: str, fields: Mapping[str, Any]) -> None:
        super().__init__(fields)
        self.title = title
        self._fields = fields

    def __missing__(self, name: str) -> Any:
        return self._fields[name]  # which says of what server it is

    def _repr_html_(self) -> str:
        return fields_html(self.title, self)


class ShownPlan(ShownDict):
    """The plan of a query: its terms are the rows."""

    def _repr_html_(self) -> str:
        terms, said = self.get("terms", []), self.get("why") or [self.get("advice", "")]
        shown = shown_table(self.title, None, terms, len(terms))
        return shown._replace(caption=f"{self.title}: {'; '.join(map(short_text, said))}").html()


class ShownList(list[Any]):
    """A list of the server's dictionaries, called `title` where a notebook shows it as a table."""

    def __init__(self, title: str, items: list[Any]) -> None:
        super().__init__(items)
        self.title = title

    def _repr_html_(self) -> str:
        return shown_table(self.title, None, self, len(self)).html()


class ShownState:
    """An object some of whose attributes notebooks show."""

    _shown: ClassVar[tuple[str, ...]]
    """Their names."""

    def _repr_html_(self) -> str:
        return fields_html(type(self).__name__, {name: getattr(self, name) for name in self._shown})
