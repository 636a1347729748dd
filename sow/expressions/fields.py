"""Field constructions: ``/price * /qty AS /value``, merged into the message they are made from.

The expression reads the message's fields; what it gives is put at the path after AS, and the rest
of the message stays as it is. NULL is written as null, or with ``HINT OPTIONAL`` takes the field
away. With ``HINT SET_CURRENT`` the fields that follow see the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sow.delta import merged
from sow.expressions.builder import Construction
from sow.expressions.filters import compile_value, paths_in
from sow.expressions.parser import parse_field
from sow.paths import Path, Value, value_at

Document = dict[str, Any]
Evaluate = Callable[[Document], Value]


@dataclass(frozen=True, slots=True)
class Field:
    """One construction: what is computed, where it goes, and its hints."""

    evaluate: Evaluate
    target: Path
    optional: bool
    set_current: bool


class Fields:
    """Constructions that are made together, in order."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = tuple(fields)

    def apply(self, document: Document) -> Document:
        """The document with all fields made; it is not changed itself."""
        seen = result = document
        for field in self._fields:
            value = field.evaluate(seen)
            result = _with(result, field, value)
            if field.set_current:
                seen = _with(seen, field, value)
        return result


def compile_fields(texts: Sequence[str]) -> Fields:
    """The constructions that the texts state; raises what `parse_field` does."""
    return Fields([_compile(parse_field(text)) for text in texts])


def _compile(made: Construction) -> Field:
    paths, value = paths_in(made.value), compile_value(made.value)
    return Field(
        lambda document: value([value_at(document, path) for path in paths]),
        made.target,
        "OPTIONAL" in made.hints,
        "SET_CURRENT" in made.hints,
    )


def _with(document: Document, field: Field, value: Value) -> Document:
    if value is None and field.optional:
        return _without(document, field.target.steps)
    nested: Any = value
    for step in reversed(field.target.steps):
        nested = {step: nested}
    return merged(document, nested)


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
