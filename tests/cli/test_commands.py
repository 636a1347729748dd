"""The commands that talk to a server, against a real one."""

import csv
import io
import json

import pytest


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


# publish


def test_lines_are_published(sow, server):
    out = sow.ok("publish", "orders", input='{"id":1}\n\n{"id":2}')
    assert out.startswith("published 2 messages to orders (bookmark ")
    assert server.records("orders") == [{"id": 1}, {"id": 2}]


def test_an_array_of_a_file_is_published(sow, server, tmp_path):
    file = tmp_path / "orders.json"
    file.write_text('[{"id": 1},\n {"id": 2}]')
    assert json.loads(sow.ok("publish", "orders", str(file), "--json"))["published"] == 2
    assert server.records("orders") == [{"id": 1}, {"id": 2}]


def test_many_lines_take_many_frames(sow, server):
    text = "".join(f'{{"id":{number}}}\n' for number in range(2500))
    assert sow.ok("publish", "orders", input=text).startswith("published 2,500 messages")
    assert len(server.records("orders")) == 2500


def test_the_first_bad_line_is_named_and_nothing_of_its_frame_stored(sow, server):
    result = sow("publish", "orders", input='{"id":1}\n\n{"no":2}\n')
    assert result.exit_code == 1
    assert result.stderr.startswith("sow: line 3 of standard input: key field /id is missing")
    assert server.records("orders") == []


def test_a_bad_line_after_others_says_how_many_were_published(sow, tmp_path):
    text = "".join(f'{{"id":{number}}}\n' for number in range(1000)) + "nonsense\n"
    (tmp_path / "orders.json").write_text(text)
    result = sow("publish", "orders", str(tmp_path / "orders.json"))
    assert f"line 1001 of {tmp_path / 'orders.json'}: " in result.stderr
    assert result.stderr.endswith("; 1,000 other messages were published\n")


def test_a_bad_line_as_json_carries_its_index(sow):
    result = sow("publish", "orders", "--json", input='{"id":1}\n{"no":2}\n')
    assert json.loads(result.stderr)["index"] == 1


def test_a_key_names_the_record(sow):
    sow.ok("publish", "notes", "--key", "a", input="hello")
    assert sow.ok("query", "notes", "--format", "ndjson") == '"hello"\n'


def test_a_binary_topic_takes_the_whole_input(sow, server):
    sow.ok("publish", "blobs", "--key", "a", input=b"one\ntwo\n")
    assert server.get("/v1/topics/blobs/records/a").body == b"one\ntwo\n"


def test_a_lifetime_is_passed_on(sow):
    assert (
        "keeps records for ever"
        in sow("publish", "orders", "--expiration", "9", input='{"id":1}').stderr
    )
    sow.ok("publish", "short", "--expiration", "900", input='{"id":1}')


def test_nothing_is_published_from_nothing(sow):
    assert sow.ok("publish", "orders", input="") == "published 0 messages to orders\n"


@pytest.mark.parametrize("topic", ["orders-C", "/sow/writes", "nope"])
def test_nothing_is_not_published_where_nothing_can_be(sow, topic):
    done = sow("publish", topic, input="")
    assert (done.exit_code, done.stdout) == (1, "")


# query


def test_a_table_has_the_union_of_fields(sow, orders):
    orders({"id": 1, "a": {"b": 2}}, {"id": 2, "c": "x"})
    result = sow("query", "orders")
    assert [line.split() for line in result.stdout.splitlines()] == [
        ["id", "/a/b", "c"],
        ["1", "2"],
        ["2", "x"],
    ]
    assert result.stderr.startswith("orders: 2 of 2 records, by scan, bookmark ")


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
    asked = ("--filter", "/id > 3", "--order-by", "/id DESC", "--skip", "1", "--top", "2")
    found = rows(sow.ok("query", "orders", "--format", "ndjson", *asked))
    assert found == [{"id": 7}, {"id": 6}]


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


def test_a_bad_order_is_pointed_at(sow):
    result = sow("query", "orders", "--filter", "/id = 1", "--order-by", "/id, /px UP")
    assert "\n  /id, /px UP\n" in result.stderr


def test_an_unknown_topic_gets_the_nearest_name(sow):
    for command in ("query", "watch", "publish"):
        result = sow(command, "ordres", input='{"id":1}')
        assert (result.exit_code, result.stderr) == (
            1,
            "sow: no topic 'ordres'; did you mean orders?\n",
        )


# delete


def test_delete_by_filter_and_by_keys(sow, server, orders):
    orders({"id": 1}, {"id": 2}, {"id": 3})
    assert sow.ok("delete", "orders", "--filter", "/id = 1").startswith("deleted 1 ")
    (row,) = rows(sow.ok("watch", "orders", "--filter", "/id = 2", "--count", "1"))
    assert json.loads(sow.ok("delete", "orders", "--keys", row["k"], "--json")) == {"deleted": 1}
    assert server.records("orders") == [{"id": 3}]


# watch


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


def test_delta_publishes_are_merged(sow, server, orders):
    orders({"id": 1, "px": 1, "qty": 5})
    sow.ok("publish", "orders", "--delta", input='{"id":1,"px":2}')
    assert server.records("orders") == [{"id": 1, "px": 2, "qty": 5}]


def test_a_topic_that_a_pattern_makes_can_be_published_to(sow, server):
    sow.ok("publish", "/desk/7", input='{"id":1}')
    assert server.records("/desk/7") == [{"id": 1}]
    assert sow("publish", "/dsk/7", input='{"id":1}').exit_code == 1


def test_only_selected_fields_are_shown(sow, orders):
    orders({"id": 1, "px": 1, "qty": 5})
    assert rows(sow.ok("query", "orders", "--select", "/id,/px", "--format", "ndjson")) == [
        {"id": 1, "px": 1}
    ]


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


def test_a_bookmark_goes_with_neither_deltas_nor_oofs(sow):
    assert sow("watch", "orders", "--bookmark", "0", "--oof").exit_code == 2


def test_reload_says_what_a_server_without_a_file_cannot_do(sow):
    result = sow("reload")
    assert (result.exit_code, "not started from a file" in result.stderr) == (1, True)
