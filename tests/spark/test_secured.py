"""Spark beside a server that encrypts and asks who everybody is: `format("sow")` and a pipeline
read and write by their tokens, trust the authority of SOW_CA, and may do what their roles say."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from sow.authentication.logons import Logons
from sow.authentication.tokens import sum_of
from sow.cli.pipeline import log_on_by
from sow.client.sync import Client
from sow.config import load
from sow.spark.pipelines import Running as RunningPipeline
from tests.edge.certificates import certificates
from tests.edge.serving import Running

pytestmark = [pytest.mark.spark, pytest.mark.edge]

CONFIG = """<SOWConfig><Name>secured</Name>
<Security>
  <TLS><Certificate>{files.certificate}</Certificate><PrivateKey>{files.key}</PrivateKey></TLS>
  <Authentication><Tokens><File>tokens</File></Tokens></Authentication>
  <Role><Name>desk</Name><Member>user:ann</Member>
    <Allow><Topic>orders|copies</Topic><Read/><Write/></Allow></Role>
  <Role><Name>pipelines</Name><Member>user:copier</Member>
    <Allow><Topic>orders</Topic><Read/><Filter>/desk = 'a'</Filter></Allow>
    <Allow><Topic>copies</Topic><Write/><Read/></Allow></Role>
  <Role><Name>readers</Name><Member>user:reader</Member>
    <Allow><Topic>orders</Topic><Read/><Select>-/desk</Select></Allow></Role>
</Security>
<SOW>
  <Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
  <Topic><Name>copies</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
</SOW>
<Pipelines><Pipeline><Name>copy</Name><TokenFile>copier.token</TokenFile>
  <Source><Format>sow</Format><Topic>orders</Topic>
    <Schema>id long, desk string, px double</Schema></Source>
  <SQL>SELECT id, desk, px * 2 AS px FROM source</SQL>
  <Sink><Topic>copies</Topic></Sink>
</Pipeline></Pipelines></SOWConfig>"""
NAMES = ("ann", "copier", "reader")
ROWS = [{"id": 1, "desk": "a", "px": 1.0}, {"id": 2, "desk": "b", "px": 2.0}]


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """A server with two orders, and the files that its users have."""
    place = tmp_path_factory.mktemp("secured")
    files = certificates(place)
    (place / "tokens").write_text("".join(f"{name} {sum_of(f't-{name}')}\n" for name in NAMES))
    (place / "copier.token").write_text("t-copier\n")
    config = place / "config.xml"
    config.write_text(CONFIG.format(files=files))
    loaded = load(str(config), {}, {})
    assert loaded.configuration is not None, loaded.findings
    server = Running(replace(loaded.configuration, port=0), place / "data", logons=Logons())
    server.files, server.place, server.pipelines = files, place, loaded.configuration.pipelines
    with Client(server.url, ca=files.ca, token="t-ann") as client:
        client.publish("orders", ROWS)
    yield server
    assert server.errors == []
    server.close()


@pytest.fixture
def trusted(secured, monkeypatch):
    """The environment of who trusts the server's authority, and has no token."""
    monkeypatch.setenv("SOW_CA", str(secured.files.ca))
    monkeypatch.setenv("SOW_TOKEN", "")
    return secured


def records(server, topic):
    with Client(server.url, ca=server.files.ca, token="t-ann") as client:
        return sorted(client.query(topic), key=lambda one: one["id"])


def test_a_data_frame_is_read_and_written_by_the_rights_of_its_token(spark, trusted, monkeypatch):
    def read(token):
        frame = spark.read.format("sow").option("url", trusted.url).option("topic", "orders")
        frame = frame.option("token", token) if token else frame
        return sorted((json.loads(row.value) for row in frame.load().collect()), key=str)

    assert read("t-ann") == ROWS
    assert read("t-copier") == ROWS[:1]
    assert read("t-reader") == [{"id": 1, "px": 1.0}, {"id": 2, "px": 2.0}]
    for token in (None, "t-nobody"):
        with pytest.raises(Exception, match=r"log on first|token is not good"):
            read(token)
    rows = spark.createDataFrame([("""{"id":7,"desk":"z"}""",)], "value string")

    def write(token):
        written = rows.write.format("sow").mode("append").option("topic", "copies")
        written.option("url", trusted.url).option("token", token).save()

    with pytest.raises(Exception, match=r"no topic|not there|invalid topic"):
        write("t-reader")
    monkeypatch.setenv("SOW_TOKEN", "t-ann")
    assert read(None) == ROWS
    write("t-copier")
    assert {"id": 7, "desk": "z"} in records(trusted, "copies")


def test_a_pipeline_reads_and_writes_by_the_token_of_its_file(spark, trusted, tmp_path):
    (pipeline,) = trusted.pipelines
    assert Path(pipeline.token_file) == trusted.place / "copier.token"
    log_on_by(pipeline)
    assert os.environ["SOW_TOKEN"] == "t-copier"
    running = RunningPipeline(pipeline, trusted.url, tmp_path, once=True, master=None)
    running.start()
    try:
        running.query.awaitTermination()
    finally:
        running.stop()
    copied = [one for one in records(trusted, "copies") if one["id"] < 7]
    assert copied == [{"id": 1, "desk": "a", "px": 2.0}], "of what it may read, and no more"
