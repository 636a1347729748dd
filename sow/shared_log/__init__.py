"""The shared log: one server writes it, others follow it, and an engine outside replicates it.

    here        what an engine promises: append, read, last, trim
    entry       the envelope of what is appended, and which entries are valid, on every node alike
    writer      groups on their way, read back before they are released
    roles       who leads: beats, leases, the lead, stepping down
    adapters    NATS JetStream, PostgreSQL, Kafka and object stores as engines

Nothing in this package does I/O or reads a clock, but for the adapters: each speaks to one engine.
A driver carries out what a `LogNode` orders and reports what happens. Electing and replicating is
the engine's work. Two promises carry everything else (docs/decisions/041-shared-log.md):

    total order    every reader gets the same blocks at the same positions, in one order, forever;
                   positions rise, and may have gaps
    durable        what `append` has answered, and what `read` has yielded, survives every failure
                   that the engine is set up to survive

Nothing more is needed, because entries are fenced by their chain (`sow.shared_log.entry`) and not
by conditions of the engine. So an adapter may

    lose an answer       the block may be there, may come later, or never
    be answered late     as long as no answer of one `append` is taken for that of another: each
                         attempt has a reply address, connection or number of its own
    store a block twice  as libraries do that try again; let them not try again where they can
    be out of date       `last` and `read` may end too early, at a replica that is behind
    share its stream     what others have written there is read, and void

An adapter never tries again by itself, keeps nothing in memory that a restart needs, and refuses
settings of its engine that lose what was answered. Calls of one client that overlap are stored in
the order in which they began, as long as nothing fails: otherwise all but one of them are void and
are sent again. `tests/shared_log/conformance.py` is what every adapter has to pass.
"""

from collections.abc import AsyncGenerator
from typing import NamedTuple, Protocol

BLOCK_BYTES_MAX = 1024**2
"""The largest block, with its envelope: what NATS takes in one message unless it is configured,
and every other engine too."""


class StoredBlock(NamedTuple):
    """A block of the log, and where it stands."""

    position: int
    block: bytes


class SharedLog(Protocol):
    """One client of a log that several nodes write and read. Positions begin above 0."""

    async def append(self, block: bytes) -> int:
        """Store a block of at most `BLOCK_BYTES_MAX` behind all others; the answer is its position,
        once it is durable.

        Raises LogUnanswered where no answer came, or none can come: then nobody knows whether it is
        stored, or will be. Raises TooLarge for a larger block, which is not stored.
        """
        ...

    def read(self, after: int) -> AsyncGenerator[StoredBlock, None]:
        """Blocks behind a position, in order, from now on: it never ends, it waits for the next.

        Raises LogTrimmed where blocks behind that position are gone: it says up to which one, and
        behind that a read begins. Raises LogUnanswered where the engine is away. It may also be
        silent then; the caller reads again (`LogNode`).
        """
        ...

    async def last(self) -> int:
        """The position of the newest block, also after it was trimmed; 0: there was never one.
        Raises LogUnanswered."""
        ...

    async def trim(self, before: int) -> None:
        """Let go of the blocks before a position. They may stay for a while, but a log never begins
        behind it. Raises LogUnanswered."""
        ...
