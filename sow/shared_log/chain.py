"""Which entries of a shared log are valid: one rule, and every node comes to the same result.

    an entry is valid if and only if its `prev` is the hash of the last valid entry, and its `term`
    is the current one; a `lead` opens the next term, and so has a term that is higher by one

Everything else is void and passed over: what an old primary had on its way behind a foreign lead,
the second copy of a doubled append, an attempt that comes late, a lead of a node that had not read
everything, bytes that are no entry. So no condition of the engine is needed, and no clock.

A group of records that is too large for one entry is several; it counts once the last one is there.
A lead drops what was not complete. Time is that of the log and never goes back. A reload changes
under which configuration is led, and the one before is not led under again: that is an old file.
"""

from typing import NamedTuple

from sow.errors import StoreError
from sow.shared_log.entry import (
    ENTRY_FORMAT,
    GENESIS,
    EntryKind,
    Lead,
    LogEnvelope,
    decode,
    decode_lead,
    decode_reload,
)

KNOWN_KINDS = frozenset(EntryKind)
WITHOUT_CONTENT = (EntryKind.BEAT, EntryKind.RESIGN)
REPLACED_MAX = 100
"""Configurations that are remembered as replaced: nobody has a file of so many reloads ago."""


class ChainState(NamedTuple):
    """What follows from the log up to a position, and all that a reader needs to go on there; kept
    beside a checkpoint."""

    position: int = 0
    hash: bytes = GENESIS
    """Of the last valid entry."""
    term: int = 0
    """0: nobody has led yet."""
    time_us: int = 0
    lead: Lead | None = None
    replaced: tuple[str, ...] = ()
    """Fingerprints of the configurations that reloads have replaced, since all nodes have started
    under another one."""


class LogGroup(NamedTuple):
    """What was appended as one, complete."""

    kind: int
    content: bytes
    time_us: int
    term: int
    end: ChainState
    """The state behind it, where a reader may begin again that has it."""


class ReadEntry(NamedTuple):
    """What became of a block that was read."""

    hash: bytes | None
    """None: it was no entry at all."""
    is_valid: bool
    lead: Lead | None = None
    """Who leads from here on."""
    group: LogGroup | None = None
    """What is complete now."""
    kind: int = 0


class LogChain:
    """Reads the blocks of a log in order, from a state on."""

    def __init__(self, state: ChainState | None = None) -> None:
        self.state = state or ChainState()
        self.settled = self.state
        """The newest state behind a valid entry with no half of a group before it: where a reader
        may begin again, since the block at its position has its hash."""
        self.void_count = 0
        """Blocks that were passed over."""
        self._parts: list[bytes] = []

    def take(
        self, position: int, block: bytes, known: tuple[LogEnvelope, bytes] | None = None
    ) -> ReadEntry | None:
        """Take the next block, which need not be decoded if it is `known`; None for one that was
        read before.

        Raises StoreError for a valid entry of a format or kind that this release does not know.
        """
        state = self.state
        if position <= state.position:
            return None
        found = known or decode(block)
        if found is None or not self._is_valid(found[0]):
            self.state = state._replace(position=position)
            self.void_count += 1
            return ReadEntry(found and found[1], is_valid=False)
        return self._advance(position, *found)

    def _is_valid(self, entry: LogEnvelope) -> bool:
        state = self.state
        if entry.kind == EntryKind.LEAD:
            opens = entry.term == state.term + 1 and decode_lead(entry.content) is not None
            return opens and entry.prev == state.hash
        return entry.prev == state.hash and entry.term == state.term > 0

    def _advance(self, position: int, entry: LogEnvelope, entry_hash: bytes) -> ReadEntry:
        lead = decode_lead(entry.content) if entry.kind == EntryKind.LEAD else None
        self._check_known(position, entry, lead)
        time_us = max(self.state.time_us, entry.time_us)
        before, leads = self.state.lead, lead or self.state.lead
        is_same = leads is None or before is None or leads.fingerprint == before.fingerprint
        replaced = self.state.replaced if is_same else ()
        self.state = ChainState(position, entry_hash, entry.term, time_us, leads, replaced)
        group = None
        if lead is not None:
            self._parts.clear()
        elif entry.kind not in WITHOUT_CONTENT:
            self._parts.append(entry.content)
            if not entry.goes_on:
                content = b"".join(self._parts)
                if entry.kind == EntryKind.RELOAD:
                    self._reload(content)
                group = LogGroup(entry.kind, content, time_us, entry.term, self.state)
                self._parts.clear()
        if not self._parts:
            self.settled = self.state
        return ReadEntry(entry_hash, True, lead, group, entry.kind)

    def _reload(self, content: bytes) -> None:
        """Another configuration holds."""
        reload = decode_reload(content)
        before = self.state.lead
        if reload is None or before is None:
            return
        lead = before._replace(fingerprint=reload.fingerprint, configuration=reload.configuration)
        all_before = [*self.state.replaced, before.fingerprint][-REPLACED_MAX:]
        replaced = tuple(one for one in all_before if one != reload.fingerprint)
        self.state = self.state._replace(lead=lead, replaced=replaced)

    def _check_known(self, position: int, entry: LogEnvelope, lead: Lead | None) -> None:
        newest = max(entry.format, lead.format if lead else 0)
        if newest <= ENTRY_FORMAT and entry.kind in KNOWN_KINDS:
            return
        lead = lead or self.state.lead
        what = f"format {newest}" if newest > ENTRY_FORMAT else f"kind {entry.kind}"
        raise StoreError(
            f"the shared log has an entry of {what} at position {position}, written by node "
            f"{lead.node if lead else '?'}; this release reads format {ENTRY_FORMAT}. Nothing is "
            "passed over: install the release of that node here, too"
        )
