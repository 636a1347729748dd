"""docs/javascript.md and sow.d.ts say what sow.js does: examples run, and no name is missing."""

import json
import re
import subprocess

import pytest

from sow.server.api.static_files import CONSOLE_FOLDER
from tests.client.javascript.test_cases import CLIENT
from tests.docs.blocks import ROOT, fenced
from tests.edge.serving import configuration, served
from tests.needs import node

PAGE = ROOT / "docs" / "javascript.md"
TEXT = PAGE.read_text()
TYPES = (CONSOLE_FOLDER / "sow.d.ts").read_text()
THERE = "http://127.0.0.1:8080"
TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/order_id</Key></Topic>
<Topic><Name>quotes</Name><MessageType>json</MessageType><Key>/symbol</Key></Topic>
"""
SHOWN = {
    1: ["[ { order_id: 1, symbol: 'IBM', qty: 5 } ]", "order_id: 1, symbol: 'IBM', qty: 6"],
    2: ["group_begin undefined undefined", "sow ", "group_end undefined"],
}
"""What the examples print, among other things, one after the other."""


server = served(configuration(TOPICS))


# Examples.


@pytest.mark.node
def test_the_examples_run(server, tmp_path):
    (tmp_path / "sow.mjs").write_text(CLIENT)
    blocks = fenced("javascript", [PAGE])
    assert len(blocks) == len(SHOWN)
    for block, shown in zip(blocks, SHOWN.values(), strict=True):
        file = tmp_path / "example.mjs"
        file.write_text(block.text.replace(THERE, server.url))
        done = subprocess.run([*node(), str(file)], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), block.place
        at = 0
        for text in shown:
            at = done.stdout.find(text, at)
            assert at >= 0, done.stdout


ROWS = """() => [...document.querySelectorAll("tr")].map(
    (row) => [...row.children].map((cell) => cell.textContent))"""


@pytest.mark.browser
def test_the_grid_in_a_few_lines_stays_current(server, pages):
    (block,) = fenced("html", [PAGE])
    script = block.text.split('type="module">\n')[1].split("</script>")[0].strip()
    assert len(script.splitlines()) <= 10
    server.publish("quotes", {"symbol": "ACME", "bid": 1}, {"symbol": "BETA", "bid": 2})
    page = pages()
    page.serve(f"{server.url}/grid/", block.text.replace(THERE, server.url), "text/html", csp="")
    page.open(f"{server.url}/grid/")
    page.wait_for("document.querySelectorAll('tr').length === 2")
    assert page.evaluate(ROWS) == [["BETA", "2"], ["ACME", "1"]]
    server.publish("quotes", {"symbol": "<b>CEDE</b>", "bid": 3})
    page.wait_for("document.querySelectorAll('tr').length === 3")
    assert page.evaluate(ROWS)[0] == ["<b>CEDE</b>", "3"], "shown as it is, and run by nobody"
    page.close()
    assert page.errors == []


# Names.


def members(name):
    """The public members of a class of sow.js."""
    body = re.search(rf"^class {name}\b.*?\{{\n(.*?)^\}}", CLIENT, re.M | re.S)[1]
    found = re.findall(r"^  (?:async |get )?([a-z]\w*)(?:\(.*\{| = .*;|;)$", body, re.M)
    return sorted(set(found) - {"constructor"})


def options(name):
    """The names in a list of options of sow.js, and of those that it takes in."""
    body = re.search(rf"^const {name} = \[(.*?)\];", CLIENT, re.M | re.S)[1]
    found = re.findall(r'"(\w+)"', body)
    return found + [each for other in re.findall(r"\.\.\.(\w+)", body) for each in options(other)]


def declared(name):
    """The names in an interface of sow.d.ts, and of those that it extends."""
    found = re.search(
        rf"^export interface {name}\b(?P<of>.*?)\{{\n(?P<body>.*?)^\}}", TYPES, re.M | re.S
    )
    names = re.findall(r"^  (?:readonly )?(\w+)\??[:(<]", found["body"], re.M)
    bases = [base for base in re.findall(r"\w+", found["of"]) if f"interface {base} " in TYPES]
    return names + [each for base in bases for each in declared(base)]


MEMBERS = {"Sow": members("Sow"), "Subscription": members("Subscription"), "Live": members("Live")}
OPTIONS = {
    "ConnectOptions": options("CONNECT_OPTIONS"),
    "Question": options("QUERY_FIELDS"),
    "SubscribeOptions": options("SUBSCRIPTION_OPTIONS"),
    "LiveOptions": options("LIVE_OPTIONS"),
}


def test_there_is_what_is_looked_for():
    assert MEMBERS["Sow"][:3] == ["close", "conflated", "delete"]
    assert {"next", "replace", "name", "gaps"} <= set(MEMBERS["Subscription"])
    assert {"onchange", "rows", "order", "changes"} <= set(MEMBERS["Live"])
    assert "bookmark" in OPTIONS["SubscribeOptions"]


@pytest.mark.parametrize("name", MEMBERS | OPTIONS)
def test_the_types_have_the_names_of_the_code_and_no_others(name):
    names = (MEMBERS | OPTIONS)[name]
    assert sorted(set(declared(name))) == sorted(set(names))


@pytest.mark.parametrize("name", MEMBERS | OPTIONS)
def test_the_page_names_everything(name):
    plain = re.sub(r"^```.*?^```", "", TEXT, flags=re.M | re.S)
    code = " ".join(re.findall(r"`([^`\n]+)`", plain))
    assert [one for one in (MEMBERS | OPTIONS)[name] if not re.search(rf"\b{one}\b", code)] == []


def test_a_message_and_a_change_have_the_fields_that_are_declared():
    given = set(re.findall(r"message\.(\w+) = ", CLIENT)) | {"command", "exact", "reason"}
    listed = re.search(r'for \(const name of (\["delta".*?\])\) if', CLIENT)[1]
    assert set(declared("Message")) == given | set(json.loads(listed))
    assert set(declared("Change")) == {"key", "old", "new", "reason", "at"}


# What it must not do.


@pytest.mark.parametrize(
    "word",
    ["eval(", "new Function", "innerHTML", "document.write", "localStorage", "import("],
)
def test_nothing_that_comes_is_run_or_kept(word):
    assert word not in CLIENT


def test_nothing_is_read_over_http_but_events():
    assert CLIENT.count("fetch(") == CLIENT.count("this.#connection.get(") == 1


def test_it_needs_nothing_else():
    assert not re.search(r"^\s*import\b(?!\.meta)", CLIENT, re.M)
    assert not re.search(r"\brequire\(", CLIENT)
