"""What must agree within `<Security>`: no element is without effect, or locks all out."""

import pytest

from sow.config import exposed
from sow.core.security_definitions import Allow, Authentication, Security
from tests.cases import all_cases

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


@all_cases(
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
def test_a_pipeline_that_starts_by_itself_needs_a_token(instance, more, count):
    pipeline = (
        "<Pipelines><Pipeline><Name>bars</Name><Source><Format>csv</Format><Path>in</Path></Source>"
        "<Sink><Format>csv</Format><Path>out</Path></Sink><Trigger>once</Trigger>"
        f"<Autostart>true</Autostart>{more}</Pipeline></Pipelines>"
    )
    found = instance(f"{pipeline}<Security>{TOKENS}{READERS}</Security>").findings
    assert [one.element for one in found if one.severity == "warning"] == ["Pipeline"] * count
    assert [one for one in found if one.severity == "error"] == []


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "[::1]", "localhost", "LocalHost"])
def test_loopback_is_no_exposure(instance, host):
    loaded = instance(f"<Listen>{host}:8080</Listen>")
    assert loaded.checked == loaded
    assert (loaded.exposure, exposed(host.strip("[]"), Security())) == (None, None)


def test_a_port_alone_means_loopback(instance):
    assert instance("<Listen>8080</Listen>").exposure is None
    assert instance("").exposure is None


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "192.0.2.1", "sow.example", "[2001:db8::1]"])
def test_anything_else_is_an_error_with_its_line(instance, host):
    loaded = instance(f"\n<Listen>{host}:8080</Listen>")
    assert loaded.configuration.host == host.strip("[]")
    assert loaded.errors == ()
    checked = loaded.checked
    assert checked.configuration is None
    (error,) = checked.errors
    assert (error.line, error.element) == (2, "Listen")
    assert host.strip("[]") in error.message
    assert "127.0.0.1" in error.instead
    assert "--insecure" in error.instead


def test_a_file_with_other_errors_says_those(instance):
    loaded = instance("<Listen>0.0.0.0:8080</Listen><Lisstten/>")
    assert [error.element for error in loaded.checked.errors] == ["Lisstten"]


def test_with_authentication_it_is_intended():
    assert exposed("0.0.0.0", Security(authentication=Authentication(tokens_file="t"))) is None
    assert exposed("0.0.0.0", Security()) is not None


VIEW = """<SOW><Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<View><Name>by-desk</Name><MessageType>json</MessageType><UnderlyingTopic>orders</UnderlyingTopic>
<Projection><Field>SUM(/px) AS /total/px</Field><Field>/desk</Field></Projection>
<Grouping><Field>/desk</Field></Grouping></View>
<ConflatedTopic><Name>by-desk-C</Name><UnderlyingTopic>by-desk</UnderlyingTopic>
<MessageType>json</MessageType><Interval>1s</Interval></ConflatedTopic></SOW>"""


def allowing(allow):
    return (
        "<Security><Authentication><Tokens><File>tokens</File></Tokens></Authentication>"
        f"<Role><Name>r</Name><Member>*</Member><Allow>{allow}</Allow></Role></Security>"
    )


def test_values_of_a_user_are_no_variables_of_the_file(instance):
    loaded = instance(
        allowing(
            "<Topic>orders</Topic><Read/><Write/><Filter>/desk = ${user.desk}</Filter>"
            "<Select>-/client, -/note</Select><Check>/owner = ${user.name}</Check>"
        )
    )
    assert not loaded.errors
    (role,) = loaded.configuration.security.roles
    assert role.allows == (
        Allow(
            "orders",
            read=True,
            write=True,
            filter="/desk = ${user.desk}",
            select=("-/client", "-/note"),
            check="/owner = ${user.name}",
        ),
    )


@pytest.mark.parametrize(
    ("allow", "words"),
    [
        ("<Read/><Filter>/desk = ${desk}</Filter>", "the variable desk is not defined"),
        ("<Read/><Filter>/desk = ${user.}</Filter>", "write ${user.NAME}"),
        ("<Read/><Filter>/desk = </Filter>", "the end of the filter at position 7"),
        ("<Read/><Filter>BOOKMARK() = '1'</Filter>", "compare fields"),
        ("<Read/><Select>-/a[0]</Select>", "has an index"),
        ("<Read/><Select>-/a,</Select>", "a member is empty"),
        ("<Read/><Select>+/a, +/b</Select>", "hides nothing"),
        ("<Write/><Filter>/desk = 'a'</Filter>", "in an Allow without <Read/>"),
        ("<Read/><Check>/desk = 'a'</Check>", "in an Allow without <Write/> or <Delete/>"),
    ],
)
def test_a_mistake_has_a_sentence(instance, only, allow, words):
    assert words in only(instance(allowing(f"<Topic>orders</Topic>{allow}")))


@pytest.mark.parametrize("name", ["by-desk", "by-desk-C", ".*"])
def test_a_filter_over_what_a_view_does_not_have_is_refused(instance, only, name):
    allow = f"<Topic>{name}</Topic><Read/><Filter>/owner = ${{user.name}}</Filter>"
    text = only(instance(VIEW + allowing(allow)))
    assert "refers to /owner, which rows of the view 'by-desk" in text
    assert "Allow of its own" in text


@pytest.mark.parametrize("condition", ["/desk = ${user.desk}", "/total/px > 3", "/total = 1"])
def test_one_over_what_it_has_is_not(instance, condition):
    allow = f"<Topic>by-desk.*</Topic><Read/><Filter>{condition.replace('>', '&gt;')}</Filter>"
    assert not instance(VIEW + allowing(allow)).errors
