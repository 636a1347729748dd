"""Questions: what a command asks for, read against the topics that there are.

Which topics it names, which records of them, seen how; what speaks against it is raised before
anything is done. An answer is taken at one moment, and said between two marks. Nothing here is
followed: `sow.requests.following` and those beside it build on this.
"""

from contextlib import suppress

from sow import replies
from sow.commands import ACKS, Command, acks_of
from sow.delivery.lines import FeedKey
from sow.delivery.sessions import Session
from sow.encodings import Encoding
from sow.engine.engine import Engine
from sow.engine.live_topics import LiveTopic
from sow.errors import ClientError, UnknownTopic, shown
from sow.expressions import Filter, parse_order_by
from sow.expressions.patterns import Search
from sow.history.bookmarks import NOW, Span, parse_bookmark
from sow.history.snapshot import ANSWER_CHUNK_ROWS, Snapshot
from sow.history.unread import Unread
from sow.lists import comma_list
from sow.paths import parse_member
from sow.query import Query, QueryAnswer
from sow.steps import Steps
from sow.store.protocols import Journal
from sow.topic.rendering import Shape
from sow.topic_patterns import is_pattern, topic_search


class Questions:
    """Reads commands, and answers those that ask once. What is given out counts as `unread`."""

    def __init__(self, engine: Engine, journal: Journal) -> None:
        self._engine = engine
        self._journal = journal
        self.unread = Unread()

    def answer(self, session: Session, command: Command, name: str) -> Steps[None]:
        """`sow`: say under `name` what the topics hold now."""
        taken = yield from self.take_all(session, command)
        acknowledge(session, command, "processed", s=name)
        self.say_answer(session, taken, name, shape_of(command))
        acknowledge(session, command, *ACKS[1:], s=name, **counts_of(taken))
        yield from settle(taken)

    def check(self, command: Command, encoding: Encoding) -> None:
        """Raise what speaks against a subscription; nothing is changed."""
        self.query(command)
        feed_key(command, encoding, complete=False)
        topics, _ = self.topics(command)
        for topic in topics:
            self.check_fields(topic, command)
        if command.bookmark is not None and command.bookmark not in NOW:
            self.span(command, topics)

    def condition(self, command: Command) -> Filter | None:
        """The filter of a command; raises BadFilter."""
        return None if command.filter is None else self._engine.filter(command.filter)

    def check_fields(self, topic: LiveTopic, command: Command) -> None:
        """Refuse what needs fields of messages that have none, and keys that would mix records."""
        options = command.options
        condition = self.condition(command)
        topic.records.check_filter(condition)
        if command.name != "sow":
            topic.records.check_watch(condition)
        if options.select is not None:
            topic.records.renderer.check_select(options.select)
        own = {str(key) for key in topic.records.keys}
        other = {
            str(parse_member("conflation_key", path)) for path in options.conflation_key
        } != own
        if options.conflation_key and other and (options.oof or command.kind.is_delta):
            raise ClientError(
                "conflation_key other than the topic's key goes with neither oof nor deltas, which "
                "are about single records",
                reason="invalid options",
            )

    def span(self, command: Command, topics: list[LiveTopic]) -> Span:
        """The part of the log that a bookmark subscription asks for."""
        if command.options.oof or command.kind.is_delta:
            raise ClientError(
                "neither oof nor deltas can begin at a bookmark: the log does not say what a "
                "subscriber held before; use sow_and_subscribe",
                reason="invalid options",
            )
        for topic in topics:
            if not topic.is_logged:
                raise ClientError(
                    f"topic {topic.name} is not in the log; subscribe without bm",
                    reason="invalid topic",
                )
        assert command.bookmark is not None
        return parse_bookmark(
            command.bookmark, self._journal, self._engine.seq, command.options.bookmark_not_found
        )

    def topics(self, command: Command) -> tuple[list[LiveTopic], Search | None]:
        """The topics that a command names: one, or those of a pattern."""
        name = command.topic
        if name in self._engine.topics or command.options.non_regex_topic or not is_pattern(name):
            return [self._engine.topic(name)], None
        search = topic_search(name)
        catalog = self._engine.catalog
        topics = catalog.matching(search)
        if not topics and (command.name == "sow" or not catalog.patterns):
            raise UnknownTopic(f"no topic matches the pattern {shown(name)}")
        return topics, search

    def take_all(self, session: Session, command: Command) -> Steps[list[tuple[Snapshot, int]]]:
        """What a command asks for of its topics, and how many records match; raises ClientError.

        All is as of the last step: of several topics each is made ready first, and asked then.
        Those of a pattern that have gone by then are not in it.
        """
        topics, query = self._checked_topics(command), self.query(command)
        answers: dict[LiveTopic, QueryAnswer] = {}
        for topic in topics:
            answers = {}
            with suppress(UnknownTopic):
                answers = {topic: (yield from self._engine.answering(topic.name, query))}
        return [
            self._take(session, topic, answers.get(topic) or self._answer(topic, query))
            for topic in self._checked_topics(command)
        ]

    def _checked_topics(self, command: Command) -> list[LiveTopic]:
        topics = self.topics(command)[0]
        for topic in topics:
            self.check_fields(topic, command)
        return topics

    def _answer(self, topic: LiveTopic, query: Query) -> QueryAnswer:
        return self._engine.query(topic.name, query)

    def _take(
        self, session: Session, topic: LiveTopic, answer: QueryAnswer
    ) -> tuple[Snapshot, int]:
        if len(answer.slots) > ANSWER_CHUNK_ROWS:
            self.unread.check(session.id, len(answer.slots))
        return Snapshot.take(topic.records, answer.slots), answer.matches

    def query(self, command: Command) -> Query:
        """The query of a command; raises ClientError."""
        return Query(
            filter=self.condition(command),
            keys=sow_keys(command),
            order_by=parse_order_by(command.order_by) if command.order_by else (),
            top_n=command.options.top_n,
            skip_n=command.options.skip_n or 0,
        )

    def say_answer(
        self, session: Session, taken: list[tuple[Snapshot, int]], name: str, shape: Shape
    ) -> None:
        """Say snapshots as one answer: few rows at once, many as the socket takes them."""
        engine = self._engine
        session.say(replies.group_begin(name))
        for snapshot, _ in taken:
            head = snapshot.topic.renderer.head("sow", name)
            if snapshot.is_short:
                rows = snapshot.lines(session.encoding, head, shape, 0, len(snapshot))
                session.say_lines(rows)
            else:
                frames = snapshot.frames(session.encoding, head, shape)
                held = self.unread.hold(session.id, len(snapshot), frames)
                session.stream(held, engine.group, engine.now_us)
        session.say(replies.group_end(name, engine.seq))


