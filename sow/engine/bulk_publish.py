"""Bulk publish: publishes of messages that were read, stored some hundred messages at a time.

    all checked ──> room reserved for all ──> stored, a slice in each step ──> bookmark of the last

A publish is accepted or refused completely, and an error can only come before its first slice is
stored: the checks before then (sizes, room in memory) hold until its end, whatever other clients do
meanwhile. Each slice is a batch of its own, so between two of them others publish, delete and
receive what has been stored so far; bookmarks are in the order of events.

Once started, a publish is finished. If its client stops waiting it is *left*: the server continues
it (`on_left`), and the next publish to its topic finishes it first, so that messages of one client
keep their order. A large publish finishes all that is left, so that left ones do not pile up.

A `WritePolicy` says which records of a topic a user may write or delete: those whose old and new
state meet a condition, so that a user can neither take a record away from others nor give them one.
Its error names the position of the message in the request only, never what the record contains.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from sow.core.cooperative import Task, run_to_completion
from sow.engine.capacity import Capacity, Deed, DiskReserve, Reservation
from sow.engine.running_topics import SourceTopic
from sow.errors import BadMessage, NotEntitled
from sow.security.row_level_security import RowPolicy
from sow.topic.records import CheckedMessages, Records


class WritePolicy:
    """Records that meet the rows of a row policy may be written."""

    def __init__(self, guard: RowPolicy) -> None:
        self._rows = guard.rows

    def passes(self, records: Records, bodies: Sequence[bytes]) -> list[bool]:
        """Which of these states may be written."""
        if self._rows is None or not bodies:
            return [True] * len(bodies)
        if self._rows.paths and not records.message_type.structured:
            return [False] * len(bodies)
        columns = records.decoder(self._rows.paths).columns(bodies)
        return self._rows.matches(columns, len(bodies))

    def check(
        self,
        records: Records,
        messages: CheckedMessages,
        held: Mapping[str, bytes | None] | None = None,
    ) -> None:
        """Raise NotEntitled unless all records may become what these messages make of them.

        `held` are states that override the table: results of earlier messages of the request.
        """
        news = self.passes(records, messages.bodies)
        olds = self._olds(records, messages.identities, held or {})
        for at, (identity, passes) in enumerate(zip(messages.identities, news, strict=True)):
            if not passes or not olds.get(identity, True):
                raise NotWritable(at)

    def _olds(
        self, records: Records, identities: Sequence[str], held: Mapping[str, bytes | None]
    ) -> dict[str, bool]:
        """For each existing record, whether it may be changed."""
        table = records.table
        there = {
            one: table.bodies[table.slots[one]] or b""
            for one in identities
            if one not in held and one in table.slots
        }
        passes = self.passes(records, [*there.values()])
        return dict(zip(there, passes, strict=True))

    def may_delete(
        self,
        records: Records,
        identities: Sequence[str],
        held: Mapping[str, bytes | None] | None = None,
    ) -> list[bool]:
        """Which of these records may be deleted; a missing one may. `held` are states that override
        the table."""
        olds = self._olds(records, identities, held or {})
        made = {one: body for one in identities if (body := (held or {}).get(one)) is not None}
        olds |= dict(zip(made, self.passes(records, [*made.values()]), strict=True))
        return [olds.get(one, True) for one in identities]


class NotWritable(NotEntitled):
    """A message that would write a record that its user may not write; `index` is its position."""

    def __init__(self, index: int) -> None:
        super().__init__(
            f"message {index} is not entitled: the record that is there, or that it would make, "
            "does not pass the Check of any role"
        )
        self.index = index

    def moved(self, by: int) -> "NotWritable":
        """The same error for a message that follows `by` others."""
        return NotWritable(self.index + by)

    def fields(self) -> dict[str, object]:
        """The index of the message within its request."""
        return {"index": self.index}


SLICE_ROWS = 250
"""Messages of one step: a millisecond or two at what one costs with a few followers, and so many
that what a batch costs by itself is a few percent."""
MEASURED_AT_ONCE = 100
"""Slices that one step measures: a millisecond."""
SLICE_BYTES = 256 * 1024
"""Bytes of one step, where messages are long; a longer message is a step of its own."""
MERGED_BYTES = 1024 * 1024
"""Bytes that one step parses of deltas and of the records that they change: ten milliseconds."""
LONG_BYTES = 128 * 1024
"""A longer one is parsed in a step of its own."""
Counted = Callable[[int, int], object]
"""Called with the number of messages that were stored, and the bookmark of the last."""


def is_one_slice(bodies: Sequence[bytes]) -> bool:
    """Whether one step takes these messages."""
    return len(bodies) <= SLICE_ROWS and sum(map(len, bodies)) <= SLICE_BYTES


def slices(bodies: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Messages in order, as many at a time as a step takes."""
    if is_one_slice(bodies):
        yield bodies
        return
    start = size_bytes = 0
    for at, body in enumerate(bodies):
        size_bytes += len(body)
        if at - start == SLICE_ROWS or (at > start and size_bytes > SLICE_BYTES):
            yield bodies[start:at]
            start, size_bytes = at, len(body)
    yield bodies[start:]


