"""A frame that stays current: its moment, its types, its end."""

import pytest

import sow
from sow.client import Disconnected
from sow.errors import ClientError, UnknownTopic
from tests.edge.serving import configuration, served

pytestmark = pytest.mark.edge
TOPICS = "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"
LARGE = 9007199254740993

server = served(configuration(TOPICS))


def settled(mirror, key, field, value):
    """Wait until a record has this value."""
    while (mirror.view.get(key) or {}).get(field) != value:
        mirror.view.change(60)


def key_of(server, document_id):
    found = server.records("orders", filter=f"/id = {document_id}", meta="true")
    return found[0]["k"]


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_a_frame_is_of_one_moment_and_a_query_as_of_it_has_the_same(server, library):
    server.publish("orders", {"id": 1, "qty": LARGE}, {"id": 2})
    with sow.mirror("orders", url=server.url, frame=library) as orders:
        frame = orders.frame
        assert type(frame).__module__.split(".")[0] == library
        assert orders.frame is frame
        assert sorted(frame["id"]) == [1, 2]
        assert next(iter(frame["qty"])) == LARGE
        key = key_of(server, 2)
        server.publish("orders", {"id": 2, "qty": 7})
        settled(orders, key, "qty", 7)
        frame = orders.frame
        assert {*frame["qty"]} == {LARGE, 7}
        then = server.records("orders", as_of=orders.bookmark)
        assert sorted(one["qty"] for one in then) == [7, LARGE]
        assert (len(orders), "orders: 2 records" in orders._repr_html_()) == (2, True)
    assert orders.ended is not None
    assert "ended" in orders._repr_html_()
    with pytest.raises((ClientError, Disconnected)):
        orders.frame
    orders.close()


def test_a_filter_leaves_records_out(server):
    server.publish("orders", {"id": 1, "qty": 1}, {"id": 2, "qty": 5})
    with sow.mirror("orders", url=server.url, filter="/qty > 2") as orders:
        assert list(orders.frame["id"]) == [2]


def test_what_cannot_be_mirrored_is_said_at_once(server):
    with pytest.raises(UnknownTopic):
        sow.mirror("nowhere", url=server.url)
    with pytest.raises(ClientError, match="polars or pandas"):
        sow.mirror("orders", url=server.url, frame="excel")
    with pytest.raises(AttributeError, match="no attribute 'mirrors'"):
        sow.mirrors
    assert "mirror" in dir(sow)  # which a shell completes
