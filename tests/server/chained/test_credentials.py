"""Credentials of a chained server's clients: shown in a header or by a logon, and for how long."""

from dataclasses import replace

import pytest

from sow.core.clock import SECOND_US
from sow.security.authentication.tokens import sum_of
from sow.server.api.nodes import Upstream
from tests.edge.secured import ADMIN, ANN, Secured, secured, tokens
from tests.edge.serving import Running, configuration, records
from tests.server.chained.chains import ALL, begin
from tests.virtual_clock import VirtualClock

AGENT = "agent-token"
START_US, LATER_S = 1_700_000_000 * SECOND_US, 86_400
ENDS = "2023-11-15T00:00:00Z"
"""An hour and 47 minutes after the start."""
BARRED = "its user is known no longer; log on again"
USERS = {"ann": f"desk {ENDS}", "reader": "", "admin": "", "agent": ""}


class Expiring:
    """An upstream server and a chained one whose time is moved by hand; Ann's token ends."""

    def __init__(self, place, knows, token, users=USERS):
        self.clock = VirtualClock(START_US)
        self.upstream = Secured(place, clock=self.clock)
        self.upstream.say(**users)
        self.upstream.next = secured(place)
        assert self.upstream.reload().status == 200
        own, there = configuration(""), place / "there"
        self.places = [place, there] if knows else [place]
        if knows:
            there.mkdir()
            (there / "tokens").write_text(tokens(**users))
            own = replace(secured(there, topics=""), topics=())
        above = Upstream(self.upstream.url, token)
        self.chained = Running(
            own, there / "data", upstream=above, clock=self.clock, reread=lambda: own
        )

    def expire(self):
        """The token has ended."""
        self.clock.advance(LATER_S * SECOND_US)
        for one in (self.upstream, self.chained):
            one.call(one.server.runtime._due_timers.begin)

    def followed(self):
        """How many subscriptions there are upstream."""
        sessions = self.upstream.ask("GET", "/v1/sessions", ADMIN).json
        return sum(one["subscriptions"] for one in sessions)

    def renew(self):
        """Let Ann have a token besides, which does not end."""
        kept = tokens(**USERS) + f"ann {sum_of('new-token')} desk\n"
        for one in self.places:
            (one / "tokens").write_text(kept)
        assert self.upstream.reload().status == 200
        if len(self.places) > 1:
            self.chained.wait(self.chained.server.reload())

    def close(self):
        self.chained.close()
        self.upstream.close()
        assert self.upstream.errors == self.chained.errors == []


WAYS = {
    "upstream knows": (False, ""),
    "both know": (True, ""),
    "by token": (True, AGENT),
}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def expiring(request, tmp_path):
    made = Expiring(tmp_path, *request.param)
    yield made
    made.close()


def test_clients_that_log_on_share_with_those_that_show_a_header(expiring):
    with expiring.chained.socket(headers=ANN) as one, expiring.chained.socket() as two:
        two.ask({"c": "logon", "token": "ann-token"})
        names = [begin(socket, ALL, "2")[0]["s"] for socket in (one, two)]
        assert names[0] == names[1]
        assert expiring.followed() == 1


def test_who_is_refused_by_upstream_at_a_logon_is_told_why(tmp_path):
    expiring = Expiring(tmp_path, False, "")
    for shown in ({"token": "wrong"}, {"token": "a\nb"}, {"user": "a:b", "password": "ü\r\n"}):
        with expiring.chained.socket() as one:
            one.ask({"c": "logon", **shown})
            ack = one.ask({**ALL, "cid": "2"}, cid="2")[-1]
            assert (ack["status"], ack["reason"]) == ("failure", "auth failure"), ack
    expiring.close()


def ended(server, expire):
    """What a client is sent whose token ends, and the code that closes its socket."""
    with server.socket(headers=ANN) as one:
        begin(one, ALL)
        begin(one, {**ALL, "t": "^ord"}, "2")
        one.ask({"c": "flush"}, cid="nothing waits any more")
        expire()
        found = [(one.line()["c"], one.seen[-1].get("reason")) for _ in range(3)]
        return found, server.wait(one._ws.receive()).data


def test_a_session_whose_token_ends_is_ended_as_by_a_server_with_records(expiring):
    ends = [("unsubscribed", "AUTHORIZATION")] * 2
    assert ended(expiring.chained, expiring.expire) == ([*ends, ("close", BARRED)], 4401)
    answer = expiring.chained.request("GET", records("orders"), headers=ANN)
    assert answer.status == 401
    with expiring.chained.socket() as one:
        one.ask({"c": "logon", "token": "ann-token"})
        ack = one.ask(ALL, cid="2")[-1]
        assert (ack["status"], ack["reason"]) == ("failure", "auth failure")


@pytest.mark.parametrize("topic", ["orders", "^ord"], ids=["shared", "its own"])
def test_a_token_of_the_chained_server_that_ends_is_no_fault_of_a_client(tmp_path, topic):
    users = {**USERS, "ann": "desk", "agent": ENDS}
    expiring = Expiring(tmp_path, True, AGENT, users)
    with expiring.chained.socket(headers=ANN) as one:
        begin(one, {**ALL, "t": topic})
        expiring.expire()
        assert one.until(c="close")[-1]["reason"] == "upstream lost"
    expiring.close()


NEW = {"c": "logon", "token": "new-token"}


def test_who_logs_on_again_by_a_new_token_goes_on_with_all_that_it_follows(expiring):
    expiring.renew()
    with expiring.chained.socket(headers=ANN) as one:
        begin(one, ALL)
        begin(one, {**ALL, "t": "^ord"}, "2")
        assert one.ask(NEW, cid="again")[-1]["status"] == "success"
        assert one.ask({"c": "logon", "token": "wrong"}, cid="w")[-1]["status"] == "failure"
        expiring.expire()
        assert expiring.upstream.ask("POST", records("orders"), ADMIN, b'{"id":7}').status == 200
        found = [line for line in [*one.until(c="p"), *one.until(c="p")] if line["c"] != "ack"]
        assert [(line["c"], line["d"]["id"]) for line in found] == [("p", 7)] * 2
        replaced = {**ALL, "s": one.seen[1]["s"], "opts": "replace", "filter": "/id > 1"}
        assert begin(one, replaced, "3")[-1]["status"] == "success"


def test_of_two_by_one_token_each_has_to_log_on_again(tmp_path):
    """Where this server does not know users, how long a token lasts is upstream's to say."""
    expiring = Expiring(tmp_path, False, "")
    expiring.renew()
    with expiring.chained.socket(headers=ANN) as one, expiring.chained.socket(headers=ANN) as two:
        begin(one, ALL)
        begin(two, ALL)
        one.ask(NEW, cid="again")
        expiring.expire()
        assert two.until(c="close")[-1]["reason"] == BARRED
    expiring.close()
