"""`sow init`: a configuration from a file or from answers, which never takes another's place."""

import datetime
import json
from decimal import Decimal

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.commands.init import (
    NOTHING_CONFIGURED,
    SAMPLE_BYTES,
    StarterTopic,
    document,
    named_topic,
    sample,
    starter_of,
)
from sow.config import loads, require
from sow.errors import ClientError, SowError
from tests.cli.terminal import Terminal

CSV = "symbol,px\nIBM,101.5\nAAPL,7\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def init(*words, **more):
    return CliRunner().invoke(main, ["init", *words], **more)


def test_a_file_of_data_becomes_a_topic_with_its_types_and_key(folder):
    (folder / "ticks.csv").write_text(CSV)
    result = init("ticks.csv", "--yes")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "config.xml: written (ticks)"
    topic, copy = require("config.xml").topics
    assert (topic.name, list(topic.keys)) == ("ticks", ["/symbol"])
    assert [(str(one.path), one.type) for one in topic.schema] == [
        ("/symbol", "string"), ("/px", "float64"),
    ]  # fmt: skip
    assert (copy.name, copy.interval_us) == ("ticks-C", 1_000_000)


def test_what_is_there_is_never_overwritten(folder):
    (folder / "config.xml").write_text("mine")
    result = init("--topic", "quotes:/symbol", "--yes")
    assert (result.exit_code, result.stderr) == (
        1, "sow: config.xml exists, and is not overwritten; name another by --config\n",
    )  # fmt: skip
    assert (folder / "config.xml").read_text() == "mine"
    (folder / "link.xml").symlink_to("nowhere")
    assert init("--topic", "quotes:/symbol", "--yes", "--config", "link.xml").exit_code == 1


def test_topics_may_be_named(folder):
    words = ("--topic", "quotes:/symbol", "--topic", "orders:/id", "--conflated", "none")
    assert json.loads(init(*words, "--json").stdout) == {
        "config": "config.xml", "topics": ["quotes", "orders"],
    }  # fmt: skip
    assert [one.name for one in require("config.xml").topics] == ["quotes", "orders"]


def test_a_topic_of_a_file_may_be_called_otherwise(folder):
    (folder / "ticks.csv").write_text(CSV)
    assert init("ticks.csv", "--topic", "quotes:/px", "--yes").exit_code == 0
    assert list(require("config.xml").topics[0].keys) == ["/px"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--yes"], 2, "name a FILE of data, or --topic quotes:/symbol"),
        (["--topic", "quotes:symbol", "--yes"], 1, "write its name and key, as quotes:/symbol"),
        (
            ["ticks.csv", "--topic", "a:/x", "--yes"],
            1,
            "the file has no column '/x' for the key",
        ),
        (["same.csv", "--yes"], 1, "no column identifies records; name the key"),
        (["--topic", "a:/x", "--conflated", "1ms", "--yes"], 1, "100ms"),
    ],
)
def test_what_cannot_be_is_a_sentence_and_no_file(folder, words, code, said):
    (folder / "ticks.csv").write_text(CSV)
    (folder / "same.csv").write_text("a\n1\n1\n")
    result = init(*words)
    assert (result.exit_code, said in result.stderr) == (code, True), result.stderr
    assert not (folder / "config.xml").exists()


def test_at_a_terminal_it_asks(tmp_path):
    with Terminal("init", cwd=tmp_path) as terminal:
        terminal.wait_for(r"Name of the topic \[orders\]:")
        terminal.type("quotes\n")
        terminal.wait_for(r"Key field of a record \[/id\]:")
        terminal.type("symbol\n")
        terminal.wait_for(r"update of a record each \(or none\) \[1s\]:")
        terminal.type("\n")
        code, text = terminal.end()
    assert (code, "config.xml: written (quotes)" in text) == (0, True)
    topic, copy = require(str(tmp_path / "config.xml")).topics
    assert (topic.name, list(topic.keys), copy.name) == ("quotes", ["/symbol"], "quotes-C")


def test_at_a_terminal_the_key_of_a_file_is_proposed(tmp_path):
    (tmp_path / "ticks.csv").write_text(CSV)
    with Terminal("init", "ticks.csv", "--conflated", "none", cwd=tmp_path) as terminal:
        assert "2 rows with /symbol, /px" in terminal.wait_for(r"of a record \[/symbol\]:")
        terminal.type("\n")
        code, _ = terminal.end()
    assert code == 0
    assert list(require(str(tmp_path / "config.xml")).topics[0].keys) == ["/symbol"]


