"""Lists as users write them: words between commas, in options and over HTTP, and select lists.

A comma inside brackets belongs to its word, so that a list can be the value of an option. Of
expressions, so does one inside parentheses or quotes. What the words mean is not known here.

Select lists say which fields of a record a subscription or query wants to see: a list of paths,
each with a sign: ``+/a`` shows a field and all below it, ``-/a`` hides it, ``-/`` hides everything
and ``+/`` shows everything that no longer path decides. The longest path that leads to a field
decides, the first one of equals. What no path decides is shown, unless the list has no signs at
all: then it names exactly the fields that are wanted.

A select list is applied to parsed documents. It knows nothing of keys: a subscriber identifies
records by their SowKey.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from sow.core.containers import kept
from sow.core.paths import Member, bad_member, parse_member
from sow.errors import ClientError, TooLarge, invalid_options, shown
from sow.errors import shown as quoted

_MARK = re.compile(
    r"""r'[^']*'?|r"[^"]*"?|'(?:[^'\\]|\\.?)*'?|"(?:[^"\\]|\\.?)*"?|\[/[^][(),]*\]|[][(),]""",
    re.IGNORECASE | re.DOTALL,
)
"""What matters to who looks for the end of an expression: texts, closed or not so that a search is
one pass, and names in brackets, as a whole; and what opens, closes or separates."""


_QUOTED = re.compile(r"""\[(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\]""", re.DOTALL)
"""A name in quotes in a path: what stands in it opens, closes and separates nothing."""


def comma_list(text: str | list[str]) -> list[str]:
    """Members of a comma text, blanks trimmed; raises ClientError for an empty one."""
    if not isinstance(text, str):
        return [member.strip() for member in text if member.strip()]
    members = [member.strip() for member in text.split(",")]
    if members == [""]:
        return []
    if "" in members:
        raise _empty(text)
    return members


def read_list(text: str) -> tuple[str, ...]:
    """Members of a comma text, which may stand in brackets; each knows its place in the text.
    Raises ClientError for an empty one."""
    inner = text.strip()
    before = text.index(inner)
    if inner.startswith("[") and inner.endswith("]"):
        inner, before = inner[1:-1], before + 1
    return tuple(Member(word, before + start) for start, word in _split(inner))


def read_expressions(text: str) -> tuple[str, ...]:
    """Expressions of a comma text, which may stand in brackets; each knows its place in the
    text. Raises ClientError for an empty one."""
    inner = text.strip()
    before = text.index(inner)
    if inner.startswith("[") and expressions_end(inner, 1) == len(inner) - 1:
        inner, before = inner[1:-1], before + 1
    found, start = [], 0
    for end in [*_commas(inner), len(inner)]:
        if word := inner[start:end].strip():
            found.append(Member(word, before + inner.index(word, start)))
        elif inner.strip():
            raise _empty(text)
        start = end + 1
    return tuple(found)


def expressions_end(text: str, start: int) -> int:
    """Where the bracket stands that ends a list of expressions which begins at `start`; -1 if there
    is none."""
    depth = 0
    for found in _MARK.finditer(text, start):
        mark = found[0]
        if mark == "]" and depth == 0:
            return found.start()
        depth += (mark in ("[", "(")) - (mark in ("]", ")"))
    return -1


def _commas(text: str) -> Iterator[int]:
    """Where the commas stand that separate expressions."""
    depth = 0
    for found in _MARK.finditer(text):
        mark = found[0]
        if mark == "," and depth <= 0:
            yield found.start()
        depth += (mark in ("[", "(")) - (mark in ("]", ")"))


def split_list(text: str) -> list[str]:
    """Split at commas outside brackets; raises ClientError for an empty word."""
    return [word for _, word in _split(text)]


def _split(text: str) -> Iterator[tuple[int, str]]:
    """The words between commas outside brackets, each with the character that it begins at."""
    depth, start = 0, 0
    bare = _QUOTED.sub(lambda found: "_" * len(found[0]), text)
    for at, character in enumerate(f"{bare},"):
        depth += (character == "[") - (character == "]")
        if character == "," and (depth <= 0 or at == len(text)):
            if word := text[start:at].strip():
                yield text.index(word, start), word
            elif text.strip():
                raise _empty(text)
            start = at + 1


def _empty(text: str) -> ClientError:
    return invalid_options(
        f"the list {shown(text)} has an empty item; remove a comma, or write what is missing"
    )


Steps = tuple[str, ...]
MEMBERS_MAX = 1000
"""Maximum number of fields in a client's list: parsed lists are cached, some hundred bytes a field.
A list combined from several may name more."""


