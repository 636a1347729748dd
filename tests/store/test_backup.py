"""A backup in frames, and on a disk: there as a whole or not at all, whatever comes.

What is restored of one: `tests/edge/test_backups.py`.
"""

import json

import pytest

from sow.errors import Damaged, StoreError
from sow.store.backup import (
    BLOCK_FRAME,
    CHECKPOINT_FRAME,
    END_FRAME,
    FAILED_FRAME,
    LOG_FRAME,
    MANIFEST_FRAME,
    BackupWriter,
    FrameReader,
    frame,
    reported_in,
)
from sow.store.layout import BASE, seal


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


GOOD = seal(BASE, b"", seq=0, count=0)[0]
SENT = {
    "format": 1, "version": "1", "bookmark": "0", "oldest": "0", "time_us": 0, "log": "l",
    "blocks": 1,
}  # fmt: skip
WHOLE = [
    (MANIFEST_FRAME, b"{}"),
    (LOG_FRAME, b""),
    (BLOCK_FRAME, GOOD),
    (END_FRAME, json.dumps(SENT).encode()),
]


def test_it_has_its_name_when_all_of_it_is_there(tmp_path):
    path = tmp_path / "b"
    with BackupWriter(path) as writer:
        for kind, content in WHOLE:
            assert not path.exists()
            writer.take(kind, content)
    assert sorted(one.name for one in path.iterdir()) == [
        "backup.json", "log.blocks", "manifest.json",
    ]  # fmt: skip
    assert [one.name for one in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize("count", range(len(WHOLE)))
def test_what_ends_before_its_end_is_removed(tmp_path, count):
    with BackupWriter(tmp_path / "b") as writer:
        for kind, content in WHOLE[:count]:
            writer.take(kind, content)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_one_has_left_gives_way(tmp_path):
    (tmp_path / "b.unfinished").mkdir()
    (tmp_path / "b.unfinished" / "log.blocks").write_bytes(b"half")
    with BackupWriter(tmp_path / "b") as writer:
        for one in WHOLE:
            writer.take(*one)
    assert [one.name for one in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize(
    "come",
    [
        [(BLOCK_FRAME, GOOD)],
        [(END_FRAME, b"{}")],
        [(LOG_FRAME, b"")],
        [(MANIFEST_FRAME, b""), (MANIFEST_FRAME, b"")],
        [(MANIFEST_FRAME, b""), (BLOCK_FRAME, GOOD)],
        [(MANIFEST_FRAME, b""), (LOG_FRAME, b""), (CHECKPOINT_FRAME, b"orders")],
        [(MANIFEST_FRAME, b""), (LOG_FRAME, b""), (BLOCK_FRAME, GOOD[:-1])],
        [(MANIFEST_FRAME, b""), (LOG_FRAME, b""), (BLOCK_FRAME, b"")],
        [(MANIFEST_FRAME, b""), (LOG_FRAME, b""), (END_FRAME, json.dumps(SENT).encode())],
        [*WHOLE, (BLOCK_FRAME, GOOD)],
        [(b"?", b"")],
    ],
)
def test_what_comes_where_it_does_not_belong_is_refused(tmp_path, come):
    *before, last = come
    with BackupWriter(tmp_path / "b") as writer:
        for one in before:
            writer.take(*one)
        with pytest.raises(Damaged):
            writer.take(*last)


@pytest.mark.parametrize(
    "contents", [{}, {**SENT, "format": 3}, {**SENT, "more": 1}, {"format": 1}]
)
def test_an_end_with_other_contents_is_refused(tmp_path, contents):
    with BackupWriter(tmp_path / "b") as writer:
        for one in WHOLE[:-1]:
            writer.take(*one)
        with pytest.raises(StoreError):
            writer.take(END_FRAME, json.dumps({"blocks": 1, **contents}).encode())
    assert list(tmp_path.iterdir()) == []


def test_why_the_server_gave_up_is_sent(tmp_path):
    contents = json.dumps({"reason": "damaged", "detail": "the journal is damaged"}).encode()
    with BackupWriter(tmp_path / "b") as writer, pytest.raises(StoreError, match="is damaged"):
        writer.take(FAILED_FRAME, contents)
    assert list(tmp_path.iterdir()) == []


def test_nothing_that_is_there_is_written_over(tmp_path):
    with pytest.raises(StoreError, match="is there already"):
        BackupWriter(tmp_path)


def test_files_are_named_by_us_and_not_by_what_comes(tmp_path):
    with BackupWriter(tmp_path / "b") as writer:
        for one in [WHOLE[0], (CHECKPOINT_FRAME, b"../../etc/x"), *WHOLE[1:]]:
            writer.take(*one)
    assert (tmp_path / "b" / "topic-1.blocks").exists()
