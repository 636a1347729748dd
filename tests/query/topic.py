"""A small topic for query tests: a table with indexes, and the naive answer to compare with."""

import json
from collections.abc import Iterable, Sequence
from functools import cache

from sow.core.cooperative import run_to_completion
from sow.core.keys import identities, sow_keys
from sow.core.paths import Path, Value, parse_path
from sow.expressions import Node, Trait, compile_filter, parse_order_by, paths_in
from sow.indexes import Indexes
from sow.messages import message_type
from sow.query import Query, QueryAnswer, answering
from sow.store.memory import Table
from tests.expressions.naive import value_of

JSON = message_type("json")
decoder = cache(JSON.decoder)
NOW_US = 5_000_000


def paths(text: str) -> tuple[Path, ...]:
    return tuple(map(parse_path, text.split(",")))


class Topic:
    """Records keyed by `/id`, `hashes` being hash indexes such as "/a" or "/a,/b"."""

    def __init__(self, *hashes: str, keys: str = "/id", memos: str = "") -> None:
        self.keys = paths(keys)
        self.table = Table(sow_keys, "topic")
        self.indexes = Indexes(
            self.table,
            decoder,
            self.keys,
            [paths(text) for text in hashes],
            paths(memos) if memos else (),
            "topic",
        )
        self.seq = 0

    def put(self, *records: dict[str, object]) -> None:
        bodies = [json.dumps(record).encode() for record in records]
        names = identities(self.keys, decoder(self.keys).columns(bodies))
        seqs = range(self.seq + 1, self.seq + 1 + len(bodies))
        self.seq = seqs[-1]
        slots, _ = self.table.put(names, bodies, seqs, [seq * 500_000 for seq in seqs])
        watched = self.indexes.watched
        columns = decoder(watched).columns(bodies) if watched else []
        self.indexes.put(slots, dict(zip(watched, columns, strict=True)).__getitem__)

    def drop(self, *names: str) -> None:
        self.indexes.drop(self.table.drop(names)[1])

    def answer(
        self, filter_: str | None = None, order: str | None = None, **more: object
    ) -> QueryAnswer:
        return run_to_completion(answering(self.indexes, query(filter_, order, **more)))

    def found(self, filter_: str | None = None, order: str | None = None, **more: object) -> list:
        return self.ids(self.answer(filter_, order, **more).slots.tolist())

    def ids(self, slots: Iterable[int]) -> list:
        return [json.loads(self.table.bodies[slot] or b"")["id"] for slot in slots]


def query(filter_: str | None, order: str | None = None, **more: object) -> Query:
    made = Query(
        filter=None if filter_ is None else compile_filter(filter_),
        order_by=() if order is None else parse_order_by(order),
        **more,  # type: ignore[arg-type]
    )
    return made.at(NOW_US)


def naive(table: Table, requested: Query) -> tuple[list[int], int]:
    """The slots of the page and the number of matches, by looking at every record."""
    slots = sorted(table.slots.values(), key=lambda slot: table.born[slot])
    if requested.keys is not None:
        slots = [slot for slot in slots if table.sow_key(slot) in requested.keys]
    if requested.filter is not None:
        slots = [slot for slot in slots if _is_true(table, slot, requested)]
    for term in reversed(requested.order_by):
        slots.sort(
            key=lambda slot: term.key(_calculated(table, slot, term.value)),
            reverse=term.descending,
        )
    return slots[requested.skip_n : requested.end], len(slots)


def _calculated(table: Table, slot: int, node: Node) -> Value:
    """By the naive evaluator, which shares nothing with what the product compiles."""
    wanted = paths_in(node)
    values = dict(zip(wanted, _values(table, slot, wanted), strict=True))
    return value_of(node, {**values, **_known(table, slot)})


def _is_true(table: Table, slot: int, requested: Query) -> bool:
    assert requested.filter is not None
    known = _known(table, slot)
    values = _values(table, slot, requested.filter.paths)
    return (
        requested.filter.truth([*values, *[known[one] for one in requested.filter.traits]]) is True
    )


def _known(table: Table, slot: int) -> dict[Trait, Value]:
    return {
        Trait.SOW_KEY: table.sow_key(slot),
        Trait.TOPIC_NAME: "topic",
        Trait.MESSAGE_SIZE: len(table.bodies[slot] or b""),
        Trait.LAST_UPDATED: int(table.seqs[slot]) / 2,
        Trait.BOOKMARK: None,
    }


def _values(table: Table, slot: int, wanted: Sequence[Path]) -> list:
    if not wanted:
        return []
    columns = decoder(tuple(wanted)).columns([table.bodies[slot] or b""])
    return [column[0] for column in columns]
