"""Requests from Spark's workers: tried again while the server is away, refused with its words."""

import http.client
import json
import pickle
import ssl
from types import SimpleNamespace

import pytest

from sow.errors import ClientError, SowError
from sow.spark import http as module
from sow.spark.http import PAUSE_S_MAX, ServerRefusal, SowServer, TokenSource, segment


class Played:
    """Answers in turn: a status with a body, or an error that is raised; time passes in pauses."""

    def __init__(self, monkeypatch, *answers):
        self.answers, self.requests, self.pauses, self.now_s = list(answers), [], [], 0.0
        self.hosts = []
        monkeypatch.setattr(http.client, "HTTPConnection", self)
        time = SimpleNamespace(monotonic=lambda: self.now_s, sleep=self.sleep)
        monkeypatch.setattr(module, "time", time)

    def __call__(self, host, port, timeout):
        self.hosts.append(host)
        return SimpleNamespace(
            request=lambda *requested: self.requests.append(requested),
            getresponse=self.answer,
            close=lambda: None,
        )

    def sleep(self, pause_s):
        self.pauses.append(pause_s)
        self.now_s += pause_s

    def answer(self):
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, document, *more = answer
        headers = {"SOW-Bookmark": "7", **(more[0] if more else {})}
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        return SimpleNamespace(status=status, headers=headers, read=lambda: body)


def test_an_answer_is_decoded_and_its_bookmark_kept(monkeypatch):
    played = Played(monkeypatch, (200, {"a": 1}))
    server = SowServer("http://host:1/base/", TokenSource("secret"))
    assert server.json("GET", "/v1/x", wanted=True, left=None, text="a b") == {"a": 1}
    assert server.arrow("/v1/x").bookmark == "7"
    method, target, content, headers = played.requests[0]
    assert (method, target, content) == ("GET", "/base/v1/x?wanted=true&text=a%20b", None)
    assert headers["Authorization"] == "Bearer secret"


def test_a_server_that_is_away_is_requested_again_with_longer_pauses(monkeypatch):
    away = [ConnectionRefusedError(), (503, {}), http.client.IncompleteRead(b"")]
    played = Played(monkeypatch, *away, (200, {}))
    assert SowServer("http://host:1").json("GET", "/") == {}
    assert played.pauses == [0.2, 0.4, 0.8]


# Several addresses.


SEVERAL = "http://a:1,http://b:1"


def test_another_address_is_tried_at_once_and_kept(monkeypatch):
    played = Played(monkeypatch, ConnectionRefusedError(), (200, {}))
    server = SowServer(SEVERAL)
    for _ in range(2):
        assert server.json("GET", "/") == {}
    assert (played.hosts, played.pauses, server.in_use) == (["a", "b", "b"], [], "http://b:1")


def test_a_pause_follows_when_no_address_answers(monkeypatch):
    played = Played(monkeypatch, ConnectionRefusedError(), (503, {}), (200, {}))
    assert SowServer(SEVERAL).json("GET", "/") == {}
    assert (played.hosts, played.pauses) == (["a", "b", "a"], [0.2])


def test_a_read_begins_at_the_address_of_its_part(monkeypatch):
    played = Played(monkeypatch, (200, {}))
    for place in range(3):
        pickle.loads(pickle.dumps(SowServer(SEVERAL).at(place))).json("GET", "/")
    assert played.hosts == ["a", "b", "a"]
    assert [one.addresses for one in SowServer(SEVERAL).each()] == [
        ("http://a:1",),
        ("http://b:1",),
    ]


@pytest.mark.parametrize("url", ["http://a:1", SEVERAL])
def test_a_follower_leads_to_the_primary_which_has_the_next_write_too(monkeypatch, url):
    led = (421, {"reason": "not primary"}, {"SOW-Primary": "http://p:1"})
    played = Played(monkeypatch, led, (200, {}))
    server = SowServer(url)
    for method in ("POST", "POST", "GET"):
        server.json(method, "/v1/writes/w/1/commit")
    assert played.hosts == ["a", "p", "p", "a"]


