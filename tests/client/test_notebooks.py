"""What a live view shows of itself: bounded, and text whatever records hold."""

import asyncio
import re
import sys
from decimal import Decimal

import pytest

from sow.client import tables
from sow.client.tables import (
    CELL_CHARS,
    COLUMNS_SHOWN,
    ROWS_SHOWN,
    ShownTable,
    checked_interval,
    faceted_table,
    refreshing,
    shown_nothing,
    shown_table,
    table_widget,
)
from sow.errors import BadFilter, ClientError


def shown(*documents, count=None, title="orders"):
    keys = [str(number) for number in range(len(documents))]
    number = len(documents) if count is None else count
    return shown_table(title, keys, documents, number).html()


def cells(text, tag="td"):
    return re.findall(f"<{tag}>(.*?)</{tag}>", text)


def test_fields_are_columns_and_records_rows():
    text = shown({"id": 1, "px": 1.5}, {"id": 2, "note": None, "legs": [1, {"a": True}]})
    assert cells(text, "th") == ["sow_key", "id", "px", "note", "legs"]
    assert cells(text) == [
        "0", "1", "1.5", "", "", "1", "2", "", "", "[1,{&quot;a&quot;:true}]",
    ]  # fmt: skip
    assert cells(text, "caption") == ["orders: 2 records"]


def test_what_records_hold_is_text():
    evil = "<script>alert(1)</script>"
    text = shown({evil: evil}, evil, {"b": evil.encode()}, title=evil)
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 5


def test_much_is_shown_in_part_and_that_is_said():
    wide = {f"f{number}": "x" * 1_000_000 for number in range(100)}
    text = shown(*[wide] * 50, count=1_000_000)
    assert cells(text, "caption") == [f"orders: 1,000,000 records, the first {ROWS_SHOWN}"]
    assert len(cells(text, "th")) == COLUMNS_SHOWN + 2
    assert max(map(len, cells(text))) == CELL_CHARS + 1
    assert len(text) < 100_000


def test_records_without_keys_say_how_many_match():
    table = shown_table("orders", None, [{"id": 1}, {"id": 2}], 2, 7)
    assert table == ShownTable("orders: 2 records of 7 that match", ["id"], [["1"], ["2"]])
    assert shown_table("orders", None, [{"id": 1}], 1, 1).caption == "orders: 1 record"


def test_documents_without_fields_and_numbers_of_any_size():
    assert cells(shown("a text")) == ["0", "a text"]
    assert cells(shown({"n": 10**30, "d": Decimal("1.10")}))[1:] == [str(10**30), "1.10"]


def test_nothing_is_a_table_without_rows():
    assert cells(shown(), "caption") == ["orders: 0 records"]


def test_a_widget_shows_the_table_and_what_becomes_of_it():
    there = [ShownTable("orders: 1 record", ["sow_key"], [["1"]])]
    widget = table_widget(lambda _chosen: there[-1])
    assert (widget.caption, widget.rows) == ("orders: 1 record", [["1"]])
    there.append(ShownTable("orders: 0 records", ["sow_key"], []))
    widget.refresh()
    assert (widget.caption, widget.rows) == ("orders: 0 records", [])
    widget.close()


def test_facets_are_the_commonest_values_of_what_is_chosen(monkeypatch):
    monkeypatch.setattr(tables, "FACET_VALUES", 2)
    records = {str(n): {"id": n, "side": "buy", "at": {"city": c}} for n, c in enumerate("AABCA")}
    records["9"] = {"id": 9, "side": "sell"}
    widget = table_widget(lambda chosen: faceted_table("t", records, ["/side", "/at/city"], chosen))
    assert widget.caption == "t: 6 records"
    assert widget.facets == [
        {"field": "/side", "values": [["buy", 5], ["sell", 1]]},
        {"field": "/at/city", "values": [["A", 3], ["B", 1]]},
    ]
    widget.chosen = {"/at/city": "A", "/side": "buy"}
    assert widget.caption == "t: 3 records"
    assert widget.facets[1]["values"] == [["A", 3]]
    widget.chosen = {"/at/city": ""}
    assert [row[0] for row in widget.rows] == ["9"]
    widget.close()


def test_what_is_looked_at_for_facets_is_bounded_and_said(monkeypatch):
    monkeypatch.setattr(tables, "FACET_RECORDS", 3)
    records = {str(n): {"id": n} for n in range(5)}
    table = faceted_table("t", records, ["/id"], {})
    assert table.caption == "t: 3 records; looked at 3 of all"
    assert len(table.facets[0]["values"]) == 3
    with pytest.raises(BadFilter):
        faceted_table("t", records, ["id"], {})


class Drawn:
    """A widget that is closed after so many drawings."""

    def __init__(self, times):
        self.comm, self.drawn, self.times = object(), 0, times

    def refresh(self):
        self.drawn += 1
        self.comm = self.comm if self.drawn < self.times else None


def test_it_is_drawn_again_until_it_is_closed(monkeypatch):
    waited = []

    async def wait_for(never, seconds):
        never.close()
        waited.append(seconds)
        raise TimeoutError

    monkeypatch.setattr(tables.asyncio, "wait_for", wait_for)
    widget = Drawn(times=3)
    asyncio.run(refreshing(widget, 0.5, asyncio.Event()))
    assert (widget.drawn, waited) == (3, [0.5] * 3)


def test_it_is_drawn_once_more_when_the_view_has_ended():
    over = asyncio.Event()
    over.set()
    widget = Drawn(times=3)
    asyncio.run(refreshing(widget, 60, over))
    assert widget.drawn == 1


def test_the_end_of_a_view_is_shown_as_text_and_without_records():
    text = shown_nothing("<orders>", "ended: closed by <an operator>").html()
    assert cells(text, "caption") == ["&lt;orders&gt;: ended: closed by &lt;an operator&gt;"]
    assert cells(text) == cells(text, "th") == []


@pytest.mark.parametrize("interval_s", [0, -1, 0.05, float("nan")])
def test_an_interval_that_is_too_short_is_refused(interval_s):
    with pytest.raises(ClientError, match=r"it must be 0\.1 or more"):
        checked_interval(interval_s)


def test_without_anywidget_it_is_said_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    with pytest.raises(ClientError, match=r"pip install 'sow\[notebook\]'"):
        table_widget(lambda _chosen: ShownTable("", [], []))


def test_the_script_puts_text_into_the_page_as_text():
    assert "innerHTML" not in tables.SCRIPT
    assert tables.SCRIPT.count("textContent") == 4
