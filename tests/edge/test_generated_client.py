"""A client that is generated from `/openapi.json` asks a server; answers have the types it says."""

import importlib
import json
import subprocess
import sys

import msgspec
import pytest

from sow.core.media_types import JSON
from sow.server.boot.routes import TABLE
from sow.server.http.tables import IN_COLUMNS
from tests.edge.serving import records

SETTINGS = {
    "content_type_overrides": dict.fromkeys(IN_COLUMNS, "application/octet-stream"),
    "post_hooks": [],
}
"""What to tell the generator: it knows JSON, text and bytes, and formats nothing for us."""


def for_generator(described):
    """The description without bodies of bytes: this generator tells the forms of a body apart by
    their Python types, and a document may be anything."""
    for operations in described["paths"].values():
        for operation in operations.values():
            content = operation.get("requestBody", {}).get("content", {})
            content.pop("application/octet-stream", None)
    return described


@pytest.fixture(scope="module")
def generated(running, tmp_path_factory):
    """The package that was made, imported by a name of its own."""
    place = tmp_path_factory.mktemp("generated")
    document, settings = place / "openapi.json", place / "settings.json"
    document.write_text(json.dumps(for_generator(running.get("/openapi.json").json)))
    settings.write_text(json.dumps(SETTINGS))
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    command += ["--path", str(document), "--config", str(settings)]
    made = subprocess.run(
        [*command, "--output-path", str(place / "sow_generated")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    assert "Endpoint will not be generated" not in made.stdout
    sys.path.insert(0, str(place))
    yield lambda name: importlib.import_module(f"sow_generated.{name}")
    sys.path.remove(str(place))


def test_a_client_is_made_of_the_description_and_is_understood(server, generated):
    api = lambda name: generated(f"api.default.{name}")  # noqa: E731
    problem = generated("models.problem").Problem
    # What the machine trusts is no matter of this test.
    own = {"trust_env": False}
    with generated("client").Client(base_url=server.url, httpx_args=own) as client:
        sent = [{"id": 1, "px": 1.5}, {"id": 2, "px": 2.5}]
        published = api("publish").sync("orders", client=client, body=sent)
        assert published.published == 2
        requested = api("query").sync("orders", client=client, filter_="/px > 2", meta=True)
        assert [row["d"] for row in requested] == [{"id": 2, "px": 2.5}]
        key = requested[0]["k"]
        described = api("describe_topic").sync("orders", client=client)
        assert (described.kind, described.records, described.keys) == ("topic", 2, ["/id"])
        put = api("put_record").sync_detailed("orders", key, client=client, body={"id": 2})
        assert (put.status_code, put.parsed.published) == (200, 1)
        assert api("get_record").sync("orders", key, client=client) == {"id": 2}
        lost = api("put_record").sync(
            "orders", key, client=client, body={"id": 2, "px": 1}, if_match='"1"'
        )
        assert (type(lost), lost.status, lost.reason) == (problem, 412, "precondition failed")
        assert api("delete_record").sync("orders", key, client=client).deleted == 1
        assert api("delete_records").sync("orders", client=client, filter_="1=1").deleted == 1
        wrong = api("query").sync("orders", client=client, filter_="/px >")
        assert (type(wrong), wrong.reason, wrong.position) == (problem, "bad filter", 5)
        assert api("query").sync("none", client=client).reason == "invalid topic"
        taken = api("take_snapshot").sync(client=client, topic="orders")
        assert (taken.topic, taken.rows) == ("orders", 0)
        assert api("release_snapshot").sync(taken.snapshot, client=client).released


ANSWERS = {f"{route.method} {route.path}": route.operation.answer for route in TABLE}
"""The types of JSON answers."""
OF_ONE_ADDRESS = [
    route.path
    for route in TABLE
    if route.method == "GET" and "{" not in route.path and route.operation.answers[:1] == (JSON,)
]
"""What is asked as it stands, without a topic or a name in its address."""
OF_A_PLACE = {
    f"GET {route.path}"
    for route in TABLE
    if route.method == "GET" and "{" in route.path and route.operation.answers == (JSON,)
}


def conforms(answer, name):
    """Whether a JSON answer has the fields of its type, and no others."""
    document = answer.json
    return msgspec.to_builtins(msgspec.convert(document, ANSWERS[name])) == document


def test_what_is_answered_has_the_types_that_are_described(server):
    server.publish("orders", {"id": 1, "symbol": "A", "price": 200})
    server.publish("/desk/1", {"id": 1})
    server.publish("prices", {"id": 1})
    events = f"{records('prices')}/key=1/events"
    (row,) = server.records("orders", meta="true")
    with server.socket() as ws, server.events("orders-C"):
        ws.ask({"c": "subscribe", "t": "orders-C", "opts": "conflation=1s"})
        ws.ask({"c": "subscribe", "t": "orders"})
        session = server.get("/v1/sessions").json[0]["id"]
        paths = {path: f"GET {path}" for path in OF_ONE_ADDRESS} | {
            f"/v1/sessions/{session}": "GET /v1/sessions/{id}",
            f"/v1/sessions/{session}/why": "GET /v1/sessions/{id}/why",
            "/v1/topics/orders": "GET /v1/topics/{topic}",
            "/v1/topics/orders-C": "GET /v1/topics/{topic}",
            f"{records('orders')}/{row['k']}/why": "GET /v1/topics/{topic}/records/{key}/why",
            f"{records('orders-C')}/{row['k']}/why": "GET /v1/topics/{topic}/records/{key}/why",
            events: "GET /v1/topics/{topic}/records/{key}/events",
            "/v1/topics/orders/rates": "GET /v1/topics/{topic}/rates",
            f"/v1/topics/orders/rates?k={row['k']}": "GET /v1/topics/{topic}/rates",
        }
        missing = OF_A_PLACE - set(paths.values())
        assert not missing, f"{sorted(missing)}: add a path of each to `paths` of this test"
        for path, name in paths.items():
            assert conforms(server.get(path), name), name
        then = server.get(f"{records('orders')}/{row['k']}/why?as_of=now")
        assert conforms(then, "GET /v1/topics/{topic}/records/{key}/why")
    assert conforms(server.get("/v1/sessions?closed=true"), "GET /v1/sessions")
    (event,) = server.get(events).json
    edited = server.request("PUT", f"{events}/{event['seq']}", data=b'{"id":1}')
    assert conforms(edited, "PUT /v1/topics/{topic}/records/{key}/events/{seq}")
    consumer = "/v1/log/consumers/reader"
    moved = server.request("PUT", consumer, data=b'{"bookmark":"0"}')
    assert conforms(moved, "PUT /v1/log/consumers/{name}")
    assert conforms(server.get("/v1/log/consumers"), "GET /v1/log/consumers")
    gone = server.request("DELETE", consumer)
    assert conforms(gone, "DELETE /v1/log/consumers/{name}")
    taken = server.request("POST", "/v1/snapshots?topic=orders")
    assert conforms(taken, "POST /v1/snapshots")
    let_go = server.request("DELETE", f"/v1/snapshots/{taken.json['snapshot']}")
    assert conforms(let_go, "DELETE /v1/snapshots/{id}")
    assert conforms(server.request("POST", "/v1/verify"), "POST /v1/verify")
    changed = server.request("POST", "/v1/sessions?filter=1=1", data=b'{"conflated":true}')
    assert conforms(changed, "POST /v1/sessions")
