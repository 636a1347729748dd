"""The time tables in the documents are what happens, whichever engine conflates."""

import re
from pathlib import Path

import pytest

from tests.laws.harness import SparkWorld, World
from tests.laws.tables import play

DOCS = Path(__file__).parents[2] / "docs"
TABLES = [
    pytest.param(table, id=f"{page.stem}-{number}")
    for page in sorted(DOCS.rglob("*.md"))
    for number, table in enumerate(
        re.findall(r"^```timetable\n(.*?)^```", page.read_text(), re.M | re.S), 1
    )
]


@pytest.mark.parametrize("make", [World, SparkWorld], ids=["embedded", "spark"])
@pytest.mark.parametrize("table", TABLES)
def test_a_time_table_is_what_happens(table, make):
    play(table, make)
