"""Lines of an upstream server, read as far as a chained one needs them."""

import pytest

from sow.protocol.replies import SentPlace
from sow.server.chained.lines import (
    is_later,
    name_field,
    place_of,
    read_line,
    renamed,
    time_of,
    without_key,
)


def test_a_place_in_what_was_sent_lies_behind_its_change_and_before_the_next():
    assert place_of("7.5") < place_of("7.6") < place_of("8")
    assert place_of("6") < place_of("7.5")
    assert isinstance(place_of("7.5"), SentPlace)


@pytest.mark.parametrize(
    ("place", "than", "later"),
    [
        ("3.20", "9.10", True),  # others had published before the snapshot
        ("9.20", "9.10", True),
        ("9.10", "9.10", False),
        ("9.10", "3.20", False),
        ("9", "9.10", False),
        ("10", "9.10", True),
    ],
)
def test_what_copies_have_sent_is_ordered_by_its_time(place, than, later):
    assert is_later(place_of(place), place_of(than)) is later


def test_the_time_of_a_line_is_read_to_the_microsecond():
    assert time_of("1970-01-02T00:00:01.000023Z") == 86_401_000_023
    assert time_of("") == 0


def test_a_line_has_another_name_and_the_same_body():
    line = b'{"c":"p","s":"f1","t":"orders","k":"1","d":{"s":"f1"},"bm":"3"}'
    found = renamed(line, name_field("f1"), name_field("x-2"))
    assert found == b'{"c":"p","s":"x-2","t":"orders","k":"1","d":{"s":"f1"},"bm":"3"}'
    assert bytes(read_line(found).d) == b'{"s":"f1"}'


def test_a_line_without_its_key_has_all_else():
    line = b'{"c":"p","s":"f1","t":"o","k":"a\\"\\\\","d":{"k":"x"},"bm":"3"}'
    assert read_line(line).k == 'a"\\'
    found = without_key(line)
    assert found == b'{"c":"p","s":"f1","t":"o","d":{"k":"x"},"bm":"3"}'
    assert without_key(found) == found
