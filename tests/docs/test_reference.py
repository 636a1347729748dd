"""The reference documents name everything the code has: routes, metrics, commands, options."""

import re
from pathlib import Path

import pytest

from sow.messages import MESSAGE_TYPES
from sow.protocol import wire
from sow.protocol.commands import ACKS, COMMANDS, OPTIONS, OPTIONS_IGNORED
from sow.server.api.static_files import description
from sow.server.boot.routes import TABLE
from sow.server.http.route import OF_MOMENTS
from tests.cases import all_cases
from tests.docs import metrics

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]


def words_about(route):
    """What is said of an address: its line in the table, and the sections that it leads to."""
    text = (DOCS / "http.md").read_text()
    address = f"{route.method} {route.path}"
    found = re.search(rf"^\| `{re.escape(address)}` \|.*$", text, re.M)
    assert found, f"docs/http.md, Addresses: there is no row | `{address}` | …"
    line = found[0]
    for anchor in re.findall(r"\]\(#([\w-]+)\)", line):
        title = anchor.replace("-", "[ -]")
        line += re.search(rf"^#+ {title}$.*?(?=^#|\Z)", text, re.M | re.S | re.I)[0]
    return line


def undocumented(route):
    said = words_about(route)
    return [name for name in route.parameters if f"`{name}`" not in said]


@all_cases("route", TABLE)
def test_every_address_and_parameter_is_documented(route):
    missing = undocumented(route)
    assert not missing, f"docs/http.md says nothing of {missing} where it says what it takes"


@all_cases("route", TABLE)
def test_a_parameter_that_no_page_names_is_found(route):
    planted = route._replace(parameters=(*route.parameters, "planted"))
    assert undocumented(planted) == ["planted"]


@pytest.mark.parametrize("door", sorted((ROOT / "sow/server").rglob("*.py")), ids=lambda p: p.stem)
def test_handlers_read_what_the_table_names_and_nothing_else(door):
    read = (
        r"""requested(?:\.get\(|\[)"(\w+)"|"(\w+)" in requested|"""
        r"""read_(?!options)\w+\((?:requested|parameters_of\(request\)), "(\w+)\""""
    )
    names = {name for found in re.findall(read, door.read_text()) for name in found if name}
    assert names <= {name for route in TABLE for name in route.parameters} | {
        "conflated",
        *OF_MOMENTS,
    }


@all_cases("route", TABLE)
def test_the_description_names_the_parameters_of_the_table(route):
    described = description(TABLE)["paths"][route.path][route.method.lower()]["parameters"]
    assert tuple(p["name"] for p in described if p["in"] == "query") == route.taken


def test_no_address_is_documented_that_is_not_there():
    documented = re.findall(r"^\| `([A-Z]+ /[^`]*)`", (DOCS / "http.md").read_text(), re.M)
    gone = set(documented) - {f"{route.method} {route.path}" for route in TABLE}
    assert not gone, f"docs/http.md, Addresses: remove the rows of {sorted(gone)}"


def test_no_metric_is_documented_that_is_not_there():
    named = {
        name for page in DOCS.rglob("*.md") for name in re.findall(r"`(sow_\w+)", page.read_text())
    }
    other = COMMANDS.keys() | {"sow_key", "sow_keys"}  # fields of lines and of HTTP
    assert named - other <= set(re.findall(r"`(sow_\w+)`", metrics.table()))


def rows_of(page, heading):
    """The rows of the table of a page whose first column is called `heading`, cell by cell."""
    (table,) = re.findall(rf"^\| {heading} \|.*\n\|[-| ]+\n((?:\|.*\n)*)", page, re.M)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table.splitlines()]


def words(cell):
    return re.findall(r"`(\w+)=?`", cell)


WEBSOCKET = (DOCS / "websocket.md").read_text()


def test_the_table_of_commands_is_the_one_that_the_server_goes_by():
    documented = {
        name: set(words(cells[1]))
        for cells in rows_of(WEBSOCKET, "command")
        for name in words(cells[0])
    }
    assert documented == {name: set(kind.fields) for name, kind in COMMANDS.items()}


def test_the_table_of_fields_is_the_one_that_lines_are_read_by():
    documented = [name for cells in rows_of(WEBSOCKET, "field") for name in words(cells[0])]
    assert sorted(documented) == sorted(wire.HEADER_FIELDS)


def test_the_table_of_options_is_the_one_that_options_are_read_by():
    cells = [cells[0] for cells in rows_of(WEBSOCKET, "option")]
    assert sorted(name for cell in cells for name in words(cell)) == sorted(
        [*OPTIONS, *OPTIONS_IGNORED]
    )
    valued = {name for name, option in OPTIONS.items() if option.value != "flag"}
    assert {name for cell in cells for name in re.findall(r"`(\w+)=`", cell)} == valued


def test_every_ack_is_documented():
    assert all(f"`{name}`" in WEBSOCKET for name in ACKS)


def test_the_description_reports_the_commands_and_options_of_a_line():
    described = description(TABLE)["paths"]["/v1/ws"]["get"]
    assert {n: set(c["fields"]) for n, c in described["x-commands"].items()} == {
        name: set(kind.fields) for name, kind in COMMANDS.items()
    }
    assert described["x-options"].keys() == OPTIONS.keys()


@all_cases("name", MESSAGE_TYPES)
def test_every_message_type_is_documented(name):
    page = DOCS / "message-types.md"
    rows = re.findall(rf"^\| `{name}` \|", page.read_text(), re.M)
    assert rows, f"docs/message-types.md: the first table has no row | `{name}` | …"


@all_cases("page", [*PAGES, *sorted((DOCS.parent / "integrations").rglob("*.md"))])
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http:", "https:")):
            continue
        name, _, anchor = target.partition("#")
        other = (page.parent / name).resolve() if name else page
        assert other.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", other.read_text(), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", h).lower().replace(" ", "-") for h in headings}
