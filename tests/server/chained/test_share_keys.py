"""Which subscriptions are shared."""

import json

import pytest

from sow.protocol.wire import read_frame
from sow.server.chained.share_keys import records_of, share_key_of


def test_equal_commands_share_and_others_do_not():
    def key_of(**fields):
        line = json.dumps({"c": "sow_and_subscribe", "t": "orders", **fields}).encode()
        (command,) = read_frame(line)
        return share_key_of(command, is_pattern=False)

    assert key_of() == key_of(cid="1", a="completed", order_by="/x", top_n=3)
    assert key_of() != key_of(filter="/x = 1")
    assert key_of(opts="oof") != key_of(opts="timestamp")
    own = ["live", "replace", "no_sowkey", "conflation=1s", "skip_n=1", "last=2"]
    assert [key_of(opts=one) for one in own] == [None] * len(own)
    assert key_of(opts="oof", top_n=3) is key_of(keys="1") is key_of(k="1") is None


@pytest.mark.parametrize(
    "described",
    [{"kind": "pattern"}, {"series": {}}, {"message_type": "fix"}, {"kind": "queue"}],
)
def test_what_cannot_be_folded_here_is_not_shared(described):
    json_topic = {"name": "orders", "kind": "topic", "message_type": "json"}
    queue = {"conflation_policy": "off", "match": ["/x"], "merges": []}
    assert records_of({**json_topic, "queue": queue}).folding.policy == "off"
    assert records_of({**json_topic, **described}) is None
