"""The guide to Spark: the notebook and the examples run as they stand."""

import re
from pathlib import Path

import pytest

from sow.config import loads

pytestmark = [pytest.mark.spark, pytest.mark.edge]

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
ADDRESS = "http://127.0.0.1:8080"
CLUSTER = "spark://"


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (GUIDE / page).read_text(), re.M | re.S)


def run(page, found, server):
    names = {}
    for block in found:
        exec(compile(block.replace(ADDRESS, server.url), page, "exec"), names)


def test_the_notebook_runs(spark, server):
    run("notebook.md", blocks("notebook.md", "python"), server)


def test_the_configuration_of_the_notebook_is_one():
    (text,) = blocks("notebook.md", "xml")
    assert loads(text).configuration is not None


def test_the_examples_of_the_guide_run(spark, server):
    # They are written for the shipped topic, whose key is called otherwise than the tests'.
    here = [
        block.replace("order_id", "id")
        for block in blocks("spark.md", "python")
        if CLUSTER not in block
    ]
    assert len(here) > 5
    run("spark.md", here, server)
    assert {"id": "o-9", "symbol": "ACME", "price": 10.5} in server.records("orders")
