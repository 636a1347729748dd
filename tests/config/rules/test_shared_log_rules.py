"""The rules of <Log>: what each engine needs, and what belongs to another one."""

import asyncio

import pytest

from sow.config.rules.shared_log_rules import ENGINES
from sow.core.definitions import LogEngine, without_secrets
from sow.server.boot.log_member import open_log

PLACES = {
    "nats": "<Servers>nats://a:4222,nats://b:4222,nats://c:4222</Servers>",
    "postgres": "<Dsn>postgres://sow@a,b/sow</Dsn>",
    "kafka": "<Servers>a:9092,kafka://b:9092</Servers>",
    "s3": "<Url>s3://bucket/name?region=here</Url>",
}


def log(engine, more="", place=None, node="<Node>a</Node>"):
    place = PLACES[engine] if place is None else place
    return f"<Log><Engine>{engine}</Engine>\n{place}\n{node}\n{more}</Log>"


def test_each_engine_has_its_rules():
    assert {"local", *ENGINES} == set(LogEngine.__args__)


@pytest.mark.parametrize("engine", PLACES)
def test_each_engine_needs_its_place_and_a_node(instance, only, engine):
    loaded = instance(log(engine))
    assert not loaded.findings
    assert loaded.configuration.shared_log.engine == engine
    needed = f"{ENGINES[engine].place}: is missing: the engine {engine} needs it"
    assert needed in only(instance(log(engine, place="")))
    assert "Node: is missing" in only(instance(log(engine, node="")))


def test_what_is_of_another_engine_has_no_effect_and_is_said(instance, only):
    said = only(instance(log("kafka", "<Stream>sow</Stream>")))
    assert "Stream: belongs to the engine nats and has no effect with kafka; remove it" in said
    said = only(instance(log("nats", PLACES["s3"])))
    assert "Url: belongs to the engine s3 and has no effect with nats" in said
    said = only(instance(log("postgres", "<Topic>sow</Topic>")))
    assert "Topic: belongs to the engine kafka" in said
    said = only(instance(log("s3", PLACES["nats"])))
    assert "Servers: belongs to the engine nats or kafka and has no effect with s3" in said


def test_an_engine_that_was_forgotten_is_said(instance, only):
    text = only(instance(f"<Log>{PLACES['nats']}</Log>"))
    assert "Engine: is missing, so <Servers> has no effect and the log is on this machine" in text
    assert not instance(log("local", place=PLACES["nats"])).findings


@pytest.mark.parametrize(
    ("engine", "place"),
    [
        ("nats", "<Servers>http://a:4222</Servers>"),
        ("nats", "<Servers>a:4222</Servers>"),
        ("kafka", "<Servers>nats://a:4222</Servers>"),
        ("postgres", "<Dsn>host=a password=secret</Dsn>"),
        ("postgres", "<Dsn>mysql://sow:secret@a/sow</Dsn>"),
        ("s3", "<Url>http://secret:secret@bucket/name</Url>"),
        ("s3", "<Url>bucket</Url>"),
        ("s3", "<Url>s3://</Url>"),
    ],
)
def test_an_address_of_another_kind_is_refused_without_its_secrets(instance, only, engine, place):
    text = only(instance(log(engine, place=place)))
    assert f"write it as {ENGINES[engine].example}" in text
    assert "secret" not in text


def test_kafka_has_names_of_its_own(instance, only):
    for name in ("a b", ".."):
        said = only(instance(log("kafka", f"<Topic>{name}</Topic>")))
        assert "cannot be a topic of Kafka" in said
    assert "is not an address" in only(instance(log("kafka", place="<Servers>here</Servers>")))


@pytest.mark.parametrize("name", ["a b", "a.b", "*", "a.&gt;", "a/b"])
def test_nats_has_names_of_its_own(instance, only, name):
    said = only(instance(log("nats", f"<Stream>{name}</Stream>")))
    assert "Stream: " in said
    assert "cannot be a stream of NATS" in said


@pytest.mark.parametrize(
    ("engine", "place"),
    [
        ("nats", "<Servers>nats://u:secret@a:99999</Servers>"),
        ("nats", "<Servers>nats://u:secret@a:x</Servers>"),
        ("kafka", "<Servers>a:99999</Servers>"),
    ],
)
def test_a_port_that_is_none_is_refused_without_secrets(instance, only, engine, place):
    said = only(instance(log(engine, place=place)))
    assert "Servers: an address has a port that is none; write one from 1 to 65535" in said
    assert "secret" not in said


KEYS = ("access_key_id=a", "secret_access_key=a%2Bb+/c")
HOSTILE = {
    "nats": (
        *("nats://u:secret@", "nats://:4222", "nats://a:0", "nats://a:", "nats://[::1:4222"),
        *("nats://[fe80::g]:1", "nats://u:a secret@a:1", "nats://u:@secret@a:1", "nats://a:-1"),
        *("nats://a:4222?tls", "nats://a:4222/secret", "nats://a%00b:1", "nats://1.2.3.4.5:1"),
        *("nats://a:1,", ","),
    ),
    "postgres": (
        *("postgres://u:secret@a:x/db", "postgres://u:secret@a:99999/db", "postgres://a,/db"),
        *("postgres://u:secret@/db?port=x", "postgres:///db?host=a,b,c&amp;port=1,2"),
        *("postgres://u:p#secret@a/db", "postgres://u:p@secret@a/db", "postgres://[::1/db"),
        *("postgres://a/db?secret", "postgres://:5432/db", "postgres://a:/db", "postgres://a b/db"),
        *("postgres://a:5432:5433/db", "postgres://a%3Ab/db", "postgres://a%zz/db"),
    ),
    "kafka": ("a:x", "a:", ":9092", "kafka://", "kafka://u:secret@a:1", "kafka://a:1/b", "[::1:1"),
    "s3": (
        *("s3://bucket:x/name", "s3://u:secret@bucket/name", "s3://b%20b/name", "s3:///name"),
        *("s3://bucket/name?endpoint=here", "s3://bucket/name?endpoint=http://h:x", "s3://[/x"),
        *("s3://bucket/name?secret", "s3://bucket/name?endpoint=http://:9000", "s3://bucket/#a"),
    ),
}


