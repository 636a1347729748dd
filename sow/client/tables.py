"""Records as tables, and whatever notebooks show: a live view is a widget there that refreshes.

Arrow, pandas and polars are imported on demand. In notebooks all values are shown as text, never as
HTML. A view may hold a million records, and one of them a megabyte: what is shown is bounded, and
its caption has the total.

Topics, plans and events as the server describes them, single messages, and how far that has come
which publishes or follows: dictionaries and lists stay what they are, and have HTML besides.
Nothing is requested to show an object, and whatever it holds is bounded text.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import orjson

from sow.core.paths import parse_path, value_at
from sow.errors import ClientError, SowError

SOW_KEY = "sow_key"
"""The column with the SowKey of each row."""
NUMBERS: Mapping[str, Callable[[str], int | float]] = {"int64": int, "double": float}
"""Converts a message that is one number, which comes as text, to a value of its column."""


def arrow() -> Any:
    """pyarrow, which only tables need; raises ClientError if it is not installed."""
    try:
        import pyarrow
    except ModuleNotFoundError as error:
        raise ClientError(
            f"{error.name} is not installed; pip install 'sow[arrow]', or read records as they come"
        ) from None
    return pyarrow


def to_arrow(records: Sequence[Any], schemas: Sequence[Any]) -> Any:
    """Documents as a pyarrow Table, with the schemas that the server gives for their topics.

    A column that topics have with different types holds JSON texts. Records that are not objects
    are in the column ``value``: numbers if the schema says so, otherwise texts or bytes.
    """
    arrow()
    from sow.messages.arrow import joined_schema, table_of_documents

    schema = joined_schema(schemas)
    if not any(isinstance(record, dict) for record in records) and records:
        number = NUMBERS.get(str(schema.field("value").type)) if "value" in schema.names else None
        values = records if number is None else list(map(number, records))
        if number is None:
            schema = joined_schema([])
        return table_of_documents([{"value": value} for value in values], schema)
    rows = [one if isinstance(one, dict) else {"value": one} for one in records]
    return table_of_documents(rows, schema)


class KeptTable:
    """Converts records to tables repeatedly, and each record only when it has changed.

    It keeps the last table and its documents: the row of a document that is still the same object
    is copied by Arrow. Documents are immutable: a change replaces them (`sow.core.delta.merged`).
    """

    def __init__(self) -> None:
        self._documents: dict[str, Any] = {}
        self._rows: Any = None

    def of(self, records: Mapping[str, Any], schemas: Sequence[Any]) -> Any:
        """These records by SowKey as a pyarrow Table, in their order, by the schemas of their
        topics; `sow_key` is the first column."""
        pa = arrow()
        self._rows = self._made(records, schemas)
        self._documents = dict(records)
        rows = self._rows
        if SOW_KEY in rows.column_names:
            rows = rows.drop_columns([SOW_KEY])
        return rows.add_column(0, SOW_KEY, pa.array([*records], pa.string()))

    def _made(self, records: Mapping[str, Any], schemas: Sequence[Any]) -> Any:
        import numpy as np  # which comes with pyarrow

        known = self._documents
        new = [document for key, document in records.items() if known.get(key) is not document]
        made = to_arrow(new, schemas)
        if self._rows is None or not made.schema.equals(self._rows.schema, check_metadata=True):
            return made if len(new) == len(records) else to_arrow([*records.values()], schemas)
        if not new and [*records] == [*known]:
            return self._rows
        place = {key: at for at, key in enumerate(known)}
        coming = iter(range(len(known), len(known) + len(new)))
        places = (
            place[key] if known.get(key) is document else next(coming)
            for key, document in records.items()
        )
        chosen = np.fromiter(places, np.int64, len(records))
        return arrow().concat_tables([self._rows, made]).take(chosen)


class AnswerTable:
    """Converts an answer's rows, JSON texts, to a table, with the columns that were sent with them.

    If the server sent no columns, or only the declared ones, they are requested once; if it does
    not answer, the types are inferred from the rows.
    """

    def __init__(
        self,
        topic: str,
        rows: Sequence[bytes],
        sent: str | None,
        request: Callable[[], Awaitable[Any]],
    ) -> None:
        """`sent` are the columns that the server sent, `request` requests the schema."""
        self.topic = topic
        self._rows = rows
        self._sent = sent
        self._request = request
        self._schema: Any = None

    @property
    def is_settled(self) -> bool:
        """Whether the columns are known."""
        return bool(self._known().all)

    def _known(self) -> Any:
        arrow()
        from sow.messages.arrow import SentColumns, read_sent

        if self._schema is not None:
            return SentColumns(True, [])
        return SentColumns(False, []) if self._sent is None else read_sent(self._sent)

    async def settle(self) -> None:
        """Request the columns if they are not known."""
        if not self.is_settled:
            with contextlib.suppress(SowError):
                self._schema = await self._request()

    def table(self, records: Sequence[Any]) -> Any:
        """The pyarrow Table of the rows, which are `records` decoded."""
        known = self._known()
        from sow.messages.arrow import table_of_rows

        schema = known.schema() if self._schema is None else self._schema
        return table_of_rows(self._rows, records, schema)


def from_stream(content: bytes) -> Any:
    """The pyarrow Table in an Arrow stream."""
    return arrow().ipc.open_stream(content).read_all()


def to_polars(table: Any) -> Any:
    """An Arrow table as a polars DataFrame; raises ClientError without polars."""
    try:
        import polars
    except ModuleNotFoundError:
        raise ClientError(
            "polars is not installed; pip install 'sow[polars]', or use to_arrow"
        ) from None
    return polars.from_arrow(table)


def to_pandas(table: Any) -> Any:
    """An Arrow table as a pandas DataFrame; raises ClientError without pandas.

    Integers and booleans have the nullable types of pandas, whether a column has nulls or not:
    otherwise pandas would convert integers with nulls to doubles, which hold 53 bits.
    """
    try:
        import pandas
    except ModuleNotFoundError:
        raise ClientError(
            "pandas is not installed; pip install 'sow[pandas]', or use to_arrow"
        ) from None
    pa = arrow()
    with_gaps = {pa.int64(): pandas.Int64Dtype(), pa.bool_(): pandas.BooleanDtype()}
    return table.to_pandas(types_mapper=with_gaps.get)


ROWS_SHOWN = 20
"""As many as fit on a screen below a cell of code."""
COLUMNS_SHOWN = 20
"""More are wider than any screen."""
CELL_CHARS = 100
"""The beginning of a longer text identifies it."""
VALUE = "value"
"""The column of documents without fields."""
INTERVAL_S_MIN = 0.1
"""More refreshes cannot be seen, and each is sent to a browser."""
SCRIPT = """
function cells(row, tag, texts) {
  for (const text of texts) {
    const cell = document.createElement(tag);
    cell.textContent = text;
    row.append(cell);
  }
}
function choice(model, field, text, count) {
  const button = document.createElement("button");
  const isChosen = model.get("chosen")[field] === text;
  button.textContent = `${text || "none"}: ${count}`;
  button.setAttribute("aria-pressed", isChosen);
  button.onclick = () => {
    const { [field]: _was, ...others } = model.get("chosen");
    model.set("chosen", isChosen ? others : { ...others, [field]: text });
    model.save_changes();
  };
  return button;
}
function render({ model, el }) {
  const boxes = document.createElement("div");
  const table = document.createElement("table");
  el.append(boxes, table);
  function drawFacets() {
    boxes.replaceChildren();
    for (const { field, values } of model.get("facets")) {
      const box = document.createElement("fieldset");
      box.append(Object.assign(document.createElement("legend"), { textContent: field }));
      box.append(...values.map(([text, count]) => choice(model, field, text, count)));
      boxes.append(box);
    }
  }
  function draw() {
    table.replaceChildren();
    table.createCaption().textContent = model.get("caption");
    cells(table.createTHead().insertRow(), "th", model.get("heads"));
    const body = table.createTBody();
    for (const row of model.get("rows")) cells(body.insertRow(), "td", row);
  }
  model.on("change:caption change:heads change:rows", draw);
  model.on("change:facets change:chosen", drawFacets);
  drawFacets();
  draw();
}
export default { render };
"""
"""The script of the widget; it sets values as text only."""


Chosen = Mapping[str, str]
"""The values of fields, as text, that a widget's user has chosen."""


