"""`sow init`: a configuration from a file or from answers, which never takes another's place."""

import json

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.commands.init import StarterTopic, document, named_topic
from sow.config import loads, require
from sow.errors import SowError
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
