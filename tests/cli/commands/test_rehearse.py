"""`sow rehearse`: a log under another configuration; what differs is said, and nothing else."""

import hashlib
import json
import re
import tempfile
from dataclasses import replace

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.commands import rehearse as module
from sow.core.cooperative import run_to_completion
from sow.core.definitions import SYSTEM_TOPICS, ConflatedTopic, JournalSettings, View
from sow.engine.reconfiguration import Reconfiguration
from tests.edge.lives import COPIES, DESKS, NOW_US, ORDERS, SECOND, backed_up, lives_on

COPY = ConflatedTopic("orders-C", "json", "orders", interval_us=SECOND)
TOTALS = View("totals", "json", ("orders",), ("/desk", "SUM(/qty) AS /qty"), ("/desk",))
ORDERS_XML = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
TOTALS_XML = """<View><Name>totals</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Projection><Field>/desk</Field>
<Field>SUM(/qty) AS /qty</Field></Projection><Grouping><Field>/desk</Field></Grouping></View>"""


def conflated(interval="1s", more="", name="orders-C"):
    return (
        f"<ConflatedTopic><Name>{name}</Name><MessageType>json</MessageType><UnderlyingTopic>orders"
        f"</UnderlyingTopic><Interval>{interval}</Interval>{more}</ConflatedTopic>"
    )


SAME = ORDERS_XML + conflated() + TOTALS_XML


def recorded(life, begun_s, rounds):
    """A start at `begun_s`, and updates of three orders after it, four in ten seconds."""
    life.engine.restore_accounts(life.journal.accounts())
    life.engine.sequencer.moment(NOW_US + begun_s * SECOND)
    life.engine.configurations.note(is_start=True)
    for round_ in range(rounds):
        for number in range(3):
            us = NOW_US + begun_s * SECOND + (2500 * round_ + 300 * number) * 1000
            qty = 100 * begun_s + round_
            life.publish("orders", {"id": number, "desk": number % 2, "qty": qty}, now_us=us)


@pytest.fixture
def data(tmp_path):
    """A data directory with the log of two lives, of which the second began amid a window."""
    live = lives_on(tmp_path / "data")
    for begun_s in (0, 8):
        with live(ORDERS, COPY, TOTALS, *SYSTEM_TOPICS) as life:
            recorded(life, begun_s, 4)
    return tmp_path / "data"


