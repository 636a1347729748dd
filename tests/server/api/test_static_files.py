"""Static files: the JavaScript client and the console, as browsers get them.

The description of all addresses: what OpenAPI takes, and what the tables say.
"""

import copy
import json
import re
from itertools import chain
from pathlib import Path

import msgspec
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from sow.core.media_types import JSON
from sow.server.api.static_files import (
    CONSOLE_FOLDER,
    SHIPPED_TYPES,
    Pages,
    ShippedFile,
    description,
)
from sow.server.boot.routes import TABLE
from sow.server.http.route import Route
from tests.cases import all_cases
from tests.server.stand_ins import Served, World, routes_to, stepped


def place(folder=CONSOLE_FOLDER):
    made = Pages(folder)
    return Served(
        World(),
        *routes_to(made),
    )


@stepped
async def test_the_page_comes_with_what_it_may_do():
    async with place() as served:
        answer = await served.get("/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-cache"


@stepped
async def test_who_has_a_file_is_not_sent_it_again(tmp_path):
    (tmp_path / "index.html").write_text("one")
    async with place(tmp_path) as served:
        first = await served.get("/")
        again = await served.get("/", **{"If-None-Match": first.headers["ETag"]})
    assert (again.status, again.body) == (304, b"")
    (tmp_path / "index.html").write_text("two")
    async with place(tmp_path) as served:
        later = await served.get("/", **{"If-None-Match": first.headers["ETag"]})
    assert (later.status, later.body) == (200, b"two")


@stepped
async def test_what_is_no_file_of_the_console_is_not_there(tmp_path):
    (tmp_path / "secret.js").write_text("secret")
    (tmp_path / "console").mkdir()
    (tmp_path / "console" / "index.html").write_text("page")
    (tmp_path / "console" / "notes").write_text("of no kind that is served")
    async with place(tmp_path / "console") as served:
        for path in (
            "/console/secret.js",
            "/console/..%2Fsecret.js",
            "/console/%2E%2E/secret.js",
            "/console/vendored/none.js",
            "/console/notes",
            "/console/" + "x" * 300,
        ):
            answer = await served.get(path)
            assert answer.status == 404, path
            assert len(answer.body) < 1000
            assert b"secret\n" not in answer.body


@stepped
async def test_every_file_that_is_served_is_sent_as_what_it_is():
    async with place() as served:
        for name in Pages().names():
            answer = await served.get(f"/console/{name}")
            assert answer.body == (CONSOLE_FOLDER / name).read_bytes()
            kind = SHIPPED_TYPES[Path(name).suffix]
            assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"


OWN = [
    path
    for path in CONSOLE_FOLDER.rglob("*")
    if path.is_file() and path.parent.name != "vendored" and path.suffix in SHIPPED_TYPES
]


@all_cases("path", OWN)
def test_all_that_a_file_names_is_there_and_relative(path):
    text = path.read_text()
    named = re.findall(r'(?:\bfrom|\bimport|href=|src=)\s*\(?"([^"$#]+)"', text)
    root = path.parent if path.suffix == ".js" else CONSOLE_FOLDER.parent
    for name in named:
        assert not re.match(r"[a-z]+:|/", name), f"{name} would leave a proxy's path prefix"
        found = (root / name).resolve()
        if found == CONSOLE_FOLDER.parent / "sow.js":
            found = CONSOLE_FOLDER / "sow.js"  # which is served beside the folder
        assert found.is_relative_to(CONSOLE_FOLDER), name
        assert found.is_file(), name


def forbidden_in(text):
    """What makes markup of a text, or goes elsewhere."""
    calls = r"\b(?:innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet\w+|eval\()"
    elsewhere = r"https?://(?!www\.w3\.org/|127\.0\.0\.1)[\w.]+"
    return re.findall(f"{calls}|{elsewhere}", text)


@all_cases("path", OWN)
def test_nothing_makes_markup_of_texts_or_calls_another_server(path):
    assert forbidden_in(path.read_text()) == []


def test_what_would_is_found():
    for planted in ("cell.innerHTML = text", "eval(text)", 'fetch("https://example.org/x")'):
        assert forbidden_in(planted)


@all_cases("path", [one for one in OWN if one.suffix == ".js"])
def test_each_script_opens_with_what_it_is_for(path):
    assert re.match(r"(//.*\n)+\n|/\*", path.read_text())


def shipped(name):
    return Served(World(), Route("GET", f"/{name}", "nothing", ShippedFile(name).handle, ""))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sow.js", "text/javascript"), ("sow.d.ts", "application/typescript")],
)
@stepped
async def test_a_file_is_handed_out_as_what_it_is(name, kind):
    async with shipped(name) as place:
        answer = await place.get(f"/{name}")
        assert answer.status == 200
        assert answer.body == (CONSOLE_FOLDER / name).read_bytes()
        assert answer.headers["Content-Type"] == f"{kind}; charset=utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert answer.headers["Cache-Control"] == "no-cache"


