"""The configuration file and the pipelines, for operators."""

from dataclasses import replace

from sow.config.diagnostics import Finding, Reviewed
from sow.core.definitions import Configuration
from sow.core.pipelines import Pipeline, PipelineOption, Sink, Source
from sow.errors import ConfigError
from sow.server.api.admin import AdminHandler, Board
from sow.server.boot.routes import Route
from tests.server.stand_ins import Served, World, stepped

BARS = Pipeline(
    name="bars",
    sources=(Source(format="sow", topic="orders"),),
    sink=Sink(topic="bars"),
    autostart=True,
)


def place(door):
    return Served(
        World(),
        Route("GET", "/file", "admin", door.file, ""),
        Route("GET", "/pipelines", "admin", door.pipelines, ""),
    )


@stepped
async def test_the_file_is_sent_as_it_is_now_with_what_is_wrong_with_it():
    finding = Finding("config.xml", 2, "Topic", "error", "has no Name", "write <Name>")
    found = [Reviewed("config.xml", "<SOWConfig/>", ())]
    async with place(AdminHandler(lambda: found[-1])) as served:
        assert (await served.get("/file")).json == {
            "file": "config.xml",
            "text": "<SOWConfig/>",
            "findings": [],
            "values": None,
        }
        found.append(Reviewed("config.xml", "<SOWConfig>\n<Topic/>", (finding,)))
        answer = (await served.get("/file")).json
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

    door = AdminHandler(lambda: Reviewed("config.xml", "", ()), reread=reread)
    async with place(door) as served:
        assert (await served.get("/file")).json["values"]["name"] == "as it is now"
        found.clear()
        assert (await served.get("/file")).json["values"] is None


@stepped
async def test_values_that_may_be_secrets_are_not_sent():
    files = Sink(format="parquet", options=(PipelineOption("password", "hunter2"),))
    found = Configuration(name="", port=0, pipelines=(replace(BARS, sink=files),))
    door = AdminHandler(lambda: Reviewed("config.xml", "", ()), reread=lambda: found)
    async with place(door) as served:
        answer = await served.get("/file")
    assert b"hunter2" not in answer.body
    assert b"password" in answer.body


@stepped
async def test_a_server_that_was_not_started_from_a_file_says_so():
    async with place(AdminHandler()) as served:
        answer = (await served.get("/file")).json
    assert answer == {"file": None, "text": "", "findings": [], "values": None}


@stepped
async def test_a_pipeline_is_sent_with_what_is_known_of_its_run():
    board = Board()
    async with place(AdminHandler(None, lambda: [BARS], board)) as served:
        (before,) = (await served.get("/pipelines")).json
        board.note("bars", state="running", rows_per_s=7)
        board.note("bars", rows_per_s=9)
        (running,) = (await served.get("/pipelines")).json
        board.note("bars", state="failed", error="no such topic")
        (failed,) = (await served.get("/pipelines")).json
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
