"""What is known of fields: a witness counts until its record changes, absence until any does."""

import numpy as np

from sow.core.paths import parse_path
from sow.indexes import field_presence
from sow.indexes.field_presence import Witness
from tests.topic.making import put, records

SYMBOL, PX = parse_path("/symbol"), parse_path("/px")


def test_a_witness_counts_while_its_record_is_what_it_was():
    target = records()
    put(target, {"id": 1, "symbol": "A"})
    presence = target.indexes.fields()
    assert presence.unsure((SYMBOL, PX), "") == [SYMBOL, PX]
    presence.keep(SYMBOL, "", Witness(0, presence.seq_of(0)))
    assert presence.unsure((SYMBOL, PX), "") == [PX]
    assert presence.unsure((SYMBOL,), "of others") == [SYMBOL]
    put(target, {"id": 1}, seq=2)
    assert presence.unsure((SYMBOL,), "") == [SYMBOL]
    assert presence.likely(SYMBOL, "") == 0
    presence.keep(SYMBOL, "", Witness(0, presence.seq_of(0)))
    assert presence.unsure((SYMBOL,), "") == []
    target.drop(target.table.identities[:1], "deleted", lambda n: ([3] * n, [0] * n))
    assert presence.unsure((SYMBOL,), "") == [SYMBOL]


def test_of_absent_fields_only_what_has_changed_is_read_again():
    target = records()
    put(target, {"id": 1}, {"id": 2})
    presence, slots = target.indexes.fields(), np.array([0, 1])
    assert presence.changed(PX, "", slots).tolist() == [0, 1]
    presence.keep(PX, "", Witness(None, presence.newest))
    assert presence.unsure((PX,), "") == [PX]
    assert presence.changed(PX, "", slots).tolist() == []
    put(target, {"id": 2}, seq=3)
    assert presence.changed(PX, "", slots).tolist() == [1]


def test_it_keeps_a_bounded_number_of_fields(monkeypatch):
    monkeypatch.setattr(field_presence, "FIELDS_KEPT_MAX", 3)
    presence = records().indexes.fields()
    for name in "abcd":
        presence.keep(parse_path(f"/{name}"), "", Witness(None, 1))
    assert presence.likely(parse_path("/a"), "") is None
    assert len(presence._known) == 1
