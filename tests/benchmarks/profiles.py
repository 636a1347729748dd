"""Profiles: where the time and the memory go on the paths whose figures miss their aims.

    python -m tests.benchmarks.profiles [NAME ...] [--quick | --tiny] [--write]

Each is the work of a benchmark once more, with samples taken (`tests.benchmarks.sampling`), or the
tables of a topic weighed. The shares are what counts; how long something takes, the benchmarks say.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from tests.benchmarks import (
    copies,
    fan_out,
    followers,
    ingest,
    large_messages,
    low_rates,
    queries,
    restart,
    views,
    windows,
)
from tests.benchmarks.command_line import allow_many_sockets, arguments, check_all, measured
from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.machine import facts
from tests.benchmarks.page import BY_STAGE, of_profiles, publish
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.readers import Readers
from tests.benchmarks.records import configuration, every_order, framed, updates
from tests.benchmarks.results import Run
from tests.benchmarks.sampling import CALLS, ELSEWHERE, THREADS, SampledServer, Samples, sampled
from tests.benchmarks.share import REST, Share
from tests.benchmarks.sizes import FULL, QUICK, TINY, Sizes
from tests.benchmarks.sockets import Client, publishes
from tests.benchmarks.steady import Publisher

PARTS_MAX = 10
"""Of each path: what is left is some percent in many places."""
SINGLES_WINDOW = 1000
SECONDS_OF = {"full": 8.0, "quick": 3.0}
ALIGNED_BYTES = 16
"""What Python hands out is a multiple of this."""
SUBJECTS = {
    "sow/indexes/": "the hash index",
    "sow/messages/": "reading: commands, JSON, keys",
    "sow/core/keys.py": "reading: commands, JSON, keys",
    "sow/protocol/publish_batching.py": "reading: commands, JSON, keys",
    "sow/server/net/command_pump.py": "reading: commands, JSON, keys",
    "sow/topic/conflated_topic.py": "the conflated copy: windows, its table",
    "conflated_topics/": "the conflated copy: windows, its table",
    "sow/server/net/session_writer.py": "writing to sockets",
    "sow/topic/rendering.py": "telling: acks, updates of the copy",
    "sow/protocol/replies.py": "telling: acks, updates of the copy",
    "sow/streaming/": "telling: acks, updates of the copy",
    "sow/sessions/": "carrying out: limits, log entries, groups",
    "sow/store/journal.py": "carrying out: limits, log entries, groups",
    "sow/engine/running_topics.py": "the table of the topic",
    "sow/engine/": "carrying out: limits, log entries, groups",
    "sow/server/websocket": ELSEWHERE,
    "sow/server/net/connection_supervisor.py": ELSEWHERE,
    "sow/server/": "carrying out: limits, log entries, groups",
}
"""What a function of a file is about, whoever has called it; of any other its caller says it."""

STAGES = {
    "sow/server/net/command_pump.py": "parse",
    "sow/protocol/publish_batching.py": "parse",
    "sow/server/net/session_writer.py": "write",
    "sow/server/loop/background_work.py": "write",
    "sow/server/loop/group_commit.py": "journal",
    "sow/engine/wal.py": "journal",
    "sow/store/journal.py": "journal",
    "sow/store/environment.py": "journal",
    "sow/server/": "read",
    "sow/messages/": "validate",
    "sow/core/keys.py": "validate",
    "sow/sessions/": "validate",
    "sow/engine/capacity.py": "validate",
    "sow/indexes/": "index",
    "sow/streaming/outbox/": "outbox",
    "sow/streaming/sessions.py": "outbox",
    "sow/protocol/replies.py": "outbox",
    "sow/streaming/": "change stream",
    "sow/topic/records.py": "store",
    "sow/topic/": "change stream",
    "sow/store/": "store",
    "sow/engine/": "store",
    THREADS: "journal",
    ELSEWHERE: "read",
}
"""What a message passes, by the files; what asyncio and aiohttp take counts as reading."""

Profile = Callable[[Sizes], Iterator[Share]]
Table = Callable[[str, Samples, float, str], Iterator[Share]]
"""What is made of the samples of a path."""


def shares(path: str, samples: Samples, per: float, unit: str) -> Iterator[Share]:
    """The functions that most samples fell into, as processor time in `unit`, of which a second
    holds `per`."""
    yield from _ranked(path, samples.innermost(), samples.cpu_s * per, unit)


def subjects(path: str, samples: Samples, per: float, unit: str) -> Iterator[Share]:
    """The same by what the functions are about."""
    yield from _ranked(f"{path}, by subject", samples.by(subject), samples.cpu_s * per, unit)


def _ranked(path: str, parts: Mapping[str, float], whole: float, unit: str) -> Iterator[Share]:
    total = sum(parts.values()) or 1
    ranked = sorted(parts.items(), key=lambda item: -item[1])
    kept = ranked[:PARTS_MAX]
    if len(ranked) > PARTS_MAX or not ranked:
        kept.append((REST, total - sum(cpu_s for _, cpu_s in kept)))
    for part, cpu_s in kept:
        yield Share(path, part, whole * cpu_s / total, unit, cpu_s / total)


def subject(calls: str, about: Mapping[str, str] = SUBJECTS) -> str:
    """What a row of calls is about: what the last one that is about anything is."""
    for call in reversed(calls.split(CALLS)):
        for file, name in about.items():
            if call.startswith(file):
                return name
    return calls


def passed(sizes: Sizes) -> Iterator[Share]:
    """The stages of a message to ten followers, with a hash index, in frames of 100 and of 1."""
    for size, count in ((100, sizes.messages), (1, sizes.singles)):
        frames = publishes(updates(count, sizes.keys), size)
        window = max(1, ingest.WINDOW_MESSAGES // 100 // size)
        with ExitStack() as stack:
            server = stack.enter_context(SampledServer(configuration(index=True)))
            readers = Readers(
                server.host, server.port, 10, '{"c":"subscribe","t":"orders","cid":"1"}'
            )
            stack.enter_context(readers).ready()
            client = Client(server.host, server.port)
            stack.callback(client.close)
            client.publish(publishes(every_order(sizes.keys), 1000), 6)
            client.publish(frames, window)
            server.samples()
            client.publish(frames, window)
            samples = server.samples()
            readers.check()
        stages = samples.by(lambda calls: subject(calls, STAGES))
        path = f"a message that ten follow, in frames of {size}{BY_STAGE}"
        yield from _ranked(path, stages, samples.cpu_s * 1e6 / count, "µs/message")


def restarting(sizes: Sizes) -> Iterator[Share]:
    """A start from a checkpoint with a tail of the journal after it."""
    with TemporaryDirectory(prefix="sow-bench-") as path:
        restart.fill(Path(path), sizes.records, checkpointed=True)
        with SampledServer(restart.XML, Path(path)) as server:
            samples = server.samples()
    yield from shares(f"restart of {sizes.records:,} records", samples, 1, "s")


def grown(sizes: Sizes) -> Iterator[Share]:
    """The same for each record of the smallest topic and of the largest."""
    for records in (sizes.restarts[0], sizes.restarts[-1]):
        with TemporaryDirectory(prefix="sow-bench-") as path:
            restart.fill(Path(path), records, checkpointed=True)
            with SampledServer(restart.XML, Path(path)) as server:
                samples = server.samples()
        yield from shares(f"a record of a restart of {records:,}", samples, 1e6 / records, "µs")


def hundreds(sizes: Sizes) -> Iterator[Share]:
    """Publishing in frames of a hundred, with an index and a conflated copy that is followed."""
    bodies = updates(sizes.messages, sizes.keys)
    frames, times = publishes(bodies, 100), 3
    with ExitStack() as stack:
        server = stack.enter_context(SampledServer(configuration(True, True)))
        readers = Readers(server.host, server.port, 1, ingest.SUBSCRIBE_COPY)
        stack.enter_context(readers).ready()
        client = Client(server.host, server.port)
        stack.callback(client.close)
        client.publish(publishes(every_order(sizes.keys), 1000), 6)
        client.publish(frames, ingest.WINDOW_MESSAGES // 100)
        server.samples()
        for _ in range(times):
            client.publish(frames, ingest.WINDOW_MESSAGES // 100)
        samples = server.samples()
        readers.check()
    path = "ingest, frames of 100, hash index + conflated, durable"
    for table in (subjects, shares):
        yield from table(path, samples, 1e6 / len(bodies) / times, "µs/message")


def singles(sizes: Sizes) -> Iterator[Share]:
    """Publishing in frames of one, with an index and a conflated copy."""
    frames = publishes(updates(sizes.singles * 2, sizes.keys), 1)
    with SampledServer(configuration(True, True)) as server:
        client = Client(server.host, server.port)
        client.publish(publishes(every_order(sizes.keys), 1000), 6)
        server.samples()
        client.publish(frames, SINGLES_WINDOW)
        samples = server.samples()
        client.close()
    yield from shares("frames of 1", samples, 1e6 / len(frames), "µs/message")


def seldom(sizes: Sizes) -> Iterator[Share]:
    """Publishing 20,000 messages a second in frames of 20."""
    size, rate = low_rates.FRAME_SIZES[-1], low_rates.RATE
    frames = publishes(updates(sizes.singles, sizes.keys), size)
    seconds = SECONDS_OF.get(sizes.name, 0.2)
    with SampledServer(configuration(index=True)) as server:
        client = Client(server.host, server.port)
        client.publish(publishes(every_order(sizes.keys), 1000), 6)
        with Publisher(client, frames, size, rate) as publisher:
            server.samples()
            before = publisher.progress()
            time.sleep(seconds)
            samples, count = server.samples(), publisher.progress().updates - before.updates
    path = f"durable at {rate:,} messages/s, frames of {size}"
    for table in (subjects, shares):
        yield from table(path, samples, 1e6 / max(1, count), "µs/message")


def large(sizes: Sizes) -> Iterator[Share]:
    """Messages of 10 KB in the engine."""
    size_bytes = large_messages.SIZES_BYTES[0]
    bodies = large_messages.orders(size_bytes, max(2, sizes.messages * 10 // size_bytes))
    driver = EngineDriver(configuration())
    times = 20
    frames = large_messages.lines(bodies)
    samples = sampled(lambda: [driver.send(frames) for _ in range(times)])
    per = 1e6 / len(bodies) / times
    yield from shares(f"messages of {size_bytes // 1000} KB", samples, per, "µs/message")


def many_copies(sizes: Sizes) -> Iterator[Share]:
    """A hundred copies that share less than everything."""
    count, size = copies.COUNTS[-1], copies.FRAME_SIZES[-1]
    keys = min(copies.KEYS, sizes.keys)
    frames = framed(updates(sizes.messages // 2, keys), size)
    for name in ("one filter, own intervals", "own filters, one interval"):
        driver = EngineDriver(copies.configuration(copies.KINDS[name], count))
        driver.load(every_order(keys))
        samples = sampled(lambda driver=driver: driver.publish(frames, size * copies.UPDATE_US))
        per = 1e6 / len(frames) / size
        path = f"{count} copies ({name}), frames of {size}"
        yield from shares(path, samples, per, "µs/update")


def grouped(sizes: Sizes) -> Iterator[Share]:
    """Updates beside a view of five aggregates, and beside a join."""
    orders, bodies = views.published(sizes)
    frames = framed(bodies, views.BATCH)
    for path, view in ((views.GROUPED, views.BY_ACCOUNT), (views.JOINED, views.BESIDE)):
        xml = configuration(durable=False).replace(views.ENDING, view + views.ENDING)
        driver = EngineDriver(xml)
        if view is views.BESIDE:
            driver.load(orders, topic="limits")
        driver.load(orders)
        samples = sampled(lambda driver=driver: driver.publish(frames))
        yield from shares(path, samples, 1e6 / len(bodies), "µs/update")


def windowed(sizes: Sizes) -> Iterator[Share]:
    """Updates of a topic of which a hundred live windows show a stretch."""
    driver = windows.followed(sizes)
    frames = framed(updates(sizes.messages, sizes.records), 100)
    samples = sampled(lambda: driver.publish(frames))
    yield from shares("an update, 100 live windows", samples, 1e6 / sizes.messages, "µs/update")


def ranges(sizes: Sizes) -> Iterator[Share]:
    """The first range of 1 % after many updates."""
    driver = EngineDriver(configuration(index=True))
    driver.load(every_order(sizes.records))
    requested = queries.QUESTIONS[3].requested
    queries.answer(driver, requested)
    found: dict[str, float] = {}
    cpu_s, times = 0.0, 20
    frames = framed(updates(min(queries.DIRTY, sizes.records), sizes.records), 100)
    for _ in range(times):
        driver.publish(frames)
        one = sampled(lambda: queries.answer(driver, requested))
        cpu_s += one.cpu_s
        for part, part_s in one.found.items():
            found[part] = found.get(part, 0.0) + part_s
    path = "1 % range right after 10,000 updates"
    yield from shares(path, Samples(found, cpu_s), 1e3 / times, "ms")


def waited(sizes: Sizes) -> Iterator[Share]:
    """What a question over HTTP waits for beside updates: asked without any, beside those of a
    topic that is not stored, and beside those of one that is, whose answer waits for the disk."""
    for question in (queries.QUESTIONS[2], queries.QUESTIONS[4]):
        alone_ms, volatile_ms = _requested_beside(sizes, question, durable=False)
        _, stored_ms = _requested_beside(sizes, question, durable=True)
        parts = {
            "the question, HTTP and the client": alone_ms,
            "turns of updates, what they have changed, colder caches": volatile_ms - alone_ms,
            "until what it has read is on the disk": stored_ms - volatile_ms,
        }
        path = f"query over HTTP, {question.case}, updates beside it"
        for part, took_ms in parts.items():
            yield Share(path, part, took_ms, "ms", took_ms / stored_ms)


def _requested_beside(
    sizes: Sizes, question: queries.Question, durable: bool
) -> tuple[float, float]:
    """Milliseconds of a question without updates, and beside 20,000 a second."""
    with ServerProcess(configuration(index=True, durable=durable)) as server:
        queries.load(server, sizes.records)
        alone, beside = queries.beside_updates(server, sizes, question)
    return median(alone.ours), median(beside.ours)


def screens(sizes: Sizes) -> Iterator[Share]:
    """100 who follow 10,000 keys, by subject too."""
    yield from _followed(followers.SCENES[2], sizes, subjects, shares)


def crowd(sizes: Sizes) -> Iterator[Share]:
    """10,000 who follow 100 keys."""
    yield from _followed(followers.SCENES[-1], sizes, shares)


def _followed(scene: followers.Scene, sizes: Sizes, *tables: Table) -> Iterator[Share]:
    if sizes.name == "tiny":
        scene = scene._replace(followers=20)
    seconds = SECONDS_OF.get(sizes.name, 0.2)
    with SampledServer(followers.xml(scene.interval_ms)) as server:
        command = followers.SUBSCRIBE
        with Readers(server.host, server.port, scene.followers, command) as readers:
            readers.ready()
            load = followers.Load(server.host, server.port, scene)
            load.run(2.0)
            server.samples()
            load.run(seconds)
            samples = server.samples()
            readers.check()
            load.close()
    for table in tables:
        yield from table(scene.case, samples, 1e3 / seconds, "ms/s")


def fanned(sizes: Sizes) -> Iterator[Share]:
    """Frames of a hundred for as many equal subscriptions as there are."""
    subscribers, frames = sizes.fan_out[-1]
    published = publishes(updates(frames * fan_out.FRAME, sizes.keys), fan_out.FRAME)
    with (
        SampledServer(configuration(durable=False)) as server,
        Readers(server.host, server.port, subscribers, fan_out.SUBSCRIBE) as readers,
    ):
        readers.ready()
        client = Client(server.host, server.port)
        server.samples()
        readers.expect(frames * fan_out.FRAME)
        client.publish(published, fan_out.WINDOW)
        readers.wait()
        samples = server.samples()
        client.close()
    path = f"fan-out to {subscribers:,}"
    yield from shares(path, samples, 1e6 / frames / subscribers, "µs/frame/session")


def weighed(sizes: Sizes) -> Iterator[Share]:
    """What a record takes, table by table, beside what a server grows by."""
    xml, path = configuration(index=True), f"memory of {sizes.records:,} records"
    with ServerProcess(xml) as server:
        before = server.memory_bytes
        raw_bytes = queries.load(server, sizes.records)
        grown = server.memory_bytes - before
    driver = EngineDriver(xml)
    driver.load(every_order(sizes.records))
    parts = tables(driver, raw_bytes)
    parts["the interpreter's own, and what is reserved and not used"] = grown - sum(parts.values())
    for part, size in parts.items():
        yield Share(path, part, size / sizes.records, "B/record", size / grown)


def tables(driver: EngineDriver, raw_bytes: int) -> dict[str, float]:
    """The tables of `orders` and what stands in them, in bytes."""
    records = driver.engine.topic("orders").records
    table = records.table
    bodies = [body for body in table.bodies if body]
    identities = [identity for identity in table.identities if identity]
    count, index = len(table), getattr(table.slots, "_index", None)
    (symbol,) = records.indexes.hashes
    return {
        "bodies, byte for byte": raw_bytes,
        "a body as an object of Python": sum(map(_taken, bodies)) - raw_bytes,
        "the text of the key, an object": sum(map(_taken, identities)),
        "from key to slot": sys.getsizeof(table.slots if index is None else index),
        "slots in a dictionary, an object each": count * _taken(count) * (index is None),
        "lists of bodies and of keys": 8 * 2 * count,
        "sequence, time, birth and SowKey": 8 * 4 * count,
        "the hash index": _deep(symbol),
    }


def _taken(thing: object) -> int:
    return -(-sys.getsizeof(thing) // ALIGNED_BYTES) * ALIGNED_BYTES


def _deep(thing: object, seen: set[int] | None = None) -> int:
    """An object with all that it holds."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type) or callable(thing):
        return 0
    seen.add(id(thing))
    size = _taken(thing)
    if isinstance(thing, Mapping):
        size += sum(_deep(part, seen) for pair in thing.items() for part in pair)
    elif isinstance(thing, list | tuple | set | frozenset):
        size += sum(_deep(part, seen) for part in thing)
    else:
        names = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
        held = [getattr(thing, name, None) for name in names]
        size += sum(_deep(part, seen) for part in (*held, *vars_of(thing)))
    return size


def vars_of(thing: object) -> list[object]:
    """What stands in an object's dictionary, if it has one."""
    return list(getattr(thing, "__dict__", {}).values())


PROFILES: dict[str, Profile] = {
    "message": passed,
    "restart": restarting,
    "restart-growth": grown,
    "memory": weighed,
    "ingest": hundreds,
    "singles": singles,
    "low-rates": seldom,
    "large-messages": large,
    "copies": many_copies,
    "ranges": ranges,
    "queries": waited,
    "views": grouped,
    "windows": windowed,
    "followers": screens,
    "crowd": crowd,
    "fan-out": fanned,
}


def main() -> None:
    """Take the profiles that were asked for, show them, and keep them if that was asked for."""
    requested = arguments("tests.benchmarks.profiles", PROFILES, (FULL, QUICK, TINY))
    allow_many_sockets()
    before = facts()
    found, took_s = measured(PROFILES, requested.names, requested.size)
    run = Run(f"{requested.size.name}, 1 repetitions", before, took_s, found)
    print(of_profiles(run))
    if requested.write:
        publish("profiles", run, requested.is_part)
    check_all(requested.names, took_s)


if __name__ == "__main__":
    main()
