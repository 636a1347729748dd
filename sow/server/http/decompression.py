"""Decompresses request bodies in small steps.

A few kilobytes may expand to gigabytes, so nothing is decompressed before there is room for it:
each step produces at most `STEP_BYTES`, and the caller counts them before it continues.
"""

import zlib
from collections.abc import Iterator

from sow.errors import ClientError, clipped
from sow.server.http.negotiation import UnsupportedMediaType

STEP_BYTES = 256 * 1024
"""Decompressed in about a millisecond; smaller steps cost more than they save."""
GZIP_BITS, ZLIB_BITS, RAW_BITS = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
FEED_BYTES = 16 * 1024
"""Input per step: the rest behind a member of a gzip file is copied for each member, and one can
have 20 bytes."""
MEMBERS_MAX = 10_000
"""Members of one body: 64 MiB in blocks of 64 KiB, as some programs write, are 1,000. Each costs
some microseconds, whatever it contains."""
DEFLATED = 8
"""The method in the first byte of zlib's header; some clients send `deflate` without that
header."""


class Inflater:
    """One body in one content encoding: ``gzip`` or ``deflate``."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._stream: zlib._Decompress | None = None
        self._members = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decompress the next bytes of the body, in steps that may produce nothing; raises
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
                # A gzip file may have several members.
                data, self._stream = self._stream.unused_data, None
            yield made

    def _next(self, data: bytes) -> "zlib._Decompress":
        """The decompressor of the member that begins here."""
        self._members += 1
        if self._members > MEMBERS_MAX:
            raise self._broken(f"it has more than {MEMBERS_MAX} members; compress it as one")
        return zlib.decompressobj(self._bits(data))

    def _bits(self, data: bytes) -> int:
        if self._encoding == "gzip":
            return GZIP_BITS
        return ZLIB_BITS if data[0] & 0xF == DEFLATED else RAW_BITS

    def finish(self) -> Iterator[bytes]:
        """The body has ended; raises ClientError if it is incomplete."""
        if self._stream is None:
            return
        if rest := self._stream.flush(STEP_BYTES):
            yield rest
        if not self._stream.eof:
            raise self._broken("it ends too early")

    def _broken(self, why: str) -> ClientError:
        return ClientError(f"the body cannot be read: it is not {self._encoding}: {why}")


def inflater(encoding: str) -> Inflater | None:
    """The decompressor for a Content-Encoding; None if there is none. Raises
    UnsupportedMediaType."""
    name = encoding.strip().lower().removeprefix("x-")
    if name in ("", "identity"):
        return None
    if name in ("gzip", "deflate"):
        return Inflater(name)
    raise UnsupportedMediaType(
        f"content encoding {clipped(encoding)} is not understood; send gzip, deflate or none"
    )
