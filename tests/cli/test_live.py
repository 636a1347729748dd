import io

import msgspec
from rich.console import Console

from sow.cli.live import LiveTable
from sow.client import Message


def message(c, k, body=b"{}"):
    return Message(c=c, k=k, d=msgspec.Raw(body))


def drawn(height, *messages, terminal=True):
    console = Console(file=io.StringIO(), width=60, height=height, force_terminal=terminal)
    table = LiveTable("orders", console)
    table.show(messages)
    console.print(table.render())
    return console.file.getvalue()


def test_an_update_replaces_the_record_in_its_place():
    text = drawn(9, message("sow", "1", b'{"id":"old"}'), message("p", "1", b'{"id":"new"}'))
    assert "new" in text
    assert "old" not in text


def test_a_record_that_left_focus_is_removed():
    text = drawn(9, message("sow", "1", b'{"id":"gone"}'), message("oof", "1"))
    assert "gone" not in text
    assert "0 records, 2 messages" in text


def test_only_the_rows_there_is_room_for_are_drawn():
    messages = [message("sow", str(at), b'{"id":"row%d"}' % at) for at in range(10)]
    text = drawn(6, *messages)
    assert [f"row{at}" in text for at in (0, 2, 3)] == [True, True, False]
    assert "7 records below" in text


def test_without_a_terminal_everything_is_written():
    messages = [message("sow", str(at), b'{"id":"row%d"}' % at) for at in range(50)]
    assert "row49" in drawn(6, *messages, terminal=False)


def test_a_delta_is_merged_into_its_row():
    delta = Message(c="p", k="1", d=msgspec.Raw(b'{"px":"new"}'), delta=True)
    text = drawn(9, message("sow", "1", b'{"id":"kept","px":"old"}'), delta)
    assert "kept" in text
    assert "new" in text
    assert "old" not in text


def placed(c, k, at):
    return Message(c=c, k=k, at=at, d=msgspec.Raw(b'{"id":"row%s"}' % k.encode()))


def test_the_rows_of_a_live_window_stand_in_their_places():
    text = drawn(
        20, placed("sow", "1", 0), placed("sow", "2", 1), placed("oof", "1", 0),
        placed("p", "3", 0), placed("p", "2", 0), Message(c="gap"), placed("sow", "7", 0),
        placed("p", "8", 0),
    )  # fmt: skip
    assert "row1" not in text
    assert "row3" not in text
    assert text.index("row8") < text.index("row7")
