"""What every adapter of a shared log has to pass, whatever its engine.

A *harness* has one log that is new: `connect` gives another client of it, `reopened` one after the
engine and all clients have ended and begun again. `FAULTS` names what it can do to a client's
connection: `begin(client, fault)` and `end(client, fault)`:

    away          the engine cannot be reached, or has no quorum
    unanswered    what is appended is stored, and its answer lost
    held          what is appended is stored; its answer comes when the fault ends
    slow          answers take long, though less than a client waits

`cases(harness)` are the checks that it can be put through; `check(case, harness)` does one, and
closes the harness.
"""

import asyncio
from contextlib import aclosing

import pytest

from sow.errors import LogTrimmed, LogUnanswered, TooLarge
from sow.shared_log import BLOCK_BYTES_MAX

WAIT_S = 180
"""Nothing takes so long, on a busy machine either: what waits for what never comes fails."""
PAUSE_S = 0.1
"""Between two reads."""


async def appended(log, blocks):
    return [await log.append(block) for block in blocks]


async def read(log, after, n):
    """The next `n` blocks behind a position; as a node does, it reads again where no answer came:
    engines lose questions, too."""
    found = []
    while len(found) < n:
        try:
            await read_once(log, found[-1].position if found else after, n, found)
        except LogUnanswered:
            await asyncio.sleep(PAUSE_S)
    return found


async def read_once(log, after, n, found):
    """Add what is behind a position to `found`, until it has `n` blocks."""
    async with aclosing(log.read(after)) as blocks:
        async for one in blocks:
            found.append(one)
            if len(found) == n:
                break


async def unanswered(call):
    with pytest.raises(LogUnanswered):
        await call


def numbered(n, name=b""):
    return [b"%s%d" % (name, number) for number in range(n)]


async def blocks_are_read_as_they_were_written(harness):
    log = await harness.connect()
    blocks = [b"a", bytes(range(256)), b"\n\r\0", "ä€😀".encode(), b"a"]
    positions = await appended(log, blocks)
    assert positions == sorted(set(positions))
    assert positions[0] > 0
    assert await read(log, 0, 5) == [*zip(positions, blocks, strict=True)]


async def all_readers_get_one_order(harness):
    clients = [await harness.connect() for _ in range(3)]
    readers = [asyncio.create_task(read(one, 0, 60)) for one in clients]
    names = (b"a", b"b", b"c")
    writes = [appended(one, numbered(20, name)) for one, name in zip(clients, names, strict=True)]
    said = await asyncio.gather(*writes)
    first, *others = [await one for one in readers]
    assert others == [first, first]
    for name, positions in zip(names, said, strict=True):
        own = [one for one in first if one.block.startswith(name)]
        assert own == [*zip(positions, numbered(20, name), strict=True)]


async def calls_that_overlap_keep_their_order(harness):
    log = await harness.connect()
    positions = await asyncio.gather(*map(log.append, numbered(50)))
    assert await read(log, 0, 50) == [*zip(positions, numbered(50), strict=True)]


async def what_is_answered_is_there_for_everybody(harness):
    log, other = await harness.connect(), await harness.connect()
    for block in numbered(10):
        position = await log.append(block)
        assert await other.last() == position
        assert await read(other, position - 1, 1) == [(position, block)]


async def a_reader_waits_for_the_next_block(harness):
    log, other = await harness.connect(), await harness.connect()
    first, second = await appended(log, numbered(2))
    waiting = asyncio.create_task(read(other, second, 2))
    behind_first = asyncio.create_task(read(other, first, 3))
    third, fourth = await appended(log, (b"2", b"3"))
    assert await waiting == [(third, b"2"), (fourth, b"3")]
    assert await behind_first == [(second, b"1"), (third, b"2"), (fourth, b"3")]


async def a_log_begins_empty(harness):
    log = await harness.connect()
    assert await log.last() == 0
    waiting = asyncio.create_task(read(log, 0, 1))
    position = await log.append(b"first")
    assert await waiting == [(position, b"first")]


async def the_same_block_again_is_another_one(harness):
    # Nothing is dropped because it was there before: the chain knows better.
    log = await harness.connect()
    first, second = await appended(log, (b"twice", b"twice"))
    assert await read(log, 0, 2) == [(first, b"twice"), (second, b"twice")]


