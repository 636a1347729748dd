"""Whatever an Arrow stream holds, the process goes on, and nothing but the stream is read."""

from tests.fuzz.running import knocked


def test_any_stream_is_read_or_refused():
    found = knocked("arrow", 4_000)
    assert 0 < found["let_in"] < found["inputs"]
