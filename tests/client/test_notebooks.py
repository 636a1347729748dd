"""What a live view shows of itself: bounded, and text whatever records hold."""

import re
from decimal import Decimal

from sow.client.notebooks import CELL_CHARS, COLUMNS_SHOWN, ROWS_SHOWN, html_table


def shown(*documents, count=None, title="orders"):
    keys = [str(number) for number in range(len(documents))]
    return html_table(title, keys, documents, len(documents) if count is None else count)


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


def test_documents_without_fields_and_numbers_of_any_size():
    assert cells(shown("a text")) == ["0", "a text"]
    assert cells(shown({"n": 10**30, "d": Decimal("1.10")}))[1:] == [str(10**30), "1.10"]


def test_nothing_is_a_table_without_rows():
    assert cells(shown(), "caption") == ["orders: 0 records"]