async def the_largest_block_fits_and_a_larger_one_is_refused(harness):
    log = await harness.connect()
    large = bytes(range(256)) * (BLOCK_BYTES_MAX // 256)
    positions = await asyncio.gather(*(log.append(large) for _ in range(3)))
    with pytest.raises(TooLarge):
        await log.append(large + b"1")
    last = await log.append(b"small")
    blocks = [large, large, large, b"small"]
    assert await read(log, 0, 4) == [*zip([*positions, last], blocks, strict=True)]


async def what_is_trimmed_is_gone_or_there_without_a_hole(harness):
    log, other = await harness.connect(), await harness.connect()
    positions = await appended(log, numbered(10))
    await log.trim(positions[4])
    assert await read(other, positions[3], 6) == [
        *zip(positions[4:], numbered(10)[4:], strict=True)
    ]
    until = 0
    try:
        assert await read(other, 0, 1) == [(positions[0], b"0")]
    except LogTrimmed as trimmed:
        until = trimmed.until
    # There is a read behind the position that it names, whatever gaps positions have.
    left = [one for one in zip(positions, numbered(10), strict=True) if one[0] > until]
    assert len(left) >= 6
    assert await read(other, until, len(left)) == left
    assert await other.last() == positions[-1]


async def a_log_that_is_trimmed_whole_goes_on(harness):
    log = await harness.connect()
    positions = await appended(log, numbered(3))
    await log.trim(positions[-1] + 1)
    assert await log.last() == positions[-1]
    behind = await log.append(b"behind")
    assert behind > positions[-1]
    assert await read(log, positions[-1], 1) == [(behind, b"behind")]


async def an_engine_that_begins_again_has_what_it_answered(harness):
    log = await harness.connect()
    positions = await appended(log, numbered(20))
    log = await harness.reopened()
    assert await log.last() == positions[-1]
    assert await read(log, 0, 20) == [*zip(positions, numbered(20), strict=True)]
    assert await log.append(b"more") > positions[-1]


async def away_is_said_and_ends(harness):
    log = await harness.connect()
    (before,) = await appended(log, (b"before",))
    await harness.begin(log, "away")
    await unanswered(log.append(b"lost or late"))
    await unanswered(log.last())
    await harness.end(log, "away")
    behind = await log.append(b"behind")
    found = await read(log, before, 1)
    if found[0].block == b"lost or late":
        found = await read(log, found[0].position, 1)
    assert found == [(behind, b"behind")]


async def a_lost_answer_is_said_and_the_block_is_there(harness):
    log, other = await harness.connect(), await harness.connect()
    await harness.begin(log, "unanswered")
    await unanswered(log.append(b"stored"))
    await read(other, 0, 1)  # on a busy machine it is stored after the wait was given up
    await harness.end(log, "unanswered")
    behind = await log.append(b"behind")
    first, second = await read(log, 0, 2)
    assert (first.block, second) == (b"stored", (behind, b"behind"))


async def a_late_answer_is_not_that_of_a_later_append(harness):
    log, other = await harness.connect(), await harness.connect()
    await harness.begin(log, "held")
    await unanswered(log.append(b"earlier"))
    await read(other, 0, 1)
    later = asyncio.create_task(log.append(b"later"))
    await asyncio.sleep(0)
    await harness.end(log, "held")
    try:
        position = await later
    except LogUnanswered:
        position = None
    behind = await log.append(b"behind")
    found = await read(log, 0, 3)
    assert [one.block for one in found] == [b"earlier", b"later", b"behind"]
    assert position in (None, found[1].position)
    assert behind == found[2].position


async def a_slow_engine_is_waited_for(harness):
    log = await harness.connect()
    await harness.begin(log, "slow")
    positions = await asyncio.gather(*map(log.append, numbered(10)))
    await harness.end(log, "slow")
    assert await read(log, 0, 10) == [*zip(positions, numbered(10), strict=True)]


ALWAYS = (
    blocks_are_read_as_they_were_written,
    all_readers_get_one_order,
    calls_that_overlap_keep_their_order,
    what_is_answered_is_there_for_everybody,
    a_reader_waits_for_the_next_block,
    a_log_begins_empty,
    the_same_block_again_is_another_one,
    the_largest_block_fits_and_a_larger_one_is_refused,
    what_is_trimmed_is_gone_or_there_without_a_hole,
    a_log_that_is_trimmed_whole_goes_on,
    an_engine_that_begins_again_has_what_it_answered,
)
UNDER = {
    "away": away_is_said_and_ends,
    "unanswered": a_lost_answer_is_said_and_the_block_is_there,
    "held": a_late_answer_is_not_that_of_a_later_append,
    "slow": a_slow_engine_is_waited_for,
}


def cases(harness):
    """What a harness can be put through."""
    return [*ALWAYS, *(UNDER[fault] for fault in harness.FAULTS)]


async def check(case, harness):
    """Put a harness through one case."""
    try:
        async with asyncio.timeout(WAIT_S):
            await case(harness)
    finally:
        await harness.close()
