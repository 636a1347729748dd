"""Live views: changes are given once each, however often one gives up waiting for them."""

import asyncio
from socket import SHUT_RDWR

import pytest

from sow.client import Disconnected
from sow.errors import UnknownTopic

SOON_S, NEVER_S = 5.0, 0.02


def test_changes_go_on_after_any_number_of_timeouts(using):
    async def work(client):
        found = []
        async with client.live("orders") as live:
            changes = aiter(live.changes())
            for number in range(3):
                for _ in range(2):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(anext(changes), NEVER_S)
                await client.publish("orders", {"id": number})
                found.append((await asyncio.wait_for(anext(changes), SOON_S)).new["id"])
        return found

    assert using(work) == [0, 1, 2]


def test_no_change_is_lost_by_giving_up_at_the_wrong_moment(using):
    async def work(client):
        found = []
        async with client.live("orders") as live:
            publishing = asyncio.ensure_future(_publish_slowly(client, 50))
            while len(found) < 50:
                try:
                    found.append((await live.change(0.0005)).new["id"])
                except TimeoutError:
                    continue
            await publishing
        return found

    assert using(work) == list(range(50))


async def _publish_slowly(client, count):
    for number in range(count):
        await client.publish("orders", {"id": number})


def test_the_changes_of_a_closed_view_are_over(using):
    async def work(client):
        async with client.live("orders") as live:
            await client.publish("orders", {"id": 1})
            first = await live.change(SOON_S)
        rest = [change async for change in live.changes()]
        with pytest.raises(Disconnected, match="live view has ended"):
            await live.change(SOON_S)
        return first.new, rest

    assert using(work) == ({"id": 1}, [])


def test_a_subscription_whose_opening_was_given_up_is_still_refused(using):
    async def work(client):
        following = client.subscribe("nope")
        for patience_s in (0.0001 * 2**step for step in range(16)):
            try:
                await asyncio.wait_for(following.batch(), patience_s)
            except TimeoutError:
                continue
            except UnknownTopic as error:
                return error.detail
        return ""

    assert "no topic 'nope'" in using(work)


def test_a_text_whose_fields_only_the_server_knows_is_followed_whole(server, using):
    whole = [f"1=a\x012={value}\x013=c\x01" for value in "bxyz"]

    async def work(client):
        await client.publish("fixes", whole[0])
        async with client.live("fixes", no_empties=True) as live:
            found = list(live.values())
            for value in "xy":
                await client.delta_publish("fixes", f"1=a\x012={value}\x01")
                found.append((await live.change(SOON_S)).new)
            return found, live.subscription.gaps

    assert using(work) == (whole[:3], 0)


def test_a_connection_that_breaks_meanwhile_is_made_again(server, using):
    async def work(client):
        await client.publish("fixes", "1=a\x012=b\x01")
        async with client.live("fixes") as live:
            command = live.subscription._socket.command

            async def broken(name, **fields):
                if name != "unsubscribe":
                    return await command(name, **fields)
                live.subscription._socket._socket.get_extra_info("socket").shutdown(SHUT_RDWR)
                raise Disconnected("broken")

            live.subscription._socket.command = broken
            await client.delta_publish("fixes", "1=a\x012=x\x01")
            change = await live.change(SOON_S)
            return change.new, live.subscription.gaps

    assert using(work) == ("1=a\x012=x\x01", 1)


def test_it_shows_itself_in_notebooks(using):
    async def work(client):
        await client.publish("orders", [{"id": at, "px": f"<{at}>"} for at in range(30)])
        async with client.live("orders") as orders, client.live("orders", top_n=2) as first:
            return orders._repr_html_(), first._repr_html_()

    shown, window = using(work)
    assert "<caption>orders: 30 records, the first 20</caption>" in shown
    assert "<td>&lt;7&gt;</td>" in shown
    assert "<caption>orders: 2 records</caption>" in window


def test_a_table_is_made_of_what_has_changed_since_the_last(using):
    """The last table's rows are used again: of a record that is the same, nothing is read."""
    looked = []

    async def work(client):
        await client.publish("orders", [{"id": at, "px": at / 2} for at in range(50)])
        async with client.live("orders") as live, client.live("orders", top_n=2) as window:
            first = await live.to_arrow()
            kept = live._table._made

            def made(records, schemas):
                known = live._table._documents
                looked.append(
                    [one["id"] for key, one in records.items() if known.get(key) is not one]
                )
                return kept(records, schemas)

            live._table._made = made
            await client.publish("orders", {"id": 7, "px": 0.25})
            await live.change(SOON_S)
            await client.delete("orders", filter="/id = 3")
            await live.change(SOON_S)
            second, third = await live.to_arrow(), await live.to_arrow()
            return first, second, third, await window.to_arrow()

    first, second, third, window = using(work)
    assert looked == [[7], []]
    assert first.num_rows == 50
    assert second.column("id").to_pylist() == [at for at in range(50) if at != 3]
    assert second.column("px").to_pylist()[6] == 0.25
    assert third.equals(second)
    assert window.column("id").to_pylist() == [0, 1]


def test_what_came_and_went_while_nobody_asked_is_no_change_and_takes_no_memory(using):
    async def work(client):
        async with client.live("orders") as live:
            for number in range(50):
                await client.publish("orders", {"id": number})
                await client.delete("orders", filter="1=1")
            await client.publish("orders", {"id": "last"})
            while {"id": "last"} not in live.values():
                await live._moved.wait()
                live._moved.clear()
            return len(live._changes), (await live.change(SOON_S)).new

    assert using(work) == (1, {"id": "last"})