class ShownTable(NamedTuple):
    """A bounded table of texts; `facets` are its fields whose values can be chosen, each with its
    commonest values and their counts."""

    caption: str
    heads: list[str]
    rows: list[list[str]]
    facets: Sequence[Mapping[str, Any]] = ()

    def html(self) -> str:
        """The same as HTML."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.heads)
        rows = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in self.rows)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return (
            f"<table><caption>{escape(self.caption)}</caption>"
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        )


def shown_table(
    title: str,
    keys: Iterable[str] | None,
    documents: Iterable[Any],
    count: int,
    matches: int | None = None,
) -> ShownTable:
    """The first of `count` documents, with their SowKeys if given. `matches` is the number of
    records that match, if the documents are a page of them."""
    known = [
        document if isinstance(document, Mapping) else {VALUE: document}
        for document in islice(documents, ROWS_SHOWN)
    ]
    names = [*dict.fromkeys(name for fields in known for name in fields)]
    shown = names[:COLUMNS_SHOWN]
    heads = shown + ["…"] * (len(names) > len(shown))
    rows = [[short_text(fields.get(name)) for name in shown] for fields in known]
    if keys is not None:
        heads = ["sow_key", *heads]
        rows = [[key, *cells] for key, cells in zip(keys, rows, strict=False)]
    caption = f"{_clipped(title)}: {count:,} record{'s' * (count != 1)}"
    caption += f" of {matches:,} that match" if matches is not None and matches > count else ""
    caption += f", the first {len(rows):,}" if len(rows) < count else ""
    return ShownTable(caption, [*map(_clipped, heads)], rows)


FACET_RECORDS = 10_000
"""Records whose values are counted each time: some 20 ms."""
FACET_VALUES = 10
"""The values that are shown of each field: the commonest."""


def faceted_table(
    title: str, records: Mapping[str, Any], facets: Sequence[str], chosen: Chosen
) -> ShownTable:
    """The first of those records that have the `chosen` values, and the values that they have of
    the fields `facets`, which are paths."""
    paths = {field: parse_path(field) for field in (*facets, *chosen)}

    def text_of(document: Any, field: str) -> str:
        return short_text(value_at(document, paths[field]))

    found = {
        key: document
        for key, document in islice(records.items(), FACET_RECORDS)
        if all(text_of(document, field) == text for field, text in chosen.items())
    }
    counts = {
        field: Counter(text_of(document, field) for document in found.values()) for field in facets
    }
    shown = shown_table(title, found, found.values(), len(found))
    if len(records) > FACET_RECORDS:
        shown = shown._replace(caption=f"{shown.caption}; looked at {FACET_RECORDS:,} of all")
    made = [
        {"field": field, "values": [[*one] for one in count.most_common(FACET_VALUES)]}
        for field, count in counts.items()
    ]
    return shown._replace(facets=made)


def shown_nothing(title: str, reason: str) -> ShownTable:
    """An empty table with the reason why a view shows nothing."""
    return ShownTable(f"{_clipped(title)}: {reason}", [], [])


def short_text(value: Any) -> str:
    """The beginning of a value as text: an object as JSON, a missing one as an empty text."""
    if value is None:
        return ""
    if isinstance(value, (dict, list, tuple, bool)):
        return _clipped(orjson.dumps(value, default=str).decode(errors="replace"))
    return _clipped(value if isinstance(value, str) else str(value))


def _clipped(text: str) -> str:
    return text if len(text) <= CELL_CHARS else f"{text[:CELL_CHARS]}…"


def table_widget(shown: Callable[[Chosen], ShownTable]) -> Any:
    """A widget that shows such a table, of what its user has chosen; its `refresh` shows the
    current one. Raises ClientError without anywidget, which is imported here, on demand."""
    try:
        import anywidget
        import traitlets
    except ModuleNotFoundError:
        raise ClientError(
            "anywidget is not installed; pip install 'sow[notebook]', or show the view itself"
        ) from None

    def refresh(widget: Any) -> None:
        """Show the current table; unchanged parts are not sent again."""
        with widget.hold_sync():
            found = shown(widget.chosen)
            widget.caption, widget.heads, widget.rows = found.caption, found.heads, found.rows
            widget.facets = [*found.facets]

    text = traitlets.Unicode
    traits = {
        "_esm": SCRIPT,
        "caption": text().tag(sync=True),
        "heads": traitlets.List(text()).tag(sync=True),
        "rows": traitlets.List(traitlets.List(text())).tag(sync=True),
        "facets": traitlets.List().tag(sync=True),
        "chosen": traitlets.Dict().tag(sync=True),
        "refresh": refresh,
    }
    # Defined here, because its base class is an optional dependency.
    made: Any = type("TableWidget", (anywidget.AnyWidget,), traits)
    widget = made()
    widget.refresh()
    widget.observe(lambda _change: widget.refresh(), "chosen")
    return widget


async def refreshing(widget: Any, interval_s: float, over: asyncio.Event) -> None:
    """Refresh a widget every so many seconds until it is closed, and once more when the view is
    `over`, to show the reason."""
    while widget.comm is not None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), interval_s)
        widget.refresh()
        if over.is_set():
            return


def checked_interval(interval_s: float) -> float:
    """The seconds between two refreshes; raises ClientError if they are too few."""
    if not interval_s >= INTERVAL_S_MIN:
        raise ClientError(f"interval_s is {interval_s}; it must be {INTERVAL_S_MIN} or more")
    return interval_s


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
