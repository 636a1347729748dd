"""Publishers with a durable name: each of their messages is applied once, whatever dies.

A client that logs on with `sequence` owns a name and numbers its messages. The highest number of a
name is a record in a topic of the server's own, in the same transaction of the journal as the
messages that it counts: a crash leaves both or neither. What is sent again at or below it is not
applied.

    number ──> a turn: what is new of it ──> stored, each slice counted ──> group closed: one record

A long publish is counted slice by slice, in the step that stores the slice. So a crash leaves a
prefix of it, and of the frame that is sent again only the rest is applied. Publishes that come
together are counted by one record, which is written when their group is closed. While a name has a
connection its record is only logged: the table has it when it is needed again.

A name takes one *turn* at a time: two requests of one name, or a new connection and what is left of
the old one, wait for each other. A name has one live connection, the newest; an HTTP request uses
the name beside it. A name expires some time after it was last used, also while the server is down.
What is not here: how numbers arrive (`sow.protocol`), and how clients keep what is not acknowledged
(`sow.client`).
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from sow.core.cooperative import Task
from sow.core.definitions import PUBLISHERS
from sow.core.quota import SHARE
from sow.engine.engine import Engine
from sow.engine.running_topics import SourceTopic
from sow.engine.timers import Deadline
from sow.errors import ClientError, SowError, TooLarge, shown
from sow.messages.json import json_text
from sow.protocol.publish_batching import HIGHEST_SEQ, PublishBatch
from sow.security.authorization import Permissions, stored_owner
from sow.streaming.sessions import Session
from sow.topic.records import CheckedMessages

NAME_CHARS_MAX = 255
"""As many as a topic's name may have."""
PUBLISHERS_MAX = 100_000
"""Names that are kept: each takes about a kilobyte until it expires. One user may have a share of
them (`SHARE`), so that nobody's names keep those of others out."""
RENEWED_PART = 8
"""A name with a live connection is written again after this part of its time, and lasts as much
longer if the server dies meanwhile: too long is safe, too short is not."""
OK = 200
"""The status of an answer that says no more."""
REPLACED = "replaced"
"""Why a connection is closed whose name has another one."""


class NumberedAnswer(NamedTuple):
    """What an HTTP request is answered, as far as it has to be the same when it is sent again."""

    document: dict[str, Any]
    status: int = OK
    headers: Mapping[str, str] = {}

    def saying(self, more: Mapping[str, Any]) -> "NumberedAnswer":
        """The same with more fields."""
        return self._replace(document={**self.document, **more})

    def noted(self) -> dict[str, Any]:
        """What is stored of it. Earlier releases know the first alone."""
        noted: dict[str, Any] = {"answer": self.document}
        if self.status != OK or self.headers:
            noted |= {"status": self.status, "headers": dict(self.headers)}
        return noted


class SequenceGap(ClientError):
    """A number beyond the next one: what is between has not arrived."""

    reason = "sequence gap"
    status = 409

    def __init__(self, client: str, seq: int, expected: int) -> None:
        super().__init__(
            f"seq is {seq}, and the next number of {shown(client)} is {expected}: send what is "
            "between first, or over a WebSocket say that it is left out (opts gaps)"
        )
        self.comes_next = expected

    def fields(self) -> dict[str, object]:
        """The number that comes next."""
        return {"expected": self.comes_next}


class NameInUse(ClientError):
    """A publisher's name belongs to another user."""

    reason = "name in use"
    status = 409

    def __init__(self, client: str) -> None:
        super().__init__(f"the name {shown(client)} belongs to another user; take another name")


class NamedPublisher:
    """One name: its `highest` number, the `owner` who first used it, and what the last HTTP request
    was answered (`last`)."""

    __slots__ = (
        "client", "deadline", "highest", "identity", "is_ahead", "last", "owner", "renew_us",
        "session", "turn",
    )  # fmt: skip

    def __init__(self, client: str, identity: str) -> None:
        self.client = client
        self.identity = identity
        self.highest = 0
        self.owner = ""
        self.last: dict[str, Any] | None = None
        self.session: Session | None = None
        """The session that has logged on with it last."""
        self.turn: NumberedTurn | None = None
        self.renew_us: int | None = None
        """When it is written again, while its session is connected."""
        self.deadline: Deadline | None = None
        self.is_ahead = False
        """The log has a newer state of it than the table."""

    @property
    def is_live(self) -> bool:
        """It has a connection."""
        session = self.session
        return session is not None and session.connected and session.ended is None

    def body(self) -> bytes:
        """What is stored of it."""
        noted: dict[str, Any] = {"client": self.client, "seq": self.highest}
        noted |= {"user": self.owner} if self.owner else {}
        return json_text(noted | ({"last": self.last} if self.last else {}))

    def restore(self, body: bytes) -> None:
        """Go on from what was stored."""
        noted = orjson.loads(body)
        self.highest, self.owner = int(noted["seq"]), stored_owner(noted.get("user", ""))
        self.last = noted.get("last")


