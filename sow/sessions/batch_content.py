"""A fingerprint of the rows of a staged batch: the number of rows and a sum of digests.

The same rows have the same content, in whatever parts, chunks and order they come, and one row
more, less or other is another content. So it can be known much later whether a batch that comes
under an old number is the old batch.
"""

from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple

from sow.sessions.staged_rows import StagedRows

DIGEST_BYTES = 16
"""Of 128 bits no two batches have the same sum by chance."""
TOTALS = 1 << 8 * DIGEST_BYTES
"""So many sums there are."""


class BatchContent(NamedTuple):
    """So many rows, and the sum of their digests; None where the rows themselves are gone."""

    rows: int = 0
    total: int | None = 0

    def plus(self, other: "BatchContent") -> "BatchContent":
        """That of both batches together."""
        known = self.total is not None and other.total is not None
        total = (self.total or 0) + (other.total or 0)
        return BatchContent(self.rows + other.rows, total % TOTALS if known else None)

    def may_be(self, text: str) -> bool:
        """Whether it is the content that `text` was made of, as far as is known."""
        return str(self) == text if self.total is not None else text.startswith(f"{self.rows}-")

    def __str__(self) -> str:
        return f"{self.rows}-{self.total:0{2 * DIGEST_BYTES}x}"


def content_of(rows: StagedRows) -> BatchContent:
    """What some rows hold: what each does, to which key, and its body."""
    return BatchContent(len(rows), sum(_digests(rows)) % TOTALS)


def _digests(rows: StagedRows) -> Iterator[int]:
    for operation, key, body in zip(rows.operations, rows.keys, rows.bodies, strict=True):
        text, named = body or b"", b""
        if key is not None:
            text, named = b"%d:%b%b" % (len(key), key.encode("utf-8", "replace"), text), b"key"
        # What the digest is made with says what stands in the text.
        does = operation.encode("utf-8", "replace")[:DIGEST_BYTES]
        digest = blake2b(text, digest_size=DIGEST_BYTES, salt=named, person=does).digest()
        yield int.from_bytes(digest, "big")
