"""`sow mcp`: a conversation by lines, what each tool answers, its bounds, and hostile lines.

What tools of `sow mcp` say of themselves, and which arguments they take.
"""

import asyncio
import json

import pytest

from sow.cli.commands import mcp
from sow.cli.commands.mcp import ANSWER_BYTES_MAX, TOOLS, AnswerText, Conversation
from sow.errors import ClientError


def said(sow, *requests, write=False):
    """The answers to lines, by id; errors of lines without one by None."""
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in requests]
    words = ["mcp", *(["--write"] if write else [])]
    result = sow(*words, input=b"\n".join(lines) + b"\n")
    assert result.exit_code == 0, result.stderr
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert all(one["jsonrpc"] == "2.0" for one in answers)
    return {one["id"]: one for one in answers}


def request(method, named=1, **params):
    return {"jsonrpc": "2.0", "id": named, "method": method, "params": params}


def call(tool, named=1, **arguments):
    return request("tools/call", named, name=tool, arguments=arguments)


def answer(sow, tool, write=False, **arguments):
    """The text that a tool answers, and whether that is an error."""
    result = said(sow, call(tool, **arguments), write=write)[1]["result"]
    ((kind, text),) = [(one["type"], one["text"]) for one in result["content"]]
    assert kind == "text"
    return text, result["isError"]


def test_a_conversation_begins_as_the_protocol_says(sow):
    begun = said(
        sow,
        request("initialize", 1, protocolVersion="2025-03-26", capabilities={}),
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        request("ping", "two"),
        request("tools/list", 3),
        request("initialize", 4, protocolVersion="1999-01-01"),
    )
    assert begun[1]["result"]["protocolVersion"] == "2025-03-26"
    assert begun[1]["result"]["serverInfo"]["name"] == "sow"
    assert begun["two"]["result"] == {}
    tools = {one["name"]: one for one in begun[3]["result"]["tools"]}
    assert [*tools] == ["topics", "query", "explain", "watch"]
    assert tools["query"]["inputSchema"]["required"] == ["topic"]
    assert begun[4]["result"]["protocolVersion"] == mcp.PROTOCOLS[0]


def test_with_write_there_are_tools_that_write_and_else_not(sow, server):
    listed = said(sow, request("tools/list"), write=True)[1]["result"]["tools"]
    assert [one["name"] for one in listed] == [*TOOLS]
    refused = said(sow, call("delete", topic="orders", filter="1=1"))[1]["error"]
    assert (refused["code"], "--write" in refused["message"]) == (mcp.INVALID_PARAMS, True)
    done = answer(sow, "publish", True, topic="orders", messages=[{"id": 1}, {"id": 2}])
    assert (done[0].startswith("published 2, durable at bookmark"), done[1]) == (True, False)
    assert answer(sow, "delete", True, topic="orders", filter="/id = 1") == ("deleted 1", False)
    assert server.get("/v1/topics/orders/records").json == [{"id": 2}]


def test_topics_and_records_are_lines_of_json(sow, orders):
    orders({"id": 1, "px": 2}, {"id": 2, "px": 1})
    found = [json.loads(line) for line in answer(sow, "topics")[0].splitlines()]
    assert {"name": "orders", "kind": "topic", "records": 2, "message_type": "json",
            "keys": ["/id"]} in found  # fmt: skip
    asked = {"topic": "orders", "order_by": "/px", "top_n": 1}
    assert answer(sow, "query", **asked) == ('{"id": 2, "px": 1}', False)
    assert answer(sow, "query", topic="orders", filter="/id = 9") == ("no records; 0 match", False)
    text, _ = answer(sow, "query", topic="orders", filter="/pxx = 1")
    assert text == "no record has /pxx; did you mean /px?"
    plan = json.loads(answer(sow, "explain", topic="orders", filter="/id = 1")[0])
    assert plan["terms"][0]["expression"] == "/id = 1"


def test_a_watch_has_records_and_is_over_in_time(sow, orders):
    orders({"id": 1})
    text, failed = answer(sow, "watch", topic="orders", seconds=0.2)
    assert ([json.loads(line)["d"] for line in text.splitlines()], failed) == ([{"id": 1}], False)
    for seconds in (61, 0, -1):
        text, failed = answer(sow, "watch", topic="orders", seconds=seconds)
        assert (failed, "up to 60" in text) == (True, True)


