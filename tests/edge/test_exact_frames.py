"""Data frames of pandas hold the values that records have, whatever column has a gap: by each way
to such a frame, and back into a topic."""

import asyncio
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pandas
from hypothesis import given
from hypothesis import strategies as st

from sow.client import Client
from sow.client.sync import Client as PlainClient
from tests.edge.serving import configuration, served
from tests.effort import examples

TYPES = {
    "whole": "int64", "price": "decimal(38,10)", "at": "timestamp", "day": "date", "open": "bool",
    "near": "float64", "note": "string",
}  # fmt: skip
FIELDS = "".join(f'<Field type="{kind}">/{name}</Field>' for name, kind in TYPES.items())
TOPICS = "".join(
    f"<Topic><Name>{name}</Name><MessageType>json</MessageType><Key>/id</Key>{schema}</Topic>"
    for name, schema in (
        ("trades", f"<Schema>{FIELDS}</Schema>"),
        ("back", f"<Schema>{FIELDS}</Schema>"),
        ("plain", ""),
    )
)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
VALUES = {
    "whole": st.integers(-(2**63), 2**63 - 1) | st.integers(2**53 - 2, 2**53 + 2),
    "price": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal(f"{n}e-10")),
    "at": st.integers(0, 315_537_897_599_999_999).map(
        lambda us: FIRST + timedelta(microseconds=us)
    ),
    "day": st.dates(),
    "open": st.booleans(),
    "near": st.floats(allow_nan=False, allow_infinity=False),
    "note": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "free": st.integers(-(2**63), 2**63 - 1),
    "words": st.text("ab", max_size=2),
}
"""The last two are declared nowhere."""
ROWS = st.lists(
    st.fixed_dictionaries({}, optional={name: st.none() | one for name, one in VALUES.items()}),
    min_size=1,
    max_size=4,
)


server = served(configuration(TOPICS))


def text(value):
    if isinstance(value, Decimal):
        return f"{value:f}"
    return json.dumps(value.isoformat() if isinstance(value, date) else value)


def body(number, row):
    fields = {"id": number} | row
    members = ",".join(f'"{name}":{text(value)}' for name, value in fields.items())
    return f"{{{members}}}"


def held(frame):
    """The values of a frame as Python has them, None for what is missing."""
    found = []
    for row in frame.drop(columns="sow_key", errors="ignore").to_dict("records"):
        values = {name: None if pandas.isna(value) else value for name, value in row.items()}
        if values.get("at") is not None:
            values["at"] = values["at"].to_pydatetime()
        found.append(values)
    return found


async def frames(url):
    """The same records by each way to a frame with asyncio."""
    async with Client(url) as client:
        query = client.query("trades", order_by="/id")
        answer = await query
        yield await query.to_pandas()
        yield await answer.to_pandas()
        async with client.live("trades") as live:
            yield await live.to_pandas()
        async with client.live("trades", order_by="/id", top_n=10) as window:
            yield await window.to_pandas()


def plain_frames(client):
    answer = client.query("trades", order_by="/id")
    yield answer.to_pandas()
    yield client.rows("trades", order_by="/id").all().to_pandas()
    with client.live("trades") as live, client.live("trades", order_by="/id", top_n=10) as window:
        yield live.to_pandas()
        yield window.to_pandas()


@examples(8)
@given(rows=ROWS)
def test_a_frame_holds_the_values_of_the_records_by_each_way_and_back(server, rows):
    server.clear()
    with PlainClient(server.url) as client:
        client.publish("trades", [body(number, row) for number, row in enumerate(rows)])

        async def awaited():
            return [frame async for frame in frames(server.url)]

        found = [*plain_frames(client), *asyncio.run(awaited())]
        for frame in found:
            expected = [{"id": number} | row for number, row in enumerate(rows)]
            assert held(frame) == [
                {name: row.get(name) for name in frame.columns if name != "sow_key"}
                for row in expected
            ]
            assert {*frame.columns} - {"sow_key"} >= {name for row in expected for name in row}
            assert str(frame.dtypes["whole"]) == "Int64"
        client.publish("back", found[0], nan_as_null=True)
        tables = [client.http.table(name, {"order_by": "/id"}) for name in ("trades", "back")]
    assert tables[0].equals(tables[1])


def test_a_frame_with_gaps_is_published_without_a_word_about_nan(server):
    server.clear()
    with PlainClient(server.url) as client:
        records = [{"id": 1, "n": 2**53 + 1, "note": "x"}, {"id": 2, "n": None, "note": None}]
        client.publish("plain", records)
        frame = client.query("plain").to_pandas()
        client.delete("plain", filter="1 = 1")
        client.publish("plain", frame)
        assert client.query("plain").records == records
