"""A view of orders by the server's engine and by what Spark runs, with the same history.

A step is what happens in one turn, or in one batch of Spark's: pairs of an id and the message that
its record has from then on, None for one that goes.
"""

from zlib import crc32

import pyarrow as pa

from conflated_topics.recorded import from_ipc, to_ipc
from sow.core.definitions import Topic, View
from sow.core.keys import sow_key
from sow.expressions import compile_filter, compile_projection
from sow.messages import message_type
from sow.spark.views import LOGGED, SparkView, take_changes, take_records
from sow.topic.records import Records
from sow.topic.views import SingleSource
from sow.topic.views.view import MaterializedView

BUCKETS = 3
"""Of records, where these are not brought together by Spark."""


def view(fields, grouping=("/desk",), condition=None, kind="json"):
    return View("desks", kind, ("orders",), tuple(fields), tuple(grouping), filter=condition)


class Embedded:
    """The rows by SowKey, as the server's own engine makes them."""

    def __init__(self, definition):
        self._domain = definition.domain
        self._orders = Records(Topic("orders", "json"), message_type("json"), (), "orders")
        projection = compile_projection(
            definition.projection, definition.grouping, {"orders": "json"}
        )
        rows = Records(
            definition, message_type(definition.message_type), (), self._domain, makes_keys=True
        )
        condition = None if definition.filter is None else compile_filter(definition.filter)
        paths = [source.path for source in projection.inputs]
        producer = SingleSource(self._orders, paths, condition)
        self._view = MaterializedView(
            rows, producer, projection, (0, 0), frozenset({"orders"}), lambda _view: None
        )
        self._seq = 0

    def take(self, step):
        for name, body in step:
            self._seq += 1
            if body is not None:
                read = self._orders.read([body], [name])
                batch = self._orders.put(
                    read.identities, read.bodies, read.columns, [self._seq], [0]
                )
            else:
                batch = self._orders.drop([name], "deleted", lambda _: ([self._seq], [0]))
            if batch is not None:
                self._view.on_batch(batch, 0)
        while self._view.is_dirty:
            self._view.release()
        self._view.check()

    @property
    def rows(self):
        table = self._view.rows.table
        keys = table.identities
        return {
            str(sow_key(self._domain, keys[slot])): table.bodies[slot]
            for slot in table.slots.values()
        }


class BySpark:
    """The same as the turns of Spark's buckets make them, with a state that is bytes between two
    batches. `changed` are the rows that the last batch has written."""

    def __init__(self, definition):
        self._view = SparkView(definition, "json")
        self._records, self._groups = {}, {}
        self._bookmark = 0
        self.rows, self.changed = {}, []

    def expire(self, name):
        self.take([(name, None)], gone="expire")

    def take(self, step, gone="delete"):
        changes = {}
        for bucket, rows in self._logged(step, gone).items():
            done = take_records(self._view, self._records.get(bucket), [to_ipc(rows)])
            self._records[bucket] = done.state
            for target, packed in zip(*done.rows.to_pydict().values(), strict=True):
                changes.setdefault(target, []).append(packed)
        self.changed = []
        for bucket, packed in changes.items():
            # In any order: Spark promises none.
            turned = take_changes(self._view, self._groups.get(bucket), reversed(packed))
            self._groups[bucket] = turned.state
            self.changed += turned.rows.to_pylist()
        for row in self.changed:
            if row["op"] != "publish":
                del self.rows[row["key"]]
            else:
                self.rows[row["key"]] = row["value"].encode()

    def _logged(self, step, gone):
        rows = {}
        for name, body in step:
            self._bookmark += 1
            row = {
                "key": name,
                "op": gone if body is None else "publish",
                "bookmark": self._bookmark,
                "value": None if body is None else body.decode(),
            }
            rows.setdefault(crc32(name.encode()) % BUCKETS, []).insert(0, row)
        return {at: pa.Table.from_pylist(some, LOGGED) for at, some in rows.items()}

    @property
    def kept(self):
        """How much is kept in all: of records, and of groups."""
        stored = (self._records.values(), self._groups.values())
        return [sum(len(from_ipc(_part(one))) for one in some) for some in stored]


def _part(state):
    """The table that a state holds, whatever it is the state of."""
    size = int.from_bytes(state[6:10], "little")
    return state[10 + size :]


ENGINES = (Embedded, BySpark)
