"""The guide to Spark names every option there is, and its configurations are read."""

import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from sow.config import load, loads
from sow.core.pipelines import USES as NAMES
from tests.cases import all_cases

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
TEXT = (GUIDE / "spark.md").read_text()
TOPICS = """<Topic><Name>quotes</Name><MessageType>json</MessageType><Key>/symbol</Key></Topic>
<Topic><Name>mids</Name><MessageType>json</MessageType><Key>/symbol</Key></Topic>"""


def options():
    """The rows of the table of options: name and the rest."""
    table = TEXT.partition("\n## Options\n")[2].partition("\n## ")[0]
    return dict(re.findall(r"^\| `(\w+)` \|(.*)\|$", table, re.M))


@all_cases("name", NAMES)
def test_every_option_is_in_the_table(name):
    assert name in options()


def test_the_table_has_no_option_that_is_not_there():
    assert set(options()) == set(NAMES)


def test_the_recorded_pipelines_are_a_configuration():
    loaded = load(str(GUIDE / "recorded.xml"), {"SOW_DATA": "/recordings"})
    assert not loaded.findings
    described = TEXT + (GUIDE.parent / "recorded-data.md").read_text()
    assert all(f"`{one.name}`" in described or "book-" in one.name for one in _pipelines(loaded))


def test_the_pipeline_of_the_guide_is_one():
    (pipelines,) = re.findall(r"^```xml\n(<Pipelines>.*?)^```", TEXT, re.M | re.S)
    text = f"<SOWConfig><Name>t</Name><SOW>{TOPICS}</SOW>{pipelines}</SOWConfig>"
    loaded = loads(text)
    assert not loaded.findings
    assert len(_pipelines(loaded)) == 1


def test_the_chart_of_saved_traffic_counts_rows(tmp_path):
    second = 1_700_000_000_000_000
    log = pa.array([second, second + 1, second + 2, second + 1_000_000], pa.timestamp("us"))
    pyarrow.parquet.write_table(
        pa.table({"ts": log.cast("timestamp[ns]")}), tmp_path / "log.parquet"
    )
    for name, rows in (("1s", 1), ("100ms", 2)):
        (tmp_path / "out" / name).mkdir(parents=True)
        copy = pa.table({"window_end": log.slice(0, rows)})
        pyarrow.parquet.write_table(copy, tmp_path / "out" / name / "part.parquet")
    command = [GUIDE / "traffic_saved.py", tmp_path / "log.parquet", tmp_path / "out"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
    _, *lines = (line.split() for line in done.stdout.splitlines())
    assert [line[:4] for line in lines] == [
        ["log", "4", "3", "0.0%"],
        ["100ms", "2", "2", "50.0%"],
        ["1s", "1", "1", "75.0%"],
    ]


def _pipelines(loaded):
    assert loaded.configuration is not None
    return loaded.configuration.pipelines
