import pytest

from sow.core.definitions import MessageTypeOptions
from sow.core.paths import parse_path
from sow.errors import BadMessage, ConfigError
from sow.messages import fix, message_type
from sow.messages.fix import Fix

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
    monkeypatch.setattr(fix, "VALUES_MAX", 3)
    kind = message_type("nvfix")
    assert kind.decoder(()).read([b"a=1\x01" * 3])[0] == [b"a=1\x01" * 3]
    with pytest.raises(BadMessage, match="message 1: it has more than 3 fields"):
        kind.decoder(()).read([b"", b"a=1\x01" * 4])
    # What was stored before there was a limit is read as it is.
    assert kind.parse(b"a=1\x01" * 4) == {"a": ["1"] * 4}
