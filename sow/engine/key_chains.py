"""Chained keys: messages that point at each other are of one record.

    {"id": 1}              a chain begins: the record is called 1
    {"id": 2, "of": 1}     points at a member: it is of the record 1, and a member now
    {"id": 3, "of": 2}     the same

The first message of a chain names the record. So a key follows from more than its message, and the
log has it, as a key that a publisher gives. Members are records of the server's own (`CHAINS`),
written in the step of the publish and removed in that of the record's removal.

Keys are made when messages are read, which may be some steps before they are stored, so that a
request may hold a whole chain: what they make members of counts from then on. Of what was refused
afterwards some of the newest are remembered, which do no harm: a name stands for the same record.
"""

from collections.abc import Sequence

import orjson

from sow.core.cooperative import no_steps
from sow.core.definitions import CHAINS, KeyChainSettings
from sow.core.keys import identities
from sow.core.paths import parse_path
from sow.engine.engine import Engine
from sow.engine.running_topics import SourceTopic
from sow.errors import ClientError, TooLarge
from sow.messages.json import json_text
from sow.topic.batch import Batch

COMMITTED_MEMBERS_MAX = 3_000
"""Rows of one batch commit: they become members in one step, ten microseconds each."""
COMING_MAX = 100_000
"""Members of messages that were read and not stored: more than one request has in a frame of
ordinary messages."""


class KeyChain:
    """The chains of one topic: fed by it, as a queue is, and the maker of its keys."""

    def __init__(self, engine: Engine, topic: SourceTopic, settings: KeyChainSettings) -> None:
        self._engine = engine
        self.topic = topic
        self._paths = parse_path(settings.primary), parse_path(settings.secondary)
        self.roots: dict[str, str] = {}
        """By the name of each stored message: the key of its record."""
        self.members: dict[str, list[str]] = {}
        """The same by records."""
        self._coming: dict[str, str] = {}

    def begin(self, roots: dict[str, str]) -> None:
        """Go on with what was stored."""
        self.roots, self.members = {}, {}
        for member, root in roots.items():
            self._add(member, root)

    def _add(self, member: str, root: str) -> None:
        self.roots[member] = root
        self.members.setdefault(root, []).append(member)

    def _read(self, bodies: Sequence[bytes]) -> tuple[list[str], list[str | None]]:
        """The names of messages, and those that they point at; raises BadMessage where one has no
        name."""
        paths = self._paths
        own, others = self.topic.records.decoder(paths).columns(list(bodies))
        given = [at for at, value in enumerate(others) if value is not None and value != ""]
        pointed: list[str | None] = [None] * len(bodies)
        names = identities((paths[1],), [[others[at] for at in given]])
        for at, name in zip(given, names, strict=True):
            pointed[at] = name
        return identities((paths[0],), [own]), pointed

    def keys(self, bodies: Sequence[bytes], given: Sequence[str] | None) -> list[str]:
        """The keys of messages that are about to be published; raises BadMessage for one without a
        name, and ClientError where a key is given."""
        if given is not None:
            raise ClientError(
                f"topic {self.topic.name} makes its keys from chains; leave out k",
                reason="bad sow key",
            )
        found: list[str] = []
        for name, pointed in zip(*self._read(bodies), strict=True):
            root = self._root(name) or (pointed and self._root(pointed)) or name
            if name not in self.roots:
                self._coming.pop(name, None)
                self._coming[name] = root
            found.append(root)
        while len(self._coming) > COMING_MAX:
            del self._coming[next(iter(self._coming))]
        return found

    def _root(self, name: str) -> str | None:
        return self.roots.get(name) or self._coming.get(name)

    def check_room(self, rows: int) -> None:
        """Raise TooLarge where a batch has more rows than one step takes."""
        if rows > COMMITTED_MEMBERS_MAX:
            raise TooLarge(
                f"the batch has {rows} rows of chains, and {COMMITTED_MEMBERS_MAX} are the most of "
                "one: write it in several batches"
            )

    def take(
        self, keys: Sequence[str], bodies: Sequence[bytes], _seqs: Sequence[int], now_us: int
    ) -> None:
        """Messages have been published: they are members from now on, for good."""
        new: list[bytes] = []
        for name, root in zip(self._read(bodies)[0], keys, strict=True):
            self._coming.pop(name, None)
            if name not in self.roots:
                self._add(name, root)
                held = {"topic": self.topic.name, "member": name, "root": root}
                new.append(json_text(held))
        if new:
            topic = self._engine.catalog.account(CHAINS)
            self._engine.put(topic, topic.records.read(new), now_us)

    def watch(self, batch: Batch) -> None:
        """Records that leave take their chains along."""
        if batch.changes.news is not None:
            return
        gone = [
            member for root in batch.changes.identities for member in self.members.pop(root, ())
        ]
        for member in gone:
            del self.roots[member]
        if gone:
            topic = self._engine.catalog.account(CHAINS)
            held = [orjson.dumps({"topic": self.topic.name, "member": member}) for member in gone]
            names = topic.records.identities_of(held)
            self._engine.remove(topic, names, "delete", self._engine.now_us)


class KeyChains:
    """The chains of one engine, by topic; none while it follows: its log has the keys."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.by_name: dict[str, KeyChain] = {}
        engine.on_lead(no_steps, self._lead)

    def _lead(self) -> None:
        engine = self._engine
        for topic in [*engine.catalog]:
            if isinstance(topic, SourceTopic) and (settings := topic.definition.chain) is not None:
                chain = self.by_name[topic.name] = KeyChain(engine, topic, settings)
                topic.be_chained(chain)
                topic.feed(chain)
                engine.watch(topic.name, chain.watch)
        self.begin()

    def begin(self) -> None:
        """Go on with what the engine has restored."""
        if self.by_name:
            found: dict[str, dict[str, str]] = {}
            table = self._engine.catalog.account(CHAINS).records.table
            for slot in table.slots.values():
                held = orjson.loads(table.bodies[slot] or b"")
                found.setdefault(held["topic"], {})[held["member"]] = held["root"]
            for name, chain in self.by_name.items():
                chain.begin(found.get(name, {}))

    def check(self) -> None:
        """Assert what is always true of chains, between two steps."""
        for chain in self.by_name.values():
            assert chain.members.keys() <= chain.topic.records.table.slots.keys(), "of no record"
            assert {*chain.roots} == {one for those in chain.members.values() for one in those}
