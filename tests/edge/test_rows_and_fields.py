"""What a user may not see is on the wire nowhere: rows and fields that bear a mark, at every door.

Ann sees the orders of her own desk, and of these not the client. The mark stands in a field of her
own orders, in orders of others, and in the name of a field that only others' have.
"""

import json

import pytest

from tests.edge.test_entitled import ADMIN, ANN, PARTS, TABLE, Secured, records, secured

MARK = "mark-7f3a"
ROLES = """
<Role><Name>admins</Name><Member>user:admin</Member>
  <Allow><Topic>.*</Topic><Read/><Write/><Delete/></Allow><Allow><Admin/></Allow></Role>
<Role><Name>desk</Name><Member>group:desk</Member>
  <Allow><Topic>orders|orders-C</Topic><Read/><Filter>/desk = ${user.name}</Filter>
    <Select>-/client</Select></Allow>
  <Allow><Topic>orders</Topic><Write/><Delete/><Check>/desk = ${user.name}</Check></Allow></Role>
"""
OWN = {"id": "own", "desk": "ann", "px": 1, "client": MARK}
OTHER = {"id": "other", "desk": "ben", "px": 2, "client": MARK, "note": MARK}
SEEN = {"id": "own", "desk": "ann", "px": 1}


class Guarded(Secured):
    """A server on which Ann sees some of the orders."""

    def __init__(self, directory, **more):
        super().__init__(directory, **more)
        self.next = secured(directory, ROLES)
        assert self.reload().status == 200
        assert self.ask("DELETE", f"{records('orders')}?filter=1=1", ADMIN).status == 200
        self.publish(OWN, OTHER)

    def publish(self, *documents):
        answer = self.ask("POST", records("orders"), ADMIN, json.dumps(documents).encode())
        assert answer.status == 200
        return answer.json["bookmark"]

    def clean(self, answer):
        """An answer to Ann, without a mark."""
        assert MARK.encode() not in answer.body, answer.body
        assert MARK not in str(answer.headers)
        return answer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Guarded(tmp_path_factory.mktemp("guarded"))
    yield server
    server.close()


QUERIES = (
    "",
    "?meta=true",
    "?explain=true&filter=/client%20IS%20NOT%20NULL",
    "?filter=/client%20LIKE%20'mark'%20OR%201=1",
    "?order_by=/client",
    "?select=%2B/client,%2B/id",
    "?projection=/client,COUNT(1)%20AS%20/n&grouping=/client",
    "?projection=MAX(/client)%20AS%20/c,/desk&grouping=/desk",
    "?as_of=BOOKMARK",
    "?as_of=BOOKMARK&meta=true",
)
FORMS = ("json", "ndjson", "csv", "frames")


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("form", FORMS)
def test_no_form_of_a_query_tells_it(server, query, form):
    at = server.ask("GET", "/v1/log/extent?topics=orders", ADMIN).json["to"]
    accept = {
        "json": "application/json",
        "ndjson": "application/x-ndjson",
        "csv": "text/csv",
        "frames": "application/vnd.sow.frames",
    }[form]
    path = records("orders") + query.replace("BOOKMARK", at)
    answer = server.clean(server.ask("GET", path, ANN, Accept=accept))
    if answer.status == 200:
        assert answer.headers["SOW-Matches"] in ("0", "1")


@pytest.mark.parametrize("more", ["", "?meta=true"])
def test_arrow_tells_nothing_of_it(server, more):
    accept = "application/vnd.apache.arrow.stream"
    answer = server.clean(server.ask("GET", records("orders") + more, ANN, Accept=accept))
    assert answer.status == 200
    assert b"own" in answer.body


def test_a_query_of_all_gives_what_may_be_seen(server):
    answer = server.ask("GET", records("orders"), ANN)
    assert answer.json == [SEEN]
    assert answer.headers["SOW-Matches"] == "1"


def test_one_record_by_its_key(server):
    keys = {
        row["d"]["id"]: row["k"]
        for row in server.ask("GET", f"{records('orders')}?meta=true", ADMIN).json
    }
    assert server.clean(server.ask("GET", f"{records('orders')}/{keys['own']}", ANN)).json == SEEN
    other = server.ask("GET", f"{records('orders')}/{keys['other']}", ANN)
    missing = server.ask("GET", f"{records('orders')}/1", ANN)
    assert (other.status, missing.status) == (404, 404)
    assert other.json["detail"].replace(keys["other"], "1") == missing.json["detail"]


def test_counts_are_of_what_may_be_seen(server):
    assert server.ask("GET", "/v1/topics/orders", ANN).json["records"] == 1
    described = {one["name"]: one for one in server.ask("GET", "/v1/topics", ANN).json}
    assert described["orders"]["records"] == 1
    explained = server.ask("GET", f"{records('orders')}?explain=true&filter=/px>0", ANN).json
    assert explained["rows_touched"] == 1
    assert [term["rows"] for term in explained["terms"]] == [1]


def test_the_log_and_snapshots(server):
    for form in ("application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"):
        answer = server.clean(server.ask("GET", "/v1/log?topics=orders", ANN, Accept=form))
        assert b"own" in answer.body
    assert server.ask("GET", "/v1/log/extent?topics=orders", ANN).json["rows"] == 1
    taken = server.ask("POST", "/v1/snapshots?topic=orders", ANN).json
    assert taken["rows"] == 1
    answer = server.clean(server.ask("GET", f"/v1/snapshots/{taken['snapshot']}", ANN))
    assert b"own" in answer.body


def test_no_address_tells_it(server):
    for route in TABLE:
        if route.method != "GET" or route.path.endswith(("/stream", "/ws")):
            continue
        path = route.path
        for name, part in {"topic": "orders", **PARTS}.items():
            path = path.replace(f"{{{name}}}", part)
        server.clean(server.ask("GET", path, ANN))


def test_streams_of_a_socket(server):
    with server.socket(headers=ANN) as ws:
        said = [
            *ws.ask({"c": "sow_and_subscribe", "t": "orders", "opts": "oof"}),
            *ws.ask({"c": "sow_and_delta_subscribe", "t": "^orders", "opts": "oof"}),
            *ws.ask({"c": "subscribe", "t": "orders", "bm": "0"}),
            *ws.ask({"c": "sow", "t": "orders", "filter": "/client = 1 OR /note IS NULL"}),
        ]
        server.publish(OTHER | {"px": 3}, {**OWN, "px": 4})
        server.publish(OWN | {"desk": "ben"})
        said += ws.settled()
        server.publish(OWN)
        said += ws.settled()
    assert MARK not in json.dumps(said)
    assert "entitlement" in json.dumps(said)


def test_a_snapshot_is_read_by_the_rights_that_it_was_taken_by(tmp_path):
    server = Guarded(tmp_path)
    try:
        taken = server.ask("POST", "/v1/snapshots?topic=orders", ANN).json["snapshot"]
        assert server.reload().status == 200
        assert server.ask("GET", f"/v1/snapshots/{taken}", ANN).status == 200, "nothing changed"
        server.next = secured(tmp_path, ROLES.replace("<Filter>/desk = ${user.name}</Filter>", ""))
        assert server.reload().status == 200
        assert server.ask("GET", f"/v1/snapshots/{taken}", ANN).status == 404
    finally:
        server.close()
