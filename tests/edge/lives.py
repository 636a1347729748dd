"""Lives of a process on one directory, without sockets.

A `Life` opens the directory as a server does, publishes straight into the engine, and stores what
that gives; the fixture `live` begins one after the other.
"""

import json
from contextlib import contextmanager

import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, ConflatedTopic, JournalSettings, Topic
from sow.engine.engine import Engine
from sow.engine.recovery.redo import stored_slices
from sow.errors import StoreError
from sow.server.boot.bootstrap import ServerBootstrap
from sow.server.boot.quarantine import REMOVED
from sow.store.backup import BackupWriter, FrameReader, StoredBackup, frames
from sow.store.manifest import COPY_FILE, MANIFEST_FILE
from tests.history.reading import extent, log_rows

NOW_US = 1_700_000_000_000_000
SECOND = 1_000_000
ORDERS = Topic("orders", "json", keys=("/id",))
TRADES = Topic("trades", "json", keys=("/id",))
DESKS = Topic("desks", "json", keys=("/id",), pattern="^/desk/")
COPIES = ConflatedTopic("copies", "json", "desks", interval_us=SECOND, topic_format="%n-C")
LITTLE_LOG = JournalSettings(retention_bytes=10_000)


class Life:
    """One life of a process on a directory."""

    def __init__(self, opening):
        self.opening = opening
        self.engine, self.journal = opening.engine, opening.journal

    def publish(self, topic, *documents, now_us=NOW_US, **options):
        bodies = [d if isinstance(d, bytes) else json.dumps(d).encode() for d in documents]
        self.engine.publish(topic, bodies, now_us, **options)
        self.store()

    def delete(self, topic):
        slots = self.engine.topics[topic].records.table.live()
        run_to_completion(self.engine.removal(topic, slots, NOW_US))
        self.store()

    def store(self):
        group = self.engine.flush()
        self.journal.append(group.entries)
        self.engine.sequencer.release(group)

    def checkpoint(self, *names):
        for name in names or self.opening.checkpoints:
            slices = stored_slices(self.engine.catalog, name, 5)
            self.opening.checkpoints[name].write(self.engine.seq, slices)

    def trim(self):
        kept = min(checkpoint.seq for checkpoint in self.opening.checkpoints.values())
        while self.journal.trim(NOW_US, kept + 1):
            pass

    def fill(self, topic):
        """So much that the little log forgets what came before."""
        for number in range(20):
            self.publish(topic, *({"id": j, "n": number, "pad": "x" * 80} for j in range(20)))
            self.checkpoint(topic)

    def records(self, topic):
        table = self.engine.topics[topic].records.table
        return [json.loads(table.bodies[slot]) for slot in table.live().tolist()]

    def logged(self, topic):
        """What a reader of the whole log gets of a topic."""
        topics = {topic: self.engine.topics[topic].records}
        part = extent(self.journal, self.journal.first_seq - 1, None, 10**6, topics)
        rows = list(log_rows(self.journal, part, topics))
        assert sum(len(row.keys) for row in rows) == part.rows
        return [json.loads(body) for row in rows for body in row.bodies]


def lives_on(path):
    """What makes lives on one directory; `path` is it."""

    @contextmanager
    def life(*topics, allow_loss=False, now_us=NOW_US, **more):
        configuration = Configuration("test", topics, **more)
        opening = ServerBootstrap(
            configuration,
            path,
            lambda: Engine(configuration),
            now_us,
            allow_loss=allow_loss,
        )
        try:
            run_to_completion(opening.open(lambda entries: entries))
            yield Life(opening)
        finally:
            opening.close()

    life.path = path
    return life


def refused(live, *topics, match, **more):
    """The start is refused with a sentence, and as often as it is tried."""
    for _ in range(2):
        with pytest.raises(StoreError, match=match) as refusal, live(*topics, **more):
            pass
    assert len(refusal.value.detail) < 2000
    return refusal.value.detail


def removed(live):
    """What is under removed/, by its path without the time."""
    files = [path for path in (live.path / REMOVED).rglob("*") if path.is_file()]
    return {str(path.relative_to(live.path / REMOVED)).split("/", 1)[1]: path for path in files}


def with_desks(live, *names):
    with live(ORDERS, DESKS) as life:
        life.publish("orders", {"id": 1})
        for name in names:
            life.publish(name, {"id": 1}, {"id": 2})


def without_manifest(live):
    for name in (MANIFEST_FILE, COPY_FILE):
        (live.path / name).unlink()


def backed_up(life, path):
    """A backup of a life, as it is when it is asked for."""
    with BackupWriter(path) as writer:
        reader = FrameReader(writer.take)
        for one in frames(life.opening, NOW_US, "1"):
            reader.feed(one)
    return StoredBackup(path)
