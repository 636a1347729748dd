"""Superficial checks of a query and of a list of columns, which catch a slip without Spark.

Spark's own parser decides, and `sow check --spark` runs it. Only what nobody means is reported
here: a query that does not begin like one, an open bracket or quote, half a statement, a second
one, and a view that no query reads.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise

from conflated_topics.user_texts import nearest

BEGINNINGS = ("select", "with", "from", "values", "table")
TOKEN = re.compile(
    r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`"
    r"|\.\s*[A-Za-z_]\w*|[A-Za-z_]\w*|\d[\w.]*|[()'\"`;,]|/\*"
    r"|(?:(?!--|/\*)[<>=!|&^%+/~?:*.-])+|\S",
    re.DOTALL,
)
OPEN = {"'": "a quote '", '"': 'a quote "', "`": "a quote `", "/*": "a comment /*"}
COMMENTS = ("--", "/*")
CLAUSES = ("from", "where", "having", "and", "or", "union", "intersect")
"""Words that end what stands before them; others may be names of columns, too."""
OPERATORS = ("=", "==", "<=>", "<", "<=", ">", ">=", "<>", "!=", "||", "->", "+", "-", "/", "%")
UNFINISHED = (
    "select", "from", "join", "where", "on", "by", "having", "and", "or", "not", "like", "between",
    "in", "union", "intersect", "except", "with", "as", "case", "when", "then", "else", ",",
    *OPERATORS,
)  # fmt: skip
"""Something follows each of them."""
NEEDS_OPERAND = tuple(one for one in UNFINISHED if one not in ("as", "with", "union", "except"))
"""The same, and no clause follows: `SELECT a, FROM`."""
ENDS = ("is", "group", "order", "left", "right", "full", "inner", "cross")
"""At the end of a query something is missing after them, too."""
COLUMN_WORDS = ("by", "on", "not", "like", "between", "in", "case", "when", "then", "else", *ENDS)
"""To Spark these are names of columns as well: `SELECT when, px`, `ORDER BY when`."""
BEFORE_COLUMNS = ("select", "distinct", "as", "by", "(", ",", *OPERATORS)


class _Slip(Exception):
    """The mistake, as the end of a sentence."""


def problem(text: str, views: Iterable[str]) -> str:
    """The mistake, with the line of the text; empty if none is found. All `views` are to be
    read."""
    try:
        tokens = list(_tokens(text))
        _check_brackets(tokens)
        _check_halves(tokens)
    except _Slip as slip:
        return str(slip)
    words = {one.strip("`") for _, one in tokens}
    unread = next((view for view in views if view.lower() not in words), None)
    return "" if unread is None else f"it does not read {unread}"


def _tokens(text: str) -> Iterator[tuple[int, str]]:
    """The tokens of the first statement and their lines; raises _Slip."""
    ended = False
    for token in TOKEN.finditer(text):
        found, line = token[0], text.count("\n", 0, token.start()) + 1
        if found in OPEN:
            raise _Slip(f"in its line {line} {OPEN[found]} is left open")
        if found.startswith(COMMENTS):
            continue
        if ended and found != ";":
            raise _Slip(f"in its line {line} a second statement begins, and a pipeline has one")
        ended = found == ";"
        if not ended:
            yield line, found.lower()


def _check_brackets(tokens: Sequence[tuple[int, str]]) -> None:
    opened: list[int] = []
    for line, token in tokens:
        if token == "(":
            opened.append(line)
        elif token == ")":
            if not opened:
                raise _Slip(f"in its line {line} a bracket is closed that was not opened")
            opened.pop()
    if opened:
        raise _Slip(f"in its line {opened[-1]} a bracket is left open")


def _check_halves(tokens: Sequence[tuple[int, str]]) -> None:
    """Whether something is missing at the beginning, in the middle, or at the end."""
    first = next((token for _, token in tokens if token != "("), "nothing")
    if first not in BEGINNINGS:
        raise _Slip(f"it begins with {first}")
    words = [token for _, token in tokens]
    names = _names_aside(words)
    for before, token, (line, _) in zip(names, names[1:], tokens[1:], strict=False):
        ends = token in CLAUSES or token in (")", ",")
        if (before in NEEDS_OPERAND and ends) or (before == "(" and token == ","):
            raise _Slip(
                f"in its line {line} {token.upper()} follows {before.upper()}, and something is "
                "missing between them"
            )
    if names[-1] in (*UNFINISHED, *ENDS) or names[-2:] == ["union", "all"]:
        raise _Slip(f"it ends with {names[-1].upper()}, and something has to follow")
    if first == "with" and names[-1] == ")" and names[_opening(names) - 1] == "as":
        raise _Slip("it ends with what WITH names, and the query has to follow")
    if sum(pair == ("case", "when") for pair in pairwise(words)) > words.count("end"):
        raise _Slip("a CASE has no END")


def _names_aside(tokens: Sequence[str]) -> list[str]:
    """The tokens, with a word that stands where the name of a column does as that."""
    return [
        f"`{token}`" if token in COLUMN_WORDS and before in BEFORE_COLUMNS else token
        for before, token in zip(("", *tokens), tokens, strict=False)
    ]


def _opening(names: Sequence[str]) -> int:
    """Where the bracket is opened that the last of them closes."""
    depth = 0
    for at in reversed(range(len(names))):
        depth += (names[at] == ")") - (names[at] == "(")
        if depth == 0:
            break
    return at


# A list of columns, `sym string, leg struct<qty: int> NOT NULL`, is parsed by Spark's grammar. What
# a source makes of the columns is not checked.

SIMPLE = (
    "boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint", "float",
    "real", "double", "decimal", "dec", "numeric", "string", "char", "character", "varchar",
    "binary", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz", "interval", "variant",
    "void", "geometry", "geography",
)  # fmt: skip
"""Spark's types of one word."""
TYPES = (*SIMPLE, "array", "map", "struct")
INTERVAL_UNITS = ("year", "month", "day", "hour", "minute", "second")
COLUMN_TOKEN = re.compile(
    r"(?P<blank>\s+|--[^\n]*|/\*.*?\*/)|`(?:[^`]|``)+`|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\""
    r"|\w+|<>|.",
    re.DOTALL,
)
NAME = re.compile(r"`.+`|\w+", re.DOTALL)
NESTING_MAX = 50
"""Spark reads types in types by calling itself, too, and no table is so deep."""


