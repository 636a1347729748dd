"""`sow dump` and what it writes, read again by `sow load`: what a file holds comes back."""

import json
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from sow.cli.commands import dump as module
from sow.cli.commands.dump import cut_frames, new_file
from sow.errors import ClientError
from tests.effort import examples

NAMES = st.text("abc/~ é\"'", min_size=1, max_size=4).filter(lambda name: name not in ("id",))
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r\0"), max_size=8)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
SCALARS = st.none() | st.booleans() | NUMBERS | TEXTS
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
DOCUMENTS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=6)
FEW = examples(8, suppress_health_check=[HealthCheck.function_scoped_fixture])


def numbered(documents):
    return [{"id": number, **document} for number, document in enumerate(documents)]


def round_trip(sow, server, path, documents, source="orders", target="copies"):
    server.clear()
    if documents:
        assert server.publish(source, *documents).status == 200
    result = sow("dump", source, str(path), "--force")
    assert result.exit_code == 0, result.stderr
    sow.ok("load", target, str(path))
    return result.stderr, server.records(target)


def without_nulls(value):
    return {name: one for name, one in value.items() if one is not None}


@FEW
@given(DOCUMENTS)
def test_every_record_comes_back_from_ndjson_as_it_was(sow, server, tmp_path, documents):
    documents = numbered(documents)
    _, found = round_trip(sow, server, tmp_path / "a.ndjson", documents)
    assert found == documents
    raw = [server.get(f"/v1/topics/{topic}/records").body for topic in ("orders", "copies")]
    assert raw[0] == raw[1]


@FEW
@given(DOCUMENTS)
def test_every_record_comes_back_from_parquet_but_for_nulls(sow, server, tmp_path, documents):
    documents = [without_nulls(one) for one in numbered(documents)]
    _, found = round_trip(sow, server, tmp_path / "a.parquet", documents)
    assert found == documents


@FEW
@given(DOCUMENTS)
def test_a_dump_as_csv_says_so_if_a_record_would_not_come_back(sow, server, tmp_path, documents):
    documents = numbered(documents)
    said, found = round_trip(sow, server, tmp_path / "a.csv", documents)
    assert ("CSV does not hold all" in said) == (found != documents)


@pytest.mark.parametrize("ending", ["ndjson", "csv", "parquet"])
def test_plain_records_come_back_from_each_kind_of_file(sow, server, tmp_path, ending):
    documents = [
        {"id": 1, "px": 1.5, "on": True, "leg": {"q": [1, "x"]}, "note": 'a,"b"\nc'},
        {"id": 2, "px": -7, "note": "é", "on": False},
    ]
    said, found = round_trip(sow, server, tmp_path / f"a.{ending}", documents)
    assert found == documents
    assert said.startswith("2 records of orders, bookmark ")
    assert "sow:" not in said


@pytest.mark.parametrize(
    ("source", "target", "bodies"),
    [
        ("elements", "elements-2", [b'<o id="1"><a>x &amp; y</a></o>']),
        ("packed", "packed-2", [b"\x82\xa2id\x01\xa1b\xc4\x02\x00\xff"]),
    ],
)
def test_messages_of_other_types_come_back_from_ndjson_byte_by_byte(
    sow, server, tmp_path, source, target, bodies
):
    framed = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    kind = "application/vnd.sow.frames"
    assert server.post(source, framed, kind).status == 200
    sow.ok("dump", source, str(tmp_path / "a.ndjson"))
    sow.ok("load", target, str(tmp_path / "a.ndjson"))
    assert server.get(f"/v1/topics/{target}/records", kind).body == framed


def metas(server, topic):
    return server.records(topic, meta="true")


def test_lifetimes_come_back_from_ndjson_to_the_microsecond(sow, server, tmp_path):
    server.publish("brief", {"id": 1}, {"id": 2}, expiration=900)
    server.publish("brief", {"id": 3}, expiration=0)
    server.publish("brief", {"id": 4})
    before = metas(server, "brief")
    assert [one["expires"] is None for one in before] == [False, False, True, False]
    sow.ok("dump", "brief", str(tmp_path / "a.ndjson"))
    server.clear()
    assert sow.ok("load", "brief", str(tmp_path / "a.ndjson")).startswith("loaded 4 records")
    found = metas(server, "brief")
    assert [(one["d"], one["expires"]) for one in found] == [
        (one["d"], one["expires"]) for one in before
    ]


def events(server, topic="prices"):
    found = [server.get(f"/v1/topics/{topic}/records/key={key}/events") for key in (1, 2)]
    return [[one["d"] for one in json.loads(answer.body)] for answer in found]


