"""Whether the upstream server is there: what clients see of a loss, and of its end."""

import pytest

from tests.edge.serving import Running, configuration, records
from tests.server.chained.chains import ALL, BACK, LOST, begin, lines_up_to, numbers


@pytest.mark.parametrize("how", ["cut", "be_silent"])
def test_a_loss_is_reported_and_what_came_meanwhile_follows(pair, how):
    with pair.chained.socket() as one:
        begin(one, ALL)
        pair.upstream.publish("orders", {"id": 1})
        lines_up_to(one, 1)
        getattr(pair.relay, how)()
        assert one.line() == LOST
        answer = pair.chained.get("/readyz")
        assert (answer.status, answer.body.split(b";")[0]) == (503, b"upstream lost\n")
        assert pair.chained.get("/healthz").status == 200
        answer = pair.chained.get(records("orders"))
        assert (answer.status, answer.json["reason"]) == (503, "upstream lost")
        assert pair.chained.publish("orders", {"id": 2}).status == 503
        for command in ({"c": "publish", "d": {"id": 2}}, {"c": "sow"}, ALL):
            ack = one.ask({"t": "orders", **command}, cid="9")[-1]
            assert (ack["status"], ack["reason"]) == ("failure", "upstream lost")
        pair.upstream.publish("orders", {"id": 3}, {"id": 4})
        pair.relay.mend() if how == "cut" else pair.relay.be_silent(False)
        lines = lines_up_to(one, 4)
        assert BACK in lines
        assert numbers(lines) == [3, 4]
        pair.upstream.publish("orders", {"id": 5})
        assert numbers(lines_up_to(one, 5)) == [5]
        assert pair.chained.get("/readyz").status == 200


def test_a_chain_of_three_reports_a_loss_at_its_end(pair, tmp_path):
    third = Running(configuration(""), tmp_path / "third", upstream=(pair.chained.url, ""))
    with third.socket() as one:
        begin(one, ALL)
        pair.upstream.publish("orders", {"id": 1})
        lines_up_to(one, 1)
        pair.relay.cut()
        assert one.line() == LOST
        assert third.get(records("orders")).status == 503
        pair.upstream.publish("orders", {"id": 2})
        pair.relay.mend()
        assert numbers(lines_up_to(one, 2)) == [2]
    third.close()
    assert third.errors == []
