"""What is compiled is freed when nobody uses it, without Python's collector of cycles: the server
freezes what has been there for a while (`sow.server.loop.background_work`)."""

import gc
import weakref

import pytest

from sow.core.containers import sweep
from sow.expressions import compile_fields, compile_filter, compile_projection, parse_order_by

TEXTS = {
    "in place": "/a > 1.5",
    "joined": "/a = 1 OR /b IN ('x', 'y') AND NOT /c IS NULL",
    "functions that call each other": "COALESCE(/a, /b, 2) > (/a = 1 OR /b = 2)",
    "patterns": "/a LIKE 'x.*y' OR REGEXP_REPLACE(/b, 'x+', 'y') = 'z'",
    "lists": "/a BEGINS WITH ('x', /b) OR /b IN (/a, 2)",
    "many tests": " OR ".join(f"COALESCE(/a{n}, {n}) = {n}" for n in range(120)),
}


def made_of_filter(text):
    made = compile_filter(f"{text} OR UNIX_TIMESTAMP() > 5")
    made.truth([None] * len(made.sources))
    return [made, made._matches, made.truth, made.at(5), made.at(5)._matches]


def made_of_order(text):
    return [parse_order_by(text)[0].calculate]


def made_of_projection(text):
    made = compile_projection((f"SUM({text}) + /b AS /s",), ("/b",), {"orders": "json"})
    return [made, made._rows, made.arguments[0].values]


def made_of_field(text):
    return [compile_fields((f"{text} AS /z",))._fields[0].evaluate]


@pytest.fixture(autouse=True)
def _no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("form", TEXTS)
@pytest.mark.parametrize(
    "made_of", [made_of_filter, made_of_order, made_of_projection, made_of_field]
)
def test_what_is_compiled_is_freed_after_its_last_use(made_of, form):
    text = TEXTS[form]
    if form == "many tests" and made_of is not made_of_filter:
        text = text[:1_000].rpartition(" OR ")[0]  # of others there may be fewer
    made = [*map(weakref.ref, made_of(text))]
    for _ in range(2):
        list(sweep())
    assert [one() for one in made] == [None] * len(made)
