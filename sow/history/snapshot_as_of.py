"""The state of a topic at a bookmark that has passed, worked out from the log.

A record that has not changed since is as it is now; one that has, is what the log last said of it
before. Where retention has already removed that, the answer would be a guess, and is refused.
"""

from collections.abc import Mapping

from sow.errors import ClientError, TooLarge
from sow.history.snapshot import Snapshot
from sow.keys import sow_key
from sow.store.protocols import Journal, LogEntry


def as_of(
    now: Snapshot,
    newest: int,
    bookmark: int,
    journal: Journal,
    born: Mapping[str, int],
    bytes_max: int = 2**63,
) -> Snapshot:
    """What `now`, all records of a topic at `newest`, was at `bookmark`.

    `now` must have been taken with keys and be durable; `born` says when each of its records was
    first published. Touches nothing that changes, so that it may run in a thread.
    Raises ClientError when the log does not reach back far enough, and TooLarge when more than
    `bytes_max` bytes of bodies would have to be taken from it.
    """
    records = now.topic
    later = _changed(now, bookmark, newest, journal)
    states: dict[str, tuple[bytes, int, int] | None] = {}
    size_bytes = 0
    if later:
        for entry in journal.read(journal.first_seq - 1):
            if entry.seq > bookmark:
                break
            if records.has_logged(entry):
                for at, identity in enumerate(_identities_in(now, entry)):
                    if identity in later and entry.seq + at <= bookmark:
                        before = states.get(identity)
                        size_bytes -= len(before[0]) if before is not None else 0
                        if entry.op != "publish":
                            states[identity] = None
                            continue
                        states[identity] = entry.bodies[at], entry.seq + at, entry.ts_us
                        size_bytes += len(entry.bodies[at])
                        _check_size(size_bytes, bytes_max)
    if journal.first_seq > 1:
        _check_known(now, bookmark, later, states, born)
    then = now.without(later)
    for identity, state in sorted(
        ((identity, state) for identity, state in states.items() if state is not None),
        key=lambda item: item[1][1],
    ):
        then.identities.append(identity)
        then.sow_keys.append(_key(now, identity))
        then.bodies.append(state[0])
        then.seqs.append(state[1])
        then.ts_us.append(state[2])
    return then


def _check_size(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise TooLarge(
            f"records that have changed since have more than {bytes_max} bytes (a quarter of "
            "Limits/SnapshotMemory); choose a later bookmark"
        )


def _changed(now: Snapshot, bookmark: int, newest: int, journal: Journal) -> dict[str, bool]:
    """Records that changed after a bookmark, and whether only by being published."""
    changed: dict[str, bool] = {}
    for entry in journal.read(bookmark):
        if entry.seq > newest:
            break
        if now.topic.has_logged(entry):
            for at, identity in enumerate(_identities_in(now, entry)):
                if bookmark < entry.seq + at <= newest:
                    changed[identity] = changed.get(identity, True) and entry.op == "publish"
    return changed


def _check_known(
    now: Snapshot,
    bookmark: int,
    later: dict[str, bool],
    states: dict[str, tuple[bytes, int, int] | None],
    born: Mapping[str, int],
) -> None:
    """Every changed record must be known, or known not to have been there yet."""
    for identity, only_published in later.items():
        is_new = only_published and born.get(identity, 0) > bookmark
        if identity not in states and not is_new:
            raise ClientError(
                f"record {_key(now, identity)} has changed since bookmark {bookmark}, and "
                "the log no longer says what it was; choose a later bookmark, or keep more of the "
                "log (TransactionLog/RetentionSize)",
                reason="invalid bookmark",
            )


def _identities_in(now: Snapshot, entry: LogEntry) -> list[str]:
    if entry.identities is not None:
        return list(entry.identities)
    return now.topic.identities_of(entry.bodies)


def _key(now: Snapshot, identity: str) -> str:
    return str(sow_key(now.topic.domain, identity)) if now.topic.keys else identity
