"""`<Security>`: names, origins and proxies are read into one spelling; the rest is refused."""

import pytest

from sow.config import loads
from sow.core.security_definitions import Jwt, Security, Tls
from tests.cases import all_cases


def security(*elements):
    return f"<Security>{''.join(elements)}</Security>"


def test_without_the_element_nothing_more_is_let_in(instance):
    assert instance("").configuration.security == Security()
    assert instance("<Security/>").configuration.security == Security()


def test_each_list_may_be_given_several_times_and_with_commas(instance):
    loaded = instance(
        security(
            "<AllowedHosts>Sow.Example, sow-2.example.</AllowedHosts>",
            "<AllowedHosts>sow</AllowedHosts>",
            "<AllowedOrigins>HTTPS://Desk.Example:443, http://tools.example:8000/</AllowedOrigins>",
            "<TrustedProxies>192.0.2.10,10.0.0.0/8</TrustedProxies>",
            "<TrustedProxies>::1</TrustedProxies>",
        )
    )
    assert loaded.findings == ()
    assert loaded.configuration.security == Security(
        allowed_hosts=("sow.example", "sow-2.example", "sow"),
        allowed_origins=("https://desk.example", "http://tools.example:8000"),
        trusted_proxies=("192.0.2.10/32", "10.0.0.0/8", "::1/128"),
    )


@all_cases(
    ("element", "value", "wrong", "instead"),
    [
        ("AllowedHosts", "192.0.2.1", "addresses are always allowed", "remove it"),
        ("AllowedHosts", "[::1]", "addresses are always allowed", "remove it"),
        ("AllowedHosts", "sow.example:8080", "has a port", "write sow.example"),
        ("AllowedHosts", "*.example", "not the name of a host", "in full"),
        ("AllowedHosts", "*", "not the name of a host", "in full"),
        ("AllowedHosts", "http://sow.example", "not the name of a host", "such as sow.example"),
        ("AllowedHosts", "a,,b", "not the name of a host", "such as sow.example"),
        ("AllowedOrigins", "null", "by any author", "https://desk.example"),
        ("AllowedOrigins", "*", "is not an origin", "https://desk.example"),
        ("AllowedOrigins", "desk.example", "is not an origin", "scheme, host and port"),
        ("AllowedOrigins", "https://desk.example/page", "is not an origin", "nothing else"),
        ("AllowedOrigins", "https://a.example https://b.example", "is not an origin", "write"),
        ("TrustedProxies", "proxy.example", "is no IP address", "such as 192.0.2.10"),
        ("TrustedProxies", "10.0.0.1/8", "has bits outside its network", "10.0.0.0/8"),
    ],
)
def test_what_would_never_match_is_an_error_that_says_what_to_write(
    instance, only, element, value, wrong, instead
):
    text = only(instance(security(f"<{element}>{value}</{element}>")))
    assert wrong in text
    assert instead in text


def test_users_and_roles_are_read(instance):
    loaded = instance(
        security(
            "<Authentication><Users><File>u</File></Users><Tokens><File>/t</File></Tokens><JWT>"
            "<Issuer>i</Issuer><Audience>a</Audience><Keys>https://i/keys</Keys><User>email</User>"
            "</JWT></Authentication>",
            "<Role><Name>desk</Name><Member>group:desk</Member><Member>*</Member>",
            "<Allow><Topic>orders</Topic><Read/><Filter>/desk = ${user.desk}</Filter>"
            "<Select>-/client</Select></Allow><Allow><Admin/></Allow></Role>",
        )
    )
    assert loaded.findings == ()
    read = loaded.configuration.security
    assert (read.authentication.users_file, read.authentication.tokens_file) == ("u", "/t")
    assert read.authentication.jwt == Jwt("i", "a", "https://i/keys", "email")
    (role,) = read.roles
    assert role.members == ("group:desk", "*")
    assert [one.verbs for one in role.allows] == [("read",), ("admin",)]
    assert role.allows[0].filter == "/desk = ${user.desk}"
    assert role.allows[0].select == ("-/client",)


def test_the_files_of_tls_stand_beside_the_configuration():
    xml = security("<TLS><Certificate>a.pem</Certificate><PrivateKey>/b.pem</PrivateKey></TLS>")
    loaded = loads(f"<SOWConfig><Name>x</Name>{xml}</SOWConfig>", "conf/config.xml")
    assert loaded.configuration.security.tls == Tls("conf/a.pem", "/b.pem")
    assert loaded.configuration.url == "https://127.0.0.1:8080"


def test_tls_needs_both_files(instance, only):
    lone = "<TLS><Certificate>a.pem</Certificate></TLS>"
    assert "has no PrivateKey" in only(instance(security(lone)))


@pytest.mark.parametrize("name", ["Authentication", "Entitlement"])
@pytest.mark.parametrize(
    "place", ["{}", "<Transports><Transport>{}</Transport></Transports>", "<Admin>{}</Admin>"]
)
def test_access_as_amps_says_it_is_an_error_wherever_it_stands(instance, name, place):
    element = f"<{name}><Module>ldap</Module></{name}>"
    loaded = instance(place.format(element))
    (error,) = loaded.errors
    assert loaded.configuration is None
    assert error.element == name
    assert "<Security><Authentication>" in error.instead


def test_a_list_outside_security_is_sent_where_it_belongs(instance, only):
    assert "AMPSConfig/Security" in only(instance("<AllowedHosts>a</AllowedHosts>"))