def reading(
    bodies: Sequence[bytes], read: Callable[[Sequence[bytes]], CheckedMessages]
) -> Task[list[CheckedMessages]]:
    """Read messages with `read`, a slice in each step; raises BadMessage with the index of the
    first bad one among all."""
    found: list[CheckedMessages] = []
    count = 0
    for part in slices(bodies):
        if found:
            yield
        try:
            found.append(read(part))
        except BadMessage as error:
            raise error.moved(count) from None
        count += len(part)
    return found


def merged_at_once(records: Records, read: CheckedMessages) -> Iterator[CheckedMessages]:
    """Deltas, as many at a time as a step merges: what they change may be long."""
    pairs = zip(read.bodies, read.identities, strict=True)
    sizes = [len(body) + len(records.body(identity) or b"") for body, identity in pairs]
    start = size = 0
    for at, one in enumerate(sizes if sum(sizes) > MERGED_BYTES else ()):
        size += one
        if at > start and size > MERGED_BYTES:
            yield _part(read, start, at)
            start, size = at, one
    yield _part(read, start, len(sizes)) if start else read


def _part(read: CheckedMessages, start: int, stop: int) -> CheckedMessages:
    columns = {path: column[start:stop] for path, column in read.columns.items()}
    return CheckedMessages(
        read.bodies[start:stop], read.identities[start:stop], columns, read.author
    )


def parsing(records: Records, read: CheckedMessages) -> Task[None]:
    """Parse long deltas, and the long records that they change, one in each step."""
    if not records.message_type.partial:
        return
    for body, identity in zip(read.bodies, read.identities, strict=True):
        for one in (body, records.body(identity) or b""):
            if len(one) > LONG_BYTES:
                records.fields.parse(one)
                yield


class Publication:
    """One publish under way to the topic `name`: the slices that are still to be stored.

    `put` stores one and returns its last bookmark; `room` is the reservation for all of them.
    """

    def __init__(
        self,
        name: str,
        read: Iterable[CheckedMessages],
        put: Callable[[CheckedMessages], int],
        room: Reservation,
    ) -> None:
        self.name = name
        self.bookmark = 0
        """That of the newest stored message; 0 before the first."""
        self._slices = deque(read)
        self._put = put
        self._room = room

    @property
    def is_over(self) -> bool:
        """Everything is stored."""
        return not self._slices

    def step(self) -> None:
        """Store the next slice."""
        messages = self._slices.popleft()
        self._room.take_next()
        self.bookmark = self._put(messages)


