"""Drivers of three nodes over a simulated log, in virtual time: what is submitted, released and
applied; and what a thread of the journal makes of it."""

import asyncio
from contextlib import suppress
from random import Random

import pytest

from sow.errors import NotLeading, StoreError, UnsafeLog
from sow.server.loop import log_driver
from sow.server.loop.log_driver import LogDriver
from sow.shared_log.entry import EntryKind, Lead, LogEnvelope
from sow.shared_log.roles import ReadFrom
from sow.shared_log.writer import IN_FLIGHT_MAX
from tests.shared_log.engine import Faults, SimulatedEngine, SimulatedLog
from tests.simulation.nodes.virtual_loop import VirtualLoop

LEASE_S = 0.6
FAULTS = Faults(lost=0.02, unanswered=0.02, late=0.02, doubled=0.02, dead_reader=0.001)


class Submitter:
    def __init__(self):
        self.released_numbers, self.errors = [], []

    def released(self, number):
        self.released_numbers.append(number)

    def ended(self, error):
        self.errors.append(error)


class Nodes:
    def __init__(self, chance, faults=None):
        self.loop = asyncio.get_running_loop()
        self.chance = chance
        self.engine = SimulatedEngine(chance, self.loop.call_later, faults or Faults())
        self.links, self.drivers, self.submitters = {}, {}, {}
        for name in "abc":
            self.start(name)

    def start(self, name):
        link = self.links[name] = self.engine.connect()
        driver = LogDriver(
            SimulatedLog(link),
            Lead(name, f"http://{name}", int(LEASE_S * 1e6), log=name),
            lambda: self.chance.randbytes(16),
            lambda: int(self.loop.time() * 1e6),
        )
        driver.keep_time(lambda: int(self.loop.time() * 1e6))
        self.submitters[name] = Submitter()
        driver.serve(self.submitters[name])
        self.drivers[name] = driver
        driver.start()

    async def until(self, condition, wait_s=60):
        async with asyncio.timeout(wait_s):
            while not condition():
                await asyncio.sleep(0.01)

    async def primary(self):
        """Who leads, and knows that it is not out of date."""

        def found():
            return [one for one in self.drivers.values() if one.is_primary and not one.is_stale]

        await self.until(lambda: len(found()) == 1)
        return found()[0]

    def applied(self, name):
        return [one.content for one in self.drivers[name].waiting]

    async def close(self):
        for driver in self.drivers.values():
            await driver.close()


def played(work, seed=1, faults=None):
    """What a coroutine function of nodes returns, in virtual time."""
    loop = VirtualLoop(Random(seed))

    async def play():
        nodes = Nodes(Random(seed), faults)
        try:
            return await work(nodes)
        finally:
            await nodes.close()

    try:
        found = loop.run_until_complete(play())
        loop.run_until_complete(loop.shutdown_asyncgens())
        return found
    finally:
        loop.drop(None)
        loop.close()


def others(driver):
    return [name for name in "abc" if name != driver.lead.node]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("faults", [None, FAULTS])
def test_what_one_submits_is_released_once_and_applied_by_all_others(seed, faults):
    async def work(nodes):
        primary = await nodes.primary()
        submitter = nodes.submitters[primary.lead.node]
        for number in range(1, 30):
            assert primary.submit(number, b"%d" % number, number)
            await asyncio.sleep(nodes.chance.random() * 0.02)
        await nodes.until(lambda: len(submitter.released_numbers) == 29 or submitter.errors)
        assert submitter.released_numbers == [*range(1, 1 + len(submitter.released_numbers))]
        wanted = [b"%d" % number for number in submitter.released_numbers]
        for name in others(primary):
            await nodes.until(lambda name=name: len(nodes.applied(name)) >= len(wanted))
            assert nodes.applied(name)[: len(wanted)] == wanted

    played(work, seed, faults)


