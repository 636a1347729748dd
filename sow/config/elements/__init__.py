"""The table of elements (`sow.config.elements.table`), and its parts, one for each section.

An entry says its place, its value type and where its value goes (`Element`).
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from sow.config import value_types
from sow.config.value_types import ValueKind

CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""Where a word of a name begins."""
OWN_NAME = ("",)
"""The field of an element that gives none."""
Status = Literal["implemented", "not yet", "no effect", "foreign", "refused"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Element:
    """One element: where its value goes, and its documentation.

    A leaf has a `kind`; its value fills `fields` of the section around it. A section has
    `children`: with `make` their fields become one object, which fills `fields` in turn; without,
    they belong to the section around it. The field is called as the element is, `record_size` of
    RecordSize, unless `fields` are given. `attribute` allows ``<Parent Name="…">`` for a leaf, and
    `text_child` names the child that takes a section's own text. A `required` element may be absent
    if the element `unless` is present; it then takes that value.
    Status: `not yet` is refused by name; `no effect` and `foreign` (an element of AMPS, unknown
    here) get a warning; `refused` is foreign and unsafe to ignore. The children of all four are
    not read, except for refused ones in foreign ones.
    """

    name: str
    about: str = ""
    synonyms: tuple[str, ...] = ()
    status: Status = "implemented"
    kind: ValueKind | None = None
    default: str = ""
    required: bool = False
    unless: str = ""
    repeated: bool = False
    attribute: bool = False
    fields: tuple[str, ...] = OWN_NAME
    children: tuple["Element", ...] = ()
    text_child: str = ""
    make: Callable[..., object] | None = None

    def __post_init__(self) -> None:
        if self.fields == OWN_NAME:
            own = (CAPITAL.sub("_", self.name).lower(),) if self.kind or self.make else ()
            object.__setattr__(self, "fields", own)

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its synonyms."""
        return (self.name, *self.synonyms)

    def child(self, tag: str) -> "Element | None":
        """The child called `tag`, under any of its names."""
        return next((child for child in self.children if tag in child.names), None)

    def filling(self, field: str) -> str:
        """The name of the child that fills a field, by itself or by what is in it; "" if none."""
        for child in self.children:
            inner = () if child.make else (one for _, one in child.walk())
            if any(field in one.fields for one in (child, *inner)):
                return child.name
        return ""

    def walk(self, parent: str = "") -> Iterator[tuple[str, "Element"]]:
        """Every element from here down, with the path of its section."""
        yield parent, self
        below = f"{parent}/{self.name}".lstrip("/")
        for child in self.children:
            yield from child.walk(below)


def leaf(name: str, kind: ValueKind, default: str = "", **more: Any) -> Callable[[str], Element]:
    """An element that holds a value, once it is given the sentence about it."""
    return lambda about: Element(name=name, kind=kind, default=default, about=about, **more)


def only(**fields: object) -> object:
    """What a section makes that is the value of its only field."""
    [value] = fields.values()
    return value


def listing(name: str, about: str, child: str, kind: ValueKind, each: str, **more: Any) -> Element:
    """A section that is a list of values, each in a `child` of its own."""
    field = f"{child.lower()}s"
    member = Element(
        name=child, kind=kind, required=True, repeated=True, fields=(field,), about=each
    )
    return Element(name=name, make=only, about=about, children=(member,), **more)


def later(*names: str, **instead: str) -> tuple[Element, ...]:
    """Elements that are planned and not built yet: refused by name, with what to do instead."""
    advice = dict.fromkeys(names, "remove it") | instead
    return tuple(
        Element(name=name, status="not yet", about=about) for name, about in advice.items()
    )


def unused(*names: str) -> tuple[Element, ...]:
    """Elements that tune what this server does by itself."""
    return tuple(Element(name=name, status="no effect") for name in names)


def foreign(**advice: str) -> tuple[Element, ...]:
    """Elements of AMPS that we know and do not have, each with what to do instead."""
    return tuple(
        Element(name=name, status="foreign", about=about) for name, about in advice.items()
    )


FLUSH_INTERVAL = leaf(
    "FlushInterval",
    value_types.duration(maximum="1s"),
    "0",
    attribute=True,
    fields=("flush_interval_us",),
)("How long a write may wait for others, to share their flush to disk.")
