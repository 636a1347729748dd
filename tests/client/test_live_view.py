"""Live views: changes are given once each, however often one gives up waiting for them."""

import asyncio
from socket import SHUT_RDWR

import msgspec
import pytest

from sow.client import ClosedByServer, Disconnected, Live, LiveWindow, Message
from sow.client.tables import shown_nothing
from sow.errors import ClientError, UnknownTopic

SOON_S, NEVER_S = 60.0, 0.02


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
        for patience_s in (0.0001 * 2**step for step in range(20)):
            try:
                await asyncio.wait_for(following.batch(), patience_s)
            except TimeoutError:
                continue
            except UnknownTopic as error:
                return error.detail
        return ""

    assert "no topic 'nope'" in using(work)


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


def test_what_came_and_went_while_nobody_requested_is_no_change_and_takes_no_memory(using):
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


# The end of a view.

RECORD = [
    Message("group_begin"),
    Message("sow", k="1", at=0, d=msgspec.Raw(b'{"id":1}')),
    Message("group_end"),
]
KINDS = pytest.mark.parametrize("kind", [Live, LiveWindow])


class Sent:
    """A subscription that says these messages, and then how it goes on: an error is raised,
    messages are said, and None is the end."""

    def __init__(self, ending):
        self._said = [RECORD]
        self.bookmark = "1"
        self.ending = ending
        self.ends = asyncio.Event()
        self._is_closed = False

    async def open(self):
        pass

    async def batch(self):
        if self._said:
            return self._said.pop()
        await self.ends.wait()
        if isinstance(self.ending, Exception):
            raise self.ending
        return self.ending or []

    async def close(self):
        self._is_closed = True
        self.ends.set()


async def no_columns(topic):
    raise AssertionError("the server gets no request for the columns of a view that has ended")


async def opened(kind, ending):
    view = kind(Sent(ending), "orders", no_columns)
    await view.__aenter__()
    return view


async def ended(view):
    view.subscription.ends.set()
    await view._over.wait()


async def all_changes(view):
    return [change async for change in view.changes()]


def reads(view):
    """Every way to read a view, as functions that may give something to wait for."""
    found = {
        "len": lambda: len(view),
        "for": lambda: [*view],
        "in": lambda: "1" in view,
        "copy": view.copy,
        "to_arrow": view.to_arrow,
        "to_pandas": view.to_pandas,
        "to_polars": view.to_polars,
        "synced": view.synced,
        "change": lambda: view.change(SOON_S),
    }
    if isinstance(view, Live):
        return found | {
            "[]": lambda: view["1"],
            "get": lambda: view.get("1"),
            "keys": lambda: [*view.keys()],
            "values": lambda: [*view.values()],
            "items": lambda: [*view.items()],
            "==": lambda: view == {},
        }
    return found | {
        "[]": lambda: view[0],
        "[:]": lambda: view[:],
        "reversed": lambda: [*reversed(view)],
        "keys": lambda: view.keys,
        "count": lambda: view.count({"id": 1}),
        "index": lambda: view.index({"id": 1}),
    }


async def raised(view, more=()):
    """What each way of reading raises."""
    found = {}
    for name, read in [*reads(view).items(), *more]:
        try:
            made = read()
            found[name] = await made if asyncio.iscoroutine(made) else made
        except Exception as error:
            found[name] = error
    return found


ENDS = {
    "given up": Disconnected("the connection was lost"),
    "closed by the server": ClosedByServer("closed by an operator"),
    "rights withdrawn": [Message("unsubscribed", reason="AUTHORIZATION")],
    "no line of a server": msgspec.DecodeError("truncated"),
}


@KINDS
@pytest.mark.parametrize("ending", ENDS.values(), ids=ENDS)
def test_each_way_to_read_a_view_that_has_ended_raises_why(kind, ending):
    async def work():
        view = await opened(kind, ending)
        assert view.ended is None
        assert view.copy() in ({"1": {"id": 1}}, [{"id": 1}])
        await ended(view)
        found = await raised(view, [("changes", lambda: all_changes(view))])
        return view.ended, found, view.preview(), view._repr_html_()

    why, found, preview, html = asyncio.run(work())
    if isinstance(ending, list):
        errors = {type(error) for error in found.values()}, {e.reason for e in found.values()}
        assert errors == ({ClosedByServer}, {"AUTHORIZATION"})
        assert why == "the server has ended the subscription: AUTHORIZATION"
    else:
        assert {*found.values()} == {ending}
        assert why == str(ending)
    assert preview == shown_nothing("orders", f"ended: {why}")
    assert f"orders: ended: {why}" in html
    assert "<td>" not in html


