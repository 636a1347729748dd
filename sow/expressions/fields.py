"""Field constructions: ``/price * /qty AS /value``, merged into the message that they read.

The expression reads the message's fields; its result is put at the path after AS, and the rest of
the message does not change. NULL is written as null, or with ``HINT OPTIONAL`` removes the field.
With ``HINT SET_CURRENT`` later constructions see the result. ``/qty OF PREVIOUS`` is the value that
the field had before the message, NULL if there was none.

A path alone may lead to an object, or to a list that contains objects: the result is a text, in
JSON if the caller passes an encoder. Within an expression these are NULL.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sow.core.delta import merged
from sow.core.paths import Path, Value, container_at, value_at
from sow.expressions.builder import Construction
from sow.expressions.filters import compile_value, paths_in, traits_in
from sow.expressions.message_attributes import NO_TRAITS, Trait
from sow.expressions.nodes import Identifier
from sow.expressions.parser import STATES, parse_field

PLAIN_TYPES = frozenset({str, int, float, bool, type(None)})
Document = dict[str, Any]
Known = Mapping[Trait, Value]
Evaluate = Callable[[Document, Document | None, Known], Value]
TextOf = Callable[[object], Value]
"""The text of an object or a list; None where there is none."""
Holds = Callable[[Document], bool]
"""Whether a document of one field can be written."""


@dataclass(frozen=True, slots=True)
class Field:
    """One construction: what is computed, where it goes, and its hints."""

    evaluate: Evaluate
    target: Path
    optional: bool
    set_current: bool
    of_previous: bool
    traits: tuple[Trait, ...]


class Fields:
    """Constructions that are made together, in order."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = tuple(fields)
        self.traits = tuple(dict.fromkeys(trait for field in fields for trait in field.traits))

    @property
    def targets(self) -> tuple[Path, ...]:
        """The targets of the constructions, in order."""
        return tuple(field.target for field in self._fields)

    @property
    def of_previous(self) -> bool:
        """Whether any of them reads the previous state."""
        return any(field.of_previous for field in self._fields)

    def apply(
        self,
        document: Document,
        previous: Document | None = None,
        holds: Holds | None = None,
        known: Known = NO_TRAITS,
    ) -> Document:
        """The document with all fields made; it is not changed itself, and returned where nothing
        is to be. `previous` is what there was before. A result that `holds` denies is NULL. `known`
        has what is known of the message beside its fields, for each of `traits`.
        """
        seen = result = document
        for field in self._fields:
            value = field.evaluate(seen, previous, known)
            if holds is not None and not holds(nested(field.target, value)):
                value = None
            result = _with(result, field, value, result is not document)
            if field.set_current:
                seen = _with(seen, field, value, seen is not document)
        return result


def compile_fields(
    texts: Sequence[str],
    states: Collection[str] = STATES,
    text_of: TextOf = lambda _container: None,
) -> Fields:
    """The constructions that the texts state; raises what `parse_field` does. `text_of` writes what
    is no single value."""
    return Fields([_compile(parse_field(text, states), text_of) for text in texts])


def nested(target: Path, value: Value) -> Document:
    """A document with the one field `target`."""
    document: Any = value
    for step in reversed(target.steps):
        document = {step: document}
    made: Document = document
    return made


def _compile(made: Construction, text_of: TextOf) -> Field:
    value, traits = compile_value(made.value), traits_in(made.value)
    paths, before = paths_in(made.value), paths_in(made.value, of_previous=True)
    reader = _reader
    if isinstance(made.value, Identifier) and made.value.path.index is None:
        reader = partial(_whole_reader, text_of=text_of)
    now, then = list(map(reader, paths)), list(map(reader, before))

    def evaluate(document: Document, previous: Document | None, known: Known) -> Value:
        values = [read(document) for read in now]
        values += [known[trait] for trait in traits]
        if then:
            values += [None] * len(then) if previous is None else [read(previous) for read in then]
        return value(values)

    return Field(
        evaluate,
        made.target,
        "OPTIONAL" in made.hints,
        "SET_CURRENT" in made.hints,
        bool(before),
        traits,
    )


def _reader(path: Path) -> Callable[[Document], Value]:
    """A function that gives the value of `path` in a document: `value_at`, but quicker."""
    name = path.steps[0]
    if len(path.steps) > 1 or path.index is not None:
        return lambda document: value_at(document, path)

    def read(document: Document) -> Value:
        value: Value = document.get(name)
        return value if value.__class__ in PLAIN_TYPES else value_at(document, path)

    return read


def _whole_reader(path: Path, text_of: TextOf) -> Callable[[Document], Value]:
    """The same, and the text of an object or of a list with objects in it."""
    read = _reader(path)

    def whole(document: Document) -> Value:
        value = read(document)
        if value is None or value.__class__ is list:
            container = container_at(document, path)
            text = None if container is None else text_of(container)
            return value if text is None else text
        return value

    return whole


def _with(document: Document, field: Field, value: Value, is_own: bool) -> Document:
    """The document with a field made; the same one, changed, if it `is_own`."""
    steps = field.target.steps
    # An empty text is NULL everywhere, so it is here.
    if field.optional and (value is None or value == ""):
        return _without(document, steps)
    if len(steps) > 1:
        return merged(document, nested(field.target, value))
    result = document if is_own else dict(document)
    result[steps[0]] = value
    return result


def _without(document: Document, steps: tuple[str, ...]) -> Document:
    name, *rest = steps
    if name not in document:
        return document
    result = dict(document)
    if not rest:
        del result[name]
    elif isinstance(result[name], dict):
        result[name] = _without(result[name], tuple(rest))
    return result
