"""`sow watch`: a topic and what becomes of it, as a table or as lines."""

import io
import json
from dataclasses import replace

import msgspec
from rich.console import Console

from sow.cli.commands.watch import LiveTable, write_lines
from sow.client import Message
from tests.cli.conftest import TOPICS
from tests.cli.terminal import Terminal
from tests.edge.serving import Running, configuration


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


def test_watch_writes_a_line_for_each_message(sow, orders):
    orders({"id": 1}, {"id": 2})
    found = rows(sow.ok("watch", "orders", "--count", "2"))
    assert [(row["c"], row["t"], row["d"]) for row in found] == [
        ("sow", "orders", {"id": 1}),
        ("sow", "orders", {"id": 2}),
    ]


def test_watch_as_a_table_without_a_terminal_is_written_at_the_end(sow, orders):
    orders({"id": 1}, {"id": 2})
    out = sow.ok("watch", "orders", "--format", "table", "--count", "2")
    assert out.splitlines()[0] == "orders: 2 records, 2 messages"


def test_watch_points_into_a_bad_filter(sow):
    result = sow("watch", "orders", "--filter", "/id >> 1")
    assert (result.exit_code, result.stderr.endswith("  /id >> 1\n       ^\n")) == (1, True)


def test_watch_from_a_bookmark_reads_the_log(sow, orders):
    orders({"id": 1}, {"id": 2})
    orders({"id": 1, "px": 5})
    lines = rows(sow.ok("watch", "orders", "--bookmark", "0", "--count", "3"))
    assert [line["c"] for line in lines] == ["p", "p", "p"]


def test_watch_takes_a_pattern_a_pace_and_a_selection(sow, orders):
    orders({"id": 1, "px": 5})
    (line,) = rows(
        sow.ok(
            "watch", "^ord", "--count", "1", "--delta", "--oof",
            "--conflation", "100ms", "--select", "/px",
        )
    )  # fmt: skip
    assert (line["t"], line["d"]) == ("orders", {"px": 5})


def test_watch_keeps_to_a_live_window(sow, orders):
    orders({"id": 1, "px": 5}, {"id": 2, "px": 7}, {"id": 3, "px": 6})
    live = ("watch", "orders", "--live", "--order-by", "/px DESC", "--top", "1")
    (line,) = rows(sow.ok(*live, "--skip", "1", "--count", "1"))
    assert (line["d"]["id"], line["at"]) == (3, 0)
    assert sow("watch", "orders", "--live").exit_code == 2
    assert sow("watch", "orders", "--bookmark", "0", "--top", "1").exit_code == 2


def test_a_bookmark_may_name_its_log_and_one_of_another_is_refused(sow, server):
    log = server.get("/v1/status").json["log"]
    seen = server.publish("orders", {"id": 1}).json["bookmark"]
    server.publish("orders", {"id": 2})
    (line,) = rows(sow.ok("watch", "orders", "--bookmark", f"{log}-{seen}", "--count", "1"))
    assert line["d"] == {"id": 2}
    refused = sow("watch", "orders", "--bookmark", "00000000000000bb-1", "--count", "1")
    assert refused.exit_code == 1
    assert f"is of the log 00000000000000bb, and this is the log {log}" in refused.output


def test_a_bookmark_goes_with_neither_deltas_nor_oofs(sow):
    assert sow("watch", "orders", "--bookmark", "0", "--oof").exit_code == 2


def test_a_line_has_what_its_message_has_and_no_more(capfdbinary):
    write_lines([Message("oof", t="orders", k="7", reason="deleted"), Message("gap", exact=False)])
    write_lines([])
    assert [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()] == [
        {"c": "oof", "t": "orders", "k": "7", "reason": "deleted"},
        {"c": "gap", "exact": False},
    ]


def test_a_server_that_goes_and_comes_back_is_followed_again(tmp_path):
    first = Running(configuration(TOPICS), tmp_path)
    first.publish("orders", {"id": 1, "px": 5})
    port, again = int(first.url.rpartition(":")[2]), None
    try:
        with Terminal("watch", "orders", "--url", first.url, columns=40, NO_COLOR="1") as terminal:
            terminal.wait_for(r"(?m)^1 +5")
            first.close()
            again = Running(replace(configuration(TOPICS), port=port), tmp_path)
            again.publish("orders", {"id": 1, "px": 77})
            shown = terminal.wait_for(r"(?m)^1 +77")
            assert max(map(len, shown.splitlines())) <= 40
            terminal.type("\x03")
            code, text = terminal.end()
    finally:
        (again or first).close()
    assert (code, terminal.has_colour, "Traceback" in text) == (130, False, False)


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
