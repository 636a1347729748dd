"""Superficial checks of a query, which catch a slip without starting Spark.

Spark's own parser decides, and `sow check --spark` runs it. Only what is never a query of Spark's
is reported here: one that does not begin like one, an open bracket or quote, a second statement,
and a view that no query reads.
"""

import re
from collections.abc import Iterable

BEGINNINGS = ("select", "with", "from", "values", "table")
TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`"
    r"|[A-Za-z_]\w*|[()'\"`;]|/\*",
    re.DOTALL,
)
OPEN = {"'": "a quote '", '"': 'a quote "', "`": "a quote `", "/*": "a comment /*"}
COMMENTS = ("--", "/*")


def problem(text: str, views: Iterable[str]) -> str:
    """What is wrong, with the line of the text; empty if nothing is seen. All `views` are to be
    read."""
    brackets: list[int] = []
    words: list[str] = []
    ended = False
    for token in TOKEN.finditer(text):
        found, line = token[0], text.count("\n", 0, token.start()) + 1
        if found in OPEN:
            return f"in its line {line} {OPEN[found]} is left open"
        if found.startswith(COMMENTS):
            continue
        if ended and found != ";":
            return f"in its line {line} a second statement begins, and a pipeline has one"
        ended = found == ";"
        if found == "(":
            brackets.append(line)
        elif found == ")":
            if not brackets:
                return f"in its line {line} a bracket is closed that was not opened"
            brackets.pop()
        elif found[0].isalpha() or found[0] in "_`":
            words.append(found.strip("`").lower())
    if brackets:
        return f"in its line {brackets[-1]} a bracket is left open"
    if not words or words[0] not in BEGINNINGS:
        return f"it begins with {words[0] if words else 'nothing'}"
    unread = next((view for view in views if view.lower() not in words), None)
    return "" if unread is None else f"it does not read {unread}"
