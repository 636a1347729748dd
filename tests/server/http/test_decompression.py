"""Bodies that come compressed are inflated in small steps, whatever they pretend to be."""

import gzip
import zlib

import pytest

from sow.errors import ClientError
from sow.server.http.decompression import FEED_BYTES, MEMBERS_MAX, STEP_BYTES, inflater

TEXT = b'{"id":1,"text":"' + b"abc" * 100_000 + b'"}'


def inflated(encoding, data, cut=1000):
    stream, made = inflater(encoding), []
    for at in range(0, len(data), cut):
        made += stream.feed(data[at : at + cut])
    made += stream.finish()
    assert all(len(piece) <= STEP_BYTES for piece in made)
    return b"".join(made)


def raw(data):
    made = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return made.compress(data) + made.flush()


@pytest.mark.parametrize("cut", [1, 1000, 10**9])
def test_every_encoding_gives_the_body(cut):
    assert inflated("gzip", gzip.compress(TEXT), cut) == TEXT
    assert inflated("X-GZIP", gzip.compress(TEXT) + gzip.compress(TEXT), cut) == TEXT * 2
    assert inflated("deflate", zlib.compress(TEXT), cut) == TEXT
    assert inflated("deflate", raw(TEXT), cut) == TEXT
    assert inflated("gzip", b"") == b""
    assert inflater("identity") is inflater("") is None


def test_a_bomb_is_made_in_steps_that_may_be_stopped():
    bomb = gzip.compress(b"a" * (64 << 20))
    steps = inflater("gzip").feed(bomb)
    assert sum(len(next(steps)) for _ in range(3)) == 3 * STEP_BYTES


def test_members_that_stand_for_nothing_are_steps_and_end(monkeypatch):
    made, begin = [], zlib.decompressobj

    class Counted:
        def __init__(self, bits):
            self.stream = begin(bits)

        def decompress(self, data, size_max):
            made.append(len(data))
            return self.stream.decompress(data, size_max)

        def __getattr__(self, name):
            return getattr(self.stream, name)

    monkeypatch.setattr(zlib, "decompressobj", Counted)
    steps = inflater("gzip").feed(gzip.compress(b"") * (MEMBERS_MAX + 1))
    for count in range(1, 101):
        assert next(steps) == b""
        assert len(made) == count, "each is a step"
    assert max(made) <= FEED_BYTES, "what stands behind it is not copied as a whole"
    with pytest.raises(ClientError, match="more than 10000 members; compress it as one"):
        list(steps)


@pytest.mark.parametrize("data", [b"junk", gzip.compress(TEXT)[:-9], gzip.compress(TEXT) + b"junk"])
def test_what_is_no_gzip_is_refused_with_a_sentence(data):
    with pytest.raises(ClientError, match="the body cannot be read: it is not gzip"):
        inflated("gzip", data)


def test_an_encoding_that_is_not_known_is_refused_by_name():
    with pytest.raises(ClientError, match="content encoding br is not understood") as refused:
        inflater("br")
    assert refused.value.status == 415
