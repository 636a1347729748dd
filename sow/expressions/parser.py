"""Parses text into nodes.

Lark makes tables of the grammar beside this file (LALR: linear time, and a stack of its own, so
nesting cannot exhaust Python's). A short loop reads a text by them and calls the Builder for each
rule; what it cannot read, Lark reads again to say where it stops. Sizes are checked first; errors
are explained after. Does not evaluate anything.
"""

import pickle
import re
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple, cast

from lark import Lark, Token, UnexpectedInput, UnexpectedToken
from lark import __version__ as lark_version
from lark.grammar import Rule
from lark.lexer import TerminalDef
from lark.parse_tree_builder import ExpandSingleChild
from lark.parsers.lalr_analysis import Shift

from sow.errors import BadFilter, TooLarge, clipped
from sow.expressions.builder import Builder, Construction, Term
from sow.expressions.functions import AGGREGATES
from sow.expressions.nodes import Call, Identifier, Node, Parameter, as_condition, below, walk
from sow.expressions.syntax_errors import syntax_error

PARSER_OPTIONS: dict[str, Any] = {
    "parser": "lalr",
    "start": ["start", "field", "projected", "order"],
    "maybe_placeholders": True,
}
TABLES = Path(__file__).with_name("grammar.tables")
"""What Lark makes of the grammar, which takes some 50 ms: it is made once (`tables`)."""
BYTES_MAX = 64 * 1024
"""Length of a filter, by default (Limits/FilterSize): thousands of keys in an IN. Parsing and
compiling such a list takes some 0.5 ms a KiB; other filters are bounded by TERMS_MAX."""
EXPRESSION_DEPTH_MAX = 200
"""Levels of a filter, by default (Limits/FilterDepth). More than any program writes, and less than
Python's stack allows."""
FIELD_BYTES_MAX = 4096
"""Terms of a field construction, which an operator writes and which runs for every message."""
FIELD_DEPTH_MAX = 100
"""Levels of a field construction, and of an order."""
ORDER_BYTES_MAX = 8 * 1024
"""Terms of an order: 32 values of some length."""
STATES = ("CURRENT", "PREVIOUS")
"""States of a record that a field can be made of: the message that has come, and what there was
before it."""
TERMS_MAX = 2000
"""Terms of an expression: names, literals, operators, parentheses and commas; a list of literals is
one. Parsing and compiling takes 10 to 20 us a term, and must not block for 50 ms. That is some 500
comparisons joined by OR."""
FIELDS_MAX = 256
"""Distinct fields of an expression: each is decoded from every message, which slows publishes."""
# Printing and compiling a node take a few frames of Python's stack for each level.
_DEPTH_CEILING = 250

# Every opening quote or bracket matches, closed or not, so that a scan is one pass.
_STRING_OR_PARENTHESIS = re.compile(
    r"""r'[^']*'?|r"[^"]*"?|'(?:[^'\\]++|\\.?)*+'?|"(?:[^"\\]++|\\.?)*+"?|\[/[^\]]*\]?|[()]""",
    re.I | re.S,
)


def parse(
    text: str,
    *,
    bytes_max: int = BYTES_MAX,
    depth_max: int = EXPRESSION_DEPTH_MAX,
    terms_max: int = TERMS_MAX,
) -> Node:
    """The condition that `text` states.

    Raises BadFilter with the character position of the mistake, NotAvailable for what is not
    built yet, TooLarge for more than `bytes_max` bytes, `depth_max` levels of nesting (250 are
    the most that can be allowed), `terms_max` terms or FIELDS_MAX fields.
    """
    limits = _Limits("filter", bytes_max, min(depth_max, _DEPTH_CEILING), terms_max)
    node = as_condition(cast(Node, _read(text, "start", limits)))
    limits.check(node)
    return node


