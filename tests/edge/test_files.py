"""Addresses that end as files do: which format they give, and that tools read them."""

import csv
import io
import json

import duckdb
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet
import pytest

from sow.core.media_types import ARROW_FILE, PARQUET
from sow.server.http import tables
from tests.edge.serving import configuration, records, served

TOPICS = """<Topic><Name>orders</Name><MessageType>json</MessageType><Key>/id</Key><Schema>
<Field type="string">/id</Field><Field type="decimal(18,4)">/px</Field>
<Field type="timestamp">/at</Field></Schema></Topic>
<Topic><Name>notes.csv</Name><MessageType>json</MessageType></Topic>
<Topic><Name>/preise/größe</Name><MessageType>json</MessageType><Key>/id</Key></Topic>"""
KINDS = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.file",
    "arrows": "application/vnd.apache.arrow.stream",
    "parquet": "application/vnd.apache.parquet",
}
NOTE = '=1+1, "quoted", é\r\nsecond line'

running = served(configuration(TOPICS))


def file_of(name, topic="orders", **parameters):
    path, _, query = records(topic, **parameters).partition("?")
    return f"{path}.{name}" + (f"?{query}" if query else "")


@pytest.fixture
def server(running):
    running.clear()
    documents = [
        {"id": f"0{n}", "px": n / 8, "at": "2026-11-21T09:30:00Z", "note": NOTE, "n": n}
        for n in range(300)
    ]
    running.publish("orders", *documents)
    return running


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("of", ["records", "log"])
def test_an_ending_is_the_format_whatever_is_accepted(server, of, name):
    path, file = (file_of(name), "orders") if of == "records" else (f"/v1/log.{name}", "log")
    for accept in (None, "text/html", "image/png", "application/json;q=0"):
        answer = server.get(path, accept)
        assert (answer.status, answer.headers["Content-Type"]) == (200, KINDS[name])
    shown = "inline" if name == "json" else "attachment"
    assert answer.headers["Content-Disposition"] == f'{shown}; filename="{file}.{name}"'
    assert answer.headers["Cache-Control"] == "no-cache"
    assert "Accept" not in answer.headers.getall("Vary", ())
    head = server.request("HEAD", path)
    for header in ("Content-Type", "Content-Length", "Content-Disposition", "ETag"):
        assert head.headers[header] == answer.headers[header]
    assert int(head.headers["Content-Length"]) == len(answer.body)
    assert server.request("OPTIONS", path).headers["Allow"] == "GET, HEAD, OPTIONS"
    assert server.request("POST", path, data=b"{}").status == 405


def test_each_format_has_a_tag_that_ends_with_any_change_and_parts_that_fit(server):
    tags = {}
    for name in KINDS:
        whole = server.get(file_of(name))
        tags[name] = tag = whole.headers["ETag"]
        known = {"If-None-Match": tag}
        assert server.request("GET", file_of(name), headers=known).status == 304
        part = {"Range": "bytes=7-", "If-Range": tag}
        some = server.request("GET", file_of(name), headers=part)
        assert (some.status, some.body) == (206, whole.body[7:])
        for other in (f"W/{tag}", '"other"', "Mon, 30 Nov 2026 09:00:00 GMT"):
            part["If-Range"] = other
            assert server.request("GET", file_of(name), headers=part).status == 200
        packed = server.request("GET", file_of(name), headers={"Accept-Encoding": "gzip"})
        assert packed.headers["ETag"] == (
            f"W/{tag}" if "Content-Encoding" in packed.headers else tag
        )
    assert len(set(tags.values())) == len(tags)
    server.publish("orders", {"id": "00", "px": 0, "n": 1000})
    for name, tag in tags.items():
        changed = server.request("GET", file_of(name), headers={"If-None-Match": tag})
        assert (changed.status, changed.headers["ETag"] != tag) == (200, True)
        assert server.request("GET", file_of(name), headers={"If-Match": tag}).status == 412


def test_parquet_is_not_packed_again(server):
    packing = {"Accept-Encoding": "gzip, zstd"}
    answer = server.request("GET", file_of("parquet"), headers=packing)
    assert "Content-Encoding" not in answer.headers
    assert answer.headers["ETag"] == server.get(file_of("parquet")).headers["ETag"]
    assert answer.headers["Content-Length"] == str(len(answer.body))
    part = server.request("GET", file_of("parquet"), headers={**packing, "Range": "bytes=-4"})
    assert (part.status, part.body) == (206, b"PAR1")


