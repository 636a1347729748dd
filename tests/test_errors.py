"""Errors say what a program needs (reason, status, fields) and what a person needs (a sentence)."""

import errno

import pytest

from sow import errors
from sow.errors import (
    SHOWN_MAX,
    BadFilter,
    BadMessage,
    Busy,
    ClientError,
    ConfigError,
    Damaged,
    DiskFull,
    SowError,
    StoreError,
    clipped,
    described,
    shown,
    written_whole,
)
from tests.cases import all_cases

TREE = [
    found
    for found in vars(errors).values()
    if isinstance(found, type) and issubclass(found, SowError)
]


@all_cases("kind", TREE)
def test_whose_fault_it_is_decides_the_status(kind):
    if issubclass(kind, ClientError):
        assert 400 <= kind.status < 500
    else:
        assert kind.status >= 500


@all_cases("kind", TREE)
def test_every_error_is_in_the_tree_that_the_module_shows(kind):
    assert kind.__name__ in errors.__doc__
    assert kind is SowError or kind.reason != SowError.reason


@all_cases("kind", [kind for kind in TREE if kind is not SowError])
def test_a_reason_of_its_own_goes_before_that_of_the_class(kind):
    if kind is ConfigError or issubclass(kind, StoreError | Busy):
        assert kind("why").reason == kind.reason
    assert kind("why").detail == "why"
    assert str(kind("why")) == "why"
    if issubclass(kind, ClientError):
        assert kind("why", reason="other").reason == "other"
        assert kind.reason != "other"


def test_a_place_is_sent_only_where_there_is_one():
    assert ClientError("why").fields() == {}
    assert BadFilter("why").fields() == {"position": 0, "expected": ""}
    told = ClientError("why", position=3, expected="a path").fields()
    assert told == {"position": 3, "expected": "a path"}


def test_a_message_behind_others_is_counted_from_their_beginning():
    error = BadMessage("message 2: not JSON", index=2, reason="bad").moved(10)
    assert (error.detail, error.index, error.reason) == ("message 12: not JSON", 12, "bad")
    assert error.fields() == {"index": 12}


def test_a_detail_that_does_not_name_the_message_is_left_alone():
    assert BadMessage("a key is missing", index=1).moved(4).detail == "a key is missing"
    assert BadMessage("a key is missing", index=1).moved(4).index == 5


def test_a_mistake_in_a_file_begins_with_its_place():
    error = ConfigError("is too long", file="config.xml", line=7, element="Name")
    assert error.detail == "config.xml:7: Name: is too long"
    assert ConfigError("is too long", element="Name").detail == "is too long"


def test_so_much_of_a_text_is_repeated_as_finds_it():
    exact, long = "x" * SHOWN_MAX, "x" * (SHOWN_MAX + 1)
    assert clipped(exact) == exact
    assert clipped(long) == exact + "…"
    assert shown("it's") == '"it\'s"'
    assert shown("a\nb") == r"'a\nb'"


def test_a_bug_is_described_in_a_line_with_its_place():
    def fails():
        raise ZeroDivisionError("a\n  b" + 100 * "x")

    with pytest.raises(ZeroDivisionError) as found:
        fails()
    told = described(found.value)
    assert told.startswith("ZeroDivisionError: a bxxx")
    assert "(test_errors.py:" in told
    assert told.endswith(", fails)")
    assert len(told) < SHOWN_MAX + 80
    assert described(ValueError("why")) == "ValueError: why"


class OfLmdb(Exception):
    code = errno.ENOSPC


def sent_as_cause():
    try:
        raise OfLmdb
    except OfLmdb as error:
        raise StoreError("x cannot be opened") from error


def raising(error):
    raise error


FULL = [
    lambda: raising(OSError(errno.ENOSPC, "No space left on device")),
    lambda: raising(OSError(errno.EDQUOT, "Disk quota exceeded")),
    lambda: raising(DiskFull("nothing of the request is acknowledged")),
    sent_as_cause,
]


@pytest.mark.parametrize("write", FULL)
def test_a_full_disk_is_said_with_the_place_and_what_to_do(write):
    with pytest.raises(StoreError, match="nothing of it is") as raised, written_whole("backups/a"):
        write()
    assert str(raised.value).startswith("backups/a: the disk has no room")


@pytest.mark.parametrize(
    "error", [OSError(errno.EACCES, "no"), ConnectionResetError(), Damaged("x"), ValueError()]
)
def test_anything_else_is_what_it_is(error):
    with pytest.raises(type(error)) as raised, written_whole("backups/a"):
        raise error
    assert raised.value is error
