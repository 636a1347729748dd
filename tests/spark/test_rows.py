"""Ranges of the log continue, losses are reported, and snapshots are read in parts."""

import re
import shutil
from functools import partial

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from sow.errors import ClientError
from sow.spark import rows as module
from sow.spark.columns import ROW
from sow.spark.http import Reply, ServerRefusal, SowServer
from sow.spark.rows import (
    DataLoss,
    Wanted,
    extent,
    last_of_each_key,
    oldest_to_go_on_from,
    part_of_snapshot,
    range_of_log,
    take,
)
from tests.edge.serving import Running, configuration
from tests.edge.topics import MESSAGE_TYPES, TOPICS
from tests.spark.proxy import Cut, Proxy


def row(bookmark, key="k", topic="t"):
    return {"bookmark": bookmark, "topic": topic, "key": key, "op": "publish", "value": "{}"}


def batch(*rows):
    return pa.RecordBatch.from_pylist([{"ts": None, **one} for one in rows], ROW)


def stream(*rows):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROW) as writer:
        writer.write_batch(batch(*rows))
    return sink.getvalue().to_pybytes()


class Server:
    """A log from `oldest` to `newest`; an answer has at most `limit` rows."""

    url = "http://played"

    def __init__(self, oldest, newest, limit=2):
        self.oldest, self.newest, self.limit, self.requested = oldest, newest, limit, []

    def arrow(self, path, **requested):
        self.requested.append(path)
        if path.startswith("/v1/snapshots"):
            return Reply(stream(row(requested["part"])), "")
        after, until = int(requested["from"]), min(int(requested["to"]), self.newest)
        if after and not self.oldest <= after <= self.newest:
            raise ServerRefusal("gone", {"reason": "invalid bookmark"})
        rows = [row(n) for n in range(max(after, self.oldest) + 1, until + 1)][: self.limit]
        return Reply(stream(*rows), str(rows[-1]["bookmark"] if rows else until))

    def json(self, method, path, **requested):
        return {"oldest": str(self.oldest), "newest": str(self.newest)}


def bookmarks(batches):
    return [number for one in batches for number in one.column("bookmark").to_pylist()]


def test_a_range_is_read_request_by_request():
    server = Server(0, 9)
    assert bookmarks(range_of_log(server, "t", 2, 7, None)) == [3, 4, 5, 6, 7]
    assert len(server.requested) == 3
    assert bookmarks(range_of_log(server, "t", 7, 7, None)) == []


def test_what_retention_has_removed_is_sent_or_passed_over():
    with pytest.raises(DataLoss, match="after bookmark 2 up to 5 are no longer kept"):
        list(range_of_log(Server(5, 9), "t", 2, 7, None))
    assert bookmarks(range_of_log(Server(5, 9), "t", 2, 7, None, False)) == [6, 7]


def test_another_log_is_sent_from_the_one_that_was_read():
    with pytest.raises(DataLoss, match="was cut off, or is another one"):
        list(range_of_log(Server(0, 3), "t", 5, 7, None))


@pytest.mark.parametrize(("after", "begin"), [(5, 5), (9, 9), (2, 5), (12, 9)])
def test_where_it_goes_on_without_what_is_lost(after, begin):
    here = {"oldest": 5, "newest": 9}
    assert oldest_to_go_on_from("u", here, "t", after, fail_on_data_loss=False) == begin
    if after != begin:
        with pytest.raises(DataLoss):
            oldest_to_go_on_from("u", here, "t", after, fail_on_data_loss=True)


def test_any_other_refusal_is_the_callers():
    class Refusing(Server):
        def arrow(self, path, **requested):
            raise ServerRefusal("no", {"reason": "bad filter"})

    with pytest.raises(ClientError) as caught:
        list(range_of_log(Refusing(0, 9), "t", 2, 7, "/x ="))
    assert caught.value.reason == "bad filter"


def test_a_part_of_a_snapshot_is_requested_for_by_its_number():
    assert bookmarks(part_of_snapshot(Server(0, 9), "s", 3)) == [3]


def test_of_each_key_the_last_row_stays_in_order():
    rows = [row(1, "a"), row(2, "b"), row(3, "a"), row(4, "c")]
    assert bookmarks(last_of_each_key(iter([batch(*rows[:2]), batch(*rows[2:])]))) == [2, 3, 4]
    assert bookmarks(last_of_each_key(iter([]))) == []


def test_equal_keys_of_two_topics_are_two_records():
    rows = [row(1, "a"), row(2, "a", "u"), row(3, "b", "u"), row(4, "a", "u")]
    assert bookmarks(last_of_each_key(iter([batch(*rows)]))) == [1, 3, 4]


def values(server, parts):
    batches = [batch for part in parts for batch in part.read(SowServer(server.url))]
    return sorted(pa.Table.from_batches(batches, ROW)["value"].to_pylist())


@pytest.mark.spark
@pytest.mark.edge
def test_the_parts_of_a_snapshot_are_all_of_its_rows_once(server):
    server.publish("orders", *({"id": n} for n in range(9)))
    (taken,) = take(SowServer(server.url), Wanted("orders", "/id > 4", parts=3))
    assert len(taken.parts) == 3
    assert values(server, taken.parts) == [f'{{"id": {n}}}' for n in range(5, 9)]


