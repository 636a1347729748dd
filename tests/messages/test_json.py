import json

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.lossless_numbers import LosslessNumber
from sow.core.paths import Path, parse_path, value_at
from sow.errors import BadMessage
from sow.messages import json as json_messages
from sow.messages import message_type
from sow.messages.json import (
    GENERATED_PATHS_MAX,
    NESTING_MAX,
    READ_FAILURES,
    STEPS_MAX,
    JsonDecoder,
    columns_reader,
    json_bodies,
    json_text,
    read_document,
)
from tests.cases import all_cases

JSON = message_type("json")

names = st.sampled_from(["a", "b", 'odd "name"', "ü", "", "a b", "f0", "\\"])
paths = st.builds(
    Path, st.lists(names, min_size=1, max_size=3).map(tuple), st.none() | st.integers(0, 2)
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
)
values = st.recursive(
    scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(names, v, max_size=4), max_leaves=9
)
documents = st.dictionaries(names, values, max_size=4)


def decoder(*texts):
    return JSON.decoder(tuple(map(parse_path, texts)))


def refused(*bodies):
    with pytest.raises(BadMessage) as caught:
        decoder("/a").read(list(bodies))
    return caught.value


@given(st.lists(documents, max_size=4), st.lists(paths, max_size=4).map(tuple))
def test_columns_are_exactly_what_value_at_finds(batch, wanted):
    bodies = [msgspec.json.encode(document) for document in batch]
    expected = [[value_at(msgspec.json.decode(body), path) for body in bodies] for path in wanted]
    stored, columns = JsonDecoder(wanted).read(bodies)
    assert stored == bodies
    assert repr(columns) == repr(expected)
    assert repr(JsonDecoder(wanted).columns(bodies)) == repr(expected)


@given(st.lists(documents, min_size=1, max_size=3), st.lists(paths, min_size=1, max_size=3))
def test_the_fast_reader_and_the_slow_one_agree_whenever_the_fast_one_answers(batch, wanted):
    bodies = [msgspec.json.encode(document) for document in batch]
    fast, slow = JsonDecoder(tuple(wanted)), JsonDecoder(tuple(wanted))
    slow._fast = None
    assert repr(fast.read(bodies)) == repr(slow.read(bodies))


pieces = st.sampled_from(
    b"""{ } [ ] , : "a" " 1 e 400 null - .5 true \xff {} {"a":1} \\u00 \\ud800""".split()
) | st.sampled_from([b" ", b"\n", b"\r", b"9" * 99])


@given(st.lists(st.lists(pieces, max_size=12).map(b"".join), min_size=1, max_size=3))
def test_accepts_exactly_the_objects_that_the_strictest_parser_reads(bodies):
    def reads(body):
        try:
            return isinstance(orjson.loads(body), dict)
        except ValueError:
            return False

    bad = [index for index, body in enumerate(bodies) if not reads(body)]
    if bad:
        assert refused(*bodies).index == bad[0]
    else:
        decoder("/a").read(bodies)


def test_a_scalar_keeps_its_type():
    bodies = [b'{"a":1}', b'{"a":1.0}', b'{"a":true}', b'{"a":"1"}', b'{"a":null}', b"{}"]
    assert repr(decoder("/a").read(bodies)[1]) == "[[1, 1.0, True, '1', None, None]]"


def test_integers_of_any_size_are_exact():
    huge = 10**30 + 1
    bodies = [b'{"a":%d}' % huge, b'{"a":[%d]}' % -huge]
    assert decoder("/a").read(bodies)[1] == [[huge, [-huge]]]
    assert JSON.parse(JSON.encode({"a": huge})) == {"a": huge}


def test_the_bytes_of_a_record_are_kept():
    bodies = [b' { "a" : 1.50 ,"a":2} ', '{"ü":"\\u00fc"}'.encode()]
    assert decoder("/a").read(bodies) == (bodies, [[2, None]])


def test_line_breaks_are_taken_out():
    stored, columns = decoder("/a").read([b'{\r\n  "a": 1,\n  "b": "x\\ny"\n}\n', b'{"a":2}'])
    assert stored == [b'{  "a": 1,  "b": "x\\ny"}', b'{"a":2}']
    assert columns == [[1, 2]]


