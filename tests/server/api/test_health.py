"""What watches a server is answered at any time: while it starts, and while it serves."""

import logging

from sow.core.definitions import Configuration, ConflatedTopic, Limits
from sow.core.quota import Quota
from sow.engine.recovery.redo import Progress
from sow.server.api.nodes import Nodes
from sow.server.api.status import STALLED_S, HealthHandler, StartupProgress
from sow.server.boot.routes import RecordsHere
from sow.server.http.connections import ConnectionLimiter
from sow.server.http.server_log import LastError
from tests.server.stand_ins import ORDERS, SECOND, Served, World, routes_to, stepped


class Place(Served):
    """A server whose start is at `progress`."""

    def __init__(self, world, last=None, may_administer=None):
        self.progress = Progress()
        self.replay = StartupProgress(self.progress)
        crowd = ConnectionLimiter(lambda: Configuration("test", ()), 100)
        last, here = last or LastError(), RecordsHere("n")
        self.status = HealthHandler(
            self.replay,
            crowd,
            Quota(lambda: 1),
            dict,
            last,
            may_administer,
            here,
            Nodes(lambda: 0.0),
        )
        super().__init__(world, *routes_to(self.status))

    def follow(self):
        self.replay.end()
        self.status.follow(self.world.runtime, self.world.executor, lambda: None)


@stepped
async def test_while_records_are_put_back_it_lives_and_says_how_far_it_is():
    async with Place(World()) as place:
        place.progress.begin(4)
        place.progress.put_back("orders", 3)
        assert (await place.get("/healthz")).body == b"ok\n"
        ready = await place.get("/readyz")
        assert (ready.status, ready.body) == (503, b"replaying: orders, 3 of 4 records\n")
        page = (await place.get("/metrics")).body
        assert b"sow_replaying 1.0" in page
        assert b"sow_replay_records 3.0" in page
        assert b"sow_replay_records_expected 4.0" in page
        assert b"sow_bookmark" not in page
        place.follow()
        log = place.world.journal.log_id
        assert (await place.get("/readyz")).headers["SOW-Log"] == log
        assert (await place.get("/readyz")).body == b"ok\n"
        page = (await place.get("/metrics")).body
        assert b"sow_replaying 0.0" in page
        assert b"sow_bookmark_total" in page


@stepped
async def test_it_says_whether_messages_are_taken():
    world = World()
    async with Place(world) as place:
        place.follow()
        world.journal.full = True
        full = await place.get("/readyz")
        assert (full.status, full.body) == (503, b"disk full\n")
        assert (await place.get("/healthz")).status == 200
        world.journal.full = False


@stepped
async def test_it_says_how_large_a_publish_may_be_while_the_disk_is_nearly_full(monkeypatch):
    world = World()
    async with Place(world) as place:
        place.follow()
        room = 40 << 20
        monkeypatch.setattr(type(world.journal), "room_bytes", room)
        monkeypatch.setattr(world.journal, "has_room", lambda size_bytes=0: 2 * size_bytes < room)
        ready = await place.get("/readyz")
        said = b"ok; disk nearly full: publishes over 20 MiB are refused\n"
        assert (ready.status, ready.body) == (200, said)
        room = 200 << 20
        assert (await place.get("/readyz")).body == b"ok\n"


@stepped
async def test_it_says_how_full_queue_memory_and_group_memory_are():
    world = World()
    async with Place(world) as place:
        place.follow()
        queues = world.executor.sessions.memory
        groups = world.executor.subscriptions.aggregations.memory.holder("client")
        queues.share("client").add(93 * queues.limit_bytes // 100)
        groups.add(Limits().group_memory_bytes_max * 19 // 20)
        ready = await place.get("/readyz")
        said = b"ok; queue memory 93% full; group memory 95% full\n"
        assert (ready.status, ready.body) == (200, said)
        queues.share("client").add(-queues.used)
        groups.release()
        assert (await place.get("/readyz")).body == b"ok\n"


@stepped
async def test_it_says_why_it_should_be_sent_no_work_although_messages_are_taken():
    world = World(ORDERS, ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND))
    async with Place(world) as place:
        failures = []
        place.replay.end()
        place.status.follow(
            world.runtime, world.executor, lambda: failures[0] if failures else None
        )
        assert (await place.get("/readyz")).body == b"ok\n"
        failures.append("/secret/orders.sow: no space left")
        failed = await place.get("/readyz")
        assert (failed.status, failed.body) == (503, b"checkpoint failed: the log says why\n")
        assert b"sow_checkpoint_failing 1.0" in (await place.get("/metrics")).body
        failures.clear()
        assert (await place.get("/readyz")).status == 200


@stepped
async def test_conflation_that_is_not_let_out_is_stalled_and_one_that_is_late_is_not():
    world = World()
    async with Place(world) as place:
        place.follow()
        late_s = 0.0
        world.runtime.late_s = lambda: late_s
        assert (await place.get("/readyz")).status == 200
        late_s = STALLED_S
        assert (await place.get("/readyz")).status == 200
        late_s = STALLED_S + 2
        stalled = await place.get("/readyz")
        assert (stalled.status, stalled.body) == (
            503,
            b"conflation stalled: work due 7 s ago is not done\n",
        )
        assert b"sow_due_late_seconds 7.0" in (await place.get("/metrics")).body


@stepped
async def test_the_last_error_is_sent_whole_to_administrators_and_its_time_to_others():
    last, sees = LastError(), []

    async def may_administer(request):
        sees.append(request.headers.get("Authorization"))
        return sees[-1] == "Bearer good"

    async with Place(World(), last, may_administer) as place:
        place.follow()
        assert (await place.get("/readyz")).body == b"ok\n"
        assert sees == [], "nobody need be known while there is nothing to tell"
        record = logging.LogRecord("sow.x", logging.ERROR, "", 1, "no room", None, None)
        record.created = 0.0
        last.handle(record)
        when = b"last error 1970-01-01T00:00:00.000Z"
        assert (await place.get("/readyz")).body == b"ok; " + when + b"\n"
        answer = await place.get("/readyz", Authorization="Bearer good")
        assert answer.body == b"ok; " + when + b": x: no room\n"
        place.world.journal.full = True
        assert (await place.get("/readyz")).body == b"disk full; " + when + b"\n"
        place.world.journal.full = False
