"""What a data directory says of itself: written in one step, twice, and never half believed."""

import json
from dataclasses import replace

import pytest

from sow.core.definitions import (
    Configuration,
    ConflatedTopic,
    MessageTypeOptions,
    RecordField,
    Topic,
    View,
    stored,
)
from sow.errors import Damaged, StoreError
from sow.store import manifest as module
from sow.store.manifest import (
    COPY_FILE,
    FORMAT,
    MANIFEST_FILE,
    WITHOUT_SERIES,
    Era,
    Manifest,
    ManifestFile,
    StoredDefinition,
    can_read,
    file_name,
    fingerprint,
    kept_of,
    names_of,
    persistent_topics,
)
from sow.store.repair import main as repair
from tests.cases import all_cases

KEPT = Topic("orders", "json", keys=("/id",))


def configuration(*topics, types=()):
    return Configuration(name="test", topics=topics, message_types=types)


def changes(before, now, types=(), types_before=()):
    kept = kept_of(before, configuration(types=types_before))
    return kept.changes(now, configuration(types=types))


@pytest.mark.parametrize(
    ("change", "elements"),
    [
        ({}, []),
        ({"keys": ("/id", "/side")}, ["Key"]),
        ({"key_domain": "other"}, ["KeyDomain"]),
        ({"file_name": "elsewhere.sow"}, ["FileName"]),
        ({"message_type": "nvfix"}, ["MessageType"]),
        ({"pattern": "ord.*"}, ["Pattern"]),
        ({"durability": "transient"}, ["Durability"]),
        ({"keys": ("/x",), "key_domain": "d"}, ["Key", "KeyDomain"]),
        ({"expires": True}, []),
    ],
)
def test_an_element_that_records_depend_on_is_named(change, elements):
    assert changes(KEPT, replace(KEPT, **change)) == elements


def test_a_definition_that_is_gone_or_of_another_kind():
    copy = ConflatedTopic("orders", "json", underlying="x")
    assert changes(KEPT, None) == ["Name"]
    assert changes(KEPT, copy) == ["UnderlyingTopic"]


def test_rows_that_spark_made_of_a_view_are_given_up_by_another_engine():
    view = View("desks", "json", ("orders",), ("/desk",), ("/desk",))
    by_spark = stored(replace(view, engine="spark"))
    assert changes(by_spark, view) == ["Engine"]
    assert changes(by_spark, by_spark) == []
    assert changes(replace(KEPT, name="desks"), view) == ["UnderlyingTopic"]


def test_another_pattern_is_sent_by_the_names_that_it_takes():
    families = replace(KEPT, pattern="a.*")
    assert changes(families, replace(KEPT, pattern="b.*")) == []


def test_a_message_type_with_other_separators_is_another_one():
    one = MessageTypeOptions(name="json", module="nvfix", line=3)
    other = replace(one, field_separator=b"|")
    assert changes(KEPT, KEPT, (replace(one, line=9),), (one,)) == []
    assert changes(KEPT, KEPT, (other,), (one,)) == ["MessageType"]


def test_a_file_is_named_after_topic_and_type_unless_it_has_a_name():
    assert file_name(replace(KEPT, name="a/b c")) == "a%2Fb%20c.json.sow"
    assert file_name(replace(KEPT, file_name="mine.sow")) == "mine.sow"


def test_a_fingerprint_is_of_what_names_records():
    assert fingerprint(KEPT) == fingerprint(replace(KEPT, retain=False, expires=True))
    for change in ({"keys": ("/x",)}, {"message_type": "nvfix"}, {"key_domain": "d"}):
        assert fingerprint(KEPT) != fingerprint(replace(KEPT, **change))


def test_what_is_kept_reads_itself_without_the_configuration():
    options = MessageTypeOptions(name="json", module="nvfix", line=3)
    kept = kept_of(KEPT, configuration(types=(options,)), since_seq=7)
    assert kept == StoredDefinition(kept.topic, replace(options, line=0), 7)
    assert kept.kinds == {"json": kept.options}
    assert kept.name == "orders"
    assert kept.topic.file_name == "orders.json.sow"
    assert kept_of(KEPT, configuration()).kinds == {}