def test_ctrl_c_at_a_question_leaves_nothing(tmp_path):
    with Terminal("init", cwd=tmp_path) as terminal:
        terminal.wait_for("Name of the topic")
        terminal.interrupt()
        code, text = terminal.end()
    assert (code, "Abort" in text) == (130, False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "name", "keys"),
    [
        ("quotes:/symbol", "quotes", ["/symbol"]),
        ("orders:/desk,/id", "orders", ["/desk", "/id"]),
        ("a:b:/order/id", "a:b", ["/order/id"]),
        ("/my/orders:/id", "/my/orders", ["/id"]),
    ],
)
def test_a_topic_is_named_with_its_key(text, name, keys):
    found = loads(document([named_topic(text)])).configuration if name != "a:b" else None
    assert named_topic(text) == StarterTopic(name, keys)
    if found is not None:
        assert [(one.name, list(one.keys)) for one in found.topics] == [(name, keys)]


def test_a_topic_without_a_key_is_one_whose_publishers_name_records():
    loaded = loads(document([named_topic("notes")]))
    assert (loaded.findings, loaded.configuration.topics[0].keys) == ((), ())


@pytest.mark.parametrize("text", ["", ":/id", "quotes:symbol", "quotes:/a,b", "quotes:/"])
def test_what_names_no_topic_is_refused(text):
    with pytest.raises(SowError):
        named_topic(text)


def test_everything_a_starter_may_have_is_a_good_configuration():
    topic = StarterTopic("a<&--b", ["/id"], {"/id": "int64", "/[x]": "decimal(18,4)"}, "500ms")
    good = StarterTopic("orders", ["/id"], {"/id": "int64", "[/a b]": "string"}, "500ms")
    assert [one.element for one in loads(document([topic])).findings] != ["file"], "it is XML"
    loaded = loads(document([good], name="desk"))
    assert loaded.findings == ()
    _, copy = loaded.configuration.topics
    assert (copy.name, copy.underlying, copy.interval_us) == ("orders-C", "orders", 500_000)
    assert (loaded.configuration.host, loaded.configuration.port) == ("127.0.0.1", 8080)


def written(folder, name, text):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_csv(tmp_path):
    text = "px,symbol,qty,at,day,ok,nothing\n1.5,A,3,2024-01-01T00:00:00Z,2024-01-01,true,\n2,B,4,2024-01-02T00:00:00Z,2024-01-02,false,\n"  # noqa: E501
    found = sample(written(tmp_path, "my day.csv", text))
    assert (found.name, found.keys, found.rows) == ("my-day", ["/symbol"], 2)
    assert found.types == {
        "/px": "float64", "/symbol": "string", "/qty": "int64", "/at": "timestamp", "/day": "date",
        "/ok": "bool",
    }  # fmt: skip


def test_json_lines_with_objects_and_lists(tmp_path):
    text = (
        '{"order":{"id":7,"px":1.5},"legs":[1],"note":null}\n{"order":{"id":8,"px":2},"legs":[]}\n'
    )
    found = sample(written(tmp_path, "orders.ndjson", text))
    assert found.keys == ["/order/id"]
    assert found.types == {"/order/id": "int64", "/order/px": "float64", "/legs": "json"}


def test_parquet(tmp_path):
    path = str(tmp_path / "day.parquet")
    columns = {
        "ts": [datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)] * 3,
        "sym": pa.array(["A", "B", "A"]).dictionary_encode(),
        "px": [Decimal("1.25"), Decimal("2.50"), None],
        "big": pa.array([1, 2, 3], pa.uint64()),
        "raw": pa.array([b"x", b"y", b"z"]),
    }
    pq.write_table(pa.table(columns), path)
    found = sample(path)
    assert found.types == {"/ts": "timestamp", "/sym": "string", "/px": "decimal(3,2)"}
    assert found.keys == ["/sym"], "updates of the same records do not tell rows apart"


def test_times_finer_than_microseconds_are_texts(tmp_path):
    path = str(tmp_path / "ns.parquet")
    pq.write_table(pa.table({"id": [1], "at": pa.array([1], pa.timestamp("ns"))}), path)
    assert sample(path).types == {"/id": "int64", "/at": "string"}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("a,b\n1,1\n1,2\n", ["/b"]),  # the only one that tells rows apart
        ("a,order_id\n1,5\n2,6\n", ["/order_id"]),  # called as a key
        ("a,id\n1,\n2,6\n", ["/a"]),  # not in every row
        ("a,b\n1,1\n1,1\n", []),
        ("px\n1.5\n2.5\n", []),  # nobody is known by a price
    ],
)
def test_the_key_reports_rows_apart_or_is_called_so(tmp_path, text, keys):
    assert sample(written(tmp_path, "x.csv", text)).keys == keys


