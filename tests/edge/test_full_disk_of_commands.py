"""A disk that takes no more where a command writes: a sentence, exit code 1, and nothing half."""

import hashlib
import resource
import subprocess
import sys

import pytest

from tests.edge.serving import Running, configuration

TOPICS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
ROOM_BYTES = 256 * 1024


def incompressible(number):
    """A text that no packing makes much shorter."""
    return hashlib.shake_256(b"%d" % number).hexdigest(150)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    running = Running(configuration(TOPICS), tmp_path_factory.mktemp("data"))
    for start in range(0, 4_000, 1_000):
        numbers = range(start, start + 1_000)
        running.publish("orders", *({"id": n, "text": incompressible(n)} for n in numbers))
    yield running
    running.close()
    assert running.errors == []


def run(*words, room_bytes=ROOM_BYTES):
    """A command whose files may be no longer than that, which is refused as on a full disk."""

    def limit():
        if room_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (room_bytes, room_bytes))

    command = [sys.executable, "-m", "sow.cli", *map(str, words)]
    return subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=False)


def check_refused(result):
    assert (result.returncode, result.stdout) == (1, ""), result.stderr
    assert result.stderr.startswith("sow: ")
    assert result.stderr.count("\n") == 1, "a sentence"
    assert "too large" in result.stderr or "no room" in result.stderr


@pytest.mark.parametrize("name", ["a.ndjson", "a.csv", "a.parquet"])
def test_a_dump_that_finds_no_room_leaves_what_was_there(server, tmp_path, name):
    (tmp_path / name).write_text("of before")
    check_refused(run("dump", "orders", tmp_path / name, "--force", "--url", server.url))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["of before"]


def test_a_backup_that_finds_no_room_leaves_nothing(server, tmp_path):
    check_refused(run("backup", tmp_path / "kept", "--url", server.url))
    assert list(tmp_path.iterdir()) == []


def test_a_restore_that_finds_no_room_leaves_an_empty_directory(server, tmp_path):
    kept, made = tmp_path / "kept", tmp_path / "made"
    assert run("backup", kept, "--url", server.url, room_bytes=None).returncode == 0
    check_refused(run("restore", kept, made))
    assert list(made.iterdir()) == [], "it may be restored to again"
