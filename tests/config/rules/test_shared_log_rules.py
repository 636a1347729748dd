"""The rules of <Log>: what each engine needs, and what belongs to another one."""

import pytest

from sow.config.rules.shared_log_rules import ENGINES
from sow.core.definitions import LogEngine, without_secrets

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
