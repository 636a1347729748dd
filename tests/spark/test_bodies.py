"""Bodies of messages as the rows of Spark have them."""

import pytest

from sow.core.definitions import MessageTypeOptions
from sow.spark.bodies import body_of, kind_of, text_of

BAR = MessageTypeOptions("bar", "nvfix", b"|")


@pytest.mark.parametrize(
    ("name", "body", "text"),
    [
        ("json", b'{"a":"\xc3\xa4"}', '{"a":"ä"}'),
        ("bar", b"a=1|b=x|", "a=1|b=x|"),
        ("binary", b"\xff\x00", "/wA="),
    ],
)
def test_a_body_is_a_text_and_back(name, body, text):
    kind = kind_of(name, (BAR,))
    assert text_of(kind, body) == text
    assert body_of(kind, text) == body
