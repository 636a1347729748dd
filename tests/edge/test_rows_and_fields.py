"""What a user may not see is on the wire nowhere: rows and fields that bear a mark, at every door.

Ann sees the orders of her own desk, and of these not the client. The mark stands in a field of her
own orders, in orders of others, and in the name of a field that only others' have. The operator may
administer the server, and read nothing. The tables of addresses and commands say at which doors:
one that is added has to be asked here, too.
"""

import io
import json
import re
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sow.protocol.commands import COMMANDS
from sow.server.api import record_resource, snapshots
from sow.server.api import records as records_api
from sow.server.http.negotiation import FORMAT_ENDINGS
from sow.sessions import subscriptions
from sow.sessions.queries import query_planning
from tests.cases import all_cases
from tests.edge.arrow import ARROW, stream
from tests.edge.secured import ADMIN, ANN, PARTS, READER, TABLE, TOPICS, Secured, secured
from tests.edge.serving import records

MARK = "mark-7f3a"
ROLES = """
<Role><Name>admins</Name><Member>user:admin</Member>
  <Allow><Topic>.*</Topic><Read/><Write/><Delete/></Allow><Allow><Admin/></Allow></Role>
<Role><Name>desk</Name><Member>group:desk</Member>
  <Allow><Topic>orders|orders-C</Topic><Read/><Filter>/desk = ${user.name}</Filter>
    <Select>-/client</Select></Allow>
  <Allow><Topic>orders</Topic><Write/><Delete/><Check>/desk = ${user.name}</Check></Allow></Role>
<Role><Name>operators</Name><Member>user:reader</Member><Allow><Admin/></Allow></Role>
"""
OPERATOR = READER
COPY = """<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>"""
OWN = {"id": "own", "desk": "ann", "px": 1, "client": MARK}
OTHER = {"id": "other", "desk": "ben", "px": 2, "client": MARK, "note": MARK, f"field-{MARK}": 1}
SEEN = {"id": "own", "desk": "ann", "px": 1}


class Guarded(Secured):
    """A server on which Ann sees some of the orders."""

    def __init__(self, directory, **more):
        super().__init__(directory, **more)
        self.next = secured(directory, ROLES, topics=TOPICS + COPY)
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


@all_cases(
    ("query", "form"),
    [*((one, "json") for one in QUERIES), *((QUERIES[0], one) for one in FORMS[1:])],
)
def test_no_form_of_a_query_reports_it(server, query, form):
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


def test_nor_does_what_was_told_of_a_record_then(server):
    at = server.ask("GET", "/v1/log/extent?topics=orders", ADMIN).json["to"]
    rows = server.ask("GET", f"{records('orders')}?meta=true", ADMIN).json
    own, other = (
        next(one["k"] for one in rows if one["d"]["id"] == id_) for id_ in ("own", "other")
    )

    def why(key, who, **more):
        query = "&".join(f"{name}={value}" for name, value in {"as_of": at, **more}.items())
        return server.ask("GET", f"{records('orders')}/{key}/why?{query}", who)

    found = server.clean(why(own, ANN))
    assert (found.status, found.json["told"]["d"]) == (200, SEEN)
    assert server.clean(why(other, ANN)).status == 404
    assert server.clean(why(own, ADMIN, user="ann")).json["told"] == found.json["told"]
    assert server.clean(why(other, ADMIN, user="ann")).status == 404
    assert why(other, ADMIN).json["told"]["d"] == OTHER
    refused = server.clean(why(own, ANN, user="ben"))
    assert (refused.status, refused.json["reason"]) == (403, "not entitled")
    assert why(own, OPERATOR, user="ann").status == 404


@pytest.fixture(autouse=True)
def what_is_logged(server, caplog):
    """Nor does the server's own log tell it. Each test begins with the same two orders."""
    caplog.set_level("DEBUG")
    server.publish(OWN, OTHER)
    yield
    assert MARK not in caplog.text


@pytest.mark.parametrize("more", ["", "?meta=true", "?filter=/px>0", "?as_of=BOOKMARK"])
def test_arrow_reports_nothing_of_it(server, more):
    accept = "application/vnd.apache.arrow.stream"
    at = server.ask("GET", "/v1/log/extent?topics=orders", ADMIN).json["to"]
    path = records("orders") + more.replace("BOOKMARK", at)
    answer = server.clean(server.ask("GET", path, ANN, Accept=accept))
    assert answer.status == 200
    assert b"own" in answer.body


