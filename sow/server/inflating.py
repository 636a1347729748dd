"""Bodies that come compressed, inflated in small steps.

A few kilobytes may stand for gigabytes, so nothing is inflated before there is room for it: each
step makes at most `STEP_BYTES`, and whoever asks counts them before asking for more.
"""

import zlib
from collections.abc import Iterator

from sow.errors import ClientError, clipped
from sow.server.negotiation import UnsupportedMediaType

STEP_BYTES = 256 * 1024
"""Inflated in about a millisecond; smaller steps cost more than they save."""
GZIP_BITS, ZLIB_BITS, RAW_BITS = 16 + zlib.MAX_WBITS, zlib.MAX_WBITS, -zlib.MAX_WBITS
DEFLATED = 8
"""The method in the first byte of zlib's header; some send `deflate` without that header."""


class Inflater:
    """One body in one content encoding: ``gzip`` or ``deflate``."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._stream: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What comes of the next bytes of the body, in steps; raises ClientError."""
        while data:
            if self._stream is None:
                self._stream = zlib.decompressobj(self._bits(data))
            try:
                made = self._stream.decompress(data, STEP_BYTES)
            except zlib.error as error:
                raise self._broken(str(error)) from None
            data = self._stream.unconsumed_tail
            if self._stream.eof:
                # A gzip file may have several members, one after the other.
                data, self._stream = self._stream.unused_data, None
            if made:
                yield made

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