def parse_guard(text: str, prefix: str) -> Node:
    """The condition in `text`, which may have parameters with names that begin with `prefix`;
    raises what `parse` does."""
    limits = _Limits("filter", BYTES_MAX, EXPRESSION_DEPTH_MAX, parameters=prefix)
    node = as_condition(cast(Node, _read(text, "start", limits)))
    limits.check(node)
    return node


def parse_field(text: str, states: Collection[str] = STATES) -> Construction:
    """The field construction in `text`; raises what `parse` does.

    `states` are those of the record that it may read with OF.
    """
    limits = _Limits("field", FIELD_BYTES_MAX, FIELD_DEPTH_MAX)
    construction = cast(Construction, _read(text, "field", limits))
    limits.check(construction.value, states)
    return construction


def parse_projected(text: str, what: str = "projection") -> Construction:
    """The field of a row in `text`, or the path alone; raises what `parse` does. `what` names the
    text in errors."""
    limits = _Limits(what, FIELD_BYTES_MAX, FIELD_DEPTH_MAX)
    construction = cast(Construction, _read(text, "projected", limits))
    limits.check(construction.value, of_groups=True)
    return construction


def parse_grouped(text: str) -> Node:
    """The value that `text` states, by which records are to be grouped; raises what `parse`
    does."""
    limits = _Limits("grouping", FIELD_BYTES_MAX, FIELD_DEPTH_MAX)
    node = cast(Node, _read(text, "start", limits))
    limits.check(node, of_groups=True)
    return node


def parse_order(text: str) -> tuple[Term, ...]:
    """The terms of the order that `text` states; raises what `parse` does."""
    limits = _Limits("order_by", ORDER_BYTES_MAX, FIELD_DEPTH_MAX)
    terms = cast(tuple[Term, ...], _read(text, "order", limits))
    for term in terms:
        limits.check(term.value)
    return terms


def _read(text: str, start: str, limits: "_Limits") -> object:
    limits.check_text(text)
    found = _tables().read(text, start, limits)
    return _explained(text, start, limits) if found is None else found


def _explained(text: str, start: str, limits: "_Limits") -> object:
    """The same by Lark, which knows where it stops and what could have followed."""
    parsing = _parser().parse_interactive(text, start=start)
    try:
        for terms, token in enumerate(parsing.iter_parse()):
            if terms == limits.terms_max:
                raise limits.too_many_terms(token.start_pos or 0)
        return cast(object, parsing.feed_eof())  # type: ignore[no-untyped-call]
    except UnexpectedInput as error:
        accepted = frozenset(parsing.accepts())  # type: ignore[no-untyped-call]
        raise syntax_error(text, position_of(error, text), accepted, limits.what) from None


class _Limits(NamedTuple):
    """The limits of an expression; `what` names it in errors."""

    what: str
    bytes_max: int
    depth_max: int
    terms_max: int = TERMS_MAX
    parameters: str = ""
    """The prefix of parameters' names; if empty, there are none."""

    def check_text(self, text: str) -> None:
        """Refuse what need not be read to be too large."""
        encoded = text.encode(errors="surrogatepass")
        size = len(encoded)
        if size > self.bytes_max:
            raise TooLarge(
                f"the {self.what} has {size} bytes and the limit is {self.bytes_max}; shorten it",
                position=len(encoded[: self.bytes_max].decode(errors="ignore")),
                expected=f"at most {self.bytes_max} bytes",
            )
        level = parentheses = 0
        for found in _STRING_OR_PARENTHESIS.finditer(text):
            if found[0] not in "()":
                continue
            level += 1 if found[0] == "(" else -1
            parentheses += 1
            if level > self.depth_max:
                raise self._too_deep(found.start())
            if parentheses > self.terms_max:
                break  # it is not read any further

    def check(self, node: Node, states: Collection[str] = (), of_groups: bool = False) -> None:
        """Refuse expressions that nest too deeply, read too much, or read a state beyond `states`;
        and aggregates unless `of_groups`."""
        contents = node.contents
        deepest = below(node, self.depth_max) if contents.parts > self.depth_max else None
        if deepest is not None:
            raise self._too_deep(deepest.position)
        if contents.is_everywhere and len(contents.paths) <= FIELDS_MAX:
            return
        _check_fields(node, self.what, states)
        _check_parameters(node, self.what, self.parameters)
        if not of_groups:
            _check_records(node, self.what)

    def too_many_terms(self, position: int) -> TooLarge:
        """The refusal of the term at `position` and all behind it."""
        return TooLarge(
            f"the {self.what} has more than {self.terms_max} terms (names, literals, operators, "
            "parentheses and commas, a list of literals being one); write x IN ('a', 'b') in place "
            "of x = 'a' OR x = 'b', or several filters",
            position=position,
            expected=f"at most {self.terms_max} terms",
        )

    def _too_deep(self, position: int) -> TooLarge:
        return TooLarge(
            f"the {self.what} nests deeper than the limit of {self.depth_max} levels; flatten it",
            position=position,
            expected=f"at most {self.depth_max} levels",
        )