@pytest.mark.parametrize("at_once", [10_000, 2])
def test_the_events_of_a_series_come_back_from_ndjson(sow, server, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(module, "EVENTS_AT_ONCE", at_once)
    for number in range(5):
        server.publish("prices", {"id": 1, "n": number}, {"id": 2, "n": -number})
    server.publish("prices", {"id": 1, "n": 1e2})
    before = events(server)
    assert list(map(len, before)) == [6, 5]
    result = sow("dump", "prices", str(tmp_path / "a.ndjson"))
    assert "newest" not in result.stderr
    server.clear()
    assert sow.ok("load", "prices", str(tmp_path / "a.ndjson")).startswith("loaded 11 records")
    assert events(server) == before


def test_a_table_of_a_series_says_that_it_has_the_newest_events_only(sow, server, tmp_path):
    server.publish("prices", {"id": 1, "n": 1}, {"id": 1, "n": 2})
    result = sow("dump", "prices", str(tmp_path / "a.csv"))
    assert "the newest event of each record only" in result.stderr
    assert (tmp_path / "a.csv").read_text().split() == ["id,n", "1,2"]


def test_only_a_record_that_expires_says_so_in_its_line(sow, server, tmp_path):
    server.publish("short", {"id": 1}, expiration=900)
    server.publish("short", {"id": 2})
    sow.ok("dump", "short", str(tmp_path / "a.ndjson"))
    timed, plain = (tmp_path / "a.ndjson").read_text().splitlines()
    (expiring, _) = metas(server, "short")
    assert json.loads(timed) == [{"expires": expiring["expires"]}, {"id": 1}]
    assert plain == '{"id": 2}'
    assert "expires" not in metas(server, "short")[1]


def test_messages_of_bytes_keep_their_lifetimes_too(sow, server, tmp_path):
    body = b"\x82\xa2id\x01\xa1b\xc4\x02\x00\xff"
    server.post("packed-2", body, "application/msgpack", expiration=900)
    (before,) = metas(server, "packed-2")
    sow.ok("dump", "packed-2", str(tmp_path / "a.ndjson"))
    server.clear()
    sow.ok("load", "packed-2", str(tmp_path / "a.ndjson"))
    assert [one["expires"] for one in metas(server, "packed-2")] == [before["expires"]]
    raw = server.get("/v1/topics/packed-2/records", "application/vnd.sow.frames").body
    assert raw == len(body).to_bytes(4, "big") + body


def test_what_has_expired_since_is_loaded_and_leaves_at_once(sow, server, tmp_path):
    (tmp_path / "a.ndjson").write_text('[{"expires":"2020-01-01T00:00:00Z"},{"id":1}]\n{"id":2}\n')
    sow.ok("load", "short", str(tmp_path / "a.ndjson"))
    while server.records("short") != [{"id": 2}]:
        pass  # it expires in the next turn of the server


@pytest.mark.parametrize(
    ("topic", "lines", "said"),
    [
        ("orders", ['[{"expires":"2050-01-01T00:00:00Z"},{"id":1}]'], "keeps records for ever"),
        ("orders", ['{"id":1}', '[{"expires":5},{"id":2}]'], "line 2 of "),
        ("short", ['{"id":1}', '[{"expires":"soon"},{"id":2}]'], "line 2 of "),
        ("short", ['[{"expires":"9999-01-01T00:00:00Z"},{"id":2}]'], "at most 1e9 seconds"),
    ],
)
def test_a_lifetime_that_cannot_be_kept_is_refused(sow, server, tmp_path, topic, lines, said):
    (tmp_path / "a.ndjson").write_text("\n".join([*lines, ""]))
    result = sow("load", topic, str(tmp_path / "a.ndjson"))
    assert (result.exit_code, said in result.stderr) == (1, True), result.stderr
    assert server.records(topic) == []


def test_only_what_matches_is_dumped_to_standard_output_and_loaded_from_there(sow, server):
    server.publish("orders", {"id": 1, "q": 1}, {"id": 2, "q": 20})
    out = sow.ok("dump", "orders", "--filter", "/q > 10")
    assert json.loads(out) == {"id": 2, "q": 20}
    assert sow.ok("load", "copies", "-", input=out).startswith("loaded 1 record into copies")


def test_a_table_is_written_to_a_pipe_and_read_from_one(sow, server):
    server.publish("orders", {"id": 1, "q": 1})
    out = sow("dump", "orders", "-", "--format", "parquet").stdout_bytes
    assert sow("load", "copies", "-", "--format", "parquet", input=out).exit_code == 0
    assert server.records("copies") == [{"id": 1, "q": 1}]


def test_digits_of_numbers_are_kept_in_lines(sow, server, tmp_path):
    server.post("orders", b'{"id":1,"px":1.10000000000000000001}')
    sow.ok("dump", "orders", str(tmp_path / "a.ndjson"))
    text = (tmp_path / "a.ndjson").read_text()
    assert json.loads(text, parse_float=Decimal)["px"] == Decimal("1.10000000000000000001")


def test_an_empty_topic_is_an_empty_file_that_loads(sow, server, tmp_path):
    for ending in ("ndjson", "csv", "parquet"):
        assert round_trip(sow, server, tmp_path / f"a.{ending}", [])[1] == []


def test_a_file_that_is_there_is_not_written_over(sow, tmp_path):
    file = tmp_path / "a.ndjson"
    file.write_text("mine")
    result = sow("dump", "orders", str(file))
    assert (result.exit_code, result.stderr) == (
        1, f"sow: {file} exists already; --force overwrites it\n",
    )  # fmt: skip
    assert file.read_text() == "mine"
    sow.ok("dump", "orders", str(file), "--force")
    assert file.read_text() == ""


def test_what_fails_leaves_no_file(sow, tmp_path):
    for words in (("nope", "a.ndjson"), ("orders", "a.ndjson", "--filter", "/x >")):
        name = str(tmp_path / words[1])
        assert sow("dump", words[0], name, *words[2:]).exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_an_answer_that_ends_early_is_no_dump(sow, server, tmp_path, monkeypatch):
    server.publish("orders", {"id": 1}, {"id": 2})
    file = tmp_path / "a.ndjson"
    file.write_text("mine")

    async def half(rows):
        yield [b'{"id":1}']

    monkeypatch.setattr("sow.client.http.Rows.chunks", half)
    result = sow("dump", "orders", str(file), "--force")
    assert result.exit_code == 1
    assert "after 1 of 2 records" in result.stderr
    assert [file.read_text(), *tmp_path.iterdir()] == ["mine", file]


def test_a_name_that_says_nothing_is_sent_what_to_write(sow, tmp_path):
    result = sow("dump", "orders", str(tmp_path / "a.dat"))
    assert (result.exit_code, ".parquet, or give --format" in result.stderr) == (1, True)


def test_frames_are_cut_wherever_the_network_cut_them():
    data = b"".join(len(body).to_bytes(4, "big") + body for body in (b"", b"abc", b"x"))
    for at in range(len(data) + 1):
        first, rest = cut_frames(data[:at])
        more, end = cut_frames(rest + data[at:])
        assert (first + more, end) == ([b"", b"abc", b"x"], b"")
        pair, rest = cut_frames(data[:at], 2)
        assert (len(pair), rest) in ((0, data[:at]), (2, data[11:at]))


def test_what_is_written_is_there_at_the_end_and_not_before(tmp_path):
    path = tmp_path / "a"
    with new_file(str(path)) as file:
        file.write(b"x")
        assert not path.exists()
    assert [path.read_bytes(), list(tmp_path.iterdir())] == [b"x", [path]]


def test_what_is_given_up_leaves_what_stood_there(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), new_file(str(path), force=True) as file:
        file.write(b"%d" % (1 // 0))
    assert [path.read_bytes(), list(tmp_path.iterdir())] == [b"old", [path]]


def test_a_file_that_came_meanwhile_is_not_written_over(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(ClientError, match="exists already"), new_file(str(path)):
        path.write_bytes(b"of another")
    assert [path.read_bytes(), list(tmp_path.iterdir())] == [b"of another", [path]]


def test_a_directory_is_no_file(tmp_path):
    with pytest.raises(ClientError, match="is a directory"), new_file(str(tmp_path), force=True):
        pass


def test_a_load_says_how_many_records_are_on_the_disk(sow, server, tmp_path):
    file = tmp_path / "a.ndjson"
    file.write_text("".join(f'{{"id":{number}}}\n' for number in range(2500)))
    said = json.loads(sow.ok("load", "orders", str(file), "--json"))
    assert said["loaded"] == len(server.records("orders")) == 2500
    assert int(said["bookmark"]) > 0


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.ndjson", '{"id":1}\n\n{"no":2}\n', "line 3 of {}: key field /id is missing"),
        ("a.ndjson", "\x00\xff\n", "line 1 of {}: "),
        ("a.csv", "id,x\n1,1\n,2\n", "row 2 of {}: key field /id is missing"),
        ("a.csv", 'id,x\n1,"open\n', "row 1 of {}: "),
        ("a.csv", "id,id\n1,1\n", "the CSV has the column 'id' twice"),
        ("a.parquet", "PAR1 and then nothing", "{} is not a complete Parquet file: "),
        ("a.parquet", "", "{} is not a complete Parquet file: "),
        ("a.dat", "", "the name a.dat does not show its format"),
        ("a.ndjson", "x" * 3_000_000, "line 1 of {}: "),
    ],
)
def test_what_is_wrong_with_a_file_is_a_sentence_that_says_where(
    sow, server, tmp_path, name, text, said
):
    file = tmp_path / name
    file.write_text(text, encoding="latin-1")
    result = sow("load", "orders", str(file))
    assert result.exit_code == 1
    assert result.stderr.startswith("sow: " + said.format(file))
    assert len(result.stderr) < 2000
    assert server.records("orders") == []


def test_a_file_that_ends_within_a_line_is_sent_and_so_is_what_was_loaded(sow, server, tmp_path):
    file = tmp_path / "a.ndjson"
    file.write_text('{"id":1}\n{"id":2,"x')
    result = sow("load", "orders", str(file))
    assert (result.exit_code, result.stderr.startswith(f"sow: line 2 of {file}: ")) == (1, True)
    assert result.stderr.endswith("; loaded before it: 1 record\n")
    assert server.records("orders") == [{"id": 1}]


def test_a_row_of_a_table_is_named_and_what_came_before_is_counted(
    sow, server, tmp_path, monkeypatch
):
    monkeypatch.setattr("sow.cli.table_files.FILE_ROWS", 2)
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3, None]}), file)
    result = sow("load", "orders", str(file))
    assert result.stderr.startswith(f"sow: row 4 of {file}: key field /id is missing")
    assert result.stderr.endswith("; loaded before it: 2 records\n")
    assert len(server.records("orders")) == 2


