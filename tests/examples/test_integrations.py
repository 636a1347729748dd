"""The files in integrations/ are used as they stand: what a tool asks for is there.

The tools themselves are not here; each page says what was not tried. The viewer of Perspective is
in `test_perspective.py`, the hook of React in `tests/browser`.
"""

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from ruamel.yaml import YAML

from sow.config import load, require
from sow.server.api.static_files import CONSOLE_FOLDER
from tests.edge.serving import Running
from tests.needs import node

pytestmark = pytest.mark.edge

ROOT = Path(__file__).parents[2]
INTEGRATIONS = ROOT / "integrations"
ADDRESS = "http://127.0.0.1:8080"
LINES_MAX = 60
QUOTES = [{"symbol": "ACME", "bid": 10.24, "ask": 10.26}, {"symbol": "BETA", "bid": 99, "ask": 100}]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with the configuration of the examples, and some of their records."""
    configuration = replace(require(str(ROOT / "examples" / "config.xml")), port=0)
    running = Running(configuration, tmp_path_factory.mktemp("data"))
    orders = (ROOT / "examples" / "orders.ndjson").read_text().splitlines()
    running.publish("orders", *map(json.loads, orders))
    running.publish("quotes", *QUOTES)
    yield running
    running.close()
    assert running.errors == []


def test_every_page_is_short_and_listed():
    folders = sorted(one.name for one in INTEGRATIONS.iterdir() if one.is_dir())
    index = (INTEGRATIONS / "README.md").read_text()
    for name in folders:
        assert f"({name}/README.md)" in index
        assert len((INTEGRATIONS / name / "README.md").read_text().splitlines()) <= LINES_MAX


# Grafana.

DASHBOARD = json.loads((INTEGRATIONS / "grafana" / "sow.json").read_text())
VARIABLE = DASHBOARD["templating"]["list"][0]["query"]["infinityQuery"]
TARGETS = [VARIABLE, *(target for panel in DASHBOARD["panels"] for target in panel["targets"])]


def read_yaml(name):
    return YAML(typ="safe").load((INTEGRATIONS / "grafana" / name).read_text())


def rows_of(server, target):
    """The rows of a query as Infinity sends it, with what stands for variables in their place."""
    since = "2020-01-01T00:00:00.000Z"
    values = {"$symbol": "ACME", "${__from:date:iso}": since}
    params = {one["key"]: one["value"] for one in target["url_options"]["params"]}
    for name, value in values.items():
        params = {key: text.replace(name, value) for key, text in params.items()}
    answer = server.get(f"{target['url']}?{urlencode(params, quote_via=quote)}")
    assert answer.status == 200, answer.body
    if target["type"] == "csv":
        return [*csv.DictReader(io.StringIO(answer.body.decode()))]
    return answer.json


def selected(row, selector):
    for name in selector.split("."):
        row = row[name]
    return row


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target["url"])
def test_each_column_of_the_dashboard_is_in_the_answer_to_its_query(server, target):
    rows = rows_of(server, target)
    assert rows
    for row in rows:
        for column in target["columns"]:
            value = selected(row, column["selector"])
            if column["type"] == "number":
                float(value)
            elif column["type"] == "timestamp":
                datetime.fromisoformat(value)
            else:
                assert isinstance(value, str)


def test_the_dashboard_shows_what_its_titles_say(server):
    of = {panel["title"]: rows_of(server, panel["targets"][0]) for panel in DASHBOARD["panels"]}
    assert [row["symbol"] for row in of["The best bids"]] == ["BETA", "ACME"]
    assert [one["d"] for one in of["Bid and ask of $symbol"]] == QUOTES[:1]
    open_orders = server.records("orders", filter="/status = 'new'")
    assert sum(row["qty"] for row in of["Open quantity"]) == sum(one["qty"] for one in open_orders)
    assert {"orders", "quotes"} <= {row["name"] for row in of["Records"]}


def test_the_provisioned_source_is_that_of_the_dashboard():
    (source,) = read_yaml("datasource.yaml")["datasources"]
    assert all(target["datasource"]["uid"] == source["uid"] for target in TARGETS)
    assert source["jsonData"]["allowedHosts"] == [source["url"]] == [ADDRESS]
    assert read_yaml("dashboards.yaml")["providers"][0]["type"] == "file"


# Excel.

QUERY = (INTEGRATIONS / "excel" / "orders.pq").read_text()


def test_the_query_of_excel_gets_the_table_that_it_names(server):
    topic = re.search(r'Topic = "(.*)"', QUERY)[1]
    params = dict(re.findall(r"^ {8}(\w+) = \"(.*)\",?$", QUERY, re.M))
    assert params.keys() == {"filter", "order_by", "select", "top_n"}
    path = f"/v1/topics/{topic}/records.csv?{urlencode(params, quote_via=quote)}"
    answer = server.get(path)
    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"  # 65001
    assert "Encoding = 65001" in QUERY
    rows = [*csv.DictReader(io.StringIO(answer.body.decode()), strict=True)]
    kinds = dict(re.findall(r'\{"(\w+)", (type \w+|Int64\.Type)\}', QUERY))
    assert [*rows[0]] == [*kinds]
    assert {row["order_id"] for row in rows} == {
        one["order_id"] for one in server.records("orders", filter="/status = 'new'")
    }
    read = {"type text": str, "type number": float, "Int64.Type": int}
    assert all(read[kinds[name]](text) is not None for row in rows for name, text in row.items())


def test_the_formula_of_excel_gets_one_value(server):
    page = (INTEGRATIONS / "excel" / "README.md").read_text()
    address = re.search(r'WEBSERVICE\("(.*?)" & ENCODEURL\(A2\)\)', page)[1]
    answer = server.get(f"{address.removeprefix(ADDRESS)}ACME")
    assert (answer.status, answer.body.decode().splitlines()) == (200, ["bid", "10.24"])


# Kafka.


def test_the_pipelines_with_kafka_are_a_configuration():
    path = INTEGRATIONS / "kafka" / "pipelines.xml"
    loaded = load(str(path), variables={"KAFKA": "127.0.0.1:9092"})
    assert [str(finding) for finding in loaded.findings] == []
    page = (INTEGRATIONS / "kafka" / "README.md").read_text()
    assert all(f"`{one.name}`" in page for one in loaded.configuration.pipelines)


# JavaScript.

PACKAGE = json.loads((INTEGRATIONS / "javascript" / "package.json").read_text())


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package as it is packed: with what its script copies before."""
    root = tmp_path_factory.mktemp("source")
    folder = root / "integrations" / "javascript"
    ours = shutil.ignore_patterns("sow.*", "LICENSE", "*.tgz")
    shutil.copytree(INTEGRATIONS / "javascript", folder, ignore=ours)
    console = root / "sow" / "server" / "console"
    console.mkdir(parents=True)
    for name in ("sow.js", "sow.d.ts"):
        shutil.copy(CONSOLE_FOLDER / name, console)
    shutil.copy(ROOT / "LICENSE", root)
    subprocess.run(PACKAGE["scripts"]["prepack"], shell=True, cwd=folder, check=True, timeout=300)
    return folder


