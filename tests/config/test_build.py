"""From sections to dataclasses: values, lists, places, and paths that begin at the file."""

import pytest

from sow.config import build
from sow.config.binder import read_root
from sow.config.diagnostics import Diagnostics
from sow.config.document import Variables, parse_document
from sow.core.definitions import Configuration, JournalSettings


@pytest.fixture
def built():
    def build_text(inside, directory=""):
        findings = Diagnostics("c.xml")
        node = parse_document(f"<AMPSConfig><Name>x</Name>{inside}</AMPSConfig>", "c.xml", findings)
        root = read_root(node, Variables("c.xml", {}, {}), findings)
        assert findings.in_order() == ()
        return build(root, directory)

    return build_text


def topic(more="", name="orders"):
    return (
        f"<SOW>\n<Topic><Name>{name}</Name><MessageType>json</MessageType>"
        f"<Key>/id</Key>{more}</Topic></SOW>"
    )


def test_what_is_not_said_takes_the_default_of_its_dataclass(built):
    assert built("") == Configuration("x")


def test_a_section_becomes_an_object_with_what_was_said(built):
    log = "<TransactionLog><RetentionSize>1KB</RetentionSize></TransactionLog>"
    assert built(log).journal == JournalSettings(retention_bytes=1024)


def test_repeated_elements_become_tuples_in_their_order(built):
    (found,) = built(
        topic("<HashIndex><Key>/b</Key><Key>/a</Key></HashIndex><Index>/x</Index><Index>/c</Index>")
    ).topics
    assert found.hash_indexes == (("/b", "/a"),)
    assert found.indexes == ("/x", "/c")
    assert found.line == 2


@pytest.mark.parametrize(
    ("more", "file_name"),
    [
        ("", "orders.json.sow"),
        ("<FileName>kept/%n</FileName>", "kept/orders.json"),
        ("<Durability>transient</Durability>", None),
    ],
)
def test_a_topic_knows_its_file(built, more, file_name):
    assert built(topic(more)).topics[0].file_name == file_name


@pytest.mark.parametrize(
    ("said", "directory", "found"),
    [
        ("", "", "data"),
        ("", "/etc/sow", "/etc/sow/data"),
        ("<DataDirectory>kept</DataDirectory>", "conf", "conf/kept"),
        ("<DataDirectory>/var/lib/sow</DataDirectory>", "conf", "/var/lib/sow"),
    ],
)
def test_the_data_directory_begins_at_the_file(built, said, directory, found):
    assert built(said, directory).data_directory == found
