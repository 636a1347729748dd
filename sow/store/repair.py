"""Saves what is whole of a damaged journal or checkpoint: ``python -m sow.store.repair``.

Whole blocks that belong together are copied to a new file. Blocks carry their own length, checksum
and position, so a scan for their first bytes finds them without LMDB, whose own pages may be
damaged. It also finds those in free pages: positions and chains decide which of them belong
together.

The damaged file, a checkpoint or the directory of a journal, is set aside, never deleted. The new
one is made beside it under a temporary name, and renamed when it is complete: after an interruption
between these steps the next run starts again, or finishes what was complete.

What a repair could not save is written into the manifest, as what does not count for a topic any
more; otherwise the next start would go on missing it. A repair may be interrupted at any point and
run again.
"""

import argparse
import mmap
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from sow.errors import Damaged, SowError, StoreError
from sow.store import HighWaterMark, close_to_others, make_directory, read_high_water_mark
from sow.store.checkpoint import (
    CONTENTS_KEY,
    contents_fingerprint,
    contents_sizes,
    seal_contents,
    seal_slice,
    slice_key,
)
from sow.store.directory import DataDirectory
from sow.store.environment import Environment, sync_directory
from sow.store.journal import DATA_FILE, NEWEST_FILE, LmdbJournal, key_of
from sow.store.layout import (
    ACCOUNT,
    ACCOUNTS_KEY,
    BASE,
    BASE_KEY,
    BLOCK_MAGIC,
    CONTENTS,
    GROUP,
    LINK,
    LOAD_PART,
    LOG_KINDS,
    SLICE,
    BlockHeader,
    account_key,
    decode_entries,
    decode_link,
    decode_slice,
    read_header,
    seal,
    unseal,
)
from sow.store.manifest import COPY_FILE, MANIFEST_FILE, ManifestFile, StoredDefinition, file_name
from sow.store.protocols import Load
from sow.store.staging import load_key, part_key

Found = tuple[BlockHeader, int]
"""A whole block: its header, and its offset in the file."""


# Whole blocks in the raw bytes of a file, whatever state the file is in.


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


# A file put in the place of another, which is set aside.


def begin(path: Path) -> Path:
    """Where the new file is to be made; nothing is there that an interrupted work has left."""
    fresh = path.with_name(path.name + ".repairing")
    for name in (DATA_FILE, NEWEST_FILE):
        (fresh / name).unlink(missing_ok=True) if fresh.is_dir() else None
    _clear_lock(fresh)
    if fresh.is_dir():
        fresh.rmdir()
    fresh.unlink(missing_ok=True)
    return fresh


def put_in_place(path: Path, fresh: Path) -> Path | None:
    """Put `fresh`, which is complete, in the place of `path`; returns where the old one is now, if
    there was one."""
    _clear_lock(fresh)
    fresh.rename(_complete(path))
    sync_directory(path.parent)
    return finish(path)


def is_unfinished(path: Path) -> bool:
    """Whether a new file is complete that `put_in_place` has not put in the place of `path`."""
    return _complete(path).exists()


def finish(path: Path) -> Path | None:
    """Put what is complete in the place of `path`; returns where the old one is now, if there was
    one."""
    aside = set_aside(path) if path.exists() else None
    _complete(path).rename(path)
    sync_directory(path.parent)
    return aside


