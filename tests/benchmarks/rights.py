"""Rights: what it costs the server that it asks who its users are, and shows each what he may see.

Real servers and real sockets, users by tokens. A hundred users of equal rights follow a topic; the
floor is a server that asks nobody, where as many ask by their own filter for what those may see. A
thousand users may see rows of their own each: once nobody has any, which is the price of finding
that out, beside nobody who follows; once each update is somebody's, beside as many filters. What is
compared is the server's processor time: publisher and readers are on the same machine.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from sow.security.authentication.tokens import sum_of
from tests.benchmarks.measure import Figure, in_turn
from tests.benchmarks.processes import ServerProcess
from tests.benchmarks.readers import Readers
from tests.benchmarks.records import ACCOUNTS, configuration, every_order, updates
from tests.benchmarks.sizes import Sizes
from tests.benchmarks.sockets import Client, publishes

FRAME = 100
WINDOW = 8
FAN_OUT_WINDOW = 1
"""With more, the server joins frames, and how many it joins would be compared."""
TOKEN = "token-{n}"
PUBLISHER = "publisher"
SUBSCRIBE = '{"c":"subscribe","t":"orders","cid":"1"}'
FILTERED = '{"c":"subscribe","t":"orders","cid":"1","filter":"%s"}'
EQUAL = "/qty >= 0"
OWN = "/acct = '%s'"


class Followers(NamedTuple):
    """So many follow: users whose rights are `guard`, or, without that, anybody by `command`.

    `{n}` stands for the number of each; users are called `named` so.
    """

    count: int
    command: str = SUBSCRIBE
    guard: str = ""
    named: str = ""


class Served:
    """A server with followers and a publisher."""

    def __init__(self, stack: ExitStack, sizes: Sizes, followers: Followers, durable: bool) -> None:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="sow-bench-")))
        # What rights go by is indexed where many ask by it: its field is read in any case.
        xml = configuration(index=True, durable=durable).replace("/symbol", "/acct")
        asks = bool(followers.guard)
        if asks:
            write_tokens(place / "tokens", followers)
            xml = xml.replace("</SOWConfig>", f"{security(place, followers.guard)}</SOWConfig>")
        self.server = stack.enter_context(ServerProcess(xml))
        at = self.server.host, self.server.port
        self.readers: Readers | None = None
        if followers.count:
            token = TOKEN if asks else ""
            self.readers = Readers(*at, followers.count, followers.command, token)
            stack.enter_context(self.readers).ready()
        self.client = Client(*at, PUBLISHER if asks else "")
        stack.callback(self.client.close)
        self.client.publish(publishes(every_order(sizes.keys), 1000), WINDOW)

    def ingest(self, frames: list[bytes]) -> Callable[[], float]:
        """The server's time for a message, in µs."""

        def measure() -> float:
            before_s = self.server.cpu_s
            self.client.publish(frames, WINDOW)
            taken_s = self.server.cpu_s - before_s
            if self.readers is not None:
                self.readers.check()
            return taken_s * 1e6 / len(frames) / FRAME

        return measure

    def fan_out(self, frames: list[bytes], count: int) -> Callable[[], float]:
        """The server's time for a frame and follower, in µs."""

        def measure() -> float:
            assert self.readers is not None
            self.readers.expect(len(frames) * FRAME)
            before_s = self.server.cpu_s
            self.client.publish(frames, FAN_OUT_WINDOW)
            self.readers.wait()
            return (self.server.cpu_s - before_s) * 1e6 / len(frames) / count

        return measure


def write_tokens(file: Path, followers: Followers) -> None:
    users = [
        f"{followers.named.format(n=n)} {sum_of(TOKEN.format(n=n))} desk\n"
        for n in range(followers.count)
    ]
    file.write_text("".join([*users, f"{PUBLISHER} {sum_of(PUBLISHER)}\n"]))


def security(place: Path, guard: str) -> str:
    text = guard.replace("<", "&lt;").replace(">", "&gt;")
    return f"""<Security><Authentication><Tokens><File>{place}/tokens</File></Tokens>
</Authentication><Role><Name>desk</Name><Member>group:desk</Member>
<Allow><Topic>orders</Topic><Read/><Filter>{text}</Filter></Allow></Role>
<Role><Name>publishers</Name><Member>user:{PUBLISHER}</Member>
<Allow><Topic>orders</Topic><Write/></Allow></Role></Security>"""


def rights(sizes: Sizes) -> Iterator[Figure]:
    """Users of equal rights, and of rows of their own."""
    count, frames = next((pair for pair in sizes.fan_out if pair[0] == 100), sizes.fan_out[0])
    with ExitStack() as stack:
        asking = Followers(count, guard=EQUAL, named="user-{n}")
        ours = Served(stack, sizes, asking, durable=False)
        floor = Served(stack, sizes, Followers(count, FILTERED % EQUAL), durable=False)
        published = publishes(updates(frames * FRAME, sizes.keys), FRAME)
        taken = in_turn(
            sizes.repetitions, ours.fan_out(published, count), floor.fan_out(published, count)
        )
        name = f"fan-out to {count} users of equal rights, server CPU"
        by_filter = "as many by a filter, without authentication"
        yield Figure("rights", name, "µs/frame/session", *taken, by_filter)
    users = min(ACCOUNTS, sizes.filters[0])
    nobody = Followers(0)
    by_filters = Followers(users, FILTERED % (OWN % "acct-{n}"))
    for case, named, without, floor_name in (
        ("none of them theirs", "nowhere-{n}", nobody, "nobody follows, without authentication"),
        ("each somebody's", "acct-{n}", by_filters, by_filter),
    ):
        with ExitStack() as stack:
            asking = Followers(users, guard="/acct = ${user.name}", named=named)
            ours = Served(stack, sizes, asking, durable=True)
            floor = Served(stack, sizes, without, durable=True)
            published = publishes(updates(sizes.messages, sizes.keys), FRAME)
            taken = in_turn(sizes.repetitions, ours.ingest(published), floor.ingest(published))
            name = f"updates of which {case}, beside {users} users, server CPU"
            yield Figure("rights", name, "µs/message", *taken, floor_name)
