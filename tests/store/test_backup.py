"""Frames of a backup. What is restored of them: `tests/edge/test_backups.py`."""

import pytest

from sow.errors import Damaged
from sow.store.backup import BLOCK_FRAME, LOG_FRAME, FrameReader, frame, reported_in


def test_frames_are_cut_wherever_the_network_cut_them():
    text = frame(BLOCK_FRAME, b"abc") + frame(LOG_FRAME, b"") + frame(BLOCK_FRAME, b"x" * 300)
    for at in range(len(text)):
        found = []
        reader = FrameReader(lambda *one, found=found: found.append(one))
        reader.feed(text[:at])
        reader.feed(text[at:])
        assert found == [(BLOCK_FRAME, b"abc"), (LOG_FRAME, b""), (BLOCK_FRAME, b"x" * 300)]


@pytest.mark.parametrize("text", [bytes(4), b"\xff" * 8])
def test_an_invalid_frame_is_reported(text):
    reader = FrameReader(lambda *_one: None)
    with pytest.raises(Damaged, match="what came is no backup"):
        reader.feed(text)


@pytest.mark.parametrize("text", [b"", b"[1]", b"\xff", b"7"])
def test_a_frame_without_json_is_no_backup(text):
    with pytest.raises(Damaged, match="no backup"):
        reported_in(text)
