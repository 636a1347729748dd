"""Budgets: what each path is meant to cost, and which figure says whether it does.

A missed budget is shown as missed, by how much, and with the reason as far as it is known.
`REASONS` is prose kept by hand; a reason is shown only while its budget is missed.
"""

from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import NamedTuple

from tests.benchmarks.copies import KINDS as COPY_KINDS
from tests.benchmarks.measure import Figure
from tests.benchmarks.views import GROUPED, JOINED, SERVED

Measured = Callable[[Figure], float | None]


class Budget(NamedTuple):
    """`aim` is a bound on what `measured` makes of the figure of this name."""

    path: str
    figure: str
    measured: Measured
    aim: float
    unit: str
    at_least: bool = False


class Verdict(NamedTuple):
    """A budget beside what was measured, and the figure that it was computed from."""

    budget: Budget
    measured: float
    figure: Figure

    @property
    def met(self) -> bool:
        """On the right side of the bound."""
        if self.budget.at_least:
            return self.measured >= self.budget.aim
        return self.measured <= self.budget.aim

    @property
    def times(self) -> float:
        """How often the aim goes into what was measured."""
        return self.measured / self.budget.aim


def value(figure: Figure) -> float:
    return figure.value


def ratio(figure: Figure) -> float:
    return figure.ratio


def added_percent(figure: Figure) -> float:
    """How much longer it takes than its floor, in percent."""
    return (1 / figure.ratio - 1) * 100


def added(figure: Figure) -> float:
    """What it takes beyond its floor."""
    return figure.value - median(figure.floor)


def cores_at_20_000(figure: Figure) -> float:
    """How much of a core it takes beyond its floor, 20,000 times a second."""
    return added(figure) * 20_000 / 1e6


def per_core_second(figure: Figure) -> float | None:
    """Messages for each second of the server's processor time."""
    return 1e6 / figure.server_cpu_us if figure.server_cpu_us else None


def times(figure: Figure) -> float:
    """How often the floor goes into it."""
    return 1 / figure.ratio


INGEST = "ingest over WebSocket: frames of 100, hash index + conflated, durable"
SINGLES = "ingest over WebSocket: frames of 1, hash index + conflated, durable"
DURABLE = "durable against transient: frames of 100, hash index + conflated"
REPLAY, FIRST_LINE = "replay: a conflated topic, 1 s", "replay: its first line"
LATE_LINE = "replay: its first line, late in the log"
VIEW_THEN = "as of a bookmark: a view of five aggregates, all records"

