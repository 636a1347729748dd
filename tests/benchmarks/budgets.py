"""Budgets: what each path is meant to cost, and which figure says whether it does.

A budget that is missed is shown as missed, by how much, and with the reason as far as it is known.
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
    """A budget beside what was measured."""

    budget: Budget
    measured: float

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

PROFILED = "[where it goes](#where-the-time-goes)"
OBJECT_BY_OBJECT = (
    "a body, a key and its place are an object of Python each, which have to be made, and entered "
    f"into a dictionary that grows out of every cache: {PROFILED}. Half a second of the "
    "processor's time goes to loading libraries of Python, before there is anything to restore"
)
FROM_BODIES = (
    "what a checkpoint knows has to be found out of each body: its key and the SowKey made of it, "
    "and the indexed fields, some two thirds of it; a log that is longer than 64 MiB has a "
    f"checkpoint, unless the server ended just before: {PROFILED}"
)
OUT_OF_CACHE = (
    "the dictionary of keys grows out of every cache: to enter a key takes 0.54 µs by itself "
    "where there are 1,000,000 and 0.81 where there are 4,000,000; the rest of what is more is "
    "to make the bodies, in memory that the system has yet to hand out, and a fifth to read the "
    f"checkpoint and to put what has changed since: {PROFILED}"
)
OWN_WINDOWS = (
    "copies with the same filter and interval are one and cost nothing more; with intervals of "
    "their own each has its windows to keep and its releases to put, of which only the judging is "
    f"shared: {PROFILED}"
)
OWN_FILTERS = (
    "with these filters one copy takes in an update of a hundred, and a hundred copies take in all "
    f"of them and give up what was there: ten and a hundred times the records moved: {PROFILED}"
)
ROWS_ANEW = (
    "of a hundred updates 63 make the row of a group anew: it is worked out, written as JSON, "
    "compared with what stood there and put, some 2 µs a row and half of what it costs; the other "
    "half is to read the fields of what the records were, and to change the sum and the counts of "
    f"values of each group: {PROFILED}. Ingest itself without a disk and a socket is some 1.8 µs"
)
GROUPS_KEPT = (
    "with frames on their way rows are made once for some 80 of them; what is left is to read "
    "the fields of what the records were, and to change the sum and the counts of values of each "
    f"group: {PROFILED}"
)
ONE_BY_ONE = (
    "what a frame costs by itself, whatever it holds: aiohttp's reader, a message, a reply; frames "
    f"of one turn are decoded, logged and stored as one batch already: {PROFILED}"
)
MANY_PARTS = (
    "all of it is done on one core, and no part of it takes much over a quarter: with 100,000 keys "
    "at this rate the copy releases every second update or so, puts it into a table of its own and "
    "tells it, which is nearly as much again as ingest without a copy; and every record is looked "
    f"up in tables that are larger than the processor's cache: {PROFILED}"
)
ONE_GROUP_EACH = (
    "every frame is a commit of its own: LMDB flushes the disk twice for it, some 0.1 ms of the "
    "system's processor time each however little is written; the loop sleeps and wakes between the "
    "socket, the journal's thread and the socket; and the rest is what a frame costs by itself, in "
    f"caches that were used by others meanwhile: {PROFILED}"
)
ON_THE_DISK = (
    "half a millisecond or so of the answer is its own work, twice what it is without updates: "
    "caches are colder, and what has changed is read first. Where a change on its way to the disk "
    "concerns it, it leaves when that is there: after the commit that is under way, as a rule, and "
    "the one that follows; what all records may be part of is always concerned. Frames that came "
    "before have their turns meanwhile, and the "
    f"publisher's thread shares a processor with who asks: {PROFILED}"
)
BODIES_JOINED = (
    "some ten thousand bodies stand in as many places of the memory, and to bring them together is "
    "nine tenths of it, as it is with numpy and columns that are ready; which they are is known in "
    "half a millisecond"
)
REASONS: Mapping[str, str] = {
    "ingest, frames of 100": MANY_PARTS,
    "ingest against its floor": (
        "the floor leaves out the network, the log entry, the table, the index and the conflated "
        "copy; with few keys the copy's subscriber is also sent nearly every update"
    ),
    "durable at 20,000 messages/s, frames of 20": ONE_GROUP_EACH,
    "frames of 1": ONE_BY_ONE,
    "frames of 1, on uvloop": ONE_BY_ONE,
    **{
        f"messages of {size} KB": (
            "one pass reads the keys and checks the JSON, half a pass finds that no number is too "
            "large; where there are over 250 brackets one and a half more find that none is too "
            f"deep. msgspec checks neither in fields that nobody reads: {PROFILED}"
        )
        for size in (10, 100)
    },
    "1,000 equality filters": (
        "a value of each update is looked up among those that filters ask for, and each batch is "
        "asked for that field: some 0.4 µs of an update that takes four without a disk and a socket"
    ),
    "fan-out to 1,000": (
        "the floor, a send of the same thirty kilobytes through a bare socket, is over the aim "
        "already, and half of the server's time is spent within it; the rest is the outbox's "
        "bookkeeping for each session and frame, which is what bounds a slow client: nearly 3 µs "
        "in a loop of nothing else, and more where each of a thousand sessions has to be fetched "
        f"into the processor's cache: {PROFILED}"
    ),
    "1,000 users with rows of their own, beside nobody": (
        "the field that tells users apart is read of what each record was and is, and looked up, "
        "0.6 µs of an update in the engine: as much as for as many filters of their own"
    ),
    "a view of five aggregates": ROWS_ANEW,
    "ingest with a view, over WebSocket": GROUPS_KEPT,
    "ingest with a view, the engine": ROWS_ANEW,
    "a join 1:1": (
        "every update makes a row anew: what the record was is read and noted, the records that it "
        "meets are looked up and read, a quarter of the time, its group of one row changes and "
        "keeps which row is the newest, a fifth, and the row is made, written, compared and put as "
        f"any record is, another fifth: {PROFILED}"
    ),
    "100 live windows, 20,000 updates/s": (
        "one update in a hundred or so moves a row of an order, and every window behind it shows "
        "another stretch: each of these reads its fifty rows again, compares them with what its "
        "client holds and writes what differs, most of what windows take; the rest is to compare "
        "each update with the bounds of ten orders, and to note it, a quarter or so, for the "
        f"columns by which these orders were found when the windows opened: {PROFILED}"
    ),
    "a filter with REGEXP_REPLACE, every text a different one": (
        "to search a text and to put another in its place takes Python's own expressions more than "
        "half of it; the rest is to go through the different texts, and to compare what comes of it"
    ),
    "query, 1 % range": BODIES_JOINED,
    **{
        f"query over HTTP, {case}, updates beside it": ON_THE_DISK
        for case in ("hash index, 1 symbol of 5000", "compound, 1 record in 10,000", "top 10")
    },
    "query over HTTP, range, 1 %, updates beside it": f"{BODIES_JOINED}. {ON_THE_DISK}",
    "query, 1 % range, right after 10,000 updates": (
        "the question first reads the field of all that has changed since the last one; a server "
        f"does that between other work, and has nothing left to read a moment later: {PROFILED}"
    ),
    "restart, checkpoint and tail": OBJECT_BY_OBJECT,
    "restart, journal only": FROM_BODIES,
    "restart of 2,000,000 beside 1,000,000": OUT_OF_CACHE,
    "restart of 4,000,000 beside 1,000,000": OUT_OF_CACHE,
    "an idle session": (
        "of 24 KiB that Python hands out for one 9.4 are aiohttp's: the request with its headers, "
        "its parser, writer and queues, and the reader of the WebSocket, all kept as long as it is "
        "open; 3 are asyncio's, and some 11 what stands around each socket: what it sends, what it "
        "is told, what bounds it, its session and what that follows, a hundred small objects"
    ),
    "a topic of a pattern, with a copy that is followed": (
        "a copy is a topic of its own, with records, table, numbers, indexes, router and a place "
        "in every list of names: 1.7 KB, as much as its topic; the feed of who follows, its words "
        "and how it is found take 0.9 KB, and windows, their focus and when they are due as much"
    ),
    "restart with a view of 200,000": (
        "the fields are read of every body, and the values of each record enter what its group "
        "keeps, some 2.4 µs; to load a record from its checkpoint takes nearly as long"
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
        "with nobody following the same updates take more than the aim: 200 frames a second that "
        "are a commit each, with the loop asleep between them; a hundred who follow add a fifth "
        f"to that, most of it the sends of some fifty frames a second to each: {PROFILED}"
    ),
    "subscribing, each with a path of its own": (
        "to subscribe is a third of a millisecond of it; the rest is the update that follows each, "
        "of which by then as many fields are read as there are paths, 500 in the mean"
    ),
    "staleness p99, 100 follow, one more never reads": (
        "windows are gathered for up to 20 ms, and what falls due is written to one after the "
        "other, between frames that are published; what waits for the one who never reads is "
        "folded in turns of its own, some 2 ms of each of which the others wait for"
    ),
    "staleness p99, 1,000 follow 1,000 keys at 100 ms": (
        "windows are gathered for up to 10 ms, and what falls due in one moment is written to "
        "1,000 sockets, a send of some 20 µs each: the last of them, which is the one that is "
        "looked at, has it 20 to 30 ms after the first"
    ),
    "staleness p99, 10,000 follow 100 keys at 1 s": (
        "what falls due in one moment is written to 10,000 sockets, a send each, and the last of "
        "them waits for all the others"
    ),
    "memory": (
        "beside its bytes a record has the header of a bytes object, a text of its key, a place in "
        "the dictionary, a number for it, and 32 bytes of sequence number, time, birth and SowKey: "
        f"{PROFILED}. Keys that are integers would save 32 bytes as such"
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
        if measured is not None:
            judged.append(Verdict(budget, measured))
    return judged
