"""`sow query` and `sow watch`: an answer as a table or for programs, once or as it changes.

`sow consume`: lines of messages, each acknowledged once it is written.
"""

import csv
import io
import json
import os
import re
import sys
from dataclasses import replace

import msgspec
import pytest
from rich.console import Console

from sow.cli.commands import query as module
from sow.cli.commands.query import LiveTable, as_table, write_lines
from sow.client import Message
from tests import forks
from tests.cli.conftest import TOPICS
from tests.cli.terminal import Terminal
from tests.edge.serving import Running, configuration, served
from tests.ports import free_port


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_table_has_the_union_of_fields(sow, orders):
    orders({"id": 1, "a": {"b": 2}}, {"id": 2, "c": "x"})
    result = sow("query", "orders")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["id", "/a/b", "c"],
        ["1", "2"],
        ["2", "x"],
    ]
    assert result.stderr.startswith("orders: 2 of 2 records, by scan, bookmark ")


def test_a_misspelt_field_is_named_for_people(sow, orders):
    orders({"id": 1, "symbol": "IBM"})
    said = "sow: no record has /symbl; did you mean /symbol?\n"
    words = ("--filter", "/symbl = 'IBM'")
    assert sow("query", "orders", *words).stderr.startswith(said)
    assert sow("query", "orders", *words, "--format", "csv").stderr == said
    assert sow("query", "orders", *words, "--json").stderr == ""
    assert said[5:] in sow.ok("query", "orders", *words, "--explain")
    count = ("--filter", "/symbl IS NULL", "--count", "1")
    assert sow("watch", "orders", *count, "--format", "ndjson").stderr == said
    assert sow("watch", "orders", *count, "--json").stderr == ""
    assert said[5:] in sow("watch", "orders", *count, "--format", "table").stdout


def test_json_is_an_array(sow, orders):
    assert json.loads(sow.ok("query", "orders", "--json")) == []
    orders({"id": 1}, {"id": 2})
    assert json.loads(sow.ok("query", "orders", "--json")) == [{"id": 1}, {"id": 2}]


def test_csv_has_a_header_and_quotes(sow, orders):
    orders({"id": 1, "t": 'a,"b"\nc'}, {"id": 2})
    read = list(csv.reader(io.StringIO(sow.ok("query", "orders", "--format", "csv"))))
    assert read == [["id", "t"], ["1", 'a,"b"\nc'], ["2", ""]]


def test_records_are_filtered_ordered_and_paged(sow, orders):
    orders(*({"id": number} for number in range(9)))
    requested = ("--filter", "/id > 3", "--order-by", "/id DESC", "--skip", "1", "--top", "2")
    found = rows(sow.ok("query", "orders", "--format", "ndjson", *requested))
    assert found == [{"id": 7}, {"id": 6}]


def test_a_record_is_queried_by_the_values_of_its_key(sow, orders, server):
    orders({"id": 1}, {"id": "a,b", "n": 2})
    assert rows(sow.ok("query", "orders", "--key", "1", "--format", "ndjson")) == [{"id": 1}]
    assert "2" in sow.ok("query", "orders", "--key", '"a,b"', "--filter", "/n = 2")
    assert "rows touched: 1" in sow.ok("query", "orders", "--key", "1", "--explain")
    for words, said in (
        (("--key", "7"), "sow: topic orders has no such record: 'key=7'"),
        (("--key", "1,2"), "write 1 value"),
    ):
        refused = sow("query", "orders", *words)
        assert (refused.exit_code, said in refused.stderr) == (1, True), refused.stderr
    server.publish("pairs", {"a": "x", "b": {"c": 2}})
    assert json.loads(sow.ok("query", "pairs", "--key", "x,2", "--json"))[0]["b"] == {"c": 2}


def test_explain_names_the_terms(sow, orders):
    orders({"id": 1})
    explained = json.loads(sow.ok("query", "orders", "--filter", "/id = 1", "--explain", "--json"))
    assert explained["terms"][0]["expression"] == "/id = 1"
    assert "rows touched: 1" in sow.ok("query", "orders", "--filter", "/id = 1", "--explain")


def test_a_terminal_is_safe_from_what_records_hold(sow, orders):
    orders({"id": "\x1b[2J"})
    assert "\x1b" not in sow.ok("query", "orders")


def test_a_bad_filter_is_pointed_at(sow):
    result = sow("query", "orders", "--filter", "/id >> 1")
    assert result.exit_code == 1
    assert result.stderr.endswith("\n  /id >> 1\n       ^\n")


def test_an_unknown_topic_gets_the_nearest_name(sow):
    for command in ("query", "watch", "publish"):
        result = sow(command, "ordres", input='{"id":1}')
        assert (result.exit_code, result.stderr) == (
            1,
            "sow: no topic 'ordres'; did you mean orders?\n",
        )


