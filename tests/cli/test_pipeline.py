"""`sow pipeline` over a configuration; what it runs is tested in tests/spark."""

import json

import pytest
from click.testing import CliRunner

from sow.cli import main
from tests.edge.topics import MESSAGE_TYPES, TOPICS

CONFIG = f"""<SOWConfig><Name>t</Name>{MESSAGE_TYPES}<SOW>{TOPICS}
<ConflatedTopic><Name>orders-S</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>2s</Interval><Engine>spark</Engine>
</ConflatedTopic></SOW>
<Pipelines><Pipeline><Name>copy</Name>
<Source><Format>sow</Format><Topic>orders</Topic></Source>
<Sink><Topic>loud</Topic></Sink></Pipeline></Pipelines></SOWConfig>"""


@pytest.fixture
def config(tmp_path):
    file = tmp_path / "config.xml"
    file.write_text(CONFIG)
    return str(file)


def test_pipelines_are_listed_and_what_spark_conflates(config):
    result = CliRunner().invoke(main, ["pipeline", "list", "--config", config])
    assert result.output.splitlines() == [
        "copy: sow orders -> topic loud, every 1 s",
        "orders-S: sow orders -> conflated topic orders-S, every 1 s",
    ]
    result = CliRunner().invoke(main, ["pipeline", "list", "--config", config, "--json"])
    assert [one["name"] for one in json.loads(result.output)] == ["copy", "orders-S"]


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
    assert "did you mean 'loud'?" in result.stderr


def test_a_misspelt_master_is_wrong_usage(config):
    words = ["pipeline", "run", "copy", "--config", config, "--master", "loacl[2]"]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "did you mean local[2]?" in result.stderr
