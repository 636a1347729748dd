"""Several addresses of one log: the order in which they are tried, and what is no list."""

from urllib.parse import urlsplit

import pytest

from sow.core.addresses import Addresses, authority, listed
from sow.errors import AnotherLog, ClientError

A, B, C = "http://a:1", "http://b:1", "http://c:1"


def order(addresses, for_writes=False):
    tried = []
    while (url := addresses.next(tried, for_writes)) is not None:
        tried.append(url)
    return tried


@pytest.mark.parametrize(
    ("given", "found"),
    [(A, [A]), (f"{A},{B}", [A, B]), (f" {A} , {B} ", [A, B]), ([A, B], [A, B]), ((A,), [A])],
)
def test_a_list_is_a_list_or_text_with_commas(given, found):
    assert listed(given) == found


@pytest.mark.parametrize("given", [f"{A},", f",{A}", f"{A},,{B}", [A, ""], [], [" ", A]])
def test_an_empty_address_in_a_list_is_refused(given):
    with pytest.raises(ClientError, match=r"has an empty one; write for example http://a:8080,"):
        listed(given)


def test_no_address_at_all_is_left_to_who_checks_addresses():
    assert listed("") == [""]


def test_different_schemes_and_the_same_address_twice_are_refused():
    with pytest.raises(ClientError, match=r"http://a:1 and https://b have different schemes"):
        Addresses([A, "https://b"])
    with pytest.raises(ClientError, match=r"http://a:1 is in the list twice"):
        Addresses([A, B, A])


def test_a_round_has_each_address_once_from_the_one_in_use_on():
    addresses = Addresses([A, B, C])
    assert order(addresses) == [A, B, C]
    addresses.use(B)
    assert order(addresses) == [B, C, A]
    addresses.use("http://elsewhere")
    assert addresses.current == B


def test_after_a_round_without_an_answer_the_next_begins_where_it_began():
    addresses = Addresses([A, B, C])
    addresses.use(B)
    for url in order(addresses):
        addresses.leave(url)
    assert order(addresses) == [B, C, A]


def test_writes_go_to_the_primary_and_reads_stay():
    addresses = Addresses([A, B])
    addresses.lead_to("http://p:1/", A)
    assert order(addresses, for_writes=True) == ["http://p:1", A, B]
    assert order(addresses) == [A, B]
    addresses.leave("http://p:1")
    assert order(addresses, for_writes=True) == [A, B]


def test_a_primary_in_the_list_is_tried_once():
    addresses = Addresses([A, B])
    addresses.lead_to(B, A)
    assert order(addresses, for_writes=True) == [B, A]


def test_a_primary_without_the_encryption_of_the_list_is_refused():
    with pytest.raises(ClientError, match=r"^https://a names 'http://b' as the server for writes"):
        Addresses(["https://a"]).lead_to("http://b", "https://a")


def test_of_several_servers_each_has_the_same_log():
    several, one = Addresses([A, B]), Addresses([A])
    several.check_log(A, "5f")
    several.check_log(B, "")
    with pytest.raises(AnotherLog, match=r"http://b:1 has the log 6a, and the other addresses 5f"):
        several.check_log(B, "6a")
    for log in ("5f", "6a"):
        one.check_log(A, log)  # a server whose data were replaced


def test_reads_include_what_was_written_if_that_is_wanted():
    addresses = Addresses([A, B], reads_writes=True)
    assert addresses.min_bookmark is None
    for bookmark in ("", "9", "10", "7", "nothing"):
        addresses.wrote(bookmark)
    assert addresses.min_bookmark == "10"
    addresses.check_log(A, "5f")
    assert addresses.min_bookmark == "5f-10"
    other = Addresses([A, B])
    other.wrote("10")
    assert other.min_bookmark is None


@pytest.mark.parametrize(
    ("primary", "said"),
    [
        ("http://user:secret@b:1", "has a user in it"),
        (f"http://{'b' * 3_000}", "has 3,007 characters"),
        ("http://", "is none such as"),
        ("http://b:0", "is none such as"),
        ("http://b:port", "is none such as"),
        ("http://[", "is none such as"),
        ("http://b\r\nHost: c", "is none such as"),
        ("http://b c", "is none such as"),
        ("http://bücher", "is none such as"),
        ("http://b?to=c", "has a query"),
        ("http://b#c", "has a query or a fragment"),
        ("ftp://b", "has another scheme"),
        ("javascript:alert(1)", "is none such as"),
    ],
)
def test_nonsense_that_a_server_names_is_refused_and_forgotten(primary, said):
    addresses = Addresses([A])
    with pytest.raises(ClientError) as refused:
        addresses.lead_to(primary, A)
    assert said in refused.value.detail
    assert len(refused.value.detail) < 300
    assert "secret" not in refused.value.detail
    assert order(addresses, for_writes=True) == [A]


def test_servers_that_name_each_other_or_ever_new_ones_end_a_round():
    addresses, tried = Addresses([A, B]), []
    while (url := addresses.next(tried, True)) is not None:
        tried.append(url)
        addresses.lead_to(f"http://p{len(tried)}:1", url)
    assert tried == [A, *(f"http://p{number}:1" for number in range(1, 5))]
    addresses, tried = Addresses([A, B]), []
    while (url := addresses.next(tried, True)) is not None:
        tried.append(url)
        addresses.lead_to({A: C, C: A}.get(url, C), url)
    assert tried == [A, C, B]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "fe80::1"])
def test_an_address_is_one_in_a_url(host):
    parts = urlsplit(f"http://{authority(host, 8080)}")
    assert (parts.hostname, parts.port) == (host, 8080)