def test_columns_are_those_of_rows_that_may_be_seen_and_of_one_type_for_all(server):
    server.publish({"id": "third", "desk": "ben", "px": "text", "deep": {MARK: 1}})
    schemas = []
    for who in (ANN, ADMIN):
        answer = server.ask("GET", records("orders"), who, Accept=ARROW)
        schemas.append(pa.ipc.open_stream(answer.body).schema)
    assert schemas[0].names == ["id", "desk", "px"]
    assert {f"field-{MARK}", "note", "deep"} < {*schemas[1].names}
    assert schemas[0].field("px").equals(schemas[1].field("px"))
    empty = server.clean(server.ask("GET", f"{records('orders')}?filter=/px=7", ANN, Accept=ARROW))
    assert pa.ipc.open_stream(empty.body).schema.names == []
    assert server.ask("DELETE", f"{records('orders')}?filter=/id='third'", ADMIN).status == 200


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


@pytest.mark.parametrize("ending", FORMAT_ENDINGS)
@pytest.mark.parametrize("path", ["/v1/topics/orders/records", "/v1/log"])
def test_a_file_has_what_may_be_seen_and_a_tag_of_its_own(server, path, ending):
    path = f"{path}.{ending}"
    own, every = (server.ask("GET", path, who) for who in (ANN, ADMIN))
    server.clean(own)
    if ending == "parquet":
        assert MARK not in str(pq.read_table(io.BytesIO(own.body)).to_pydict())
        assert MARK in str(pq.read_table(io.BytesIO(every.body)).to_pydict())
    tag = every.headers["ETag"]
    assert server.ask("GET", path, ANN, **{"If-None-Match": tag}).status == 200
    assert server.ask("GET", path, ANN, **{"If-Match": tag}).status == 412
    part = {"Range": "bytes=0-3", "If-Range": tag}
    assert server.ask("GET", path, ANN, **part).status == 200
    assert server.ask("GET", path, ADMIN, **part).status == 206


def test_the_log_and_snapshots(server):
    for form in ("application/x-ndjson", "text/csv", "application/vnd.apache.arrow.stream"):
        answer = server.clean(server.ask("GET", "/v1/log?topics=orders", ANN, Accept=form))
        assert b"own" in answer.body
        for select in ("/client", "+/client", "/client,/px", "-/"):
            more = f"&columns=value&select={quote(select)}" if form == ARROW else ""
            more = more or f"&select={quote(select)}"
            server.clean(server.ask("GET", f"/v1/log?topics=orders{more}", ANN, Accept=form))
    rows = server.ask("GET", "/v1/log?topics=orders", ANN).body.count(b"\n")
    assert server.ask("GET", "/v1/log/extent?topics=orders", ANN).json["rows"] == rows
    taken = server.ask("POST", "/v1/snapshots?topic=orders", ANN).json
    assert taken["rows"] == 1
    answer = server.clean(server.ask("GET", f"/v1/snapshots/{taken['snapshot']}", ANN))
    assert b"own" in answer.body


READ_BY_OTHER_TESTS = {"/v1/topics/{topic}/stream", "/v1/ws"}
"""Streams, which do not end."""
PART = '{"topic":"orders","parts":[{"part":0,"attempt":"a","chunks":1,"rows":2}]}'
STAGED = stream(value=[json.dumps(OTHER), '{"id":"other","desk":"ann"}'])
TRIED = {
    "POST /v1/topics/{topic}/records": ['[{"id":"other","desk":"ann"}]', '{"id":"other"', "[1]"],
    "PATCH /v1/topics/{topic}/records": [
        '[{"id":"other","px":3}]',
        '[{"id":"other","desk":"ann"}]',
    ],
    "POST /v1/writes/{writer}/{epoch}": [STAGED, b"no stream"],
    "POST /v1/writes/{writer}/{epoch}/commit": [PART],
    "PUT /v1/log/consumers/{name}": ['{"bookmark":"0"}'],
    "POST /v1/sessions/{id}": ['{"conflated":true}'],
    "POST /v1/sessions": ['{"conflated":true}'],
}
"""What is sent to addresses that take something: no refusal is to tell what others have."""
REQUESTED = {
    "DELETE /v1/topics/{topic}/records": [
        "keys=KEY",
        "filter=/note IS NOT NULL",
        "filter=/client=",
    ],
    "GET /v1/topics/{topic}": ["", "expected=true"],
    "GET /v1/log": ["", "topics=orders", "filter=/note IS NOT NULL", "topics=ordersx"],
    "GET /v1/log.{ending}": ["", "topics=orders", "filter=/note IS NOT NULL", "topics=ordersx"],
    "GET /v1/log/extent": ["", "filter=/note IS NOT NULL"],
    "POST /v1/snapshots": ["topic=orders", "topic=orders&filter=/client IS NOT NULL"],
    "GET /v1/snapshots/{id}": ["part=0", "part=9"],
    "POST /v1/writes/{writer}/{epoch}": ["topic=orders&part=0&attempt=a&chunk=0"],
    "DELETE /v1/writes/{writer}/{epoch}": ["topic=orders"],
}


