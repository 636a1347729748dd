"""Columns over HTTP: the same whatever rows are asked for, before and after a restart."""

from sow.client.sync import Client
from sow.messages.arrow import read_sent
from tests.edge.arrow import ARROW, table
from tests.edge.serving import configuration, records, served

SCHEMA = """<Schema><Field type="decimal(9,2)">/px</Field><Field type="bool">/order/open</Field>
</Schema>"""
TOPICS = f"""<Topic><Name>plain</Name><MessageType>json</MessageType><Key>/id</Key></Topic>
<Topic><Name>trades</Name><MessageType>json</MessageType><Key>/id</Key>{SCHEMA}</Topic>
<ConflatedTopic><Name>trades-C</Name><MessageType>json</MessageType>
<UnderlyingTopic>trades</UnderlyingTopic><Interval>100ms</Interval></ConflatedTopic>"""


place = served(configuration(TOPICS), scope="function")


def requested(server, topic="plain", **parameters):
    return table(server.get(records(topic, **parameters), ARROW))


def types(server, **parameters):
    found = requested(server, **parameters)
    return dict(zip(found.column_names, map(str, found.schema.types), strict=True))


def test_types_are_those_of_the_topic_and_never_of_the_rows(place):
    place.publish("plain", {"id": 1, "v": 1, "w": True}, {"id": 2, "v": 0.5})
    every = {"id": "int64", "v": "double", "w": "string"}
    assert types(place) == every
    assert types(place, filter="/id = 1") == every
    assert types(place, filter="/id = 7") == every
    assert types(place, select="/v") == {"v": "double"}
    assert requested(place, filter="/id = 1").to_pylist() == [{"id": 1, "v": 1.0, "w": "true"}]


def test_a_client_has_the_types_of_the_server(place):
    place.publish("plain", {"id": "1", "d": "2025-01-02"}, {"id": "2", "d": "x", "n": 2**64 - 1})
    with Client(place.url) as client:
        for filter_text in (None, "/id = '1'"):
            found = client.query("plain", filter=filter_text).to_arrow()
            theirs = requested(place, **({"filter": filter_text} if filter_text else {}))
            assert found.schema == theirs.schema
            assert found.equals(theirs)


NDJSON = "application/x-ndjson"


def told(server, topic="plain", **parameters):
    path = records(topic, **parameters)
    headers = {"Accept": NDJSON, "Prefer": "sow-columns"}
    answer = server.request("GET", path, headers=headers)
    assert answer.status == 200, answer.body
    return read_sent(answer.headers["SOW-Columns"])


def test_the_columns_of_an_answer_in_lines_are_sent_to_who_prefers_it(place):
    place.publish("plain", {"id": 1, "v": 1, "w": True}, {"id": 2, "v": 0.5})
    place.publish("trades", {"id": 1, "px": 1.5, "order": {"open": True, "by": "me"}})
    while not requested(place, "trades-C").num_rows:
        pass  # until its interval is over: a record between two answers changes what is known
    assert "SOW-Columns" not in place.get(records("plain"), NDJSON).headers
    for topic, parameters in (
        ("plain", {"filter": "/id = 1"}),
        ("plain", {"select": "/v"}),
        ("trades", {}),
        ("trades-C", {}),
        ("plain", {"projection": "SUM(/v) AS /v,/id", "grouping": "/id"}),
    ):
        known = told(place, topic, **parameters)
        assert known.all
        assert known.schema().equals(
            requested(place, topic, **parameters).schema, check_metadata=True
        )


def test_caches_know_that_what_a_client_prefers_chooses_an_answer_in_lines(place):
    place.publish("plain", {"id": 1, "v": 1})
    plain, told = (
        place.request("GET", records("plain"), headers={"Accept": NDJSON, **prefer})
        for prefer in ({}, {"Prefer": "sow-columns"})
    )
    for answer in (plain, told):
        vary = ", ".join(answer.headers.getall("Vary"))
        assert {"Accept", "Prefer"} <= {*vary.split(", ")}
    assert (plain.body, plain.headers["ETag"] == told.headers["ETag"]) == (told.body, False)
    assert "Prefer" not in ", ".join(place.get(records("plain")).headers.getall("Vary"))
