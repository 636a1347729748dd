"""Fields of Views and hash indexes that no record of a server has, as `sow check` reports them."""

import json

import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.cli.present_fields import fields_of
from sow.config import loads

FILE = """<SOWConfig><Name>desk</Name><SOW>
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
  <HashIndex><Key>/symbl</Key></HashIndex></Topic>
<Topic><Name>copies</Name><MessageType>json</MessageType><Key>/id</Key>
  <HashIndex><Key>/nowhere</Key></HashIndex></Topic>
<Topic><Name>new-here</Name><MessageType>json</MessageType><Key>/id</Key>
  <HashIndex><Key>/nowhere</Key></HashIndex></Topic>
<View><Name>sums</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
  <Projection><Field>/symbol</Field><Field>SUM(/qyt) AS /qty</Field></Projection>
  <Grouping><Field>/symbol</Field></Grouping></View>
</SOW></SOWConfig>"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "desk.xml").write_text(FILE)
    return str(tmp_path / "desk.xml")


def test_the_fields_that_elements_name():
    found = {
        (one.element, one.topic, str(one.path)) for one in fields_of(loads(FILE).configuration)
    }
    assert found == {
        ("HashIndex", "orders", "/symbl"),
        ("HashIndex", "copies", "/nowhere"),
        ("HashIndex", "new-here", "/nowhere"),
        ("View", "orders", "/symbol"),
        ("View", "orders", "/qyt"),
    }


def test_they_are_warnings_of_topics_that_have_records(sow, orders, config):
    orders({"id": 1, "symbol": "IBM", "qty": 2})
    result = sow("check", config)
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"{config}:2: HashIndex: warning: orders: no record has /symbl; did you mean /symbol?",
        f"{config}:8: View: warning: sums: no record has /qyt; did you mean /qty?",
        f"{config}: ok (4 topics, 2 warnings)",
    ]
    found = json.loads(sow.ok("check", config, "--json"))
    assert [one["element"] for one in found] == ["HashIndex", "View"]


def test_without_an_address_no_server_is_needed_and_one_that_is_away_is_a_failure(config):
    assert CliRunner().invoke(main, ["check", config]).exit_code == 0
    away = CliRunner().invoke(main, ["check", config], env={"SOW_URL": "http://127.0.0.1:1"})
    assert (away.exit_code, "127.0.0.1:1" in away.stderr) == (1, True)
