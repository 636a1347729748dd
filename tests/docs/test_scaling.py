"""What stands in deploy/ for several processes parses, and names what there is."""

import configparser
import re

import pytest
from click.testing import CliRunner
from ruamel.yaml import YAML

from sow.cli.main import main
from tests.docs.blocks import ROOT

DEPLOY = ROOT / "deploy"
COMPOSE = YAML(typ="safe").load(DEPLOY / "compose.yml")["services"]
NODES = {name: one for name, one in COMPOSE.items() if name != "proxy"}
UNITS = ("sow-edge@.service", "sow-follower@.service")
PAGE = (ROOT / "docs" / "scaling.md").read_text()


def unit(name):
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str
    found.read_string((DEPLOY / name).read_text())
    return found


def words_of_unit(name):
    return unit(name)["Service"]["ExecStart"].split()[1:]


def is_command(words):
    """Whether these words are a command of ours with options that it has."""
    shown = CliRunner().invoke(main, [words[0], "--help"])
    known = set(re.findall(r"--[a-z-]+", shown.output))
    return shown.exit_code == 0 and {one for one in words if one.startswith("--")} <= known


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_runs_a_command_with_options_that_there_are(name):
    assert is_command(words_of_unit(name))


@pytest.mark.parametrize("name", NODES)
def test_a_node_of_the_compose_file_does_so_too(name):
    assert is_command(NODES[name]["command"])
    assert "--insecure" not in NODES[name]["command"]


@pytest.mark.parametrize("name", UNITS)
def test_a_template_is_as_careful_as_the_unit_of_the_server(name):
    service, found = unit("sow.service")["Service"], unit(name)["Service"]
    own = {"ExecStart", "StateDirectory", "StateDirectoryMode"}
    assert {key: found.get(key) for key in service if key not in own} == {
        key: value for key, value in service.items() if key not in own
    }
    assert "--port %i" in found["ExecStart"]


def test_a_follower_keeps_its_data_where_it_may_write_and_an_edge_keeps_none():
    follower, edge = (unit(name)["Service"] for name in reversed(UNITS))
    assert f"--data-dir /var/lib/{follower['StateDirectory']}" in follower["ExecStart"]
    assert "StateDirectory" not in edge
    assert "--data-dir" not in edge["ExecStart"]


def test_each_node_has_data_of_its_own_and_follows_the_primary():
    volumes = [volume for one in NODES.values() for volume in one["volumes"]]
    data = [one for one in volumes if one.endswith(":/data")]
    assert len(data) == len(set(data)) == 3
    for name, one in NODES.items():
        leads = [word for word in one["command"] if word.startswith("http://")]
        assert leads == ([] if name == "primary" else ["http://primary:8080"])
    assert COMPOSE["primary"]["hostname"] == "primary"


def test_the_proxy_leads_to_the_nodes_that_there_are():
    text = (DEPLOY / "haproxy.cfg").read_text()
    backends = re.findall(r"^    server (\S+) (\S+):8080$", text, re.M)
    assert all(name == host for name, host in backends)
    assert {name for name, _ in backends} == NODES.keys() - {"primary"}
    ports = {one.split(":")[1] for one in COMPOSE["proxy"]["ports"]}
    assert ports == set(re.findall(r"^    bind :(\d+)$", text, re.M))


@pytest.mark.parametrize("name", [*UNITS, "compose.yml", "haproxy.cfg"])
def test_the_page_names_each_file(name):
    assert f"](../deploy/{name})" in PAGE
