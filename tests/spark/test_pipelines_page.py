"""The console's page of pipelines, of a server that runs one: what Spark says is what is seen."""

import subprocess
import sys

import pytest

from sow.client.sync import Client
from tests.browser.looking import looked

pytestmark = [pytest.mark.spark, pytest.mark.edge, pytest.mark.browser]

SPARK_S = 400.0
"""On a busy machine a Spark takes minutes until its first batch is written."""
CONFIG = """<SOWConfig><Name>t</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>copies</Name><MessageType>json</MessageType><Key>/id</Key></Topic></SOW>
<Pipelines>
<Pipeline><Name>copy</Name><Autostart>true</Autostart>
<Source><Format>sow</Format><Topic>orders</Topic>
<Option><Name>startingBookmark</Name><Value>earliest</Value></Option></Source>
<Sink><Topic>copies</Topic></Sink></Pipeline>
<Pipeline><Name>idle</Name>
<Source><Format>sow</Format><Topic>orders</Topic></Source>
<Sink><Topic>copies</Topic></Sink></Pipeline>
</Pipelines></SOWConfig>"""


@pytest.mark.slow  # a Java of its own; tests/browser shows the page, tests/cli what runs beside
def test_a_pipeline_that_runs_is_shown_with_its_rows(tmp_path, browser):
    (tmp_path / "config.xml").write_text(CONFIG)
    command = [sys.executable, "-m", "sow.cli", "serve", str(tmp_path / "config.xml")]
    command += ["--port", "0", "--data-dir", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().split()[3]
            with looked(browser, url + "/") as console, Client(url) as client:
                console.open("pipelines")
                row = console.page.locator("#pipelines tr", has_text="sow orders").first
                row.get_by_text("running").wait_for()
                client.publish("orders", [{"id": number} for number in range(100)])
                with client.live("copies") as copies:
                    while len(copies) < 100:
                        copies.change(SPARK_S)
                console.until(
                    """() => {
                      const {cells} = document.querySelector("#pipelines tbody tr");
                      return Number(cells[5].textContent) > 0 && cells[6].textContent === "0";
                    }"""
                )
                running, idle = console.cells("#pipelines")
                assert (running[0], running[4], running[9]) == ("copy", "running", "")
                assert (idle[0], idle[4]) == ("idle", "not run by this server")
        finally:
            process.terminate()
            process.wait()
