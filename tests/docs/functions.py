"""docs/functions.md, generated from the table of functions: ``make docs`` writes it."""

import textwrap
from pathlib import Path

import orjson

from sow.expressions import AGGREGATES, FUNCTIONS
from sow.expressions.function import EXAMPLE_MESSAGE, EXAMPLE_RECORD, Function
from sow.expressions.functions import EXAMPLE_RECORDS

WIDTH = 150
"""Of a line of the page."""
PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
HEAD = """# Functions

The functions of [expressions](expressions.md), generated from the table in the code, as is `GET
/v1/functions`; every example is a test. Names are case-insensitive. An array counts by its first
element, except in `IF` and the functions that take a list. A function that would make a text
longer than 1 MiB gives NULL. If a function has another name in another language, the error gives
the name to write. The examples are computed from
"""
AGGREGATES_HEAD = """# Aggregates

Aggregates are written in the projection of a view or of an aggregated query, alone or inside an
expression, and cover all current records of a group. NULLs do not count, and an array counts by
its first element. A path alone is the value of the record that changed last. An aggregate is not
allowed inside another one, nor in a filter, an order or an enrichment.

For `SUM`, `AVG` and the deviations, texts that spell a number are numbers; anything else makes
the result NaN. For the others, values compare as in filters: two texts as texts, a text and a
number as numbers. Of equal values of several kinds a number comes before a text, and in a group
with whole numbers and doubles `2.0` is written `2`. Types such as FIX have only texts: `MAX(/44 *
1)` is the largest number. In the examples the group has
"""


def page() -> str:
    """The whole page."""
    record = orjson.dumps(EXAMPLE_RECORD).decode()
    message = ", ".join(f"`{trait}()` is `{value!r}`" for trait, value in EXAMPLE_MESSAGE.items())
    parts = [
        _filled(HEAD),
        "```text\n",
        record,
        "\n```\n\n",
        f"in a message in which {message}.\n\n",
    ]
    parts += [_described(function) for function in FUNCTIONS.values()]
    parts += ["\n", _filled(AGGREGATES_HEAD), "```text\n"]
    for one in EXAMPLE_RECORDS:
        parts.append(f"{orjson.dumps(one).decode()}\n")
    parts.append("```\n\n")
    parts += [_described(aggregate) for aggregate in AGGREGATES.values()]
    return "".join(parts)


def _filled(text: str) -> str:
    """Its paragraphs, in lines of the page."""
    paragraphs = (textwrap.fill(one, WIDTH) for one in text.split("\n\n"))
    return "".join(f"{one}\n\n" for one in paragraphs)


def _described(function: Function) -> str:
    null = f"{function.null[0].upper()}{function.null[1:]}"
    return f"- `{function.signature}`: {function.about}. {null}. {_examples(function)}\n"


def _examples(function: Function) -> str:
    results = [
        "NULL" if one.result is None else orjson.dumps(one.result).decode()
        for one in function.examples
    ]
    return ", ".join(
        f"`{one.expression}` = `{result}`"
        for one, result in zip(function.examples, results, strict=True)
    )
