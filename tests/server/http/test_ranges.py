"""Which part of an answer a request asks for."""

import pytest

from sow.server.http.content_codings import CODING
from sow.server.http.ranges import RangeNotSatisfiable, range_of
from tests.server.stand_ins import request_of

TAG = '"1"'


def part(text, size=10, method="GET", coding="identity", **more):
    named = [("Range", text), *((name.replace("_", "-"), value) for name, value in more.items())]
    request = request_of(method, headers=named)
    request[CODING] = coding
    return range_of(request, TAG, size)


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
    assert part(text, If_Range=TAG) == found


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
    for other in ('"2"', f"W/{TAG}", "Sat, 28 Nov 2026 00:00:00 GMT"):
        assert part("bytes=2-5", If_Range=other) is None


def test_a_head_and_what_is_packed_have_no_parts():
    assert part("bytes=2-5", method="HEAD") is None
    assert part("bytes=2-5", coding="gzip") is None
