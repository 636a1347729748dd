"""An envelope is decoded completely, or refused with a sentence; tables are bytes and back."""

import pyarrow as pa
import pytest

from conflated_topics.envelope import Envelope, from_ipc, to_ipc

ENVELOPE = Envelope(b"TEST", 3, "test", "begin again")
ABOUT = {"keys": ["a"], "newest_us": None}
PARTS = [b"first", b"", b"\0third"]
SEALED = ENVELOPE.seal(ABOUT, PARTS)


def test_what_is_sealed_is_opened_as_it_was():
    about, parts = ENVELOPE.open(SEALED)
    assert about == {**ABOUT, "sizes": [5, 0, 6]}
    assert parts == PARTS
    assert ENVELOPE.open(ENVELOPE.seal({}, [])) == ({"sizes": []}, [])


def test_what_is_cut_short_or_goes_on_too_long_is_refused():
    for data in [SEALED[:size] for size in range(10, len(SEALED))] + [SEALED + b"x"]:
        with pytest.raises(ValueError, match="cut short; use an earlier one, or begin again"):
            ENVELOPE.open(data)


@pytest.mark.parametrize("data", [b"", b"TEST", b"ELSE" + SEALED[4:]])
def test_what_is_something_else_is_refused(data):
    with pytest.raises(ValueError, match="this is not the state of any test; begin again"):
        ENVELOPE.open(data)


def test_another_version_is_refused_by_both_numbers():
    other = Envelope(b"TEST", 4, "test", "begin again")
    with pytest.raises(ValueError, match="the version 3, and this release reads 4"):
        other.open(SEALED)


def test_what_was_stored_under_other_values_is_refused_by_both():
    stored = {"keys": ["a"], "order": [], "time": "ts"}
    ENVELOPE.refuse_another(stored, {"keys": ["a"]})
    says = (
        r"another test: it has keys \['a'\], not \['b'\], late None, not 2; "
        "continue with its settings"
    )
    with pytest.raises(ValueError, match=says):
        ENVELOPE.refuse_another(stored, {"keys": ["b"], "order": [], "late": 2})


def test_the_bytes_are_those_that_are_on_disks_already():
    assert SEALED[:10] == b"TEST\x03\x00" + len(SEALED[10:-11]).to_bytes(4, "little")
    assert SEALED[10:-11] == b'{"keys": ["a"], "newest_us": null, "sizes": [5, 0, 6]}'
    assert SEALED[-11:] == b"first\0third"


TABLES = {
    "rows": pa.table({"key": ["a", None], "at": pa.array([1, 2], pa.timestamp("us", "UTC"))}),
    "no rows": pa.table({"key": pa.array([], pa.string())}),
    "no columns": pa.table({}),
    "several batches": pa.concat_tables([pa.table({"n": [1]}), pa.table({"n": [2, 3]})]),
    "a dictionary": pa.table({"key": pa.array(["a", "b", "a"]).dictionary_encode()}),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_a_table_comes_back_as_it_was(table):
    back = from_ipc(to_ipc(table))
    assert back.schema == table.schema
    assert back.to_pydict() == table.to_pydict()


def test_what_is_no_stream_is_refused():
    with pytest.raises(pa.ArrowInvalid):
        from_ipc(b"PAR1")
