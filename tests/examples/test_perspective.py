"""What Perspective's viewer asks of its virtual tables, against a server, without Perspective."""

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from sow.client.sync import Client
from tests.edge.serving import configuration, served

pytestmark = pytest.mark.edge

FOLDER = Path(__file__).parents[2] / "integrations" / "perspective"
TOPICS = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>
<Schema><Field type="string">/at/city</Field></Schema></Topic>
<Topic><Name>texts</Name><MessageType>string</MessageType></Topic>"""
ORDERS = [
    {"id": 1, "symbol": "ACME", "qty": 5, "px": 1.5, "at": {"city": "Rome"}},
    {"id": 2, "symbol": "O'Neil\\", "qty": 7, "px": 2.5, "at": {"city": "Bern"}},
    {"id": 3, "symbol": "ACME", "qty": 1, "px": 3.5, "odd name": 1},
    {"id": 4, "qty": 2},
]

server = served(configuration(TOPICS))


@pytest.fixture
def tables(server, monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    from sow_tables import SowTables

    server.publish("orders", *ORDERS)
    with Client(server.url) as client:
        yield SowTables(client)
    sys.modules.pop("sow_tables", None)


class Shown:
    """What a viewer is sent."""

    def from_arrow_ipc(self, content):
        self.table = pa.ipc.open_stream(content).read_all()


def shown(tables, viewport=None, **config):
    """The columns of a view, of all its rows or those of a viewport."""
    nothing = {"group_by": [], "filter": [], "sort": [], "aggregates": {}}
    whole = {"columns": ["id"], **nothing, **config}
    tables.table_make_view("orders", "v1", whole)
    found = Shown()
    tables.view_get_data("v1", whole, tables.view_schema("v1", whole), viewport or {}, found)
    kinds = tables.view_schema("v1")
    marks = [name for name in found.table.column_names if name not in kinds]
    assert all(name.startswith("__ROW_PATH_") for name in marks)
    assert tables.table_describe("orders", whole)["view_schema"] == kinds
    if viewport is None:
        assert found.table.num_rows == tables.view_size("v1")
    tables.view_delete("v1")
    return found.table.to_pydict()


def test_topics_with_fields_are_tables(tables):
    assert tables.get_hosted_tables() == ["orders"]
    assert tables.table_size("orders") == 4
    assert tables.table_schema("orders") == {
        "id": "float", "symbol": "string", "qty": "float", "px": "float", "at": "string",
        "/at/city": "string",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("terms", "ids"),
    [
        ([], [1, 2, 3, 4]),
        ([["qty", ">", 1]], [1, 2, 4]),
        ([["qty", ">", 1], ["px", "<=", 1.5]], [1]),
        ([["symbol", "==", "O'Neil\\"]], [2]),
        ([["symbol", "!=", "ACME"]], [2]),
        ([["symbol", "is null", None]], [4]),
        ([["symbol", "begins with", "AC"]], [1, 3]),
        ([["/at/city", "ends with", "me"]], [1]),
        ([["symbol", "==", None]], [1, 2, 3, 4]),
        ([["symbol", "==", ""]], [1, 2, 3, 4]),
    ],
)
def test_a_filter_is_one_of_the_server(tables, terms, ids):
    assert shown(tables, filter=terms) == {"id": ids}


def test_a_page_is_ordered_and_cut_by_the_server(tables):
    page = {"start_row": 1, "end_row": 3, "start_col": 1, "end_col": 3}
    columns = ["id", "symbol", "px"]
    found = shown(tables, page, columns=columns, sort=[["id", "desc"], ["px", "none"]])
    assert found == {"symbol": ["ACME", "O'Neil\\"], "px": [3.5, 2.5]}
    assert shown(tables, {"start_row": 4, "end_row": 9}) == {"id": []}


def test_groups_are_rows_with_their_paths(tables):
    asked = {"columns": ["qty", "px", "id", "symbol"], "group_by": ["symbol"]}
    chosen = {"px": "avg", "id": "count", "symbol": "distinct count"}
    found = shown(tables, **asked, aggregates=chosen, sort=[["qty", "desc"]])
    assert found == {
        "__ROW_PATH_0__": ["O'Neil\\", "ACME", None],
        "qty": [7, 6, 2],
        "px": [2.5, 2.5, None],
        "id": [1, 2, 1],
        "symbol": [1, 1, 0],
    }
    twice = shown(tables, columns=["qty"], group_by=["symbol", "/at/city"])
    assert twice["__ROW_PATH_1__"] == [None, None, "Rome", "Bern"]
    assert twice["qty"] == [2, 1, 5, 7]


def test_what_is_refused_is_a_sentence(tables):
    said = tables.table_describe("orders", {"columns": ["id"], "filter": [["id", ">", "x" * 9]]})
    assert said["view_schema"] == {"id": "float"}
    wrong = tables.table_describe("orders", {"columns": ["id"], "filter": [["id", "~", 1]]})
    assert "config_error" in wrong
