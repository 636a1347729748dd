import pytest

from sow.core.delta import difference, merged
from sow.core.paths import parse_path
from sow.errors import BadMessage
from sow.messages import message_type
from tests.cases import all_cases

XML = message_type("xml")


def column(body, path):
    return XML.decoder((parse_path(path),)).read([body])[1][0][0]


def refused(body):
    with pytest.raises(BadMessage) as caught:
        XML.parse(body)
    return caught.value.detail


@all_cases(
    ("body", "document"),
    [
        (b"<a>x</a>", {"a": "x"}),
        (b"<a/>", {"a": ""}),
        (b"<a> x </a>", {"a": " x "}),
        (b"<a>\n  <b>1</b>\n</a>", {"a": {"b": "1"}}),
        (b"<a><b>1</b><c/><b>2</b></a>", {"a": {"b": ["1", "2"], "c": ""}}),
        (b'<a x="1" y="2"/>', {"a": {"@x": "1", "@y": "2"}}),
        (b'<a x="1">t</a>', {"a": {"@x": "1", "#text": "t"}}),
        (b'<a x="1"> </a>', {"a": {"@x": "1", "#text": " "}}),
        (b"<a>one<b/>two</a>", {"a": {"b": "", "#text": "onetwo"}}),
        (b"<a><![CDATA[1 < 2 & 3]]></a>", {"a": "1 < 2 & 3"}),
        (b"<a>&lt;&amp;&#65;<!-- c --><?p i?></a>", {"a": "<&A"}),
        (b'<?xml version="1.0" encoding="UTF-8"?><a>\xc3\xa4</a>', {"a": "ä"}),
        (
            b'<s:a xmlns:s="urn:s"><s:b s:c="1"/></s:a>',
            {"s:a": {"@xmlns:s": "urn:s", "s:b": {"@s:c": "1"}}},
        ),
    ],
)
def test_an_element_is_its_text_or_an_object(body, document):
    assert XML.parse(body) == document


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/o/px", "10"),
        ("/o/px/@ccy", "USD"),
        ("/o/leg/@side", ["buy", "sell"]),
        ("/o/leg", ["1", "2"]),
        ("/o/leg[1]", "2"),
        ("/o/@id", "7"),
        ("/o", None),
        ("/o/none", None),
        ("/px", None),
    ],
)
def test_paths_find_texts_and_attributes(path, value):
    body = (
        b'<o id="7"><px ccy="USD">10</px><leg side="buy">1</leg><leg side="sell">2</leg><s>'
        b"<none2/></s></o>"
    )
    assert column(body, path) == value


@pytest.mark.parametrize(
    ("delta", "result"),
    [
        (b"<o><px>11</px></o>", b'<o id="7"><px ccy="USD">11</px><q>5</q></o>'),
        (b'<o><px ccy="EUR"/></o>', b'<o id="7"><px ccy="EUR">10</px><q>5</q></o>'),
        (b'<o><q unit="lot"/></o>', b'<o id="7"><px ccy="USD">10</px><q unit="lot">5</q></o>'),
        (b"<o><n><m>1</m></n></o>", b'<o id="7"><px ccy="USD">10</px><q>5</q><n><m>1</m></n></o>'),
    ],
)
def test_deltas_merge_by_element_and_attribute(delta, result):
    old = XML.parse(b'<o id="7"><px ccy="USD">10</px><q>5</q></o>')
    new = merged(old, XML.parse(delta))
    assert XML.encode(new) == result
    assert merged(old, XML.parse(XML.encode(difference(old, new)))) == new


@pytest.mark.parametrize(
    ("document", "body"),
    [
        ({"a": None}, b"<a/>"),
        ({"a": {}}, b"<a/>"),
        (
            {"a": {"b": None, "c": [1, None, 2.5], "d": True}},
            b"<a><c>1</c><c>2.5</c><d>true</d></a>",
        ),
        ({"a": {"@x": 'q"<&\n', "@y": None}}, b"<a x='q\"&lt;&amp;&#10;'/>"),
        ({"a": "<&>\r\n"}, b"<a>&lt;&amp;&gt;&#13;\n</a>"),
    ],
)
def test_values_are_written_as_elements(document, body):
    assert XML.encode(document) == body


@all_cases(
    ("body", "why"),
    [
        (b"", "no element found"),
        (b"<a>", "no element found"),
        (b"<a></b>", "mismatched tag"),
        (b"<a/><b/>", "junk after document element"),
        (b"<a>\xff</a>", "invalid token"),
        (b"<a>&e;</a>", "undefined entity"),
        (b'<!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>', "it has a DOCTYPE"),
        (b'<!DOCTYPE a SYSTEM "http://localhost/"><a/>', "it has a DOCTYPE"),
        (b"<a>" * 65, "nested more than 64 levels"),
        (b"<a>" + b"<b/>" * 100_000, "more than 100,000 elements"),
    ],
)
def test_broken_and_hostile_input_is_refused_with_the_reason(body, why):
    assert why in refused(body)


def test_sixty_four_levels_are_taken_and_written():
    body = b"<a>" * 63 + b"<a/>" + b"</a>" * 63
    assert XML.encode(XML.parse(body)) == body


@all_cases(
    "document",
    [
        {},
        {"a": 1, "b": 2},
        {"a": [1, 2]},
        {"a b": 1},
        {"1": 1},
        {"@a": 1},
        {"a": {"b c='1'": 1}},
        {"a": {"@x y": 1}},
        {"a": {"@x": {}}},
        {"a": {"@x": [1]}},
        {"a": [[1]]},
        {"a": {"b": [[1]]}},
        {"a": "\x01"},
        {"a": "\ud800"},
        {"a": {1: 2}},
    ],
)
def test_what_xml_cannot_hold_is_not_written(document):
    with pytest.raises(BadMessage):
        XML.encode(document)