def test_a_follower_is_to_have_what_is_read_and_one_server_has_it(monkeypatch):
    played = Played(monkeypatch, (200, {}))
    for url in ("http://a:1", SEVERAL):
        SowServer(url).json("GET", "/v1/log", min_bookmark="5f-7")
    assert [target for _, target, *_ in played.requests] == ["/v1/log", "/v1/log?min_bookmark=5f-7"]


@pytest.mark.parametrize("url", ["http://a,", "http://a,https://b", "http://a,ftp://b"])
def test_a_list_that_is_none_is_refused(url):
    with pytest.raises(ClientError, match=r"an empty one|different schemes|not an address"):
        SowServer(url)


def test_https_where_there_is_no_tls_is_said_with_what_to_write(monkeypatch):
    Played(monkeypatch, ssl.SSLError(1, "wrong version"))
    with pytest.raises(SowError, match=r"wrong version.*; if it has no TLS, write http://; tried"):
        SowServer("http://host").json("GET", "/v1/status")


def test_it_is_given_up_in_time_and_the_option_is_named(monkeypatch):
    played = Played(monkeypatch, ConnectionRefusedError("refused"))
    with pytest.raises(SowError, match=r"cannot be reached: refused; tried for 30 s \(option"):
        SowServer("http://host:1", retry_s=30).json("GET", "/")
    assert sum(played.pauses) <= 30
    assert max(played.pauses) == PAUSE_S_MAX


def test_a_refusal_has_the_servers_words_and_is_not_tried_again(monkeypatch):
    said = {"detail": "breaks", "reason": "bad filter", "position": 3}
    played = Played(monkeypatch, (400, said))
    with pytest.raises(ServerRefusal, match="in the filter: breaks") as caught:
        SowServer("http://host:1").json("GET", "/")
    assert (caught.value.reason, caught.value.document) == ("bad filter", said)
    assert played.pauses == []
    again = pickle.loads(pickle.dumps(caught.value))
    assert (again.detail, again.reason) == (caught.value.detail, "bad filter")


def test_a_server_without_a_parameter_is_an_older_one(monkeypatch):
    refused = {"reason": "bad request", "detail": "no parameter 'columns'; known are part"}
    Played(monkeypatch, (400, refused))
    with pytest.raises(ServerRefusal, match="known are part; the server is older than this"):
        SowServer("http://host:1").arrow("/v1/snapshots/1", part=0, columns="key")


def test_something_else_at_the_address_is_sent(monkeypatch):
    Played(monkeypatch, (404, b"<html>"))
    with pytest.raises(SowError, match="does not speak SOW: it answered 404"):
        SowServer("http://host:1").json("GET", "/")


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http:///x"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ClientError, match="is not an address"):
        SowServer(url)


def test_no_secret_stands_in_what_is_refused():
    for url, token in (("http://ann:s3cret@box:8080", None), ("http://box", "s3cret\n")):
        with pytest.raises(ClientError) as refused:
            SowServer(url, TokenSource(token))
        assert "s3cret" not in str(refused.value)


def test_a_token_is_read_from_its_file_for_each_request(monkeypatch, tmp_path):
    played, file = Played(monkeypatch, (200, {})), tmp_path / "token"
    server = pickle.loads(
        pickle.dumps(SowServer("http://host:1", TokenSource(token_file=str(file))))
    )
    for token in ("first", "second\n"):
        file.write_text(token)
        server.json("GET", "/")
    sent = [headers["Authorization"] for *_, headers in played.requests]
    assert sent == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot be read: No such file"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"two words", "holds no token"),
        (b"\xff", "it is not text"),
    ],
)
def test_nothing_is_requested_by_a_file_without_a_token(monkeypatch, tmp_path, content, says):
    played, file = Played(monkeypatch, (200, {})), tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ClientError, match=says) as refused:
        SowServer("http://host:1", TokenSource(token_file=str(file))).json("GET", "/")
    assert str(file) in refused.value.detail
    assert "two words" not in refused.value.detail
    assert played.requests == []


def test_a_name_is_one_segment_of_a_path():
    assert segment("/a b") == "%2Fa%20b"
