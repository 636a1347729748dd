"""Display of answers and live views in notebooks, as a table or as a widget that refreshes.

All values are shown as text, never as HTML. A view may hold a million records, and one of them a
megabyte: what is shown is bounded, and its caption has the total.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from html import escape
from itertools import islice
from typing import Any, NamedTuple

import orjson

from sow.errors import ClientError

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
function render({ model, el }) {
  const table = document.createElement("table");
  el.append(table);
  function draw() {
    table.replaceChildren();
    table.createCaption().textContent = model.get("caption");
    cells(table.createTHead().insertRow(), "th", model.get("heads"));
    const body = table.createTBody();
    for (const row of model.get("rows")) cells(body.insertRow(), "td", row);
  }
  model.on("change:caption change:heads change:rows", draw);
  draw();
}
export default { render };
"""
"""The script of the widget; it sets values as text only."""


class ShownTable(NamedTuple):
    """A bounded table of texts."""

    caption: str
    heads: list[str]
    rows: list[list[str]]

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
    rows = [[_text(fields.get(name)) for name in shown] for fields in known]
    if keys is not None:
        heads = ["sow_key", *heads]
        rows = [[key, *cells] for key, cells in zip(keys, rows, strict=False)]
    caption = f"{_clipped(title)}: {count:,} record{'s' * (count != 1)}"
    caption += f" of {matches:,} that match" if matches is not None and matches > count else ""
    caption += f", the first {len(rows):,}" if len(rows) < count else ""
    return ShownTable(caption, [*map(_clipped, heads)], rows)


def shown_end(title: str, reason: str) -> ShownTable:
    """An empty table with the reason why a view ended."""
    return ShownTable(f"{_clipped(title)}: ended: {reason}", [], [])


def _text(value: Any) -> str:
    """A value as text: an object as JSON, a missing one as an empty text."""
    if value is None:
        return ""
    if isinstance(value, (dict, list, bool)):
        return _clipped(orjson.dumps(value, default=str).decode(errors="replace"))
    return _clipped(value if isinstance(value, str) else str(value))


def _clipped(text: str) -> str:
    return text if len(text) <= CELL_CHARS else f"{text[:CELL_CHARS]}…"


def table_widget(shown: Callable[[], ShownTable]) -> Any:
    """A widget that shows such a table; its `refresh` shows the current one. Raises ClientError
    without anywidget, which is imported here, on demand."""
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
            widget.caption, widget.heads, widget.rows = shown()

    text = traitlets.Unicode
    traits = {
        "_esm": SCRIPT,
        "caption": text().tag(sync=True),
        "heads": traitlets.List(text()).tag(sync=True),
        "rows": traitlets.List(traitlets.List(text())).tag(sync=True),
        "refresh": refresh,
    }
    # Defined here, because its base class is an optional dependency.
    made: Any = type("TableWidget", (anywidget.AnyWidget,), traits)
    widget = made()
    widget.refresh()
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
