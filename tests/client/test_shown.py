"""What notebooks show of everything that a user holds, and what `help` says of it."""

import asyncio
import inspect
import json
import re

import pytest

import sow
from sow import client
from sow.client import Change, Message, sync
from sow.client.errors import Unreachable
from sow.client.http import AnsweredFields
from sow.client.messages import read_lines
from sow.client.shown import ShownDict, ShownList, ShownPlan, fields_html
from sow.client.sync import mirror as mirroring
from sow.client.tables import ROWS_SHOWN
from sow.errors import SowError
from tests.cases import all_cases
from tests.edge.serving import configuration, served

TOPICS = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>prices</Name><MessageType>json</MessageType><Key>/id</Key>
<Series><Retain>limit 10</Retain></Series></Topic>"""
EVIL = "<script>alert(1)</script>"

server = served(configuration(TOPICS))


def cells(html, tag="td"):
    return re.findall(f"<{tag}>(.*?)</{tag}>", html)


def test_what_the_server_describes_stays_what_it_is_and_has_html(server):
    server.publish("orders", {"id": 1, "px": 2}, {"id": 2, "px": 3})
    server.publish("prices", {"id": 1, "px": 2})
    with sync.Client(server.url) as asking:
        topics, topic = asking.topics(), asking.topic("orders")
        plan = asking.explain("orders", filter="/px > 2")
        events = asking.events("prices", "key=1")
        assert [type(one) for one in (topics, topic, plan, events)] == [
            ShownList, ShownDict, ShownPlan, ShownList,
        ]  # fmt: skip
        assert json.loads(json.dumps(topic)) == topic
        assert "orders" in cells(topics._repr_html_())
        assert cells(topic._repr_html_(), "caption") == ["orders"]
        assert "/px &gt; 2" in cells(plan._repr_html_())
        assert events[0]["d"] == {"id": 1, "px": 2}
        assert "{&quot;id&quot;:1,&quot;px&quot;:2}" in cells(events._repr_html_())
        assert server.url in asking._repr_html_()
        misspelt = asking.query("orders", filter="/pxx > 2")
        said = "orders: 0 records; no record has /pxx; did you mean /px?"
        assert cells(misspelt._repr_html_(), "caption") == [said]
        with asking.rows("orders") as rows, asking.subscribe("orders") as messages:
            assert "2" in cells(rows._repr_html_())
            assert messages.name in cells(messages._repr_html_())
        with asking.publisher("orders") as publisher:
            publisher.send([b'{"id":3}'])
            publisher.drain()
            assert cells(publisher._repr_html_())[4:6] == ["published", "1"]


def test_with_asyncio_objects_show_the_same(server):
    async def shown():
        async with (
            client.Client(server.url) as asking,
            asking.subscribe("orders") as messages,
            asking.rows("orders") as rows,
        ):
            return asking._repr_html_(), messages._repr_html_(), rows._repr_html_()

    assert all("<table>" in html for html in asyncio.run(shown()))


def test_single_messages_are_shown_without_what_they_do_not_have():
    (message,) = read_lines(b'{"c":"p","s":"f1","t":"orders","k":"7","d":{"id":1},"bm":"4"}')
    assert cells(message._repr_html_()) == [
        "c", "p", "s", "f1", "t", "orders", "k", "7", "d", "{&quot;id&quot;:1}", "bm", "4",
    ]  # fmt: skip
    assert "<td>gap</td>" in Message("gap")._repr_html_()
    html = Change("7", None, {"id": 1})._repr_html_()
    assert cells(html) == ["key", "7", "new", "{&quot;id&quot;:1}"]


def test_what_is_shown_is_bounded_text():
    html = fields_html(EVIL, {EVIL: EVIL, "long": "x" * 10_000, "no": None, "none": []})
    assert "<script" not in html
    assert len(html) < 1_000
    many = cells(fields_html("many", {str(n): n for n in range(1_000)}))
    assert (len(many), many[-2]) == (2 * (ROWS_SHOWN + 1), "…")


HELD = [
    kind
    for module in (client, sync)
    for kind in (getattr(module, name) for name in module.__all__)
    if not (isinstance(kind, type) and issubclass(kind, SowError))
]
NOT_SHOWN = {client.Retry, sync.Response}
"""What is given to a client, and an answer that is bytes."""


@all_cases("kind", [*HELD, mirroring.Mirror])
def test_everything_that_a_user_holds_has_html(kind):
    assert hasattr(kind, "_repr_html_") == (kind not in NOT_SHOWN)


def sentences():
    """The docstrings that `help` shows of what is public, by their names."""
    for kind in (*HELD, mirroring.Mirror, sow.mirror):
        yield f"{kind.__module__}.{kind.__name__}", inspect.getdoc(kind)
        for name, member in vars(kind).items() if isinstance(kind, type) else ():
            if not name.startswith("_") and (callable(member) or isinstance(member, property)):
                yield f"{kind.__module__}.{kind.__name__}.{name}", inspect.getdoc(member)


def test_help_has_a_sentence_for_every_class_and_method():
    missing = [name for name, text in sentences() if not re.search(r"\w\W*\.", text or "")]
    assert missing == []
    assert sum(1 for _ in sentences()) > 100


@pytest.mark.parametrize("kind", [client.Client, sync.Client])
def test_help_names_what_a_method_takes(kind):
    assert "filter" in inspect.signature(kind.query).parameters
    assert "BadFilter" in inspect.getdoc(kind.query)


def test_a_field_that_an_answer_has_not_is_an_error_of_its_server():
    shown = ShownDict("orders", AnsweredFields("http://here", {"kind": "topic"}))
    assert shown["kind"] == "topic"
    with pytest.raises(Unreachable, match="http://here has no 'keys'"):
        shown["keys"]
