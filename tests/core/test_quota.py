"""A budget counts what is held, for all and for each client."""

from hypothesis import given
from hypothesis import strategies as st

from sow.core.quota import Quota


def test_one_client_may_hold_a_quarter_and_all_together_the_whole():
    budget = Quota(lambda: 100)
    first, again, others = budget.holder("a"), budget.holder("a"), budget.holder("b")
    first.add(20)
    assert first.lack(5) is None
    assert "a quarter of 100 bytes" in again.lack(6)
    assert others.lack(25) is None
    for client in range(4):
        budget.holder(client).add(18)
    assert "all clients" in others.lack(9)
    assert others.lack(8) is None
    first.release()
    assert others.lack(9) is None


def test_a_limit_that_changes_counts_at_once():
    limits = [100]
    budget = Quota(lambda: limits[0])
    holder = budget.holder("a")
    holder.add(25)
    assert holder.lack(1) is not None
    limits[0] = 200
    assert holder.lack(1) is None
    limits[0] = 20
    assert budget.room == -5


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=50))
def test_the_sum_is_that_of_the_holders(takes):
    budget = Quota(lambda: 1000)
    holders = [budget.holder(client) for client in ("a", "a", "b", "c")]
    for at, held in takes:
        holders[at].set(held)
        assert budget.used == sum(holder.held for holder in holders)
    for holder in holders:
        holder.release()
    assert budget.used == 0
    assert not budget._by_client