def test_a_column_that_is_said_to_hold_json_and_does_not_is_named(sow, tmp_path):
    file = tmp_path / "a.parquet"
    schema = pa.schema(
        [pa.field("id", pa.int64()), pa.field("x", pa.string(), metadata={"kind": "json"})]
    )
    pq.write_table(pa.table({"id": [1, 2], "x": ["[1]", "[1"]}, schema), file)
    result = sow("load", "orders", str(file))
    assert "row 2 of" in result.stderr
    assert "the column x is declared as JSON, but holds something else" in result.stderr


INFINITE = float("inf")
NAN = float("nan")
NO_NUMBERS = [
    (pa.array([1.5, None, NAN]), None),
    (pa.array([1.5, None, -INFINITE], pa.float32()), None),
    (pa.array([1.5, None, INFINITE]).dictionary_encode(), None),
    (pa.array([[1.5], None, [1.0, NAN]]), [1.0, None]),
    (pa.array([{"n": 1.5}, None, {"n": INFINITE}]), {"n": None}),
]
"""Columns, and what stands in the last row of each where such a number is a null."""


@pytest.mark.parametrize(("column", "left"), NO_NUMBERS)
def test_a_number_that_json_has_not_is_refused_by_row_and_column(
    sow, server, tmp_path, column, left
):
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3], "px": column}), file)
    result = sow("load", "orders", str(file))
    said = f"sow: row 3 of {file}: the column px is NaN or infinite, which JSON cannot hold; "
    assert (result.exit_code, result.stderr.startswith(said)) == (1, True)
    assert server.records("orders") == []
    sow.ok("load", "orders", str(file), "--nan-as-null")
    last = server.records("orders")[2]
    assert last == ({"id": 3} if left is None else {"id": 3, "px": left})


