"""`sow serve` as a process of its own: what it prints, what it stops at and how."""

import asyncio
import errno
import json
import os
import re
import shutil
import signal
import ssl
import sys
import time
from contextlib import contextmanager
from functools import partial
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import click
import pytest
from click.testing import CliRunner

from sow.cli import main, supervision
from sow.cli.commands import serve
from sow.cli.commands.serve import (
    STOP_S_MAX,
    _done_unless,
    _followers,
    check_folder,
    server_above,
)
from sow.core.definitions import Configuration
from sow.errors import ClientError, StoreError
from sow.server.api.nodes import Upstream
from sow.store import repair
from tests import forks
from tests.core.test_async_tasks import forgetting, played
from tests.edge.certificates import certificates
from tests.ports import free_ports

pytestmark = pytest.mark.edge

CONFIG = """<SOWConfig><Name>test</Name><SOW><Topic><Name>${TOPIC}</Name>
<MessageType>json</MessageType><Key>/id</Key></Topic></SOW></SOWConfig>"""
KIND = {"Content-Type": "application/json"}
END_S_MAX = 60
"""A safety net: a server that takes longer than five seconds gives up by itself and returns 1."""


def command_in(directory):
    """The command that serves a configuration with one topic, and data beside it."""
    (directory / "config.xml").write_text(CONFIG)
    base = [sys.executable, "-m", "sow.cli", "serve", str(directory / "config.xml")]
    return [*base, "--set", "TOPIC=orders", "--port", "0"]


@pytest.fixture
def command(tmp_path):
    return command_in(tmp_path)


@contextmanager
def started(command, begin=forks.started):
    process = begin(command, stdout=forks.PIPE, stderr=forks.PIPE, text=True, bufsize=1)
    try:
        yield process, process.stdout.readline()
    finally:
        process.kill()
        process.communicate()


BUSY = re.compile(" kept everybody waiting for |; requests to .* wait$")
"""A line of this is about the machine, and may come at any time: a step, or a start, took long."""


def lines_of(said):
    """What a process has said, but that the machine is busy."""
    return [line for line in said.splitlines() if not BUSY.search(line)]


def logged(process):
    """The next line of the log but that of the start."""
    return next(
        line
        for line in process.stderr
        if " INFO app: started at " not in line and not BUSY.search(line)
    )


def refused(command, *options):
    """What the command says that does not get as far as to serve, in this process."""
    result = CliRunner().invoke(main, [*command[3:], *options])
    assert (result.exit_code, result.stdout) == (1, "")
    return result.stderr


def publish(line, *documents):
    """Publish to the server that said this line; `sow publish` has tests of its own."""
    url = f"{line.split()[3]}/v1/topics/orders/records"
    body = json.dumps(documents, separators=(",", ":")).encode()
    with urlopen(Request(url, body, KIND)) as answer:
        assert answer.status == 200


def test_it_says_one_line_when_it_is_ready(command, tmp_path):
    with started(command, forks.real) as (process, line):
        assert line.startswith("sow: listening on http://127.0.0.1:")
        assert line.endswith(f" (1 topics, data in {tmp_path / 'data'})\n")
        process.terminate()
        out, said = process.communicate(timeout=END_S_MAX)
        assert (out, process.returncode) == ("", 0)
        started_at, stopping, stopped = lines_of(said)
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO app: started at http://127\.0\.0\.1:\d+: "
            r"\d+ topics, 0 records restored in [\d.]+ s, data in .*, version .*",
            started_at,
        )
        assert stopping.endswith(" INFO app: stopping")
        assert stopped.endswith(" INFO app: stopped: everything is stored")


def test_the_line_may_be_json_and_an_interrupt_stops_it_cleanly(command, tmp_path):
    options = ["--json", "--data-dir", str(tmp_path / "d"), "--host", "localhost"]
    with started([*command, *options]) as (process, line):
        ready = json.loads(line)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=END_S_MAX)[0] == ""
        assert process.returncode == 0
    assert (ready["topics"], ready["data_directory"]) == (1, str(tmp_path / "d"))


