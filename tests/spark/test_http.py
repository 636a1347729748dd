"""Requests from Spark's workers: tried again while the server is away, refused with its words.

Options are what was written, and mean something where they are used.
"""

import http.client
import json
import pickle
import ssl
import subprocess
import sys
from types import SimpleNamespace

import pytest

from sow.core.pipelines import LOG, OF_OTHERS, RECORDS, STREAM, STREAM_WRITE, USES, WRITE, plain
from sow.errors import ClientError, SowError
from sow.spark import http as module
from sow.spark.http import PAUSE_S_MAX, ServerRefusal, SowServer, TokenSource, read_options, segment
from tests.cases import all_cases
from tests.edge.certificates import certificates


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


TOPIC = {"topic": "orders"}
VALUES = {
    "epoch": "1",
    "last": "5",
    "partitions": "2",
    "maxRowsPerTrigger": "5",
    "batchRows": "5",
    "mode": "delta",
    "readMode": "changes",
    "changeFormat": "cdc",
    "rerun": "skip",
    "allowEmpty": "true",
    "closesWithin": "1s",
    "inferSchema": "true",
    "pushdown": "true",
    "failOnDataLoss": "false",
    "retryTimeout": "5",
}


@all_cases("name", sorted(USES))
@all_cases("use", [RECORDS, LOG, STREAM, WRITE, STREAM_WRITE])
def test_an_option_is_taken_where_it_means_something_and_refused_by_name_elsewhere(
    name, use, tmp_path
):
    given = {**TOPIC, name: VALUES.get(name, "orders")}
    if name == "allowEmpty" and use == WRITE:
        given["mode"] = "replace"
    if name == "ca":
        given["ca"] = certificates(tmp_path).ca
    if use in USES[name]:
        assert read_options(given, use)
        return
    with pytest.raises(ClientError, match=f"the option {name} means nothing in {use}"):
        read_options(given, use)


@pytest.mark.parametrize("name", ["deadLetterPath", "consumer", "writer", "asOf", "keyColumn"])
def test_an_option_that_is_empty_says_nothing(name):
    for text in ("", " "):
        with pytest.raises(ClientError, match=f"the option {name} is empty; give it a value"):
            read_options({**TOPIC, name: text})


def test_the_data_source_is_imported_without_the_configuration():
    """Spark starts a process of Python's for each plan and stream, and each imports it."""
    pytest.importorskip("pyspark")
    heavy = ("sow.config", "sow.expressions", "lark", "jsonpath_ng")
    code = f"import sys, sow.spark.source; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_are_written_in_any_case():
    assert read_options({"TOPIC": "orders", "as_of": "7"}, RECORDS).as_of == "7"


def test_an_end_of_the_log_needs_a_beginning():
    with pytest.raises(ClientError, match=r"endingBookmark .* startingBookmark"):
        read_options({**TOPIC, "endingBookmark": "5"}, RECORDS)


@pytest.mark.parametrize("other", [{"asOf": "7"}, {"projection": "/id"}, {"grouping": "/id"}])
def test_events_are_of_the_present_and_in_no_groups(other):
    assert read_options({**TOPIC, "last": "5"}, RECORDS).last == 5
    with pytest.raises(ClientError, match="leave out asOf, projection and grouping"):
        read_options({**TOPIC, "last": "5", **other}, RECORDS)


def test_a_path_is_not_passed_over():
    # A table is requested with the path of a warehouse.
    with pytest.raises(ClientError, match=r"a topic is named by .* CREATE TEMPORARY VIEW orders"):
        read_options({**TOPIC, "path": "/tmp/orders"})


def test_what_spark_adds_of_its_own_is_no_mistake():
    assert read_options({**TOPIC, "checkpointLocation": "c", "queryName": "q"}, STREAM_WRITE)


def read(**given):
    return read_options({"topic": "orders", **given})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60", 60), ("0", 0), ("1.5", 1.5), ("60s", 60), ("1m", 60), ("5ms", 0.005)],
)
def test_a_time_to_retry_is_a_number_of_seconds_or_an_interval(text, seconds):
    assert read(retryTimeout=text).retry_s == seconds


@pytest.mark.parametrize("text", ["", "soon", "1x", "nan", "1e", "-5", "1e99"])
def test_what_is_no_time_to_retry_is_refused_with_what_to_write(text):
    with pytest.raises(ClientError, match=r"write seconds, such as 60 or 1m"):
        read(retryTimeout=text)


def test_windows_close_within_an_interval():
    assert read(closesWithin="1.5s").closes_within_us == 1_500_000
    with pytest.raises(ClientError, match="closesWithin: '5' has no unit; write 5s"):
        read(closesWithin="5")


def test_columns_stand_between_commas():
    assert read(columns=" /a, /b").columns == ("/a", "/b")


def test_a_mistyped_option_is_requested_about():
    with pytest.raises(ClientError, match="no option 'fliter'; did you mean filter"):
        read(fliter="1=1")


@pytest.mark.parametrize(("name", "ours"), OF_OTHERS.items())
def test_an_option_of_another_connector_is_known_by_what_it_is_called_here(name, ours):
    assert ours in USES
    assert plain(name) == name
    with pytest.raises(ClientError, match=f"no option '{name}'; did you mean {ours}\\?"):
        read(**{name: "1"})


def test_a_batch_read_does_not_begin_with_a_snapshot():
    given = {**TOPIC, "startingBookmark": "snapshot"}
    assert read_options(given, STREAM).starting == "snapshot"
    with pytest.raises(ClientError, match="to read the records alone leave it out"):
        read_options(given, LOG)


@pytest.mark.parametrize(
    ("use", "options", "says"),
    [
        (STREAM_WRITE, {"mode": "replace"}, "mode replace is for batch writes"),
        (WRITE, {"allowEmpty": "true"}, "needs mode replace"),
    ],
)
def test_a_topic_is_replaced_by_batches_alone(use, options, says):
    with pytest.raises(ClientError, match=says):
        read_options({**TOPIC, **options}, use)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topic": " "}, "give the topic"),
        ({**TOPIC, "token": "secret\n"}, "the token has characters that a header cannot"),
        ({**TOPIC, "token": "t", "tokenFile": "f"}, "give token or tokenFile, not both"),
        ({**TOPIC, "tokenFile": " "}, "the option tokenFile is empty"),
    ],
)
def test_what_no_request_can_hold_is_refused_before_one_is_sent(given, said):
    with pytest.raises(ClientError, match=said):
        read_options(given)


def test_certificates_are_read_where_the_options_are(tmp_path, monkeypatch):
    file = certificates(tmp_path).ca
    assert "BEGIN CERTIFICATE" in read_options({**TOPIC, "ca": file}).ca
    assert read_options(TOPIC).ca is None
    monkeypatch.setenv("SOW_CA", file)
    assert "BEGIN CERTIFICATE" in read_options(TOPIC).ca
    for wrong in (str(tmp_path / "missing"), str(tmp_path)):
        with pytest.raises(ClientError, match=f"ca {wrong} cannot be used"):
            read_options({**TOPIC, "ca": wrong})