@KINDS
def test_each_way_to_read_a_view_that_its_owner_has_closed_says_so_but_changes_are_over(kind):
    async def work():
        view = await opened(kind, None)
        view._put(view._records, "2", {"id": 2})
        await view.__aexit__(None, None, None)
        rest = await all_changes(view)
        return view.ended, rest, await raised(view)

    why, rest, found = asyncio.run(work())
    assert why == "it was closed"
    assert [change.new for change in rest] == [{"id": 2}]
    assert {type(error) for error in found.values()} == {Disconnected}
    assert {str(error) for error in found.values()} == {
        "the live view has ended: it was closed; open another"
    }


def test_a_view_ends_with_its_subscription_or_its_client_and_its_changes_are_over(using):
    async def work(client):
        for close in (lambda view: view.subscription.close(), lambda _view: client.close()):
            view = await client.live("orders").__aenter__()
            following = asyncio.ensure_future(all_changes(view))
            await asyncio.sleep(0)
            await close(view)
            assert await asyncio.wait_for(following, SOON_S) == []
            assert view.ended == "it was closed"

    using(work)


def test_what_is_waited_for_is_raised_when_the_view_ends(using):
    async def work():
        view = await opened(Live, ENDS["rights withdrawn"])
        waiting = asyncio.ensure_future(view.change())
        await asyncio.sleep(0)
        await ended(view)
        with pytest.raises(ClosedByServer, match="AUTHORIZATION"):
            await waiting

    asyncio.run(work())


def test_while_the_connection_is_made_again_reads_go_on(server, using):
    async def work(client):
        await client.publish("orders", {"id": 1})
        async with client.live("orders") as live:
            connect, tried, again = client._sockets.connect, asyncio.Event(), asyncio.Event()

            async def held(*known):
                tried.set()
                await again.wait()
                return await connect(*known)

            live.subscription._connect = held
            live.subscription._socket._socket.get_extra_info("socket").shutdown(SHUT_RDWR)
            await tried.wait()
            seen = live.ended, [*live.values()], (await live.to_arrow()).num_rows
            again.set()
            await client.publish("orders", {"id": 2})
            return seen, (await live.change(SOON_S)).new, live.ended

    assert using(work) == ((None, [{"id": 1}], 1), {"id": 2}, None)


def test_records_of_several_topics_are_kept_apart_though_their_sow_keys_are_the_same(using):
    async def work(client):
        await client.publish("/desk/1", {"id": 1, "of": "one", "n": 1})
        async with client.live("/desk/1") as one, client.live("^/desk/") as both:
            (key,) = one
            await client.publish("/desk/2", {"id": 1, "of": "two", "n": 1})
            born = await both.change(SOON_S)
            await client.delta_publish("/desk/1", {"id": 1, "n": 2})
            changed = await both.change(SOON_S)
            held = both.copy()
            await client.delete("/desk/2", filter="/id = 1")
            left = await both.change(SOON_S)
            return key, born, changed, held, left, both.copy()

    key, born, changed, held, left, rest = using(work)
    first, second = f"/desk/1:{key}", f"/desk/2:{key}"
    one, other = {"id": 1, "of": "one", "n": 2}, {"id": 1, "of": "two", "n": 1}
    assert (born.key, born.old, born.new) == (second, None, other)
    assert (changed.key, changed.old, changed.new) == (first, one | {"n": 1}, one)
    assert held == {first: one, second: other}
    assert (left.key, left.old, left.new) == (second, other, None)
    assert rest == {first: one}


def test_a_view_of_the_past_begins_there_and_comes_to_the_present(using):
    async def work(client):
        first = await client.publish("orders", {"id": 1, "px": 1})
        await client.publish("orders", [{"id": 1, "px": 2}, {"id": 2, "px": 1}])
        async with client.live("orders", as_of=first) as live:
            # What has changed since may be there as soon as the records of then are.
            began = live.subscription._fields["as_of"]
            while len(live) < 2:
                await live.change(SOON_S)
            came = sorted(live.values(), key=lambda one: one["id"])
        with pytest.raises(ClientError, match="a live window has no past"):
            client.live("orders", as_of=first, top_n=1)
        return began.endswith(f"-{first}"), came

    assert using(work) == (True, [{"id": 1, "px": 2}, {"id": 2, "px": 1}])
