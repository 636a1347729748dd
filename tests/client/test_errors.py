from sow.client.errors import failure
from sow.client.socket import read_lines
from sow.errors import (
    BadFilter,
    BadMessage,
    ClientError,
    DiskFull,
    InvalidTopic,
    NotAvailable,
    SowError,
    TooLarge,
    UnknownRecord,
    UnknownTopic,
)
from sow.protocol.replies import failure as ack_of
from tests.cases import all_cases

ERRORS = [
    BadFilter("x", position=3, expected="y"),
    BadFilter("x", position=3, reason="bad orderby"),
    BadMessage("x", index=7),
    ClientError("x"),
    ClientError("x", reason="invalid options"),
    DiskFull("x"),
    InvalidTopic("x is a conflated topic"),
    ClientError("x", reason="invalid options", position=2, expected="y"),
    NotAvailable("x is not available yet"),
    NotAvailable("x is not available yet", position=3, expected="y"),
    TooLarge("x"),
    TooLarge("x", position=65_536, expected="y"),
    UnknownRecord("x"),
    UnknownTopic("no topic 'x'"),
]


@all_cases("error", ERRORS)
def test_a_problem_is_the_error_that_the_server_raised(error):
    report = {"reason": error.reason, "detail": error.detail, "status": error.status}
    found = failure(report | error.fields())
    assert (type(found), found.reason, found.detail) == (type(error), error.reason, error.detail)
    assert found.fields() == error.fields()


@all_cases("error", ERRORS)
def test_a_failure_ack_is_the_error_that_the_server_raised(error):
    found = failure(ack_of("1", error))
    assert (type(found), found.reason, found.fields()) == (
        type(error),
        error.reason,
        error.fields(),
    )


def test_what_is_not_known_is_the_server_s_fault_from_500_on():
    assert type(failure({"status": 500, "reason": "new", "detail": "x"})) is SowError
    assert type(failure({"status": 418, "reason": "new", "detail": "x"})) is ClientError


def test_a_field_that_does_not_fit_is_named():
    error = failure({"detail": "why", "index": 3, "field": "/px", "reason": "bad message"})
    assert (error.index, error.field) == (3, "/px")
    (line,) = read_lines(b'{"c":"ack","status":"failure","detail":"why","index":0,"field":"/px"}')
    assert line.error().field == "/px"
