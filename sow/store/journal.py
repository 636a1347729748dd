"""The journal on disk: one LMDB record per group commit, in sequence order.

One `append` makes one group durable. Its key is the sequence number of its first record, so groups
are only ever added at the end and removed at the front. Key 0 has the *base*: the last record that
retention has removed. Each block carries the checksum of the one before it.

Accounts are the records of system topics. They have no numbers and no history: the last state of
each is a block under a key between the base and the first group, replaced in the transaction of the
change that it records. Behind them are loads (`sow.store.staging`): a group may be a *link*, whose
records are in the parts of one, and is read as the groups that these parts are.

Only the writer thread appends and trims; any thread reads. `sow.store.repair` repairs.
"""

import os
import threading
from collections.abc import Callable, Container, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sow.errors import Damaged, StoreError, StoreFailing
from sow.store import HighWaterMark, make_directory, read_high_water_mark
from sow.store.environment import (
    MAP_BYTES,
    Environment,
    Statvfs,
    Transaction,
    footprint_bytes,
    repair_command,
    stored_in,
    structural_damage,
    sync_directory,
    used_bytes,
)
from sow.store.layout import (
    ACCOUNT,
    ACCOUNTS_KEY,
    BASE,
    BASE_KEY,
    LINK,
    LOG_KINDS,
    BlockHeader,
    account_blocks,
    decode_entries,
    decode_link,
    entry_heads,
    read_header,
    rows_by_topic,
    seal,
    seal_group,
    split,
    unseal,
)
from sow.store.log_indexes import TopicSpans, WindowFiles
from sow.store.protocols import EntryHead, Load, LogEntry, LogPiece, LogStretch
from sow.store.staging import LOADS_KEY, PreparedLoads

DATA_FILE = "data.mdb"
NEWEST_FILE = "newest"
WINDOWS_DIRECTORY = "windows"
LOG_UNFINISHED = "restoring"
"""Where a restore writes the log before it is put in its place; it is there from its beginning."""
GROUP_BYTES = 1024**2
"""A larger commit is written as several blocks, so that a reader that wants part of it need not
hold all."""
READ_BYTES = 1024**2
"""What a reader fetches in one go, since a transaction keeps pages from being used again."""
TRIM_GROUPS = 64
"""Groups that one `trim` removes, since appends wait for it."""


def key_of(seq: int) -> bytes:
    """The key of the group that begins with record `seq`; keys sort as numbers do."""
    return seq.to_bytes(8, "big")


class JournalEnd(NamedTuple):
    """A moment of a journal: its newest record, and the blocks of all accounts."""

    seq: int
    accounts: list[bytes]


