"""One example for each message type: what the contract tests are run on.

A message type is registered here by an entry in `EXAMPLES`, under the name that topics call it by.
The tests of `test_contract.py` ask the type itself, those of `test_contract_topics.py` a topic of
it in a whole engine, and those of `tests/edge/test_message_types.py` a server over its doors.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from sow.config import loads

numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
tags = st.sampled_from(["a", "b", "c", "ä", "long name"])
field_text = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01"), max_size=8
)
values = st.none() | st.booleans() | numbers | texts
fix_values = field_text | st.lists(field_text, min_size=2, max_size=3)
bflat_scalars = st.none() | numbers | texts
bflat_values = bflat_scalars | st.lists(bflat_scalars, max_size=3)
xml_names = st.sampled_from(["a", "b", "c", "ä", "p:q", "long-name"])
xml_text = st.text(
    st.characters(
        exclude_categories=["Cs", "Cc"],
        include_characters="\t\n\r",
        exclude_characters="\ufffe\uffff",
    ),
    max_size=8,
)


def with_attributes(attributes: dict[str, str], text: str) -> dict[str, str]:
    return attributes | {"#text": text} if text else attributes


xml_attributes = st.dictionaries(xml_names.map("@".__add__), xml_text, min_size=1, max_size=2)
xml_values = st.recursive(
    xml_text | st.builds(with_attributes, xml_attributes, xml_text),
    lambda inner: st.builds(
        lambda attributes, fields: attributes | fields,
        xml_attributes | st.just({}),
        st.dictionaries(
            xml_names, inner | st.lists(inner, min_size=2, max_size=3), min_size=1, max_size=3
        ),
    ),
    max_leaves=8,
)
nested = st.recursive(
    values, lambda v: st.lists(v, max_size=3) | st.dictionaries(tags, v, max_size=3), max_leaves=8
)


@dataclass(frozen=True)
class Example:
    """One message type.

    `good` is a body, `bad` one that is refused (None where there is none), `hostile` are others
    that are refused, such as would take much. `documents` are documents in general. `record` makes
    the document of a record, from a small number that names it and another one; its key field is
    `key` and the other one `number`, both as paths; where there is one field `number` is empty, and
    where there is none both are. `element` is the `<MessageType>` of a type that is configured.
    """

    good: bytes
    bad: bytes | None
    documents: st.SearchStrategy[Any]
    record: Callable[[int, int], Any]
    key: str = "/id"
    number: str = "/px"
    hostile: tuple[bytes, ...] = ()
    element: str = ""


def fields(name: int, number: int) -> dict[str, Any]:
    return {"id": name, "px": number}


def text_fields(name: int, number: int) -> dict[str, str]:
    return {"id": str(name), "px": str(number)}


record_fields = {
    "a": field_text.filter(lambda text: text and "\x02" not in text),
    "b": st.integers(-(10**300), 10**300),
    "c": st.floats(allow_nan=False, allow_infinity=False).filter(bool),
}
"""What each field of a record can hold: an empty text is none."""
records = st.fixed_dictionaries({}, optional=record_fields).filter(bool)
RECORD = """<Field>a</Field><Field type="int">b</Field><Field type="decimal">c</Field>
<Field type="int">id</Field><Field type="decimal">px</Field><Field>more</Field>"""


def composite(*parts: bytes) -> bytes:
    """A composite message of these parts."""
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def nested_bson(levels: int) -> bytes:
    body = b"\x05\0\0\0\0"
    for _ in range(levels):
        body = (len(body) + 8).to_bytes(4, "little") + b"\x03a\0" + body + b"\0"
    return body


EXAMPLES = {
    "json": Example(
        b'{"a":{"b":1},"b":[1,2]}',
        b'{"a":}',
        st.dictionaries(tags, nested),
        fields,
        hostile=(b'{"a":' + b"[" * 251 + b"]" * 251 + b"}", b'{"a":"\xff"}', b'{"a":1e999}'),
    ),
    "nvfix": Example(
        b"a=1\x01b=x=y\x01a=2\x01",
        b"a=1\x01b\x01",
        st.dictionaries(tags, fix_values),
        text_fields,
        hostile=(b"a=\xff\x01", b"x" * 100_000),
    ),
    "fix": Example(
        b"8=FIX.4.2\x0155=IBM\x01",
        b"8=FIX.4.2\x01=\x01",
        st.dictionaries(tags, fix_values),
        text_fields,
        hostile=(b"a=\xff\x01", b"x" * 100_000),
    ),
    "xml": Example(
        b'<?xml version="1.0"?><a x="1"><b>1</b>\n<b>2 &amp; 3</b></a>',
        b"<a><b></a>",
        st.builds(lambda name, value: {name: value}, xml_names, xml_values),
        lambda name, number: {"order": {"@id": str(name), "px": str(number)}},
        key="/order/@id",
        number="/order/px",
        hostile=(
            b"<a>" * 65 + b"</a>" * 65,
            b"<a>" * 100_000,
            b"<a>" + b"<b/>" * 100_000 + b"</a>",
            b"<a>\xff</a>",
            b'<?xml version="1.0" encoding="utf-16"?><a>\xff\xfe</a>',
            b'<!DOCTYPE a [<!ENTITY e "eeee">]><a>&e;</a>',
            b'<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>',
            b"<a>&undefined;</a>",
            b'<a x="1" x="2"/>',
            b"<a/><b/>",
            b"",
        ),
    ),
    "bson": Example(
        b"\x15\0\0\0\x10a\0\x01\0\0\0\x02b\0\x02\0\0\0x\0\0",
        b"\x05\0\0\0\x01",
        st.dictionaries(tags, nested),
        fields,
        hostile=(
            b"",
            b"\xff\xff\xff\x7f\0",
            b"\x0e\0\0\0\x02a\0\xff\xff\xff\x7fx\0\0",
            b"\x0e\0\0\0\x02a\0\x02\0\0\0\xff\0\0",
            b"\x05\0\0\0\0more",
            nested_bson(101),
            nested_bson(10_000),
        ),
    ),
    "msgpack": Example(
        b"\x82\xa1a\x81\xa1b\x01\xa1b\x92\x01\xa1x",
        b"\x81\xa1a",
        st.dictionaries(tags, nested),
        fields,
        hostile=(
            b"\x81\xa1a" + b"\xdd\xff\xff\xff\xff" * 50,  # arrays of four billion
            b"\xdf\xff\xff\xff\xff",
            b"\x81\xa1a\xc6\xff\xff\xff\xff",
            b"\x81\xa1a" + b"\x91" * 101 + b"\xc0",
            b"\x81\xa1a" + b"\x91" * 100_000 + b"\xc0",
            b"\x81\xa1a\xa1\xff",
            b"\x81\xa1a\xc1",
            b"\x81\x80\x01",
            b"\x80\x80",
            b"\xc0",
            b"",
        ),
    ),
    "bflat": Example(
        b"\x09a\x03abc\x19b\x05",
        b"\x09a\x09abc",
        st.dictionaries(tags, bflat_values),
        fields,
        hostile=(b"\x81a\xff\xff\xff\xff\x0f", b"\x09a\xff\xff\xff\xff\x0f", b"\x09a\x01\xff"),
    ),
    "record": Example(
        b"x\x021\x021.10",
        b"x\x021.5",
        records,
        fields,
        hostile=(b"x" * 100_000 + b"\x02x", b"\x02" * 100_000, b"\x02" + b"9" * 100_000, b"\xff"),
        element=f"<MessageType><Name>record</Name><Module>record</Module>{RECORD}</MessageType>",
    ),
    "composite-local": Example(
        composite(b'{"a":{"b":1}}', b"x\x021", b"\x00\n") + b"tail",
        composite(b'{"a":}', b"", b""),
        st.fixed_dictionaries({"0": st.dictionaries(tags, nested)}, optional={"1": records}),
        lambda name, number: {"0": {"id": name}, "1": {"px": number}},
        key="/0/id",
        number="/1/px",
        hostile=(b"", b"\xff\xff\xff\xff", composite(b"", b""), composite(b"", b"\xff", b"")),
        element="""<MessageType><Name>composite-local</Name><Module>composite-local</Module>
            <MessageType>json</MessageType><MessageType>record</MessageType>
            <MessageType>binary</MessageType></MessageType>""",
    ),
    "composite-global": Example(
        composite(b'{"a":{"b":1}}', b"x\x021"),
        composite(b'{"a":}', b""),
        st.dictionaries(tags, nested),
        fields,
        hostile=(b"", b"\xff\xff\xff\xff", composite(b"{}", b"") + b"x", composite(b"", b"\xff")),
        element="""<MessageType><Name>composite-global</Name><Module>composite-global</Module>
            <MessageType>json</MessageType><MessageType>record</MessageType></MessageType>""",
    ),
    "binary": Example(
        b"\x00\xff\n",
        None,
        st.binary(max_size=20),
        lambda name, number: b"%d %d" % (name, number),
        key="",
        number="",
    ),
    "string": Example(
        b"one\ntwo",
        b"\xff",
        st.builds(lambda text: {"value": text}, texts),
        lambda name, _: {"value": str(name)},
        key="/value",
        number="",
    ),
    "int64": Example(
        b"-42",
        b"4.2",
        st.builds(lambda number: {"value": number}, st.integers(-(2**63), 2**63 - 1)),
        lambda name, _: {"value": name},
        key="/value",
        number="",
        hostile=(b"9" * 100_000,),
    ),
    "double": Example(
        b"4.25",
        b"NaN",
        st.builds(
            lambda number: {"value": number}, st.floats(allow_nan=False, allow_infinity=False)
        ),
        lambda name, _: {"value": float(name)},
        key="/value",
        number="",
        hostile=(b"9" * 100_000, b"1e999"),
    ),
}


def configured(sow: str) -> Any:
    """A configuration of these `<SOW>` elements, which knows all examples."""
    elements = "".join(example.element for example in EXAMPLES.values())
    elements = elements and f"<MessageTypes>{elements}</MessageTypes>"
    loaded = loads(f"<SOWConfig><Name>test</Name>{elements}<SOW>{sow}</SOW></SOWConfig>")
    assert loaded.configuration is not None, loaded.findings
    return loaded.configuration


OPTIONS = {options.name: options for options in configured("").message_types}
"""How the types that are configured are."""


def topic_of(name: str, more: str = "") -> str:
    """The `<Topic>` of a type, called like it; its key is the example's."""
    key = EXAMPLES[name].key
    keyed = key and f"<Key>{key}</Key>"
    return f"<Topic><Name>{name}</Name><MessageType>{name}</MessageType>{keyed}{more}</Topic>"