def test_a_record_has_parts_too_and_any_of_its_tags_is_good(server):
    key = server.records("orders", meta="true", top_n=1)[0]["k"]
    path = f"{records('orders')}/{key}"
    whole = server.get(path)
    assert whole.headers["Accept-Ranges"] == "bytes"
    headers = {"Range": "bytes=0-9", "If-Match": f'"other", {whole.headers["ETag"]}'}
    part = server.request("GET", path, headers=headers)
    assert (part.status, part.body) == (206, whole.body[:10])
    assert part.headers["Content-Range"] == f"bytes 0-9/{len(whole.body)}"
    beyond = server.request("GET", path, headers={"Range": "bytes=9999-"})
    assert beyond.status == 416


def test_names_that_end_so_stay_what_they_are(server):
    assert server.post("notes.csv", b'{"n":1}', k="a.parquet").status == 200
    assert server.get("/v1/topics/notes.csv").json["name"] == "notes.csv"
    record = server.get("/v1/topics/notes.csv/records/a.parquet")
    assert (record.json, record.headers["Content-Type"]) == ({"n": 1}, "application/json")
    assert server.get(file_of("json", "notes.csv")).json == [{"n": 1}]
    table = server.get(file_of("csv", "notes.csv"))
    assert table.headers["Content-Disposition"] == 'attachment; filename="notes.csv.csv"'
    server.request("DELETE", "/v1/topics/notes.csv/records/a.parquet")


def test_a_file_has_a_name_that_every_system_takes(server):
    answer = server.get(file_of("csv", "/preise/größe"))
    assert answer.headers["Content-Disposition"] == (
        "attachment; filename=\"preise_gr__e.csv\"; filename*=UTF-8''preise_gr%C3%B6%C3%9Fe.csv"
    )
    assert "Content-Disposition" not in server.get(records("orders")).headers
    assert "Content-Disposition" in server.get(records("orders", format="parquet")).headers


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [
        (file_of("xls"), 404, "no address ends in .xls; write one of .json, .ndjson, .csv"),
        ("/v1/log.txt", 404, "no address ends in .txt"),
        (file_of("csv", format="csv"), 400, "the end of the address names the format"),
        ("/v1/log.csv?format=json", 400, "the end of the address names the format"),
        (file_of("csv", limit=1), 400, "limit makes pages in"),
        (file_of("csv", "nix"), 404, "no topic 'nix'"),
        ("/v1/log.csv?columns=key", 400, "columns is for Arrow and Parquet"),
    ],
)
def test_what_an_address_does_not_have_is_refused_by_a_sentence(server, path, status, says):
    answer = server.get(path)
    assert (answer.status, says in answer.json["detail"]) == (status, True), answer.json


def test_pages_have_the_ending_of_the_first(server):
    first = server.get(file_of("ndjson", limit=200))
    link = first.headers["Link"].partition("<")[2].partition(">")[0]
    last = server.get(file_of("ndjson") + link)
    assert (len(first.rows), len(last.rows)) == (200, 100)
    other = server.get(file_of("json") + link)
    assert (other.status, "the form of the first" in other.json["detail"]) == (400, True)
    assert len(server.get(records("orders") + link).rows) == 100


def test_parquet_and_both_arrows_have_the_same_columns(server):
    stream = pa.ipc.open_stream(server.get(file_of("arrows")).body).read_all()
    assert pa.ipc.open_file(server.get(file_of("arrow")).body).read_all() == stream
    parquet = pa.parquet.read_table(io.BytesIO(server.get(file_of("parquet")).body))
    assert (parquet, parquet.schema) == (stream, stream.schema)
    assert server.get(records("orders"), ARROW_FILE).body == server.get(file_of("arrow")).body
    assert server.get(records("orders"), PARQUET).body == server.get(file_of("parquet")).body
    assert server.get(records("orders", format="arrow")).body == server.get(file_of("arrows")).body
    meta = pa.parquet.read_table(io.BytesIO(server.get(file_of("parquet", meta="true")).body))
    assert meta.column_names == ["bookmark", "topic", "key", "op", "ts", "value"]
    empty = server.get(file_of("parquet", filter="/n < 0"))
    assert pa.parquet.read_table(io.BytesIO(empty.body)).schema == stream.schema


def test_parquet_of_too_many_parts_is_refused_and_arrow_is_not(server, monkeypatch):
    monkeypatch.setattr(tables, "PARQUET_PARTS_MAX", 4)
    refused = server.get(file_of("parquet"))
    assert (refused.status, refused.json["reason"]) == (413, "too large")
    assert "300 rows of 5 columns are too many for Parquet" in refused.json["detail"]
    assert server.get(file_of("parquet", select="/id,/px")).status == 200
    assert server.get(file_of("arrow")).status == 200


