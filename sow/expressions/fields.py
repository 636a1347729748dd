"""Field constructions: ``/price * /qty AS /value``, merged into the message they are made from.

The expression reads the message's fields; what it gives is put at the path after AS, and the rest
of the message stays as it is. NULL is written as null, or with ``HINT OPTIONAL`` takes the field
away. With ``HINT SET_CURRENT`` the fields that follow see the result.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any, cast

from lark import Lark, Token, Transformer, UnexpectedInput
from lark.exceptions import VisitError

from sow.delta import merged
from sow.errors import BadFilter, NotAvailable, TooLarge, clipped, shown
from sow.expressions.builder import Builder
from sow.expressions.calculations import ANY, CALCULATIONS, calculate, number
from sow.expressions.compare import compare
from sow.expressions.functions import FUNCTIONS, FUNCTIONS_LATER
from sow.expressions.nodes import Identifier, Literal
from sow.expressions.parser import position_of
from sow.paths import Path, Value, value_at

Document = dict[str, Any]
Evaluate = Callable[[Document], Value]
LENGTH_MAX = 4096
"""Characters of a field construction. One is written by an operator, and runs for every message."""
DEPTH_MAX = 100
"""Levels of operators and calls: each takes up to three frames of Python's stack."""


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
    """The constructions that the texts state; raises BadFilter with the position of a mistake."""
    return Fields([_compile(text) for text in texts])


def _compile(text: str) -> Field:
    if len(text) > LENGTH_MAX:
        raise BadFilter(
            f"the field has {len(text)} characters and the limit is {LENGTH_MAX}; shorten it",
            position=LENGTH_MAX,
            expected=f"at most {LENGTH_MAX} characters",
        )
    try:
        return cast(Field, _parser().parse(text))
    except UnexpectedInput as error:
        position = position_of(error, text)
        raise BadFilter(
            f"{shown(text)} is not understood at position {position}; write an expression, AS and "
            "the path of the field that it makes: /price * /qty AS /value (with blanks around / "
            "and -)",
            position=position,
            expected="EXPRESSION AS /path",
        ) from None
    except VisitError as error:
        raise error.orig_exc from None


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


class _Compiler(Transformer[Token, Any]):
    """Makes functions of documents, one method for each alternative of the grammar."""

    def __init__(self) -> None:
        super().__init__()
        self._builder = Builder()

    def start(self, parts: list[Any]) -> Field:
        evaluate, target, hints = parts
        words = {str(hint).upper() for hint in hints or ()}
        path = target.path
        if path.index is not None:
            raise BadFilter(
                f"{path} has an index; a field is made at a path of names",
                position=target.position,
                expected="a path without an index",
            )
        return Field(evaluate, path, "OPTIONAL" in words, "SET_CURRENT" in words)

    def hints(self, parts: list[Token]) -> list[Token]:
        return parts

    def target(self, parts: list[Any]) -> Any:
        return parts[0]

    def path(self, parts: list[Token]) -> "_Read":
        return _read(cast(Identifier, self._builder.path((parts[0],))))

    def bracketed(self, parts: list[Token]) -> "_Read":
        return _read(cast(Identifier, self._builder.bracketed((parts[0],))))

    def number(self, parts: list[Token]) -> Evaluate:
        return _constant(cast(Literal, self._builder.number((parts[0],))).value)

    def string(self, parts: list[Token]) -> Evaluate:
        return _constant(cast(Literal, self._builder.string((parts[0],))).value)

    def raw(self, parts: list[Token]) -> Evaluate:
        return _constant(cast(Literal, self._builder.raw((parts[0],))).value)

    def null(self, _parts: list[Token]) -> Evaluate:
        return _constant(None)

    def negative(self, parts: list[Any]) -> Evaluate:
        sign, operand = parts
        return _over(lambda document: calculate("*", -1, operand(document)), sign, operand)

    def positive(self, parts: list[Any]) -> Evaluate:
        sign, operand = parts
        return _over(lambda document: number(operand(document)), sign, operand)

    def arithmetic(self, parts: list[Any]) -> Evaluate:
        left, symbol, right = parts
        sign = "%" if symbol.upper() == "MOD" else str(symbol)
        return _over(
            lambda document: calculate(sign, left(document), right(document)), symbol, left, right
        )

    def compare(self, parts: list[Any]) -> Evaluate:
        left, symbol, right = parts
        sign = {"==": "=", "<>": "!="}.get(symbol, str(symbol))
        return _over(
            lambda document: compare(sign, left(document), right(document)), symbol, left, right
        )

    def call(self, parts: list[Any]) -> Evaluate:
        name, *given = parts
        arguments = [argument for argument in given if argument is not None]
        upper, position = str(name).upper(), name.start_pos or 0
        if upper in FUNCTIONS and not arguments:
            return _constant(FUNCTIONS[upper].value)
        function = CALCULATIONS.get(upper)
        if function is None:
            known = ", ".join(CALCULATIONS)
            if upper in FUNCTIONS_LATER:
                raise NotAvailable(
                    f"function {upper} is not available yet; those of fields are {known}",
                    position=position,
                    expected="a function that is available",
                )
            raise BadFilter(
                f"there is no function {clipped(name)}; known are {known}",
                position=position,
                expected="a function",
            )
        if not function.least <= len(arguments) <= function.most:
            count = f"{function.least}" + (
                " or more" if function.most == ANY else f" to {function.most}"
            )
            raise BadFilter(
                f"function {upper} takes {count} arguments; {len(arguments)} are given",
                position=position,
                expected=f"{count} arguments",
            )
        return _over(partial(_call, function.run, tuple(arguments)), name, *arguments)


def _over(evaluate: Any, token: Token, *operands: Any) -> Evaluate:
    """What computes with operands, one level over the deepest of them; raises TooLarge."""
    evaluate.depth = 1 + max((getattr(operand, "depth", 0) for operand in operands), default=0)
    if evaluate.depth > DEPTH_MAX:
        raise TooLarge(
            f"the field nests deeper than the limit of {DEPTH_MAX} levels; make it of several",
            position=token.start_pos or 0,
            expected=f"at most {DEPTH_MAX} levels",
        )
    return cast(Evaluate, evaluate)


def _call(run: Callable[..., Value], arguments: Sequence[Evaluate], document: Document) -> Value:
    return run(*[argument(document) for argument in arguments])


@dataclass(frozen=True, slots=True)
class _Read:
    """Reads a field, and as a target says where one goes."""

    path: Path
    position: int

    def __call__(self, document: Document) -> Value:
        return value_at(document, self.path)


def _read(node: Identifier) -> _Read:
    return _Read(node.path, node.position)


def _constant(value: Value) -> Evaluate:
    return lambda _document: value


@cache
def _parser() -> Lark:
    grammar = files("sow.expressions").joinpath("fields.lark").read_text(encoding="utf-8")
    return Lark(grammar, parser="lalr", maybe_placeholders=True, transformer=_Compiler())
