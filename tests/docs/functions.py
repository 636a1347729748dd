"""docs/functions.md, of the table of functions: ``python -m tests.docs.functions`` writes it."""

from pathlib import Path

import orjson

from sow.expressions.function import EXAMPLE_MESSAGE, EXAMPLE_RECORD
from sow.expressions.functions import FUNCTIONS

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
HEAD = """# Functions

Of [expressions](expressions.md): filters, and fields that are made. This page is made of the
table in the code, as is `GET /v1/functions`; every example is a test. Names are case-blind. An
array counts by its first element, except in `IF` and the functions that take a list. Text is at
most 1 MiB long: a function that would make a longer one gives NULL. Where other languages have
another name for a function, the error says how it is written here.

The examples are computed of

"""


def page() -> str:
    """The whole page."""
    record = orjson.dumps(EXAMPLE_RECORD).decode()
    message = ", ".join(f"`{trait}()` is `{value!r}`" for trait, value in EXAMPLE_MESSAGE.items())
    parts = [HEAD, "```text\n", record, "\n```\n\n", f"in a message of which {message}.\n"]
    for name, function in FUNCTIONS.items():
        parts.append(f"\n## {name}\n\n`{function.signature}`: {function.about}. ")
        parts.append(f"{function.null[0].upper()}{function.null[1:]}.\n\n")
        for example in function.examples:
            result = "NULL" if example.result is None else orjson.dumps(example.result).decode()
            parts.append(f"- `{example.expression}` is `{result}`\n")
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