def test_followers_are_on_the_ports_after_its_own_with_data_of_their_own():
    configuration = Configuration("test", host="127.0.0.1", data_directory="data")
    inside, public = "http://127.0.0.1:41000", "http://127.0.0.1:9000"
    found = _followers(2, ["x.xml"], inside, public, configuration, "secret")
    words = {name: one.words[4:] for name, one in found.items()}
    assert [*words] == ["follower 1", "follower 2"]
    assert words["follower 2"] == [
        "x.xml", "--follow", inside, "--host", "127.0.0.1", "--port", "9002",
        "--data-dir", "data/followers/2", "--until-input-ends",
    ]  # fmt: skip
    assert all(one.is_server and one.token == "secret" for one in found.values())


def test_a_second_server_on_the_same_data_says_who_has_it(command):
    with started(command) as (process, _):
        second = forks.run(command, capture_output=True, text=True, timeout=END_S_MAX)
    assert second.returncode == 1
    assert f"in use by process {process.pid}" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_mistake_in_the_configuration_keeps_it_from_starting(command):
    assert "config.xml:1: " in refused(command, "--set", "TOPIC=")


def test_watching_ends_quietly_on_an_interrupt(command):
    with started(command) as (_, line):
        watch = [sys.executable, "-m", "sow.cli", "watch", "orders", "--url", line.split()[3]]
        publish(line, {"id": 1})
        with started(watch) as (process, first):
            assert json.loads(first)["d"] == {"id": 1}
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=END_S_MAX) == ("", "")
            assert process.returncode == 130


def test_output_that_nobody_reads_ends_quietly(command):
    with started(command) as (_, line):
        url = line.split()[3]
        sow = [sys.executable, "-m", "sow.cli"]
        rows = "\n".join(f'{{"id":{number},"text":"{"x" * 500}"}}' for number in range(2000))
        forks.run(
            [*sow, "publish", "orders", "--url", url],
            input=rows, text=True, check=True, capture_output=True,
        )  # fmt: skip
        query = [*sow, "query", "orders", "--format", "ndjson", "--url", url]
        with started(query) as (process, _):
            process.stdout.close()
            process.wait(END_S_MAX)
            assert process.stderr.read() == ""


def test_a_line_that_cannot_be_written_ends_no_server(monkeypatch):
    """Such as where the output is a file on a disk that is full when a node changes its role."""

    def full(*_said):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(serve, "show", full)
    serve._announce(Configuration("it"), "http://127.0.0.1:1")


def test_repair_takes_what_the_errors_recommend(tmp_path, capsys):
    (tmp_path / "journal").mkdir()
    command = [sys.executable, "-m", "sow.cli", "repair", str(tmp_path), str(tmp_path / "journal")]
    done = forks.run([*command, "--after", "7"], capture_output=True, text=True, timeout=END_S_MAX)
    assert done.returncode == 0
    other = tmp_path / "other"
    (other / "journal").mkdir(parents=True)
    repair.main([str(other), str(other / "journal"), "--after", "7"])
    expected = capsys.readouterr().out.replace(str(other), str(tmp_path))
    assert done.stdout == expected


def test_sighup_reads_the_file_again_or_says_why_not(command, tmp_path):
    more = """<ConflatedTopic><Name>c</Name><MessageType>json</MessageType>
    <UnderlyingTopic>orders</UnderlyingTopic></ConflatedTopic></SOW>"""
    with started(command) as (process, _):
        (tmp_path / "config.xml").write_text(CONFIG.replace("</SOW>", more))
        process.send_signal(signal.SIGHUP)
        assert logged(process).endswith(" INFO app: reloaded: conflated topic c added\n")
        (tmp_path / "config.xml").write_text(CONFIG.replace("<Key>", "<Kee>"))
        process.send_signal(signal.SIGHUP)
        assert " WARNING app: not reloaded: " in logged(process)
        process.terminate()
        assert process.wait(timeout=END_S_MAX) == 0


