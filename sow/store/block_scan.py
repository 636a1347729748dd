"""Whole blocks in the raw bytes of a file, whatever state the file is in.

Blocks carry their own length, checksum and position, so a scan for their first bytes finds them
without LMDB, whose own pages may be damaged. It also finds those in free pages: positions and
chains decide which of them belong together.
"""

import mmap
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from sow.store.layout import BLOCK_MAGIC, BlockHeader, read_header, unseal

Found = tuple[BlockHeader, int]
"""A whole block: its header, and its offset in the file."""


def scan(data_file: Path) -> Iterator[Found]:
    """Every whole block in the file, in file order, stale ones in free pages included."""
    if not data_file.exists() or not data_file.stat().st_size:
        return
    with data_file.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as raw:
        at = raw.find(BLOCK_MAGIC)
        while at >= 0:
            header = _whole_block(raw, at)
            if header is not None:
                yield header, at
            at = raw.find(BLOCK_MAGIC, at + (header.length if header else 1))


def _whole_block(raw: mmap.mmap, at: int) -> BlockHeader | None:
    try:
        header = read_header(raw[at : at + 64])
        return unseal(raw[at : at + header.length], header.kind)
    except ValueError:
        return None


def holds(data_file: Path, *kinds: int) -> bool:
    """Whether there is a whole block of one of these kinds in a file."""
    return any(header.kind in kinds for header, _ in scan(data_file))


def read_blocks(data_file: Path, found: Sequence[Found]) -> Iterator[tuple[BlockHeader, bytes]]:
    """The bytes of blocks that were found, in their order."""
    if not found:
        return  # nor may there be a file
    with data_file.open("rb") as file:
        for header, offset in found:
            file.seek(offset)
            yield header, file.read(header.length)


def unbroken_run(groups: Sequence[Found], after_seq: int) -> list[Found]:
    """The longest chain of groups that holds or touches `after_seq + 1`, in order."""
    following: dict[tuple[int, int], list[Found]] = defaultdict(list)
    preceding: dict[tuple[int, int], Found] = {}
    for found in groups:
        header = found[0]
        following[header.seq, header.chain].append(found)
        preceding[header.last_seq + 1, header.checksum] = found

    def after(header: BlockHeader) -> list[Found]:
        return following[header.last_seq + 1, header.checksum]

    def touching(found: Found) -> tuple[bool, bool]:
        """Prefer the group that holds the record, then one that is followed by another."""
        return found[0].last_seq > after_seq, bool(after(found[0]))

    starts = [f for f in groups if f[0].seq <= after_seq + 1 <= f[0].last_seq + 1]
    if not starts:
        return []
    run = [max(starts, key=touching)]
    while candidates := after(run[-1][0]):
        run.append(max(candidates, key=touching))
    history = []
    first = run[0][0]
    while before := preceding.get((first.seq, first.chain)):
        history.append(before)
        first = before[0]
    return history[::-1] + run
