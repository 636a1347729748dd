"""The conformance suite, on a simulated log and on one in a file; an adapter that breaks a promise
fails it."""

import asyncio
from random import Random

import pytest

from sow.shared_log import StoredBlock
from tests.shared_log import conformance
from tests.shared_log.conformance import cases, check
from tests.shared_log.engine import Faults, SimulatedEngine, SimulatedLog
from tests.shared_log.files import FileLog
from tests.simulation.nodes.virtual_loop import VirtualLoop


class SimulatedHarness:
    FAULTS = ("away", "unanswered", "held", "slow")

    def __init__(self, tmp_path, chance):
        loop = asyncio.get_running_loop()
        self._engine = SimulatedEngine(chance, loop.call_later)

    async def connect(self):
        return SimulatedLog(self._engine.connect())

    async def reopened(self):
        return await self.connect()  # the engine itself is what never ends

    async def begin(self, client, fault):
        link = client.link
        if fault == "away":
            link.is_away = True
        elif fault == "slow":
            self._engine.faults = Faults(delay_s=0.05)
        elif fault == "unanswered":
            link.loses_answers = True
        else:
            link.holds_answers = True

    async def end(self, client, fault):
        client.link.end_faults()
        self._engine.faults = Faults()

    async def close(self):
        pass


class FileHarness:
    FAULTS = ()

    def __init__(self, tmp_path, chance):
        self._path = tmp_path / "log"
        self._log = FileLog(self._path)

    async def connect(self):
        return self._log

    async def reopened(self):
        self._log.close()
        with self._path.open("ab") as file:
            file.write(b"half")
        self._log = type(self._log)(self._path)
        return self._log

    async def close(self):
        self._log.close()


def played(case, harness, tmp_path, seed=0):
    """A case in virtual time."""
    loop = VirtualLoop(Random(seed))

    async def play():
        await check(case, harness(tmp_path, Random(seed)))

    try:
        loop.run_until_complete(play())
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.drop(None)
        loop.close()


PAIRS = [(harness, case) for harness in (SimulatedHarness, FileHarness) for case in cases(harness)]


@pytest.mark.parametrize(("harness", "case"), PAIRS)
def test_it_conforms(harness, case, tmp_path):
    played(case, harness, tmp_path)


class Unfaithful(FileHarness):
    """An adapter that breaks a promise, each in its own way."""

    def __init__(self, tmp_path, chance):
        self._path = tmp_path / "log"
        self._log = self.Log(self._path)


class DropsRepeats(Unfaithful):
    class Log(FileLog):
        async def append(self, block):
            if any(one.block == block for one in self._blocks):
                return self.newest
            return await super().append(block)


class AnswersEarly(Unfaithful):
    class Log(FileLog):
        def _write(self, position, block):
            self._take(position, block)  # and nothing on the disk


class ReadsFromTheEnd(Unfaithful):
    class Log(FileLog):
        async def read(self, after):
            async for one in super().read(max(after, self.newest - 3)):
                yield one


class ForgetsTheEnd(Unfaithful):
    class Log(FileLog):
        async def last(self):
            return self._blocks[-1].position if self._blocks else 0


class CutsBlocks(Unfaithful):
    class Log(FileLog):
        async def append(self, block):
            return await super().append(block[: 512 * 1024])


class LosesOrder(Unfaithful):
    class Log(FileLog):
        async def append(self, block):
            if block == b"0":
                await asyncio.sleep(0.001)
            return await super().append(block)


class AnswersWhoeverWaits(SimulatedHarness):
    class Log(SimulatedLog):
        """The answer to any call is one to the call that has waited longest."""

        def __init__(self, link):
            super().__init__(link)
            self._waiting = []

        async def _answer(self, call):
            def call_first(answered):
                self._waiting.append(answered)
                call(lambda position: self._waiting[0](position))

            try:
                return await super()._answer(call_first)
            finally:
                self._waiting.pop(0)

    async def connect(self):
        return self.Log(self._engine.connect())


BROKEN = (
    (DropsRepeats, conformance.the_same_block_again_is_another_one),
    (AnswersEarly, conformance.an_engine_that_begins_again_has_what_it_answered),
    (ReadsFromTheEnd, conformance.blocks_are_read_as_they_were_written),
    (ForgetsTheEnd, conformance.a_log_that_is_trimmed_whole_goes_on),
    (CutsBlocks, conformance.the_largest_block_fits_and_a_larger_one_is_refused),
    (LosesOrder, conformance.calls_that_overlap_keep_their_order),
    (AnswersWhoeverWaits, conformance.a_late_answer_is_not_that_of_a_later_append),
)


@pytest.mark.parametrize(("harness", "case"), BROKEN)
def test_an_adapter_that_breaks_a_promise_does_not(harness, case, tmp_path):
    with pytest.raises((AssertionError, TimeoutError, pytest.fail.Exception)):
        played(case, harness, tmp_path)


def test_a_stored_block_has_its_place():
    assert StoredBlock(7, b"x") == (7, b"x")