@pytest.fixture
def rehearse(tmp_path, monkeypatch):
    """Runs the command with these topics, in a scratch directory that is empty afterwards."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def run(source, topics, *words):
        config = tmp_path / "new.xml"
        config.write_text(f"<SOWConfig><Name>test</Name><SOW>{topics}</SOW></SOWConfig>")
        result = CliRunner().invoke(
            main, ["rehearse", str(source), "--config", str(config), *words]
        )
        assert [*scratch.iterdir()] == []
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def found(result):
    return {one["topic"]: one for one in json.loads(result.stdout)["topics"]}


def contents(path):
    """Every file and what it holds."""
    files = [one for one in sorted(path.rglob("*")) if one.is_file()]
    return {str(one): hashlib.sha256(one.read_bytes()).hexdigest() for one in files}


def test_the_same_configuration_differs_nowhere_over_restarts(rehearse, data):
    before = contents(data)
    for words in ((), ("--times",), ("--from", "4", "--to", "17"), ("--topics", "totals")):
        result = rehearse(data, SAME, *words)
        assert (result.exit_code, result.stdout.splitlines()[-1][:12]) == (0, "different: 0")
    assert contents(data) == before, "written beside the scratch directory"
    said = found(rehearse(data, SAME, "--json"))
    assert [*said] == ["orders-C", "totals"]
    assert said["orders-C"]["lines"]["old"] == said["orders-C"]["lines"]["new"] > 12
    assert said["orders-C"]["compared"] == 3


def test_what_is_said_at_another_time_is_shown_with_both_times(rehearse, data):
    ticking = ORDERS_XML + conflated(more="<Schedule>tick</Schedule>") + TOTALS_XML
    result = rehearse(data, ticking, "--times")
    assert result.exit_code == 1
    said = [line for line in result.stdout.splitlines() if "line 1 was p " in line]
    assert said
    for line in said:
        was, now = re.findall(r"p (\{.*?\} at [^ ;]+)", line)
        assert was.partition(" at ")[0] == now.partition(" at ")[0]
        assert was != now


def test_a_filter_differs_for_the_records_that_it_concerns(rehearse, data):
    filtered = ORDERS_XML + conflated(more="<Filter>/id != 1</Filter>") + TOTALS_XML
    result = rehearse(data, filtered, "--json")
    assert result.exit_code == 1
    said = found(result)
    (record,) = said["orders-C"]["records"]
    assert (said["totals"]["equal"], record["lines"]["new"]) == (True, 0)
    assert record["first"]["line"] == 1
    assert (record["first"]["old"]["d"]["id"], record["first"]["new"]) == (1, None)
    assert record["ends"] == {"old": {"id": 1, "desk": 1, "qty": 803}, "new": None}


def test_what_is_said_is_written_the_same_way_in_every_release(rehearse, data, tmp_path):
    def written(topics, *words):
        path = tmp_path / "lines"
        rehearse(data, topics, "--lines", str(path), *words)
        return path.read_text()

    text = written(SAME)
    assert text == written(SAME)
    lines = [json.loads(line) for line in text.splitlines()]
    said = found(rehearse(data, SAME, "--json"))
    assert len(lines) == sum(one["lines"]["new"] for one in said.values())
    assert {tuple(line) for line in lines} == {("topic", "k", "c", "d")}
    assert {line["topic"] for line in lines} == {"orders-C", "totals"}
    assert written(ORDERS_XML + conflated("2s") + TOTALS_XML) != text
    (first, *_) = written(SAME, "--times", "--topics", "totals").splitlines()
    assert [*json.loads(first)] == ["topic", "k", "c", "at", "d"]


def test_for_people_the_first_lines_that_differ_are_shown(rehearse, data):
    slower = ORDERS_XML + conflated(interval="1m") + TOTALS_XML
    lines = rehearse(data, slower).stdout.splitlines()
    assert lines[0].startswith("orders-C: 3 of 3 records differ; ")
    assert 'line 1 was p {"id": 0, "desk": 0, "qty": 0} and is p {"id": 0' in lines[1]
    assert lines[-2].startswith("totals: equal in ")
    assert lines[-1] == "different: 1 of 2"


def test_of_many_records_some_are_shown_to_people(rehearse, tmp_path):
    with lives_on(tmp_path / "data")(ORDERS, COPY, *SYSTEM_TOPICS) as life:
        recorded(life, 0, 0)
        life.publish("orders", *({"id": number} for number in range(9)))
    lines = rehearse(
        tmp_path / "data", ORDERS_XML + conflated(more="<Filter>/id > 99</Filter>")
    ).stdout.splitlines()
    assert lines[-2] == "  and 4 other records: --json has them all"


def test_a_topic_of_one_configuration_only_is_named(rehearse, data):
    other = ORDERS_XML + conflated() + conflated(name="other-C")
    result = rehearse(data, other)
    assert result.exit_code == 1
    assert "other-C: only in the new configuration\n" in result.stdout
    assert "totals: only in the configuration that was in force\n" in result.stdout
    assert rehearse(data, other, "--topics", "orders-C").exit_code == 0


def test_what_was_said_outside_of_a_range_does_not_count(rehearse, data):
    """Only the second life has quantities of 800 and more."""
    filtered = ORDERS_XML + conflated(more="<Filter>/qty &lt; 800</Filter>") + TOTALS_XML
    assert rehearse(data, filtered, "--to", "9").exit_code == 0
    assert rehearse(data, filtered, "--from", "9").exit_code == 1
    result = rehearse(data, filtered, "--from", "9", "--to", "3")
    assert (result.exit_code, "exchange them" in result.stderr) == (2, True)
    result = rehearse(data, filtered, "--from", "now")
    assert (result.exit_code, "the log ends before that" in result.stderr) == (2, True)


def test_the_ends_of_a_range_are_in_order_within_a_change_too(rehearse, tmp_path):
    with lives_on(tmp_path / "data")(ORDERS, COPY, *SYSTEM_TOPICS) as life:
        recorded(life, 0, 0)
        first = life.engine.seq + 1
        life.publish("orders", *({"id": number} for number in range(9)))
    later, earlier = str(first + 6), str(first + 2)
    result = rehearse(tmp_path / "data", ORDERS_XML + conflated(), "--from", later, "--to", earlier)
    assert (result.exit_code, "exchange them" in result.stderr) == (2, True)
    result = rehearse(tmp_path / "data", ORDERS_XML + conflated(), "--from", earlier, "--to", later)
    assert result.exit_code == 0


def test_a_reload_was_in_force_from_then_on(rehearse, tmp_path):
    """A filter that was added by a reload: neither configuration alone says the same."""
    filtered = ConflatedTopic("orders-C", "json", "orders", filter="/qty < 2", interval_us=SECOND)
    with lives_on(tmp_path / "data")(ORDERS, COPY, *SYSTEM_TOPICS) as life:
        recorded(life, 0, 1)
        life.engine.advance(NOW_US + 2 * SECOND)
        life.store()
        configuration = life.engine.configuration
        topics = tuple(filtered if one.name == "orders-C" else one for one in configuration.topics)
        new = replace(configuration, topics=topics)
        change = Reconfiguration(life.engine, new, lambda _topic: None)
        run_to_completion(change.apply(NOW_US + 3 * SECOND))
        life.store()
        life.publish("orders", {"id": 0, "qty": 5}, now_us=NOW_US + 4 * SECOND)
    for more in ("", "<Filter>/qty &lt; 2</Filter>"):
        result = rehearse(tmp_path / "data", ORDERS_XML + conflated(more=more), "--json")
        kept = {one["k"]: one["lines"] for one in found(result)["orders-C"]["records"]}
        assert (result.exit_code, len(kept)) == ((1, 1) if not more else (0, 0)), kept


def test_a_trimmed_log_is_compared_from_where_it_begins(rehearse, tmp_path):
    little = JournalSettings(retention_bytes=1)
    live = lives_on(tmp_path / "data")
    with live(ORDERS, COPY, *SYSTEM_TOPICS, journal=little) as life:
        recorded(life, 0, 2)
        life.publish("orders", {"id": 7, "qty": 1})
        life.checkpoint()
        life.trim()
        life.publish("orders", {"id": 0, "qty": 5}, now_us=NOW_US + 9 * SECOND)
        assert life.journal.first_seq > 1
    same = ORDERS_XML + conflated()
    assert rehearse(tmp_path / "data", same).exit_code == 0
    filtered = ORDERS_XML + conflated(more="<Filter>/id != 7</Filter>")
    (record,) = found(rehearse(tmp_path / "data", filtered, "--json"))["orders-C"]["records"]
    assert (record["lines"], record["ends"]["new"]) == ({"old": 0, "new": 0}, None)


def test_a_backup_is_read_under_its_own_numbers(rehearse, data, tmp_path):
    with lives_on(data)(ORDERS, COPY, TOTALS, *SYSTEM_TOPICS) as life:
        life.engine.restore_accounts(life.journal.accounts())
        backed_up(life, tmp_path / "backup")
    before = contents(tmp_path / "backup")
    assert rehearse(tmp_path / "backup", SAME, "--from", "4").exit_code == 0
    slower = ORDERS_XML + conflated(interval="1m") + TOTALS_XML
    result = rehearse(tmp_path / "backup", slower, "--json", "--to", "24")
    assert result.exit_code == 1
    first = found(result)["orders-C"]["records"][0]["first"]
    assert (first["old"]["bm"], first["old"]["at"]) == ("1", "2023-11-14T22:13:21.000000Z")
    assert contents(tmp_path / "backup") == before


def test_a_damaged_backup_is_a_sentence(rehearse, data, tmp_path):
    with lives_on(data)(ORDERS, COPY, TOTALS, *SYSTEM_TOPICS) as life:
        life.engine.restore_accounts(life.journal.accounts())
        backed_up(life, tmp_path / "backup")
    log = tmp_path / "backup" / "log.blocks"
    log.write_bytes(log.read_bytes()[:-9] + b"overwrite")
    result = rehearse(tmp_path / "backup", SAME)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "log.blocks: " in result.stderr
    assert "take another backup" in result.stderr


def test_a_damaged_directory_is_named_and_not_its_copy(rehearse, data):
    log = data / "journal" / "data.mdb"
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    result = rehearse(data, SAME)
    assert (result.exit_code, "not safe to read" in result.stderr) == (2, True)
    assert f"sow.store.repair {data} {data / 'journal'}" in result.stderr
    assert "sow-rehearse-" not in result.stderr


def test_a_running_servers_directory_is_left_to_it(rehearse, data):
    with lives_on(data)(ORDERS, COPY, TOTALS, *SYSTEM_TOPICS):
        result = rehearse(data, SAME)
    assert (result.exit_code, "in use by process" in result.stderr) == (2, True)
    assert "take a backup" in result.stderr


def test_what_cannot_be_rehearsed_is_a_sentence(rehearse, data, tmp_path):
    (tmp_path / "empty").mkdir()
    with lives_on(tmp_path / "old")(ORDERS, COPY) as life:
        life.publish("orders", {"id": 1})
    other_key = SAME.replace("/id", "/ref")
    for source, topics, words, text in (
        (tmp_path / "empty", SAME, (), "is no data directory, nor a backup"),
        (tmp_path / "missing", SAME, (), "does not exist"),
        (tmp_path / "old", SAME, (), "start this release once on its data directory"),
        (data, SAME, ("--topics", "order-C"), "did you mean orders-C?"),
        (data, SAME, ("--topics", "orders"), "no conflated topic or view 'orders'"),
        (data, SAME, ("--from", "999"), "bookmark 999 is not kept"),
        (data, SAME, ("--to", "00000000000000ab-3"), "is of the log 00000000000000ab"),
        (data, SAME.replace("Key>", "Kye>"), (), "did you mean Key?"),
        (data, other_key, (), "its messages were logged under another Key"),
    ):
        result = rehearse(source, topics, *words)
        assert (result.exit_code, result.stdout) == (2, ""), (text, result.stdout)
        assert text in result.stderr, result.stderr


def test_a_bug_is_no_difference(rehearse, data, monkeypatch):
    monkeypatch.setattr(module, "rehearsed", lambda *_: 1 / 0)
    result = rehearse(data, SAME)
    assert (result.exit_code, "ZeroDivisionError" in result.stderr) == (2, True)


def test_topics_of_a_pattern_are_compared_one_by_one(rehearse, tmp_path):
    with lives_on(tmp_path / "data")(DESKS, COPIES, *SYSTEM_TOPICS) as life:
        recorded(life, 0, 0)
        for name in ("/desk/1", "/desk/2"):
            life.publish(name, {"id": 1, "qty": 1}, {"id": 2, "qty": 9})
    pattern = """<Topic><Name>desks</Name><MessageType>json</MessageType><Key>/id</Key>
    <Pattern>^/desk/</Pattern></Topic><ConflatedTopic><Name>copies</Name>
    <MessageType>json</MessageType><UnderlyingTopic>desks</UnderlyingTopic>
    <TopicFormat>%n-C</TopicFormat><Interval>1s</Interval>{}</ConflatedTopic>"""
    same = rehearse(tmp_path / "data", pattern.format(""), "--json")
    assert (same.exit_code, [*found(same)]) == (0, ["/desk/1-C", "/desk/2-C"])
    filtered = pattern.format("<Filter>/qty > 5</Filter>")
    said = found(rehearse(tmp_path / "data", filtered, "--json", "--topics", "/desk/2-C"))
    assert [len(one["records"]) for one in said.values()] == [1]
    result = rehearse(tmp_path / "data", filtered, "--topics", "desks")
    assert (result.exit_code, "no conflated topic or view 'desks'" in result.stderr) == (2, True)