@pytest.mark.parametrize("body", [b'{"a":\n1}', b'{"a":\r1}'])
def test_either_line_break_is_taken_out(body):
    assert decoder("/a").read([body]) == ([b'{"a":1}'], [[1]])


def test_line_breaks_within_a_text_are_refused():
    assert refused(b'{"a":"x\ny"}').index == 0


@all_cases(
    "bodies",
    [
        (b"{}{}",),
        (b"{}{}", b""),
        (b"{", b"}{}"),
        (b'{"a":{}', b"},{}"),
        (b'{"b":"', b'"}', b"{}{}"),
        (b'{"b":"}', b'{"}', b"{}{}"),
        (b'{"b":{}', b'{"c":1}}', b"{}{}"),
        (b'{"b":{}', b"}", b"{}{}"),
        (b'{"b":', b"{}}", b"{}{}"),
        (b"{},{}", b"{}"),
    ],
)
def test_two_halves_are_not_taken_for_two_records(bodies):
    assert refused(*bodies).index == 0


def test_invalid_utf8_is_refused_in_a_field_that_is_not_read():
    assert refused(b'{"a":1}', b'{"b":"\xff"}').index == 1


@pytest.mark.parametrize(
    "number",
    ["1e309", "-1E+400", "1e0000400", "9" * 309, "1" + "0" * 250 + "e90", "0.1e999", "[1e999]"],
)
def test_a_number_too_large_for_a_double_is_refused_wherever_it_is(number):
    error = refused(b'{"a":1}', b'{"b": %s}' % number.encode())
    assert error.index == 1
    assert "number out of range" in error.detail


@pytest.mark.parametrize("number", ["1e308", "9" * 308, "1e-999", "0." + "1" * 500, "0e999"])
def test_a_long_number_that_a_double_can_take_is_accepted(number):
    body = b'{"b":%s}' % number.encode()
    assert decoder("/a").read([body])[0] == [body]


numbers = st.from_regex(r"\A-?(0|[1-9][0-9]{0,3})(\.[0-9]{1,3})?([eE][+-]?[0-9]{1,4})?\Z")
digits = st.integers(150, 420).map(lambda count: "1" * count)


@given(st.lists(numbers | digits | st.just('"1e999"'), min_size=1, max_size=9), st.integers(0, 60))
def test_numbers_of_a_large_message_are_judged_as_those_of_a_small_one(written, pad):
    body = ('{{"pad":"{}","of":[{}]}}'.format("x" * pad, ",".join(written))).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_messages, "MANY_BYTES_MIN", 0)
        patch.setattr(json_messages, "MANY_BYTES_AT_ONCE", 7)
        large = json_messages._may_overflow(body)
    assert large == json_messages._may_overflow(body)


def test_texts_that_look_like_large_numbers_do_not_lead_off_the_fast_path(monkeypatch):
    fast = decoder("/a")
    monkeypatch.setattr(fast, "_values", None)
    uuid = b'{"a":"9b1-1e999-8e400","b":"12e555","c":"1.7e+301"}'
    assert fast.read([uuid])[1] == [["9b1-1e999-8e400"]]


@pytest.mark.parametrize(
    "text", ["[]", "1", '"x"', "null", "", "NaN", '{"a":NaN}', '{"a":Infinity}']
)
def test_what_is_not_an_object_of_json_is_refused(text):
    assert "is not a JSON object" in refused(text.encode()).detail


def test_the_error_says_where_the_text_breaks():
    assert "line 1 column 6" in refused(b'{"a":}').detail


def nested(levels):
    return b'{"b":' + b"[" * (levels - 1) + b"]" * (levels - 1) + b"}"


def test_nesting_is_bounded_so_that_what_is_read_can_be_written():
    deepest = nested(NESTING_MAX)
    assert decoder("/a").read([deepest])[0] == [deepest]
    assert JSON.encode(JSON.parse(deepest)) == deepest
    assert "more than 250 levels deep" in refused(nested(NESTING_MAX + 1)).detail


@pytest.mark.parametrize("levels", [400, 900, 1000, 1100, 100_000])
def test_nesting_of_any_depth_is_refused_as_a_bad_message(levels):
    assert refused(nested(levels)).index == 0
    assert JSON.decoder(()).read([b"{}"])[0] == [b"{}"]


