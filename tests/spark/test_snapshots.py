"""Snapshots are taken, and read in parts; a server is needed here, and no Java."""

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from sow.spark import snapshots
from sow.spark.columns import ROW
from sow.spark.http import ServerRefusal, SowServer
from sow.spark.snapshots import Wanted, take
from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS

pytestmark = [pytest.mark.spark, pytest.mark.edge]


def values(server, parts):
    batches = [batch for part in parts for batch in part.read(SowServer(server.url))]
    return sorted(pa.Table.from_batches(batches, ROW)["value"].to_pylist())


def test_the_parts_of_a_snapshot_are_all_of_its_rows_once(server):
    server.publish("orders", *({"id": n} for n in range(9)))
    (taken,) = take(SowServer(server.url), Wanted("orders", "/id > 4", parts=3))
    assert len(taken.parts) == 3
    assert values(server, taken.parts) == [f'{{"id": {n}}}' for n in range(5, 9)]


def test_a_snapshot_that_the_server_has_let_go_is_taken_again_as_it_was(server):
    server.publish("orders", {"id": 1})
    (taken,) = take(SowServer(server.url), Wanted("orders"))
    server.publish("orders", {"id": 1, "later": True}, {"id": 2})
    server.request("DELETE", f"/v1/snapshots/{taken.name}")
    assert values(server, taken.parts) == ['{"id": 1}']


def test_a_snapshot_is_not_taken_again_of_another_log(server, tmp_path):
    server.publish("orders", {"id": 1})
    (taken,) = take(SowServer(server.url), Wanted("orders"))
    other = Running(configuration(TOPICS, MESSAGE_TYPES), tmp_path)
    try:
        other.publish("orders", *({"id": n} for n in range(taken.number + 1)))
        with pytest.raises(ServerRefusal, match="is of the log"):
            values(other, taken.parts)
    finally:
        other.close()


def test_a_pattern_is_a_snapshot_for_each_of_its_topics_of_one_moment(server):
    for name in ("one", "two", "three"):
        server.publish(f"/desk/{name}", {"id": name})
    found = take(SowServer(server.url), Wanted("desks"))
    assert {"/desk/one", "/desk/two", "/desk/three"} <= {one.requested["topic"] for one in found}
    assert len({one.bookmark for one in found}) == 1


def test_a_pattern_of_too_many_topics_is_not_read_at_once(server, monkeypatch):
    server.publish("/desk/a", {"id": 1})
    monkeypatch.setattr(snapshots, "MEMBERS_MAX", 0)
    with pytest.raises(Exception, match="read its log, with startingBookmark"):
        take(SowServer(server.url), Wanted("desks"))


def test_a_topic_that_is_not_there_is_refused(server):
    with pytest.raises(ServerRefusal, match="nothing"):
        take(SowServer(server.url), Wanted("nothing"))
