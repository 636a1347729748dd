"""`sow topics`: what a server has."""

import json

from tests.cli.terminal import Terminal


def test_a_topic_is_a_line_and_those_of_a_pattern_are_one(sow, server, orders):
    orders({"id": 1}, {"id": 2})
    server.post("/desk/1", b'{"id":1}')
    lines = sow.ok("topics").splitlines()
    by_name = {line.split()[0]: line.split() for line in lines[1:]}
    assert by_name["orders"][1:5] == ["2", "topic", "18", "B"]
    assert " ".join(by_name["orders-C"]).endswith("json /id orders every 1 s")
    assert by_name["desks"][1:3] == ["1", "pattern"]
    assert "/desk/1" not in by_name
    assert "/desk/1" in sow.ok("topics", "--all")


def test_for_programs_it_is_what_the_server_says(sow, server):
    found = json.loads(sow.ok("topics", "--json", "--all"))
    said = server.get("/v1/topics").json
    assert [one.keys() for one in found] == [one.keys() for one in said]
    assert [one["name"] for one in found] == [one["name"] for one in said]


def test_what_a_person_sees_fits_into_a_narrow_terminal_without_colour(server, orders):
    orders({"id": 1})
    words = ("topics", "--url", server.url)
    with Terminal(*words, columns=32, NO_COLOR="1") as terminal:
        code, text = terminal.end()
    lines = text.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 32
    assert next(line for line in lines if line.startswith("orders ")).split() == [
        "orders", "1", "topic", "9", "B",
    ]  # fmt: skip
    assert not terminal.has_colour
