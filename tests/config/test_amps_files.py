"""Twelve configurations as they are written for AMPS, of its elements: each loads, and whatever of
it does nothing here is named with what to write instead."""

import pytest

from sow.config import loads
from tests.cases import all_cases

TCP = (
    "<Transports><Transport><Name>any-tcp</Name><Type>tcp</Type><InetAddr>9007</InetAddr>"
    "<Protocol>amps</Protocol></Transport></Transports>"
)
ADMIN = "<Admin><InetAddr>localhost:8085</InetAddr><FileName>:memory:</FileName></Admin>"
LOGGING = "<Logging><Target><Protocol>stdout</Protocol><Level>info</Level></Target></Logging>"
LOG = (
    "<TransactionLog><JournalDirectory>./journal</JournalDirectory><PreallocatedJournalFiles>2"
    "</PreallocatedJournalFiles><FlushInterval>40ms</FlushInterval>"
    "<Topic><Name>orders</Name><MessageType>json</MessageType></Topic>{}</TransactionLog>"
)
ORDERS = (
    "<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key>"
    "<FileName>./sow/%n.sow</FileName>{}</Topic>"
)
SHELL = {"Transports", "Admin", "Logging"}
"""What stands in every file: one address, its metrics and its log replace them."""

FILES = {
    "the smallest": ("", "", set()),
    "a topic with a log": (LOG.format(""), ORDERS.format(""), {"PreallocatedJournalFiles"}),
    "tuned": (
        "<Tuning><NUMA><Enabled>off</Enabled></NUMA></Tuning><Group>desks</Group>"
        "<MessageMemoryLimit>10GB</MessageMemoryLimit>",
        ORDERS.format("<SlabSize>8MB</SlabSize><InitialSlabCount>4</InitialSlabCount>"),
        {"Tuning", "Group", "MessageMemoryLimit", "SlabSize", "InitialSlabCount"},
    ),
    "old names": (
        "<Protocols><Protocol><Name>ws</Name><Module>websocket</Module></Protocol></Protocols>",
        "<TopicDefinition><Topic>orders</Topic><MessageType>nvfix</MessageType><Key>/id</Key>"
        "<Duration>transient</Duration></TopicDefinition><ReplicaDefinition><Topic>orders-C</Topic>"
        "<MessageType>nvfix</MessageType><UnderlyingTopic>orders</UnderlyingTopic>"
        "<Interval>500ms</Interval></ReplicaDefinition>",
        {"Protocols"},
    ),
    "conflated with a filter and an index": (
        "",
        ORDERS.format("<HashIndex><Key>/symbol</Key></HashIndex>")
        + "<ConflatedTopic><Name>orders-C</Name><MessageType>json</MessageType><UnderlyingTopic>"
        "orders</UnderlyingTopic><Interval>5s</Interval><Filter>/region = 'A'</Filter><HashIndex>"
        "<Key>/status</Key></HashIndex></ConflatedTopic>",
        set(),
    ),
    "a pattern with conflated topics": (
        "",
        "<Topic><Name>books</Name><MessageType>bflat</MessageType><Key>/level</Key>"
        "<Pattern>^/books/</Pattern></Topic><ConflatedTopic><UnderlyingTopic>books"
        "</UnderlyingTopic><MessageType>bflat</MessageType><TopicFormat>%n-C</TopicFormat>"
        "<Interval>1s</Interval></ConflatedTopic>",
        {"TopicFormat"},
    ),
    "a view with a join": (
        "",
        ORDERS.format("")
        + "<Topic><Name>companies</Name><MessageType>json</MessageType><Key>/tick</Key></Topic>"
        "<View><Name>totals</Name><MessageType>json</MessageType><UnderlyingTopic><Join>"
        "[orders]./tick = [companies]./tick</Join></UnderlyingTopic><Projection><Field>"
        "[companies]./name AS /name</Field><Field>SUM([orders]./qty * [orders]./px) AS /total"
        "</Field></Projection><Grouping><Field>[orders]./tick</Field></Grouping></View>",
        set(),
    ),
    "history and fields": (
        "",
        ORDERS.format(
            "<History><Window>1w</Window><Granularity>1m</Granularity></History><Enrichment>"
            "<Field>/qty * /px AS /notional</Field></Enrichment>"
        ),
        set(),
    ),
    "a queue": (
        LOG.format("<Topic><Name>work</Name><MessageType>json</MessageType></Topic>"),
        ORDERS.format("")
        + "<Queue><Name>work</Name><MessageType>json</MessageType><UnderlyingTopic>orders"
        "</UnderlyingTopic><Semantics>at-least-once</Semantics><LeasePeriod>30s</LeasePeriod>"
        "<FairnessModel>round-robin</FairnessModel><TargetQueueDepth>2000</TargetQueueDepth>"
        "</Queue>",
        {"PreallocatedJournalFiles", "TargetQueueDepth"},
    ),
    "chained keys": (
        "<Modules><Module><Name>chain</Name><Library>libamps_id_chaining_key_generator.so"
        "</Library></Module></Modules>",
        "<Topic><Name>orders</Name><MessageType>fix</MessageType><FileName>./sow/%n.sow</FileName>"
        "<KeyGenerator><Module>chain</Module><Options><FileName>./sow/%n.chain</FileName><Primary>"
        "/11</Primary><Secondary>/41</Secondary></Options></KeyGenerator></Topic>",
        {"Modules", "FileName"},
    ),
    "actions": (
        "<Actions><Action><On><Module>amps-action-on-schedule</Module><Options><Every>Saturday at"
        " 00:30</Every>"
        "<Name>nightly</Name></Options></On><Do><Module>amps-action-do-delete-sow</Module><Options>"
        "<MessageType>json</MessageType><Topic>orders</Topic><Filter>/done = 1</Filter></Options>"
        "</Do></Action><Action><On><Module>amps-action-on-startup</Module></On><Do><Module>"
        "amps-action-do-rotate-logs</Module></Do></Action></Actions>",
        ORDERS.format("<Expiration>7d</Expiration>"),
        {"Module"},
    ),
    "message types": (
        "<MessageTypes><MessageType><Name>fix-pipe</Name><Module>fix</Module><FieldSeparator>124"
        "</FieldSeparator></MessageType><MessageType><Name>pair</Name><Module>composite-local"
        "</Module><MessageType>json</MessageType><MessageType>binary</MessageType></MessageType>"
        "</MessageTypes>",
        "<Topic><Name>fills</Name><MessageType>fix-pipe</MessageType><Key>/17</Key></Topic>"
        "<Topic><Name>pairs</Name><MessageType>pair</MessageType><Key>/0/id</Key></Topic>",
        set(),
    ),
}