def test_the_log_has_its_rows_in_every_format(server):
    server.request("DELETE", records("orders", filter="/n > 0"))
    asked = "?topics=orders&limit=1000000"
    lines = server.get(f"/v1/log.ndjson{asked}")
    array = server.get(f"/v1/log.json{asked}").json
    assert [json.loads(line) for line in lines.body.splitlines()] == array == lines.rows
    assert server.get(f"/v1/log{asked}&format=json").json == array
    answer = server.get(f"/v1/log{asked}", "application/json")
    assert [json.loads(line) for line in answer.body.splitlines()] == array
    assert server.get("/v1/log.json?from=now").json == []
    for name, read in {
        "arrow": lambda body: pa.ipc.open_file(body).read_all(),
        "parquet": lambda body: pa.parquet.read_table(io.BytesIO(body)),
    }.items():
        table = read(server.get(f"/v1/log.{name}{asked}").body)
        stream = pa.ipc.open_stream(server.get(f"/v1/log.arrows{asked}").body).read_all()
        assert table == stream
        assert table.column("bookmark").to_pylist() == [row["seq"] for row in array]
        few = read(server.get(f"/v1/log.{name}{asked}&columns=key,value&select=/n").body)
        assert few.column_names == ["key", "value"]
        both = read(server.get(f"/v1/log.{name}{asked}&before=true").body)
        assert both.column_names[-1] == "before"


# Tools.

FRAMES = {
    "polars": {
        "csv": polars.read_csv,
        "ndjson": polars.read_ndjson,
        "arrow": polars.read_ipc,
        "arrows": polars.read_ipc_stream,
        "parquet": polars.read_parquet,
    },
    "pandas": {
        "csv": pandas.read_csv,
        "json": pandas.read_json,
        "ndjson": lambda url: pandas.read_json(url, lines=True),
        "arrow": pandas.read_feather,
        "parquet": pandas.read_parquet,
    },
}


@pytest.mark.parametrize(
    ("tool", "name"), [(tool, name) for tool, names in FRAMES.items() for name in names]
)
def test_frames_are_read_from_an_address(server, tool, name):
    read = FRAMES[tool][name]
    frame = read(server.url + file_of(name))
    assert (len(frame), float(frame["px"].sum())) == (300, sum(range(300)) / 8)
    assert set(frame["note"]) == {NOTE}
    assert len(read(f"{server.url}/v1/log.{name}?topics=orders&limit=10")) == 10
    if name in ("arrow", "arrows", "parquet"):
        assert str(frame["at"].dtype).lower().startswith("datetime")


def test_polars_reads_of_a_parquet_address_what_it_needs(server):
    few = polars.scan_parquet(server.url + file_of("parquet")).filter(polars.col("n") > 297)
    assert few.select("id").collect()["id"].to_list() == ["0298", "0299"]


def test_duckdb_reads_what_an_address_gives(server, tmp_path):
    for name, read in {"csv": "read_csv", "json": "read_json", "parquet": "read_parquet"}.items():
        (tmp_path / f"orders.{name}").write_bytes(server.get(file_of(name)).body)
        asked = f"select count(*), sum(px), min(note) from {read}('{tmp_path}/orders.{name}')"
        (found,) = duckdb.sql(asked).fetchall()
        assert (found[0], float(found[1]), found[2]) == (300, sum(range(300)) / 8, NOTE)
    orders = pa.ipc.open_stream(server.get(file_of("arrows")).body).read_all()
    assert duckdb.sql("select max(n) from orders").fetchall() == [(299,)]
    assert len(orders) == 300


def test_a_spreadsheet_gets_the_cells_that_were_published(server):
    body = server.get(file_of("csv", top_n=1)).body.decode()
    assert body.startswith("id,px,at,note,n\r\n")
    head, row = csv.reader(io.StringIO(body, newline=""), dialect="excel")
    assert dict(zip(head, row, strict=True))["note"] == NOTE
    assert (row[0], len(row)) == ("00", len(head)), "a declared text keeps its zeros"


def test_a_filter_and_a_selection_go_with_an_ending(server):
    filtered = file_of("csv", filter="/n >= 298", select="/id,/n", order_by="/n")
    assert server.get(filtered).body == b"id,n\r\n0298,298\r\n0299,299\r\n"
