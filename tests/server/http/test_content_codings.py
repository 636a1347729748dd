"""Which coding a client likes best, and that what is packed is the answer, whatever its pieces."""

import gzip

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.server.http.content_codings import CODED_BYTES, Encoder, coding_of
from sow.server.http.negotiation import NotAcceptable
from tests.server.stand_ins import request_of


def unpacked(coding, packed):
    if coding == "gzip":
        return gzip.decompress(packed)
    return pa.CompressedInputStream(pa.BufferReader(packed), coding).read()


def chosen(*lines):
    return coding_of(request_of(headers=[("Accept-Encoding", line) for line in lines]))


@pytest.mark.parametrize(
    ("lines", "coding"),
    [
        ([], "identity"),
        ([""], "identity"),
        (["gzip"], "gzip"),
        (["x-gzip"], "gzip"),
        (["GZip ; Q=0.5"], "gzip"),
        (["gzip, deflate, br, zstd"], "zstd"),
        (["gzip, zstd;q=0.9"], "gzip"),
        (["gzip;q=0.5", "zstd;q=0.8"], "zstd"),
        (["br", ", ,"], "identity"),
        (["identity"], "identity"),
        (["identity, gzip"], "gzip"),
        (["identity;q=0.9, gzip;q=0.5"], "identity"),
        (["gzip;q=0"], "identity"),
        (["gzip;q=0, identity;q=0, *"], "zstd"),
        (["zstd;q=0, identity;q=0, *;q=0.1"], "gzip"),
        (["*"], "identity"),
        (["*;q=0, gzip"], "gzip"),
        (["*;q=0, identity;q=0.1"], "identity"),
        (["gzip;q=0, gzip"], "identity"),
        # What cannot be read asks for nothing.
        (["gzip;q=2"], "identity"),
        (["gzip;q="], "identity"),
        (["gzip;q=nan, zstd"], "zstd"),
        (["gzip;level=9"], "identity"),
        (["g zip, \x00, \xff, ;;;, q=1"], "identity"),
    ],
)
def test_the_coding_that_is_liked_best(lines, coding):
    assert chosen(*lines) == coding


@pytest.mark.parametrize(
    "line", ["identity;q=0", "*;q=0", "br, *;q=0", "gzip;q=0, zstd;q=0, identity;q=0, *"]
)
def test_where_none_will_do_it_is_said(line):
    with pytest.raises(NotAcceptable, match="accept zstd, gzip, identity"):
        chosen(line)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=60))
def test_whatever_is_requested_is_chosen_or_refused(line):
    try:
        assert chosen(line) in ("zstd", "gzip", "identity")
    except NotAcceptable:
        assert "0" in line


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@given(st.lists(st.binary(max_size=50)))
def test_pieces_come_back_as_one(coding, pieces):
    packed = b"".join(Encoder(coding).pieces(pieces))
    assert unpacked(coding, packed) == b"".join(pieces)


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_long_piece_is_packed_a_part_at_a_time(coding):
    piece = bytes(range(256)) * (3 * CODED_BYTES // 256) + b"end"
    encoder = Encoder(coding)
    parts = [*encoder.parts(piece)]
    assert len(parts) == 4
    packed = b"".join([*parts, encoder.end()])
    assert unpacked(coding, packed) == piece
    assert len(packed) < len(piece) / 10


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_no_more_is_made_than_is_packed(coding):
    made = []

    def pieces():
        for at in range(1000):
            made.append(at)
            yield b"x" * CODED_BYTES

    packed = Encoder(coding).pieces(pieces())
    for _ in range(3):
        next(packed)
    assert len(made) == 3
