"""The example that enriches a topic by Spark: each order once, also when it is started again."""

import json
import runpy
from dataclasses import replace

import pytest

from sow.config import require
from tests.docs.blocks import ROOT
from tests.edge.serving import Running

pytestmark = [pytest.mark.spark, pytest.mark.edge]

EXAMPLES = ROOT / "examples"


@pytest.fixture
def serving(tmp_path):
    configuration = replace(require(str(EXAMPLES / "config.xml")), port=0)
    server = Running(configuration, tmp_path / "data")
    yield server
    server.close()


def test_orders_are_written_back_with_what_they_are_worth(spark, serving, tmp_path):
    orders = [json.loads(line) for line in (EXAMPLES / "orders.ndjson").read_text().splitlines()]
    main = runpy.run_path(str(EXAMPLES / "spark_enrichment.py"))["main"]
    checkpoint = str(tmp_path / "checkpoint")
    serving.publish("orders", *orders[:3])
    main(serving.url, checkpoint, follow=False)
    serving.publish("orders", *orders[3:])
    main(serving.url, checkpoint, follow=False)
    found = {one["order_id"]: one for one in serving.records("orders-enriched")}
    assert found["o-1"] == {
        "order_id": "o-1", "symbol": "ACME", "price": 10.25, "qty": 100, "status": "filled",
        "desk": "industry", "notional": 1025.0,
    }  # fmt: skip
    assert {key: one["desk"] for key, one in found.items()} == {
        "o-1": "industry", "o-2": "banks", "o-3": "industry", "o-4": "energy",
    }  # fmt: skip
    assert found["o-3"]["notional"] == 511.0
    log = serving.get("/v1/log").body.splitlines()
    assert len(log) == 2 * len(orders), "each change once"
