"""Answers in pages: all of one moment, for the user of the query, as long as there is room."""

import json
import random
from urllib.parse import quote

import pytest

from sow.core.security_definitions import Allow, Authentication, Role, Security
from sow.server.api.cursors import CURSOR, PAGED_FORMS
from sow.server.api.records import RecordsHandler
from sow.server.api.snapshots import (
    IDLE_US,
    SNAPSHOT_KEPT_US,
    SNAPSHOTS_MAX,
    AsOfQueries,
    SnapshotHandler,
)
from tests.server.stand_ins import (
    ORDERS,
    Anybody,
    Served,
    World,
    authenticator_of,
    routes_to,
    stepped,
)

RECORDS = "/v1/topics/orders/records"


class Place(Served):
    def __init__(self, authn=None):
        world = World(ORDERS)
        past = AsOfQueries(world.runtime, world.executor.subscriptions.past)
        snapshots = SnapshotHandler(world.runtime, world.engine, past)
        door = RecordsHandler(world.runtime, world.executor, past, snapshots)
        super().__init__(
            world,
            *routes_to(door, snapshots),
            authn=authn,
        )
        self.taken = snapshots.taken

    async def publish(self, *documents):
        self.world.publish(*(json.dumps(one).encode() for one in documents))
        await self.world.runtime.durable()

    async def first(self, query="limit=2", **headers):
        return await self.get(f"{RECORDS}?{query}", **headers)

    async def follow(self, answer, **headers):
        """The answer of what `Link` names."""
        return await self.get(f"{RECORDS}{reference(answer)}", **headers)


def reference(answer):
    link = answer.headers["Link"]
    assert link.startswith("<?cursor=")
    assert link.endswith('>; rel="next"')
    return link[1:].partition(">")[0]


def numbered(count):
    return [{"id": at, "n": at % 7} for at in range(count)]


def rows_of(answer):
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 11])
@stepped
async def test_the_pages_together_are_the_answer_and_the_last_has_no_next(count):
    async with Place() as place:
        await place.publish(*numbered(count))
        answer = await place.first()
        found, sizes = rows_of(answer), [len(rows_of(answer))]
        while "Link" in answer.headers:
            answer = await place.follow(answer)
            found += rows_of(answer)
            sizes.append(len(rows_of(answer)))
            assert answer.headers["SOW-Matches"] == str(count)
        assert found == numbered(count)
        assert sizes[:-1] == [2] * (len(sizes) - 1)
        assert sizes[-1] > 0 or count == 0


@pytest.mark.parametrize(
    "query",
    [
        "",
        "filter=/n>2&order_by=/n%20DESC",
        "order_by=/id%20DESC&top_n=17&skip_n=3",
        "select=/n&meta=true",
        "meta=true&filter=/n=1",
        "projection=/n,SUM(/id)%20AS%20/sum&grouping=/n&order_by=/n",
    ],
)
@pytest.mark.parametrize("seed", range(3))
@stepped
async def test_they_are_of_one_moment_whatever_changes_meanwhile(query, seed):
    dice = random.Random(seed)
    async with Place() as place:
        await place.publish(*numbered(40))
        expected = await place.first(query)
        answer = await place.first(f"{query}&limit=3")
        found, bookmark = rows_of(answer), answer.headers["SOW-Bookmark"]
        while "Link" in answer.headers:
            some = [{"id": dice.randrange(60), "n": dice.randrange(9)} for _ in range(20)]
            await place.publish(*some)
            low = dice.randrange(50)
            deleted = await place.ask("DELETE", f"{RECORDS}?filter=/id>{low}%20AND%20/id<{low + 9}")
            assert deleted.status == 200
            again = await place.follow(answer)
            answer = await place.follow(answer)
            assert rows_of(again) == rows_of(answer), "requested twice, it is the same"
            assert answer.headers["SOW-Bookmark"] == bookmark
            found += rows_of(answer)
        assert found == rows_of(expected)


@stepped
async def test_later_pages_have_the_form_of_the_first():
    async with Place() as place:
        await place.publish(*numbered(3))
        first = await place.first("limit=2&format=ndjson")
        second = await place.follow(first, Accept="text/csv")
        assert second.headers["Content-Type"] == "application/x-ndjson"
        assert first.body + second.body == b"".join(
            json.dumps(one).encode() + b"\n" for one in numbered(3)
        )


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("limit=0", "limit=0"),
        ("limit=-1", "limit=-1"),
        ("limit=x", "limit=x"),
        ("limit=2&explain=true", "explain"),
        ("limit=2&format=csv", "text/csv"),
        ("limit=2&format=arrow", "snapshot"),
        ("cursor=", "cursor="),
        ("cursor=x", "Link"),
        ("cursor=" + "a" * 16, "Link"),
        ("cursor=" + "a" * 16 + ".-1", "Link"),
        ("cursor=" + "a" * 16 + ".9999999999", "Link"),
        ("cursor=" + "a" * 16 + ".\u0663", "Link"),
        ("cursor=" + "a" * 5000, "Link"),
        ("cursor=" + "a" * 16 + ".2&limit=2", "leave limit out"),
        ("cursor=" + "a" * 16 + ".2&meta=true", "leave meta out"),
    ],
)
@stepped
async def test_what_makes_no_pages_is_refused(query, word):
    async with Place() as place:
        await place.publish(*numbered(3))
        refused = await place.first(quote(query, safe="=&"))
        assert refused.status == 400
        detail = json.loads(refused.body)["detail"]
        assert word in detail
        assert len(detail) < 400