@pytest.mark.parametrize("who", [ANN, OPERATOR], ids=["ann", "operator"])
def test_no_address_reports_it(server, who):
    """Every one, in the order of their table: so what is made is there to be read."""
    rows = server.ask("GET", f"{records('orders')}?meta=true", ADMIN).json
    key = next(row["k"] for row in rows if row["d"]["id"] == "other")
    taken = server.ask("POST", "/v1/snapshots?topic=orders", ANN).json["snapshot"]
    with server.socket(headers=ANN) as ws:
        session = ws.ask({"c": "logon"})[-1]["id"]
        for route in TABLE:
            if route.path in READ_BY_OTHER_TESTS:
                continue
            name = f"{route.method} {route.path}"
            made = taken if "snapshots" in route.path else session
            parts = PARTS | {"topic": "orders", "key": key, "id": made}
            path = re.sub(r"\{(\w+)\}", lambda part, of=parts: of[part[1]], route.path)
            for requested in REQUESTED.get(name, [""]):
                query = requested.replace("KEY", key).replace(" ", "%20")
                for body in TRIED.get(name, [None]):
                    sent = body.encode() if isinstance(body, str) else body
                    kind = {"Content-Type": ARROW} if "{epoch}" in path and sent else {}
                    answer = server.ask(route.method, f"{path}?{query}", who, sent, **kind)
                    server.clean(answer)
                    assert answer.status < 500, (name, answer.body)
    assert OTHER in server.ask("GET", records("orders"), ADMIN).json


FOLLOWED = (
    {"oof": "true"},
    {"delta": "true", "oof": "true"},
    {"snapshot": "false"},
    {"bookmark": "0", "snapshot": "false"},
    {"conflation": "100ms", "oof": "true"},
    {"filter": "/client IS NULL OR /note IS NOT NULL", "oof": "true"},
    {"live": "true", "order_by": "/px DESC", "top_n": "5"},
    {"live": "true", "order_by": "/client", "top_n": "5", "positions": "true"},
    {"select": "/px,/client,/note"},
    {"projection": "SUM(/px) AS /px,MAX(/client) AS /c,/desk", "grouping": "/desk"},
    {"projection": "SUM(/px) AS /px,/client", "grouping": "/client,/note"},
)


@pytest.mark.parametrize("topic", ["orders", "orders-C"])
@pytest.mark.parametrize("requested", FOLLOWED, ids=lambda requested: ",".join(requested))
def test_streams_of_events(server, topic, requested):
    if topic == "orders-C" and "bookmark" in requested:
        requested = {"snapshot": "true"}
    with server.events(topic, headers=ANN, **requested) as events:
        assert events.status == 200, events.body()
        server.publish(OTHER | {"px": 3}, {**OWN, "px": 4})
        server.publish(OWN | {"desk": "ben"})
        server.publish({**OWN, "px": 99})
        said = [events.event()]
        while said[-1].line.get("d", {}).get("px") != 99:
            said.append(events.event())
    assert MARK not in json.dumps([(one.id, one.line) for one in said])
    assert MARK not in str(events.headers)