class LmdbJournal:
    """The transaction log in `directory`, created if it does not exist.

    `at_least_seq` is the newest record any checkpoint contains: a journal that ends earlier is
    Damaged, and so is a missing one if it `must_exist`. A new one begins after record `after_seq`.
    `trim` uses `retention_bytes` and `retention_age_us` (None: any age); readers and checkpoints
    take precedence over both. `data_directory` only completes the commands that errors recommend,
    `log_id` is the log's name if it is known, and nothing was before it `begins_after`.
    `group_bytes` bounds a block, `map_bytes` is the initial map size, and `statvfs` returns how
    full the disk is. Raises Damaged, and StoreError where the files cannot be opened.
    """

    def __init__(
        self,
        directory: Path,
        *,
        retention_bytes: int = 4 * 1024**3,
        retention_age_us: int | None = None,
        at_least_seq: int = 0,
        must_exist: bool = False,
        after_seq: int = 0,
        data_directory: Path | None = None,
        log_id: str = "",
        begins_after: int = 0,
        group_bytes: int = GROUP_BYTES,
        map_bytes: int = MAP_BYTES,
        statvfs: Statvfs = os.statvfs,
    ) -> None:
        self.log_id = log_id
        self.begins_after = begins_after
        self._directory = directory
        self._data_directory = data_directory or directory.parent
        self._retention_bytes = retention_bytes
        self._retention_age_us = retention_age_us
        self._at_least_seq = at_least_seq
        self._must_exist = must_exist
        self._after_seq = after_seq
        self._group_bytes = group_bytes
        self._lock = threading.Lock()
        self._spans = TopicSpans()
        self._replays: dict[object, int] = {}  # the next record each open `read` wants
        self._check_files()
        self._env = Environment(directory, subdir=True, map_bytes=map_bytes, statvfs=statvfs)
        try:
            self._begin()
            self._loads = PreparedLoads(self._env, self._base_seq, self._damaged)
        except BaseException:
            self._env.close()
            raise
        self._newest = HighWaterMark(directory / NEWEST_FILE)
        self._newest.mark(self._last_seq)
        self._windows = WindowFiles(directory / WINDOWS_DIRECTORY, self._last_seq)
        sync_directory(directory)
        sync_directory(directory.parent)

    def _check_files(self) -> None:
        """Refuse files that would crash LMDB, and a missing journal."""
        data_file = self._directory / DATA_FILE
        self._expected_seq = max(
            self._at_least_seq, read_high_water_mark(self._directory / NEWEST_FILE)
        )
        self._base_seq = self._last_seq = self._chain = 0
        # An empty one was just being made: there was no room for it, or no time.
        if data_file.exists() and data_file.stat().st_size:
            if problem := structural_damage(data_file):
                raise self._damaged(f"its pages are not as they were written ({problem})")
        elif self._expected_seq or self._must_exist:
            self._check_restored()
            raise self._damaged(f"{data_file} is missing")
        make_directory(self._directory)

    def _check_restored(self) -> None:
        """Refuse what a restore that did not end has left, which has no log yet."""
        if (self._data_directory / LOG_UNFINISHED).exists():
            raise Damaged(
                f"a backup was being restored to {self._data_directory}, and that did not end; "
                "delete what is there, and run sow restore once more"
            )

    def _begin(self) -> None:
        with self._env.read() as txn:
            first: bytes | None = txn.get(BASE_KEY)
            cursor = txn.cursor()
            newest: bytes | None = cursor.value() if cursor.last() else None
            if newest is not None and cursor.key().startswith(BASE_KEY):
                newest = first  # there is no group
        if newest is None:
            self._base_seq = self._last_seq = self._after_seq
            self._env.write(partial(_put_base, seq=self._after_seq, chain=0))
        elif first is None:
            raise self._damaged("its first record is missing")
        else:
            self._base_seq = self._unseal(first, BASE).seq
            header = self._unseal(newest, *((BASE,) if newest == first else LOG_KINDS))
            self._last_seq = header.seq if newest == first else header.last_seq
            self._chain = header.chain if newest == first else header.checksum
        if self._last_seq < self._expected_seq:
            raise self._damaged(f"it ends at record {self._last_seq}")

    @property
    def loads(self) -> PreparedLoads:
        """Records that are not in the log yet."""
        return self._loads

    @property
    def windows(self) -> WindowFiles:
        """What was open after some of its records."""
        return self._windows

    @property
    def first_seq(self) -> int:
        """The oldest record still kept, or `last_seq + 1` when there is none."""
        return self._base_seq + 1

    @property
    def last_seq(self) -> int:
        """The newest durable record, 0 in a new journal."""
        return self._last_seq

    @property
    def size_bytes(self) -> int:
        """Bytes of the groups kept, in whole pages; free pages of the file are not counted."""
        return self._env.size_bytes

    def has_room(self, size_bytes: int = 0) -> bool:
        """Whether to take so many bytes more: False where free space would be below the reserve."""
        return self._env.has_room(size_bytes)

    def takes(self, size_bytes: int) -> bool:
        """Whether so many bytes more fit, if only into the reserve."""
        return self._env.takes(size_bytes)

    def lost(self) -> StoreFailing | None:
        """Why there is no room, where the file is not at its place any more."""
        return self._env.lost()

    @property
    def room_bytes(self) -> int:
        """Free space above the reserve."""
        return self._env.room_bytes

    def is_strained(self) -> bool:
        """Whether what is kept beyond retention is more than the disk has room left.

        Pages that trimming has freed are used again, so the disk does not get fuller then.
        """
        return self._env.size_bytes - self._retention_bytes > self._env.room_bytes

    def append(self, entries: Sequence[LogEntry]) -> None:
        """Make `entries` durable, all or none, in one transaction.

        They follow `last_seq` without a gap, except accounts. Raises DiskFull or StoreError, and
        then none is kept: the same entries may be appended again.

        Does not check `has_room`: that is checked before a message is accepted. Accepted messages
        may use the reserve.
        """
        blocks: list[tuple[bytes, bytes]] = []
        noted: list[tuple[int, int, int, Mapping[str, int]]] = []
        links: list[tuple[Load, int]] = []
        last_seq, chain = self._last_seq, self._chain
        accounts = [
            change for entry in entries if entry.account for change in account_blocks(entry)
        ]
        numbered = [entry for entry in entries if not entry.account]
        for group in split(numbered, self._group_bytes):
            block, last_seq, chain = seal_group(group, last_seq, chain)
            blocks.append((key_of(group[0].seq), block))
            size_bytes = len(block)
            if (load := group[0].load) is not None:
                accounts.append(self._loads.link(load, group[0].seq))
                links.append((load, group[0].seq))
                size_bytes += load.size_bytes
            rows: dict[str, int] = {}
            for entry in group:
                rows[entry.topic] = rows.get(entry.topic, 0) + len(entry)
            noted.append((group[0].seq, last_seq, size_bytes, rows))
        self._env.write(
            partial(_put_groups, after_seq=self._last_seq, blocks=blocks, accounts=accounts)
        )
        self._last_seq, self._chain = last_seq, chain
        for span in noted:
            self._spans.note(*span)
        for link in links:
            self._loads.note(*link)
        self._newest.mark(self._last_seq)

    def read(self, after_seq: int) -> Iterator[LogEntry]:
        """Entries in order from the one holding record `after_seq + 1`; see `pieces`."""
        for piece in self.pieces(after_seq):
            yield from piece.entries

    def pieces(
        self, after_seq: int, topics: Container[str] | None = None
    ) -> Generator[LogPiece, None, None]:
        """The log from the entry holding record `after_seq + 1`, a group or a span without one of
        `topics` in each piece; entries of other topics are not decoded. Raises Damaged.

        Ends when it has caught up. While it is open, nothing it has yet to read is trimmed.
        Raises StoreError when retention has removed record `after_seq + 1` already.
        """
        with self._keeping(after_seq) as keep:
            seq = after_seq
            while seq < self._last_seq:
                for piece in self._pieces(seq, after_seq, topics):
                    yield piece
                    seq = piece.last_seq
                    keep(seq)

    def _pieces(
        self, seq: int, after_seq: int, topics: Container[str] | None
    ) -> Iterator[LogPiece]:
        """The pieces of the span that follows record `seq`; of the whole log without `topics`."""
        end = None
        if topics is not None:
            known = self._spans.look(seq + 1, topics)
            end = min(known.last, self._last_seq)
            if known.rows is not None and not known.rows:
                yield LogPiece(end, ())
                return
        for header, block in self._groups(seq, end):
            if topics is not None:
                self._learn(header, block)
            yield LogPiece(header.last_seq, decode_entries(block, after_seq, topics))

    def stretches(self, after_seq: int, topics: Container[str]) -> Iterator[LogStretch]:
        """The log from the group holding record `after_seq + 1`, without decoding an entry, and
        without reading what is counted. Raises as `pieces` does."""
        with self._keeping(after_seq) as keep:
            seq = after_seq
            while seq < self._last_seq:
                known = self._spans.look(seq + 1, topics)
                end = min(known.last, self._last_seq)
                if known.rows is not None and (known.first == seq + 1 or not known.rows):
                    heads = partial(self._heads, seq, end, topics)
                    yield LogStretch(seq + 1, end, known.rows, heads)
                    seq = end
                else:
                    for header, block in self._groups(seq, end):
                        self._learn(header, block)
                        heads = partial(entry_heads, block, topics)
                        yield LogStretch(header.seq, header.last_seq, None, heads)
                        seq = header.last_seq
                keep(seq)

    def _heads(self, seq: int, end: int, topics: Container[str]) -> Iterator[EntryHead]:
        for _, block in self._groups(seq, end):
            yield from entry_heads(block, topics)

    def _learn(self, header: BlockHeader, block: bytes) -> None:
        """Note what a verified group holds, if that is not known."""
        if not self._spans.knows(header.seq):
            self._spans.note(header.seq, header.last_seq, len(block), rows_by_topic(block))

    @contextmanager
    def _keeping(self, after_seq: int) -> Iterator[Callable[[int], None]]:
        """While it is open, what follows record `after_seq` is not trimmed, or what follows the
        record that the yielded function was last called with. Raises StoreError if it is trimmed
        already."""
        replay = object()
        with self._lock:
            if after_seq < self._base_seq:
                raise StoreError(
                    f"{self._directory}: record {after_seq + 1} is no longer kept; the oldest is "
                    f"{self.first_seq}"
                )
            self._replays[replay] = after_seq + 1

        def keep(reached: int) -> None:
            self._replays[replay] = reached + 1

        try:
            yield keep
        finally:
            with self._lock:
                del self._replays[replay]

    def accounts(self) -> list[LogEntry] | None:
        """The last state of each account, by number and time; None where none was ever kept.

        Raises Damaged.
        """
        blocks = self.moment().accounts
        return accounts_in(blocks) if blocks else None

    @contextmanager
    def held(self) -> Iterator[int]:
        """While it is open nothing is trimmed; yields the last record that is already removed."""
        holder = object()
        with self._lock:
            base_seq = self._base_seq
            self._replays[holder] = base_seq + 1
        try:
            yield base_seq
        finally:
            with self._lock:
                del self._replays[holder]

    def moment(self) -> JournalEnd:
        """The newest durable record, and all accounts as of it; raises Damaged."""
        accounts: list[bytes] = []
        with self._env.read() as txn:
            cursor = txn.cursor()
            found = cursor.set_range(ACCOUNTS_KEY)
            while found and cursor.key().startswith(BASE_KEY) and cursor.key() < LOADS_KEY:
                accounts.append(cursor.value())
                found = cursor.next()
            is_there = cursor.last() and cursor.key() >= key_of(1)
            newest: bytes = cursor.value() if is_there else b""
        seq = self._unseal(newest, *LOG_KINDS).last_seq if newest else self._base_seq
        for block in accounts:
            self._unseal(block, ACCOUNT)
        return JournalEnd(seq, accounts)

    def blocks(self, after_seq: int, until_seq: int) -> Generator[bytes, None, None]:
        """The groups behind record `after_seq`, where one begins, up to record `until_seq`, where
        one ends, as they are stored. Raises Damaged. What is read is to be `held`."""
        for _, block in self._groups(after_seq, until_seq):
            yield block

    def _groups(
        self, after_seq: int, until_seq: int | None = None
    ) -> Iterator[tuple[BlockHeader, bytes]]:
        """Verified groups from the one holding `after_seq + 1` to the newest, or to that which ends
        with record `until_seq`."""
        seq, before = after_seq, None
        while seq < (until := self._last_seq if until_seq is None else until_seq):
            for key, block in self._fetch(seq + 1, until):
                header = self._unseal(block, *LOG_KINDS, after=seq)
                expected = header.seq if before is None else seq + 1
                if key != key_of(expected) or not header.seq <= seq + 1 <= header.last_seq:
                    raise self._damaged("the group that follows is missing", after=seq)
                if before is not None and header.chain != before.checksum:
                    raise self._damaged("the group that follows belongs elsewhere", after=seq)
                if header.kind == LINK:
                    yield from self._loads.groups(header, block, seq, until)
                else:
                    yield header, block
                seq, before = header.last_seq, header

    def _fetch(self, seq: int, until_seq: int) -> list[tuple[bytes, bytes]]:
        """The group with record `seq` and some of the following that begin up to record
        `until_seq`, about READ_BYTES in all."""
        found: list[tuple[bytes, bytes]] = []
        room = READ_BYTES
        with self._env.read() as txn:
            cursor = txn.cursor()
            if not cursor.set_range(key_of(seq)) or cursor.key() != key_of(seq):
                cursor.prev() if cursor.key() else cursor.last()
            for key, block in cursor:
                if room <= 0 or key > key_of(until_seq):
                    break
                found.append((key, block))
                room -= len(block)
        if not found:
            raise self._damaged("the group that follows is missing", after=seq - 1)
        return found

    def trim(self, now_us: int, keep_from_seq: int, beyond: bool = False) -> bool:
        """Remove at most TRIM_GROUPS of the oldest groups beyond retention, or, if `beyond`, of
        any.

        A group is removed when the journal is over `retention_bytes` or all of it is older than
        `retention_age_us` at `now_us`. Record `keep_from_seq` and later ones stay, and so do groups
        that an open `read` has yet to read. True when there may be more to remove: call again. For
        the writer thread.
        """
        if self._loads.has_gone:
            self._loads.sweep()
            return True
        cut_seq, groups = self._cut(now_us, self._wanted_from(keep_from_seq), beyond)
        with self._lock:
            # A reader may have opened meanwhile; it takes precedence.
            if not groups or cut_seq >= self._wanted_from(keep_from_seq):
                return False
            self._base_seq = cut_seq
        self._env.write(partial(_drop_groups, up_to_seq=cut_seq))
        self._spans.drop(cut_seq)
        self._windows.forget(cut_seq)
        self._loads.pass_over(cut_seq)
        return groups == TRIM_GROUPS or self._loads.has_gone

    def _wanted_from(self, keep_from_seq: int) -> int:
        return min([keep_from_seq, *self._replays.copy().values()])

    def _cut(self, now_us: int, keep_from_seq: int, beyond: bool) -> tuple[int, int]:
        """The last record that can go now, and in how many groups."""
        cut_seq = groups = 0
        with self._env.read(views=True) as txn:
            excess_bytes = used_bytes(txn) - self._retention_bytes
            cursor = txn.cursor()
            if cursor.set_range(key_of(1)):
                for block in cursor.iternext(keys=False):
                    header = read_header(block)
                    unwanted = beyond or excess_bytes > 0 or self._too_old(header, now_us)
                    if groups == TRIM_GROUPS or not unwanted or header.last_seq >= keep_from_seq:
                        break
                    cut_seq, groups = header.last_seq, groups + 1
                    excess_bytes -= footprint_bytes(len(block))
                    if header.kind == LINK:
                        excess_bytes -= decode_link(block)[0].size_bytes
        return cut_seq, groups

    def _too_old(self, header: BlockHeader, now_us: int) -> bool:
        age_us = self._retention_age_us
        return age_us is not None and now_us - header.ts_us > age_us

    def _unseal(self, block: bytes, *kinds: int, after: int | None = None) -> BlockHeader:
        try:
            return unseal(block, *kinds)
        except ValueError as error:
            raise self._damaged(str(error), after=after) from error

    def _damaged(self, what: str, *, after: int | None = None) -> Damaged:
        good = f"whole up to record {after}" if after is not None else "not safe to read"
        known = max(self._expected_seq, self._last_seq)
        newest = f"; records up to {known} were acknowledged" if known else ""
        return Damaged(
            f"the journal {self._directory} is {good}: {what}{newest}. To keep what is whole and "
            f"set the rest aside, stop the server and run: "
            + repair_command(self._data_directory, self._directory, self._at_least_seq)
        )

    def close(self) -> None:
        """Release the files. Nothing is pending: every append was durable when it returned."""
        self._env.close()
        self._newest.close()


