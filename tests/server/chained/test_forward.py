"""HTTP requests of a chained server: forwarded, and refused while upstream is lost."""

from tests.edge.serving import records


def test_requests_are_answered_from_upstream(pair):
    assert pair.chained.publish("orders", {"id": 1}, {"id": 2}).json["published"] == 2
    assert pair.chained.records("orders") == [{"id": 1}, {"id": 2}]
    assert pair.upstream.records("orders") == [{"id": 1}, {"id": 2}]
    answer = pair.chained.get(records("nix"))
    assert (answer.status, answer.json["reason"]) == (404, "invalid topic")
    assert pair.chained.get("/v1/topics/orders").json["name"] == "orders"
    log = pair.chained.get("/readyz").headers["SOW-Log"]
    assert log == pair.upstream.get("/readyz").headers["SOW-Log"]
    status = pair.chained.get("/v1/status").json
    assert (status["role"], status["log"], status["state_hash"]) == ("chained", log, None)
    assert status["upstream"] == pair.relay.url
    answer = pair.chained.get(records("orders", min_bookmark=2))
    assert answer.headers["SOW-Bookmark"] == "2"


def test_an_answer_is_that_of_upstream_in_every_form(pair):
    pair.upstream.publish("orders", *({"id": number, "x": "x" * 50} for number in range(500)))
    for headers in ({}, {"Accept-Encoding": "gzip"}, {"Accept": "text/csv"}):
        found = [
            server.request("GET", records("orders"), headers=headers)
            for server in (pair.chained, pair.upstream)
        ]
        assert found[0].body == found[1].body
        for name in ("ETag", "Content-Encoding", "Content-Type", "SOW-Bookmark"):
            assert found[0].headers.get(name) == found[1].headers.get(name)
    tag = found[0].headers["ETag"]
    again = {"If-None-Match": tag, "Accept": "text/csv"}
    assert pair.chained.request("GET", records("orders"), headers=again).status == 304
    with pair.chained.events("orders", filter="/id = 1", snapshot="true") as events:
        assert [event.name for event in events.until("group_end")][1] == "sow"