def test_another_leads_when_the_primary_is_gone_and_all_have_the_same_log_name():
    async def work(nodes):
        first = await nodes.primary()
        assert first.submit(1, b"one", 1)
        await nodes.until(lambda: nodes.submitters[first.lead.node].released_numbers == [1])
        await first.close()
        del nodes.drivers[first.lead.node]
        died_s = nodes.loop.time()
        second = await nodes.primary()
        assert nodes.loop.time() - died_s < 3 * LEASE_S
        assert second.leader.log == first.lead.log
        assert [one.content for one in second.waiting] == [b"one"]
        assert not first.submit(2, b"late", 2)

    played(work)


def test_a_primary_that_is_cut_off_is_stale_first_and_is_told_when_another_leads():
    async def work(nodes):
        first = await nodes.primary()
        name = first.lead.node
        nodes.links[name].cut()
        assert first.submit(1, b"lost", 1)
        await nodes.until(lambda: first.is_stale)
        assert not any(one.is_primary for one in nodes.drivers.values() if one is not first)
        await nodes.until(lambda: any(nodes.drivers[one].is_primary for one in others(first)))
        nodes.links[name].heal(keep=0)
        await nodes.until(lambda: not first.is_primary)
        (error,) = nodes.submitters[name].errors
        assert isinstance(error, NotLeading)
        assert any(f"http://{one}" in error.detail for one in others(first))
        assert nodes.submitters[name].released_numbers == []

    played(work)


def test_a_node_has_joined_once_it_hears_who_leads_now():
    async def work(nodes):
        await nodes.primary()
        await nodes.until(lambda: all(one.has_joined for one in nodes.drivers.values()))
        for driver in nodes.drivers.values():
            await driver.close()
        nodes.start("a")
        driver = nodes.drivers["a"]
        await nodes.until(lambda: driver.leader is not None)
        assert not driver.has_joined  # who led then may be gone
        await nodes.until(lambda: driver.is_primary)
        assert driver.has_joined

    played(work)


def test_an_entry_of_a_later_release_ends_a_driver():
    async def work(nodes):
        primary = await nodes.primary()
        follower = nodes.drivers[others(primary)[0]]
        state = follower.node.chain.state
        primary.fail(StoreError("it is gone"))
        await nodes.until(lambda: follower.node.chain.state == state, 1)
        later = LogEnvelope(EntryKind.RECORDS, state.term, 1, state.hash, bytes(16), b"", format=99)
        nodes.engine.store(later.encode()[0])
        await nodes.until(lambda: follower.failure is not None)
        assert "format 99" in follower.failure.detail
        assert follower.is_stale
        (error,) = nodes.submitters[primary.lead.node].errors
        assert error.reason == "outcome unknown"

    played(work)


def test_unsafe_settings_end_a_driver_at_its_start():
    class Unsafe:
        async def last(self):
            raise UnsafeLog("it loses what it has answered")

        async def read(self, after):
            raise UnsafeLog("it loses what it has answered")
            yield

    async def work(nodes):
        driver = LogDriver(Unsafe(), Lead("d", "", 600_000), lambda: bytes(16), lambda: 0)
        driver.start()
        await nodes.until(lambda: driver.failure is not None)
        assert isinstance(driver.failure, UnsafeLog)
        await driver.close()

    played(work)


def test_settings_that_become_unsafe_stop_all_appends_until_they_are_mended(caplog):
    async def refuse(*_given):
        raise UnsafeLog("max_age 5: it loses what it has answered")

    async def work(nodes):
        primary = await nodes.primary()
        logs = [one._shared for one in nodes.drivers.values()]
        for log in logs:
            log.append = log.last = refuse
        stored = len(nodes.engine.blocks)
        await asyncio.sleep(10 * LEASE_S)
        assert primary.is_stale
        assert "max_age 5" in primary.trouble
        assert not any(one.failure for one in nodes.drivers.values())
        assert len(nodes.engine.blocks) <= stored + IN_FLIGHT_MAX  # what was on its way
        for log in logs:
            del log.append, log.last
        leads = await nodes.primary()
        assert leads.submit(7, b"7", 1)
        await nodes.until(lambda: 7 in nodes.submitters[leads.lead.node].released_numbers)

    played(work)
    said = [one for one in caplog.messages if "max_age 5" in one]
    assert 1 <= len(said) <= 3  # once by each node