def test_a_node_that_waits_for_its_log_says_so_and_takes_no_sighup_for_an_end(command, tmp_path):
    """Nobody answers at the engine's address, so there is no server yet."""
    port, *engine = free_ports(4)
    shared = "<Log><Engine>nats</Engine><Servers>{}</Servers><Node>a</Node></Log><SOW>"
    servers = ",".join(f"nats://127.0.0.1:{one}" for one in engine)
    (tmp_path / "config.xml").write_text(CONFIG.replace("<SOW>", shared.format(servers)))
    command[-1] = str(port)
    process = forks.started(command, stdout=forks.PIPE, stderr=forks.PIPE, text=True)
    try:
        end_s = time.monotonic() + END_S_MAX
        while "the engine of the shared log does not answer" not in answer_of(port, "readyz")[1]:
            assert time.monotonic() < end_s  # it is asked first, and then said
            time.sleep(0.05)
        said = {path: answer_of(port, path) for path in ("healthz", "v1/topics")}
        process.send_signal(signal.SIGHUP)
        status, why = answer_of(port, "readyz")
        process.terminate()
        out, log = process.communicate(timeout=END_S_MAX)
    finally:
        process.kill()
    assert (status, said["v1/topics"][0], why.split(": ")[0]) == (503, 503, "replaying")
    assert json.loads(said["v1/topics"][1])["reason"] == "replaying"
    assert said["healthz"] == (200, "ok\n")
    assert (out, process.returncode) == ("", 0)
    assert " WARNING serve: not reloaded: the server is not there yet; send SIGHUP again" in log


def test_a_stop_ends_what_forgets_that_it_was_cancelled():
    async def work():
        stop = asyncio.Event()
        stop.set()
        return await _done_unless(stop, forgetting(1))

    assert not played(work)[0]


@pytest.mark.parametrize("goes_on", [None, "a task", "a thread", "its server"])
def test_a_process_ends_in_time_whatever_goes_on(goes_on, monkeypatch, capsys):
    codes, tasks, times = [], [], 1000 if goes_on == "a task" else 1
    monkeypatch.setattr(supervision.os, "_exit", codes.append)

    async def serving():
        tasks.append(asyncio.create_task(forgetting(times)))
        await asyncio.sleep(0)
        return goes_on != "its server"

    async def work():
        if goes_on == "a thread":
            loop = asyncio.get_running_loop()
            monkeypatch.setattr(loop, "shutdown_default_executor", lambda: asyncio.sleep(1e6))
        await supervision.stopped(serving(), STOP_S_MAX)

    _, took_s = played(work)
    assert took_s < 2 * STOP_S_MAX
    assert codes == ([] if goes_on is None else [1])
    assert ("gave up stopping" in capsys.readouterr().err) == (goes_on is not None)


def test_what_is_wrong_is_said_and_not_that_something_goes_on():
    async def refused():
        tasks.append(asyncio.create_task(forgetting(1)))
        await asyncio.sleep(0)
        raise StoreError("no")

    tasks = []
    with pytest.raises(StoreError):
        played(lambda: supervision.stopped(refused(), STOP_S_MAX))
    assert tasks[0].done()


def answer_of(port, path):
    """What is answered there, once somebody listens."""
    end_s = time.monotonic() + END_S_MAX
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/{path}", timeout=END_S_MAX) as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
        except URLError:
            assert time.monotonic() < end_s
            time.sleep(0.05)


def test_a_reload_sees_what_has_changed_in_an_included_file(command, tmp_path):
    sow = "<ConflatedTopic><Name>c</Name><MessageType>json</MessageType>"
    sow += "<UnderlyingTopic>orders</UnderlyingTopic><Interval>{}</Interval></ConflatedTopic>"
    including = CONFIG.replace("</SOW>", "<Include>copies.xml</Include></SOW>")
    (tmp_path / "config.xml").write_text(including)
    (tmp_path / "copies.xml").write_text(sow.format("1s"))
    with started(command) as (process, _):
        (tmp_path / "copies.xml").write_text(sow.format("2s"))
        process.send_signal(signal.SIGHUP)
        assert logged(process).endswith(" INFO app: reloaded: interval of c changed\n")
        (tmp_path / "copies.xml").unlink()
        process.send_signal(signal.SIGHUP)
        said = logged(process)
        assert " WARNING app: not reloaded: " in said
        assert "copies.xml' cannot be read: No such file or directory" in said


