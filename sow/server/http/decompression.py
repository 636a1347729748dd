"""Bodies that come compressed, inflated in small steps.

A few kilobytes may stand for gigabytes, so nothing is inflated before there is room for it: each
step makes at most `STEP_BYTES`, and whoever asks counts them before asking for more.
"""

import zlib
from collections.abc import Iterator

from sow.errors import ClientError, clipped
from sow.server.http.negotiation import UnsupportedMediaType

STEP_BYTES = 256 * 1024
"""Inflated in about a millisecond; smaller steps cost more than they save."""
GZIP_BITS, ZLIB_BITS, RAW_BITS = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
FEED_BYTES = 16 * 1024
"""Taken from what has come at a time: what stands behind a member of a gzip file is copied for each
member, of which 20 bytes can be one."""
MEMBERS_MAX = 10_000
"""Of one body: 64 MiB in the blocks of 64 KiB that some write are 1,000. Each costs some
microseconds, whatever is in it."""
DEFLATED = 8
"""The method in the first byte of zlib's header; some send `deflate` without that header."""


class Inflater:
    """One body in one content encoding: ``gzip`` or ``deflate``."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._stream: zlib._Decompress | None = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What comes of the next bytes of the body, in steps, some of which make nothing; raises
        ClientError."""
        for start in range(0, len(data), FEED_BYTES):
            yield from self._feed(data[start : start + FEED_BYTES])

    def _feed(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream is None:
                self._stream = self._next(data)
            try:
                made = self._stream.decompress(data, STEP_BYTES)
            except zlib.error as error:
                raise self._broken(str(error)) from None
            data = self._stream.unconsumed_tail
            if self._stream.eof:
                # A gzip file may have several members, one after the other.
                data, self._stream = self._stream.unused_data, None
            yield made

    def _next(self, data: bytes) -> "zlib._Decompress":
        """What reads the stream that begins here."""
        self._members += 1
        if self._members > MEMBERS_MAX:
            raise self._broken(f"it has more than {MEMBERS_MAX} members; compress it as one")
        return zlib.decompressobj(self._bits(data))

    def _bits(self, data: bytes) -> int:
        if self._encoding == "gzip":
            return GZIP_BITS
        return ZLIB_BITS if data[0] & 0xF == DEFLATED else RAW_BITS

    def finish(self) -> Iterator[bytes]:
        """The body has ended; raises ClientError where it should have gone on."""
        if self._stream is None:
            return
        if rest := self._stream.flush(STEP_BYTES):
            yield rest
        if not self._stream.eof:
            raise self._broken("it ends too early")

    def _broken(self, why: str) -> ClientError:
        return ClientError(f"the body cannot be read: it is not {self._encoding}: {why}")


def inflater(encoding: str) -> Inflater | None:
    """What reads a body of this Content-Encoding; None if it needs nothing. Raises
    UnsupportedMediaType."""
    name = encoding.strip().lower().removeprefix("x-")
    if name in ("", "identity"):
        return None
    if name in ("gzip", "deflate"):
        return Inflater(name)
    raise UnsupportedMediaType(
        f"content encoding {clipped(encoding)} is not understood; send gzip, deflate or none"
    )
