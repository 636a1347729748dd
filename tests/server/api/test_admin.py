"""The configuration file and the pipelines, for operators."""

import asyncio
import threading
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from sow.config.diagnostics import Finding, Reviewed
from sow.core.definitions import Configuration
from sow.core.pipelines import Pipeline, PipelineOption, Sink, Source
from sow.errors import Busy, ConfigError
from sow.server.api import admin
from sow.server.api.admin import AdminHandler, Board, gathered_frames
from tests.server.stand_ins import ORDERS, Served, World, routes_to, stepped

BARS = Pipeline(
    name="bars",
    sources=(Source(format="sow", topic="orders"),),
    sink=Sink(topic="bars"),
    autostart=True,
)


def administering(look=None, reread=None, board=None, pipelines=(), reload=None):
    """The handler of a world that has these."""
    configuration = Configuration("test", (ORDERS,), pipelines=pipelines)
    engine = SimpleNamespace(configuration=configuration)
    runtime = World().runtime
    return AdminHandler(runtime, engine, None, reload, reread, look, board or Board())


def place(door):
    return Served(World(), *routes_to(door))


@stepped
async def test_the_file_is_sent_as_it_is_now_with_what_is_wrong_with_it():
    finding = Finding("config.xml", 2, "Topic", "error", "has no Name", "write <Name>")
    found = [Reviewed("config.xml", "<SOWConfig/>", ())]
    async with place(administering(lambda: found[-1])) as served:
        assert (await served.get("/v1/config/file")).json == {
            "file": "config.xml",
            "text": "<SOWConfig/>",
            "findings": [],
            "values": None,
        }
        found.append(Reviewed("config.xml", "<SOWConfig>\n<Topic/>", (finding,)))
        answer = (await served.get("/v1/config/file")).json
    assert answer["text"] == "<SOWConfig>\n<Topic/>"
    assert answer["findings"] == [
        {
            "file": "config.xml",
            "line": 2,
            "element": "Topic",
            "severity": "error",
            "message": "has no Name",
            "instead": "write <Name>",
        }
    ]


@stepped
async def test_the_values_of_the_file_are_those_that_a_reload_would_go_by():
    found = [Configuration(name="as it is now", port=0)]

    def reread():
        if not found:
            raise ConfigError("config.xml:1: SOWConfig: has no Name")
        return found[0]

    door = administering(lambda: Reviewed("config.xml", "", ()), reread=reread)
    async with place(door) as served:
        assert (await served.get("/v1/config/file")).json["values"]["name"] == "as it is now"
        found.clear()
        assert (await served.get("/v1/config/file")).json["values"] is None


@stepped
async def test_values_that_may_be_secrets_are_not_sent():
    files = Sink(format="parquet", options=(PipelineOption("password", "hunter2"),))
    found = Configuration(name="", port=0, pipelines=(replace(BARS, sink=files),))
    door = administering(lambda: Reviewed("config.xml", "", ()), reread=lambda: found)
    async with place(door) as served:
        answer = await served.get("/v1/config/file")
    assert b"hunter2" not in answer.body
    assert b"password" in answer.body


@stepped
async def test_a_server_that_was_not_started_from_a_file_says_so():
    async with place(administering()) as served:
        answer = (await served.get("/v1/config/file")).json
    assert answer == {"file": None, "text": "", "findings": [], "values": None}


@stepped
async def test_a_pipeline_is_sent_with_what_is_known_of_its_run():
    board = Board()
    async with place(administering(board=board, pipelines=(BARS,))) as served:
        (before,) = (await served.get("/v1/pipelines")).json
        board.note("bars", state="running", rows_per_s=7)
        board.note("bars", rows_per_s=9)
        (running,) = (await served.get("/v1/pipelines")).json
        board.note("bars", state="failed", error="no such topic")
        (failed,) = (await served.get("/v1/pipelines")).json
    assert (before["source"], before["sink"], before["topic"]) == (
        "sow orders",
        "topic bars",
        "bars",
    )
    assert (before["state"], before["error"]) == ("not run by this server", None)
    assert (running["state"], running["rows_per_s"]) == ("running", 9)
    assert (failed["state"], failed["error"], failed["rows_per_s"]) == (
        "failed",
        "no such topic",
        9,
    )


@stepped
async def test_a_pipeline_is_restarted_where_it_runs_beside_this_server():
    board, runs = Board(lambda: 0), []
    board.note("bars", state="failed", error="no such topic")
    assert board.of("bars")["error_ts"] == "1970-01-01T00:00:00.000000Z"
    async with place(administering(board=board, pipelines=(BARS,))) as served:
        refused = await served.ask("POST", "/v1/pipelines/bars/restart")
        assert (refused.status, "no Autostart" in refused.json["detail"]) == (400, True)
        board.offer("bars", lambda run: runs.append(run) or 8)
        answer = await served.ask("POST", "/v1/pipelines/bars/restart?run=7")
        assert (answer.json, runs) == ({"name": "bars", "run": 8}, [7])
        await served.ask("POST", "/v1/pipelines/bars/restart")
        assert runs == [7, None]
        unknown = await served.ask("POST", "/v1/pipelines/bras/restart")
        assert (unknown.status, runs) == (404, [7, None])


@stepped
async def test_the_configuration_is_sent_and_read_again():
    reloads = []

    async def reload(allow_loss):
        reloads.append(allow_loss)
        if allow_loss:
            raise ConfigError("the file has a mistake")
        return ["orders-C: added"]

    async with place(administering(reload=reload)) as served:
        topics = (await served.get("/v1/config")).json["topics"]
        assert [topic["name"] for topic in topics] == ["orders"], "none of the server's own"
        reloaded = await served.ask("POST", "/v1/config/reload")
        assert reloaded.json == {"changes": ["orders-C: added"]}
        refused = await served.ask("POST", "/v1/config/reload?allow_loss=true")
        assert (refused.status, "the file has a mistake" in refused.json["detail"]) == (400, True)
        assert reloads == [False, True]


def counted(closed, pieces=3):
    try:
        yield from (b"%d" % number for number in range(pieces))
    finally:
        closed.append(True)


def test_frames_travel_together_and_are_let_go_of_at_the_end(monkeypatch):
    monkeypatch.setattr(admin, "SENT_BYTES", 2)
    closed = []
    assert list(gathered_frames(counted(closed))) == [b"01", b"2"]
    assert closed == [True]


def test_what_is_given_up_lets_go_of_what_it_held():
    closed = []
    with closing(gathered_frames(counted(closed, 10**9))) as made:
        next(made)
    assert closed == [True]


@stepped
async def test_there_is_one_at_a_time_and_the_next_when_it_is_over(monkeypatch):
    closed = []
    monkeypatch.setattr(admin, "frames", lambda *_: counted(closed))
    door = administering()
    with (
        door._alone("backup"),
        pytest.raises(Busy, match="a backup is running already"),
        door._alone("backup"),
    ):
        pass
    async with place(door) as served:
        for _ in range(2):
            answer = await served.ask("POST", "/v1/backup")
            assert (answer.status, answer.body) == (200, b"012")
    assert closed == [True, True]


def test_a_thread_makes_what_is_requested_for_and_closes_it():
    closed = threading.Event()

    def pieces():
        try:
            yield from (b"0", b"1")
        finally:
            closed.set()

    async def first():
        made = admin._in_a_thread(pieces())
        piece = await anext(made)
        await made.aclose()
        return piece

    assert asyncio.run(first()) == b"0"
    assert closed.wait(60)
