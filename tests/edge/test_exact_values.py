"""Values stay what they were: whatever is published is read back the same in every form.

What is expected is made of the text that was published, by Python's decimal numbers and never by
doubles; each form is read by a reader that has nothing to do with the server.
"""

import csv
import io
import json
from decimal import Decimal

import pyarrow as pa
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from tests.edge.serving import configuration, records, served
from tests.effort import examples

TOPICS = """<Topic><Name>plain</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>typed</Name><MessageType>json</MessageType><Key>/id</Key><Schema>
<Field type="string">/id</Field><Field type="decimal(38,19)">/px</Field>
<Field type="int64">/qty</Field><Field type="json">/any</Field></Schema></Topic>"""
ARROW = "application/vnd.apache.arrow.stream"

FEW = examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture])


class Written(str):
    """A number as it is written."""

    def __repr__(self):
        return f"Written({self!s})"


numbers = st.one_of(
    st.integers(-(10**40), 10**40).map(str),
    st.integers(-(2**63), 2**63 - 1).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr).map(lambda t: t.replace("+", "")),
    st.decimals(-(10**9), 10**9, places=20).map("{:f}".format),
    st.sampled_from(
        ["1e-05", "1e16", "1.0", "1.50", "1e2", "1E+2", "1e-400", "9007199254740993", "0.10"]
    ),
).filter(lambda text: text != "-0")
values = st.recursive(
    st.one_of(numbers.map(Written), st.booleans(), st.none(), st.text(max_size=5)),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text("ab/~ é", max_size=2), inner, max_size=2)
    ),
    max_leaves=4,
)
fields = st.dictionaries(st.sampled_from(["a", "b", "c d", "é", 'q"', "e/f"]), values, max_size=4)


def text_of(value):
    """A value as JSON, its numbers as they are written."""
    if isinstance(value, Written):
        return str(value)
    if isinstance(value, dict):
        members = [f"{json.dumps(name)}:{text_of(inner)}" for name, inner in value.items()]
        return f"{{{','.join(members)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(text_of, value))}]"
    return json.dumps(value)


def read(text):
    """JSON with its numbers as they are written."""
    return json.loads(text, parse_int=Written, parse_float=Written)


