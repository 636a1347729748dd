import json

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.config.reference import schema

TOPIC = "<Topic><Name>{}</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"

SOW = f"<SOW>{TOPIC.format('orders')}</SOW>"


@pytest.fixture
def check(tmp_path, monkeypatch):
    """Checks a config.xml that holds these topics."""
    monkeypatch.chdir(tmp_path)

    def run(xml, *arguments):
        text = f"<SOWConfig><Name>test</Name><SOW>{xml}</SOW></SOWConfig>"
        (tmp_path / "config.xml").write_text(text)
        return CliRunner().invoke(main, ["check", *arguments])

    return run


def test_a_good_file_says_how_many_topics_it_has(check):
    result = check(TOPIC.format("orders"))
    assert (result.exit_code, result.stdout) == (0, "config.xml: ok (1 topic)\n")


def test_a_mistake_is_a_line_with_its_place(check):
    result = check(TOPIC.format("orders").replace("Key>", "Kye>"))
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == (
        "config.xml:1: Kye: error: is not an element of Topic; did you mean Key?"
    )


def test_errors_and_warnings_are_sent_apart_and_counted(check):
    slab, unknown = "<SlabSize>1MB</SlabSize></Topic>", "<Kye>/id</Kye><Kye>/b</Kye></Topic>"
    wrong = TOPIC.format("orders").replace("</Topic>", slab).replace("</Topic>", unknown)
    result = check(wrong)
    *lines, last = result.stdout.splitlines()
    assert [line.split(": ")[1:3] for line in lines] == [
        ["SlabSize", "warning"],
        ["Kye", "error"],
        ["Kye", "error"],
    ]
    assert last == "config.xml: 2 errors, 1 warning"


def test_warnings_alone_are_counted_beside_the_topics(check):
    result = check(TOPIC.format("orders").replace("</Topic>", "<SlabSize>1MB</SlabSize></Topic>"))
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        0,
        "config.xml: ok (1 topic, 1 warning)",
    )


def test_an_address_beyond_loopback_is_an_error(tmp_path):
    path = tmp_path / "config.xml"
    path.write_text(f"<SOWConfig><Name>x</Name>\n<Listen>0.0.0.0:80</Listen>{SOW}</SOWConfig>")
    result = CliRunner().invoke(main, ["check", str(path)])
    assert result.exit_code == 1
    first, last = result.stdout.splitlines()
    assert first.startswith(f"{path}:2: Listen: error: 0.0.0.0 is not loopback")
    assert last.endswith("1 error, 0 warnings")
    (found,) = json.loads(CliRunner().invoke(main, ["check", str(path), "--json"]).stdout)
    assert (found["element"], found["severity"]) == ("Listen", "error")


def test_findings_as_json(check):
    result = check(TOPIC.format("orders").replace("Key>", "Kye>"), "--json")
    (finding,) = [found for found in json.loads(result.stdout) if found["element"] == "Kye"]
    assert (finding["file"], finding["line"], finding["severity"]) == ("config.xml", 1, "error")


def test_a_good_file_as_json_is_an_empty_list(check):
    assert json.loads(check(TOPIC.format("orders"), "--json").stdout) == []


def test_variables_are_set_on_the_command_line(check):
    assert check(TOPIC.format("${TOPIC}"), "--set", "TOPIC=orders").exit_code == 0


def test_a_variable_without_a_value_is_wrong_usage(check):
    assert check(TOPIC.format("${TOPIC}"), "--set", "TOPIC").exit_code == 2


def test_a_file_that_is_not_there_is_a_finding(tmp_path):
    result = CliRunner().invoke(main, ["check", str(tmp_path / "config.xml")])
    assert result.exit_code == 1
    assert "cannot be read" in result.stdout


def test_the_schema_is_written_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["check", "--xsd"])
    assert result.exit_code == 0
    assert result.stdout == schema()