COMMANDED = {
    "logon": [{"client": "me"}],
    "publish": [{"t": "orders", "d": {"id": "other", "desk": "ann"}}, {"t": "orders", "d": 1}],
    "delta_publish": [{"t": "orders", "d": {"id": "other", "desk": "ann"}}],
    "sow": [
        {"t": "orders", "filter": "/client = 1 OR /note IS NULL"},
        {"t": "^orders", "order_by": "/client"},
        {"t": "orders", "projection": ["MAX(/client) AS /c", "/desk"], "grouping": ["/desk"]},
        {"t": "orders", "keys": "KEY"},
        {"t": "orders", "filter": "/note ="},
    ],
    "subscribe": [{"t": "orders"}, {"t": "orders", "bm": "0"}, {"t": "orders-C"}],
    "sow_and_subscribe": [
        {"t": "orders", "opts": "oof"},
        {"t": "^orders", "opts": "oof,conflation=100ms"},
        {"t": "orders", "opts": "live", "order_by": "/px", "top_n": 3},
        {"t": "orders", "projection": ["COUNT(/client) AS /n", "/desk"], "grouping": ["/desk"]},
    ],
    "delta_subscribe": [{"t": "orders", "bm": "0"}],
    "sow_and_delta_subscribe": [{"t": "^orders", "opts": "oof"}, {"t": "orders-C", "opts": "oof"}],
    "unsubscribe": [{"s": "none"}],
    "sow_delete": [
        {"t": "orders", "filter": "/note IS NOT NULL"},
        {"t": "orders", "keys": "KEY"},
        {"t": "orders", "d": {"id": "other"}},
    ],
    "flush": [{}],
    "heartbeat": [{}],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_reports_it_nor_does_what_follows(server, name):
    rows = server.ask("GET", f"{records('orders')}?meta=true", ADMIN).json
    key = next(row["k"] for row in rows if row["d"]["id"] == "other")
    with server.socket(headers=ANN) as ws:
        said = []
        for more in COMMANDED[name]:
            line = {"c": name, **more} | ({"keys": key} if more.get("keys") == "KEY" else {})
            said += ws.ask(line)
        server.publish(OTHER | {"px": 3}, {**OWN, "px": 4})
        server.publish(OWN | {"desk": "ben"})
        said += ws.settled()
        server.publish(OWN)
        said += ws.settled()
        session = ws.ask({"c": "logon"})[-1]["session"]
    with server.socket(headers=ANN) as again:
        said += again.ask({"c": "logon", "session": session, "seen": 0})
        said += again.settled()
    assert MARK not in json.dumps(said)
    assert [row["d"] for row in rows if row["d"]["id"] == "other"] == [OTHER], (
        "nothing is done to it"
    )


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


# Doors that tell it, planted: the tests above find each.


def answers_what_is_requested(patch):
    patch.setattr(records_api, "restrict_query", lambda query, _guard: query)


def shows_what_is_selected(patch):
    patch.setattr(records_api, "restrict_shape", lambda shape, _guard: shape)


def shows_every_record_by_its_key(patch):
    patch.setattr(record_resource, "shows", lambda *_: True)


def follows_what_is_requested(patch):
    patch.setattr(subscriptions, "row_policy_of", lambda _command, _topic: None)
    patch.setattr(query_planning, "row_policy_of", lambda _command, _topic: None)


def takes_snapshots_of_all(patch):
    patch.setattr(snapshots, "restrict_query", lambda query, _guard: query)
    patch.setattr(snapshots, "restrict_shape", lambda shape, _guard: shape)


@pytest.mark.parametrize(
    ("bug", "law", "requested"),
    [
        (answers_what_is_requested, test_no_form_of_a_query_reports_it.__wrapped__, ("", "json")),
        (shows_what_is_selected, test_no_form_of_a_query_reports_it.__wrapped__, ("", "csv")),
        (shows_every_record_by_its_key, test_one_record_by_its_key, ()),
        (follows_what_is_requested, test_streams_of_events, ("orders", {"delta": "true"})),
        (
            follows_what_is_requested,
            test_no_command_reports_it_nor_does_what_follows,
            ("subscribe",),
        ),
        (takes_snapshots_of_all, test_no_address_reports_it, (ANN,)),
    ],
)
def test_a_door_that_reports_is_found(server, monkeypatch, bug, law, requested):
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        law(server, *requested)


def test_one_record_is_changed_by_who_may_and_its_tags_tell_nothing(server):
    keys = {
        row["d"]["id"]: row["k"]
        for row in server.ask("GET", f"{records('orders')}?meta=true", ADMIN).json
    }
    own, other = (f"{records('orders')}/{keys[name]}" for name in ("own", "other"))
    body = json.dumps({"id": "other", "desk": "ann"}).encode()
    everything = server.ask("GET", own, ADMIN).headers["ETag"]
    tag = server.clean(server.ask("GET", own, ANN)).headers["ETag"]
    assert tag != everything, "it is of what she sees"
    for method, told in (("PUT", 403), ("PATCH", 403), ("DELETE", 404)):
        assert server.clean(server.ask(method, other, ANN, body)).status == told
        for header in ("If-Match", "If-None-Match"):
            lost = server.clean(server.ask(method, other, ANN, body, **{header: "*"}))
            assert lost.status in (told, 412)
        assert server.ask(method, own, OPERATOR, body).status == 404
    assert server.ask("GET", other, ADMIN).json == OTHER
    mine = json.dumps({"id": "own", "desk": "ann", "px": 1, "client": MARK}).encode()
    assert server.ask("PUT", own, ANN, mine, **{"If-Match": everything}).status == 412
    won = server.clean(server.ask("PUT", own, ANN, mine, **{"If-Match": tag}))
    assert won.status == 200
    assert won.headers["ETag"] == server.ask("GET", own, ANN).headers["ETag"]
