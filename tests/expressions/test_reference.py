"""docs/expressions.md says what happens: each row of its tables is run here."""

import json
import re
from pathlib import Path

import pytest

from sow.core.paths import value_at
from sow.errors import BadFilter
from sow.expressions import compile_filter
from tests.cases import all_cases

DOCUMENT = Path(__file__).parents[2] / "docs" / "expressions.md"
ROW = re.compile(r"\| `(?P<text>.+)` \| `(?P<record>\{.*\})` \| (?P<result>true|false|NULL) \|")
OUTCOMES = {"true": True, "false": False, "NULL": None}
ROWS = [found.groups() for found in ROW.finditer(DOCUMENT.read_text(encoding="utf-8"))]
ERROR = re.compile(r"^\| `(?P<text>[^`]+)` \| (?P<detail>.+ at position .+|there is .+) \|$", re.M)
ERRORS = [found.groups() for found in ERROR.finditer(DOCUMENT.read_text(encoding="utf-8"))]


def test_the_tables_are_found():
    assert len(ROWS) > 70
    assert len(ERRORS) == 4


@all_cases(("text", "record", "result"), ROWS)
def test_an_example_of_the_reference_holds(text, record, result):
    compiled = compile_filter(text)
    document = json.loads(record)
    values = [value_at(document, path) for path in compiled.paths]
    assert compiled.truth(values) is OUTCOMES[result]


@pytest.mark.parametrize(("text", "detail"), ERRORS)
def test_an_error_of_the_reference_reads_as_printed(text, detail):
    with pytest.raises(BadFilter) as error:
        compile_filter(text)
    assert error.value.detail == detail
