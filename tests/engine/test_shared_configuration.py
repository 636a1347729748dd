"""What nodes of a shared log have in common, and how it is said in what two of them differ."""

from dataclasses import replace

import pytest

from sow.core.definitions import (
    Configuration,
    ConflatedTopic,
    JournalSettings,
    Limits,
    SharedLogSettings,
    Topic,
    with_system_topics,
)
from sow.core.security_definitions import Security, Tls
from sow.engine import shared_configuration as module
from sow.engine.shared_configuration import differences, fingerprint, packed, unpacked, with_own

ORDERS = Topic("orders", "json", keys=("/id",), line=2)
SLOW = ConflatedTopic("slow", "json", "orders", interval_us=1_000_000, line=7)
LOG = Configuration("desk", (ORDERS, SLOW))
OTHERS = replace(
    LOG,
    host="0.0.0.0",
    port=9,
    data_directory="there",
    journal=JournalSettings(directory="elsewhere"),
    security=Security(tls=Tls("mine.pem", "mine.key")),
    shared_log=SharedLogSettings("nats", node="b", advertise="http://b"),
)


def test_nodes_differ_in_name_address_and_paths_alone():
    assert fingerprint(LOG) == fingerprint(OTHERS) == fingerprint(with_system_topics(LOG))
    assert packed(LOG) == packed(OTHERS)


def test_a_node_has_what_the_log_has_and_its_own_name_address_and_paths():
    red = replace(LOG, colour="red", port=7, data_directory="here")
    lineless = tuple(replace(definition, line=0) for definition in LOG.topics)
    expected = replace(OTHERS, colour="red", topics=lineless)
    assert with_own(unpacked(packed(red)), OTHERS) == expected


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (replace(LOG, limits=Limits(frame_bytes_max=7)), "<Limits>"),
        (replace(LOG, journal=JournalSettings(retention_bytes=7)), "<TransactionLog>"),
        (replace(LOG, topics=(ORDERS,)), "conflated topic slow, which is only there"),
        (
            replace(LOG, topics=(ORDERS, SLOW, Topic("more", "json"))),
            "topic more, which is only here",
        ),
        (
            replace(LOG, topics=(replace(ORDERS, hash_indexes=(("/x",),)), SLOW)),
            "<HashIndex> of topic orders",
        ),
        (
            replace(LOG, topics=(ORDERS, replace(SLOW, interval_us=2_000_000))),
            "<Interval> of conflated topic slow",
        ),
        (replace(LOG, topics=(ORDERS, Topic("slow", "json"))), "what topic slow is"),
        (replace(LOG, topics=(SLOW, ORDERS)), "the order of topics"),
        (
            replace(LOG, topics=(*(Topic(f"t{at}", "json") for at in range(8)), ORDERS, SLOW)),
            "topic t0, which is only here, topic t1, which is only here, topic t2, which is only "
            "here, topic t3, which is only here, topic t4, which is only here, and 3 more",
        ),
    ],
)
def test_it_is_said_in_what_a_configuration_differs(other, said):
    assert fingerprint(other) != fingerprint(LOG)
    assert differences(packed(LOG), other) == said


def test_a_configuration_that_is_too_large_for_an_entry_is_known_by_its_fingerprint(monkeypatch):
    monkeypatch.setattr(module, "PACKED_MAX", 10)
    assert packed(LOG) == ""
    assert differences("", LOG) == "what is not known here, as it is too large"
    assert unpacked("no text") is None