def test_many_brackets_side_by_side_are_not_nesting():
    body = b'{"b":[' + b"[]," * 999 + b"[]]}"
    assert decoder("/a").read([body])[0] == [body]


def deep(value, level=1):
    """How deep a document is nested."""
    children = value.values() if isinstance(value, dict) else value
    below = [deep(one, level + 1) for one in children if isinstance(one, dict | list)]
    return max(below, default=level)


texts = st.text(st.sampled_from('[]{}"\\a,'), max_size=6)
nests = st.recursive(
    st.none() | texts,
    lambda some: st.lists(some, max_size=4) | st.dictionaries(texts, some, max_size=4),
    max_leaves=30,
)


@given(st.dictionaries(texts, nests, max_size=4), st.booleans(), st.sampled_from([0, 9999]))
def test_levels_are_counted_whatever_stands_in_strings(document, compact, many_bytes_min):
    body = json.dumps(document, separators=(",", ":") if compact else None).encode()
    levels = deep(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_messages, "LEVELS_AT_ONCE", 3)
        patch.setattr(json_messages, "MANY_BYTES_MIN", many_bytes_min)
        for bound in (levels, levels - 1):
            patch.setattr(json_messages, "NESTING_MAX", bound)
            assert json_messages._nests_deeply(body) == (levels > bound)


def test_a_wide_message_is_read_by_the_fast_reader(monkeypatch):
    monkeypatch.setattr(json_messages, "_checked", None)
    body = json.dumps({"a": 1, "b": [{"c": [n]} for n in range(1000)]}).encode()
    assert decoder("/a").read([body]) == ([body], [[1]])


def test_a_field_may_be_value_in_one_record_and_container_in_another():
    bodies = [b'{"a":1}', b'{"a":{"b":2}}', b'{"a":[{"b":3},{"b":4}]}', b'{"a":null}']
    columns = decoder("/a", "/a/b").read(bodies)[1]
    assert columns == [[1, None, None, None], [None, 2, [3, 4], None]]


def test_ordinary_paths_have_a_fast_reader_and_odd_ones_do_not():
    assert columns_reader((Path(("a",)), Path(("b", "c d")))) is not None
    assert columns_reader((Path(("a",), 0),)) is None
    assert columns_reader((Path(("a",)), Path(("a", "b")))) is None
    assert columns_reader((Path(("a",) * 33),)) is None


def test_a_path_may_be_as_long_as_a_filter_allows():
    deep = JSON.decoder((Path(("a",) * 30_000), Path(("a",))))
    assert deep.read([b'{"a":1}'])[1] == [[None], [1]]


def test_encode_writes_compactly():
    assert JSON.encode({"a": 1, "b": [None, "ü"]}) == '{"a":1,"b":[null,"ü"]}'.encode()


def test_encode_writes_nan_as_null():
    assert JSON.encode({"a": float("nan")}) == b'{"a":null}'


@given(st.lists(st.dictionaries(names, scalars)))
def test_documents_are_written_together_as_one_by_one(documents):
    assert json_bodies(documents) == list(map(json_text, documents))


def test_texts_that_look_like_the_end_of_a_document_do_not_end_it():
    documents = [{"a": "},\n,{"}, {"b\n": "]\n"}, {"px": LosslessNumber("1.10")}]
    assert json_bodies(documents) == list(map(json_text, documents))
    with pytest.raises(BadMessage):
        json_bodies([{"a": 1}, {"b": object()}])


@pytest.mark.parametrize("document", [[], 1, {1: 2}, {"a": b"x"}, {"a": "\ud800"}])
def test_encode_refuses_what_json_does_not_have(document):
    with pytest.raises(BadMessage):
        JSON.encode(document)


@pytest.mark.parametrize(
    "text",
    ["1.50", "1e2", "1E+2", "1e-05", "1e16", "0.1", "-0.0", "0.12345678901234567890", "1" * 40],
)
def test_a_number_is_written_as_it_was_read(text):
    body = f'{{"a":[{text},{{"b":{text}}}]}}'.encode()
    assert JSON.encode(JSON.parse(body)) == body