def test_only_persistent_topics_have_records_on_disk_but_transient_ones_take_names():
    transient = replace(KEPT, name="quick", durability="transient", pattern="q.*")
    copy = ConflatedTopic("copy", "json", underlying="orders")
    topics = (KEPT, transient, copy)
    assert persistent_topics(configuration(*topics)) == [KEPT]
    assert names_of(topics) == (("orders", None), ("quick", "q.*"))


ORDERS = Topic("orders", "json", keys=("/id",), expires=True)
CUSTOM = Topic("/fix/é", "pipes", keys=("/55", "/11"), key_domain="d", pattern="^/fix/")
CONFIGURATION = Configuration(
    "test", (ORDERS, CUSTOM), message_types=(MessageTypeOptions("pipes", "fix", b"|", line=7),)
)
WRITTEN = Manifest(
    "log",
    (kept_of(ORDERS, CONFIGURATION), kept_of(CUSTOM, CONFIGURATION, since_seq=12)),
    given_up={"/p/y": 40},
    moves={"a.sow": "removed/T/a.sow"},
    names=(("orders", None), ("/fix/é", "^/fix/")),
    eras=(Era(7, (("orders", None), ("first", "^/"))),),
    log_id="5f0c",
)


@pytest.fixture
def written(tmp_path):
    ManifestFile(tmp_path).write(WRITTEN)
    return tmp_path


def test_what_was_written_is_read_again(written):
    assert ManifestFile(written).manifest == replace(WRITTEN, generation=1)
    assert ManifestFile(written).missing == []


def test_an_empty_directory_has_none(tmp_path):
    assert ManifestFile(tmp_path).manifest is None


def test_it_knows_the_newest_record_it_speaks_of():
    assert (WRITTEN.newest_seq, Manifest().newest_seq) == (40, 0)


@pytest.mark.parametrize("name", [MANIFEST_FILE, COPY_FILE])
@pytest.mark.parametrize("how", ["missing", "damaged"])
def test_either_copy_will_do(written, name, how):
    if how == "missing":
        (written / name).unlink()
    else:
        (written / name).write_bytes((written / name).read_bytes().replace(b"orders", b"ordres"))
    found = ManifestFile(written)
    assert found.manifest == replace(WRITTEN, generation=1)
    assert [how in problem and name in problem for problem in found.missing] == [True]
    found.write(WRITTEN)
    assert ManifestFile(written).missing == []


def test_of_two_copies_the_newer_one_counts(written):
    older = (written / COPY_FILE).read_bytes()
    ManifestFile(written).write(replace(WRITTEN, given_up={}))
    (written / COPY_FILE).write_bytes(older)
    assert ManifestFile(written).manifest.given_up == {}


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"7", b"\xff", b'{"version": 1, "checksum"']
)
def test_two_damaged_copies_are_refused_with_what_to_run(written, content):
    for name in (MANIFEST_FILE, COPY_FILE):
        (written / name).write_bytes(content)
    with pytest.raises(Damaged, match=rf"sow\.store\.repair .*{MANIFEST_FILE}"):
        ManifestFile(written)


def test_every_byte_counts(written):
    whole = (written / MANIFEST_FILE).read_bytes()
    (written / COPY_FILE).unlink()
    for at in range(0, len(whole), 7):
        flipped = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        (written / MANIFEST_FILE).write_bytes(flipped)
        try:
            found = ManifestFile(written).manifest
        except StoreError:
            continue
        assert found == replace(WRITTEN, generation=1)  # a blank that became another


