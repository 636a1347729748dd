"""The types of answers: what stands in them, and what is left out."""

import msgspec

from sow.server.api.response_schemas import Problem, TopicDescribed


def test_what_is_not_there_is_left_out_and_what_is_null_stays():
    document = {
        "name": "orders",
        "kind": "topic",
        "message_type": "json",
        "indexes": [],
        "records": 0,
        "bytes": None,
    }
    assert msgspec.to_builtins(msgspec.convert(document, TopicDescribed)) == document


def test_a_field_that_no_type_has_is_noticed_by_who_compares():
    document = {"type": "t", "title": "t", "status": 400, "reason": "r", "detail": "d", "x": 1}
    assert msgspec.to_builtins(msgspec.convert(document, Problem)) != document