def test_it_does_not_listen_beyond_loopback_unless_that_is_meant(command, tmp_path):
    config = tmp_path / "config.xml"
    for text, options, place in (
        (CONFIG, ["--host", "0.0.0.0"], "--host"),
        (CONFIG.replace("<SOW>", "\n<Listen>0.0.0.0:0</Listen><SOW>"), [], f"{config}:2: Listen"),
    ):
        config.write_text(text)
        (said,) = refused(command, *options).splitlines()
        assert said.startswith(f"{place}: error: 0.0.0.0 is not loopback")
        assert "--insecure" in said
        with started([*command, *options, "--insecure"]) as (process, line):
            assert line.startswith("sow: listening on http://0.0.0.0:")
            warned = process.stderr.readline()
            process.send_signal(signal.SIGTERM)
            said = lines_of(process.communicate(timeout=END_S_MAX)[1])
            assert not [line for line in said if " WARNING " in line]
        assert warned.startswith(f"{place}: warning: 0.0.0.0 is not loopback")
    # What counts is where it listens in the end.
    with started([*command, "--host", "localhost"]) as (_, line):
        assert line.startswith("sow: listening on http://")


def test_a_start_that_would_lose_records_is_refused_until_it_may(command, tmp_path):
    with started(command) as (process, line):
        publish(line, {"id": 1})
        process.terminate()
        assert process.wait(timeout=END_S_MAX) == 0
    renamed = [part.replace("TOPIC=orders", "TOPIC=trades") for part in command]
    done = forks.run(renamed, capture_output=True, text=True, timeout=END_S_MAX)
    assert (done.returncode, done.stdout) == (1, "")
    assert "orders (1 record; orders is not defined any more)" in done.stderr
    assert "start with --allow-loss" in done.stderr
    assert len(lines_of(done.stderr)) == 1
    with started([*renamed, "--allow-loss"]) as (process, line):
        assert line.startswith("sow: listening")
        process.terminate()
        assert "given up: topic orders, 1 records" in process.communicate(timeout=END_S_MAX)[1]
    (found,) = (tmp_path / "data" / "removed").glob("*/orders.ndjson")
    assert json.loads(found.read_bytes()) == {"id": 1}


HELD = """
import sys
from pathlib import Path
from sow.cli.main import main
from sow.server.boot import app
from sow.server.api import status

held_at, gate = int(sys.argv[1]), Path(sys.argv[2])

class Held(app.ServerBootstrap):
    def open(self, counted):
        for number, _ in enumerate(super().open(counted)):
            while number == held_at and not gate.exists():
                yield
            yield

app.ServerBootstrap = Held
status.LOGGED_EVERY_S = 0.01
sys.argv = ["sow", *sys.argv[3:]]
main()
"""
"""`sow serve` that stops after so many steps of its start, until a file is there."""


@pytest.fixture(scope="module")
def two_records(tmp_path_factory):
    """The data of a server that has stored two records, for tests to copy."""
    directory = tmp_path_factory.mktemp("two")
    with started(command_in(directory)) as (process, line):
        publish(line, {"id": 1}, {"id": 2})
        process.terminate()
        assert process.wait(timeout=END_S_MAX) == 0
    return directory / "data"


@pytest.fixture
def held_start(command, two_records, tmp_path):
    """Starts on a directory with two records, one of them only in the log; held after a step."""
    shutil.copytree(two_records, tmp_path / "data")
    gate = tmp_path / "gate"

    @contextmanager
    def start(step):
        held = [sys.executable, "-c", HELD, str(step), str(gate), *command[3:]]
        with forks.started(
            held, stdout=forks.PIPE, stderr=forks.PIPE, text=True, bufsize=1
        ) as process:
            try:
                # It says how far it is, and where requests wait; a busy machine is named before.
                line = next(line for line in process.stderr if "http://" in line)
                yield process, re.search(r"http://\S+", line)[0]
            finally:
                process.kill()

    start.gate = gate
    return start


