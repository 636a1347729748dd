"""Paths: how a field of a message is named.

Two notations mean the same thing: the XPath subset of AMPS (``/order/id``, ``/55``,
``/legs[0]``, ``[/odd name]``) and JSONPath (``$.order.id``), which jsonpath-ng parses once, when
a configuration or a filter is read and never per message. A document is seen flattened to
path → scalar: a container has no value of its own, and a path met more than once (through an
array) is a list of its values in order.
"""

import re
import warnings
from collections.abc import Iterator
from typing import NamedTuple, Self

from conflated_topics.documents import TEXT_FIELD, ObjectWithText
from sow.errors import BadFilter, ClientError, TooLarge, clipped, shown

Scalar = str | int | float | bool | None
Value = Scalar | list[Scalar]

INDEX_DIGITS_MAX = 9
"""Digits of an array's index: no array of a message is longer."""
JSONPATH_CHARS_MAX = 1000
"""Its parser takes some 20 us a character, and a level of Python's stack for each name."""
_INDEX = rf"(?:\[(?P<index>[0-9]{{1,{INDEX_DIGITS_MAX}}})\])?\Z"
XPATH = re.compile(rf"(?P<steps>(?:/[^\s/\[\]]+)+){_INDEX}")
BRACKETED = re.compile(rf"\[(?P<steps>(?:/[^/\]]+)+)\]{_INDEX}")
_PLAIN = re.compile(r"[^/\]]+\Z")
"""Names that can stand between slashes, if need be in brackets."""
_BARE = re.compile(r"[^\s\[]+\Z")
"""Names that need no brackets where a path stands alone."""
_ESCAPED = re.compile(r"[\\']")


class Path(NamedTuple):
    """A parsed path: the names to follow and, for ``/a[2]``, which of several values.

    A tuple, since paths name columns and so are hashed and compared for every message.
    """

    steps: tuple[str, ...]
    index: int | None = None  # type: ignore[assignment]  # a tuple has a method of that name

    def __str__(self) -> str:
        """The path as `parse_path` reads it. Stored definitions have their keys by it."""
        return self.written(_BARE)

    def written(self, bare: re.Pattern[str]) -> str:
        """The same, with brackets around names unless all of them are `bare`."""
        text = "/" + "/".join(self.steps)
        if not all(map(_PLAIN.match, self.steps)):
            text = "$" + "".join([f"['{_ESCAPED.sub(_escape, name)}']" for name in self.steps])
        elif not all(map(bare.match, self.steps)):
            text = f"[{text}]"
        return text if self.index is None else f"{text}[{self.index}]"


