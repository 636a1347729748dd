"""Traits: attributes of a message beside its fields, such as its SowKey, its size and its time.

A filter names the traits that it reads, as it names paths, and takes a column for each. The owner
of the messages describes them (`MessageColumns`); a column is made only when a filter reads it.
In AMPS these are functions of the message. Those that are not kept, such as the publisher, are
refused by name (`sow.expressions.functions`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from sow.core.paths import Scalar, Value


class Trait(StrEnum):
    """Something that is known of a message, by the name of the function that gives it."""

    AMPS_INSTANCE_NAME = "AMPS_INSTANCE_NAME"
    BOOKMARK = "BOOKMARK"
    LAST_UPDATED = "LAST_UPDATED"
    MESSAGE_SIZE = "MESSAGE_SIZE"
    SOW_KEY = "SOW_KEY"
    TOPIC_NAME = "TOPIC_NAME"
    UNIX_TIMESTAMP = "UNIX_TIMESTAMP"


UNSTEADY = frozenset({Trait.BOOKMARK, Trait.LAST_UPDATED, Trait.UNIX_TIMESTAMP})
"""Traits that change without the body, so that an earlier body does not determine them."""
NO_TRAITS: Mapping[Trait, Scalar] = {}


def seconds(moment_us: int) -> float:
    """A time as functions give it: seconds since 1970."""
    return moment_us / 1_000_000


class MessageColumns(NamedTuple):
    """MessageColumns of one topic, as columns of equal length.

    `sow_keys` makes the column of SowKeys. `seqs` are the numbers of their changes in the log; None
    where the topic is not logged, or the messages are the answer to a query. `ts_us` are the times
    of their changes, `instance` the server's name.
    """

    topic: str
    bodies: Sequence[bytes | None]
    sow_keys: Callable[[], Sequence[str]]
    seqs: Sequence[int] | None
    ts_us: Sequence[int]
    instance: str = ""

    def columns(self, traits: Iterable[Trait]) -> list[list[Value]]:
        """A column for each of these traits."""
        return [self.column(trait) for trait in traits]

    def first(self, traits: Iterable[Trait]) -> dict[Trait, Value]:
        """These traits of the only message that there is."""
        return {trait: self.column(trait)[0] for trait in traits}

    def column(self, trait: Trait) -> list[Value]:
        """The values of a trait. The moment of a message is that of its change; to evaluate a
        filter as of another one, the caller fixes it first (`Filter.at`)."""
        match trait:
            case Trait.AMPS_INSTANCE_NAME:
                return [self.instance] * len(self.bodies)
            case Trait.BOOKMARK:
                return [None] * len(self.bodies) if self.seqs is None else [*map(str, self.seqs)]
            case Trait.LAST_UPDATED | Trait.UNIX_TIMESTAMP:
                return [*map(seconds, self.ts_us)]
            case Trait.MESSAGE_SIZE:
                return [None if body is None else len(body) for body in self.bodies]
            case Trait.SOW_KEY:
                return [*self.sow_keys()]
            case Trait.TOPIC_NAME:
                return [self.topic] * len(self.bodies)
