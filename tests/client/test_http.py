"""Requests and answers over HTTP: what is sent, and how an answer is read as it arrives."""

import asyncio
import json

import aiohttp
import pytest

from sow.client import Disconnected, Unreachable
from sow.client.http import (
    AnsweredFields,
    Http,
    Rows,
    decoded,
    length_prefixed,
    records_of,
    taken,
    topic_path,
    understood,
)
from sow.core.addresses import Addresses
from sow.errors import BadFilter, ClientError, SowError, Unauthenticated, UnknownTopic

PLAIN = {"Accept-Encoding": "identity"}


class Content:
    """A body that comes in these pieces; an error in their place is raised."""

    def __init__(self, pieces):
        self.pieces = list(pieces)

    async def readany(self):
        piece = self.pieces.pop(0) if self.pieces else b""
        if isinstance(piece, Exception):
            raise piece
        return piece


class Response:
    """What aiohttp hands a client for a request."""

    def __init__(self, *pieces, status=200, headers=()):
        self.status, self.headers, self.content = status, dict(headers), Content(pieces)
        self.released = False

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_error):
        self.released = True


class Session:
    """Answers every request with this, and keeps the requests."""

    def __init__(self, response):
        self.response, self.requested = response, None

    async def request(self, method, address, headers, data):
        self.requested = (method, str(address), headers, data)
        if isinstance(self.response, Exception):
            raise self.response
        return self.response


def wait(work):
    return asyncio.run(work)


async def all_of(items):
    return [item async for item in items]


def rows_of(*pieces, **more):
    return Rows("http://there", Response(*pieces, **more), "t", None)


@pytest.mark.parametrize(
    "pieces",
    [
        [b'{"a":1}\n{"a":2}\n{"a":3}\n'],
        [b'{"a"', b":1}", b'\n{"a":2}\n{"', b'a":3}\n'],
        [b'{"a":1}\n', b'{"a":2}\n', b'{"a":3}'],
    ],
)
def test_rows_are_whole_however_the_network_cuts_them(pieces):
    assert wait(all_of(rows_of(*pieces))) == [b'{"a":1}', b'{"a":2}', b'{"a":3}']
    assert wait(rows_of(*pieces).all()).records == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_rows_come_in_the_lists_in_which_they_arrived():
    assert wait(all_of(rows_of(b"1\n2\n3", b"4\n5\n").chunks())) == [[b"1", b"2"], [b"34", b"5"]]


def test_the_headers_say_what_the_answer_is():
    headers = {"SOW-Matches": "7", "SOW-Index": "hash(/a)", "SOW-Bookmark": "99"}
    rows = rows_of(headers=headers)
    assert (rows.matches, rows.index, rows.bookmark) == (7, "hash(/a)", "99")
    answer = wait(rows.all())
    assert (answer.records, answer.matches, answer.bookmark) == ([], 7, "99")


def test_an_answer_that_breaks_off_is_a_connection_that_was_lost():
    rows = rows_of(b"1\n", aiohttp.ClientPayloadError("cut"))
    with pytest.raises(Disconnected, match="http://there was lost: cut"):
        wait(all_of(rows))


def asking(response, *arguments, **named):
    session = Session(response)
    return session, Http(Addresses(["http://there"]), session).json(*arguments, **named)


def test_parameters_that_are_none_are_left_out_and_flags_are_spelt_as_in_json():
    session, work = asking(
        Response(b"{}"), "GET", "/v1/x%2Fy", {"a": None, "b": True, "c": 5, "d": "/e = 'f & g'"}
    )
    assert wait(work) == {}
    method, address, headers, body = session.requested
    assert (method, body, headers) == ("GET", None, {"Accept": "application/json", **PLAIN})
    assert address.startswith("http://there/v1/x%2Fy?b=true&c=5&d=")
    assert "%26" in address, "an ampersand within a filter ends no parameter"


def test_a_body_goes_with_its_type():
    session, work = asking(
        Response(b"{}"), "POST", "/v1/x", body=b"text", content_type="text/plain"
    )
    wait(work)
    assert session.requested[2:] == (
        {"Accept": "application/json", "Content-Type": "text/plain", **PLAIN},
        b"text",
    )


@pytest.mark.parametrize(
    ("status", "report", "kind"),
    [
        (404, {"reason": "invalid topic", "detail": "no topic 'x'"}, UnknownTopic),
        (400, {"reason": "bad filter", "detail": "d", "position": 3, "expected": "y"}, BadFilter),
        (400, {"reason": "something new", "detail": "d"}, ClientError),
    ],
)
def test_a_problem_is_raised_as_the_error_it_stands_for(status, report, kind):
    _, work = asking(Response(json.dumps(report).encode(), status=status), "GET", "/")
    with pytest.raises(kind) as caught:
        wait(work)
    assert (type(caught.value), caught.value.status) == (kind, status)


