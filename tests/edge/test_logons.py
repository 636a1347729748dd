"""Who logs on by what: passwords, tokens, signed tokens and certificates, through the command line,
the clients and Spark's requests, beside a server that encrypts.
"""

import asyncio
import json
import ssl
import time

import bcrypt
import orjson
import pytest
from click.testing import CliRunner

from sow.cli import main
from sow.client import Client
from sow.errors import NotEntitled, SowError, Unauthenticated, UnknownTopic
from sow.security.authentication.authenticator import Logons
from sow.security.authentication.tokens import sum_of
from sow.spark.http import SowServer, TokenSource
from sow.spark.http import certificates as certificates_of
from tests.edge.certificates import authority, certificates
from tests.edge.serving import Running, configuration
from tests.security.authentication.signing import JWT, key, key_set, token

TOPICS = """
<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>hidden</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
"""
ROLES = """
<Role><Name>desk</Name><Member>group:desk</Member>
  <Allow><Topic>orders</Topic><Read/><Write/></Allow></Role>
<Role><Name>watch</Name><Member>*</Member><Allow><Topic>orders</Topic><Read/></Allow></Role>
"""


def security(files, place):
    return f"""<Security><TLS><Certificate>{files.certificate}</Certificate>
<PrivateKey>{files.key}</PrivateKey><ClientCA>{place}/clients.pem</ClientCA></TLS>
<Authentication><Users><File>{place}/users.htpasswd</File></Users>
<Tokens><File>{place}/tokens</File></Tokens>
<JWT><Issuer>{JWT.issuer}</Issuer><Audience>{JWT.audience}</Audience>
<Keys>{place}/keys.json</Keys></JWT><ClientCertificates/></Authentication>{ROLES}</Security>"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    found = tmp_path_factory.mktemp("users")
    kept = bcrypt.hashpw(b"s3cret", bcrypt.gensalt(4)).decode()
    (found / "users.htpasswd").write_text(f"ann:{kept}\nben:{kept}\n")
    (found / "users.groups").write_text("desk: ann\n")
    (found / "tokens").write_text(f"feed {sum_of('t0ken')} desk\n")
    (found / "keys.json").write_bytes(orjson.dumps(key_set(key())))
    authority("clients").cert_pem.write_to_path(str(found / "clients.pem"))
    shown = authority("clients").issue_cert(
        common_name="carl", organization_name="bank", organization_unit_name="desk"
    )
    shown.private_key_and_cert_chain_pem.write_to_path(str(found / "carl.pem"))
    return found


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def server(tmp_path_factory, files, place):
    made = configuration(TOPICS, security(files, place))
    # Here many are refused, who would have to wait.
    running = Running(made, tmp_path_factory.mktemp("data"), logons=Logons())
    yield running
    assert running.errors == []
    running.close()


def signed(**claims):
    return token({"iss": JWT.issuer, "aud": "sow", "sub": "dan", "exp": time.time() + 60} | claims)


WAYS = {
    "password": {"user": "ann", "password": "s3cret"},
    "token": {"token": "t0ken"},
    "signed token": {"token": lambda: signed(groups=["desk"])},
    "certificate": {"certificate": "carl.pem"},
}


def shown_by(way, place):
    shown = dict(WAYS[way])
    if "certificate" in shown:
        shown["certificate"] = str(place / shown["certificate"])
    return shown


@pytest.mark.parametrize("way", WAYS)
def test_each_way_lets_in_and_is_held_to_its_role(server, files, place, way):
    async def work():
        async with Client(server.url, ca=files.ca, **shown_by(way, place)) as client:
            await client.publish("orders", {"id": way})
            async with client.live("orders", filter=f"/id = '{way}'") as live:
                assert len(live) == 1
            for refused in (client.publish("hidden", {"id": 1}), client.query("hidden")):
                with pytest.raises(UnknownTopic):
                    await refused
            with pytest.raises(NotEntitled):
                await client.delete("orders", filter="1=1")

    server.wait(work())


@pytest.mark.parametrize(
    "shown",
    [
        {},
        {"user": "ann", "password": "S3cret"},
        {"user": "nobody", "password": "s3cret"},
        {"token": "t0kens"},
        {"token": lambda: signed(exp=1)},
    ],
    ids=["nothing", "another password", "another user", "another token", "an expired token"],
)
def test_nobody_gets_nothing_by_http_or_websocket(server, files, shown):
    async def work():
        async with Client(server.url, ca=files.ca, **shown) as client:
            with pytest.raises(Unauthenticated) as by_http:
                await client.query("orders")
            with pytest.raises(SowError) as by_socket:
                await client.publish("orders", {"id": 1})
            assert by_socket.value.reason == Unauthenticated.reason
            return f"{by_http.value}{by_socket.value}"

    said = server.wait(work())
    for secret in ("s3cret", "S3cret", "t0kens"):
        assert secret not in said


def test_a_page_from_elsewhere_does_nothing_by_the_certificate_that_a_browser_shows(
    server, files, place
):
    """Browsers show it by themselves, whichever page asks."""
    context = ssl.create_default_context(cafile=files.ca)
    context.load_cert_chain(place / "carl.pem")
    foreign = {"Origin": "https://evil.example"}

    def requested(method, path, **more):
        headers = {"Content-Type": "text/plain", **more}
        answer = server.request(method, path, data=b'{"id":"page"}', headers=headers, ssl=context)
        return answer.status

    path = "/v1/topics/orders/records"
    assert requested("POST", path) == 200
    assert [requested("POST", path, **foreign), requested("POST", path, Origin="null")] == [
        403,
        403,
    ]
    assert requested("GET", path, **{"Sec-Fetch-Site": "cross-site"}) == 403
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert requested("GET", "/v1/ws", **foreign, **upgrade) == 403


def test_commands_need_no_more_than_their_users_may(server, files):
    def run(*words, typed=None, **environment):
        words = (*words, "--url", server.url, "--ca", files.ca)
        return CliRunner().invoke(main, words, input=typed, env=environment)

    published = run("publish", "orders", typed='{"id":"cli"}\n', SOW_TOKEN="t0ken")
    assert published.exit_code == 0, published.stderr
    requested = ("query", "orders", "--filter", "/id = 'cli'", "--format", "ndjson")
    found = run(*requested, "--user", "ben", SOW_PASSWORD="s3cret")
    assert json.loads(found.stdout) == {"id": "cli"}
    refused = run(*requested)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "log on first" in refused.stderr


def test_what_is_copied_and_loaded_is_what_a_certificates_holder_may(
    server, files, place, tmp_path
):
    def run(*words, **environment):
        words = (*words, "--url", server.url, "--ca", files.ca)
        return CliRunner().invoke(main, words, env=environment)

    carl = {"SOW_CERTIFICATE": str(place / "carl.pem")}
    (tmp_path / "a.ndjson").write_text('{"id":"loaded"}\n')
    loaded = run("load", "orders", str(tmp_path / "a.ndjson"), **carl)
    assert (loaded.exit_code, loaded.stderr) == (0, "")
    dumped = run("dump", "orders", str(tmp_path / "b.ndjson"), "--filter", "/id = 'loaded'", **carl)
    assert (dumped.exit_code, (tmp_path / "b.ndjson").read_text()) == (0, '{"id":"loaded"}\n')
    # Who has shown nothing, and who may not, leaves nothing behind.
    kept = sorted(tmp_path.iterdir())
    for words, environment, said in (
        (("dump", "orders", str(tmp_path / "c.ndjson")), {}, "log on first"),
        (("load", "orders", str(tmp_path / "a.ndjson")), {}, "log on first"),
        (("backup", str(tmp_path / "c")), {}, "log on first"),
        (("backup", str(tmp_path / "c")), carl, "Admin"),
    ):
        refused = run(*words, **environment)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert refused.stderr.startswith("sow: ")
        assert said in refused.stderr
        assert sorted(tmp_path.iterdir()) == kept


def test_sparks_workers_show_the_token(server, files):
    ca = certificates_of(files.ca)
    found = SowServer(server.url, TokenSource("t0ken"), ca=ca).json("GET", "/v1/topics")
    assert [topic["name"] for topic in found] == ["orders"]
    with pytest.raises(SowError, match="log on first"):
        SowServer(server.url, ca=ca, retry_s=0).json("GET", "/v1/topics")
    with pytest.raises(SowError, match=r"is not trusted: .* the option ca, or SOW_CA"):
        SowServer(server.url, TokenSource("t0ken")).json("GET", "/v1/topics")


def test_a_certificate_of_another_authority_opens_nothing(server, files, tmp_path):
    stranger = authority("strangers").issue_cert(common_name="carl")
    stranger.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "stranger.pem"))

    async def work():
        shown = str(tmp_path / "stranger.pem")
        async with Client(server.url, ca=files.ca, certificate=shown) as client:
            with pytest.raises(SowError):
                await client.query("orders")

    asyncio.run(work())
