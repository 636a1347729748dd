"""Removed: records that are given up become files that can be published again."""

import orjson
import pytest

from sow.core.cooperative import run_to_completion
from sow.core.definitions import Configuration, Topic
from sow.engine.recovery import OrphanedRecords
from sow.errors import StoreError
from sow.messages import message_type
from sow.server.boot.quarantine import (
    FILE_NAME_MAX,
    make_durable,
    move_file,
    removed_at,
    write_out,
    written,
)
from sow.store.manifest import kept_of
from sow.topic.records import Records

NOW_US = 1_700_000_000_000_000


def orphaned(*bodies, name="t", kind="json", keys=("/id",), identities=None, is_kept=True):
    topic = Topic(name, kind, keys=keys)
    records = Records(topic, message_type(kind), keys, topic.domain)
    identities = identities or records.identities_of(bodies)
    seqs = range(1, 1 + len(bodies))
    records.put(identities, bodies, {}, seqs, [0] * len(bodies))
    kept = kept_of(topic, Configuration("test", (topic,))) if is_kept else None
    return OrphanedRecords(records, kept, "a reason")


def content(one):
    pieces, ending = run_to_completion(written(one, one.live(0)))
    return b"".join(pieces), ending


def test_bodies_that_tell_their_keys_are_written_line_by_line():
    assert content(orphaned(b'{"id":1}', b'{"id":2}')) == (b'{"id":1}\n{"id":2}\n', ".ndjson")


def test_bodies_of_another_type_are_text():
    assert content(orphaned(b"id=1;", kind="nvfix", keys=("/id",)))[1] == ".txt"


@pytest.mark.parametrize(
    ("one", "command"),
    [
        (orphaned(b'{"a":1}', keys=(), identities=["k"]), {"k": "k", "d": {"a": 1}}),
        (orphaned(b'{"id":\n1}'), {"d": {"id": 1}}),
        (orphaned(b"\xff", kind="binary", keys=(), identities=["k"]),
         {"k": "k", "d": "/w==", "enc": "base64"}),
    ],
)  # fmt: skip
def test_others_are_written_as_commands(one, command):
    lines, ending = content(one)
    assert ending == ".commands.ndjson"
    assert orjson.loads(lines.replace(b"\n1", b"1")) == {"c": "publish", "t": "t", **command}


def test_of_what_only_the_log_reports_the_bodies_are_written():
    one = orphaned(b"a", b"b", kind="binary", keys=(), identities=["1", "2"], is_kept=False)
    assert content(one) == (b"a\nb\n", ".txt")


def test_every_time_has_a_directory_of_its_own(tmp_path):
    first = removed_at(tmp_path, NOW_US)
    assert first == tmp_path / "removed" / "20231114T221320Z"
    make_durable(first)
    assert removed_at(tmp_path, NOW_US).name == "20231114T221320Z-2"


@pytest.mark.parametrize("name", ["../up", "/desk/1", "x" * 400, "ü" * 200])
def test_the_file_of_a_topic_lies_in_the_directory_whatever_the_topic_is_called(name, tmp_path):
    run_to_completion(write_out(orphaned(b'{"id":1}', name=name), tmp_path / "there", 0))
    (path,) = (tmp_path / "there").iterdir()
    assert path.read_bytes() == b'{"id":1}\n'
    assert len(path.name) <= FILE_NAME_MAX + 30


def test_long_names_that_begin_alike_have_files_of_their_own(tmp_path):
    for end in "ab":
        run_to_completion(write_out(orphaned(b'{"id":1}', name="x" * 300 + end), tmp_path, 0))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_is_moved_with_what_lies_beside_it_and_only_once(tmp_path):
    source, target = tmp_path / "t.sow", tmp_path / "removed" / "now" / "t.sow"
    source.write_bytes(b"data")
    source.with_name("t.sow-lock").touch()
    move_file(source, target)
    move_file(source, target)
    assert target.read_bytes() == b"data"
    assert [path.name for path in tmp_path.iterdir()] == ["removed"]


def test_what_cannot_be_moved_is_said(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "t.sow").touch()
    with pytest.raises(StoreError, match="cannot be"):
        move_file(tmp_path / "t.sow", tmp_path / "file" / "t.sow")