def read(more, topics):
    section = "TopicMetaData" if "TopicDefinition" in topics else "SOW"
    topics = f"<{section}>{topics}</{section}>" if topics else ""
    return loads(f"<AMPSConfig><Name>amps-1</Name>{ADMIN}{TCP}{LOGGING}{more}{topics}</AMPSConfig>")


@all_cases("name", FILES)
def test_a_file_of_amps_loads_or_says_what_to_write(name):
    more, topics, named = FILES[name]
    loaded = read(more, topics)
    assert loaded.errors == (), [*map(str, loaded.errors)]
    assert {finding.element for finding in loaded.findings} == SHELL | named, name
    assert loaded.configuration.topics or not topics


REFUSED = [
    ("<Authentication><Module>kerberos</Module></Authentication>", "", "Authentication"),
    ("", ORDERS.format("<RecoveryPoint>now</RecoveryPoint>"), "RecoveryPoint"),
    ("", "<LocalQueue><Name>q</Name></LocalQueue>", "LocalQueue"),
    (
        "",
        "<Topic><Name>a</Name><MessageType>protobuf</MessageType><Key>/a</Key></Topic>",
        "MessageType",
    ),
    ("", ORDERS.format("").replace("./sow", "/var/lib/sow"), "FileName"),
    (
        "",
        "<Topic><Name>a</Name><MessageType>json</MessageType><KeyGenerator><Module>own</Module>"
        "</KeyGenerator></Topic>",
        "KeyGenerator",
    ),
]


@pytest.mark.parametrize(("more", "topics", "element"), REFUSED, ids=[one[2] for one in REFUSED])
def test_what_would_be_unsafe_to_ignore_is_an_error_that_says_what_to_write(more, topics, element):
    (error,) = read(more, topics).errors
    assert error.element == element
    assert error.instead
