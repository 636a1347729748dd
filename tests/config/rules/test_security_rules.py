"""What must agree within `<Security>`: what would have no effect, or let nobody in, is an error."""

import pytest

TOKENS = "<Authentication><Tokens><File>tokens</File></Tokens></Authentication>"
CERTIFICATES = "<Authentication><ClientCertificates/></Authentication>"
TLS = "<TLS><Certificate>c.pem</Certificate><PrivateKey>k.pem</PrivateKey>{}</TLS>"
CA = TLS.format("<ClientCA>ca.pem</ClientCA>")


def role(*allows, name="all", members="<Member>*</Member>"):
    return f"<Role><Name>{name}</Name>{members}{''.join(allows)}</Role>"


def allow(*elements):
    return f"<Allow>{''.join(elements)}</Allow>"


ORDERS, READ, WRITE, ADMIN = "<Topic>orders</Topic>", "<Read/>", "<Write/>", "<Admin/>"
READERS = role(allow(ORDERS, READ))


@pytest.mark.parametrize(
    "elements",
    [
        ("",),
        (TLS.format(""),),
        (TOKENS, READERS),
        (TOKENS, READERS, role(allow(ADMIN), allow("<Impersonate/>"), name="more")),
        (CA, CERTIFICATES, READERS),
    ],
)
def test_what_agrees_is_taken(instance, elements):
    assert instance(f"<Security>{''.join(elements)}</Security>").findings == ()


@pytest.mark.parametrize(
    ("elements", "wrong", "instead"),
    [
        ((TOKENS,), "none of them may do anything: there is no Role", "add <Role>"),
        ((READERS,), "there is no authentication", "add <Authentication>"),
        (
            ("<Authentication></Authentication>", READERS),
            "no method to authenticate users",
            "add one of Users",
        ),
        ((CERTIFICATES, READERS), "needs the authority that signs them", "add <ClientCA> to TLS"),
        ((CA, TOKENS, READERS), "no certificate is requested", "add <ClientCertificates/>"),
        ((TOKENS, READERS, READERS), "the name 'all' is already used", "give it another"),
        ((TOKENS, role(allow(ORDERS))), "allows nothing", "add <Read/>"),
        (
            (TOKENS, role(allow(READ, WRITE))),
            "does not name the topics that it allows to read",
            "<Topic>.*",
        ),
        ((TOKENS, role(allow(ORDERS, ADMIN))), "which is about no topic", "write an Allow for"),
        ((TOKENS, role(allow(ORDERS, "<Read>yes</Read>"))), "'yes'", "empty it"),
        (
            (TOKENS, role(allow(ADMIN), members="<Member>ann</Member>")),
            "is neither a user nor a group",
            "write user:NAME",
        ),
    ],
)
def test_what_does_not_is_one_error_that_says_what_to_write(
    instance, only, elements, wrong, instead
):
    text = only(instance(f"<Security>{''.join(elements)}</Security>"))
    assert wrong in text
    assert instead in text


def test_passwords_in_clear_text_beyond_loopback_are_warned_of(instance):
    beyond = "<Listen>0.0.0.0:8080</Listen>"
    (found,) = instance(f"{beyond}<Security>{TOKENS}{READERS}</Security>").findings
    assert (found.severity, found.element) == ("warning", "Authentication")
    encrypted = f"{beyond}<Security>{TLS.format('')}{TOKENS}{READERS}</Security>"
    assert instance(encrypted).findings == ()


@pytest.mark.parametrize(("more", "count"), [("", 1), ("<TokenFile>token</TokenFile>", 0)])
def test_a_pipeline_that_starts_by_itself_has_to_say_who_it_is(instance, more, count):
    pipeline = (
        "<Pipelines><Pipeline><Name>bars</Name><Source><Format>csv</Format><Path>in</Path></Source>"
        "<Sink><Format>csv</Format><Path>out</Path></Sink><Trigger>once</Trigger>"
        f"<Autostart>true</Autostart>{more}</Pipeline></Pipelines>"
    )
    found = instance(f"{pipeline}<Security>{TOKENS}{READERS}</Security>").findings
    assert [one.element for one in found if one.severity == "warning"] == ["Pipeline"] * count
    assert [one for one in found if one.severity == "error"] == []