def test_files_of_others_are_read_by_their_types(sow, server, tmp_path):
    file = tmp_path / "a.parquet"
    table = pa.table(
        {
            "id": pa.array(["a"]).dictionary_encode(),
            "at": pa.array([1_700_000_000_000_000], pa.timestamp("us", "UTC")),
            "q": pa.array([None], pa.int32()),
            "leg": pa.array([{"n": 1}]),
        }
    )
    pq.write_table(table, file)
    sow.ok("load", "orders", str(file))
    assert server.records("orders") == [
        {"id": "a", "at": "2023-11-14T22:13:20.000000Z", "leg": {"n": 1}}
    ]


def test_a_topic_that_is_not_there_or_takes_no_records_says_so(sow, tmp_path):
    for name, text in (("a.ndjson", '{"id":1}\n'), ("b.ndjson", "")):
        (tmp_path / name).write_text(text)
        assert "no topic 'nope'" in sow("load", "nope", str(tmp_path / name)).stderr
    assert sow("load", "orders-C", str(tmp_path / "a.ndjson")).exit_code == 1
    assert sow("load", "orders", str(tmp_path / "none.ndjson")).exit_code == 1


def test_a_row_that_is_refused_is_counted_from_the_start_of_the_file(sow, server, tmp_path):
    file, rows = tmp_path / "a.parquet", 1_500  # more than one request
    table = pa.table({"id": range(rows), "px": [*[1.0] * (rows - 1), NAN]})
    pq.write_table(table, file)
    result = sow("load", "orders", str(file))
    assert result.stderr.startswith(f"sow: row 1500 of {file}: the column px is NaN")
    assert result.stderr.endswith("; loaded before it: 1,000 records\n")
    assert len(server.records("orders")) == 1_000