def test_who_steps_down_is_followed_at_once_and_leads_no_more_while_others_can():
    async def work(nodes):
        first = await nodes.primary()
        assert first.submit(1, b"1", 1)
        began_s = nodes.loop.time()
        assert first.step_down()
        assert not first.submit(2, b"2", 2)
        await nodes.until(lambda: not first.is_primary)
        assert nodes.submitters[first.lead.node].released_numbers == [1]
        (error,) = nodes.submitters[first.lead.node].errors
        assert error.reason == "no quorum"
        second = await nodes.primary()
        assert nodes.loop.time() - began_s < 2 * LEASE_S
        assert first.lost_lead().primary == second.address
        second.step_down()
        await nodes.until(lambda: not second.is_primary)
        third = await nodes.primary()
        assert third not in (first, second)

    played(work)


def test_who_resigns_waits_for_its_entry_and_for_a_lease_at_most():
    async def work(nodes):
        first, began_s = await nodes.primary(), nodes.loop.time()
        await first.resign()
        assert not first.is_primary
        await first.close()
        second = await nodes.primary()
        assert nodes.loop.time() - began_s < LEASE_S, "nobody has waited for its silence"

        async def unanswered(_block):
            await asyncio.Event().wait()

        second._shared.append, began_s = unanswered, nodes.loop.time()
        await second.resign()
        assert LEASE_S <= nodes.loop.time() - began_s < 1.1 * LEASE_S

    played(work)


def test_time_passes_for_who_hears_the_log_and_is_not_known_to_who_does_not():
    async def work(nodes):
        primary = await nodes.primary()
        follower = nodes.drivers[others(primary)[0]]
        await nodes.until(lambda: follower.has_joined and follower.has_heard)
        assert not LogDriver(follower._shared, follower.lead).has_heard
        heard_us = follower.time_us
        follower._reading.cancel()
        await asyncio.sleep(0.3)
        assert follower.time_us == heard_us
        assert follower.time_now_us() >= heard_us + 300_000

    played(work)


def test_an_engine_that_is_away_is_asked_for_the_end_once_at_a_time():
    async def work(nodes):
        first = await nodes.primary()
        name = others(first)[0]
        driver, answer, asked = nodes.drivers[name], asyncio.Event(), []
        last = driver._shared.last

        async def slow():
            asked.append(nodes.loop.time())
            await answer.wait()
            return await last()

        driver._shared.last = slow
        for one in (first, nodes.drivers[others(first)[1]]):
            await one.close()
            del nodes.drivers[one.lead.node]
        await asyncio.sleep(100 * LEASE_S)
        assert len(asked) == 1
        answer.set()
        assert await nodes.primary() is driver

    played(work)


def test_a_new_log_has_no_time_before_who_leads_it_has_started():
    async def work(nodes):
        for driver in nodes.drivers.values():
            driver.keep_time(None)  # its server has not started
            driver.has_heard = False
        primary = await nodes.primary()
        follower = nodes.drivers[others(primary)[0]]
        await nodes.until(lambda: follower.has_joined)
        await asyncio.sleep(2 * LEASE_S)  # beats come
        assert (follower.time_us, follower.has_heard) == (0, False)
        primary.keep_time(lambda: 5_000_000)
        await nodes.until(lambda: follower.has_heard)
        assert follower.time_us == 5_000_000

    played(work)