@pytest.mark.spark
@pytest.mark.edge
def test_a_snapshot_that_the_server_has_let_go_is_taken_again_as_it_was(server):
    server.publish("orders", {"id": 1})
    (taken,) = take(SowServer(server.url), Wanted("orders"))
    server.publish("orders", {"id": 1, "later": True}, {"id": 2})
    server.request("DELETE", f"/v1/snapshots/{taken.name}")
    assert values(server, taken.parts) == ['{"id": 1}']


@pytest.mark.spark
@pytest.mark.edge
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


@pytest.mark.spark
@pytest.mark.edge
def test_a_pattern_is_a_snapshot_for_each_of_its_topics_of_one_moment(server):
    for name in ("one", "two", "three"):
        server.publish(f"/desk/{name}", {"id": name})
    found = take(SowServer(server.url), Wanted("desks"))
    assert {"/desk/one", "/desk/two", "/desk/three"} <= {one.requested["topic"] for one in found}
    assert len({one.bookmark for one in found}) == 1


@pytest.mark.spark
@pytest.mark.edge
def test_a_pattern_of_too_many_topics_is_not_read_at_once(server, monkeypatch):
    server.publish("/desk/a", {"id": 1})
    monkeypatch.setattr(module, "MEMBERS_MAX", 0)
    with pytest.raises(Exception, match="read its log, with startingBookmark"):
        take(SowServer(server.url), Wanted("desks"))


@pytest.mark.spark
@pytest.mark.edge
def test_a_topic_that_is_not_there_is_refused(server):
    with pytest.raises(ServerRefusal, match="nothing"):
        take(SowServer(server.url), Wanted("nothing"))


# Several addresses.


class Twins:
    """Two servers with equal logs, each behind a proxy, which leaves `min_bookmark` out: both have
    everything."""

    def __init__(self, directory, *documents):
        config, first = configuration(TOPICS, MESSAGE_TYPES), directory / "a"
        before = Running(config, first)
        before.publish("orders", *documents)
        before.close()
        shutil.copytree(first, directory / "b")
        self.servers = [Running(config, directory / name) for name in ("a", "b")]
        self.proxies = [Proxy(server.url) for server in self.servers]
        for proxy in self.proxies:
            proxy.way = partial(self.passed, proxy)
        self.url = ",".join(proxy.url for proxy in self.proxies)

    def passed(self, proxy, requested, _forward):
        target = re.sub("&min_bookmark=[^&]*", "", requested.target)
        assert ("min_bookmark=" in requested.target) >= (requested.step == "read")
        return proxy.forward(requested._replace(target=target))

    def lose(self, proxy, after):
        """One proxy cuts every connection after it has passed on so many parts or ranges."""

        def way(requested, forward):
            if len(proxy.steps("read")) + len(proxy.steps("part")) > after:
                raise Cut
            return self.passed(proxy, requested, forward)

        proxy.way = way

    def close(self):
        for one in (*self.proxies, *self.servers):
            one.close()


@pytest.fixture
def twins(tmp_path):
    made = Twins(tmp_path, *({"id": n} for n in range(20)))
    yield made
    made.close()


ALL = sorted(f'{{"id": {n}}}' for n in range(20))


@pytest.mark.spark
@pytest.mark.edge
@pytest.mark.parametrize("lost", [None, 0, 1])
def test_the_parts_of_a_snapshot_are_read_from_all_addresses(twins, lost):
    (taken,) = take(SowServer(twins.url), Wanted("orders", parts=6))
    assert len(taken.names) == 2
    if lost is not None:
        twins.lose(twins.proxies[lost], after=1)
    assert values(twins, taken.parts) == ALL
    if lost is None:
        assert [len(proxy.steps("part")) for proxy in twins.proxies] == [3, 3]


@pytest.mark.spark
@pytest.mark.edge
@pytest.mark.parametrize("lost", [None, 0, 1])
def test_a_range_of_the_log_goes_on_elsewhere_in_the_middle(twins, lost, monkeypatch):
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 2)
    server = SowServer(twins.url)
    here = extent(server, "orders", "0")
    after, until = int(here["from"]), int(here["to"])
    if lost is not None:
        twins.lose(twins.proxies[lost], after=2)
    for place in range(2):
        found = range_of_log(server.at(place), "orders", after, until, None, log=here["log"])
        read = pa.Table.from_batches(list(found))["value"].to_pylist()
        assert (len(read), sorted(read)) == (20, ALL)
    assert all(len(proxy.steps("read")) > 2 for proxy in twins.proxies)


@pytest.mark.spark
@pytest.mark.edge
def test_an_address_with_another_log_has_no_part_and_is_refused_by_its_log(twins, tmp_path):
    other = Running(configuration(TOPICS, MESSAGE_TYPES), tmp_path / "other")
    other.publish("orders", *({"id": n} for n in range(50)))
    server = SowServer(f"{twins.proxies[0].url},{other.url}")
    (taken,) = take(server, Wanted("orders", parts=4))
    assert list(taken.names) == [0]
    here = extent(server, "orders", "0")
    until = int(here["to"])
    with pytest.raises(ServerRefusal, match="is of the log"):
        list(range_of_log(SowServer(other.url), "orders", 1, until, None, log=here["log"]))
    other.close()