@pytest.mark.parametrize(
    ("engine", "address"), [(engine, one) for engine, each in HOSTILE.items() for one in each]
)
def test_an_address_that_nobody_can_call_is_a_sentence_without_secrets(instance, engine, address):
    element = ENGINES[engine].place
    loaded = instance(log(engine, place=f"<{element}>{address}</{element}>"))
    said = [str(one) for one in loaded.findings]
    assert loaded.configuration is None
    assert any(f": {element}: " in one for one in said)
    assert not any("secret" in one or len(one) > 500 for one in said)


@pytest.mark.parametrize("engine", HOSTILE)
@pytest.mark.parametrize("more", ["/%" * 1_000_000, ",a:1" * 9999], ids=["long", "many"])
def test_an_address_of_megabytes_is_a_sentence(instance, engine, more):
    element = ENGINES[engine].place
    place = f"<{element}>{ENGINES[engine].example}{more}</{element}>"
    for found in (said := [str(one) for one in instance(log(engine, place=place)).findings]):
        assert f": {element}: " in found
        assert len(found) < 500
    assert said


@pytest.mark.parametrize(
    ("engine", "address"),
    [
        ("nats", "tls://u:p%40%3A%2F@[::1]:4222/"),
        ("nats", "wss://nats.example.:443/path"),
        ("postgres", "postgres://u:p%40@a,[::1]:5433,10.0.0.1/db?sslmode=require"),
        ("postgres", "postgres:///db?host=/run/postgresql,b&amp;port=5432,5433"),
        ("postgres", "postgres://u@%2Frun%2Fpostgresql/db"),
        ("postgres", "postgresql:///db"),
        ("kafka", "[::1]:9092,a_b:1"),
        ("s3", f"s3://bucket.a/name/?endpoint=http://[::1]:9000&amp;{'&amp;'.join(KEYS)}"),
    ],
)
def test_an_address_of_any_form_that_its_engine_takes_is_taken(instance, engine, address):
    element = ENGINES[engine].place
    loaded = instance(log(engine, place=f"<{element}>{address}</{element}>"))
    assert not loaded.findings
    asyncio.run(opened(loaded.configuration.shared_log))


async def opened(settings):
    await open_log(settings).close()


def test_a_server_counts_once(instance, only):
    twice = "<Servers>nats://a:1,nats://b:1,nats://a:1</Servers>"
    assert "Servers: has an address twice" in only(instance(log("nats", place=twice)))


@pytest.mark.parametrize(
    ("address", "says"),
    [("ftp://a", "an address of ftp is none"), ("http://u:secret@a:1", "has a user in it")],
)
def test_an_address_that_others_are_told_is_one_and_has_no_secrets(instance, only, address, says):
    said = only(instance(log("nats", f"<Advertise>{address}</Advertise>")))
    assert f"Advertise: {says}" in said
    assert "secret" not in said


def test_each_server_of_nats_has_a_monitor(instance, only):
    one = "<Monitor>http://a:8222</Monitor>"
    assert "Monitor: has 1 addresses, and Servers has 3" in only(instance(log("nats", one)))
    other = "<Monitor>a://a:1,http://b:1,http://c:1</Monitor>"
    assert "write it as http://10.0.0.1:8222" in only(instance(log("nats", other)))
    assert not instance(log("nats", other.replace("a://", "http://"))).findings


def test_copies_that_do_not_survive_a_machine_are_unsafe(instance, only):
    fewer = "<Replicas>1</Replicas>"
    assert "Replicas: is 1 of 3: a machine that dies" in only(instance(log("nats", fewer)))
    assert not instance(log("nats", f"{fewer}<Unsafe>true</Unsafe>")).findings
    assert not instance(log("nats", fewer, "<Servers>nats://a:1,nats://b:1</Servers>")).findings
    more = only(instance(log("nats", "<Replicas>4</Replicas>")))
    assert "Replicas: is 4, and Servers names 3" in more


def test_a_transient_topic_is_in_a_shared_log_as_every_other(instance, only):
    topic = (
        "<SOW><Topic><Name>a</Name><MessageType>json</MessageType><Key>/id</Key>"
        "<Durability>transient</Durability></Topic></SOW>"
    )
    loaded = instance(log("nats") + topic)
    assert "Durability: has no effect: a shared log has every topic" in only(loaded)
    (found,) = loaded.configuration.topics
    assert (found.durability, bool(found.file_name)) == ("persistent", True)
    (alone,) = instance(topic).configuration.topics
    assert (alone.durability, alone.file_name) == ("transient", None)


def test_secrets_of_a_place_are_not_published(instance):
    for engine in ("postgres", "s3"):
        shared = without_secrets(instance(log(engine)).configuration).shared_log
        assert (shared.dsn, shared.url) == ("", "")
