"""What the guide to Spark, its notebook, the script beside it and README show runs as it stands."""

import runpy
import sys
from dataclasses import replace

import pytest

from sow.config import require
from tests.docs.blocks import README_ADDRESS, ROOT, fenced
from tests.edge.serving import Running

pytestmark = [pytest.mark.spark, pytest.mark.edge]

GUIDE = ROOT / "docs" / "guide"
ADDRESS = "http://127.0.0.1:8080"
ELSEWHERE = ("spark://", "pyspark import pipelines")
"""What runs in processes of its own: `make cluster`."""


def blocks(page, language="python"):
    return [block.text for block in fenced(language, [page])]


def run(page, found, server):
    names = {}
    for block in found:
        exec(compile(block.replace(ADDRESS, server.url), str(page), "exec"), names)


@pytest.fixture
def shipped(tmp_path):
    """A server with the shipped configuration."""
    configuration = replace(require(str(ROOT / "config.xml")), port=0)
    server = Running(configuration, tmp_path / "data")
    yield server
    server.close()


def test_the_notebook_runs(spark, server):
    text = (GUIDE / "notebook.py").read_text()
    run("notebook.py", [text], server)


def test_the_examples_of_the_guide_run(spark, server):
    # They are written for the shipped topic, whose key is called otherwise than the tests'.
    here = [
        block.replace("order_id", "id")
        for block in blocks(GUIDE / "spark.md")
        if not any(mark in block for mark in ELSEWHERE)
    ]
    assert len(here) > 5
    run("spark.md", here, server)
    assert {"id": "o-9", "symbol": "ACME", "price": 10.5} in server.records("orders")


def test_the_views_of_the_guide_are_topics(spark, server):
    server.publish("orders", {"id": "o-1"})
    for text in blocks(GUIDE / "spark.md", "sql"):
        spark.sql(text.replace(ADDRESS, server.url))
    assert spark.table("orders").count() == 1
    spark.catalog.dropTempView("orders")


def test_the_recipe_for_jdbc_copies_a_table_into_a_topic_and_back(spark, server, tmp_path):
    """By the database that is beside Spark's own jars."""
    spark._jvm.System.setProperty("derby.stream.error.file", str(tmp_path / "derby.log"))
    url, there = "jdbc:derby:memory:shop;create=true", {"url": server.url, "topic": "orders"}
    rows = [(1, "ACME", 10.5), (2, "EMCA", None)]
    table = spark.createDataFrame(rows, "id long, symbol string, price double")
    table.write.jdbc(url, "ORDERS", "overwrite")
    server.publish("orders", {"id": 9})
    found = spark.read.jdbc(url, "ORDERS")
    found.write.format("sow").options(**there, mode="replace").mode("append").save()
    assert server.records("orders", order_by="/id") == [
        dict(zip(table.columns, row, strict=True)) for row in rows
    ]
    copy = spark.read.format("sow").options(**there).schema(table.schema).load()
    copy.write.jdbc(url, "COPIES", "overwrite")
    assert sorted(spark.read.jdbc(url, "COPIES").collect()) == rows


def test_the_example_of_the_readme_shows_the_windows_of_what_is_there(spark, shipped, capfd):
    shipped.publish("quotes", {"symbol": "ACME", "bid": 10.25})
    (text,) = blocks(ROOT / "README.md")
    run("README.md", [text.replace(README_ADDRESS, shipped.url)], shipped)
    shown = capfd.readouterr().out
    assert "window_start" in shown
    assert shown.count("|publish|") == 1


@pytest.mark.slow  # the notebook shows the same in cells
def test_the_script_runs_from_beginning_to_end(spark, shipped, monkeypatch, capsys):
    monkeypatch.setattr(type(spark), "stop", lambda session: None)  # the session is everybody's
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    monkeypatch.setattr(sys, "argv", ["spark_example.py", "--url", shipped.url])
    runpy.run_path(str(GUIDE / "spark_example.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert [f"{part}. " in printed for part in range(1, 5)] == [True] * 4
    orders = {record["order_id"]: record for record in shipped.records("orders")}
    assert orders["ex-1"]["price"] == 10.3
    assert orders["ex-2"]["price"] == 20.4