def _check_fields(node: Node, what: str, states: Collection[str]) -> None:
    paths = set()
    for part in walk(node):
        if isinstance(part, Identifier):
            if part.of and part.of not in states:
                raise _no_place(part, what)
            paths.add(part.path)
            if len(paths) > FIELDS_MAX:
                raise TooLarge(
                    f"the {what} names more than {FIELDS_MAX} different fields; name fewer",
                    position=part.position,
                    expected=f"at most {FIELDS_MAX} different fields",
                )


def _check_parameters(node: Node, what: str, prefix: str) -> None:
    for part in walk(node):
        if not isinstance(part, Parameter):
            continue
        if prefix and part.name.startswith(prefix) and part.name != prefix:
            continue
        instead = f"write ${{{prefix}NAME}}" if prefix else "write the value"
        raise BadFilter(
            f"{clipped(str(part))} at position {part.position} has no place in this {what}; "
            + instead,
            position=part.position,
            expected=f"${{{prefix}NAME}}" if prefix else "a path, a literal or '('",
        )


def _check_records(node: Node, what: str) -> None:
    """Refuse what has a meaning over groups or several topics alone."""
    for part in walk(node):
        if isinstance(part, Call) and part.name in AGGREGATES:
            raise BadFilter(
                f"{part.name} at position {part.position} has no place in this {what}, which is "
                "about one record: an aggregate is of a group; project it in a View, or query with "
                f"projection=[{AGGREGATES[part.name].signature} AS /name],grouping=[/field], and "
                "use what it gives",
                position=part.position,
                expected="a function of one record",
            )
        if isinstance(part, Identifier) and part.topic:
            raise BadFilter(
                f"[{clipped(part.topic)}] at position {part.position} has no place in this {what}, "
                f"which is about one topic; write {clipped(str(part.path))}",
                position=part.position,
                expected="a path",
            )


def _no_place(part: Identifier, what: str) -> BadFilter:
    return BadFilter(
        f"OF {part.of} at position {part.of_position} has no place in this {what}: only in the "
        "Enrichment of a topic that is published to has a record several states; write the path "
        "alone",
        position=part.of_position,
        expected=f"a path without OF, or the end of the {what}",
    )


def position_of(error: UnexpectedInput, text: str) -> int:
    """The character at which reading stopped."""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return len(text)
    return error.pos_in_stream or 0


def make_parser() -> None:
    """Make the parser: for callers with time before the first expression."""
    _tables()


@cache
def _parser() -> Lark:
    saved = saved_tables()
    if saved is None:
        return Lark(_grammar(), transformer=Builder(), **PARSER_OPTIONS)
    # As the parsers do that Lark writes for programs without it.
    loaded = Lark._load_from_dict(saved["data"], saved["memo"], transformer=Builder())  # type: ignore[no-untyped-call]
    return cast(Lark, loaded)