def test_only_selected_fields_are_shown(sow, orders):
    orders({"id": 1, "px": 1, "qty": 5})
    assert rows(sow.ok("query", "orders", "--select", "/id,/px", "--format", "ndjson")) == [
        {"id": 1, "px": 1}
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [("plain", "plain"), ("ring\a", "ring\\x07"), ("up\x1b[A", "up\\x1b[A"), ("ä€", "ä€")],
)
def test_a_cell_shows_what_moves_the_cursor_instead_of_doing_it(text, shown):
    table = as_table([{"a": text}, {"b": "2"}], 80)
    assert [column.header.plain for column in table.columns] == ["a", "b"]
    assert [cell.plain for cell in table.columns[0].cells] == [shown, ""]


def test_a_table_is_laid_out_of_what_there_is_room_for():
    table = as_table([{f"f{at}": "x" * 1_000_000 for at in range(1000)}], 80)
    assert len(table.columns) == 10
    assert {len(cell.plain) for column in table.columns for cell in column.cells} == {81}
    assert table.caption == "990 more fields do not fit: choose by --select"


WIDE = {"note": "a long text of somebody's", "a": "1", "b": "2", "c": "3", "id": "key-7"}
NARROW = [
    (60, "id     note                       a  b  c"),
    (30, "id     note            a  b  c"),
    (24, "id     note      a  b  c"),
    (20, "id     note     a  b"),
    (10, "id"),
    (4, "id"),
]


@pytest.mark.parametrize(("width", "head"), NARROW)
def test_what_reports_records_apart_is_the_last_to_give_way(width, head):
    console = Console(width=width, file=io.StringIO())
    console.print(as_table([WIDE, WIDE], width, ["id"]))
    lines = [line.rstrip() for line in console.file.getvalue().splitlines()]
    assert lines[0] == head
    assert lines[1].split()[0] == ("key-7" if width > 4 else "key…")


def test_a_terminal_shows_keys_first_and_says_what_it_has_no_room_for(server, orders):
    orders({**{f"f{at}": "some long text" for at in range(20)}, "id": 7})
    with Terminal("query", "orders", "--url", server.url, columns=60) as terminal:
        code, text = terminal.end()
    assert code == 0
    lines = text.splitlines()
    assert lines[1].split()[:2] == ["id", "f0"]
    assert lines[2].split()[0] == "7"
    assert re.fullmatch(r"\d+ more fields do not fit: choose by --select", lines[3].strip())


def test_rows_of_groups_are_sent_apart_by_what_they_are_grouped_by(server, orders):
    orders({"id": 1, "a": {"b": "x"}}, {"id": 2, "a": {"b": "y"}})
    words = ("--projection", "COUNT(1) AS /n, /a/b", "--grouping", "/a/b", "--url", server.url)
    with Terminal("query", "orders", *words) as terminal:
        _, text = terminal.end()
    assert text.splitlines()[1].split() == ["/a/b", "n"]


def test_whose_reader_has_gone_ends_in_silence(server, orders):
    orders(*({"id": at, "text": "x" * 100} for at in range(2000)))
    for style in ("table", "json", "ndjson", "csv"):
        read, write = os.pipe()
        os.close(read)
        command = [sys.executable, "-m", "sow.cli", "query", "orders", "--format", style]
        process = forks.started(
            [*command, "--url", server.url], stdout=write, stderr=forks.PIPE, text=True
        )
        os.close(write)
        said = process.communicate(timeout=60)[1]
        assert process.returncode == 0, said
        assert [line for line in said.splitlines() if "records, by" not in line] == []


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


def test_watch_of_a_pattern_shows_keys_first_and_advice(sow, orders):
    orders({"qty": 1, "id": 7})
    named = ("watch", "^order", "--format", "table", "--count", "1")
    out = sow.ok(*named, "--filter", "/idd = 1 OR /id = 7").splitlines()
    assert out[:2] == ["^order: 1 record, 1 message", "no record has /idd; did you mean /id?"]
    assert out[2].split() == ["id", "qty"]


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


@pytest.fixture
def published(sow, tmp_path):
    """Publishes documents to the topic orders; returns the bookmark of the last."""

    def publish(*documents):
        path = tmp_path / "documents.json"
        path.write_text("\n".join(map(json.dumps, documents)))
        return json.loads(sow.ok("publish", "orders", str(path), "--json"))["bookmark"]

    return publish


def test_a_query_is_of_a_moment(sow, published):
    bookmark = published({"id": 1, "n": 1})
    published({"id": 1, "n": 2})
    found = rows(sow.ok("query", "orders", "--as-of", bookmark, "--format", "ndjson"))
    assert found == [{"id": 1, "n": 1}]
    refused = sow("query", "orders", "--as-of", "999999")
    assert (refused.exit_code, "bookmark 999999 is not kept" in refused.stderr) == (1, True)


def test_a_watch_from_a_bookmark_says_who_left(sow, published):
    bookmark = published({"id": 1}, {"id": 2})
    sow.ok("delete", "orders", "--filter", "/id = 1")
    lines = rows(sow.ok("watch", "orders", "--bookmark", bookmark, "--oof", "--count", "1"))
    assert [(line["c"], line["reason"]) for line in lines] == [("oof", "deleted")]
    assert int(lines[0]["bm"]) > int(bookmark)


