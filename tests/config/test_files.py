import pytest

from sow.server.boot.quarantine import REMOVED
from sow.store.manifest import COPY_FILE, MANIFEST_FILE
from tests.cases import all_cases


def topic(name: str, file: str = "", kind: str = "json") -> str:
    file = f"<FileName>{file}</FileName>" if file else ""
    return f"<Topic><Name>{name}</Name><MessageType>{kind}</MessageType>{file}</Topic>\n"


@pytest.mark.parametrize(
    ("name", "file", "path"),
    [
        ("orders", "", "orders.json.sow"),
        ("orders", "./sow/%n.sow", "sow/orders.json.sow"),
        ("/my/orders", "sow/%n", "sow/%2Fmy%2Forders.json"),
        ("a:b c", "%n", "a%3Ab%20c.json"),
        ("orders", "fixed.db", "fixed.db"),
    ],
)
def test_a_file_is_named_after_its_topic(sow, name, file, path):
    assert sow(topic(name, file)).configuration.topics[0].file_name == path


def test_no_topic_name_leads_out_of_the_data_directory(sow):
    loaded = sow(topic("..", "%n") + topic("../../etc", "%n"))
    assert [t.file_name for t in loaded.configuration.topics] == ["...json", "..%2F..%2Fetc.json"]


def test_a_long_name_gives_a_file_name_that_fits_and_differs(sow):
    loaded = sow(topic("é" * 254 + "a") + topic("é" * 254 + "b"))
    first, second = (t.file_name for t in loaded.configuration.topics)
    assert first != second
    assert max(len(first), len(second)) < 200


def test_a_transient_topic_has_no_file(orders):
    loaded = orders("<Durability>transient</Durability>")
    assert loaded.configuration.topics[0].file_name is None


@pytest.mark.parametrize("other", ["one", "./one", "one/two", "one//two"])
def test_no_two_topics_share_a_file_or_lie_inside_each_other(sow, only, other):
    text = only(sow(topic("a", "one") + topic("b", other)))
    assert text.startswith("config.xml:2: FileName: ")
    assert "which is a file of the topic 'a'" in text


@all_cases(
    "file",
    [
        *("journal", "journal/x", "lock", "staging/x", "sow-writes.sow", f"{REMOVED}/x"),
        *(MANIFEST_FILE, COPY_FILE, f"{MANIFEST_FILE}.writing", f"{COPY_FILE}.writing"),
    ],
)
def test_no_topic_takes_a_file_of_the_server(sow, only, file):
    assert "collides with " in only(sow(topic("a", file)))


@pytest.mark.parametrize(("first", "second"), [("x", "x-lock"), ("x-lock", "x")])
def test_no_topic_takes_the_lock_file_of_another(sow, only, first, second):
    assert "which is a file of the topic 'a'" in only(sow(topic("a", first) + topic("b", second)))


def test_the_journal_does_not_take_the_lock(instance, only):
    log = "<TransactionLog><JournalDirectory>lock</JournalDirectory></TransactionLog>"
    assert "JournalDirectory: lock collides with lock, which is the lock" in only(instance(log))


def test_a_journal_moved_elsewhere_leaves_its_name_free(instance):
    log = "<TransactionLog><JournalDirectory>log</JournalDirectory></TransactionLog>"
    assert not instance(f"{log}<SOW>{topic('a', 'journal')}</SOW>").findings
    assert instance(f"{log}<SOW>{topic('a', 'log')}</SOW>").errors


def test_a_path_is_found_wherever_it_lies_among_thousands(sow, only):
    many = "".join(topic(f"t{number}", f"d{number}/x/y") for number in range(1000))
    assert "d7/x collides with d7/x/y, which is a file of the topic 't7'" in only(
        sow(many + topic("last", "d7/x"))
    )
