import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sow.messages.msgpack_values import Extension, extension_bytes, read_map
from tests.cases import all_cases
from tests.effort import examples

atoms = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    | st.binary(max_size=40)
)
values = st.recursive(
    atoms, lambda v: st.lists(v, max_size=20) | st.dictionaries(st.text("abc"), v, max_size=20)
)


@given(st.dictionaries(st.text("abc"), values, max_size=4))
@examples(15)
@example(dict.fromkeys(map(str, range(20)), 1))
@example(dict.fromkeys(map(str, range(70_000)), 1))
def test_what_is_read_is_what_msgspec_reads(document):
    assert read_map(msgspec.msgpack.encode(document)) == document


@pytest.mark.parametrize("size", [300, 70_000])
def test_long_values_are_read(size):
    document = {"t": "x" * size, "b": b"x" * size, "l": [1] * size, "m": dict.fromkeys(range(size))}
    assert read_map(msgspec.msgpack.encode(document)) == document


@all_cases("size", [0, 1, 2, 3, 4, 8, 16, 17, 255, 256, 65_536])
def test_an_extension_is_written_as_msgspec_writes_it(size):
    data = b"x" * size
    written = extension_bytes(Extension(-7, data))
    assert written == msgspec.msgpack.encode(msgspec.msgpack.Ext(-7, data))
    assert read_map(b"\x81\xa1a" + written) == {"a": Extension(-7, data)}


@pytest.mark.parametrize(
    "body", [b"\x91\x01", b"\x81\xa1a\xc1", b"\x81\xa1a\xd9\x05x", b"\x81\xa1a"]
)
def test_what_is_no_map_is_refused(body):
    with pytest.raises((ValueError, IndexError)):
        read_map(body)
