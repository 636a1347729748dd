"""What a request wants of a record: tags that are read, compared, and refused."""

import pytest

from sow.errors import ClientError
from sow.server.http.negotiation import CODING
from sow.server.http.preconditions import (
    ANY_STATE,
    TAG,
    Conditions,
    PreconditionFailed,
    RangeNotSatisfiable,
    range_of,
)
from tests.cases import all_cases
from tests.server.stand_ins import request_of


def requested(**headers):
    named = [(name.replace("_", "-"), text) for name, text in headers.items()]
    return Conditions.of(request_of(headers=named))


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("*", ANY_STATE),
        ('"1"', {'"1"'}),
        ('W/"1"', {'"1"'}),
        (' "1" , W/"2.3",', {'"1"', '"2.3"'}),
        (', "a,b"', {'"a,b"'}),
        ('""', {'""'}),
    ],
)
def test_lists_of_tags_are_read(text, tags):
    assert requested(If_Match=text) == Conditions(frozenset(tags), None)
    assert requested(If_None_Match=text) == Conditions(None, frozenset(tags))


def test_who_says_nothing_asks_nothing():
    assert not requested().are_given
    requested().check([], is_there=False)
    requested().check(['"1"'], is_there=True)


@all_cases(
    "text", ["", "1", '"1', '"1" "2"', '"1"; q=1', "*, *", '"1", *', 'w/"1"', '"\x01"', "," * 3]
)
def test_what_is_no_list_of_tags_is_refused_and_not_passed_over(text):
    for name in ("If_Match", "If_None_Match"):
        with pytest.raises(ClientError, match=name.replace("_", "-")) as raised:
            requested(**{name: text})
        assert raised.value.status == 400


def test_a_long_list_is_read_once_from_its_beginning_to_its_end():
    assert len(requested(If_Match=", ".join(f'"{at}"' for at in range(2000))).match) == 2000
    with pytest.raises(ClientError):
        requested(If_Match='"' * 8000 + "x")


@pytest.mark.parametrize("before", ['"1",', '"1"', "W/", ""])
def test_no_blank_of_a_broken_list_is_tried_in_two_ways(before):
    text = f"{before}{' ' * 1_000_000}x"  # tried in pairs, they would take hours
    assert TAG.match(text, len(before)) is None
    assert TAG.match(text, max(0, len(before) - 3)) is None


@all_cases(
    ("match", "none_match", "tag", "is_there", "holds"),
    [
        ('"1"', None, '"1"', True, True),
        ('"1"', None, '"2"', True, False),
        ('"1"', None, None, True, False),
        ("*", None, '"1"', True, True),
        ("*", None, None, False, False),
        ("*", None, None, True, False),
        (None, "*", None, False, True),
        (None, "*", '"1"', True, False),
        (None, "*", None, True, False),
        (None, '"1"', '"1"', True, False),
        (None, '"1"', '"2"', True, True),
        (None, '"1"', None, True, True),
        ('"1"', "*", '"1"', True, False),
        ('"another-form"', None, '"1"', True, True),
        (None, '"another-form"', '"1"', True, False),
    ],
)
def test_a_record_meets_them_or_not(match, none_match, tag, is_there, holds):
    tags = [] if tag is None else [tag, '"another-form"']
    said = {"If_Match": match, "If_None_Match": none_match}
    found = requested(**{name: text for name, text in said.items() if text is not None})
    if holds:
        found.check(tags, is_there)
        return
    with pytest.raises(PreconditionFailed) as raised:
        found.check(tags, is_there)
    assert raised.value.status == 412


KNOWN_TAG = '"1"'


def part(text, size=10, method="GET", coding="identity", **more):
    named = [("Range", text), *((name.replace("_", "-"), value) for name, value in more.items())]
    request = request_of(method, headers=named)
    request[CODING] = coding
    return range_of(request, KNOWN_TAG, size)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bytes=0-0", (0, 1)),
        ("bytes=2-5", (2, 6)),
        ("bytes=2-", (2, 10)),
        ("bytes=2-99", (2, 10)),
        ("bytes=-3", (7, 10)),
        ("bytes=-99", (0, 10)),
    ],
)
def test_a_range_begins_and_ends_within_the_answer(text, found):
    assert part(text) == found
    assert part(text, If_Range=KNOWN_TAG) == found


@pytest.mark.parametrize(
    "text", ["", "bytes", "bytes=-", "bytes=5-2", "bytes=0-1,3-4", "rows=0-1", "bytes=a-b"]
)
def test_what_is_no_range_is_passed_over(text):
    assert part(text) is None


@pytest.mark.parametrize("text", ["bytes=10-", "bytes=99-100", "bytes=-0"])
def test_a_range_after_the_end_is_refused(text):
    with pytest.raises(RangeNotSatisfiable) as refused:
        part(text)
    assert (refused.value.status, refused.value.size) == (416, 10)
    assert part(text, If_Range='"2"') is None


def test_a_part_of_another_answer_does_not_fit():
    for other in ('"2"', f"W/{KNOWN_TAG}", "Sat, 28 Nov 2026 00:00:00 GMT"):
        assert part("bytes=2-5", If_Range=other) is None


def test_a_head_and_what_is_packed_have_no_parts():
    assert part("bytes=2-5", method="HEAD") is None
    assert part("bytes=2-5", coding="gzip") is None