def test_while_records_are_put_back_it_says_so_and_requests_wait(held_start):
    with held_start(0) as (process, url):
        with urlopen(f"{url}/healthz") as answer:
            assert answer.read() == b"ok\n"
        with pytest.raises(HTTPError) as refused:
            urlopen(f"{url}/readyz")
        assert refused.value.code == 503
        assert refused.value.read().startswith(b"replaying: orders, ")
        query = [sys.executable, "-m", "sow.cli", "query", "orders", "--url", url]
        query += ["--format", "ndjson"]
        with forks.started(query, stdout=forks.PIPE, text=True) as asking:
            held_start.gate.touch()
            assert process.stdout.readline().startswith(f"sow: listening on {url} ")
            assert asking.communicate()[0] == '{"id":1}\n{"id":2}\n'
        process.terminate()
        assert process.wait(END_S_MAX) == 0


# That SIGINT is the same as SIGTERM is seen above.
# Each step has one of the two by default: tests/crash/test_dying.py dies at every step.
@pytest.mark.parametrize(
    ("step", "number"),
    [
        (0, signal.SIGTERM),
        (2, signal.SIGKILL),
        pytest.param(0, signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param(2, signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_start_can_be_ended_at_any_step_and_loses_nothing(held_start, command, number, step):
    with held_start(step) as (process, _):
        process.send_signal(number)
        assert process.wait(END_S_MAX) == (-number if number == signal.SIGKILL else 0)
        assert process.stdout.read() == ""
        assert "Traceback" not in process.stderr.read()
    with (
        started(command) as (_, line),
        urlopen(f"{line.split()[3]}/v1/topics/orders/records") as answer,
    ):
        assert json.loads(answer.read()) == [{"id": 1}, {"id": 2}]


def test_a_reload_that_waits_for_a_start_that_is_ended_is_sent_why_nothing_came_of_it(held_start):
    with held_start(0) as (process, _):
        process.send_signal(signal.SIGHUP)
        process.terminate()
        assert process.wait(END_S_MAX) == 0
        said = lines_of(process.stderr.read())[-1]
        assert said.endswith(" WARNING app: not reloaded: the server stops")


def test_damage_that_is_found_on_the_way_ends_the_start_with_a_sentence(command, tmp_path):
    with started(command) as (process, line):
        publish(line, {"id": "planted"})
        publish(line, {"id": "later"})
        process.terminate()
        assert process.wait(timeout=END_S_MAX) == 0
    file = tmp_path / "data" / "journal" / "data.mdb"
    file.write_bytes(file.read_bytes().replace(b"planted", b"changed"))
    done = forks.run(command, capture_output=True, text=True, timeout=END_S_MAX)
    assert (done.returncode, done.stdout) == (1, "")
    assert "is whole up to record 0: the checksum does not match" in done.stderr
    assert "stop the server and run: " in done.stderr
    assert len(lines_of(done.stderr)) == 1


def topics_of(*named):
    base = [sys.executable, "-m", "sow", "serve", "--port", "0"]
    return [*base, *(word for name in named for word in ("--topic", name))]


def test_topics_may_be_served_without_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for expected in (0, 1):
        with started(topics_of("orders:/id", "notes")) as (process, line):
            assert line.endswith(" (2 topics, data in data)\n")
            assert len(records(line)) == expected
            publish(line, {"id": 7})
            process.terminate()
            process.communicate(timeout=END_S_MAX)
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def records(line):
    with urlopen(f"{line.split()[3]}/v1/topics/orders/records") as answer:
        return json.load(answer)


def test_what_began_without_a_file_goes_on_with_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with started(topics_of("orders:/id")) as (process, line):
        publish(line, {"id": 7})
        process.terminate()
        process.communicate(timeout=END_S_MAX)
    made = CliRunner().invoke(main, ["init", "--topic", "orders:/id", "--yes"])
    assert made.exit_code == 0
    with started([sys.executable, "-m", "sow", "serve", "--port", "0"]) as (_, line):
        assert records(line) == [{"id": 7}]


def test_a_folder_of_other_data_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.csv").write_text("a,b\n")
    assert "choose where to keep records: --data-dir" in refused(topics_of("orders:/id"))
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["mine.csv"]


def test_a_file_and_topics_do_not_go_together(command):
    result = CliRunner().invoke(main, [*command[3:], "--topic", "orders:/id"])
    assert (result.exit_code, "--topic replaces CONFIG" in result.stderr) == (2, True)


def test_a_server_follows_or_is_chained(command):
    both = ("--follow", "http://127.0.0.1:1", "--upstream", "http://127.0.0.1:1")
    result = CliRunner().invoke(main, [*command[3:], *both])
    assert (result.exit_code, "give one" in result.stderr) == (2, True)
    result = CliRunner().invoke(main, [*command[3:], "--follow", "ftp://x"])
    assert (result.exit_code, "is not an address" in result.stderr) == (1, True)


@pytest.mark.parametrize("option", ["--upstream", "--follow"])
def test_a_server_of_a_private_authority_is_trusted_by_its_file_alone(tmp_path, option):
    made = certificates(tmp_path)
    (tmp_path / "other").mkdir()
    other = certificates(tmp_path / "other", signed_by="two")
    primary = command_in(tmp_path)
    secured = CONFIG.replace("<SOW>", f"<Security>{made.element}</Security><SOW>")
    (tmp_path / "config.xml").write_text(secured)
    (tmp_path / "below").mkdir()
    below = [sys.executable, "-m", "sow.cli", "serve", "--port", "0"]
    if option == "--follow":
        below += ["--data-dir", str(tmp_path / "below" / "data")]
    with started([*primary, "--data-dir", str(tmp_path / "d")], forks.real) as (_, line):
        url = line.split()[3]
        begin = partial(forks.real, cwd=tmp_path / "below")
        with started([*below, option, url, "--ca", made.ca], begin) as (_, ready):
            assert ready.startswith("sow: listening on http://127.0.0.1:"), "without a config.xml"
            with urlopen(f"{ready.split()[3]}/v1/topics") as answer:
                assert [one["name"] for one in json.loads(answer.read())] == ["orders"]
        said = forks.real(
            [*below, option, url, "--ca", other.ca],
            cwd=tmp_path / "below", stdout=forks.PIPE, stderr=forks.PIPE, text=True,
        )  # fmt: skip
        try:
            while "its certificate is not trusted (" not in said.stderr.readline():
                assert said.poll() is None
        finally:
            said.kill()
            said.communicate()


URL = "https://a:8080"


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_folder_that_holds_something_else_is_left_alone(here):
    check_folder("starter", None)
    (here / "data").mkdir()
    check_folder("starter", None)
    (here / "data" / "following").mkdir()
    check_folder("starter", None)
    (here / "data" / "thesis.txt").touch()
    with pytest.raises(ClientError, match="--data-dir"):
        check_folder("starter", None)
    check_folder("starter", "elsewhere")
    check_folder("", None)
    (here / "data" / "manifest.json").touch()
    check_folder("starter", None)


def test_there_is_one_server_above_or_none():
    assert server_above(None, None, "t", None, False) is None
    with pytest.raises(click.UsageError, match="give one"):
        server_above(URL, URL, None, None, False)
    with pytest.raises(ClientError, match="is not an address"):
        server_above(None, "ftp://x", None, None, False)
    assert server_above(URL, None, "t", None, False) == Upstream(URL, "t")


def test_a_server_beside_another_is_let_in_by_its_token_and_acts_for_nobody(here):
    assert server_above(None, URL, "t", None, True) == Upstream(URL, "t")
    edge = server_above(URL, None, "t", "no such file", True)
    assert edge == Upstream(URL, report_token="t"), "its server listens without TLS"


def test_an_authority_is_trusted_where_a_file_names_it(here):
    found = server_above(URL, None, None, certificates(here).ca, False)
    assert isinstance(found.encryption, ssl.SSLContext)
    (here / "empty.pem").touch()
    for file in ("absent.pem", "empty.pem", os.curdir):
        with pytest.raises(ClientError, match=f"ca {file} cannot be used"):
            server_above(URL, None, None, file, False)
