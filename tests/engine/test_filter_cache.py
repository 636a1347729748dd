"""Filters: compiled once, refused once, and forgotten when there are too many."""

import pytest

from sow.core.cache import ENTRY_WEIGHT
from sow.core.definitions import Limits
from sow.engine import filter_cache
from sow.engine.filter_cache import FilterCache
from sow.errors import BadFilter, ClientError


def test_a_text_is_compiled_once():
    made = FilterCache(Limits)
    assert not made.has("/a = 1")
    found = made.get("/a = 1")
    assert made.has("/a = 1")
    assert made.get("/a = 1") is found


def test_what_was_compiled_elsewhere_is_taken():
    made = FilterCache(Limits)
    found = made.compiled("/a = 1")
    assert not made.has("/a = 1")
    made.keep("/a = 1", found)
    assert made.get("/a = 1") is found


def test_a_text_that_is_refused_is_refused_again_without_being_read_again():
    made = FilterCache(Limits)
    found = made.compiled("/a = ")
    made.keep("/a = ", found)
    for _ in range(2):
        with pytest.raises(BadFilter) as refusal:
            made.get("/a = ")
        assert vars(refusal.value) == vars(found)
    assert len(refusal.traceback) < 10


def test_the_limits_are_those_that_hold_when_a_filter_is_made():
    limits = [Limits(filter_bytes_max=5)]
    made = FilterCache(lambda: limits[-1])
    with pytest.raises(ClientError):
        made.get("/a = 12")
    limits.append(Limits())
    made.get("/a = 123")


def test_only_so_much_text_is_kept(monkeypatch):
    monkeypatch.setattr(filter_cache, "FILTERS_KEPT_WEIGHT", 2 * (6 + ENTRY_WEIGHT))
    made = FilterCache(Limits)
    made.get("/a = 1")
    made.get("/a = 2")
    made.get("/a = 3")
    assert [made.has(f"/a = {n}") for n in (1, 2, 3)] == [False, True, True]
