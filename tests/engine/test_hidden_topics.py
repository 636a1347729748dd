"""Private names: a text that only itself equals."""

import orjson

from sow.engine.hidden_topics import HiddenTopic, is_hidden


def test_it_reads_as_the_text_and_is_found_by_itself_alone():
    one, other = HiddenTopic("orders"), HiddenTopic("orders")
    assert f"{one}" == "orders"
    assert orjson.dumps({"t": one}) == b'{"t":"orders"}'
    assert one == one
    assert one not in ("orders", other)
    assert one != "orders"
    assert one != "orders"
    names = {one: 1, other: 2, "orders": 3}
    assert (names[one], names[other], names["orders"]) == (1, 2, 3)
    assert is_hidden(one)
    assert not is_hidden("orders")