def write_later(written, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(module, "WITHOUT_SERIES", FORMAT + 1)
        ManifestFile(written).write(WRITTEN)


def test_a_directory_of_a_later_release_is_refused_by_name(written, monkeypatch):
    older = (written / COPY_FILE).read_bytes()
    write_later(written, monkeypatch)
    (written / COPY_FILE).write_bytes(older)
    later = f"later release .format {FORMAT + 1}"
    with pytest.raises(StoreError, match=later):
        ManifestFile(written)
    for name in (MANIFEST_FILE, COPY_FILE):
        content = json.loads((written / MANIFEST_FILE).read_bytes())
        (written / name).write_text(json.dumps({**content, "checksum": "sha256:7"}))
    with pytest.raises(StoreError, match=later):
        ManifestFile(written)


def test_a_copy_whose_format_is_damaged_does_not_keep_the_other_from_being_used(written):
    content = (written / MANIFEST_FILE).read_bytes()
    ours, later = (b'"version": %d' % version for version in (WITHOUT_SERIES, FORMAT + 7))
    assert ours in content
    (written / MANIFEST_FILE).write_bytes(content.replace(ours, later))
    assert ManifestFile(written).manifest == replace(WRITTEN, generation=1)


def test_the_manifest_of_an_earlier_release_is_read(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(module, "WITHOUT_SERIES", 1)
        ManifestFile(tmp_path).write(WRITTEN)
    assert ManifestFile(tmp_path).manifest == replace(WRITTEN, generation=1)


def test_the_manifest_of_a_later_release_is_not_repaired(written, monkeypatch, capsys):
    write_later(written, monkeypatch)
    assert repair([str(written), str(written / MANIFEST_FILE)]) == 1
    assert "later release" in capsys.readouterr().err
    assert (written / MANIFEST_FILE).exists()


def test_a_write_that_is_interrupted_leaves_what_was_there(written, monkeypatch):
    class Killed(BaseException):
        """What ends the process here."""

    def kill(_directory):
        raise Killed

    monkeypatch.setattr(module, "sync_directory", kill)
    with pytest.raises(Killed):
        ManifestFile(written).write(replace(WRITTEN, journal="other"))
    monkeypatch.undo()
    assert ManifestFile(written).manifest.journal in ("log", "other")
    assert ManifestFile(written).missing == []


@all_cases(
    ("now", "elements"),
    [
        (ORDERS, []),
        (replace(ORDERS, hash_indexes=(("/a",),), expires=False, line=4), []),
        (replace(ORDERS, retain=False), []),
        (replace(ORDERS, keys=("/ref",)), ["Key"]),
        (replace(ORDERS, key_domain="d"), ["KeyDomain"]),
        (replace(ORDERS, key_domain="orders"), []),
        (replace(ORDERS, message_type="nvfix"), ["MessageType"]),
        (replace(ORDERS, file_name="o.sow"), ["FileName"]),
        (replace(ORDERS, durability="transient"), ["Durability"]),
        (replace(ORDERS, pattern="^/o/"), ["Pattern"]),
        (ConflatedTopic("orders", "json", "x"), ["UnderlyingTopic"]),
        (None, ["Name"]),
    ],
)
def test_which_changes_leave_records_without_a_place(now, elements):
    assert kept_of(ORDERS, CONFIGURATION).changes(now, CONFIGURATION) == elements


def test_other_separators_are_another_message_type():
    other = replace(CONFIGURATION, message_types=(MessageTypeOptions("pipes", "fix", b"#"),))
    assert kept_of(CUSTOM, CONFIGURATION).changes(CUSTOM, other) == ["MessageType"]
    moved = replace(
        CONFIGURATION, message_types=(MessageTypeOptions("pipes", "fix", b"|", line=99),)
    )
    assert kept_of(CUSTOM, CONFIGURATION).changes(CUSTOM, moved) == []


ID, PX = RecordField("id", "int"), RecordField("px", "decimal")
TRADES = MessageTypeOptions("trades", "record", b"\x02", (ID, PX), line=4)
BOTH = MessageTypeOptions(
    "both", "composite-local", parts=(MessageTypeOptions("json", "json"), TRADES)
)


def test_a_field_more_at_the_end_reads_old_records():
    more = replace(TRADES, fields=(ID, PX, RecordField("qty")))
    assert can_read(more, TRADES)
    assert not can_read(TRADES, more)
    assert can_read(replace(BOTH, parts=(BOTH.parts[0], more)), BOTH)


@pytest.mark.parametrize(
    "other",
    [
        replace(TRADES, fields=(PX, ID)),
        replace(TRADES, fields=(ID, RecordField("price", "decimal"))),
        replace(TRADES, fields=(ID, RecordField("px", "string"))),
        replace(TRADES, field_separator=b"|"),
        replace(TRADES, module="fix"),
        BOTH,
        None,
    ],
)
def test_other_fields_do_not(other):
    assert not can_read(other, TRADES)


def test_parts_are_compared_one_by_one():
    plain, trades = BOTH.parts
    assert not can_read(replace(BOTH, parts=(trades, plain)), BOTH)
    assert not can_read(replace(BOTH, parts=(plain, trades, plain)), BOTH)
    assert can_read(replace(BOTH, parts=(plain, replace(trades, name="deals"))), BOTH)


def test_a_type_as_it_comes_reads_itself():
    assert can_read(None, None)