_END = "end"
"""The name of what is found where the text ends."""


class _Tables:
    """Lark's tables in a form that a loop reads fast: Lark's own looks up each rule by value, and
    calls a dozen functions a word.

    For each state of the parser and each kind of word `_steps` has the next state, or the rule that
    ends here: its length, its name, and what makes its value; None: its one part is its value.
    """

    def __init__(self, lark: Lark) -> None:
        frontend: Any = lark.parser
        lalr = frontend.parser.parser
        table, callbacks = lalr.parse_table, lalr.callbacks
        self._starts, self._ends = table.start_states, table.end_states
        self._lexers = frontend.lexer.lexers
        self._words: dict[int, re.Pattern[str]] = {}
        """What finds the next word in a state, behind blanks; made when it is first needed."""
        self._steps: dict[int, dict[str, Any]] = {
            state: {
                str(name): to if action is Shift else _reduction(to, callbacks[to])
                for name, (action, to) in row.items()
            }
            for state, row in table.states.items()
        }

    def _words_in(self, state: int) -> re.Pattern[str]:
        terminals = self._lexers[state].terminals
        words = [f"(?P<{one.name}>{one.pattern.to_regexp()})" for one in terminals]
        words.append(rf"(?P<{_END}>\Z)")
        self._words[state] = made = re.compile(rf"\s*+(?:{'|'.join(words)})")
        return made

    def read(self, text: str, start: str, limits: _Limits) -> object:
        """What a text makes; None where it cannot be read."""
        steps, known, end = self._steps, self._words, self._ends[start]
        states: list[int] = [self._starts[start]]
        values: list[object] = []
        at = terms = 0
        while True:
            state = states[-1]
            words = known[state] if state in known else self._words_in(state)
            found = words.match(text, at)
            if found is None:
                return None
            kind = str(found.lastgroup)
            begin, at = found.span(kind)
            if kind == _END:
                kind = "$END"
            elif terms == limits.terms_max:
                raise limits.too_many_terms(begin)
            terms += 1
            try:
                while (step := steps[states[-1]][kind]).__class__ is tuple:
                    size, name, make = step
                    if make is None:
                        states[-1] = steps[states[-2]][name]
                    else:
                        parts = values[-size:]
                        del states[-size:], values[-size:]
                        values.append(make(parts))
                        states.append(steps[states[-1]][name])
                    if states[-1] == end and kind == "$END":
                        return values[-1]
            except KeyError:
                return None
            word = str.__new__(Token, found[kind])  # without lines and columns
            word.type, word.start_pos = kind, begin
            states.append(step)
            values.append(word)


def _reduction(rule: Any, make: Any) -> tuple[int, str, Any]:
    size = len(rule.expansion)
    assert size, f"{rule} is of no words, which the loop does not read"
    is_its_part = size == 1 and isinstance(make, ExpandSingleChild)
    return size, str(rule.origin.name), None if is_its_part else make


@cache
def _tables() -> _Tables:
    return _Tables(_parser())


def _grammar() -> str:
    return files("sow.expressions").joinpath("grammar.lark").read_text(encoding="utf-8")


def _made_of() -> object:
    """All that tables depend on."""
    return _grammar(), lark_version, PARSER_OPTIONS


def tables() -> bytes:
    """The tables of the grammar, to be saved (`make docs`)."""
    data, memo = Lark(_grammar(), **PARSER_OPTIONS).memo_serialize([TerminalDef, Rule])
    return pickle.dumps({"made_of": _made_of(), "data": data, "memo": memo})


def saved_tables() -> dict[str, Any] | None:
    """The saved tables; None where they are of another grammar or Lark, or not to be read. They are
    a file of this package, and trusted like its modules."""
    try:
        saved: dict[str, Any] = pickle.loads(TABLES.read_bytes())
        return saved if saved["made_of"] == _made_of() else None
    except Exception:  # whatever a damaged file raises: the tables are made again
        return None
