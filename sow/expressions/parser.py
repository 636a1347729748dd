"""From text to nodes.

Lark reads the text by the grammar beside this file (LALR: linear time, and a stack of its own,
so nesting cannot exhaust Python's) and hands what it finds to the Builder. Sizes are checked
first, errors put into words after. Says nothing about what nodes mean.
"""

import re
from functools import cache
from importlib.resources import files
from typing import cast

from lark import Lark, UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from sow.errors import TooLarge
from sow.expressions.builder import Builder, as_condition
from sow.expressions.nodes import Identifier, Node, below, walk
from sow.expressions.syntax_errors import syntax_error

BYTES_MAX = 64 * 1024
"""Of a filter, unless Limits/FilterSize says otherwise: thousands of keys in an IN. Reading and
compiling takes some 5 ms a KiB (docs/limits.md)."""
EXPRESSION_DEPTH_MAX = 200
"""Levels of a filter, unless Limits/FilterDepth says otherwise. More than any program writes, and
below what Python's stack takes."""
FIELDS_MAX = 256
"""Distinct fields of a filter: each is read of every message, at the cost of whoever publishes."""
# Printing and compiling a node take a few frames of Python's stack for each level.
_DEPTH_CEILING = 250

# Every opening quote or bracket matches, closed or not, so that a scan is one pass.
_STRING_OR_PARENTHESIS = re.compile(
    r"""r'[^']*'?|r"[^"]*"?|'(?:[^'\\]|\\.?)*'?|"(?:[^"\\]|\\.?)*"?|\[/[^\]]*\]?|[()]""",
    re.I | re.S,
)


def parse(text: str, *, bytes_max: int = BYTES_MAX, depth_max: int = EXPRESSION_DEPTH_MAX) -> Node:
    """The condition that `text` states.

    Raises BadFilter with the character position of the mistake, NotAvailable for what is not
    built yet, TooLarge for more than `bytes_max` bytes, `depth_max` levels of nesting (250 are
    the most that can be allowed) or FIELDS_MAX fields.
    """
    encoded = text.encode(errors="surrogatepass")
    size = len(encoded)
    if size > bytes_max:
        raise TooLarge(
            f"the filter has {size} bytes and the limit is {bytes_max}; shorten it",
            position=len(encoded[:bytes_max].decode(errors="ignore")),
            expected=f"at most {bytes_max} bytes",
        )
    depth_max = min(depth_max, _DEPTH_CEILING)
    _check_parentheses(text, depth_max)
    try:
        node = as_condition(cast(Node, _parser().parse(text)))
    except UnexpectedInput as error:
        raise syntax_error(text, position_of(error, text), _accepted(error)) from None
    if (deepest := below(node, depth_max)) is not None:
        raise _too_deep(depth_max, deepest.position)
    _check_fields(node)
    return node


def _check_fields(node: Node) -> None:
    paths = set()
    for part in walk(node):
        if isinstance(part, Identifier):
            paths.add(part.path)
            if len(paths) > FIELDS_MAX:
                raise TooLarge(
                    f"the filter names more than {FIELDS_MAX} different fields; name fewer",
                    position=part.position,
                    expected=f"at most {FIELDS_MAX} different fields",
                )


def _check_parentheses(text: str, depth_max: int) -> None:
    level = 0
    for found in _STRING_OR_PARENTHESIS.finditer(text):
        level += (found[0] == "(") - (found[0] == ")")
        if level > depth_max:
            raise _too_deep(depth_max, found.start())


def _too_deep(depth_max: int, position: int) -> TooLarge:
    return TooLarge(
        f"the filter nests deeper than the limit of {depth_max} levels; flatten it",
        position=position,
        expected=f"at most {depth_max} levels",
    )


def position_of(error: UnexpectedInput, text: str) -> int:
    """The character at which reading stopped."""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return len(text)
    return error.pos_in_stream or 0


def _accepted(error: UnexpectedInput) -> frozenset[str]:
    if isinstance(error, UnexpectedToken | UnexpectedCharacters):
        return frozenset(error.interactive_parser.accepts())  # type: ignore[no-untyped-call]
    return frozenset()


@cache
def _parser() -> Lark:
    grammar = files("sow.expressions").joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=True, transformer=Builder())
