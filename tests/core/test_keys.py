from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sow.core.keys import (
    are_written_alike,
    check_explicit_key,
    identities,
    joined,
    parted,
    sow_key,
    sow_keys,
    values_of,
)
from sow.core.lossless_numbers import LosslessNumber
from sow.core.paths import Path
from sow.errors import BadMessage, ClientError
from tests.cases import all_cases

A, B = Path(("a",)), Path(("order", "id"))


def refused(paths, columns):
    with pytest.raises(BadMessage) as caught:
        identities(paths, columns)
    return caught.value


@all_cases(
    ("value", "identity"),
    [
        ("x", "x"),
        ("", ""),
        ("a\\b\x1f", "a\\b\x1f"),
        (7, "7"),
        (-(10**30), "-" + "1" + "0" * 30),
        (1.0, "1"),
        (-0.0, "0"),
        (2.0**53, "9007199254740992"),
        (2.0**54, "1.8014398509481984e+16"),
        (0.1, "0.1"),
        (True, "true"),
        (False, "false"),
    ],
)
def test_the_identity_of_a_single_key_is_its_text(value, identity):
    assert identities((A,), [[value]]) == [identity]
    assert identities((A,), [["another", value]]) == ["another", identity]


def test_an_empty_batch_has_no_identities():
    assert identities((A, B), [[], []]) == []


def test_several_keys_are_joined_by_unit_separators():
    assert identities((A, B), [["x", 1], [2, "y"]]) == ["x\x1f2", "1\x1fy"]


def test_several_keys_are_escaped():
    assert identities((A, B), [["\\", "a\x1fb"], ["", "c"]]) == ["\\\\\x1f", "a\\x1fb\x1fc"]


tricky = st.text("\\x1f\x1fa", max_size=5)


@given(st.tuples(tricky, tricky), st.tuples(tricky, tricky))
def test_different_keys_have_different_identities(one, other):
    first, second = identities((A, B), list(zip(one, other, strict=True)))
    assert (first == second) == (one == other)


@given(st.lists(tricky, max_size=3))
def test_an_identity_says_what_it_was_made_of(texts):
    identity = joined([[text] for text in texts])[0] if texts else ""
    assert parted(identity, len(texts)) == texts


@pytest.mark.parametrize(
    ("value", "why"), [(None, "is missing, null or a container"), ([1, 2], "has 2 values")]
)
def test_a_key_without_one_value_is_refused_by_field_and_index(value, why):
    error = refused((B,), [["x", value, None]])
    assert error.index == 1
    assert f"key field /order/id {why}" in error.detail


def test_the_first_bad_record_is_named_whichever_key_is_bad():
    error = refused((A, B), [["x", "y", None], ["x", None, "y"]])
    assert error.index == 1
    assert "/order/id" in error.detail


def test_a_sow_key_is_an_unsigned_64_bit_number_that_never_changes():
    assert sow_key("orders", "42") == 13242990468674812747
    assert sow_key("orders", "42") < 2**64


def test_a_sow_key_is_the_digest_of_domain_and_identity():
    digest = blake2b("orders\x1fü".encode(), digest_size=8).hexdigest()
    assert sow_key("orders", "ü") == int(digest, 16)


def test_many_sow_keys_are_those_of_each_identity():
    identities = ["1", "", "a\x1fb", "\ud800", "ä" * 300]
    assert sow_keys("t", identities).tolist() == [sow_key("t", one) for one in identities]


def test_the_same_identity_in_another_domain_has_another_sow_key():
    assert sow_key("orders", "42") != sow_key("quotes", "42")


def test_any_text_has_a_sow_key():
    assert sow_key("orders", "\ud800") != sow_key("orders", "\ud801")


@pytest.mark.parametrize("text", ["a", "AbC+/=", "order-1_2", "{}", "x" * 512])
def test_an_explicit_key_is_printable_ascii(text):
    assert check_explicit_key(text) == text


@pytest.mark.parametrize("text", ["", "a b", "a\n", "\x00", "é", "x" * 513])
def test_an_explicit_key_is_nothing_else(text):
    with pytest.raises(ClientError, match="cannot be a SowKey"):
        check_explicit_key(text)


def test_numbers_with_digits_are_one_key_where_they_are_one_number():
    column = [
        LosslessNumber("1.10"),
        LosslessNumber("1.100"),
        1.1,
        LosslessNumber("5.0"),
        LosslessNumber("5.00000000000000000001"),
    ]
    texts = identities([Path(("a",))], [column])
    assert texts == ["1.1", "1.1", "1.1", "5", "5.00000000000000000001"]


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ([1, "a", None], [1, "a", None], True),
        ([1], [2], False),
        ([1], [True], False),
        ([1], [1.0], False),
        ([1.5], [1.5], False),
        ([LosslessNumber("1.10")], [LosslessNumber("1.10")], False),
    ],
)
def test_columns_that_are_written_alike(one, other, alike):
    assert are_written_alike(one, other) is alike


@all_cases(
    ("text", "values"),
    [
        ("ACME", ["ACME"]),
        ("", [""]),
        ("XPAR,ACME", ["XPAR", "ACME"]),
        (" a , b ", [" a ", " b "]),
        ("a,,", ["a", "", ""]),
        ('"a,b",c', ["a,b", "c"]),
        ('"5"" tube",5" tube', ['5" tube', '5" tube']),
        ('""', [""]),
        ('"a\nb"', ["a\nb"]),
    ],
)
def test_values_between_commas(text, values):
    assert values_of(text) == values


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_quoted_values_are_read_back(values):
    quoted = ",".join('"' + value.replace('"', '""') + '"' for value in values)
    assert values_of(quoted) == values


@pytest.mark.parametrize("text", ['"a', '"a"b', 'x,"a""', '"' * 100_001])
def test_an_open_quote_is_refused(text):
    with pytest.raises(ClientError, match="double quote"):
        values_of(text)
