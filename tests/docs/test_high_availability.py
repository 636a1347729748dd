"""What the page of high availability and its files in deploy/ say is what there is."""

import re
import subprocess

import pytest
from ruamel.yaml import YAML

from sow.config import loads
from sow.config.rules.shared_log_rules import ENGINES
from tests.docs.blocks import ROOT
from tests.docs.test_scaling import DEPLOY, is_command
from tests.needs import nats_server

PAGE = (ROOT / "docs" / "high-availability.md").read_text()
COMPOSE = (DEPLOY / "compose-log.yml").read_text()
SERVICES = YAML(typ="safe").load(COMPOSE)["services"]
NODES = {name: one for name, one in SERVICES.items() if name.startswith("node-")}


@pytest.mark.parametrize("name", NODES)
def test_a_node_of_the_compose_file_runs_a_command_that_there_is(name):
    assert is_command(NODES[name]["command"])
    assert NODES[name]["hostname"] == NODES[name]["environment"]["NODE"] == name


@pytest.mark.parametrize("text", [PAGE, re.sub(r"(?m)^# ?", "", COMPOSE)], ids=["page", "compose"])
def test_the_element_is_one_that_a_server_takes(text):
    log = re.search(r"<Log>.*?</Log>", text, re.S)[0]
    topic = "<SOW><Topic><Name>a</Name><MessageType>json</MessageType><Key>/id</Key></Topic></SOW>"
    found = loads(f"<SOWConfig><Name>a</Name>{log}{topic}</SOWConfig>", variables={"NODE": "b"})
    assert not found.findings
    assert found.configuration.shared_log.engine == "nats"


@pytest.mark.parametrize("table", ["## Which engine", "## What is refused"])
def test_each_engine_has_its_row(table):
    part = PAGE.partition(table)[2].partition("\n## ")[0]
    assert re.findall(r"(?m)^\| `(\w+)` \|", part) == list(ENGINES)


@pytest.mark.nats_server
def test_the_server_of_nats_takes_its_file():
    command = [nats_server(), "-t", "-c", DEPLOY / "nats.conf"]
    done = subprocess.run(command, env={"NAME": "nats-1"}, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"sync_interval: always" in (DEPLOY / "nats.conf").read_bytes()