def _escape(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


class TopicPath(NamedTuple):
    """A field of the records of one of several topics."""

    topic: str
    path: Path

    def __str__(self) -> str:
        return f"[{self.topic}].{self.path}"


def parse_path(text: str) -> Path:
    """Read ``/a/b``, ``/a[0]``, ``[/a b]``, ``[/a b][0]``, ``$.a.b`` or ``$['a/b']``; raises
    BadFilter."""
    text = text.strip()
    if text.startswith("$"):
        return _from_jsonpath(text)
    if found := XPATH.match(text) or BRACKETED.match(text):
        index = found["index"]
        return Path(tuple(found["steps"][1:].split("/")), None if index is None else int(index))
    raise BadFilter(
        f"{shown(text)} is not a path; write an absolute path such as /order/id, /legs[0] or "
        "$.order.id",
        expected="a path",
    )


class Member(str):
    """A member of a list that came as text, and the 0-based character of it where it begins."""

    position: int

    def __new__(cls, text: str, position: int = 0) -> Self:
        """The member `text`, which begins at `position`."""
        member = super().__new__(cls, text)
        member.position = position
        return member


def parse_member(name: str, member: str, skip: int = 0) -> Path:
    """The path that a member of the list `name` is, after `skip` characters such as a sign.

    Raises ClientError with the position within the list, as far as the member knows its own.
    """
    try:
        return parse_path(member[skip:])
    except BadFilter as error:
        raise bad_member(name, member, error.detail) from None


def bad_member(name: str, member: str, detail: str, expected: str = "a path") -> ClientError:
    """The error about a member of the list `name`."""
    position = member.position if isinstance(member, Member) else None
    return ClientError(
        f"{name}: {detail}", reason="invalid options", position=position, expected=expected
    )


def _from_jsonpath(text: str) -> Path:
    # Imported here: only configurations that use this notation pay for the parser.
    from jsonpath_ng import jsonpath
    from jsonpath_ng.exceptions import JSONPathError
    from jsonpath_ng.parser import parse

    def refuse(why: str) -> BadFilter:
        return BadFilter(
            f"JSONPath {shown(text)}: {why}; write $.field.field or /field/field", expected="a path"
        )

    if len(text) > JSONPATH_CHARS_MAX:
        raise TooLarge(
            f"JSONPath {shown(text)} has {len(text)} characters, and {JSONPATH_CHARS_MAX} are the "
            "most; write /field/field"
        )
    try:
        with warnings.catch_warnings():
            # Of operators that are refused below anyway.
            warnings.simplefilter("ignore", DeprecationWarning)
            tree = parse(text)
    except JSONPathError as error:
        raise refuse(clipped(str(error))) from None
    steps: list[str] = []
    index = None
    while not isinstance(tree, jsonpath.Root):
        if not isinstance(tree, jsonpath.Child):
            raise refuse("it must start at the root and name one field at a time")
        match tree.right:
            case jsonpath.Fields(fields=(str(name),)) if name != "*":
                steps.append(name)
            case jsonpath.Index() if not steps and index is None:
                index = _only_index(tree.right)
                if index is None:
                    raise refuse("an index is one number from 0 up")
            case _:
                raise refuse("only field names and one final index are understood")
        tree = tree.left
    if not steps:
        raise refuse("it names no field")
    return Path(tuple(reversed(steps)), index)


def _only_index(node: object) -> int | None:
    """The number of an Index node, None if it is not exactly one or negative; jsonpath-ng renamed
    the attribute between versions."""
    indices = getattr(node, "indices", None) or [node.index]  # type: ignore[attr-defined]
    return int(indices[0]) if len(indices) == 1 and indices[0] >= 0 else None


def value_at(document: object, path: Path) -> Value:
    """The value of `path` in a parsed document: a scalar, a list when it is met through an array,
    or None when it is absent, null, empty or a container."""
    met_array = False
    found: list[object] = [document]
    for step in path.steps:
        spread, arrays = _spread(found)
        met_array |= arrays
        found = [item[step] for item in spread if isinstance(item, dict) and step in item]
    spread, arrays = _spread(found)
    values: list[Scalar] = [
        item if isinstance(item, str | int | float | bool) else None
        for item in map(_own_value, spread)
        if not isinstance(item, dict)
    ]
    if path.index is not None:
        return values[path.index] if path.index < len(values) else None
    if met_array or arrays:
        return values or None
    return values[0] if values else None


def container_at(document: object, path: Path) -> dict[str, object] | list[object] | None:
    """The object at `path` in a parsed document, or the list that has an object in it; None where
    something else stands there, or the path leads through a list."""
    found = document
    for step in path.steps:
        found = found.get(step) if isinstance(found, dict) else None
    if isinstance(found, dict):
        return found or None
    if isinstance(found, list) and any(isinstance(item, dict) for item in found):
        return found
    return None


def _own_value(item: object) -> object:
    """The text of an object that has one; anything else is itself."""
    return item.get(TEXT_FIELD, item) if isinstance(item, ObjectWithText) else item


def _spread(items: list[object]) -> tuple[list[object], bool]:
    """Open arrays (nested ones too) into their elements; whether there was any."""
    if not any(isinstance(item, list) for item in items):
        return items, False
    return [leaf for item in items for leaf in _leaves(item)], True


def _leaves(item: object) -> Iterator[object]:
    if isinstance(item, list):
        for element in item:
            yield from _leaves(element)
    else:
        yield item
