"""`sow pipeline` over a configuration; what it runs is tested in tests/spark."""

import json
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.commands.pipeline import PipelineScreen, log_on_by
from sow.config import load
from sow.errors import ClientError
from sow.spark.http import environment_token
from tests.edge.topics import MESSAGE_TYPES, TOPICS

CONFIG = f"""<SOWConfig><Name>t</Name>{MESSAGE_TYPES}<SOW>{TOPICS}
<ConflatedTopic><Name>orders-S</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>2s</Interval><Engine>spark</Engine>
</ConflatedTopic>
<View><Name>symbols</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
<Projection><Field>/symbol</Field></Projection><Grouping><Field>/symbol</Field></Grouping>
<Engine>spark</Engine></View></SOW>
<Pipelines><Pipeline><Name>copy</Name>
<Source><Format>sow</Format><Topic>orders</Topic></Source>
<Sink><Topic>loud</Topic></Sink></Pipeline></Pipelines></SOWConfig>"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "config.xml"
    file.write_text(CONFIG)
    return str(file)


def test_pipelines_are_listed_and_topics_that_spark_runs(config):
    result = CliRunner().invoke(main, ["pipeline", "list", "--config", config])
    assert result.output.splitlines() == [
        "copy: sow orders -> topic loud, every 1 s",
        "orders-S: sow orders -> conflated topic orders-S, every 1 s",
        "symbols: sow orders -> view symbols, every 1 s",
    ]
    result = CliRunner().invoke(main, ["pipeline", "list", "--config", config, "--json"])
    assert [one["name"] for one in json.loads(result.output)] == ["copy", "orders-S", "symbols"]


def test_all_sources_are_named_and_a_format_without_a_path(tmp_path):
    more = '<Source name="r"><Format>rate</Format></Source><SQL>FROM source JOIN r</SQL><Sink>'
    text = CONFIG.replace("<Sink><Topic>loud</Topic>", f"{more}<Format>console</Format>")
    (tmp_path / "config.xml").write_text(text)
    words = ["pipeline", "list", "--config", str(tmp_path / "config.xml")]
    said = CliRunner().invoke(main, words).output.splitlines()[0]
    assert said == "copy: sow orders, rate -> console, every 1 s"


def test_a_misspelt_pipeline_is_answered_with_the_nearest(config):
    result = CliRunner().invoke(main, ["pipeline", "run", "copi", "--config", config])
    assert (result.exit_code, result.stderr) == (
        1,
        "sow: no pipeline 'copi'; did you mean copy?\n",
    )


def test_a_file_with_a_mistake_runs_nothing(tmp_path):
    (tmp_path / "config.xml").write_text(
        CONFIG.replace("loud</Topic></Sink>", "lod</Topic></Sink>")
    )
    config = str(tmp_path / "config.xml")
    result = CliRunner().invoke(main, ["pipeline", "run", "copy", "--config", config])
    assert result.exit_code == 1
    assert result.stderr.startswith(f"sow: {config}:")  # where, as `sow check` says it
    assert ": Topic: no topic is called 'lod'; did you mean 'loud'?" in result.stderr


def test_a_misspelt_master_is_wrong_usage(config):
    words = ["pipeline", "run", "copy", "--config", config, "--master", "loacl[2]"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "did you mean local[2]?" in result.stderr


def progress(batch, ran=True, **counts):
    """What a query says of a batch, or of one that has not been run yet."""
    aside = dict.fromkeys(("late", "ahead", "without_key"), 0) | counts
    rows = {"sow_rows_in": {"rows": 5}, "sow_rows_out": {"rows": 2}, "sow_rows_aside": aside}
    durations = {"addBatch": 7} if ran else {"latestOffset": 1}
    return {"batchId": batch, "durationMs": durations, "observedMetrics": rows if ran else {}}


def test_rows_are_counted_and_those_that_are_left_out_said_apart(capsys):
    screen = PipelineScreen("slow", as_json=False)
    seen = [progress(0), progress(1, ran=False)]
    screen.show(SimpleNamespace(recentProgress=seen))
    screen.show(SimpleNamespace(recentProgress=[*seen, progress(1, late=3, ahead=1)]))
    screen.end()
    first, last = capsys.readouterr().err.splitlines()
    assert first == "sow: pipeline slow: batch 0: 5 rows in, 2 out (2.5x), 0 rows/s"
    assert last == (
        "sow: pipeline slow: 2 batches: 10 rows in, 4 out (2.5x), 3 late, 1 ahead of the clock"
    )


def test_rows_of_all_sources_are_counted_and_the_one_furthest_behind_is_the_lag(capsys):
    seen = progress(0)
    seen["observedMetrics"] |= {"sow_rows_in_a": {"rows": 1}, "sow_rows_in_b": {"rows": 2}}
    del seen["observedMetrics"]["sow_rows_in"]
    seen["sources"] = [
        {"latestOffset": f'{{"bookmark": 9, "lag_rows": {rows}, "lag_seconds": {5 - rows}}}'}
        for rows in (1, 4)
    ]
    screen = PipelineScreen("both", as_json=True)
    screen.show(SimpleNamespace(recentProgress=[seen]))
    screen.end()
    said = json.loads(capsys.readouterr().out)
    assert (said["rows_in"], said["lag"], said["lag_seconds"]) == (3, 4, 4.0)


@pytest.mark.parametrize("reports", [False, True])
def test_the_figures_of_each_batch_are_its_own(capsys, reports):
    screen = PipelineScreen("slow", not reports, reports, dead_letters=lambda batch: 2 * batch)
    screen.write("starting Spark")  # the last line on stderr would be taken for an error
    seen = [progress(0, late=3), progress(1), progress(2, ran=False)]
    screen.show(SimpleNamespace(recentProgress=seen))
    screen.show(SimpleNamespace(recentProgress=[*seen, progress(2, ahead=1)]))
    screen.end()
    output = capsys.readouterr()
    said = [json.loads(line) for line in output.out.splitlines()]
    assert output.err == ""
    names = ("batch", "rows_in", "rows_out", "late", "ahead", "dead_letters")
    assert [tuple(one[name] for name in names) for one in said] == [
        (0, 5, 2, 3, 0, 0),
        (1, 5, 2, 0, 0, 2),
        (2, 5, 2, 0, 1, 4),
    ]


def test_figures_as_json_have_all_counts(capsys):
    screen = PipelineScreen("slow", as_json=True)
    screen.show(SimpleNamespace(recentProgress=[progress(0, without_key=2)]))
    screen.end()
    said = json.loads(capsys.readouterr().out)
    assert (said["late"], said["ahead"], said["without_key"]) == (0, 0, 2)


def test_a_pipeline_logs_on_by_its_file(tmp_path, monkeypatch):
    monkeypatch.setenv("SOW_TOKEN", "sow_other")
    monkeypatch.setenv("SOW_TOKEN_FILE", "")
    (tmp_path / "config.xml").write_text(CONFIG)
    (one,) = load(str(tmp_path / "config.xml")).configuration.pipelines
    log_on_by(one)
    assert environment_token().header() == {"Authorization": "Bearer sow_other"}
    (tmp_path / "token").write_text("sow_its\n")
    named = CONFIG.replace("</Sink></Pipeline>", "</Sink><TokenFile>token</TokenFile></Pipeline>")
    (tmp_path / "config.xml").write_text(named)
    (one,) = load(str(tmp_path / "config.xml")).configuration.pipelines
    log_on_by(one)
    monkeypatch.chdir("/")
    assert environment_token().header() == {"Authorization": "Bearer sow_its"}
    (tmp_path / "token").write_text("sow_renewed\n")
    assert environment_token().header() == {"Authorization": "Bearer sow_renewed"}
    (tmp_path / "token").unlink()
    with pytest.raises(ClientError, match=r"TokenFile of pipeline copy: .*cannot be read: No such"):
        log_on_by(one)


def test_a_topic_that_spark_runs_is_not_run_over_a_range(config):
    words = ["pipeline", "backfill", "symbols", "--from", "1", "--to", "2", "--config", config]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 1
    assert (
        "symbols is a topic that Spark runs, whose records are those of its whole" in result.stderr
    )