def test_what_the_package_lists_is_there_and_nothing_else_is(package):
    known = {one.name for one in package.iterdir()} - {"package.json", "README.md", ".gitignore"}
    assert known == {*PACKAGE["files"]}
    named = [name for paths in PACKAGE["exports"].values() for name in paths.values()]
    assert {name.removeprefix("./") for name in named} == known - {"LICENSE"}
    project = (ROOT / "pyproject.toml").read_text()
    assert f'version = "{PACKAGE["version"]}"' in project


@pytest.mark.npm
def test_npm_packs_that(package):
    done = subprocess.run(
        ["npm", "pack", "--dry-run", "--json", "--offline", "--ignore-scripts"],
        cwd=package, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    (packed,) = json.loads(done.stdout)
    assert {one["path"] for one in packed["files"]} == {
        *PACKAGE["files"], "package.json", "README.md",
    }  # fmt: skip


@pytest.mark.node
def test_the_package_is_imported_by_its_name(package, tmp_path):
    shutil.copytree(package, tmp_path / "node_modules" / "sow-client")
    react = tmp_path / "node_modules" / "react"
    react.mkdir()
    (react / "index.js").write_text("exports.useEffect = exports.useState = () => {};\n")
    script = """
        const [{ connect, SowError, parseExact }, { useLive }] =
          [await import("sow-client"), await import("sow-client/react")];
        const refused = await connect({ nonsense: 1 }).catch((error) => error);
        console.log([connect, parseExact, useLive].every((one) => typeof one === "function"),
          refused instanceof SowError);
    """
    (tmp_path / "try.mjs").write_text(script)
    done = subprocess.run(
        [*node(), "try.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=300
    )
    assert (done.stdout, done.stderr) == ("true true\n", "")
