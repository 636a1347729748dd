"""Which subscriptions are shared."""

import json

import pytest

from sow.core.definitions import MessageTypeOptions
from sow.protocol.wire import read_frame
from sow.server.chained.share_keys import records_of, share_key_of


def shared(**fields):
    line = json.dumps({"c": "sow_and_subscribe", "t": "orders", **fields}).encode()
    (command,) = read_frame(line)
    return share_key_of(command, is_pattern=False)


def test_equal_commands_share_and_others_do_not():
    assert shared() == shared(cid="1", a="completed", order_by="/x", top_n=3)
    assert shared()[0] != shared(filter="/x = 1")[0]
    assert shared(opts="oof")[0] != shared(opts="timestamp")[0]
    own = ["live", "skip_n=1", "last=2", "top_n=3,conflation=1s", "top_n=2,live,as_of=0"]
    assert [shared(opts=one) for one in own] == [None] * len(own)
    assert shared(opts="oof", top_n=3) is shared(keys="1") is shared(k="1") is None


def test_what_is_done_here_makes_no_difference_upstream():
    assert shared(opts="no_sowkey")[0] == shared()[0]
    assert shared(opts="conflation=1s")[0] == shared(opts="conflation=auto,no_sowkey")[0]
    assert shared(opts="conflation=1s")[1] != shared(opts="conflation=2s")[1]
    window = "top_n=5,live"
    assert shared(opts=window)[0] == shared(opts="top_n=5,skip_n=0,positions,conflation=1s")[0]
    assert shared(opts=window)[0] != shared(opts="top_n=5,skip_n=1")[0]
    # What comes and goes within a window has to be known.
    assert shared(opts="conflation=1s")[0].oof


@pytest.mark.parametrize("described", [{"kind": "pattern"}, {"series": {}}, {"kind": "queue"}])
def test_what_has_other_rules_is_not_shared(described):
    json_topic = {"name": "orders", "kind": "topic", "message_type": "json"}
    queue = {"conflation_policy": "off", "match": ["/x"], "merges": []}
    assert records_of({**json_topic, "queue": queue}, {}).folding.policy == "off"
    assert records_of({**json_topic, **described}, {}) is None


def test_messages_of_a_configured_type_are_read_as_upstream_reads_them():
    pipes = {"pipes": MessageTypeOptions("pipes", "nvfix", b"|")}
    found = records_of({"name": "x", "kind": "topic", "message_type": "pipes"}, pipes)
    assert found.renderer.document(b"a=1|b=2|") == {"a": "1", "b": "2"}
