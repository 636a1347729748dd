"""The server's lines: exactly the fields that the protocol names, and none that are empty."""

from sow.core import protocol_messages
from sow.errors import BadFilter, BadMessage, ClientError


def test_an_ack_names_its_command_only_if_that_has_a_name():
    assert protocol_messages.ack("7", "processed") == {
        "c": "ack",
        "a": "processed",
        "status": "success",
        "cid": "7",
    }
    assert "cid" not in protocol_messages.ack(None, "persisted")
    assert protocol_messages.ack("", "persisted")["cid"] == ""


def test_an_ack_says_no_more_than_it_knows():
    line = protocol_messages.ack(None, "completed", matches=0, bm=None, s="s1")
    assert line["matches"] == 0
    assert line["s"] == "s1"
    assert "bm" not in line


def test_a_failure_says_why_and_where():
    line = protocol_messages.failure("7", BadFilter("breaks", position=4, expected="a path"))
    assert line == {
        "c": "ack",
        "a": "processed",
        "status": "failure",
        "cid": "7",
        "reason": "bad filter",
        "detail": "breaks",
        "position": 4,
        "expected": "a path",
    }
    assert (
        protocol_messages.failure(None, BadMessage("bad", index=2), "persisted")["a"] == "persisted"
    )
    assert "position" not in protocol_messages.failure(None, ClientError("no"))


def test_a_bookmark_travels_as_text():
    assert protocol_messages.group_end("s1", 12) == {"c": "group_end", "s": "s1", "bm": "12"}
    assert protocol_messages.group_begin("s1") == {"c": "group_begin", "s": "s1"}


def test_the_server_says_that_it_is_there_and_why_it_goes():
    assert protocol_messages.heartbeat() == {"c": "heartbeat"}
    assert protocol_messages.conflated(3, 2) == {"c": "heartbeat", "conflated": 3, "dropped": 2}
    assert protocol_messages.close("too slow") == {"c": "close", "reason": "too slow"}
    ended = {"c": "unsubscribed", "s": "s1", "reason": "gone"}
    assert protocol_messages.unsubscribed("s1", "gone") == ended
    assert protocol_messages.unsubscribed("s1", "gone", "why") == {**ended, "detail": "why"}
