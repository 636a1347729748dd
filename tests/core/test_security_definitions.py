"""What the definitions of Security say by themselves."""

import pytest

from sow.core.security_definitions import OF_TOPICS, VERBS, Allow, Security, Tls


@pytest.mark.parametrize("verb", VERBS)
def test_an_allow_allows_what_it_says_and_no_more(verb):
    assert Allow(**{verb: True}).verbs == (verb,)
    assert Allow().verbs == ()


def test_what_is_about_a_topic_is_what_can_be_done_with_one():
    assert [*VERBS[: len(OF_TOPICS)]] == [*OF_TOPICS]
    assert {*VERBS} - {*OF_TOPICS} == {"admin", "impersonate"}


def test_an_address_begins_as_clients_have_to_call():
    assert Security().scheme == "http"
    assert Security(tls=Tls("certificate.pem", "key.pem")).scheme == "https"
