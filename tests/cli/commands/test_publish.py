"""`sow publish`: what stands in a file or comes down a pipe is on the server's disk."""

import json

import pytest

from sow.cli.commands.publish import BYTES_TYPES, FRAME_BYTES, FRAME_MESSAGES, frames
from sow.messages import message_type
from tests.messages.examples import EXAMPLES, OPTIONS


def test_lines_are_published(sow, server):
    out = sow.ok("publish", "orders", input='{"id":1}\n\n{"id":2}')
    assert out.startswith("published 2 messages to orders (bookmark ")
    assert server.records("orders") == [{"id": 1}, {"id": 2}]


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


def test_a_file_that_is_published_again_from_its_start_is_published_once(sow, server):
    again = ("publish", "orders", "--client", "nightly", "--from-start")
    assert sow.ok(*again, input='{"id":1}\n{"id":2}').startswith("published 2 messages to orders (")
    assert "3 messages to orders, 2 of them before (" in sow.ok(
        *again, input='{"id":9}\n{"id":9}\n{"id":3}'
    )
    more = sow.ok(*again[:-1], "--json", input='{"id":4}')
    assert json.loads(more)["duplicates"] == 0
    assert [record["id"] for record in server.records("orders")] == [1, 2, 3, 4]


def test_rows_of_a_table_are_numbered_too(sow, server):
    again = ("publish", "orders", "--format", "csv", "--client", "nightly/\u00fc", "--from-start")
    assert sow.ok(*again, input="id,n\n1,a\n2,a").startswith("published 2 messages to orders (")
    assert "3 messages to orders, 2 of them before (" in sow.ok(*again, input="id,n\n1,b\n2,b\n3,b")
    more = json.loads(sow.ok(*again[:-1], "--json", input="id,n\n4,c"))
    assert (more["published"], more["duplicates"]) == (1, 0)
    assert [(one["id"], one["n"]) for one in server.records("orders")] == [
        (1, "a"), (2, "a"), (3, "b"), (4, "c"),
    ]  # fmt: skip


def test_a_message_of_bytes_is_numbered_too(sow, server):
    again = ("publish", "blobs", "--key", "k", "--client", "of bytes", "--from-start")
    assert sow.ok(*again, input=b"a\nb").startswith("published 1 message to blobs (")
    assert "1 message to blobs, 1 of them before (" in sow.ok(*again, input=b"other")
    more = json.loads(sow.ok(*again[:-1], "--json", input=b"c"))
    assert (more["published"], more["duplicates"]) == (1, 0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("orders", "--from-start"), "give --client"),
    ],
)
def test_what_cannot_be_numbered_is_refused(sow, options, says):
    result = sow("publish", *options, input='{"id":1}')
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_table_is_published_row_by_row(sow, server, tmp_path, monkeypatch):
    monkeypatch.setattr("sow.cli.table_files.TABLE_ROWS_MAX", 2)
    file = tmp_path / "orders.csv"
    file.write_text('id,px,/leg/note\n1,1.50,"two\nlines"\n\n2,,x\n3,2,\n')
    out = sow.ok("publish", "orders", str(file), "--format", "csv", "--json")
    assert json.loads(out)["published"] == 3
    assert server.records("orders") == [
        {"id": 1, "px": 1.5, "leg": {"note": "two\nlines"}},
        {"id": 2, "leg": {"note": "x"}},
        {"id": 3, "px": 2},
    ]
    sow.ok("publish", "orders", "--format", "csv", "--delta", input="id,px\n2,7\n")
    assert server.records("orders")[1] == {"id": 2, "leg": {"note": "x"}, "px": 7}


def test_a_bad_row_of_a_table_is_named(sow, server, monkeypatch):
    monkeypatch.setattr("sow.cli.table_files.TABLE_ROWS_MAX", 2)
    result = sow("publish", "orders", "--format", "csv", input="id,px\n1,1\n2,2\n3,3\n,4\n")
    assert result.exit_code == 1
    assert result.stderr.startswith("sow: row 4 of standard input: key field /id is missing")
    assert result.stderr.endswith("; 2 other messages were published\n")
    assert len(server.records("orders")) == 2
    assert sow("publish", "nope", "--format", "csv", input="id\n").exit_code == 1