def set_aside(path: Path) -> Path:
    """Give a file a free name beside its own, closed to others; returns it."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    close_to_others(path)
    path.rename(aside)
    sync_directory(path.parent)
    return aside


def _complete(path: Path) -> Path:
    return path.with_name(path.name + ".repaired")


def _clear_lock(fresh: Path) -> None:
    """Remove what LMDB leaves beside a file that is closed."""
    (fresh / "lock.mdb").unlink(missing_ok=True) if fresh.is_dir() else None
    fresh.with_name(fresh.name + "-lock").unlink(missing_ok=True)


COPY_BLOCKS = 16
"""Groups that one commit of a repair copies: some 16 MiB of the usual largest."""


# Repairs.


@dataclass(frozen=True, slots=True)
class Report:
    """What a repair kept, what it could not, and where the damaged file is now."""

    kept: str
    lost: str
    set_aside: Path | None

    def __str__(self) -> str:
        aside = f"The damaged one is now {self.set_aside}." if self.set_aside else ""
        return f"Kept {self.kept}. Lost: {self.lost}. {aside}".rstrip()


def repair_journal(directory: Path, after_seq: int = 0) -> Report:
    """Keep the unbroken run of groups around record `after_seq + 1`, set the journal aside.

    `after_seq` is the newest record any checkpoint contains; what came before is kept as far as
    it connects. If record `after_seq + 1` itself is lost, the new journal continues from there.
    """
    if finished := _finish(directory):
        return finished
    data_file = directory / DATA_FILE
    groups: list[Found] = []
    base_seq = 0
    for header, offset in scan(data_file):
        if header.kind in LOG_KINDS:
            groups.append((header, offset))
        elif header.kind == BASE:
            base_seq = max(base_seq, header.seq)
    groups = [found for found in groups if found[0].last_seq > base_seq]
    loads = _whole_loads(data_file, groups)
    whole = [found for found in groups if found[0].kind != LINK or found in loads]
    run = unbroken_run(whole, max(after_seq, base_seq))
    base = run[0][0].seq - 1 if run else max(after_seq, base_seq)
    last_seq = run[-1][0].last_seq if run else base
    fresh = begin(directory)
    _write_journal(fresh, base, data_file, run, _accounts(data_file, last_seq))
    _write_loads(fresh, data_file, {link: loads[link] for link in run if link in loads})
    newest_seq = max(
        [read_high_water_mark(directory / NEWEST_FILE), *(h.last_seq for h, _ in groups)]
    )
    aside = put_in_place(directory, fresh)
    return Report(
        kept=f"records {base + 1} to {last_seq}" if run else f"no record, going on from {base}",
        lost=_spans([(base_seq + 1, base), (last_seq + 1, newest_seq)]),
        set_aside=aside,
    )


Loads = dict[Found, tuple[Load, list[Found]]]
"""By link, its load and all parts of that."""


def _whole_loads(data_file: Path, groups: list[Found]) -> Loads:
    """What the links among some groups stand for; without those whose parts are not all whole."""
    links = [found for found in groups if found[0].kind == LINK]
    if not links:
        return {}
    ends = {found[0].checksum: found for found in scan(data_file) if found[0].kind == LOAD_PART}
    loads: Loads = {}
    for place, (_, link) in zip(links, read_blocks(data_file, links), strict=True):
        load, parts = decode_link(link)[0], list[Found]()
        found = ends.get(load.checksum)
        while found is not None and len(parts) < load.parts:
            parts.append(found)
            found = ends.get(found[0].chain)
        if len(parts) == load.parts and parts[-1][0].seq == 1:
            loads[place] = load, parts[::-1]
    return loads


def _write_loads(directory: Path, data_file: Path, loads: Loads) -> None:
    if not loads:
        return
    env = Environment(directory, subdir=True)
    for (link, _), (load, parts) in loads.items():
        for start in range(0, len(parts), COPY_BLOCKS):
            blocks = read_blocks(data_file, parts[start : start + COPY_BLOCKS])
            env.put([(part_key(load.name, start + at), b) for at, (_, b) in enumerate(blocks)])
        env.put([(load_key(load.name), link.seq.to_bytes(8, "big"))])
    env.close()


def _accounts(data_file: Path, last_seq: int) -> dict[bytes, bytes]:
    """The newest whole block of each account that is not ahead of what is kept, by key.

    Pages that are free may hold accounts that were removed: they come back.
    """
    found = [found for found in scan(data_file) if found[0].kind == ACCOUNT]
    found = sorted(
        (found for found in found if found[0].seq <= last_seq),
        key=lambda found: (found[0].seq, found[0].ts_us),
    )
    kept: dict[bytes, bytes] = {}
    for header, block in read_blocks(data_file, found):
        if not header.count:
            kept[ACCOUNTS_KEY] = block
        for entry in decode_entries(block):
            kept |= {account_key(entry.topic, name): block for name in entry.identities or ()}
    return kept


def _write_journal(
    directory: Path,
    base_seq: int,
    data_file: Path,
    run: Sequence[Found],
    accounts: Mapping[bytes, bytes],
) -> None:
    make_directory(directory)
    env = Environment(directory, subdir=True)
    base, _ = seal(BASE, b"", seq=base_seq, count=0, chain=run[0][0].chain if run else 0)
    env.put([(BASE_KEY, base), *accounts.items()])
    for start in range(0, len(run), COPY_BLOCKS):
        blocks = list(read_blocks(data_file, run[start : start + COPY_BLOCKS]))
        env.put([(key_of(header.seq), block) for header, block in blocks])
    env.close()
    newest = HighWaterMark(directory / NEWEST_FILE)
    newest.mark(run[-1][0].last_seq if run else base_seq)
    newest.close()
    sync_directory(directory)


def repair_checkpoint(path: Path) -> Report:
    """Keep the whole slices of the newest checkpoint in `path`, set the file aside."""
    if finished := _finish(path):
        return finished
    if not path.exists():
        return Report("nothing: the file is missing", "what it held", None)
    found = list(scan(path))
    tables = [f for f in found if f[0].kind == CONTENTS]
    if not tables:
        return Report(
            kept="nothing: the table of contents is damaged",
            lost="the whole checkpoint",
            set_aside=set_aside(path),
        )
    table, contents = next(read_blocks(path, [max(tables, key=lambda f: f[0].count)]))
    place = (table.count, table.chain)
    slices = {h.count: (h, at) for h, at in found if h.kind == SLICE and (h.seq, h.chain) == place}
    fresh = begin(path)
    kept = _write_checkpoint(fresh, path, contents, [slices[n] for n in sorted(slices)])
    slice_count, record_count = contents_sizes(contents)
    aside = put_in_place(path, fresh)
    lost = f"{record_count - kept} records in {slice_count - len(slices)} slices"
    return Report(
        f"{kept} records as of record {table.seq}",
        lost if record_count > kept else "nothing",
        aside,
    )


def _write_checkpoint(fresh: Path, path: Path, contents: bytes, slices: Sequence[Found]) -> int:
    """Write the kept slices as a complete checkpoint; returns how many records they hold."""
    env = Environment(fresh, subdir=False)
    table = read_header(contents)
    records = 0
    for number, (_, block) in enumerate(read_blocks(path, slices)):
        part = decode_slice(block)
        records += len(part.identities)
        copied = seal_slice(part, table.count, number, table.chain)
        env.put([(slice_key(table.count, number), copied)])
    fingerprint = contents_fingerprint(contents)
    block = seal_contents(fingerprint, table.seq, table.count, len(slices), records, table.chain)
    env.put([(CONTENTS_KEY, block)])
    env.close()
    return records


def _finish(path: Path) -> Report | None:
    """Put in place what a repair had completed when it was interrupted."""
    if not is_unfinished(path):
        return None
    aside = finish(path)
    return Report("what a repair had found that was interrupted", "what it could not find", aside)


def repair_manifest(directory: Path) -> Report:
    """Write both copies again from the one that is whole; if none is, set them aside.

    Without a manifest the next start works out from the files what there is.
    """
    try:
        found = ManifestFile(directory)
    except Damaged:
        asides = [set_aside(directory / name) for name in _manifests(directory)]
        return Report(
            "nothing: no copy is whole. The next start makes a new one of the files that it finds",
            "for which topics the files were written",
            asides[0],
        )
    if found.manifest is not None and found.missing:
        found.write(found.manifest)
    return Report("the manifest", "nothing", None)


def _manifests(directory: Path) -> list[str]:
    return [name for name in (MANIFEST_FILE, COPY_FILE) if (directory / name).exists()]


def accept_gaps(directory: DataDirectory, only: Path | None = None) -> str:
    """Write down what neither a checkpoint nor the journal holds any more; returns what it was.

    Of all topics, or of the one whose file is `only`.
    """
    file = ManifestFile(directory.path)
    manifest = file.manifest
    if manifest is None:
        return ""
    journal = LmdbJournal(directory.resolve(manifest.journal), data_directory=directory.path)
    base = journal.first_seq - 1
    journal.close()
    kept, lost = [], []
    for one in manifest.kept:
        path = directory.resolve(file_name(one.topic))
        reached = max(one.since_seq, _checkpoint_seq(path))
        if reached < base and only in (None, path.resolve()):
            lost.append(f"what came for {one.name} between records {reached} and {base + 1}")
            one = StoredDefinition(one.topic, one.options, base)
        kept.append(one)
    if lost:
        file.write(replace(manifest, kept=tuple(kept)))
    return " and ".join(lost)


def _checkpoint_seq(path: Path) -> int:
    """The last record in the newest checkpoint of a file."""
    return max((header.seq for header, _ in scan(path) if header.kind == CONTENTS), default=0)


def _spans(spans: Iterable[tuple[int, int]]) -> str:
    texts = [f"records {first} to {last}" for first, last in spans if first <= last]
    return " and ".join(texts) or "nothing"


def _repair(directory: DataDirectory, path: Path, after_seq: int) -> Report:
    """Repair a file of a directory that is held."""
    if path.resolve() in [directory.path.resolve() / name for name in (MANIFEST_FILE, COPY_FILE)]:
        return repair_manifest(directory.path)
    if _is_journal(directory, path):
        report, only = repair_journal(path, after_seq), None
    else:
        report, only = repair_checkpoint(path), path.resolve()
    lost = [text for text in (report.lost, accept_gaps(directory, only)) if text]
    return replace(report, lost="; ".join(lost[lost[0] == "nothing" and len(lost) > 1 :]))


def _looks_like_a_journal(path: Path) -> bool:
    """Whether a directory holds nothing that a journal does not, however much of one is missing."""
    names = {one.name for one in path.iterdir()}
    if not names <= {DATA_FILE, NEWEST_FILE, "lock.mdb"}:
        return False
    return DATA_FILE not in names or NEWEST_FILE in names or holds(path / DATA_FILE, GROUP, BASE)


def _is_journal(directory: DataDirectory, path: Path) -> bool:
    """Whether a path is the journal, or a checkpoint; raises StoreError if it is neither.

    Decided by the manifest; where there is none yet, by the blocks in the files. Any other file
    would be set aside as if nothing in it were whole.
    """
    manifest = ManifestFile(directory.path).manifest
    if manifest is not None:
        if path.resolve() == directory.resolve(manifest.journal).resolve():
            return True
        names = map(file_name, (one.topic for one in manifest.kept))
        if path.resolve() in [directory.resolve(name).resolve() for name in names]:
            return False
    elif path.is_dir() and _looks_like_a_journal(path):
        return True
    elif path.is_file() and holds(path, SLICE, CONTENTS):
        return False
    if not path.exists():
        raise StoreError(f"there is no file {path}, and the manifest names none")
    raise StoreError(
        f"{path} is no checkpoint of {directory.path}, nor its journal (a directory) or manifest; "
        "nothing was touched"
    )


def _named(directory: Path, path: Path) -> Path:
    """The file that is meant: one that is not there may be named as it is in the directory."""
    inside = directory / path
    return inside if inside.exists() and not path.exists() else path


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; 0 when repaired, 1 when it could not be."""
    parser = argparse.ArgumentParser(prog="python -m sow.store.repair", description=__doc__)
    parser.add_argument("data_directory", type=Path)
    parser.add_argument("path", type=Path, help="the journal's directory or a topic's file")
    parser.add_argument("--after", type=int, default=0, metavar="SEQ", help="what checkpoints hold")
    options = parser.parse_args(arguments)
    try:
        held = DataDirectory(options.data_directory)
    except StoreError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    try:
        report = _repair(held, _named(held.path, options.path), options.after)
    except (SowError, OSError) as error:
        sys.stderr.write(f"{options.path} could not be repaired: {error}\n")
        return 1
    finally:
        held.close()
    sys.stdout.write(f"{report}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
