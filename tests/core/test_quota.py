"""A budget counts what is held, for all and for each client."""

from hypothesis import given
from hypothesis import strategies as st

from sow.core.quota import Quota, SharedHolder, client_of


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


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 50)),
            st.tuples(st.sampled_from(["join", "leave"]), st.sampled_from("ab")),
            st.tuples(st.just("settle"), st.none()),
        ),
        max_size=50,
    )
)
def test_what_several_hold_counts_once_in_all_and_whole_for_each(steps):
    budget = Quota(lambda: 1_000_000)
    shared, own, grown = SharedHolder(budget), budget.holder("a"), []
    own.add(7)
    shared.watch(grown.append)
    for what, given_ in steps:
        if what == "settle":
            shared.settle()
        elif what == "leave":
            if given_ in shared.clients:
                shared.leave(given_)
        else:
            getattr(shared, what)(given_)
        assert budget.used == 7 + (shared.held if shared.clients else 0)
    shared.settle()
    for client in "ab":
        held = shared.held * (client in shared.clients) + 7 * (client == "a")
        assert budget._by_client.get(client, 0) == held
    for client, times in list(shared.clients.items()):
        for _ in range(times):
            shared.leave(client)
    assert (budget.used, budget._by_client) == (7, {"a": 7})
    assert grown == [shared] * len(grown)


def test_who_holds_it_is_told_of_each_change_from_then_on():
    shared, grown = SharedHolder(Quota(lambda: 100)), []
    shared.join("a")
    shared.add(5)
    shared.watch(grown.append)
    shared.add(-5)
    assert grown == [shared]
    shared.add(1)
    assert grown == [shared, shared]


def test_a_client_is_a_user_or_an_address_or_on_this_machine_a_connection():
    assert client_of(("ann",), "192.0.2.1", 7) == client_of(("ann",), "127.0.0.1", 8) == ("ann",)
    assert client_of((), "192.0.2.1", 7) == client_of((), "192.0.2.1", 8) == "192.0.2.1"
    for address in ("127.0.0.1", "::1", ""):
        assert client_of((), address, 7) == 7
