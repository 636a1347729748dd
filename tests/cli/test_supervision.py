"""What runs beside a server: started, started again when it fails, stopped with the server."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from sow.cli import supervision
from sow.cli.supervision import Beside, pipeline_words, supervised

WAIT_S = 60


@pytest.fixture(autouse=True)
def _hurry(monkeypatch):
    monkeypatch.setattr(supervision, "PAUSE_S", 0.01)
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())


def script(text):
    return Beside([sys.executable, "-c", text])


def watch(commands, count):
    """Run commands until so much was said of them; what was said."""

    async def run():
        said, enough = [], asyncio.Event()

        def say(text):
            said.append(text)
            if len(said) >= count:
                enough.set()

        async with supervised(commands, say):
            if count:
                await asyncio.wait_for(enough.wait(), WAIT_S)
        return said

    return asyncio.run(run())


def test_one_that_fails_is_started_again_and_its_reason_is_said(tmp_path):
    text = f"import sys; open({str(tmp_path / 'runs')!r}, 'a').write('x'); "
    text += "print('noise', file=sys.stderr); print('sow: no such topic', file=sys.stderr); exit(1)"
    said = watch({"bars": script(text)}, 3)
    assert [line.partition(";")[0] for line in said] == ["no such topic"] * 3
    assert said[1].endswith("trying again in 0.02 s")
    assert len((tmp_path / "runs").read_text()) >= 3


def test_one_that_has_nothing_to_say_is_named():
    (said,) = watch({"bars": script("exit(3)")}, 1)
    assert said.startswith("pipeline bars ended with code 3; trying again")


def test_a_server_is_started_again_however_it_ended_and_its_log_is_passed_on(tmp_path, capfd):
    text = f"import sys; open({str(tmp_path / 'runs')!r}, 'a').write('x'); "
    text += "print('a line of its log', file=sys.stderr)"
    said = watch({"follower 1": script(text)._replace(is_server=True, pause_s=0.01)}, 2)
    assert said[0].startswith("follower 1 ended with code 0; trying again in 0.01 s")
    assert len((tmp_path / "runs").read_text()) >= 2
    assert "a line of its log\n" in capfd.readouterr().err


def test_servers_need_no_spark(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    one = script("exit(3)")._replace(is_server=True, pause_s=0.01)
    said = watch({"bars": script(""), "follower 1": one}, 2)
    assert said[0] == "Spark is not installed, so these do not run: bars"
    assert said[1].startswith("follower 1 ended with code 3")


def test_one_that_is_done_is_left_alone(tmp_path):
    done = f"open({str(tmp_path / 'done')!r}, 'a').write('x')"
    # It fails once the other one is done, and not before.
    fails = f"import pathlib, time; done = pathlib.Path({str(tmp_path / 'done')!r})\n"
    fails += "while not (done.exists() and done.read_text()): time.sleep(0.01)\nexit(1)"
    watch({"once": script(done), "other": script(fails)}, 3)
    assert (tmp_path / "done").read_text() == "x"


def test_it_is_stopped_with_the_server_also_when_it_will_not(tmp_path, monkeypatch):
    monkeypatch.setattr(supervision, "STOP_S_MAX", 0.2)
    fifo = tmp_path / "pid"
    os.mkfifo(fifo)
    text = "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    text += f"open({str(fifo)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    async def run():
        async with supervised({"stubborn": script(text)}, lambda _text: None):
            return int(await asyncio.to_thread(fifo.read_text))

    pid = asyncio.run(run())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_is_the_server_itself_has_its_token_where_nobody_sees_it(tmp_path):
    text = f"import os; open({str(tmp_path)!r} + '/said', 'w').write(os.environ['SOW_TOKEN'])"
    own = Beside(script(text + "; exit(1)").words, "sow_own")
    watch({"engine": own}, 1)
    assert (tmp_path / "said").read_text() == "sow_own"
    assert "sow_own" not in " ".join(own.words)


def test_where_spark_is_not_installed_it_is_said_once(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    (said,) = watch({"bars": script("exit(1)")}, 1)
    assert said == "Spark is not installed, so these do not run: bars"


def test_the_command_line_names_what_the_server_runs_with(tmp_path):
    words = pipeline_words("bars", "c.xml", "http://h:1", tmp_path, {"A": "b"})
    assert words[1:] == [
        "-m", "sow.cli", "pipeline", "run", "bars", "--config", "c.xml", "--url", "http://h:1",
        "--data-dir", str(tmp_path), "--until-input-ends", "--set", "A=b",
    ]  # fmt: skip


def test_what_becomes_of_one_is_noted_with_its_figures():
    text = 'import sys; print(\'noise\'); print(\'{"rows_in":9,"rows_out":3,"rows_per_s":5,'
    text += "\"lag\":1}', flush=True); print('sow: no more', file=sys.stderr); exit(1)"

    async def run():
        noted, said = {}, asyncio.Event()

        def note(name, **known):
            noted.update(known)
            if "error" in noted and "behind" in noted:
                said.set()

        async with supervised({"bars": script(text)}, lambda _text: None, note):
            await asyncio.wait_for(said.wait(), WAIT_S)
        return noted

    noted = asyncio.run(run())
    assert noted["error"] == "no more"
    assert noted["state"] in ("failed", "running")
    figures = (noted["rows_in"], noted["rows_out"], noted["rows_per_s"], noted["behind"])
    assert figures == (9, 3, 5, 1)


def restarting(tmp_path, ends, requests):
    """What is noted of a command that says `ends` at its end, while `requests`, functions of the
    runs so far, are called with what restarts it."""
    file = str(tmp_path / "runs")
    open(file, "w").close()
    text = f"import signal; open({file!r}, 'a').write('x'); print('{{\"rows_in\": 1, "
    text += f'"dead_letters": 2}}\', flush=True); {ends}'

    async def run():
        noted, offered, moved = [], {}, asyncio.Event()

        def note(_name, **known):
            noted.append(known)
            moved.set()

        async def until(wanted):
            while not any(wanted.items() <= known.items() for known in noted):
                moved.clear()
                await asyncio.wait_for(moved.wait(), WAIT_S)

        async with supervised({"bars": script(text)}, lambda _: None, note, offered.__setitem__):
            for wanted, request in requests:
                await until(wanted)
                request(offered["bars"])
            await until({"dead_letters": 2 * (len(requests) + 1)})
        return [known["run"] for known in noted if "run" in known], noted

    return asyncio.run(run())


def test_one_that_runs_is_ended_and_begins_again_once_for_each_run(tmp_path):
    answers = []

    def request(restart):
        answers.extend([restart(1), restart(1), restart(None)])

    def repeated(restart):
        answers.extend([restart(1), restart(2)])

    requests = [({"dead_letters": 2}, request), ({"dead_letters": 4}, repeated)]
    runs, noted = restarting(tmp_path, "signal.pause()", requests)
    assert runs == [1, 2, 3]
    assert answers == [2, 2, 2, 2, 3], "a run that is over is not ended again"
    assert [known for known in noted if "error" in known] == [], "it was meant"


def test_one_that_is_done_or_waits_after_a_failure_begins_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(supervision, "PAUSE_S", 1e6)
    for ends, state in (("", "done"), ("exit(1)", "failed")):
        runs, _ = restarting(tmp_path, ends, [({"state": state}, lambda restart: restart())])
        assert runs == [1, 2]


def test_what_java_said_at_its_end_is_part_of_the_reason():
    text = "import sys; say = lambda text: print(text, file=sys.stderr); "
    text += "say('Exception in thread x java.lang.RuntimeException: [not found: a#b;1]');"
    text += "say('sow: pipeline bars: Setting: Java ended before Spark began'); exit(1)"
    (said,) = watch({"bars": script(text)}, 1)
    assert said.startswith(
        "pipeline bars: Setting: Java ended before Spark began (java.lang.RuntimeException: [not"
    )


CHILD = """
import os, signal, subprocess, sys
from sow.cli.supervision import end_with_input
{before}
waiting = end_with_input({patience_s})
open({fifo!r}, "w").write(str(os.getpid()))
waiting.join()
signal.pause()
"""
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
held = open({held!r}, "w")
subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], pass_fds=[held.fileno()])
"""
SERVER = """
import asyncio, importlib.util, sys
from sow.cli.supervision import Beside, supervised
importlib.util.find_spec = lambda _name: object()
async def run():
    async with supervised({{"one": Beside([sys.executable, "-c", {child!r}])}}, print):
        await asyncio.Event().wait()
asyncio.run(run())
"""


@pytest.fixture
def fifo(tmp_path):
    os.mkfifo(tmp_path / "pid")
    return str(tmp_path / "pid")


def python(text, **more):
    return subprocess.Popen([sys.executable, "-c", text], **more)


def test_it_is_requested_to_stop_when_its_input_ends(fifo):
    child = CHILD.format(before="", patience_s=WAIT_S, fifo=fifo)
    process = python(child, stdin=subprocess.PIPE)
    with open(fifo) as began:
        assert int(began.read()) == process.pid
    process.stdin.write(b"nobody says anything")
    process.stdin.close()
    assert process.wait(WAIT_S) == -signal.SIGTERM


def test_with_a_server_that_is_killed_it_goes_and_what_it_has_started_too(fifo, tmp_path):
    """A process that ignores a stop request still ends with the pipe that it has inherited."""
    held = str(tmp_path / "held")
    os.mkfifo(held)
    child = CHILD.format(before=STUBBORN.format(held=held), patience_s=0, fifo=fifo)
    server = python(SERVER.format(child=child))
    with open(held) as ends, open(fifo) as began:
        assert began.read()
        server.kill()
        server.wait(WAIT_S)
        assert ends.read() == ""
