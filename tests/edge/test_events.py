"""Server-sent events: the same query and subscribe, for browsers and curl."""


def test_a_stream_is_a_snapshot_and_what_follows(server):
    server.publish("orders", {"id": 1})
    with server.events("orders") as events:
        names = [event.name for event in events.until("group_end")]
        server.publish("orders", {"id": 2})
        update = events.until("p")[-1]
    assert names == ["group_begin", "sow", "group_end"]
    assert update.line["d"] == {"id": 2}


def test_an_id_goes_on_in_its_own_log_and_begins_anew_in_another(server):
    log = server.get("/v1/status").json["log"]
    seen = server.publish("orders", {"id": 1}).json["bookmark"]
    server.publish("orders", {"id": 2})
    with server.events("orders", headers={"Last-Event-ID": f"{log}-{seen}"}) as events:
        assert [event.name for event in events.until("p")] == ["p"]
    for last in (f"00000000000000bb-{seen}", "00000000000000bb-0"):
        with server.events("orders", headers={"Last-Event-ID": last}) as events:
            names = [event.name for event in events.until("group_end")]
            assert names == ["group_begin", "sow", "sow", "group_end"]
    with server.events("orders", bookmark=f"{log}-{seen}") as events:
        assert events.until("p")[-1].line["d"] == {"id": 2}
    with server.events("orders", bookmark=f"00000000000000bb-{seen}") as events:
        assert events.status == 409


def test_events_may_be_of_the_default_type_of_a_browser(server):
    server.publish("orders", {"id": 1})
    with server.events("orders", unnamed="true") as events, server.events("orders") as others:
        server.publish("orders", {"id": 2})
        found, named = [], []
        while len(found) < 4:
            found.append(events.event())
            named.append(others.event())
        assert {event.name for event in found} == {""}
        assert [(event.id, event.line["c"]) for event in found] == [
            (event.id, event.name) for event in named
        ]
        server.request("DELETE", "/v1/topics/orders/records?filter=1=1")
        end = named[-1].id
        last = server.events("orders", {"Last-Event-ID": end}, unnamed="true", oof="true")
        with last as again:
            assert again.event().line["c"] == "oof"


def test_an_operator_can_close_a_stream(server):
    with server.events("orders") as events:
        events.until("group_end")
        (session,) = server.get("/v1/sessions").json
        server.request("DELETE", f"/v1/sessions/{session['id']}")
        assert events.until("close")[-1].line["reason"] == "closed by an operator"
        assert events.body() == b""