def exactly(value):
    """A value in which 1 and 1.0, true and "1" are four."""
    if isinstance(value, Written):
        return ("number", str(value))
    if isinstance(value, dict):
        return {name: exactly(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return list(map(exactly, value))
    return (type(value).__name__, value)


place = served(configuration(TOPICS))


def publish(server, topic, documents):
    body = "\n".join(map(text_of, documents)).encode()
    answer = server.post(topic, body, "application/x-ndjson")
    assert answer.status == 200, answer.body


def numbered(found):
    return [{"id": Written(str(at)), **document} for at, document in enumerate(found)]


def form(server, topic, kind, **more):
    answer = server.get(records(topic, format=kind, **more))
    assert answer.status == 200, answer.body
    return answer.body


def cell(value):
    """What CSV shows of a value that has no fields."""
    if value is None:
        return ""
    if isinstance(value, Written | str):
        return str(value)
    return text_of(value)


def flat(document, above=()):
    """The cells of a document by the names that lead to them."""
    found = {}
    for name, value in document.items():
        if isinstance(value, dict) and value:
            found |= flat(value, (*above, name))
        else:
            found[(*above, name)] = cell(value)
    return found


def steps(column):
    if not column.startswith("/"):
        return (column,)
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in column[1:].split("/"))


def same_json(shown, text):
    """Whether a JSON text that a cell shows says what was published."""
    return shown == text or exactly(read(shown)) == exactly(read(text))


@FEW
@given(st.lists(fields, min_size=1, max_size=4), st.booleans())
def test_json_lines_select_and_websocket_show_what_was_published(place, found, signed):
    place.clear()
    documents = numbered(found)
    publish(place, "plain", documents)
    expected = list(map(exactly, documents))
    assert list(map(exactly, read(form(place, "plain", "json")))) == expected
    lines = form(place, "plain", "ndjson").splitlines()
    assert [exactly(read(line)) for line in lines] == expected
    select = "-/zz" if signed else "/id,/a,/b"
    shown = read(form(place, "plain", "json", select=select))
    chosen = [
        document if signed else {k: v for k, v in document.items() if k in ("id", "a", "b")}
        for document in documents
    ]
    assert list(map(exactly, shown)) == list(map(exactly, chosen))
    with place.socket() as socket:
        socket.send({"c": "sow", "cid": "1", "t": "plain"})
        heard = []
        while True:
            message = place.wait(socket._ws.receive())
            heard += [read(line) for line in message.data.splitlines()]
            if heard[-1]["c"] == "group_end" or heard[-1].get("a") == "completed":
                break
    rows = [exactly(line["d"]) for line in heard if line["c"] == "sow"]
    assert rows == expected


@FEW
@given(st.lists(fields, min_size=1, max_size=4))
def test_csv_shows_what_was_published(place, found):
    place.clear()
    documents = numbered(found)
    publish(place, "plain", documents)
    text = form(place, "plain", "csv").decode()
    head, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    for document, row in zip(documents, rows, strict=True):
        shown = {steps(name): text for name, text in zip(head, row, strict=True) if text}
        wanted = {name: text for name, text in flat(document).items() if text}
        assert shown.keys() == wanted.keys()
        for name, text in wanted.items():
            is_json = text[:1] in ("[", "{") and shown[name] != text
            assert same_json(shown[name], text) if is_json else shown[name] == text


@FEW
@given(st.lists(fields, min_size=1, max_size=4))
def test_arrow_holds_what_was_published(place, found):
    place.clear()
    documents = numbered(found)
    publish(place, "plain", documents)
    table = pa.ipc.open_stream(form(place, "plain", "arrow")).read_all()
    for document, row in zip(documents, table.to_pylist(), strict=True):
        assert document.keys() <= row.keys()
        for name, shown in row.items():
            value = document.get(name)
            if value is None:
                assert shown is None
            elif isinstance(shown, int):
                assert str(shown) == str(int(value))
            elif isinstance(shown, float):
                assert Decimal(value) in (Decimal(shown), Decimal(repr(shown)))
            elif not (isinstance(value, str) and shown == value):
                assert same_json(shown, text_of(value))


@FEW
@given(fields, fields)
def test_a_delta_changes_what_it_names_and_no_digit_of_anything_else(place, before, delta):
    place.clear()
    publish(place, "plain", numbered([before]))
    body = text_of(numbered([delta])[0]).encode()
    headers = {"Content-Type": "application/json"}
    answer = place.request("PATCH", records("plain"), data=body, headers=headers)
    assert answer.status == 200, answer.body
    expected = exactly(numbered([merged(before, delta)])[0])
    assert [exactly(row) for row in read(form(place, "plain", "json"))] == [expected]


def merged(before, delta):
    """What the documentation says that a delta does; null changes nothing."""
    result = dict(before)
    for name, value in delta.items():
        if isinstance(value, dict):
            inner = result.get(name)
            result[name] = merged(inner if isinstance(inner, dict) else {}, value)
        elif value is not None:
            result[name] = value
    return result


decimals = st.decimals(-(10**18), 10**18, places=19).map("{:f}".format).map(Written)


@FEW
@given(st.text("ab1", min_size=1), decimals, st.integers(-(2**63), 2**63 - 1), values)
def test_declared_values_are_had_back_by_their_types_and_come_in_by_csv(place, key, px, qty, some):
    place.clear()
    document = {"id": key, "px": px, "qty": Written(str(qty)), "any": some}
    publish(place, "typed", [document])
    (row,) = pa.ipc.open_stream(form(place, "typed", "arrow")).read_all().to_pylist()
    assert (row["id"], row["px"], row["qty"]) == (key, Decimal(px), qty)
    assert row["any"] is None if some is None else same_json(row["any"], text_of(some))
    table = form(place, "typed", "csv", select="/id,/px,/qty")
    place.clear()
    assert place.post("typed", table, "text/csv").status == 200
    back = read(form(place, "typed", "json"))
    del document["any"]
    assert list(map(exactly, back)) == [exactly(document)]
