"""Deletes find their records by key fields or SowKeys, or are refused by name."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from sow.errors import ClientError
from sow.spark.deletes import KeysOfTopics, by_sow_key
from sow.spark.http import SowServer
from sow.spark.write_target import WriteTarget

pytestmark = [pytest.mark.spark, pytest.mark.edge]

OPERATIONS = pa.array(["publish", "delete", "expire", "delete", None])


def test_a_delete_without_key_fields_goes_by_its_sow_key():
    batch = pa.RecordBatch.from_pydict(
        {"id": [None, 1, None, None, 1], "leg": [{"n": 1}, {"n": 1}, {"n": 1}, None, None]}
    )

    def found(*keys):
        return [at for at, one in enumerate(by_sow_key(batch, OPERATIONS, keys)) if one.as_py()]

    assert found("/id") == [2, 3]
    assert found("/leg/n") == [3]
    assert found("/leg/other") == found("/absent") == found("/id/inside") == found() == [1, 2, 3]
    assert found("/id", "/leg/n") == [2, 3]


def test_a_sow_key_of_another_topic_is_taken_where_both_have_one_key_domain(monkeypatch):
    requested = []

    def json(_self, _method, path):
        requested.append(path)
        return {"key_domain": "shared" if path.endswith("/near") else "far"}

    monkeypatch.setattr(SowServer, "json", json)
    keys = KeysOfTopics(SowServer("played"), WriteTarget(False, topic="mine", domain="shared"))
    keys.check(pa.array(["mine", "near", None, "near"]))
    keys.check(pa.array(["near"]))
    assert requested == ["/v1/topics/near"]
    with pytest.raises(ClientError, match=r"delete of far .* the KeyDomain of far is far, that of"):
        keys.check(pa.array(["far"]))


def test_the_sow_key_of_a_topic_that_is_not_there_is_none_of_ours(server):
    keys = KeysOfTopics(SowServer(server.url), WriteTarget(False, topic="orders", domain="orders"))
    with pytest.raises(ClientError, match="the server has no topic absent"):
        keys.check(pa.array(["absent"]))
