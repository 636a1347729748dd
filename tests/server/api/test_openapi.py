"""The description of all addresses: what OpenAPI takes, and what the tables say."""

import copy
import json
from itertools import chain

import msgspec
from openapi_spec_validator import OpenAPIV31SpecValidator

from sow.core.media_types import JSON
from sow.server.api.openapi import description
from sow.server.boot.routes import TABLE
from sow.server.http.route import Route
from tests.cases import all_cases

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