BUDGETS = (
    Budget("ingest, frames of 100", INGEST, value, 200_000, "messages/s", True),
    Budget("ingest against its floor", INGEST, ratio, 0.30, "of the floor", True),
    Budget("durable ingest", DURABLE, ratio, 0.8, "of transient", True),
    Budget("frames of 1", SINGLES, per_core_second, 80_000, "messages/core second", True),
    Budget(
        "frames of 1, on uvloop",
        f"{SINGLES}, on uvloop",
        per_core_second,
        80_000,
        "messages/core second",
        True,
    ),
    Budget(
        "numbers of a publisher, frames of 100",
        "ingest with numbers: frames of 100",
        added_percent,
        3,
        "% more time than without",
    ),
    Budget("appends to a series", "series: frames of 100", ratio, 0.6, "of a plain topic", True),
    *(
        Budget(
            f"durable at 20,000 messages/s, frames of {size}",
            f"low rates: 20,000 messages/s in frames of {size}, durable",
            times,
            3,
            "times a full pipe",
        )
        for size in (100, 20)
    ),
    *(
        Budget(
            f"messages of {size} KB",
            f"large messages: {size} KB, in the engine",
            times,
            2,
            "passes over the bytes",
        )
        for size in (10, 100)
    ),
    Budget(
        "1,000 equality filters",
        "equality filters: 1000, matched by nothing",
        added_percent,
        10,
        "% more time",
    ),
    *(
        Budget(
            f"{count:,} distinct filters ({form}), frames of {size}",
            f"distinct filters: {count} {form}, frames of {size}",
            added,
            aim,
            "µs/update",
        )
        for count, aim in ((1000, 20), (5000, 60))
        for form in ("ranges", "bounds", "LIKE", "OR", "AND", "mixed")
        for size in (1, 100)
    ),
    Budget(
        "subscribing, each with a path of its own",
        "subscribing: 1000 distinct paths",
        value,
        0.5,
        "ms",
    ),
    Budget("a view of five aggregates", f"views: {GROUPED}", added, 3, "µs/update"),
    Budget(
        "ingest with a view, over WebSocket", f"views: {SERVED}", ratio, 0.6, "of without", True
    ),
    Budget("ingest with a view, the engine", f"views: {GROUPED}", ratio, 0.6, "of without", True),
    Budget("a join 1:1", f"views: {JOINED}", added, 5, "µs/update"),
    Budget(
        "100 live windows, 20,000 updates/s",
        "windows: an update with 100 of them",
        cores_at_20_000,
        0.15,
        "cores",
    ),
    Budget("a scroll", "windows: a scroll", value, 10, "ms"),
    Budget(
        "a filter with arithmetic and two functions",
        "calculated filter: arithmetic and two functions",
        value,
        0.4,
        "µs/record",
    ),
    *(
        Budget(
            f"a filter with {name}, every text a different one",
            f"filter of different texts: {name}",
            value,
            1,
            "µs/record",
        )
        for name in ("SUBSTR", "REGEXP_REPLACE")
    ),
    Budget(
        "query, hash index exact",
        "query in the engine: hash index, 1 symbol of 5000",
        value,
        0.1,
        "ms",
    ),
    Budget(
        "query, compound", "query in the engine: compound, 1 record in 10,000", value, 1.5, "ms"
    ),
    Budget("query, 1 % range", "query in the engine: range, 1 %", value, 5, "ms"),
    Budget(
        "query, 1 % range, right after 10,000 updates",
        "query in the engine: range, 1 %, right after 10000 updates",
        value,
        5,
        "ms",
    ),
    Budget("query, top 10", "query in the engine: top 10", value, 5, "ms"),
    *(
        Budget(
            f"query over HTTP, {case}, updates beside it",
            f"query over HTTP, 20,000 updates/s: {case}",
            value,
            aim,
            "ms",
        )
        for case, aim in (
            ("hash index, 1 symbol of 5000", 0.5),
            ("compound, 1 record in 10,000", 1),
            ("range, 1 %", 5),
            ("top 10", 1),
        )
    ),
    Budget(
        "fan-out to 1,000", "fan-out: 1000 subscribers, server CPU", value, 10, "µs/frame/session"
    ),
    Budget(
        "fan-out to 100 users of equal rights",
        "rights: fan-out to 100 users of equal rights, server CPU",
        added_percent,
        10,
        "% more time than without",
    ),
    Budget(
        "1,000 users with rows of their own, beside nobody",
        "rights: updates of which none of them theirs, beside 1000 users, server CPU",
        added_percent,
        10,
        "% more time",
    ),
    Budget(
        "1,000 users with rows of their own, beside as many filters",
        "rights: updates of which each somebody's, beside 1000 users, server CPU",
        added_percent,
        10,
        "% more time",
    ),
    Budget(
        "restart, checkpoint and tail",
        "restart: 1000000 records, checkpoint and tail",
        value,
        2,
        "s",
    ),
    Budget("restart, journal only", "restart: 1000000 records, journal only", value, 2, "s"),
    *(
        Budget(
            f"restart of {count:,} beside 1,000,000",
            f"restart growth: {count} records, checkpoint and tail",
            times,
            1.2,
            "times as much for each record",
        )
        for count in (2_000_000, 4_000_000)
    ),
    Budget(
        "restart with a view of 200,000",
        "restart with a view: 200000 records, five aggregates of 1,000 groups",
        times,
        2,
        "times as long as without",
    ),
    Budget("conflator, 1 s", "conflation: 1000 ms", value, 0.4, "µs/update"),
    *(
        Budget(
            f"{count} copies ({kind}), frames of {size}",
            f"copies: {count} with {kind}, frames of {size}",
            times,
            aim,
            "times one copy",
        )
        for count, aim in ((10, 2), (100, 8))
        for kind in COPY_KINDS
        for size in (1, 100)
    ),
    *(
        Budget(case, f"followers: {case}, cores", value, aim, "cores")
        for case, aim in (
            ("100 follow 10,000 keys at 1 s", 0.30),
            ("500 follow 10,000 keys at 1 s", 1.0),
            ("1,000 follow 1,000 keys at 100 ms", 1.0),
            ("10,000 follow 100 keys at 1 s", 0.5),
        )
    ),
    *(
        Budget(f"staleness p99, {case}", f"followers: {case}, staleness p99", value, aim, "ms")
        for case, aim in (
            ("100 follow 10,000 keys at 1 s", 1100),
            ("100 follow, one more never reads", 1100),
            ("1,000 follow 1,000 keys at 100 ms", 145),
            ("10,000 follow 100 keys at 1 s", 1100),
        )
    ),
    *(
        Budget(
            f"tick to {followers} clients at 20,000/s, {name}",
            f"tick to client: 20,000/s, {followers} followers, {name}",
            value,
            aim,
            "ms",
        )
        for followers, name, aim in (
            (1, "p50", 1.5),
            (1, "p99", 3),
            (10, "p50", 1.5),
            (10, "p99", 3),
            (100, "p99", 4),
        )
    ),
    Budget(
        "followers of one core at 10,000/s",
        "followers of one core: 10,000/s, p99 under 10 ms",
        value,
        500,
        "followers",
        True,
    ),
    Budget("replay of a conflated topic", REPLAY, value, 20_000, "changes/s", True),
    Budget("first line of a replay from the beginning", FIRST_LINE, value, 1000, "ms"),
    Budget("first line of one late in a log without a pause", LATE_LINE, value, 1000, "ms"),
    Budget("the past of a view of all records", VIEW_THEN, value, 60, "s"),
    Budget("an idle session", "followers: an idle session, memory", value, 20, "KiB"),
    Budget("memory", "memory: 1000000 records, hash index", value, 430, "B/record"),
    Budget("a topic of a pattern", "patterns: 100000 topics", value, 2048, "B/topic"),
    Budget(
        "a topic of a pattern, with a copy that is followed",
        "patterns: 100000 topics, each with a copy that is followed",
        value,
        4096,
        "B/topic",
    ),
)
STALLS_BUDGETS = (
    Budget("longest wait", "longest wait beside it: the longest of all", value, 50, "ms"),
)