def acknowledge(session: Session, command: Command, *kinds: str, **more: object) -> None:
    """Say the acks of these kinds that were asked for; `processed` when none was."""
    for kind in acks_of(command.acks, command.cid is not None):
        if kind in kinds:
            session.say(replies.ack(command.cid, kind, **more))


def sow_keys(command: Command) -> tuple[str, ...] | None:
    """The SowKeys that a command names, or None."""
    if command.key is None:
        return command.keys
    if command.keys is not None:
        raise ClientError("give k or keys, not both")
    return tuple(comma_list(command.key))


def feed_key(command: Command, encoding: Encoding, complete: bool) -> FeedKey:
    """What a subscription's command says about its feeds; raises ClientError."""
    options, delta = command.options, command.kind.is_delta
    if options.no_empties and not delta:
        raise ClientError(
            "no_empties belongs to delta subscriptions; every update of another one is whole",
            reason="invalid options",
        )
    if options.conflation_key:
        if options.conflation is None:
            raise ClientError("conflation_key needs conflation", reason="invalid options")
        for path in options.conflation_key:
            parse_member("conflation_key", path)
    return FeedKey(
        filter=command.filter,
        oof=options.oof,
        delta=delta,
        no_empties=options.no_empties,
        accounts=(options.oof or delta) and not complete,
        interval_us=options.conflation if isinstance(options.conflation, int) else None,
        auto=options.conflation == "auto",
        conflation_key=options.conflation_key,
        shape=shape_of(command),
        encoding=encoding.name,
    )


def shape_of(command: Command) -> Shape:
    """What a command wants to see of each record."""
    options = command.options
    return Shape(not options.no_sowkey, options.timestamp, options.select)


def settle(taken: list[tuple[Snapshot, int]]) -> Steps[None]:
    """Let go of what was taken hold of and is in no row, now that the moment has passed."""
    yield
    for snapshot, _ in taken:
        yield from snapshot.settle()


def counts_of(taken: list[tuple[Snapshot, int]]) -> dict[str, int]:
    """What the last ack of an answer says of it."""
    return {
        "matches": sum(matches for _, matches in taken),
        "returned": sum(len(snapshot) for snapshot, _ in taken),
    }