@pytest.mark.parametrize("body", [b"<html>", b"[1]", b""])
def test_who_answers_without_a_problem_document_does_not_speak_sow(body):
    _, work = asking(Response(body, status=502), "GET", "/")
    with pytest.raises(SowError, match="does not speak SOW: it answered 502"):
        wait(work)


@pytest.mark.parametrize("body", [b"<html>", b""])
def test_a_proxy_that_asks_who_it_is_is_sent_as_one(body):
    _, work = asking(Response(body, status=401), "GET", "/")
    with pytest.raises(Unauthenticated, match="requires credentials: give a token"):
        wait(work)


def test_who_does_not_answer_is_named():
    refused = aiohttp.ClientConnectorError(None, OSError(111, "refused"))
    _, work = asking(refused, "GET", "/")
    with pytest.raises(Unreachable, match="no server answers at http://there"):
        wait(work)


def test_what_a_caller_does_with_an_answer_is_not_the_networks_fault():
    response = Response(b"{}")

    async def work():
        async with Http(Addresses(["http://there"]), Session(response)).request("GET", "/"):
            raise ConnectionError("the caller's own")

    with pytest.raises(ConnectionError, match="the caller's own"):
        wait(work())
    assert response.released


def test_names_of_topics_are_literal_in_an_address():
    assert topic_path("/desk/1 ä") == "/v1/topics/%2Fdesk%2F1%20%C3%A4"
    assert records_of("a") == "/v1/topics/a/records"


def test_bodies_of_any_bytes_stand_behind_their_length():
    assert length_prefixed([b"a\n", b""]) == b"\0\0\0\2a\n\0\0\0\0"


def test_an_answer_that_is_an_error_is_given_to_who_asks_for_any():
    async def work():
        http = Http(Addresses(["http://there"]), Session(Response(b"replaying", status=503)))
        async with http.request("GET", "/readyz", any_status=True) as response:
            return response.status, await taken(http.url, response)

    assert wait(work()) == (503, b"replaying")


# Several addresses.


A, B = "http://a:1", "http://b:1"
REFUSED = aiohttp.ClientConnectorError(None, OSError(111, "refused"))
FOLLOWER = json.dumps({"reason": "not primary", "detail": "this is a follower"}).encode()


class Network:
    """Answers by address; an answer is used once, the last one of an address for ever."""

    def __init__(self, **answers):
        self.answers = {f"http://{host}:1": list(found) for host, found in answers.items()}
        self.requested = []

    async def request(self, method, address, headers, data):
        url = f"http://{address.host}:1"
        self.requested.append((method, str(address)))
        found = self.answers[url].pop(0) if len(self.answers[url]) > 1 else self.answers[url][0]
        if isinstance(found, Exception):
            raise found
        return found


def of_several(network, *arguments, reads_writes=False, **named):
    addresses = Addresses([A, B], reads_writes)
    return addresses, Http(addresses, network).json(*arguments, **named)


def led(body=FOLLOWER, primary=B):
    return Response(body, status=421, headers={"SOW-Primary": primary})


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_a_server_that_does_not_answer_is_passed_over(method):
    network = Network(a=[REFUSED], b=[Response(b"{}")])
    addresses, work = of_several(network, method, "/v1/topics")
    assert wait(work) == {}
    assert network.requested == [(method, f"{A}/v1/topics"), (method, f"{B}/v1/topics")]
    assert addresses.current == B


def test_a_write_that_may_have_arrived_is_not_sent_again_and_a_read_is():
    lost = [aiohttp.ServerDisconnectedError("cut"), Response(b"{}")]
    _, work = of_several(Network(a=lost, b=[Response(b"{}")]), "POST", "/v1/x", body=b"1")
    with pytest.raises(Disconnected, match="http://a:1 was lost"):
        wait(work)
    _, work = of_several(Network(a=lost[:1], b=[Response(b"{}")]), "GET", "/v1/x")
    assert wait(work) == {}


def test_an_answer_that_breaks_off_is_read_again_elsewhere():
    broken = Response(b'{"a":', aiohttp.ClientPayloadError("cut"))
    network = Network(a=[broken, REFUSED], b=[Response(b'{"a":1}')])
    _, work = of_several(network, "GET", "/v1/x")
    assert wait(work) == {"a": 1}