@stepped
async def test_who_has_it_is_sent_so():
    async with shipped("sow.js") as place:
        etag = (await place.get("/sow.js")).headers["ETag"]
        for known in (etag, f'"old", W/{etag}', "*"):
            answer = await place.ask("GET", "/sow.js", headers={"If-None-Match": known})
            assert (answer.status, answer.body, answer.headers["ETag"]) == (304, b"", etag)
        other = {"If-None-Match": '"old"'}
        assert (await place.ask("GET", "/sow.js", headers=other)).status == 200


@stepped
async def test_a_parameter_reaches_no_file():
    async with shipped("sow.js") as place:
        assert (await place.get("/sow.js?version=1")).status == 400


DECLARED = {f"{route.method} {route.path}": route.operation for route in TABLE}
DESCRIBED = description(TABLE)
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DESCRIBED["paths"].items()
    for method, operation in methods.items()
}


def test_it_is_openapi():
    assert DESCRIBED["openapi"] == "3.1.0"
    assert list(OpenAPIV31SpecValidator(DESCRIBED).iter_errors()) == []
    json.dumps(DESCRIBED)


def test_what_is_no_openapi_is_found():
    wrong = {**DESCRIBED, "paths": {"/x/{y}": {"get": {"responses": {"200": {}}}}}}
    assert list(OpenAPIV31SpecValidator(wrong).iter_errors())


def test_each_operation_has_a_name_of_its_own():
    names = [operation["operationId"] for operation in OPERATIONS.values()]
    assert len(set(names)) == len(names)
    assert all(name.isidentifier() for name in names)


@all_cases("name", OPERATIONS)
def test_an_operation_says_what_is_answered_and_how_it_is_refused(name):
    answers = copy.deepcopy(OPERATIONS[name]["responses"])
    assert {"200", "101"} & answers.keys()
    for status, answer in answers.items():
        if status >= "400":
            problem = answer["content"].pop("application/problem+json")
            assert problem["schema"] == {"$ref": "#/components/schemas/Problem"}
            also = DECLARED[name].answers if int(status) in DECLARED[name].also else ()
            assert tuple(answer["content"]) == also
    assert bool(OPERATIONS[name]["security"]) == ("401" in answers)


@all_cases("name", [name for name, one in DECLARED.items() if one.takes])
def test_what_takes_a_body_says_in_which_forms(name):
    assert list(OPERATIONS[name]["requestBody"]["content"]) == [*DECLARED[name].takes]
    assert "415" in OPERATIONS[name]["responses"]


def test_what_is_json_has_a_type_that_can_be_read():
    for operation in DECLARED.values():
        msgspec.json.Decoder(operation.answer)
        msgspec.json.Decoder(operation.body)
        assert (JSON in operation.answers) or operation.answer is not None


def test_schemas_are_those_of_the_types():
    schemas = DESCRIBED["components"]["schemas"]
    assert schemas["Published"]["required"] == ["published", "bookmark"]
    assert schemas["Commit"]["properties"]["mode"]["enum"] == ["replace", "update"]
    used = json.dumps(DESCRIBED)
    assert [name for name in schemas if f'#/components/schemas/{name}"' not in used] == []


def schema_of(name):
    return OPERATIONS[name]["responses"]["200"]["content"]["application/json"]["schema"]


def test_an_answer_of_two_kinds_has_both():
    rows, explained = schema_of("GET /v1/topics/{topic}/records")["anyOf"]
    assert rows == {"type": "array", "items": {}}
    assert explained == {"$ref": "#/components/schemas/QueryExplained"}
    kinds = schema_of("GET /v1/topics")["items"]["anyOf"]
    assert {"type": "string"} in kinds
    assert {"$ref": "#/components/schemas/TopicDescribed"} in kinds


def test_what_has_to_be_there_is_required():
    required = {
        name: [one["name"] for one in operation["parameters"] if one["required"]]
        for name, operation in OPERATIONS.items()
    }
    assert required["POST /v1/snapshots"] == ["topic"]
    assert required["POST /v1/sessions"] == ["filter"]
    assert required["GET /v1/topics/{topic}/records"] == ["topic"]


def test_parameters_have_their_types():
    found = {
        one["name"]: one["schema"]["type"]
        for one in chain(*(operation["parameters"] for operation in OPERATIONS.values()))
    }
    kinds = {"meta": "boolean", "top_n": "integer", "wait": "number", "topic": "string"}
    kinds |= {"names": "boolean", "members": "boolean"}
    assert kinds.items() <= found.items()


def test_an_address_that_nobody_has_described_is_described_by_what_the_table_says():
    async def handler(_request):
        raise AssertionError

    described = description([Route("GET", "/x", "logon", handler, "A thing", ("a",))])
    assert described["paths"]["/x"]["get"]["summary"] == "A thing"