@stepped
async def test_a_cursor_that_was_not_given_leads_nowhere():
    async with Place() as place:
        await place.publish(*numbered(5))
        answer = await place.first()
        name, start = CURSOR.search(reference(answer)).groups()
        assert start == "2"
        for wrong in ("1", "3", "6", "999999999"):
            assert (await place.first(f"cursor={name}.{wrong}")).status == 400
        for other in ("a" * 16, name[::-1]):
            assert (await place.first(f"cursor={other}.2")).status == 410
        other = await place.get(f"/v1/topics/other/records?cursor={name}.2")
        assert other.status == 410
        assert rows_of(await place.first(f"cursor={name}.0")) == numbered(5)[:2]
        # Nor is it a snapshot.
        assert (await place.get(f"/v1/snapshots/{name}?part=0")).status == 404


@stepped
async def test_the_head_takes_no_cursor():
    async with Place() as place:
        await place.publish(*numbered(5))
        head = await place.ask("HEAD", f"{RECORDS}?limit=2")
        assert (head.status, head.headers["SOW-Matches"]) == (200, "5")
        assert "Link" not in head.headers
        assert place.taken.rows == 0
        assert "Link" in (await place.first()).headers
        assert place.taken.rows == 5


@stepped
async def test_it_ends_when_it_is_not_used_and_says_so():
    async with Place() as place:
        await place.publish(*numbered(5))
        answer, clock = await place.first(), place.world.clock
        clock.advance(SNAPSHOT_KEPT_US - 1)
        await place.world.runtime.settled()
        answer = await place.follow(answer)
        clock.advance(SNAPSHOT_KEPT_US + 1)
        place.taken.expire(clock.now_us())
        gone = await place.follow(answer)
        assert (gone.status, json.loads(gone.body)["reason"]) == (410, "cursor gone")
        assert "600 s" in json.loads(gone.body)["detail"]


@stepped
async def test_one_client_may_hold_so_many_and_those_that_nobody_goes_on_with_go_first():
    async with Place() as place:
        await place.publish(*numbered(5))
        for _ in range(SNAPSHOTS_MAX // 4 + 5):
            answer = await place.first()
            assert (await place.follow(await place.follow(answer))).status == 200
        begun = [await place.first() for _ in range(SNAPSHOTS_MAX // 4 + 5)]
        assert {answer.status for answer in begun} == {200}
        assert (await place.follow(begun[0])).status == 410
        unread = begun[5:]
        assert {(await place.follow(answer)).status for answer in unread} == {200}
        refused = await place.first()
        assert (refused.status, "Retry-After" in refused.headers) == (503, True)
        place.world.clock.advance(IDLE_US + 1)
        assert (await place.first()).status == 200
        assert (await place.follow(unread[0])).status == 410
        assert (await place.follow(unread[-1])).status == 200


@stepped
async def test_a_topic_that_is_rebuilt_has_other_records():
    async with Place() as place:
        await place.publish(*numbered(5))
        answer = await place.first()
        place.world.engine.topics["orders"] = World(ORDERS).engine.topics["orders"]
        assert (await place.follow(answer)).status == 410


def asking(condition):
    allows = (Allow("orders", read=True, filter=condition),)
    return Security(
        authentication=Authentication(tokens_file="tokens"), roles=(Role("some", ("*",), allows),)
    )


def by(user):
    return {"Authorization": f"Bearer {user}"}


@stepped
async def test_it_is_for_who_has_requested_as_long_as_he_sees_the_same():
    authn = authenticator_of(asking("/n < 5"), lambda _by: Anybody())
    async with Place(authn) as place:
        await place.publish(*numbered(20))
        answer = await place.first("limit=5", **by("ann"))
        assert answer.headers["SOW-Matches"] == "15"
        assert (await place.follow(answer, **by("bob"))).status == 410
        second = await place.follow(answer, **by("ann"))
        assert [row["n"] < 5 for row in rows_of(second)] == [True] * 5
        authn.swap_security(authn.read(asking("/n < 3")))
        assert (await place.follow(second, **by("ann"))).status == 410
        assert (await place.first(f"cursor={'a' * 16}.5")).status == 401
        assert place.taken.rows == 0


def test_pages_are_made_in_forms_that_are_whole_by_themselves():
    assert [kind.rpartition("/")[2] for kind in PAGED_FORMS][:2] == ["json", "x-ndjson"]
