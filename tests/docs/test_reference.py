"""The reference documents name everything the code has: routes, metrics, commands, options."""

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from sow.core.definitions import CONSUMERS, Merge, View
from sow.core.histograms import Histogram
from sow.core.quota import Quota
from sow.engine.progress import Progress
from sow.protocol import wire
from sow.protocol.commands import ACKS, COMMANDS, OPTIONS, OPTIONS_IGNORED, OPTIONS_LATER
from sow.query import Query
from sow.server.api.metrics import exposition, process_exposition, replay_exposition
from sow.server.boot.routes import description, routes
from sow.server.http.connection_limits import ConnectionLimiter
from sow.server.http.tls import Certificate
from sow.server.loop.loop_latency import LoopLatency
from sow.sessions.consumers import Consumers
from tests.laws.harness import ORDERS, SLOW, World

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), *sorted(ROOT.glob("*.md"))]


class Anything:
    """Stands for a door: any handler can be named, none is called."""

    def __getattr__(self, name):
        return name


def table():
    door = Anything()
    return routes(door, door)


def words_about(route):
    """What is said of an address: its line in the table, and the sections that it leads to."""
    text = (DOCS / "http.md").read_text()
    (line,) = re.findall(rf"^\| `{re.escape(f'{route.method} {route.path}')}` \|.*$", text, re.M)
    for anchor in re.findall(r"\]\(#([\w-]+)\)", line):
        title = anchor.replace("-", "[ -]")
        line += re.search(rf"^#+ {title}$.*?(?=^#|\Z)", text, re.M | re.S | re.I)[0]
    return line


def undocumented(route):
    said = words_about(route)
    return [name for name in route.parameters if f"`{name}`" not in said]


@pytest.mark.parametrize("route", table(), ids=lambda route: f"{route.method} {route.path}")
def test_every_address_and_parameter_is_documented(route):
    assert not undocumented(route)


@pytest.mark.parametrize("route", table(), ids=lambda route: f"{route.method} {route.path}")
def test_a_parameter_that_no_page_names_is_found(route):
    planted = route._replace(parameters=(*route.parameters, "planted"))
    assert undocumented(planted) == ["planted"]


@pytest.mark.parametrize("door", sorted((ROOT / "sow/server").glob("*.py")), ids=lambda p: p.stem)
def test_handlers_read_what_the_table_names_and_nothing_else(door):
    read = r"""asked(?:\.get\(|\[)"(\w+)"|"(\w+)" in asked|read_(?!options)\w+\(asked, "(\w+)\""""
    names = {name for found in re.findall(read, door.read_text()) for name in found if name}
    assert names <= {name for route in table() for name in route.parameters} | {"conflated"}


@pytest.mark.parametrize("route", table(), ids=lambda route: f"{route.method} {route.path}")
def test_the_description_names_the_parameters_of_the_table(route):
    described = description(table())["paths"][route.path][route.method.lower()]["parameters"]
    assert tuple(p["name"] for p in described if p["in"] == "query") == route.parameters


def test_no_address_is_documented_that_is_not_there():
    documented = re.findall(r"^\| `([A-Z]+ /[^`]*)`", (DOCS / "http.md").read_text(), re.M)
    assert set(documented) == {f"{route.method} {route.path}" for route in table()}


def exposed():
    """What a scrape of a server with topics of every kind shows."""
    merging = replace(ORDERS, name="sums", merges=(Merge("/qty", "sum"),))
    bounded = replace(ORDERS, name="few", records_max=10)
    sides = View("sides", "json", ("orders",), ("COUNT(1) AS /n",), ("/side",))
    world = World(ORDERS, SLOW, merging, bounded, sides, CONSUMERS)
    Consumers(world.engine).move("reader", 0, world.now)
    world.publish("orders", {"id": 1})
    world.publish("sums", {"id": 1, "qty": 1})
    journal = SimpleNamespace(last_seq=0, size_bytes=0)
    watch = LoopLatency()
    watch.note("a step", 0.001)
    world.engine.queries.measure(lambda: 0.0)
    world.engine.queries.at_once("orders", Query())
    world.executor.refused["bad filter"] += 1
    times = dict.fromkeys(
        ("commit_times", "fsync_times", "durable_times", "delivered_times"), Histogram()
    )
    driver = SimpleNamespace(
        **times,
        late_s=lambda: 0.0,
        journal=journal,
        refusal=None,
        clock_ahead_s=lambda: 0.0,
        now_us=lambda: world.now,
        watch=watch,
        loop=SimpleNamespace(),
    )
    crowd, budget = ConnectionLimiter(lambda: world.configuration, 10), Quota(lambda: 1)
    replay = SimpleNamespace(progress=Progress(), is_over=True)
    shown = {"certificate.pem": Certificate(0.0, b"")}
    page = exposition(
        driver, world.executor, crowd, budget, certificates=shown
    ) + replay_exposition(replay)
    return (page + process_exposition()).decode()


def metrics_table(text):
    """The rows of the table of metrics, as they are exported: name, labels, type and help."""
    labels = {}
    for name, said in re.findall(r"^(\w+?)(?:_bucket|_count|_sum)?\{([^}]*)\}", text, re.M):
        labels.setdefault(name, re.findall(r'(\w+)="', said))
    kinds = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.M))
    return "".join(
        f"| `{name}`{_labelled(labels.get(name, ()))} | {kinds[name]} | {says} |\n"
        for name, says in sorted(re.findall(r"^# HELP (\w+) (.*)$", text, re.M))
        if not name.startswith("python_")
    )


def _labelled(names):
    names = [name for name in names if name != "le"]
    return f" by {', '.join(f'`{name}`' for name in names)}" if names else ""


def test_the_metrics_are_documented_as_they_are_exported():
    """Names, labels, types and what they say; where it fails, the table is the one on the left."""
    text = (DOCS / "http.md").read_text().partition("\n## Metrics\n")[2]
    table = metrics_table(exposed())
    assert table == re.search(r"\n((?:\| `.*\n)+)", text)[1]
    assert set(re.findall(r"`(sow_\w+)`", text)) == set(re.findall(r"`(sow_\w+)`", table))


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
        [*OPTIONS, *OPTIONS_LATER, *OPTIONS_IGNORED]
    )
    valued = {name for name, option in OPTIONS.items() if option.value != "flag"}
    assert {name for cell in cells for name in re.findall(r"`(\w+)=`", cell)} == valued


def test_every_ack_is_documented():
    assert all(f"`{name}`" in WEBSOCKET for name in ACKS)


def test_the_description_reports_the_commands_and_options_of_a_line():
    described = description(table())["paths"]["/v1/ws"]["get"]
    assert {n: set(c["fields"]) for n, c in described["x-commands"].items()} == {
        name: set(kind.fields) for name, kind in COMMANDS.items()
    }
    assert described["x-options"].keys() == OPTIONS.keys()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
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