def accounts_in(blocks: Iterable[bytes]) -> list[LogEntry]:
    """The entries in verified blocks of accounts, by number and time."""
    # Those that came before the first change bear the number 0.
    kept = [replace(e, account=True) for block in blocks for e in decode_entries(block, -1)]
    return sorted(kept, key=lambda entry: (entry.seq, entry.ts_us))


def is_journal(data_file: Path) -> bool:
    """Whether a file is the journal of some data directory, and not a checkpoint."""
    return stored_in(data_file, BASE_KEY) is not None


def _put_base(txn: Transaction, seq: int, chain: int) -> None:
    block, _ = seal(BASE, b"", seq=seq, count=0, chain=chain)
    txn.put(BASE_KEY, block)


def _put_groups(
    txn: Transaction,
    after_seq: int,
    blocks: Sequence[tuple[bytes, bytes]],
    accounts: Sequence[tuple[bytes, bytes | None]],
) -> None:
    cursor = txn.cursor()
    # A commit that was reported as failed may be there all the same; it was not acknowledged.
    while cursor.last() and bytes(cursor.key())[: len(BASE_KEY)] > key_of(after_seq):
        cursor.delete()
    for key, block in blocks:
        txn.put(key, block, append=True)
    for key, account in accounts:
        txn.delete(key) if account is None else txn.put(key, account)


def _drop_groups(txn: Transaction, up_to_seq: int) -> None:
    cursor = txn.cursor()
    chain = 0
    found = cursor.set_range(key_of(1))
    while found and bytes(cursor.key()) <= key_of(up_to_seq):
        chain = read_header(cursor.value()).checksum
        found = cursor.delete() and bool(cursor.key())
    _put_base(txn, seq=up_to_seq, chain=chain)