def test_a_write_goes_from_a_follower_to_the_primary_and_reads_stay():
    network = Network(a=[led(primary="http://p:1"), Response(b"[]")], b=[REFUSED])
    network.answers["http://p:1"] = [Response(b'{"bookmark":"7"}'), Response(b"{}")]
    addresses, work = of_several(network, "POST", "/v1/x", body=b"1")
    assert wait(work) == {"bookmark": "7"}
    wait(Http(addresses, network).json("GET", "/v1/y"))
    wait(Http(addresses, network).json("POST", "/v1/z", body=b"1"))
    hosts = [address.partition("//")[2][0] for _, address in network.requested]
    assert hosts == ["a", "p", "a", "p"]


def test_a_follower_alone_leads_to_its_primary_too():
    network = Network(a=[led()], b=[Response(b"{}")])
    assert wait(Http(Addresses([A]), network).json("GET", "/v1/topics/passing")) == {}


def test_two_servers_that_name_each_other_are_no_primary():
    network = Network(a=[led(primary=B)], b=[led(primary=A)])
    _, work = of_several(network, "POST", "/v1/x")
    with pytest.raises(Unreachable, match="none of 2 addresses can be used: this is a follower;"):
        wait(work)
    assert len(network.requested) == 2


def test_a_wrong_host_is_no_follower():
    wrong = json.dumps({"reason": "bad host", "detail": "the Host is not allowed"}).encode()
    _, work = of_several(Network(a=[Response(wrong, status=421)], b=[]), "POST", "/v1/x")
    with pytest.raises(ClientError, match="the Host is not allowed"):
        wait(work)


def test_reads_wait_for_what_was_written_if_that_is_wanted():
    for reads_writes, sent in ((True, "?min_bookmark=5f-7"), (False, "")):
        network = Network(a=[Response(b'{"bookmark":"7"}')], b=[])
        addresses, work = of_several(network, "POST", "/v1/x", reads_writes=reads_writes)
        addresses.check_log(A, "5f")
        wait(work)
        http = Http(addresses, network)
        network.answers[A] = [Response(b"[]"), Response(b"[]")]
        wait(http.json("GET", "/v1/y"))
        wait(http.json("POST", "/v1/snapshots"))
        assert [address for _, address in network.requested[1:]] == [
            f"{A}/v1/y{sent}", f"{A}/v1/snapshots{sent}"
        ]  # fmt: skip


def test_a_delete_is_a_write_by_the_moment_of_its_answer():
    gone = Response(b'{"deleted":1}', headers={"SOW-Bookmark": "8"})
    addresses, work = of_several(Network(a=[gone], b=[]), "DELETE", "/v1/x", reads_writes=True)
    wait(work)
    assert addresses.min_bookmark == "8"


URL = "http://127.0.0.1:1"


def test_an_answer_is_what_its_json_says():
    found = decoded(URL, b'{"a":{"b":[{"c":1}]},"d":null}', dict)
    assert found == {"a": {"b": [{"c": 1}]}, "d": None}
    assert isinstance(found["a"]["b"][0], AnsweredFields)
    assert decoded(URL, b"[1,2]", list) == [1, 2]
    assert decoded(URL, b"3") == 3


@pytest.mark.parametrize(
    ("content", "kind", "shown"),
    [
        (b"<html>\n  hello</html>", dict, "it answered '<html> hello</html>'"),
        (b"", dict, "it answered nothing"),
        (b"\xff\x1b[2J", None, "it answered '\ufffd\\x1b[2J'"),
        (b"x" * 100_000, None, "it answered '" + "x" * 40 + "\u2026'"),
        (b"[]", dict, "it answered '[]'"),
        (b"null", list, "it answered 'null'"),
    ],
)
def test_what_is_no_answer_is_an_error_that_names_the_address(content, kind, shown):
    with pytest.raises(Unreachable) as refused:
        decoded(URL, content, kind)
    assert str(refused.value) == f"{URL} does not speak SOW: {shown}"


def test_a_field_that_is_not_there_is_said_to_be_missing_wherever_it_is_looked_for():
    found = decoded(URL, b'[{"why":{}}]', list)
    with pytest.raises(Unreachable, match=r"http://127.0.0.1:1 has no 'client': it is of another"):
        found[0]["client"]
    with pytest.raises(Unreachable, match="has no 'rows'"):
        found[0]["why"]["rows"]
    assert found[0].get("client") is None
    assert "client" not in found[0]


@pytest.mark.parametrize("value", ['"x"', "[]", "{}", "null"])
def test_a_value_of_a_wrong_type_is_said_to_be_none_of_ours(value):
    found = decoded(URL, b'{"records":%s}' % value.encode(), dict)
    shown = "the answer of http://127.0.0.1:1 has a value of a wrong type: it is of another version"
    with pytest.raises(Unreachable, match=shown), understood(URL):
        f"{found['records']:,}"
    with pytest.raises(Unreachable, match="has no 'rows'"), understood(URL):
        found["rows"]
