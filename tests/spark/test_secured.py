"""Spark beside a server that encrypts and asks who everybody is: `format("sow")` and a pipeline
read and write by their tokens, trust the authority of SOW_CA, and may do what their roles say."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from sow.client.sync import Client
from sow.config import load
from sow.security.authentication.authenticator import Logons
from sow.security.authentication.tokens import sum_of
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
    server.files, server.place = files, place
    with Client(server.url, ca=files.ca, token="t-ann") as client:
        client.publish("orders", ROWS)
    yield server
    assert server.errors == []
    server.close()


def records(server, topic):
    with Client(server.url, ca=server.files.ca, token="t-ann") as client:
        return sorted(client.query(topic).records, key=lambda one: one["id"])


def test_a_data_frame_is_read_and_written_by_the_rights_of_its_token(spark, secured):
    def asking(frame, topic, token):
        frame = frame.format("sow").option("url", secured.url).option("topic", topic)
        frame = frame.option("ca", secured.files.ca).option("retryTimeout", "1")
        return frame.option("token", token) if token else frame

    def read(token):
        found = asking(spark.read, "orders", token).load().select("value").collect()
        return sorted((json.loads(row.value) for row in found), key=lambda one: one["id"])

    assert read("t-ann") == ROWS
    assert read("t-copier") == ROWS[:1]
    assert read("t-reader") == [{"id": 1, "px": 1.0}, {"id": 2, "px": 2.0}]
    for token in (None, "t-nobody"):
        with pytest.raises(Exception, match=r"log on first|token is not good"):
            read(token)
    rows = spark.createDataFrame([("""{"id":7,"desk":"z"}""",)], "value string")
    with pytest.raises(Exception, match="no topic 'copies'"):
        asking(rows.write, "copies", "t-reader").mode("append").save()
    asking(rows.write, "copies", "t-copier").mode("append").save()
    assert {"id": 7, "desk": "z"} in records(secured, "copies")


def test_a_token_that_ends_while_a_stream_runs_is_renewed_in_its_file(spark, secured, tmp_path):
    file, seen = tmp_path / "token", []

    def take(frame, number):
        seen.extend(row.id for row in frame.collect())
        if number == 0:
            file.write_text("t-ended\n")

    def run():
        options = {"url": secured.url, "topic": "orders", "ca": secured.files.ca}
        found = spark.readStream.format("sow").options(**options, tokenFile=str(file))
        query = (
            found.options(maxRowsPerTrigger="1", partitions="1")
            .schema("id long")
            .load()
            .writeStream.foreachBatch(take)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    file.write_text("t-ann\n")
    with pytest.raises(Exception, match="token is not good"):
        run()
    assert seen == [1]
    file.write_text("t-ann\n")
    run()
    assert seen == [1, 2]


@pytest.mark.slow  # a Java of its own; the data frame is written with a token, too
def test_a_pipeline_reads_and_writes_by_the_token_of_its_file(secured, tmp_path):
    # A process of its own, as the server starts one: Java hands on what its environment was.
    words = ["pipeline", "run", "copy", "--once", "--master", "local[1]", "--url", secured.url]
    words += ["--config", str(secured.place / "config.xml"), "--data-dir", str(tmp_path)]
    ran = subprocess.run(
        [sys.executable, "-m", "sow", *words],
        env=os.environ | {"SOW_CA": secured.files.ca},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    copied = [one for one in records(secured, "copies") if one["id"] < 7]
    assert copied == [{"id": 1, "desk": "a", "px": 2.0}], "of what it may read, and no more"