class NumberedTurn:
    """The numbers `first` and following of one command or request, for `topic`; `skipped` of them
    were applied before. `answer` makes the answer of an HTTP request of a bookmark or a count."""

    def __init__(
        self,
        publishers: "Publishers",
        publisher: NamedPublisher,
        topic: str,
        first: int,
        count: int,
        answer: Callable[[int], NumberedAnswer] | None,
    ) -> None:
        self.publisher = publisher
        self.topic = topic
        self.first = first
        self.count = count
        self.skipped = max(0, min(count, publisher.highest + 1 - first))
        self.left = count - self.skipped
        """How many are still to be applied."""
        self.is_left = False
        """Nobody waits for it any more, and the engine goes on with it."""
        self.answer = answer
        self._publishers = publishers

    @property
    def is_duplicate(self) -> bool:
        """All of it was applied before."""
        return self.skipped == self.count

    def rest(self, bodies: Sequence[bytes]) -> Sequence[bytes]:
        """What is new of its messages."""
        return bodies[self.skipped :] if self.skipped else bodies

    def fields(self) -> dict[str, int]:
        """What an answer says of numbers: how many were applied, if not all."""
        return {"applied": self.count - self.skipped} if self.skipped else {}

    def stored(self, count: int, bookmark: int) -> None:
        """So many messages were stored, in this step."""
        self.left -= count
        self._publishers.count(self, bookmark)

    def removed(self, count: int) -> None:
        """What it deletes was removed, in this step: `count` records, by one number."""
        self.left = 0
        self._publishers.count(self, count)

    def __enter__(self) -> "NumberedTurn":
        return self

    def __exit__(self, *_error: object) -> None:
        if self.publisher.turn is self:
            self._publishers.leave_turn(self)


