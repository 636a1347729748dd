"""What takes long to compile is compiled in a thread, once, and kept."""

import asyncio

import pytest

from sow.core.definitions import Limits
from sow.core.security_definitions import Allow, Authentication, Role, Security, User
from sow.engine.queries import FilterCache
from sow.errors import BadFilter
from sow.security import row_level_security
from sow.security.authorization import EVERYTHING, RoleSet
from sow.server.loop.filter_compile_pool import (
    LONG_FILTER_CHARS,
    compile_beside,
    guarded_by,
    long_among,
    long_guarded,
)

LONG = " OR ".join(f"/identity = {at}" for at in range(300))


def test_long_ones_that_are_not_at_hand_are_sent_once_each():
    filters = FilterCache(Limits)
    assert len(LONG) > LONG_FILTER_CHARS
    assert long_among(filters, [None, "/id = 1", LONG, LONG]) == [LONG]
    filters.get(LONG)
    assert long_among(filters, [LONG]) == []


@pytest.mark.parametrize("text", [LONG, LONG + " OR"])
def test_what_was_made_beside_is_at_hand_also_a_mistake(text):
    filters = FilterCache(Limits)
    asyncio.run(compile_beside(filters, [text]))
    assert filters.has(text)
    if text != LONG:
        with pytest.raises(BadFilter):
            filters.get(text)


def of_many(count=400):
    """The rights of a user of whose roles many Allows say which rows he may see."""
    allows = [Allow("orders", read=True, filter=f"/book = 'b{at}'") for at in range(count)]
    roles = (Role("desk", ("*",), tuple(allows)),)
    return RoleSet(Security(authentication=Authentication(), roles=roles)).rights(User("ann"))


@pytest.mark.parametrize("own", [None, "/px > 1", "/px >"])
def test_what_somebody_may_see_is_compiled_beside_where_it_is_long(own, monkeypatch):
    filters, rights = FilterCache(Limits), of_many()
    guard = guarded_by(rights, "read", "orders")
    assert guard is rights.guard("orders")
    requested = [(guard, own), (None, own)]
    assert long_guarded(filters, requested) == [(guard, own)]
    asyncio.run(compile_beside(filters, (), long_guarded(filters, requested)))
    assert long_guarded(filters, requested) == []
    monkeypatch.setattr(
        row_level_security, "compile_term", lambda _node: pytest.fail("it is not at hand")
    )
    guard.condition(None if own == "/px >" else own and filters.get(own))


def test_what_is_short_is_compiled_when_it_is_requested_for():
    rights = of_many(3)
    assert long_guarded(FilterCache(Limits), [(rights.guard("orders"), None)]) == []


@pytest.mark.parametrize("demand", ["logon", "see", "admin", "nothing"])
def test_only_what_is_read_written_or_deleted_is_guarded(demand):
    assert guarded_by(of_many(3), demand, "orders") is None
    assert guarded_by(of_many(3), "read", None) is None
    assert guarded_by(EVERYTHING, "read", "orders") is None
    assert guarded_by(of_many(3), "write", "orders") is row_level_security.DENY_ALL