def test_a_fraction_that_no_double_is_near_is_no_number():
    with pytest.raises(BadMessage, match="out of range"):
        JSON.parse(b'{"a":1.5e400}')


def test_a_long_text_of_hexadecimal_digits_is_looked_at_a_bounded_number_of_times():
    class Counted(bytes):
        looks = 0

        def rfind(self, *arguments):
            Counted.looks += 1
            return super().rfind(*arguments)

    digits = "12e456a" * 5_000
    assert json_messages._has_long_exponent(Counted(digits.encode().translate(json_messages.SHAPE)))
    assert Counted.looks <= json_messages.EXPONENTS_MAX
    decoder = JsonDecoder((parse_path("/a"), parse_path("/n")))
    body = b'{"a":"%b","n":7}' % digits.encode()
    assert decoder.read([body]) == ([body], [[digits], [7]])
    with pytest.raises(BadMessage, match="out of range"):
        decoder.read([b'{"a":"%b","n":1e999}' % digits.encode()])


@pytest.mark.parametrize("number", ["1e999", "-1E400"])
def test_a_document_has_no_number_beyond_a_double(number):
    with pytest.raises(BadMessage, match="out of range"):
        read_document(b'{"a":%b}' % number.encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":-0,"b":"-0","c":[-0,0,1],"d":1.50,"e":{"f":-0},"g":12345678901234567890123}',
        b'{"a":-0.0,"b":"2025-01-02","c":-0e0}',
        b'{"a":"-0"}',
    ],
)
def test_a_zero_keeps_its_sign_however_it_is_written(body):
    kind = message_type("json")
    assert kind.encode(kind.parse(body)) == body


struct_names = st.sampled_from(["a", "b", "ä", "class", 'quote"d', "f0"])
struct_scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text("xy", max_size=3)
)
struct_documents = st.dictionaries(
    struct_names,
    struct_scalars
    | st.lists(struct_scalars, max_size=2)
    | st.dictionaries(struct_names, struct_scalars, max_size=2),
)
PATHS = tuple(parse_path(text) for text in ("/a/b", "/b", "/ä", "/class/f0", "/f0"))


def reader(*texts):
    return columns_reader(tuple(map(parse_path, texts)))


@given(st.lists(struct_documents, max_size=5))
def test_what_is_read_fast_is_what_looking_finds(records):
    read = columns_reader(PATHS)
    assert read is not None
    block = b"\n".join(json.dumps(record).encode() for record in records)
    try:
        found = read(block, len(records))
    except READ_FAILURES:
        return
    assert found == [[value_at(record, path) for record in records] for path in PATHS]


@given(st.lists(struct_documents, max_size=5))
def test_of_many_paths_the_same_is_found(records):
    many = *PATHS, *(parse_path(f"/more/{number}") for number in range(GENERATED_PATHS_MAX))
    block = b"\n".join(json.dumps(record).encode() for record in records)
    found = columns_reader(many)(block, len(records))
    assert found == [[value_at(record, path) for record in records] for path in many]


def test_records_of_scalars_are_read_fast():
    block = b'{"a":{"b":1},"b":"x"}\n{"b":null,"c":[1]}'
    assert reader("/a/b", "/b")(block, 2) == [[1, None], ["x", None]]


@pytest.mark.parametrize("texts", [("/a", "/a/b"), ("/a/b", "/a"), ("/a[0]",)])
def test_paths_that_no_struct_can_hold_do_not_suit(texts):
    assert reader(*texts) is None


def test_types_nest_within_reason():
    deep = "/".join(["", *(["a"] * STEPS_MAX)])
    assert reader(deep) is not None
    assert reader(deep + "/a") is None


@pytest.mark.parametrize("body", [b'{"a":[1]}', b'{"a":{"x":1}}', b"[1]", b'{"a":', b"3", b"{}{}"])
def test_a_record_of_another_shape_is_left_to_the_slow_reader(body):
    with pytest.raises(READ_FAILURES):
        reader("/a")(body, 1)


def test_a_block_that_holds_more_records_than_bodies_is_not_taken():
    with pytest.raises(READ_FAILURES):
        reader("/a")(b'{"a":1}\n{"a":2}', 1)
