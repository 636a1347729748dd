"""Records by themselves; what all types promise is in the contract tests."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.definitions import MessageTypeOptions, RecordField
from sow.core.delta import merged
from sow.core.lossless_numbers import written
from sow.core.paths import parse_path, value_at
from sow.errors import BadMessage, ConfigError
from sow.messages import message_type, separated
from sow.messages.separated import FIELDS_MAX, Fix, Record, mistakes, records_of
from tests.cases import all_cases

FIELDS = (
    RecordField("id", "int"),
    RecordField("symbol"),
    RecordField("px", "decimal"),
    RecordField("note"),
)
TRADES = Record(MessageTypeOptions("trades", "record", b"\x02", FIELDS))
PATHS = tuple(map(parse_path, ("/id", "/symbol", "/px", "/px[0]", "/px[1]", "/a/b", "/id/x", "/q")))

texts = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\x01\x02"), min_size=1, max_size=8
)
decimals = st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?", fullmatch=True)
rows = st.tuples(
    st.none() | st.integers(-(10**300), 10**300).map(str),
    st.none() | texts,
    st.none() | decimals,
    st.none() | texts,
)


def options(*fields, separator=b"\x02"):
    return MessageTypeOptions("r", "record", separator, fields, line=1)


def body_of(row):
    """A record as a publisher may write it, with whatever is empty at its end."""
    return "\x02".join(value or "" for value in row).encode()


@given(rows.filter(any))
def test_what_was_read_is_written_with_the_same_digits(row):
    assert TRADES.encode(TRADES.parse(body_of(row))) == body_of(row).rstrip(b"\x02")


@given(st.lists(rows.filter(any), max_size=4))
def test_columns_are_what_the_parsed_messages_have(many):
    bodies = list(map(body_of, many))
    decoder = TRADES.decoder(PATHS)
    stored, columns = decoder.read(bodies)
    assert stored == bodies
    assert columns == [[value_at(TRADES.parse(body), path) for body in bodies] for path in PATHS]
    assert decoder.columns(bodies) == columns


@given(rows.filter(any), rows.filter(any))
def test_a_delta_changes_what_is_not_empty(before, delta):
    result = merged(TRADES.parse(body_of(before)), TRADES.parse(body_of(delta)))
    expected = [new or old for old, new in zip(before, delta, strict=True)]
    assert TRADES.encode(result) == body_of(expected).rstrip(b"\x02")


def test_fields_are_in_order_and_absent_at_the_end():
    assert TRADES.parse(b"7\x02ACME") == {"id": 7, "symbol": "ACME"}
    assert TRADES.parse(b"7\x02\x021.5\x02") == {"id": 7, "px": 1.5}
    assert TRADES.encode({"px": 1.5, "id": 7}) == b"7\x02\x021.5"


def test_numbers_keep_their_digits():
    document = TRADES.parse(b"99999999999999999999\x02A\x021.10")
    assert document["id"] == 99999999999999999999
    assert written(document["px"]) == "1.10"


def test_a_record_may_end_with_what_stands_between_records():
    assert TRADES.decoder(()).read([b"7\x02A\x01"]) == ([b"7\x02A"], [])


@all_cases(
    ("body", "says"),
    [
        (b"1\x02A\x022\x02n\x02more", "5 values for the 4 fields of trades, the last of them"),
        (b"1\x02\x02\x02\x02", "5 values for the 4 fields"),
        (b"x\x02A", "id is 'x', which is no whole number"),
        (b"1.0\x02A", "id is '1.0', which is no whole number"),
        (b"007\x02A", "id is '007'"),
        (b"1\x02A\x02abc", "px is 'abc', which is no number such as"),
        (b"1\x02A\x02NaN", "px is 'NaN'"),
        (b"1\x02A\x021e999", "px is '1e999'"),
        (b"9" * 100_000, "of at most 308 digits"),
        (b"1\x02A\x012\x02B", "U+0001 at character 3 ends a record"),
        (b"1\x02\xff", "byte 2 is not UTF-8"),
        (b"", "a record is not empty"),
        (b"\x01", "a record is not empty"),
        (b"\x02" * 1_000_000, "1000001 values for the 4 fields"),
    ],
)
def test_what_is_no_record_is_refused_in_a_sentence(body, says):
    with pytest.raises(BadMessage) as caught:
        TRADES.decoder(PATHS).read([b"1", body])
    assert says in caught.value.detail
    assert caught.value.detail.startswith("message 1: ")
    assert caught.value.index == 1
    assert len(caught.value.detail) < 400


@all_cases(
    ("document", "says"),
    [
        ([], "must be an object"),
        ({"qty": 1}, "have no field 'qty'; their fields are"),
        ({"id": 1.5}, "id: '1.5' is no whole number"),
        ({"id": "x"}, "id: 'x' is no whole number"),
        ({"id": True}, "holds one text or number"),
        ({"symbol": ["a"]}, "holds one text or number"),
        ({"symbol": {"a": 1}}, "holds one text or number"),
        ({"px": float("nan")}, "px: 'nan' is no number"),
        ({"symbol": "a\x02b"}, "can hold neither the separator"),
        ({"symbol": "a\x01b"}, "can hold neither the separator"),
    ],
)
def test_what_no_record_can_hold_is_not_written(document, says):
    with pytest.raises(BadMessage) as caught:
        TRADES.encode(document)
    assert says in caught.value.detail


def test_a_number_is_a_text_where_text_is():
    assert TRADES.encode({"symbol": 5, "note": 1.5}) == b"\x025\x02\x021.5"
    assert TRADES.encode({"id": "5"}) == b"5"


def test_lines_of_a_text_may_hold_several_records():
    assert records_of(TRADES, [b"1\x02A\x012\x02B\x01", b"3"]) == [b"1\x02A", b"2\x02B", b"3"]
    assert records_of(message_type("nvfix"), [b"a=1\x01b=2\x01"]) == [b"a=1\x01b=2\x01"]


@pytest.mark.parametrize(
    ("wrong", "line", "element", "says"),
    [
        (options(), 1, "Module", "a record has no field"),
        (options(RecordField("a"), RecordField("a", line=7)), 7, "Field", "a second time"),
        (options(RecordField("a"), separator=b"\x01"), 1, "FieldSeparator", "U+0001 ends records"),
        (options(RecordField("a"), separator=b"-"), 1, "FieldSeparator", "numbers hold + - and ."),
        (options(RecordField("a"), separator=b"\xe9"), 1, "FieldSeparator", "ASCII"),
        (
            options(*(RecordField(f"f{n}", line=n) for n in range(FIELDS_MAX + 1))),
            FIELDS_MAX,
            "Field",
            "are the most",
        ),
    ],
)
def test_mistakes_of_the_definition_have_a_place(wrong, line, element, says):
    (mistake,) = mistakes(wrong)
    assert (mistake.line, mistake.element) == (line, element)
    assert says in mistake.detail
    with pytest.raises(ConfigError):
        Record(wrong)


def test_all_mistakes_are_found():
    twice = RecordField("a", line=2)
    assert len(list(mistakes(options(twice, twice, twice, separator=b".")))) == 3


def test_a_record_without_values_is_a_separator():
    assert TRADES.encode({}) == b"\x02"
    assert TRADES.parse(b"\x02") == {}
    assert TRADES.decoder(PATHS[:1]).read([b"\x02"]) == ([b"\x02"], [[None]])
    with pytest.raises(BadMessage):
        TRADES.parse(b"")


def test_of_one_field_there_is_no_part():
    assert TRADES.partial
    assert not Record(options(RecordField("a"))).partial


PIPES = Fix(MessageTypeOptions("nvfix", "nvfix", field_separator=b"|"))


def read(body, *paths):
    return PIPES.decoder(tuple(map(parse_path, paths))).read([body])


def refused(body):
    with pytest.raises(BadMessage) as caught:
        PIPES.parse(body)
    return caught.value.detail


def test_fields_end_with_soh_by_default():
    assert message_type("fix").parse(b"35=D\x0155=IBM\x01") == {"35": "D", "55": "IBM"}


def test_fields_are_found_by_tag():
    assert read(b"sym=IBM|px=12.5|", "/sym", "/px", "/none")[1] == [["IBM"], ["12.5"], [None]]


def test_a_missing_final_separator_is_added_on_store():
    assert read(b"a=1|b=2")[0] == [b"a=1|b=2|"]


def test_a_message_without_fields_is_stored_as_it_is():
    assert read(b"")[0] == [b""]


def test_a_tag_that_comes_again_has_a_list():
    assert PIPES.parse(b"a=1|b=x|a=2|a=1|") == {"a": ["1", "2", "1"], "b": "x"}


def test_a_value_may_hold_equal_signs_and_line_breaks_and_be_empty():
    assert PIPES.parse(b"a=x=y|b=|c=1\n2|") == {"a": "x=y", "b": "", "c": "1\n2"}


def test_a_field_without_an_equal_sign_is_refused_with_its_offset_in_bytes():
    assert "'b' at byte 7 is not tag=value" in refused("a=üü|b|c=1|".encode())


def test_a_field_without_a_tag_is_refused():
    assert "'=2' at byte 4" in refused(b"a=1|=2|")


def test_an_empty_field_is_refused():
    assert "'' at byte 4" in refused(b"a=1||b=2|")


def test_what_is_not_utf8_is_refused():
    assert "byte 2 is not UTF-8" in refused(b"a=\xff|")


def test_numbers_and_truth_values_are_written_as_text():
    assert PIPES.encode({"a": 1, "b": 1.5, "c": True, "d": None}) == b"a=1|b=1.5|c=Y|"


@pytest.mark.parametrize(
    "document", [{"": "x"}, {"a=b": "x"}, {"a": "|"}, {"a|": 1}, {"a": {}}, []]
)
def test_what_has_no_place_in_a_field_is_not_written(document):
    with pytest.raises(BadMessage):
        PIPES.encode(document)


@pytest.mark.parametrize("separator", [b"=", b"", b"ab", b"\xff"])
def test_an_impossible_separator_is_a_mistake_in_the_configuration(separator):
    with pytest.raises(ConfigError, match="field separator") as caught:
        Fix(MessageTypeOptions("fix", "fix", field_separator=separator, line=7))
    assert caught.value.line == 7


def test_a_message_has_a_bounded_number_of_fields(monkeypatch):
    monkeypatch.setattr(separated, "VALUES_MAX", 3)
    kind = message_type("nvfix")
    assert kind.decoder(()).read([b"a=1\x01" * 3])[0] == [b"a=1\x01" * 3]
    with pytest.raises(BadMessage, match="message 1: it has more than 3 fields"):
        kind.decoder(()).read([b"", b"a=1\x01" * 4])
    # What was stored before there was a limit is read as it is.
    assert kind.parse(b"a=1\x01" * 4) == {"a": ["1"] * 4}