def test_a_name_is_a_path_or_stands_in_one(tmp_path):
    found = sample(written(tmp_path, "x.csv", "id,a/b,/c/d,e f,/\n1,2,3,4,5\n"))
    assert list(found.types) == ["/id", "$['a/b']", "/c/d", "[/e f]", "$['']"]


def test_of_a_long_file_the_first_lines_are_read(tmp_path):
    line = b'{"id":1,"pad":"' + b"x" * 1000 + b'"}\n'
    lines = SAMPLE_BYTES // len(line)
    found = sample(written(tmp_path, "long.ndjson", line * (lines + 5) + b'{"id":"not a number"'))
    assert (found.rows, found.types["/id"]) == (lines, "int64")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.txt", "", "is not one of .parquet, .csv, .ndjson"),
        ("x.parquet", "no parquet", "cannot be read as Parquet"),
        ("x.ndjson", '{"a":1}\n{"a":"x"}\n', "cannot be read as JSON lines"),
        ("x.csv", "", "has no columns"),
        ("x.csv", 'a,b\n1,"2\n', "cannot be read as CSV"),
        ("x.csv", b"a,b\n1,\xe9\n", "is not UTF-8; save it as UTF-8"),
        ("x.csv", b"\xff\xfea\x00,\x00b\x00", "is not UTF-8; save it as UTF-8"),
        ("x.csv", "\n\na,b\n1,2\n", "begins with a blank line"),
        ("x.csv", "\ufeffid;b\n1;2,5\n", "one column, 'id;b'; if semicolons stand between"),
        ("x.csv", "sep=;\nid;b\n1;2\n", "one column, 'sep=;'; if semicolons stand between"),
        ("x.csv", "id\tb\n1\t2\n", "if tabs stand between its cells, save it with commas"),
        ("x.csv", "id|b\n1|2\n", "if bars stand between its cells, save it with commas"),
        ("x.csv", "a,b,a\n1,2,3\n", "has the column 'a' twice"),
        ("x.csv", "a,b\n1,2,3\n", "a row of 3 cells, and 2 columns; it begins with '1'"),
    ],
)
def test_what_is_no_data_is_refused(tmp_path, name, content, said):
    with pytest.raises(ClientError, match=said):
        sample(written(tmp_path, name, content))


def test_a_long_file_may_be_cut_within_a_row(tmp_path, monkeypatch):
    monkeypatch.setattr("sow.cli.commands.init.SAMPLE_BYTES", 30)
    found = sample(written(tmp_path, "x.csv", 'id,note\n1,a\n2,"b\nc\nd\ne\nf\ng\nh"\n'))
    assert found.types["/id"] == "int64"


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    assert sample(written(tmp_path, "x.csv", "\ufeffid\n1\n2\n")).keys == ["/id"]
    assert sample(written(tmp_path, "x.ndjson", '\ufeff{"id":1}\n{"id":2}\n')).keys == ["/id"]


def test_a_server_of_other_records_needs_no_file_and_takes_one_that_there_is(folder):
    assert starter_of("config.xml", False, (), True) == NOTHING_CONFIGURED
    assert loads(NOTHING_CONFIGURED).configuration is not None
    assert starter_of("config.xml", True, (), True) == "", "one that was named has to be there"
    assert starter_of("config.xml", False, (), False) == ""
    (folder / "config.xml").touch()
    assert starter_of("config.xml", False, (), True) == ""


def test_topics_are_a_configuration_and_replace_a_file():
    found = loads(starter_of("config.xml", False, ("quotes:/symbol",), False)).configuration
    assert "quotes" in {one.name for one in found.topics}
    assert found.security.allowed_origins == ()
    pages = ("http://localhost:5173/", "https://a.example")
    text = starter_of("config.xml", False, ("quotes:/symbol",), False, pages)
    origins = loads(text).configuration.security.allowed_origins
    assert origins == ("http://localhost:5173", "https://a.example")
    assert "is not an origin" in str(loads(text.replace("http:", "h t")).findings)
    with pytest.raises(click.UsageError, match="goes with --topic"):
        starter_of("config.xml", False, (), False, pages)
    with pytest.raises(click.UsageError, match="replaces CONFIG"):
        starter_of("x.xml", True, ("quotes:/symbol",), False)
