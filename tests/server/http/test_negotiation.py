"""What headers settle: the form of an answer, whether it is known, how a body reads."""

import pytest

from sow.errors import BadMessage, ClientError
from sow.server.http.negotiation import (
    NotAcceptable,
    UnsupportedMediaType,
    accepted,
    as_utf8,
    entity_tag,
    form_of,
    is_known,
    wants_columns,
)
from tests.cases import all_cases
from tests.server.stand_ins import request_of

JSON, LINES, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow"


def chosen(*accept):
    headers = [("Accept", text) for text in accept]
    return accepted(request_of(headers=headers), (JSON, LINES, ARROW))


@all_cases(
    ("accept", "kind"),
    [
        ((), JSON),
        (("*/*",), JSON),
        ((LINES,), LINES),
        ((f"{JSON};q=0.5, {LINES}",), LINES),
        ((f"*/*, {LINES}",), LINES),
        ((f"{ARROW}, {LINES}",), ARROW),
        ((f"application/*;q=0.5, {JSON};q=0.1",), LINES),
        ((f"{JSON};q=0, */*",), LINES),
        (("text/html", f"{LINES};q=0.1"), LINES),
        ((f"{LINES.upper()} ; Q=1.000",), LINES),
        ((f"{JSON};q=0.001, text/csv",), JSON),
    ],
)
def test_the_format_that_the_client_likes_best_is_made(accept, kind):
    assert chosen(*accept) == kind


def test_what_cannot_be_made_is_refused_with_what_can():
    with pytest.raises(NotAcceptable, match=f"accept {JSON}, {LINES}, {ARROW}") as caught:
        chosen("text/html")
    assert caught.value.status == 406


def test_a_parameter_goes_before_the_header_and_names_what_can_be_made():
    request = request_of(headers=[("Accept", LINES)])
    formats = (JSON, LINES, "text/csv")
    assert form_of(request, {}, formats) == LINES
    assert form_of(request, {"format": "csv"}, formats) == "text/csv"
    for wrong in ("arrow", "xml", ""):
        with pytest.raises(ClientError, match="write one of json, ndjson, csv"):
            form_of(request, {"format": wrong}, formats)


@pytest.mark.parametrize("quality", ["2", "-1", "0.1234", "much", ""])
def test_a_quality_that_is_none_is_a_mistake(quality):
    with pytest.raises(ClientError, match="q is a number from 0 to 1"):
        chosen(f"{JSON};q={quality}")


@pytest.mark.parametrize(
    ("headers", "known"),
    [
        ([], False),
        (['"7"'], True),
        (['"5", W/"7"'], True),
        (['"5"', '"7"'], True),
        (["*"], True),
        (['"77"'], False),
        (["7"], False),
    ],
)
def test_an_entity_tag_is_known_in_whatever_list_it_stands(headers, known):
    request = request_of(headers=[("If-None-Match", text) for text in headers])
    assert is_known(request, '"7"') is known


def typed(content_type):
    return request_of("POST", headers={"Content-Type": content_type})


@pytest.mark.parametrize(
    ("charset", "encoding"),
    [
        ("utf-8", "utf-8"),
        ("ISO-8859-1", "latin-1"),
        ("windows-1252", "cp1252"),
        ("utf-16", "utf-16"),
    ],
)
def test_text_becomes_utf_8_whatever_it_came_in(charset, encoding):
    body = "Zürich".encode(encoding)
    assert as_utf8(typed(f"text/plain; charset={charset}"), body) == "Zürich".encode()


def test_a_body_without_a_charset_is_left_to_whoever_reads_it():
    assert as_utf8(typed("text/plain"), b"\xff") == b"\xff"


def test_another_charset_is_refused_by_name():
    with pytest.raises(UnsupportedMediaType, match="charset ebcdic is not understood") as caught:
        as_utf8(typed("text/plain; charset=ebcdic"), b"")
    assert caught.value.status == 415


def test_a_body_that_is_not_in_its_charset_is_bad_at_a_byte():
    with pytest.raises(BadMessage, match="byte 1 of the body is not ascii"):
        as_utf8(typed("text/plain; charset=us-ascii"), b"a\xff")


def test_an_entity_tag_is_of_a_form_and_its_numbers():
    tags = [entity_tag(b"{}", 7), entity_tag(b"{}", 7, 3), entity_tag(b"", 7), entity_tag(b"{}", 8)]
    assert len(set(tags)) == 4
    request = request_of(headers=[("If-None-Match", f"{tags[0]}, W/{tags[1]}")])
    assert [is_known(request, tag) for tag in tags] == [True, True, False, False]


@pytest.mark.parametrize("prefer", ["sow-columns", "respond-async, SOW-Columns", " sow-columns ,x"])
def test_columns_are_sent_to_who_prefers_it(prefer):
    assert wants_columns(request_of(headers=[("Prefer", prefer)]))
    assert not wants_columns(request_of(headers=[("Prefer", "sow-column")]))
    assert not wants_columns(request_of())


@pytest.mark.parametrize("charset", ["", "; charset=utf-8", "; charset=utf-16-le"])
def test_a_byte_order_mark_is_no_part_of_a_text(charset):
    request = request_of(headers=[("Content-Type", f"application/json{charset}")])
    encoding = charset.rpartition("=")[2] or "utf-8"
    assert as_utf8(request, "\ufeff{}".encode(encoding)) == b"{}"
    assert as_utf8(request, "{}".encode(encoding)) == b"{}"