class Publishers:
    """The named publishers of one engine. `end` ends a session for a reason that is sent to it."""

    def __init__(self, engine: Engine, end: Callable[[Session, str], None]) -> None:
        self._engine = engine
        self._end = end
        self._owned: dict[Session, NamedPublisher] = {}
        self._at_work: dict[str, NamedPublisher] = {}
        """By name, those that differ from what is stored, or may soon."""
        self._unwritten: dict[NamedPublisher, bool] = {}
        """Those that the open group is to have, and whether the table is."""

    # Names.

    def named(self, client: str | None, rights: Permissions) -> NamedPublisher:
        """The publisher of a name, for a user with these permissions; raises NameInUse, and
        ClientError for what cannot be a name."""
        if client is None or not 0 < len(client) <= NAME_CHARS_MAX or not client.isprintable():
            raise ClientError(
                f"{shown(client or '')} cannot name a publisher: give client, 1 to "
                f"{NAME_CHARS_MAX} printable characters, the same each time it starts"
            )
        owner = rights.owner_text
        publisher = self._at_work.get(client) or self._stored(client, owner)
        if publisher.owner not in ("", owner) and not rights.is_open:
            raise NameInUse(client)
        publisher.owner = publisher.owner or owner
        return publisher

    def _stored(self, client: str, owner: str) -> NamedPublisher:
        records = self._engine.catalog.account(PUBLISHERS).records
        (identity,) = records.identities_of([orjson.dumps({"client": client})])
        publisher, table = NamedPublisher(client, identity), records.table
        slot = table.slots.get(identity)
        if slot is None:
            self._check_room(len(table) + len(self._at_work), owner)
            return publisher
        expires_us = 0 if table.expires_us is None else int(table.expires_us[slot])
        if not 0 < expires_us <= self._engine.now_us:
            publisher.restore(table.bodies[slot] or b"")
        return publisher

    def _check_room(self, count: int, owner: str) -> None:
        """Raise TooLarge if there are so many names that a user may have no more."""
        whose, most = "publishers have", PUBLISHERS_MAX
        if count < most and owner and count >= most // SHARE:
            whose, most = "of your publishers have", most // SHARE
            records = self._engine.catalog.account(PUBLISHERS).records
            (index,), there = records.indexes.hashes, records.table.slots
            index.refresh()
            coming = [one for one in self._unwritten if one.identity not in there]
            count = index.estimate(index.look_up([[owner]]) or ())
            count += sum(one.owner == owner for one in coming)
        if count >= most:
            raise TooLarge(
                f"{most:,} {whose} names, and no more are kept; take a name again, or wait until "
                "some expire (TransactionLog/SequenceExpiration)"
            )

    def make_way(self, session: Session, client: str | None, rights: Permissions) -> Task[None]:
        """Before `claim`: another connection of the name ends, and what it has begun is finished.
        `session` is that of the client, perhaps one that it takes up."""
        publisher = self.named(client, rights)
        self._engine.disk.check_removal([publisher.client])
        older = publisher.session
        if older is not None and older is not session and older.connected:
            self._end(older, REPLACED)
        yield from self._turn_over(lambda: self.named(client, rights))

    def claim(self, session: Session, client: str, rights: Permissions) -> int:
        """The session owns the name from now on; returns the highest number."""
        publisher = self.named(client, rights)
        older, before = publisher.session, self._owned.get(session)
        if older is not None and older is not session:
            self._owned.pop(older, None)
            if older.connected:
                self._end(older, REPLACED)
        if before is not None and before is not publisher:
            self.leave(session)
        self._at_work[client] = self._owned[session] = publisher
        publisher.session = session
        self.go_on(session)
        return publisher.highest

    def go_on(self, session: Session) -> None:
        """The client of a session is connected, and keeps its name if it has one."""
        publisher = self._owned.get(session)
        if publisher is None:
            return
        publisher.renew_us = self._renewal_us()
        if publisher.deadline is None:
            publisher.deadline = Deadline(
                lambda: publisher.renew_us, lambda: self._renew(publisher)
            )
            self._engine.timers.add(publisher.deadline)
        self._mark(publisher, is_whole=True)

    def disconnect(self, session: Session, now_us: int = 0) -> None:
        """The client of a session has no connection now; it may take the session up again."""
        publisher = self._owned.get(session)
        if publisher is None:
            return
        self._engine.sequencer.moment(now_us)
        if publisher.deadline is not None:
            self._engine.timers.remove(publisher.deadline)
            publisher.deadline = None
        self._renew(publisher)

    def leave(self, session: Session) -> None:
        """A session is gone, and owns no name any more."""
        self.disconnect(session)
        publisher = self._owned.pop(session, None)
        if publisher is not None and publisher.session is session:
            publisher.session = None
            self._let_go(publisher)

    def owned_by(self, session: Session) -> NamedPublisher:
        """The name that a session owns; raises ClientError if it has none."""
        publisher = self._owned.get(session)
        if publisher is None:
            raise ClientError(
                "seq numbers the messages of a name: log on with client and sequence:true first, "
                "or leave seq out"
            )
        return publisher

    # Numbers.

    def of_batch(self, session: Session, batch: PublishBatch) -> NamedPublisher | None:
        """The name that publishes of a session are numbered for, if all of them come next."""
        publisher = self._owned.get(session)
        if publisher is None or publisher.turn is not None:
            return None
        return publisher if batch.follows(publisher.highest) else None

    def note(self, publisher: NamedPublisher, count: int) -> None:
        """So many messages were stored in this step."""
        publisher.highest += count
        publisher.last = None
        self._mark(publisher)

    def turn(
        self,
        find: Callable[[], NamedPublisher],
        topic: str,
        first: int,
        count: int,
        *,
        gaps: bool = False,
        answer: Callable[[int], NumberedAnswer] | None = None,
    ) -> Task[NumberedTurn]:
        """A turn for so many numbers from `first` on, once the turns before it are over; a context
        manager. `find` returns the publisher, before and after each wait (`named`, `owned_by`).
        Raises what it does, and SequenceGap, unless there may be `gaps`."""
        if not 1 <= first <= HIGHEST_SEQ + 1 - count:
            raise ClientError(f"seq is {first}; numbers are from 1 to {HIGHEST_SEQ}")
        publisher = yield from self._turn_over(find)
        if first > publisher.highest + 1 and not gaps:
            raise SequenceGap(publisher.client, first, publisher.highest + 1)
        self._at_work[publisher.client] = publisher
        publisher.turn = NumberedTurn(self, publisher, topic, first, count, answer)
        return publisher.turn

    def _turn_over(self, find: Callable[[], NamedPublisher]) -> Task[NamedPublisher]:
        """Wait until a publisher has no turn: what was left is finished here."""
        while (turn := (publisher := find()).turn) is not None:
            if not turn.is_left:
                yield
                continue
            yield from self._engine.publications.finish_all(turn.topic)
            if publisher.turn is turn:
                self._end_turn(turn)  # the engine has failed on it
        return publisher

    def count(self, turn: NumberedTurn, value: int) -> None:
        """Something of a turn was applied, in this step; `value` is its bookmark, or how many
        records were deleted."""
        publisher = turn.publisher
        publisher.highest = turn.first + turn.count - turn.left - 1
        publisher.last = None
        self._mark(publisher)
        if not turn.left:
            if turn.answer is not None:
                answer = turn.answer(value).saying(turn.fields())
                publisher.last = {"first": turn.first, "count": turn.count, **answer.noted()}
            self._end_turn(turn)

    def answered(self, turn: NumberedTurn) -> NumberedAnswer | None:
        """What the request was answered that was the last of its name, if it is this one."""
        last = turn.publisher.last
        if last is None or (last["first"], last["count"]) != (turn.first, turn.count):
            return None
        return NumberedAnswer(last["answer"], last.get("status", OK), last.get("headers", {}))

    def leave_turn(self, turn: NumberedTurn) -> None:
        """Nobody waits for a turn any more; the engine finishes a publish that has begun."""
        if turn.topic in self._engine.publications.names_under_way():
            turn.is_left = True
        else:
            self._end_turn(turn)

    def _end_turn(self, turn: NumberedTurn) -> None:
        turn.publisher.turn = None
        self._let_go(turn.publisher)

    # What is stored.

    def _renew(self, publisher: NamedPublisher) -> None:
        """It was here until now. A full disk keeps what it has."""
        publisher.renew_us = self._renewal_us()
        with suppress(SowError):
            self._engine.disk.check_removal([publisher.client])
            self._mark(publisher, is_whole=True)
            self._engine.notify_work()

    def _mark(self, publisher: NamedPublisher, is_whole: bool = False) -> None:
        """Write it when the open group is closed: only log it, unless the table is to have it as
        well (`is_whole`)."""
        if not self._unwritten:
            self._engine.output.at_close.append(self._write)
        self._unwritten[publisher] = is_whole or self._unwritten.get(publisher, False)

    def _renewal_us(self) -> int | None:
        lasts_us = self._engine.configuration.journal.sequence_expiration_us
        return None if lasts_us is None else self._engine.now_us + lasts_us // RENEWED_PART

    def _write(self) -> None:
        """Write what has changed into the open group."""
        unwritten, self._unwritten = self._unwritten, {}
        logged = [one for one, is_whole in unwritten.items() if not is_whole and one.is_live]
        if logged:
            names, bodies = [one.identity for one in logged], [one.body() for one in logged]
            now_us = self._engine.sequencer.now_us
            topic = self._engine.catalog.topics[PUBLISHERS.name]
            assert isinstance(topic, SourceTopic)
            topic.log_account(names, bodies, now_us, self._expiry_us(now_us, True))
            for publisher in logged:
                publisher.is_ahead = True
        if len(logged) < len(unwritten):
            self._put([one for one in unwritten if one not in logged])

    def _put(self, publishers: Sequence[NamedPublisher]) -> None:
        """The same in the table as well; those that expire together in one entry."""
        engine = self._engine
        topic, now_us = engine.catalog.account(PUBLISHERS), engine.now_us
        for is_live in (False, True):
            some = [publisher for publisher in publishers if publisher.is_live is is_live]
            if some:
                bodies, names = [one.body() for one in some], [one.identity for one in some]
                expires_us = self._expiry_us(now_us, is_live)
                engine.put(topic, CheckedMessages(bodies, names, {}), now_us, expires_us)
            for publisher in some:
                publisher.is_ahead = False
                self._let_go(publisher)

    def _expiry_us(self, now_us: int, is_live: bool) -> int:
        lasts_us = self._engine.configuration.journal.sequence_expiration_us
        if lasts_us is None:
            return 0
        return now_us + lasts_us + (lasts_us // RENEWED_PART if is_live else 0)

    def _let_go(self, publisher: NamedPublisher) -> None:
        """What is stored is enough to know a name again that does nothing."""
        is_idle = publisher.session is None and publisher.turn is None
        if is_idle and not publisher.is_ahead and publisher not in self._unwritten:
            self._at_work.pop(publisher.client, None)

    def check(self) -> None:
        """Assert what is always true of names, between two steps."""
        for session, publisher in self._owned.items():
            assert publisher.session is session
            assert self._at_work[publisher.client] is publisher
        for publisher in self._at_work.values():
            is_at_work = publisher.session or publisher.turn or publisher.is_ahead
            assert is_at_work or publisher in self._unwritten
            assert publisher.turn is None or publisher.turn.left or publisher.turn.is_duplicate