def test_a_key_names_the_record(sow):
    sow.ok("publish", "notes", "--key", "a", input="hello")
    assert sow.ok("query", "notes", "--format", "ndjson") == '{"value":"hello"}\n'


def test_types_that_are_no_text_are_not_cut_at_line_breaks():
    binary = {name for name in EXAMPLES if message_type(name, OPTIONS).enc == "base64"}
    assert binary == BYTES_TYPES, "BYTES_TYPES has to be the types whose `enc` is base64"


def test_an_xml_topic_takes_lines_and_shows_documents(sow):
    sow.ok("publish", "elements", input='<o id="1"><px>5</px></o>\n<o id="2"/>\n')
    found = sow.ok("query", "elements", "--filter", "/o/px = 5", "--format", "ndjson")
    assert found == '{"o":{"@id":"1","px":"5"}}\n'
    result = sow("publish", "elements", input='<o id="3">\n</o>\n')
    assert result.stderr.startswith("sow: line 1 of standard input: not XML")


@pytest.mark.parametrize("name", ["packed", "documents"])
def test_a_topic_of_bytes_takes_the_whole_input_and_shows_documents(sow, server, name):
    (described,) = [one for one in server.get("/v1/topics").json if one["name"] == name]
    body = message_type(described["message_type"]).encode({"id": 10, "note": "a\nb"})
    sow.ok("publish", name, input=body)
    assert sow.ok("query", name, "--format", "ndjson") == '{"id":10,"note":"a\\nb"}\n'
    assert sow("publish", name, input=body[:-1]).stderr.count("\n") == 1


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


def test_a_frame_is_bounded_in_messages_and_in_bytes_and_keeps_the_order():
    bodies = [b"x"] * (2 * FRAME_MESSAGES + 1)
    assert [len(frame) for frame in frames(bodies)] == [FRAME_MESSAGES, FRAME_MESSAGES, 1]
    half = b"x" * (FRAME_BYTES // 2 + 1)
    assert [list(frame) for frame in frames([half, half, b"a", half * 3, b"b"])] == [
        [half],
        [half, b"a"],
        [half * 3],
        [b"b"],
    ]
    assert list(frames([])) == []


def rows(text):
    return [json.loads(line) for line in text.splitlines()]


def test_delete_by_filter_and_by_keys(sow, server, orders):
    orders({"id": 1}, {"id": 2}, {"id": 3})
    assert sow.ok("delete", "orders", "--filter", "/id = 1").startswith("deleted 1 ")
    (row,) = rows(sow.ok("watch", "orders", "--filter", "/id = 2", "--count", "1"))
    assert json.loads(sow.ok("delete", "orders", "--keys", row["k"], "--json")) == {"deleted": 1}
    assert server.records("orders") == [{"id": 3}]


@pytest.mark.parametrize(
    "which", [(), ("--filter", "1=1", "--keys", "1"), ("--key", "1", "--keys", "1")]
)
def test_neither_and_both_are_wrong_usage(sow, server, orders, which):
    orders({"id": 1})
    result = sow("delete", "orders", *which)
    assert (result.exit_code, "exactly one of --filter" in result.stderr) == (2, True)
    assert server.records("orders") == [{"id": 1}]


def test_a_record_is_deleted_by_the_values_of_its_key(sow, server, orders):
    orders({"id": 1}, {"id": 2})
    assert json.loads(sow.ok("delete", "orders", "--key", "1", "--json")) == {"deleted": 1}
    assert server.records("orders") == [{"id": 2}]


@pytest.mark.parametrize(
    ("which", "says"),
    [
        (("--keys", "1,2"), "no record of these SowKeys; write --key"),
        (("--key", "1"), "topic orders has no such record: 'key=1'"),
        (("--key", "1,2"), "has 2 values, and the Key of orders is /id"),
    ],
)
def test_a_delete_that_names_no_record_fails(sow, which, says):
    result = sow("delete", "orders", *which)
    assert (result.exit_code, says in result.stderr) == (1, True), result.stderr


def test_a_filter_that_matches_nothing_is_no_error(sow):
    assert sow.ok("delete", "orders", "--filter", "/id = 9") == "deleted 0 records from orders\n"
