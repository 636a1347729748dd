"""Private names: a text that only itself equals."""

import orjson

from sow.engine.private_names import PrivateName, is_private


def test_it_reads_as_the_text_and_is_found_by_itself_alone():
    one, other = PrivateName("orders"), PrivateName("orders")
    assert f"{one}" == "orders"
    assert orjson.dumps({"t": one}) == b'{"t":"orders"}'
    assert one == one
    assert one not in ("orders", other)
    assert one != "orders"
    assert one != "orders"
    names = {one: 1, other: 2, "orders": 3}
    assert (names[one], names[other], names["orders"]) == (1, 2, 3)
    assert is_private(one)
    assert not is_private("orders")