class SelectList:
    """A parsed select list."""

    def __init__(self, shown: dict[Steps, bool]) -> None:
        self._shown = shown
        # Where a container holds both shown and hidden fields it has to be looked into. Where it
        # holds only hidden ones, its empty arrays and objects would show that it is there.
        differing = [one for one in shown if one and shown[one] != self.shows(one[:-1])]
        self._opened = {steps[:size] for steps in differing for size in range(len(steps))}
        self._names = frozenset(name for steps in shown for name in steps)

    def shows(self, steps: Steps) -> bool:
        """Whether the field of these names is visible where it is no object."""
        for size in range(len(steps), -1, -1):
            if steps[:size] in self._shown:
                return self._shown[steps[:size]]
        return True

    @property
    def hides(self) -> bool:
        """Whether there is any field that is not visible."""
        return not all(self._shown.values())

    @property
    def places(self) -> frozenset[Steps]:
        """The fields that it names, and the whole."""
        return frozenset(((), *self._shown))

    @property
    def whole_fields(self) -> tuple[str, ...] | None:
        """The names, if it shows some outermost fields, each of them whole, and nothing else."""
        if self.fields is None or not all(len(steps) < 2 for steps in self._shown):
            return None
        return tuple(steps[0] for steps in self.fields)

    @property
    def fields(self) -> tuple[Steps, ...] | None:
        """The names that lead to each field that it shows, if it names all that it shows."""
        if self._shown.get((), True):
            return None
        return tuple(steps for steps, shown in self._shown.items() if shown)

    def may_show(self, name: str) -> bool:
        """Whether anything of the outermost field `name` is visible in some document."""
        here = self._shown.get((name,), self._shown.get((), True))
        return here or any(shown and steps[:1] == (name,) for steps, shown in self._shown.items())

    def apply(self, document: dict[str, Any]) -> dict[str, Any]:
        """The document's visible part; arrays are looked through, element by element."""
        return self._fields(document, (), self._shown.get((), True))

    def _fields(self, document: dict[str, Any], above: Steps, shown: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        # Where nothing else is visible, only what the list names is looked at.
        for name in document if shown else filter(self._names.__contains__, document):
            value, steps = document[name], (*above, name)
            here = self._shown.get(steps, shown)
            if steps in self._opened and isinstance(value, dict | list):
                inner = self._inside(value, steps, here)
                if inner or here:
                    found[name] = inner
            elif here:
                found[name] = value
        return found

    def _inside(self, value: Any, steps: Steps, shown: bool) -> Any:
        if isinstance(value, dict):
            return self._fields(value, steps, shown)
        if not isinstance(value, list):
            return value
        return [
            self._inside(element, steps, shown)
            for element in value
            if shown or isinstance(element, dict | list)
        ]


def parse_select(paths: Sequence[str]) -> SelectList:
    """A select list from its members, such as ``("-/", "+/id", "+/px")``; raises ClientError."""
    return _parsed(tuple(paths))


def check_written(paths: Sequence[str]) -> None:
    """Raise ClientError for an invalid select list of a client."""
    if len(paths) > MEMBERS_MAX:
        raise TooLarge(f"select names {len(paths)} fields, and {MEMBERS_MAX} are the most")
    parse_select(paths)


def united(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The union: a list that shows what any of the lists shows."""
    return _joined([parse_select(one) for one in lists], any)


def common(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """The intersection: a list that shows what all of the lists show."""
    return _joined([parse_select(one) for one in lists], all)


def _joined(
    lists: Sequence[SelectList], decides: Callable[[Iterable[bool]], bool]
) -> tuple[str, ...]:
    # At each place that any of them names, and so below it, each has one opinion.
    places = sorted({place for one in lists for place in one.places})
    found = [(place, decides(one.shows(place) for one in lists)) for place in places]
    return tuple(["+-"[not shown] + "/" + "/".join(place) for place, shown in found])


@kept(256)
def _parsed(members: tuple[str, ...]) -> SelectList:
    if not members:
        raise invalid_options("select names no field")
    shown: dict[Steps, bool] = {}
    signed = any(member[0] in "+-" for member in members)
    for member in members:
        shown.setdefault(_steps(member), member[0] != "-")
    if not signed:
        shown.setdefault((), False)
    return SelectList(shown)


def _steps(member: str) -> Steps:
    signed = member[0] in "+-"
    if member[signed:] == "/":
        return ()
    parsed = parse_member("select", member, skip=signed)
    if parsed.index is not None:
        detail = f"{quoted(member)} has an index; an array is shown or hidden whole"
        raise bad_member("select", member, detail, "a path without an index")
    return parsed.steps