def test_a_node_that_has_missed_more_than_is_held_at_once_begins_with_that(monkeypatch):
    monkeypatch.setattr(log_driver, "WAITING_BYTES_MAX", 100)

    async def work(nodes):
        primary = await nodes.primary()
        for number in range(1, 30):
            assert primary.submit(number, bytes(50), number)
        await nodes.until(lambda: len(nodes.submitters[primary.lead.node].released_numbers) == 29)
        late = others(primary)[0]
        await nodes.drivers[late].close()
        nodes.start(late)
        driver, applied = nodes.drivers[late], 0
        await nodes.until(lambda: driver.is_full)
        await asyncio.sleep(10 * LEASE_S)  # it holds no more in any time
        assert driver._waiting_bytes <= 150
        assert not driver.has_joined
        assert driver.is_stale
        assert driver.silent_us() > 10 * LEASE_S * 1e6
        while applied < 29:
            await nodes.until(lambda: driver.waiting)
            driver.applied(0)
            applied += 1
        await nodes.until(lambda: driver.has_joined)
        assert not driver.is_stale
        assert driver.silent_us() < LEASE_S * 1e6

    played(work)


def test_what_was_divided_and_is_in_the_log_in_part_is_applied_by_who_has_written_it():
    async def work(nodes):
        first = await nodes.primary()
        name, place = first.lead.node, first.place(0)
        assert first.submit(None, b"part", 1)
        await nodes.until(lambda: first.node.has_parts)
        assert first.place(0) == place  # a start has to read it again
        nodes.links[name].cut()
        assert first.submit(1, b"the rest", 1)
        await nodes.until(lambda: any(nodes.drivers[one].is_primary for one in others(first)))
        nodes.links[name].heal(keep=0)
        await nodes.until(lambda: not first.is_primary)
        assert nodes.submitters[name].released_numbers == []
        for one in "abc":
            await nodes.until(lambda one=one: nodes.applied(one) == [b"part"])
        assert not first.node.has_parts
        # What is released is not applied once more.
        second = await nodes.primary()
        assert second.submit(None, b"part 1", 1)
        assert second.submit(2, b"part 2", 1)
        await nodes.until(lambda: nodes.submitters[second.lead.node].released_numbers == [2])
        assert not second.node.has_parts
        assert nodes.applied(second.lead.node) == [b"part"]

    played(work)


def test_nothing_is_appended_to_a_log_that_its_engine_has_lost():
    async def work(nodes):
        primary = await nodes.primary()
        for number in range(1, 30):
            assert primary.submit(number, b"%d" % number, number)
        submitter = nodes.submitters[primary.lead.node]
        await nodes.until(lambda: len(submitter.released_numbers) == 29)
        engine = nodes.engine
        engine.blocks, engine.newest = [], 0
        for number in range(30, 40):
            assert primary.submit(number, b"lost", number)
        await asyncio.sleep(20 * LEASE_S)
        assert len(engine.blocks) <= 2 * IN_FLIGHT_MAX
        assert primary.is_stale
        assert "has lost what it had stored" in primary.trouble
        # Others may write there: their entries are not taken for those that were lost.
        while engine.newest < 200:
            engine.store(b"of others")
        await nodes.until(lambda: all(one.failure for one in nodes.drivers.values()))
        for driver in nodes.drivers.values():
            assert driver.failure.reason == "another log"
        assert len(submitter.released_numbers) == 29
        assert submitter.errors[0].reason == "outcome unknown"

    played(work)


def test_a_read_that_was_replaced_and_forgets_it_takes_nothing_and_ends_with_its_driver():
    async def work(nodes):
        primary = await nodes.primary()
        driver = nodes.drivers[others(primary)[0]]
        reads, read = [], driver._shared.read

        async def forgetting(after):
            blocks = read(after)
            reads.append(asyncio.current_task())
            with suppress(asyncio.CancelledError):
                async for stored in blocks:
                    yield stored
            async for stored in read(after):
                yield stored

        driver._shared.read = forgetting
        for _ in range(2):
            await nodes.until(lambda: driver._reading is not None)
            driver._carry_out(ReadFrom(driver.node.chain.state.position))
            await asyncio.sleep(LEASE_S)
        first, second = reads[0], reads[-1]
        assert primary.submit(1, b"once", 1)
        await nodes.until(lambda: nodes.applied(driver.lead.node))
        await asyncio.sleep(LEASE_S)
        assert nodes.applied(driver.lead.node) == [b"once"]
        assert first.done()
        assert not second.done()
        await driver.close()
        assert second.done()
        assert not driver._tasks

    played(work)
