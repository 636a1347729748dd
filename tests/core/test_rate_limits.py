"""How many messages a user may publish a second."""

import pytest

from sow.core import quota
from sow.core.definitions import Limits
from sow.core.quota import RateLimited, RateLimiter
from sow.core.security_definitions import Authentication, Security, User
from sow.errors import Busy
from sow.security.authorization import EVERYTHING, RoleSet

ASKING = RoleSet(Security(authentication=Authentication()))
ANN, BEN = ASKING.rights(User("ann")), ASKING.rights(User("ben"))
SECOND = 1_000_000


def limited(most=10):
    return RateLimiter(lambda: Limits(publishes_per_second_max=most))


def test_without_a_limit_nothing_is_counted():
    buckets = RateLimiter(Limits)
    buckets.take(ANN, 10**9, 0)
    buckets.take(ANN, 10**9, 0)
    assert not buckets._buckets


def test_who_has_published_too_much_waits_until_it_is_made_up_for_and_others_do_not():
    buckets = limited()
    buckets.take(ANN, 5, 0)
    buckets.take(ANN, 25, 0)
    with pytest.raises(RateLimited) as refused:
        buckets.take(ANN, 1, 0)
    assert refused.value.retry_after_s == 2
    assert isinstance(refused.value, Busy)
    buckets.take(BEN, 1, 0)
    with pytest.raises(RateLimited):
        buckets.take(ANN, 1, 2 * SECOND)
    buckets.take(ANN, 1, 2 * SECOND + 1)


def test_no_more_than_a_second_is_saved_and_a_clock_that_goes_back_gives_nothing():
    buckets = limited()
    buckets.take(ANN, 11, 100 * SECOND)
    with pytest.raises(RateLimited):
        buckets.take(ANN, 1, 50 * SECOND)
    buckets.take(ANN, 10, 1000 * SECOND)
    with pytest.raises(RateLimited):
        buckets.take(ANN, 1, 1000 * SECOND)


def test_what_is_given_back_was_never_taken():
    buckets = limited()
    buckets.give_back(ANN, 1)
    assert not buckets._buckets
    buckets.take(ANN, 10, 0)
    buckets.give_back(ANN, 10)
    buckets.take(ANN, 10, 0)
    with pytest.raises(RateLimited):
        buckets.take(ANN, 1, 0)


def test_where_nobody_is_requested_all_are_one():
    buckets = limited(1)
    buckets.take(EVERYTHING, 1, 0)
    with pytest.raises(RateLimited):
        buckets.take(EVERYTHING, 1, 0)


def test_of_very_many_users_not_all_are_kept(monkeypatch):
    monkeypatch.setattr(quota, "USERS_KEPT", 3)
    buckets = limited()
    for at in range(5):
        buckets.take(ASKING.rights(User(str(at))), 1, at)
    assert len(buckets._buckets) == 3
