"""The server's lines: exactly the fields that the protocol names, and none that are empty."""

from sow.errors import BadFilter, BadMessage, ClientError
from sow.protocol import replies


def test_an_ack_names_its_command_only_if_that_has_a_name():
    assert replies.ack("7", "processed") == {
        "c": "ack",
        "a": "processed",
        "status": "success",
        "cid": "7",
    }
    assert "cid" not in replies.ack(None, "persisted")
    assert replies.ack("", "persisted")["cid"] == ""


def test_an_ack_says_no_more_than_it_knows():
    line = replies.ack(None, "completed", matches=0, bm=None, s="s1")
    assert line["matches"] == 0
    assert line["s"] == "s1"
    assert "bm" not in line


def test_a_failure_says_why_and_where():
    line = replies.failure("7", BadFilter("breaks", position=4, expected="a path"))
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
    assert replies.failure(None, BadMessage("bad", index=2), "persisted")["a"] == "persisted"
    assert "position" not in replies.failure(None, ClientError("no"))


def test_a_bookmark_travels_as_text():
    assert replies.group_end("s1", 12) == {"c": "group_end", "s": "s1", "bm": "12"}
    assert replies.group_begin("s1") == {"c": "group_begin", "s": "s1"}


def test_the_server_says_that_it_is_there_and_why_it_goes():
    assert replies.heartbeat() == {"c": "heartbeat"}
    assert replies.conflated(3, 2) == {"c": "heartbeat", "conflated": 3, "dropped": 2}
    assert replies.close("too slow") == {"c": "close", "reason": "too slow"}
    ended = {"c": "unsubscribed", "s": "s1", "reason": "gone"}
    assert replies.unsubscribed("s1", "gone") == ended
    assert replies.unsubscribed("s1", "gone", "why") == {**ended, "detail": "why"}