def test_a_long_answer_is_cut_and_says_so(sow, server):
    for start in range(0, 120, 30):
        documents = [{"id": n, "t": '"' * 4500} for n in range(start, start + 30)]
        assert server.publish("orders", *documents).status == 200
    result = sow("mcp", input=json.dumps(call("query", topic="orders")).encode())
    assert len(result.stdout) <= ANSWER_BYTES_MAX
    text = json.loads(result.stdout)["result"]["content"][0]["text"]
    *lines, last = text.splitlines()
    assert last == f"cut: {len(lines)} of 120"
    assert 20 < len(lines) < 120


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({}, "topic is missing"),
        ({"topic": "nowhere"}, "nowhere"),
        ({"topic": "orders", "filter": "/id >"}, "expected"),
        ({"topic": "orders", "filters": "/id = 1"}, "no argument 'filters'"),
        ({"topic": "orders", "top_n": "5"}, "of type integer"),
        ({"topic": "orders", "top_n": True}, "of type integer"),
        ({"topic": 7}, "of type string"),
    ],
)
def test_a_mistake_is_a_sentence_for_the_model(sow, arguments, part):
    text, failed = answer(sow, "query", **arguments)
    assert (failed, part in text) == (True, True), text


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"{", mcp.PARSE_ERROR),
        (b"[]", mcp.INVALID_REQUEST),
        (b'{"id":1}', mcp.INVALID_REQUEST),
        (b'{"id":{},"method":"ping"}', mcp.INVALID_REQUEST),
        (b'{"id":"' + b"x" * 300 + b'","method":"ping"}', mcp.INVALID_REQUEST),
        (b"x" * (mcp.LINE_BYTES_MAX + 10), mcp.PARSE_ERROR),
        (request("resources/list", None) | {"id": 5}, mcp.NO_METHOD),
        (request("tools/call", 5, name="query", arguments=3), None),
        ({"id": 5, "method": "ping", "params": 3}, mcp.INVALID_PARAMS),
        (call("nothing", 5), mcp.INVALID_PARAMS),
    ],
)
def test_a_hostile_line_is_refused_and_the_next_one_answered(sow, line, code):
    found = said(sow, line, request("ping", 9))
    assert found[9]["result"] == {}
    (other,) = [one for named, one in found.items() if named != 9]
    assert other.get("error", {}).get("code") == code


def test_a_call_that_is_cancelled_ends_and_others_do_not_wait_for_it(server):
    from sow.client import Client

    async def conversation():
        written, lines = [], asyncio.Queue()
        async with Client(server.url) as client:
            running = Conversation(client, TOOLS, written.append)
            task = asyncio.create_task(running.run(lines.get))
            for one in (call("watch", 1, topic="orders", seconds=60), request("ping", 2)):
                lines.put_nowait(json.dumps(one).encode() + b"\n")
            while not written:
                await asyncio.sleep(0)
            cancel = {"method": "notifications/cancelled", "params": {"requestId": 1}}
            lines.put_nowait(json.dumps(cancel).encode() + b"\n")
            lines.put_nowait(b"")
            await task
        return [json.loads(line)["id"] for line in written]

    assert asyncio.run(conversation()) == [2]


def test_each_tool_describes_its_arguments():
    for name, tool in TOOLS.items():
        described = tool.described(name)
        assert described["inputSchema"]["properties"].keys() >= set(tool.required)
        assert described["annotations"]["readOnlyHint"] == (name not in ("publish", "delete"))


def test_arguments_are_checked_by_name_and_type():
    query = TOOLS["query"]
    assert query.checked({"topic": "a", "top_n": 3}) == {"topic": "a", "top_n": 3}
    for wrong, part in [
        ([], "an object"),
        ({}, "topic is missing"),
        ({"topic": 1}, "of type string"),
        ({"topic": "a", "x": 1}, "no argument 'x'"),
        ({"topic": "a", "top_n": 1.5}, "of type integer"),
    ]:
        with pytest.raises(ClientError, match=part):
            query.checked(wrong)


def test_lines_count_and_remarks_do_not():
    found = AnswerText()
    found.remark("advice")
    found.add("a")
    found.add("x" * ANSWER_BYTES_MAX)
    found.add("b")  # nothing stands behind what is missing
    assert found.text(1) == "advice\na\ncut: 1 of 3"