def columns_problem(text: str) -> str:
    """The mistake; empty if none is found."""
    try:
        _Columns(text).read()
    except _Slip as slip:
        return str(slip)
    return ""


class _Columns:
    """A place in the text, moving forward."""

    def __init__(self, text: str) -> None:
        self._words = [found[0] for found in COLUMN_TOKEN.finditer(text) if found["blank"] is None]
        self._at = 0
        self._depth = 0

    def read(self) -> None:
        """All columns; raises _Slip."""
        if self._next().lower() == "struct" and self._words[1:2] == ["<"]:
            self._type("the schema")
        else:
            self._fields(end="")
        if self._next():
            raise _Slip(f"unexpected {self._next()} at the end")

    def _fields(self, end: str) -> None:
        """Columns, or the fields of a struct, up to what ends them."""
        known: set[str] = set()
        while True:
            name = self._name()
            if name in known:
                raise _Slip(f"there are two columns {name}")
            known.add(name)
            if self._next() == ":":
                self._at += 1
            self._type(f"the column {name}")
            self._after_type()
            if self._next() == end:
                return
            self._expect(",", f"after the column {name}")

    def _name(self) -> str:
        if not NAME.fullmatch(self._next()):
            raise _Slip(f"a name is expected instead of {self._next() or 'nothing'}")
        return self._take().strip("`")

    def _type(self, of: str) -> None:
        word = self._next().lower()
        if not NAME.fullmatch(word):
            raise _Slip(f"{of} has no type, such as string")
        if word not in TYPES:
            meant = nearest(word, TYPES)
            instead = f"did you mean {meant}?" if meant else f"there are {', '.join(TYPES)}"
            raise _Slip(f"{of} is {word}, which is no type of Spark's; {instead}")
        self._at += 1
        self._depth += 1
        if self._depth > NESTING_MAX:
            raise _Slip(f"types are nested more than {NESTING_MAX} deep")
        READERS.get(word, _Columns._simple)(self, of)
        self._depth -= 1

    def _array(self, of: str) -> None:
        self._expect("<", f"in the type of {of}: write array<string>")
        self._type(of)
        self._expect(">", f"in the type of {of}")

    def _map(self, of: str) -> None:
        self._expect("<", f"in the type of {of}: write map<string, long>")
        self._type(of)
        self._expect(",", f"in the type of {of}: write map<string, long>")
        self._type(of)
        self._expect(">", f"in the type of {of}")

    def _struct(self, of: str) -> None:
        if self._next() == "<>":
            self._at += 1
            return
        self._expect("<", f"in the type of {of}: write struct<qty: int>")
        self._fields(end=">")
        self._expect(">", f"in the type of {of}")

    def _interval(self, of: str) -> None:
        if self._next().lower() in INTERVAL_UNITS:
            self._at += 1
            if self._next().lower() == "to":
                self._at += 1
                if self._take().lower() not in INTERVAL_UNITS:
                    units = ", ".join(INTERVAL_UNITS)
                    raise _Slip(f"the interval of {of} does not end in one of {units}")

    def _simple(self, of: str) -> None:
        if self._next() == "(":
            self._at += 1
            while self._take() != ")":
                if not self._next():
                    raise _Slip(f"in the type of {of} a bracket is left open")

    def _after_type(self) -> None:
        """Modifiers of a type: `COLLATE x`, `NOT NULL`, `COMMENT 'text'`."""
        for first, second in (("collate", NAME), ("not", re.compile("(?i)null"))):
            if self._next().lower() == first:
                self._at += 1
                if not second.fullmatch(self._next()):
                    raise _Slip(f"{self._next() or 'nothing'} follows {first.upper()}")
                self._at += 1
        if self._next().lower() == "comment":
            self._at += 2

    def _expect(self, wanted: str, where: str) -> None:
        if self._next() != wanted:
            raise _Slip(f"{wanted} is expected instead of {self._next() or 'nothing'}, {where}")
        self._at += 1

    def _next(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _take(self) -> str:
        self._at += 1
        return self._words[self._at - 1] if self._at <= len(self._words) else ""


READERS: dict[str, Callable[[_Columns, str], None]] = {
    "array": _Columns._array,
    "map": _Columns._map,
    "struct": _Columns._struct,
    "interval": _Columns._interval,
}
