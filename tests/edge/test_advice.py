"""Advice for misspelt fields, where clients find it: header, ack, plan; and for whom."""

from urllib.parse import unquote

import pytest

from sow.security.authentication.tokens import sum_of
from tests.edge.serving import Running, configuration, served

TOPICS = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>orders</UnderlyingTopic><Interval>1s</Interval></ConflatedTopic>
<Topic><Name>trades</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"""
MEANT = "no record has /symbl; did you mean /symbol?"

server = served(configuration(TOPICS))


@pytest.fixture
def orders(server):
    server.post("orders", b'[{"id":1,"symbol":"IBM","px":2}]')
    return server


def header(answer):
    return [unquote(one) for one in answer.headers.get("SOW-Advice", "").split("; ") if one]


def bearer(who):
    return {"Authorization": f"Bearer of-{who}"}


def test_over_http_it_is_a_header(orders):
    path = "/v1/topics/orders/records"
    for query in (
        "filter=/symbl='IBM'", "filter=/symbl IS NULL", "order_by=/symbl", "select=/symbl",
        "projection=/id, SUM(/symbl) AS /n&grouping=/id",
        "projection=/id, COUNT(/id) AS /n&grouping=/id,/symbl",
    ):  # fmt: skip
        answer = orders.get(f"{path}?{query.replace(' ', '%20')}")
        assert (answer.status, header(answer)) == (200, [MEANT]), query
    raw = orders.get(f"{path}?filter=/symbl=1").headers["SOW-Advice"]
    assert raw == "no%20record%20has%20/symbl%3B%20did%20you%20mean%20/symbol%3F"
    both = header(orders.get(f"{path}?filter=/symbl=1&order_by=/qqqq"))
    assert both == [MEANT, "no record has /qqqq"]
    for query in (
        "",
        "filter=/symbol='x'",
        "order_by=/px",
        "projection=/id, SUM(/px) AS /symbl&grouping=/id",
    ):
        answer = orders.get(f"{path}?{query.replace(' ', '%20')}")
        assert (answer.status, header(answer)) == (200, []), query


def test_a_plan_has_it_too(orders):
    found = orders.get("/v1/topics/orders/records?explain=true&filter=/symbl=1").json
    assert MEANT in found["advice"]
    assert found["why"][-1] == MEANT


@pytest.mark.parametrize(
    "more",
    [
        {"c": "sow"},
        {"c": "sow_and_subscribe"},
        {"c": "sow_and_subscribe", "opts": "live,top_n=5", "order_by": "/px"},
        {"c": "sow", "opts": "projection=[/id,COUNT(/symbl) AS /n],grouping=[/id]"},
    ],
)
def test_over_a_websocket_the_ack_has_it(orders, more):
    with orders.socket() as socket:
        named = {"filter": "/symbl = 'IBM'"} if "projection" not in more.get("opts", "") else {}
        socket.send({"cid": "1", "a": "processed,completed", "t": "orders", **named, **more})
        acks = [line for line in socket.until(a="completed") if line["c"] == "ack"]
        assert [ack.get("advice") for ack in acks] == [[MEANT], [MEANT]], acks
        (*_, ack) = socket.ask({"c": "sow", "t": "orders", "filter": "/px > 1"}, cid="2")
        assert "advice" not in ack


def test_a_subscription_without_records_has_it(orders):
    with orders.socket() as socket:
        for command in ("subscribe", "delta_subscribe"):
            (*_, ack) = socket.ask({"c": command, "t": "orders", "filter": "/symbl = 1"}, cid="1")
            assert ack["advice"] == [MEANT]
            (*_, ack) = socket.ask({"c": command, "t": "orders", "filter": "/symbol = 1"}, cid="2")
            assert "advice" not in ack


def test_of_a_pattern_the_records_of_all_topics_count(orders):
    asked = {"t": "^(orders|trades)$", "filter": "/symbl = 1 OR /pric > 1"}
    with orders.socket() as socket:
        for name in ("sow", "sow_and_subscribe", "subscribe"):
            (*_, ack) = socket.ask({"c": name, **asked, "a": "processed"}, cid=name)
            assert ack["advice"] == [MEANT, "no record has /pric"]
        orders.post("trades", b'[{"id":1,"symbl":"IBM","price":2}]')
        (*_, ack) = socket.ask({"c": "subscribe", **asked}, cid="1")
        assert ack["advice"] == ["no record has /pric; did you mean /price?"]
        orders.post("trades", b'[{"id":1,"pric":2,"symbl":1}]')
        (*_, ack) = socket.ask({"c": "subscribe", **asked}, cid="2")
        assert "advice" not in ack


def test_whoever_may_not_see_a_field_is_not_told_of_it(tmp_path):
    (tmp_path / "tokens").write_text(f"ann {sum_of('of-ann')}\nroot {sum_of('of-root')}\n")
    security = f"""<Security><Authentication><Tokens><File>{tmp_path}/tokens</File></Tokens>
    </Authentication><Role><Name>some</Name><Member>user:ann</Member><Allow><Topic>orders</Topic>
    <Read/><Filter>/px &gt; 5</Filter><Select>-/salary</Select></Allow></Role>
    <Role><Name>all</Name><Member>user:root</Member><Allow><Topic>.*</Topic>
    <Read/><Write/></Allow></Role></Security>"""
    running = Running(configuration(TOPICS, security), tmp_path / "data")
    try:

        def asked(who, name):
            path = f"/v1/topics/orders/records?filter=/{name}=1"
            return header(running.request("GET", path, headers=bearer(who)))

        def post(body):
            path = "/v1/topics/orders/records"
            headers = {"Content-Type": "application/json", **bearer("root")}
            assert running.request("POST", path, data=body, headers=headers).status == 200

        post(b'{"id":1,"px":1,"salary":3}')
        assert asked("ann", "salary") == asked("ann", "nothing") == []
        post(b'{"id":2,"px":9,"salary":3}')
        assert asked("ann", "salary") == ["no record has /salary"]
        assert asked("ann", "salry") == ["no record has /salry"]
        assert asked("root", "salry") == ["no record has /salry; did you mean /salary?"]
        assert asked("root", "salary") == []
    finally:
        running.close()