OBJECT_BY_OBJECT = (
    "each body and key is a Python object that has to be created, and its slot entered into an "
    "index larger than the processor's caches; importing libraries takes another 0.5 s"
)
FROM_BODIES = (
    "without a checkpoint, the key, SowKey and indexed fields are extracted from every body, two "
    "thirds of the time; a log longer than 64 MiB normally has a checkpoint"
)
OUT_OF_CACHE = (
    "the dictionary of keys outgrows the caches: inserting a key takes 0.54 µs with 1,000,000 keys "
    "and 0.81 µs with 4,000,000; most of the rest is creating the bodies in new memory"
)
OWN_WINDOWS = (
    "copies with the same filter and interval are shared; with intervals of their own each "
    "maintains its own windows and stores its own releases, and only the filter is shared"
)
OWN_FILTERS = (
    "with these filters one copy takes one update in a hundred, and 100 copies take all of them "
    "and drop the previous record: up to a hundred times as many records move"
)
ROWS_AGAIN = (
    "63 of 100 updates rebuild the row of a group: compute, encode, compare and store, 2 µs a row "
    "and half of the cost; the other half reads the old values and updates the aggregates"
)
GROUPS_KEPT = (
    "a row is built once for about 80 pipelined frames; what remains is reading the old values and "
    "updating the aggregates of each group"
)
ONE_BY_ONE = (
    "the cost of a frame itself, whatever it holds: aiohttp's reader, a message, an ack; the "
    "frames of one turn are already decoded, logged and stored as one batch"
)
MANY_PARTS = (
    "all of it runs on one core and no part takes much over a quarter: the conflated copy costs "
    "nearly as much as ingest without it, and the tables are larger than the processor's cache"
)
ONE_GROUP_EACH = (
    "every frame is a commit: LMDB syncs the disk twice, 0.1 ms of system time each, and the loop "
    "sleeps and wakes between the socket, the journal's thread and the socket"
)
ON_ITS_WAY_TO_DISK = (
    "a frame waits for the commit that is under way and then for its own, each as long as the disk "
    "takes to sync twice; with a file system in memory the middle is 0.8 ms, to one follower"
)
ALL_TO_ALL = (
    "450 MB a second go through sockets of one thread, which is busy all the time: four tenths of "
    "it are sends, of all that one commit made durable in one, and a fifth the updates themselves"
)
ON_THE_DISK = (
    "the answer takes 0.5 ms, twice the time without updates, because caches are cold and changes "
    "are read first; it then waits until the changes it shows are on the disk, one or two commits, "
    "while other frames have their turns"
)
BODIES_JOINED = (
    "joining some 10,000 bodies from as many places in memory is nine tenths of it, as with numpy; "
    "finding them takes 0.5 ms"
)
PROCESSED_AGAIN = (
    "each change of the log is read, decoded, checked and processed again at its own time, in "
    "steps of a millisecond beside all other work"
)
REASONS: Mapping[str, str] = {
    "replay of a conflated topic": PROCESSED_AGAIN,
    "the past of a view of all records": PROCESSED_AGAIN,
    "ingest, frames of 100": MANY_PARTS,
    "appends to a series": (
        "beside what a publish does, for a whole frame in C, each event goes into the four columns "
        "of its record's newest chunk, in Python: two microseconds"
    ),
    "ingest against its floor": (
        "the floor has no network, log, table, index or conflated copy; with few keys the copy's "
        "subscriber also receives nearly every update"
    ),
    "durable at 20,000 messages/s, frames of 20": ONE_GROUP_EACH,
    "frames of 1": ONE_BY_ONE,
    "frames of 1, on uvloop": ONE_BY_ONE,
    **{
        f"messages of {size} KB": (
            "one pass reads the keys and validates the JSON, half a pass checks the size of "
            "numbers, and one and a half more the depth where there are over 250 brackets"
        )
        for size in (10, 100)
    },
    "1,000 equality filters": (
        "each batch reads the filtered field and looks each value up: 0.4 µs of an update that "
        "takes 4 µs without disk and socket"
    ),
    "fan-out to 1,000": (
        "the floor, a bare send of the same 30 KB, is over the aim already and is half of the "
        "time; the rest is the outbox's accounting for each session and frame, which bounds slow "
        "clients"
    ),
    "1,000 users with rows of their own, beside nobody": (
        "the field that separates the users is read from each record before and after the change "
        "and looked up: 0.6 µs of an update in the engine"
    ),
    "a view of five aggregates": ROWS_AGAIN,
    "ingest with a view, over WebSocket": GROUPS_KEPT,
    "ingest with a view, the engine": ROWS_AGAIN,
    "a join 1:1": (
        "every update rebuilds a row: a quarter of the time finds and reads the joined records, a "
        "fifth updates the group of one row, and a fifth encodes, compares and stores the row"
    ),
    "100 live windows, 20,000 updates/s": (
        "one update in a hundred moves a row, and every window behind it reads its 50 rows, "
        "compares them with what the client holds and sends the difference; a quarter is comparing "
        "each update with the bounds of ten orders"
    ),
    "a filter with REGEXP_REPLACE, every text a different one": (
        "Python's regular expressions take more than half; the rest is iterating over the "
        "different texts and comparing the results"
    ),
    "query, 1 % range": BODIES_JOINED,
    **{
        f"query over HTTP, {case}, updates beside it": ON_THE_DISK
        for case in ("hash index, 1 symbol of 5000", "compound, 1 record in 10,000", "top 10")
    },
    "query over HTTP, range, 1 %, updates beside it": f"{BODIES_JOINED}; {ON_THE_DISK}",
    "query, 1 % range, right after 10,000 updates": (
        "the query first reads the field of everything that changed since the last query; a server "
        "does that while it is idle"
    ),
    "restart, checkpoint and tail": OBJECT_BY_OBJECT,
    "restart, journal only": FROM_BODIES,
    "restart of 2,000,000 beside 1,000,000": OUT_OF_CACHE,
    "restart of 4,000,000 beside 1,000,000": OUT_OF_CACHE,
    "an idle session": (
        "of the 24 KiB that Python allocates, aiohttp takes 9.4 (request, parser, writer, reader), "
        "asyncio 3, and the session with its outbox and limits 11"
    ),
    "a topic of a pattern, with a copy that is followed": (
        "a copy is a topic with its own records, table, indexes and router, 1.7 KB; its feed takes "
        "0.9 KB, and its windows and their timers as much"
    ),
    "restart with a view of 200,000": (
        "the fields of every body are read and entered into the groups, 2.4 µs a record; loading a "
        "record from its checkpoint takes nearly as long"
    ),
    **{
        f"{count} copies ({kind}), frames of {size}": (
            OWN_FILTERS if kind.startswith("own filters") else OWN_WINDOWS
        )
        for count in (10, 100)
        for kind in COPY_KINDS
        for size in (1, 100)
    },
    "100 follow 10,000 keys at 1 s": (
        "the same updates without a follower already take more than the aim: 200 commits a second; "
        "100 followers add a fifth, most of it about 50 sends a second to each"
    ),
    "subscribing, each with a path of its own": (
        "subscribing takes a third of a millisecond; the rest is the update after each, which by "
        "then reads 500 paths on average"
    ),
    "staleness p99, 100 follow, one more never reads": (
        "windows are gathered for up to 20 ms and sent one after the other between published "
        "frames; conflating the queue of the client that never reads takes turns of 2 ms"
    ),
    "staleness p99, 1,000 follow 1,000 keys at 100 ms": (
        "windows are gathered for up to 10 ms and written to 1,000 sockets, 20 µs each: the last "
        "one, which is the one measured, is sent 20 to 30 ms after the first"
    ),
    "staleness p99, 10,000 follow 100 keys at 1 s": (
        "what is due at one moment is written to 10,000 sockets, and the last waits for all others"
    ),
    **{f"tick to {count} clients at 20,000/s, p50": ON_ITS_WAY_TO_DISK for count in (1, 10)},
    **{f"tick to {count} clients at 20,000/s, p99": ON_ITS_WAY_TO_DISK for count in (1, 10)},
    "tick to 100 clients at 20,000/s, p99": ALL_TO_ALL,
    "memory": (
        "besides its bytes a record has a bytes header, a key text, 11 bytes in the index of keys, "
        "and 32 bytes of sequence number, time, birth and SowKey"
    ),
}


def durable_against_transient(figures: Mapping[str, Figure]) -> Figure | None:
    """Durable ingest with transient ingest as its floor, when both were measured."""
    durable = figures.get(INGEST)
    transient = figures.get(INGEST.replace("durable", "transient"))
    if durable is None or transient is None:
        return None
    benchmark, _, case = DURABLE.partition(": ")
    return Figure(benchmark, case, durable.unit, durable.ours, transient.ours, "transient")


def verdicts(figures: list[Figure], budgets: Iterable[Budget] = BUDGETS) -> list[Verdict]:
    """Every one of these budgets of which the figure is there."""
    found = {figure.name: figure for figure in figures}
    compared = durable_against_transient(found)
    if compared is not None:
        found[compared.name] = compared
    judged = []
    for budget in budgets:
        figure = found.get(budget.figure)
        measured = None if figure is None else budget.measured(figure)
        if figure is not None and measured is not None:
            judged.append(Verdict(budget, measured, figure))
    return judged
