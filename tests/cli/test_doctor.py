"""`sow doctor`: a machine and a server, and what a person sees of both."""

import json
import os
import time

from click.testing import CliRunner

from sow.cli import main
from tests.cli.terminal import Terminal

CONFIG = """<SOWConfig><Name>test</Name><SOW><Topic><Name>orders</Name>
<MessageType>json</MessageType><Key>/id</Key></Topic></SOW></SOWConfig>"""


def doctor(*words):
    result = CliRunner().invoke(main, ["doctor", *words, "--json"])
    found = {}
    for one in json.loads(result.stdout):
        found.setdefault(one["subject"], []).append((one["level"], one["found"]))
    return result.exit_code, found


def folder(tmp_path, text=CONFIG, mode=0o700):
    (tmp_path / "config.xml").write_text(text)
    (tmp_path / "data").mkdir(mode=mode)
    return str(tmp_path / "config.xml")


def test_a_machine_is_looked_at_and_left_as_it_is(tmp_path):
    code, found = doctor(folder(tmp_path))
    assert code == (1 if found["disk"][0][0] == "error" else 0)
    assert found.keys() == {"config", "disk", "retention", "clock", "fsync", "files"}
    assert found["config"] == [("ok", f"{tmp_path / 'config.xml'}: 1 topic")]
    assert found["clock"][0][0] == "ok"
    assert list((tmp_path / "data").iterdir()) == []


def test_the_findings_of_a_configuration_are_its_findings(tmp_path):
    config = folder(tmp_path, CONFIG.replace("Key>", "Kye>"))
    code, found = doctor(config)
    assert code == 1
    assert ("error", f"{config}:2: Kye: is not an element of Topic") in found["config"]
    assert "disk" in found, "the machine is looked at all the same"


def test_a_directory_that_is_not_there_yet_is_judged_by_where_it_will_be(tmp_path):
    (tmp_path / "config.xml").write_text(CONFIG)
    _, found = doctor(str(tmp_path / "config.xml"), "--data-dir", str(tmp_path / "a" / "b"))
    assert f"for {tmp_path / 'a' / 'b'}" in found["disk"][0][1]
    assert [path.name for path in tmp_path.iterdir()] == ["config.xml"]


def test_who_may_look_into_the_directory_and_a_clock_set_back_are_said(tmp_path):
    config = folder(tmp_path)
    (tmp_path / "data").chmod(0o755)
    written = tmp_path / "data" / "x"
    written.write_text("")
    os.utime(written, (time.time() + 7300, time.time() + 7300))
    _, found = doctor(config)
    assert found["directory"] == [("warning", f"other users can look into {tmp_path / 'data'}")]
    assert found["clock"] == [("warning", "behind what was written by 2 h")]


def test_a_server_is_looked_at(server, orders):
    orders({"id": 1})
    _, found = doctor("--server", "--url", server.url)
    assert found.keys() == {
        "ready", "answers", "topics", "sessions", "memory", "connections", "clock", "steps",
    }  # fmt: skip
    assert (found["ready"], found["sessions"]) == ([("ok", "ok")], [("ok", "0, and all keep up")])


def test_a_server_that_takes_no_messages_is_an_error_with_its_reason(server, monkeypatch):
    status = server.server._status
    monkeypatch.setattr(status, "_refusal", lambda: "replaying: orders, 3 of 9 records")
    code, found = doctor("--server", "--url", server.url)
    assert (code, found["ready"]) == (1, [("error", "replaying: orders, 3 of 9 records")])
    assert found.keys() == {"ready", "answers"}


def test_a_server_that_is_not_there_is_a_sentence():
    result = CliRunner().invoke(main, ["doctor", "--server", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("sow: no server answers at http://127.0.0.1:1")


def test_what_a_person_sees(tmp_path):
    config = folder(tmp_path)
    (tmp_path / "data").chmod(0o755)
    for columns, colour in ((100, True), (44, False)):
        environment = {} if colour else {"NO_COLOR": "1"}
        with Terminal("doctor", config, columns=columns, **environment) as terminal:
            _, text = terminal.end()
        assert max(map(len, text.splitlines())) <= columns
        assert "directory warning other users can look" in text
        assert "chmod 700" in text
        assert "warning" in text.splitlines()[-1]
        assert terminal.has_colour is colour