def test_a_line_has_what_its_message_has_and_no_more(capfdbinary):
    write_lines([Message("oof", t="orders", k="7", reason="deleted"), Message("gap", exact=False)])
    write_lines([])
    assert [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()] == [
        {"c": "oof", "t": "orders", "k": "7", "reason": "deleted"},
        {"c": "gap", "exact": False},
    ]


def test_a_server_that_goes_and_comes_back_is_followed_again(tmp_path):
    config, again = replace(configuration(TOPICS), port=free_port()), None
    first = Running(config, tmp_path)
    first.publish("orders", {"id": 1, "px": 5})
    try:
        with Terminal("watch", "orders", "--url", first.url, columns=40, NO_COLOR="1") as terminal:
            terminal.wait_for(r"(?m)^1 +5")
            first.close()
            again = Running(config, tmp_path)
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


def test_what_is_waited_for_stands_beside_the_heading():
    console = Console(file=io.StringIO(), width=90, force_terminal=True)
    table = LiveTable("orders", console)
    table.say("computing orders as of then: 3 s")
    console.print(table.render())
    table.say("")
    console.print(table.render())
    first, second = re.split("messages?", console.file.getvalue())[1:]
    assert "; computing orders as of then: 3 s" in first
    assert "computing" not in second


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


def test_a_watch_from_a_past_moment_has_the_records_of_then_first(sow, published):
    bookmark = published({"id": 1, "px": 1})
    published({"id": 1, "px": 2})
    lines = rows(sow.ok("watch", "orders", "--as-of", bookmark, "--count", "2"))
    assert [(line["c"], line["d"]["px"]) for line in lines] == [("sow", 1), ("p", 2)]
    assert sow("watch", "orders", "--as-of", "1", "--bookmark", "1").exit_code == 2


def test_events_of_a_record_are_a_table_or_json(sow, server):
    server.post("prices", json.dumps([{"id": 1, "n": number} for number in range(4)]).encode())
    found = json.loads(sow.ok("events", "prices", "1", "--limit", "2", "--json"))
    assert [row["d"]["n"] for row in found] == [2, 3]
    table = sow.ok("events", "prices", "1", "--from", str(found[0]["seq"]))
    heading, *lines = table.splitlines()
    assert heading.split() == ["seq", "ts", "author", "id", "n"]
    assert [line.split()[-1] for line in lines] == ["2", "3"]
    refused = sow("events", "orders", "1")
    assert (refused.exit_code, "no series" in refused.stderr) == (1, True)


def test_a_watch_begins_with_the_last_events(sow, server):
    server.post("prices", json.dumps([{"id": 2, "n": number} for number in range(4)]).encode())
    found = rows(sow.ok("watch", "prices", "--last", "3", "--filter", "/id = 2", "--count", "3"))
    assert [row["d"]["n"] for row in found] == [1, 2, 3]


QUEUE = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Queue><Name>jobs</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
</Queue>
"""
queue_server = served(configuration(QUEUE), checks=False)


@pytest.fixture
def consumed(queue_server):
    def call(*words, code=0, wait_s=60):
        command = [sys.executable, "-m", "sow", "consume", *words, "--url", queue_server.url]
        done = forks.run(command, capture_output=True, timeout=wait_s)
        assert done.returncode == code, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()], done.stderr.decode()

    call("jobs")
    yield call
    assert queue_server.errors == []


def left(server):
    return len(server.call(lambda: server.server.executor.queues.find("jobs").queue.messages))


@pytest.mark.edge
def test_it_writes_and_acknowledges_until_the_queue_is_empty(consumed, queue_server):
    bookmark = queue_server.publish("orders", *({"id": number} for number in range(25))).json[
        "bookmark"
    ]
    lines, _ = consumed("jobs")
    assert [line["d"]["id"] for line in lines] == [*range(25)]
    assert lines[-1].keys() == {"bm", "k", "d", "deliveries"}
    assert (lines[-1]["bm"], lines[-1]["deliveries"]) == (bookmark, 1)
    assert left(queue_server) == 0


@pytest.mark.edge
def test_it_takes_no_more_than_it_is_to_write(consumed, queue_server):
    queue_server.publish("orders", *({"id": number} for number in range(12)))
    lines, _ = consumed("jobs", "--count", "11", "--follow")
    assert len(lines) == 11
    assert left(queue_server) == 1
    assert len(consumed("jobs")[0]) == 1


@pytest.mark.edge
def test_what_is_no_queue_is_refused_in_a_sentence(consumed):
    _, said = consumed("orders", code=1)
    assert said.startswith("sow: orders is no queue")


@pytest.mark.edge
def test_a_request_leases_no_more_than_a_few():
    assert module.LEASED_AT_ONCE <= 10
