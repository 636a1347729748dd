"""A shared log in a file, for one process: the simplest one that keeps what is promised."""

import asyncio
import os
from struct import Struct

from sow.errors import LogTrimmed, TooLarge
from sow.shared_log import BLOCK_BYTES_MAX, StoredBlock

HEAD = Struct(">QI")
"""Position and size of what follows; a block of no position is a trim up to the position that it
has."""


class FileLog:
    """The log in the file `path`. All clients share one object."""

    def __init__(self, path):
        self._blocks, self.newest, self._trimmed = [], 0, 0
        self._file = path.open("ab+")
        self._more = asyncio.Condition()
        self._load()

    def _load(self):
        """What is there; half a block at the end was never answered."""
        self._file.seek(0)
        content, at = self._file.read(), 0
        while at + HEAD.size <= len(content):
            position, size = HEAD.unpack_from(content, at)
            block = content[at + HEAD.size : at + HEAD.size + size]
            if len(block) < size:
                break
            at += HEAD.size + size
            self._take(position, block)
        self._file.truncate(at)

    def _take(self, position, block):
        if position:
            self.newest = position
            self._blocks.append(StoredBlock(position, block))
        else:
            self._trimmed = int(block)
            self._blocks = [one for one in self._blocks if one.position > self._trimmed]

    def _write(self, position, block):
        self._file.write(HEAD.pack(position, len(block)) + block)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._take(position, block)

    async def append(self, block):
        if len(block) > BLOCK_BYTES_MAX:
            raise TooLarge(f"a block of {len(block)} bytes")
        position = self.newest + 1
        self._write(position, block)
        async with self._more:
            self._more.notify_all()
        return position

    async def last(self):
        return self.newest

    async def trim(self, before):
        self._write(0, b"%d" % max(self._trimmed, min(before - 1, self.newest)))

    async def read(self, after):
        while True:
            if after < self._trimmed:
                raise LogTrimmed(f"blocks up to {self._trimmed} are gone", self._trimmed)
            for one in [one for one in self._blocks if one.position > after]:
                after = one.position
                yield one
            async with self._more:
                while self.newest <= after:
                    await self._more.wait()

    def close(self):
        self._file.close()
