"""What running topics of all kinds have in common (`sow.engine.running_topics`), and hidden names.

A *hidden* topic is one that only its creator can name. An aggregated query is answered by a view,
found, followed and removed like any topic. But it has no name of its own, its lines carry the name
of the topic that the query named, and no list shows it. So its name reads like that topic's name
and equals only itself: a text from a client never finds it.
"""

from collections.abc import Iterator, Sequence

from sow.core.cooperative import Task
from sow.core.definitions import Definition, Topic
from sow.streaming.late_turns import LateTurns
from sow.streaming.router import PatternSubscriptions, Routed, Router
from sow.topic.batch import Batch
from sow.topic.records import Records


class HiddenTopic(str):
    """A text that equals only itself."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__


def is_hidden(name: str) -> bool:
    """Whether no list shows a topic of this name."""
    return isinstance(name, HiddenTopic)


class LiveTopicBase:
    """What all kinds have in common.

    `pattern` is the name of the pattern that the topic belongs to, if any: `definition` is then
    that of the pattern, for all its topics. What every publish needs is looked up once, here.
    """

    __slots__ = (
        "definition", "falls_due", "is_closed", "is_listed", "is_logged", "is_system", "name",
        "passed_seq", "pattern", "records", "router", "stored_as", "updates",
    )  # fmt: skip

    def __init__(
        self,
        records: Records,
        definition: Definition,
        pattern: str | None,
        falls_due: bool,
        followers: PatternSubscriptions,
    ) -> None:
        self.name = records.name
        self.records = records
        self.router = Router(records, followers)
        self.definition = definition
        self.pattern = pattern
        self.stored_as = pattern or self.name
        """The definition whose checkpoint has the records: the topics of a pattern share one."""
        self.updates = 0
        """Changes routed since the server started."""
        self.passed_seq = 0
        """The newest change that is not of a request under way, so that it may be acknowledged."""
        self.is_system = isinstance(definition, Topic) and definition.system
        """It is the server's own."""
        self.is_closed = self.is_system or records.is_queue
        """Clients may not change it: it is the server's own, a queue, or being removed."""
        self.is_listed = not self.is_system and not is_hidden(self.name)
        """Lists of topics show it."""
        self.is_logged = records.is_logged
        """Whether the log has its messages."""
        self.falls_due = falls_due
        """Whether it ever has a timer."""

    def route(
        self,
        batch: Batch,
        now_us: int,
        late: LateTurns | None = None,
        passed_seq: int | None = None,
    ) -> Routed:
        """Route changes to all subscribers of the topic, as `Router.route` does; returns the feeds
        and listeners that have work because of it. Those up to `passed_seq`, if any, may be
        acknowledged."""
        if passed_seq is not None:
            self.passed_seq = passed_seq
        self.updates += len(batch.changes.identities)
        return self.router.route(batch, now_us, late)

    def pass_up_to(self, seq: int) -> None:
        """Its changes up to `seq` may be acknowledged."""
        self.passed_seq = seq

    def redefine(self, definition: Definition) -> None:
        """Continue with a definition that differs only in what is looked up when needed."""
        self.definition = definition
        self.records.redefine(definition)

    def reindex(self, definition: Definition) -> Task[None]:
        """Use the indexes of another definition, once they are built."""
        yield from self.records.reindex(definition)
        self.redefine(definition)

    def refold(self, definition: Definition) -> None:
        """Use the queue policy of another definition."""
        self.redefine(definition)
        self.records.refold()

    def check(self) -> None:
        """Assert what is always true of a topic; reads all records."""
        self.records.check()
        self.router.check()

    def introduced(self) -> Iterator[Batch]:
        """All records as inserts, some in each batch, for subscribers from the start; no record may
        change meanwhile."""
        return self.records.introduced()

    def close(self, is_closed: bool = True) -> None:
        """Refuse changes by clients, since it is being removed, or accept them again."""
        self.is_closed = is_closed

    def discharge(self, identities: Sequence[str], seq: int, now_us: int) -> Batch | None:
        """Remove records of a topic that is being removed, unlogged; None if none of them
        exists."""
        return self.records.drop(
            identities, "deleted", lambda count: ([seq] * count, [now_us] * count)
        )
