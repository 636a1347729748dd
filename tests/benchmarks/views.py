"""Views: what keeping groups and joins adds to a change, and what a question about groups takes.

Updates of orders that change in price and stay in their group, an account of a hundred, in frames
of 100: some 63 groups of each frame are written anew, and each row of a join. The floor is the same
engine, the same updates and no view; that of a question is to add up the same fields of the same
bodies, read by msgspec and held nowhere.

The same updates once more as clients see them: over WebSocket, durable, with frames on their way. A
turn of the server then takes several frames, and makes a row anew once for all of them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from random import Random

import msgspec

from sow.core.cooperative import run_to_completion
from sow.protocol.wire import read_frame
from tests.benchmarks.engines import EngineDriver
from tests.benchmarks.measure import Figure, cpu_seconds, in_turn
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.records import ACCOUNTS, configuration, framed, record
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import Client, publishes

GROUPS = 100
BATCH = 100
GROUPED, JOINED = "an update, five aggregates of 100 groups", "an update, a join 1:1"
SERVED = "an update over WebSocket, durable, five aggregates of 100 groups"
WINDOW_FRAMES = 64
"""Unacknowledged frames on their way."""
ENDING = "</SOW></SOWConfig>"
FIELDS = (
    "COUNT(1) AS /n", "SUM(/px) AS /sum", "AVG(/px) AS /mean", "MIN(/px) AS /low",
    "MAX(/px) AS /high",
)  # fmt: skip
BY_ACCOUNT = f"""<View><Name>accounts</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Projection><Field>/acct</Field>
{"".join(f"<Field>{field}</Field>" for field in FIELDS)}</Projection>
<Grouping><Field>/acct</Field></Grouping></View>"""
BESIDE = """<Topic><Name>limits</Name><MessageType>json</MessageType><Key>/order/id</Key></Topic>
<View><Name>checked</Name><MessageType>json</MessageType><UnderlyingTopic>
<Join>[orders]./order/id = [limits]./order/id</Join></UnderlyingTopic><Projection>
<Field>[orders]./order/id AS /id</Field><Field>[orders]./px AS /px</Field>
<Field>[limits]./qty AS /limit</Field></Projection>
<Grouping><Field>[orders]./order/id</Field></Grouping></View>"""


class Order(msgspec.Struct):
    """What the question is about, read by the floor."""

    acct: str
    px: float


def views(sizes: Sizes) -> Iterator[Figure]:
    """The processor's time for an update beside a view, and for a question about groups."""
    orders, bodies = published(sizes)
    frames = framed(bodies, BATCH)
    plain = configuration(durable=False)
    grouped, joined = (plain.replace(ENDING, more + ENDING) for more in (BY_ACCOUNT, BESIDE))
    drivers = [EngineDriver(xml) for xml in (plain, grouped, joined)]
    drivers[2].load(orders, topic="limits")
    for driver in drivers:
        driver.load(orders)
    measures = (_each_us(driver, frames) for driver in drivers)
    floor, *ours = in_turn(sizes.repetitions, *measures)
    for case, found in zip((GROUPED, JOINED), ours, strict=True):
        yield Figure("views", case, "µs/update", found, floor, "no view")
    yield _requested(drivers[0], orders, sizes)


def served(sizes: Sizes) -> Iterator[Figure]:
    """The server's processor time for an update that comes in a frame of 100, many on their way."""
    orders, bodies = published(sizes)
    loaded, frames = publishes(orders, 1000), publishes(bodies, BATCH)
    plain = configuration(durable=True)
    with ExitStack() as stack:
        measures = []
        for xml in (plain, plain.replace(ENDING, BY_ACCOUNT + ENDING)):
            server = stack.enter_context(ServerProcess(xml))
            client = Client(server.host, server.port)
            stack.callback(client.close)
            client.publish(loaded, WINDOW_FRAMES)
            measures.append(_served_us(server, client, frames))
        floor, ours = in_turn(sizes.repetitions, *measures)
    yield Figure("views", SERVED, "µs/update", ours, floor, "no view")


def _served_us(
    server: ServerProcess, client: Client, frames: Sequence[bytes]
) -> Callable[[], float]:
    def spent_us() -> float:
        before_s = server.cpu_s
        client.publish(frames, WINDOW_FRAMES)
        return (server.cpu_s - before_s) * 1e6 / (len(frames) * BATCH)

    return spent_us


def published(sizes: Sizes) -> tuple[list[bytes], list[bytes]]:
    """Each order once, and updates of them."""
    groups, each = min(GROUPS, sizes.keys // 10), sizes.keys // ACCOUNTS or 10
    draw = Random(1)
    keys = [account + ACCOUNTS * at for at in range(each) for account in range(groups)]
    orders = [record(key, draw) for key in keys]
    return orders, [record(draw.choice(keys), draw) for _ in range(sizes.messages // 2)]


def _each_us(driver: EngineDriver, frames: Sequence[bytes]) -> Callable[[], float]:
    return lambda: cpu_seconds(lambda: driver.publish(frames)) * 1e6 / (len(frames) * BATCH)


def _requested(driver: EngineDriver, orders: Sequence[bytes], sizes: Sizes) -> Figure:
    fields = ",".join(("/acct", *FIELDS)).encode()
    line = b'{"c":"sow","t":"orders","projection":"%b","grouping":"/acct"}' % fields
    (command,) = read_frame(line)
    groups = len(folded(orders))

    def answer() -> None:
        aggregations = driver.executor.subscriptions.aggregations
        question = aggregations.question(command)
        made = run_to_completion(aggregations.computed(question, "bench", lambda _records: None))
        assert len(made.topic.records.table.slots) == groups
        made.let_go()

    ours, floor = in_turn(
        sizes.repetitions,
        lambda: cpu_seconds(answer) * 1e6 / len(orders),
        lambda: cpu_seconds(lambda: folded(orders)) * 1e6 / len(orders),
    )
    return Figure("views", "a question about groups", "µs/record", ours, floor, "adding up")


def folded(bodies: Sequence[bytes]) -> dict[str, list[float]]:
    """The floor of a question: count, sum, least and greatest price of each account."""
    groups: dict[str, list[float]] = {}
    decode = msgspec.json.Decoder(Order).decode
    for body in bodies:
        order = decode(body)
        px = order.px
        group = groups.get(order.acct)
        if group is None:
            groups[order.acct] = [1, px, px, px]
            continue
        group[0] += 1
        group[1] += px
        if px < group[2]:
            group[2] = px
        if px > group[3]:
            group[3] = px
    return groups