class BulkPublish:
    """The publishes of one engine.

    `publishable` returns the topic of a name, or raises why clients cannot publish to it.
    `finished` returns the records that result from messages that are about to change them at a time
    (microseconds), whether they are deltas, and whether they have been found to fit; `put`
    stores messages at a time, to expire at another (0: never) unless records that are there keep
    their lifetime, and returns the bookmark of the last. `finish_before` finishes an atomic change
    of a topic. `together` runs steps of one publish as one request (`sow.engine.output`).
    `make_ready` runs the steps that have to precede a change of a topic, and whether it is the
    first of many.
    """

    def __init__(
        self,
        publishable: Callable[[str], SourceTopic],
        finished: Callable[[SourceTopic, CheckedMessages, int, bool, bool], CheckedMessages],
        put: Callable[[SourceTopic, CheckedMessages, int, int, bool], int],
        capacity: Capacity,
        disk: DiskReserve,
        finish_before: Callable[[str], Task[None]],
        together: Callable[[Task[int]], Task[int]],
        make_ready: Callable[[str, bool], Task[None]],
    ) -> None:
        self._publishable = publishable
        self._finish_before = finish_before
        self._together = together
        self._make_ready = make_ready
        self._finished = finished
        self._put = put
        self._capacity = capacity
        self._disk = disk
        self._under_way: dict[Publication, None] = {}
        self.left: dict[Publication, None] = {}
        """Publishes whose clients have stopped waiting. Read only."""
        self._listeners: list[Callable[[Publication], None]] = []

    def on_left(self, listener: Callable[[Publication], None]) -> None:
        """Call `listener` with each publish whose client has stopped waiting, to be finished
        (`finish`)."""
        self._listeners.append(listener)

    # Publishing.

    def carry_out(
        self,
        name: str,
        read: list[CheckedMessages],
        now_us: int,
        *,
        expires_s: float | None = None,
        delta: bool = False,
        permit: WritePolicy | None = None,
        counted: Counted | None = None,
    ) -> Task[int]:
        """Store messages that were read (`reading`), in order, as `Engine.publish` documents.
        Returns the bookmark of the last one. `counted` is called for each slice in the step
        that stores it.

        Closed before the first slice is stored, it stores none; later, the rest is left. `read` is
        emptied, so that stored messages are not kept in memory. `permit` decides which records may
        be written, as of the start; None: all. Raises NotEntitled.
        """
        steps = self._publish(name, read, now_us, expires_s, delta, permit, counted)
        return self._prepared(name, read, steps) if delta else steps

    def _prepared(self, name: str, read: list[CheckedMessages], steps: Task[int]) -> Task[int]:
        """The steps of a publish of deltas, none with too much to merge."""
        records = self._publishable(name).records
        read[:] = [part for some in read for part in merged_at_once(records, some)]
        fields = records.fields
        try:
            if len(read) == 1:
                yield from parsing(records, read[0])
            return (yield from steps)
        finally:
            fields.ahead.clear()

    def _publish(
        self,
        name: str,
        read: list[CheckedMessages],
        now_us: int,
        expires_s: float | None,
        delta: bool,
        permit: WritePolicy | None,
        counted: Counted | None,
    ) -> Task[int]:
        yield from self._make_ready(name, len(read) > 1)
        if self.left:
            yield from self.finish_left(None if len(read) > 1 else name)
        yield from self._finish_before(name)
        topic = self._publishable(name)
        expires_us, keeps = topic.expiry_us(expires_s, now_us), delta and expires_s is None
        if len(read) > 1:
            steps = self._carry_out(topic, read, now_us, expires_us, delta, permit, keeps, counted)
            return (yield from self._together(steps))
        bookmark = self.put_slice(topic, read[0], now_us, expires_us, delta, permit, keeps)
        if counted is not None:
            counted(len(read[0].bodies), bookmark)
        return bookmark

    def put_slice(
        self,
        topic: SourceTopic,
        messages: CheckedMessages,
        now_us: int,
        expires_us: int,
        delta: bool = False,
        permit: WritePolicy | None = None,
        keeps: bool = False,
    ) -> int:
        """Store a publish that is one slice, and return its bookmark; `expires_us` 0 is never.
        Records that are there keep their lifetime if it `keeps`."""
        if delta or topic.makes_records or permit is not None:
            messages = self._finished(topic, messages, now_us, delta, False)
            self._capacity.check_sizes(messages.bodies)
        if permit is not None:
            permit.check(topic.records, messages)
        if self._capacity.bounds(topic):
            run_to_completion(self._capacity.check(topic, [_deed(messages)]))
        return self._put(topic, messages, now_us, expires_us, keeps)

    def _carry_out(
        self,
        topic: SourceTopic,
        read: list[CheckedMessages],
        now_us: int,
        expires_us: int,
        delta: bool,
        permit: WritePolicy | None,
        keeps: bool,
        counted: Counted | None,
    ) -> Task[int]:
        deeds = yield from self._deeds(topic, read, delta, now_us, permit)
        room = self._capacity.reserve(topic, deeds)
        try:
            yield from self._capacity.check(topic, deeds, room)
            # Meanwhile the topic may have been replaced or removed.
            topic = self._publishable(topic.name)
            if topic.is_logged:
                self._disk.check_whole(sum(sum(deed.sizes or ()) for deed in deeds))
        except BaseException:
            room.release()
            raise

        def put(messages: CheckedMessages) -> int:
            if delta or topic.makes_records:
                # Changes of these records since the start are no reason to refuse the rest.
                messages = self._finished(topic, messages, now_us, delta, True)
            bookmark = self._put(topic, messages, now_us, expires_us, keeps)
            if counted is not None:
                counted(len(messages.bodies), bookmark)
            return bookmark

        publication = Publication(topic.name, read, put, room)
        read.clear()
        self._under_way[publication] = None
        try:
            yield from self.finish(publication)
        finally:
            self._leave(publication)
        # Stored messages are kept, and written when the disk takes them; not acknowledged.
        self._disk.check_failure()
        return publication.bookmark

    def _deeds(
        self,
        topic: SourceTopic,
        read: Sequence[CheckedMessages],
        delta: bool,
        now_us: int,
        permit: WritePolicy | None,
    ) -> Task[list[Deed]]:
        """The effects of a publish on the current records; raises TooLarge, and NotEntitled for
        what `permit` does not allow."""
        deeds: list[Deed] = []
        held: dict[str, bytes] = {}
        finishes, count = delta or topic.makes_records or permit is not None, 0
        for messages in read:
            if finishes:
                try:
                    messages = topic.finished(messages, delta, held, now_us=now_us)
                except BadMessage as error:
                    raise error.moved(count) from None
                self._capacity.check_sizes(messages.bodies)
                if permit is not None:
                    try:
                        permit.check(topic.records, messages, held)
                    except NotWritable as error:
                        raise error.moved(count) from None
                held.update(zip(messages.identities, messages.bodies, strict=True))
            deeds.append(_deed(messages))
            count += len(messages.bodies)
            if finishes or len(deeds) % MEASURED_AT_ONCE == 0:
                yield
        return deeds

    # Publishes under way.

    def _leave(self, publication: Publication) -> None:
        """The client of a publish has stopped waiting."""
        if not publication.is_over:
            self.left[publication] = None
            for listener in self._listeners:
                listener(publication)

    def finish(self, publication: Publication) -> Task[None]:
        """Store the rest of a publish, unless others do."""
        while not publication.is_over:
            yield from self._make_ready(publication.name, False)
            yield from self._finish_before(publication.name)
            if publication.is_over:
                break  # others have finished it meanwhile
            publication.step()
            if publication.is_over:
                del self._under_way[publication]
                self.left.pop(publication, None)
            else:
                yield

    def finish_left(self, name: str | None) -> Task[None]:
        """Finish publishes without a waiting client, of a topic or of all topics."""
        for publication in list(self.left):
            if name is None or publication.name == name:
                yield from self.finish(publication)
                yield

    def finish_all(self, name: str) -> Task[None]:
        """Finish all publishes under way to a topic."""
        for publication in list(self._under_way):
            if publication.name == name:
                yield from self.finish(publication)
                yield

    def names_under_way(self) -> set[str]:
        """The topics of publishes under way."""
        return {publication.name for publication in self._under_way}

    def check(self) -> None:
        """Assert the invariants of publishes."""
        assert self.left.keys() <= self._under_way.keys()
        assert not any(publication.is_over for publication in self._under_way)


def _deed(messages: CheckedMessages) -> Deed:
    return Deed(messages.identities, list(map(len, messages.bodies)))
