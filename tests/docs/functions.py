"""docs/functions.md, of the table of functions: ``make docs`` writes it."""

from pathlib import Path

import orjson

from sow.expressions import AGGREGATES, FUNCTIONS
from sow.expressions.aggregates import EXAMPLE_RECORDS, AggregateFunction
from sow.expressions.function import EXAMPLE_MESSAGE, EXAMPLE_RECORD, Function

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
HEAD = """# Functions

Of [expressions](expressions.md): filters, and fields that are made. This page is made of the
table in the code, as is `GET /v1/functions`; every example is a test. Names are case-blind. An
array counts by its first element, except in `IF` and the functions that take a list. Text is at
most 1 MiB long: a function that would make a longer one gives NULL. Where other languages have
another name for a function, the error says how it is written here.

The examples are computed of

"""


AGGREGATES_HEAD = """
# Aggregates

They stand in the projection of a view or of an aggregated query, alone or inside an
expression, and are of all records of a group together: a row is a function of the records that
there are, whatever came and went. NULLs do not count, and an array counts by its first element. A
path alone is the value of the record that changed last. An aggregate does not stand inside another
one, nor where one record is asked about: in a filter, an order, an enrichment.

Texts that spell a number are numbers to `SUM`, `AVG` and the deviations; what is neither makes them
NaN. For the others, values compare as in filters: two texts as texts, a text and a number as
numbers. Of equal values of several kinds a number is written before a text, and where whole numbers
and doubles are in one group, `2.0` is written `2`. Types such as FIX have nothing but texts: write
`MAX(/44 * 1)` for the largest number.

The examples are of a group of these records, in this order:

```text
"""


def page() -> str:
    """The whole page."""
    record = orjson.dumps(EXAMPLE_RECORD).decode()
    message = ", ".join(f"`{trait}()` is `{value!r}`" for trait, value in EXAMPLE_MESSAGE.items())
    parts = [HEAD, "```text\n", record, "\n```\n\n", f"in a message of which {message}.\n"]
    for name, function in FUNCTIONS.items():
        parts.append(_described(name, function))
    parts.append(AGGREGATES_HEAD)
    for one in EXAMPLE_RECORDS:
        parts.append(f"{orjson.dumps(one).decode()}\n")
    parts.append("```\n")
    for name, aggregate in AGGREGATES.items():
        parts.append(_described(name, aggregate))
    return "".join(parts)


def _described(name: str, function: Function | AggregateFunction) -> str:
    parts = [f"\n## {name}\n\n`{function.signature}`: {function.about}. "]
    parts.append(f"{function.null[0].upper()}{function.null[1:]}.\n\n")
    for example in function.examples:
        result = "NULL" if example.result is None else orjson.dumps(example.result).decode()
        parts.append(f"- `{example.expression}` is `{result}`\n")
    return "".join(parts)
